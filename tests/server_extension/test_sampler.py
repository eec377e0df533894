"""One thread, its pace, and what it says when the driver does not."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from hub_extensions.core.gpu.devices import Device, GpusUnavailable
from hub_extensions.core.gpu.samples import Counters, DeviceSample
from hub_extensions.core.messages import Figures
from hub_extensions.core.text.reasons import explain
from hub_extensions.server_extension.readings import (
    NOT_MEASURABLE,
    NOT_READ,
    NOT_WHICH,
    NOT_YET,
    ExternalUse,
    FiguresWatch,
    HeldMemory,
    MemoryLimit,
    reading_of,
)
from hub_extensions.server_extension.sampler import Paces, Reader, Sampler, in_pod, leased_uuids
from tests.fakes.gpu_readers import (
    GIB,
    UUID,
    GpuThatBreaks,
    GpuThatGoesAway,
    GpuThatHangs,
    GpuThatIsSlow,
    GpuWithAFault,
    GpuWithoutDriver,
    ManyGpus,
    OneGpu,
)
from tests.fakes.panel_service import a_state
from tests.patience import patient, until

QUICK = 0.02
"""What a listener wants in these tests."""


def sampler_of(reader: Reader, *, unwatched: float = 30.0, hung_after: float = 0.0, **options: Any) -> Sampler:
    paces = Paces(shortest=0.005, unwatched=unwatched, hung_after=hung_after or patient(0.3))
    return Sampler(lambda: reader, getattr(reader, "uuids", (UUID,)), paces=paces, **options)


@pytest.mark.parametrize(
    ("environ", "uuids"),
    [
        ({}, ()),
        ({"CUDA_VISIBLE_DEVICES": UUID}, ()),
        ({"JUPYTERHUB_GPU_LEASE": "l1", "CUDA_VISIBLE_DEVICES": UUID}, (UUID,)),
        ({"JUPYTERHUB_GPU_LEASE": "l1", "CUDA_VISIBLE_DEVICES": f"{UUID}, GPU-b"}, (UUID, "GPU-b")),
        ({"JUPYTERHUB_GPU_LEASE": "l1", "CUDA_VISIBLE_DEVICES": "void"}, ()),
        ({"JUPYTERHUB_GPU_LEASE": "l1", "CUDA_VISIBLE_DEVICES": "0"}, ()),
        ({"NVIDIA_VISIBLE_DEVICES": UUID}, ()),
        ({"JUPYTERHUB_GPU_LEASE": "l1", "NVIDIA_VISIBLE_DEVICES": UUID}, (UUID,)),
        ({"JUPYTERHUB_GPU_LEASE": "l1", "NVIDIA_VISIBLE_DEVICES": "GPU-a::0"}, ("GPU-a",)),
        ({"JUPYTERHUB_GPU_LEASE": "l1", "NVIDIA_VISIBLE_DEVICES": "GPU-a::0,GPU-a::3, GPU-b::1"}, ("GPU-a", "GPU-b")),
        ({"JUPYTERHUB_GPU_LEASE": "l1", "CUDA_VISIBLE_DEVICES": "GPU-a", "NVIDIA_VISIBLE_DEVICES": "all"}, ("GPU-a",)),
        ({"JUPYTERHUB_GPU_LEASE": "l1", "CUDA_VISIBLE_DEVICES": "0", "NVIDIA_VISIBLE_DEVICES": "GPU-a"}, ("GPU-a",)),
        ({"JUPYTERHUB_GPU_LEASE": "l1", "NVIDIA_VISIBLE_DEVICES": "all"}, ()),
        ({"JUPYTERHUB_GPU_LEASE": "l1", "NVIDIA_VISIBLE_DEVICES": "void"}, ()),
        ({"JUPYTERHUB_GPU_LEASE": "l1", "NVIDIA_VISIBLE_DEVICES": "/var/run/nvidia-container-devices"}, ()),
    ],
)
def test_the_devices_are_those_of_the_lease(environ: dict[str, str], uuids: tuple[str, ...]) -> None:
    assert leased_uuids(environ) == uuids


@pytest.mark.parametrize(
    ("environ", "there"),
    [
        ({"JUPYTERHUB_GPU_LEASE": "l1", "JUPYTERHUB_GPU_POD": "mig"}, True),
        ({"JUPYTERHUB_GPU_LEASE": "l1", "JUPYTERHUB_GPU_POD": "1"}, True),
        ({"JUPYTERHUB_GPU_LEASE": "l1"}, False),
        ({"JUPYTERHUB_GPU_LEASE": "", "JUPYTERHUB_GPU_POD": "mig"}, False),
        ({"JUPYTERHUB_GPU_POD": "mig"}, False),
    ],
)
def test_devices_are_looked_for_in_a_pod_with_a_lease_only(environ: dict[str, str], there: bool) -> None:
    assert in_pod(environ) is there


def test_a_server_without_a_gpu_opens_nothing() -> None:
    def never() -> OneGpu:
        raise AssertionError("opened")

    sampler = Sampler(never, ())
    before = threading.active_count()
    sampler.start()
    sampler.watch("panel", QUICK)
    assert threading.active_count() == before
    assert (sampler.latest().state, sampler.latest().reason) == ("no-gpu", explain("no-gpu"))


def test_it_reads_in_one_thread_of_its_own() -> None:
    reader = OneGpu()
    sampler = sampler_of(reader)
    sampler.start()
    sampler.start()
    until(lambda: sampler.latest().state == "ok")
    assert reader.thread == "jupyterhub-gpu-sampler"
    assert sampler.latest().gpus[0].used_percent == 84.0
    sampler.stop()
    assert reader.closed.wait(patient(5))


def test_a_watcher_gets_a_new_sample_at_once_and_then_a_quick_pace() -> None:
    reader = OneGpu()
    sampler = sampler_of(reader)
    sampler.start()
    until(lambda: reader.reads == 1)
    sampler.watch("panel", QUICK)
    until(lambda: reader.reads > 4)
    sampler.unwatch("panel")
    sampler.stop()


@pytest.mark.slow
def test_ten_watchers_cost_one_reader() -> None:
    reader = OneGpu()
    sampler = sampler_of(reader)
    sampler.start()
    for number in range(10):
        sampler.watch(number, 0.2)
    began = time.monotonic()
    until(lambda: reader.reads >= 4)
    assert time.monotonic() - began > 0.3
    sampler.stop()


def test_the_smallest_wish_is_the_period_and_nobody_makes_it_longer_than_unwatched() -> None:
    sampler = Sampler(OneGpu, (UUID,))
    assert sampler.latest().period_seconds == 10.0
    sampler.watch("slow", 60.0)
    assert sampler.latest().period_seconds == 10.0
    sampler.watch("quick", 2.0)
    sampler.watch("middle", 5.0)
    assert sampler.latest().period_seconds == 2.0
    sampler.unwatch("quick")
    assert sampler.latest().period_seconds == 5.0


@pytest.mark.parametrize(("wanted", "given"), [(0.0, 1.0), (-1.0, 1.0), (0.001, 1.0), (1e9, 10.0), (3.0, 3.0)])
def test_a_wish_is_bounded(wanted: float, given: float) -> None:
    sampler = Sampler(OneGpu, (UUID,))
    sampler.watch("panel", wanted)
    assert sampler.latest().period_seconds == given


@pytest.mark.slow
def test_a_slow_driver_lengthens_the_period_and_looks_never_overlap() -> None:
    reader = GpuThatIsSlow(0.08)
    sampler = sampler_of(reader, hung_after=5.0)
    sampler.start()
    sampler.watch("panel", QUICK)
    until(lambda: len(reader.ended) >= 6)
    sampler.stop()
    pauses = [began - ended for ended, began in zip(reader.ended, reader.began[1:], strict=False)]
    assert min(pauses) >= 0.075, "the driver rests as long as it worked"
    assert sampler.latest().period_seconds in (1.0, 2.0, 5.0), "a round number above what it takes"


def test_a_driver_that_hangs_is_told_with_the_last_numbers_and_holds_nothing_up() -> None:
    reader = GpuThatHangs()
    sampler = sampler_of(reader)
    sampler.start()
    until(lambda: sampler.latest().state == "ok")
    sampler.watch("panel", QUICK)
    until(lambda: sampler.latest().state == "not-answering")
    told = sampler.latest()
    assert told.reason is not None and told.reason.message.startswith("The GPU driver is not answering since 2")
    assert told.gpus[0].memory_used_bytes == 3 * 1024**3
    sampler.stop()
    assert not reader.closed.is_set(), "it does not wait for the call"
    reader.release.set()
    assert reader.closed.wait(patient(5))


@pytest.mark.whole
@pytest.mark.slow
def test_a_driver_that_comes_back_is_shown_again() -> None:
    reader = GpuThatHangs()
    sampler = sampler_of(reader)
    sampler.start()
    sampler.watch("panel", QUICK)
    until(lambda: sampler.latest().state == "not-answering")
    reader.release.set()
    until(lambda: sampler.latest().state == "ok")
    sampler.stop()


def test_no_driver_is_an_answer_and_one_log_line(caplog: pytest.LogCaptureFixture) -> None:
    reader = GpuWithoutDriver()
    sampler = sampler_of(reader)
    with caplog.at_level(logging.INFO):
        sampler.start()
        sampler.watch("panel", QUICK)
        until(lambda: reader.reads > 5)
    assert sampler.latest().state == "driver-not-loaded"
    assert sampler.latest().reason == explain("nvml-driver-not-loaded")
    assert len([line for line in caplog.messages if "driver-not-loaded" in line]) == 1
    sampler.stop()


def test_a_fault_in_the_reader_does_not_end_the_sampling() -> None:
    sampler = sampler_of(GpuThatBreaks())
    sampler.start()
    until(lambda: sampler.latest().state == "unknown")
    assert sampler.latest().reason == explain("read-failed", why="a bug in the reader")
    sampler.watch("panel", QUICK)
    until(lambda: sampler.latest().state == "ok")
    sampler.stop()


def test_a_gpu_that_is_gone_is_said_to_be_gone() -> None:
    sampler = sampler_of(OneGpu(uuid="GPU-another"))
    sampler.start()
    until(lambda: sampler.latest().state == "lost")
    assert sampler.latest().reason == explain("gpu-lost")
    assert sampler.latest().gpus == ()
    sampler.stop()


# ------------------------------------------------------------------ devices that nobody named


def finding(reader: Reader) -> Sampler:
    return Sampler(lambda: reader, (), finds=True, paces=Paces(shortest=0.005))


def test_a_device_that_the_reader_finds_is_this_servers_from_the_first_look() -> None:
    reader = OneGpu()
    sampler = finding(reader)
    assert sampler.latest().state == "starting"
    sampler.start()
    until(lambda: sampler.latest().state == "ok")
    sampler.stop()
    assert reader.thread == "jupyterhub-gpu-sampler"
    assert [gpu.uuid for gpu in sampler.latest().gpus] == [UUID]
    assert [(series.uuid, series.used_percent) for series in sampler.history()] == [(UUID, (84.0,))]


def test_a_device_that_was_found_and_goes_away_is_gone_and_comes_back() -> None:
    reader = GpuThatGoesAway()
    sampler = finding(reader)
    sampler.start()
    sampler.watch("panel", QUICK)
    until(lambda: sampler.latest().state == "ok")
    reader.gone = True
    until(lambda: sampler.latest().state == "lost")
    assert sampler.latest().reason == explain("gpu-lost")
    reader.gone = False
    until(lambda: sampler.latest().state == "ok")
    sampler.stop()


def test_while_none_is_found_it_says_so_and_shows_the_first_that_is() -> None:
    reader = GpuThatGoesAway()
    reader.gone = True
    sampler = finding(reader)
    sampler.start()
    sampler.watch("panel", QUICK)
    until(lambda: sampler.latest().state == "detached")
    assert sampler.latest().reason == explain("no-gpu-seen")
    assert (sampler.latest().gpus, sampler.history()) == ((), ())
    reader.gone = False
    until(lambda: sampler.latest().state == "ok")
    sampler.stop()


def test_unknown_use_stays_unknown_and_says_why() -> None:
    sampler = sampler_of(OneGpu(used_percent=None))
    sampler.start()
    until(lambda: sampler.latest().state == "ok")
    assert sampler.latest().gpus[0].used_percent is None
    assert sampler.latest().gpus[0].note == NOT_MEASURABLE
    sampler.stop()


@pytest.mark.whole
@pytest.mark.slow
def test_a_driver_that_is_always_slow_is_not_said_to_hang(caplog: pytest.LogCaptureFixture) -> None:
    reader = GpuThatIsSlow(patient(0.15))
    sampler = sampler_of(reader, hung_after=patient(0.1))
    with caplog.at_level(logging.INFO):
        sampler.start()
        sampler.watch("panel", QUICK)
        until(lambda: len(reader.ended) >= 2)
        before = len(caplog.messages)
        until(lambda: sampler.latest() and len(reader.ended) >= 5)
    sampler.stop()
    assert caplog.messages[before:] == []


@pytest.mark.whole
@pytest.mark.slow
def test_after_a_hang_the_next_look_comes_at_the_usual_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour passes while it hangs: it would rest for another one."""
    passed = 0.0
    monkeypatch.setattr("hub_extensions.server_extension.sampler.monotonic", lambda: time.monotonic() + passed)
    reader = GpuThatHangs()
    sampler = sampler_of(reader)
    sampler.start()
    sampler.watch("panel", QUICK)
    until(lambda: sampler.latest().state == "not-answering")
    passed = 3600.0
    reader.release.set()
    until(lambda: reader.reads >= 5)
    sampler.stop()


# ------------------------------------------------------------------ history


def test_every_look_is_a_point_of_the_history() -> None:
    reader = OneGpu()
    sampler = sampler_of(reader)
    sampler.start()
    sampler.watch("panel", QUICK)
    until(lambda: len(sampler.history()[0].ages_seconds) >= 5)
    sampler.stop()
    (series,) = sampler.history()
    assert series.uuid == UUID
    assert set(series.used_percent) == {84.0}
    assert set(series.memory_bytes) == {3 * GIB}
    assert list(series.ages_seconds) == sorted(series.ages_seconds, reverse=True)


@pytest.mark.whole
@pytest.mark.slow
def test_a_hang_is_a_gap_in_the_history_while_it_lasts_and_after() -> None:
    reader = GpuThatHangs()
    sampler = sampler_of(reader)
    sampler.start()
    sampler.watch("panel", QUICK)
    until(lambda: sampler.latest().state == "not-answering")
    assert sampler.history()[0].used_percent == (84.0, None)
    reader.release.set()
    until(lambda: sampler.latest().state == "ok")
    sampler.stop()
    assert sampler.history()[0].used_percent[:4] == (84.0, None, None, 84.0)


def test_looks_that_fail_are_a_gap_of_two_points_however_long() -> None:
    reader = GpuWithAFault()
    sampler = sampler_of(reader)
    sampler.start()
    sampler.watch("panel", QUICK)
    until(lambda: sampler.latest().state == "ok")
    reader.fault = GpusUnavailable("lost", explain("nvml-gpu-is-lost"))
    until(lambda: reader.reads > 20)
    reader.fault = None
    until(lambda: sampler.latest().state == "ok")
    sampler.stop()
    used = sampler.history()[0].used_percent
    assert used.count(None) == 2


def test_a_device_that_is_gone_is_a_gap() -> None:
    reader = GpuThatGoesAway()
    sampler = sampler_of(reader)
    sampler.start()
    sampler.watch("panel", QUICK)
    until(lambda: sampler.latest().state == "ok")
    reader.gone = True
    until(lambda: sampler.latest().state == "lost")
    reader.gone = False
    until(lambda: sampler.latest().state == "ok")
    sampler.stop()
    assert None in sampler.history()[0].memory_bytes


def test_the_highest_use_since_a_time_is_known_from_the_history() -> None:
    reader = OneGpu(used_percent=90.0)
    sampler = sampler_of(reader)
    assert sampler.highest_since(0.0) is None
    sampler.start()
    sampler.watch("panel", QUICK)
    until(lambda: sampler.highest_since(0.0) == 90.0)
    reader.used_percent = 5.0
    until(lambda: sampler.latest().gpus[0].used_percent == 5.0)
    later = time.monotonic()
    until(lambda: sampler.highest_since(later) == 5.0)
    assert sampler.highest_since(0.0) == 90.0
    sampler.stop()


# ------------------------------------------------------------------ figures from elsewhere


def figures(at: datetime, used: float | None = 61.0) -> Figures:
    return Figures(UUID, at, used, "dcgm", Counters(dram_percent=12.0))


def first_look(reader: OneGpu, **changes: Any) -> Any:
    sampler = sampler_of(reader)
    sampler.use(server=lambda: a_state(uuid=UUID, **changes))
    sampler.start()
    until(lambda: sampler.latest().state == "ok")
    sampler.stop()
    return sampler.latest().gpus[0]


def test_where_the_card_cannot_tell_the_services_figures_are_shown_and_named() -> None:
    found = first_look(OneGpu(used_percent=None), figures=figures(datetime.now(timezone.utc)))
    assert (found.used_percent, found.source, found.note) == (61.0, "dcgm", None)
    assert found.counters == Counters(dram_percent=12.0)


@pytest.mark.parametrize(("measured", "highest"), [(None, None), (84.0, 84.0)])
def test_figures_that_were_handed_out_are_not_reported_as_measured_here(
    measured: float | None, highest: float | None
) -> None:
    sampler = sampler_of(OneGpu(used_percent=measured))
    sampler.use(server=lambda: a_state(uuid=UUID, figures=figures(datetime.now(timezone.utc))))
    sampler.start()
    until(lambda: sampler.latest().state == "ok")
    sampler.stop()
    assert sampler.latest().gpus[0].used_percent == (measured or 61.0)
    assert sampler.highest_since(0.0) == highest


def test_what_the_card_tells_itself_goes_before_figures() -> None:
    found = first_look(OneGpu(used_percent=84.0), figures=figures(datetime.now(timezone.utc)))
    assert (found.used_percent, found.source) == (84.0, "nvml")


def test_old_figures_are_no_figures_and_the_note_says_so() -> None:
    at = datetime(2026, 11, 20, 8, 0, tzinfo=timezone.utc)
    found = first_look(OneGpu(used_percent=None), figures=figures(at))
    assert (found.used_percent, found.source) == (None, "dcgm")
    assert found.note == explain("figures-old", since=at)
    assert found.note.message.endswith("which has said nothing new since 2026-11-20T08:00:00Z.")


def test_figures_that_the_service_leaves_out_as_old_are_old_and_the_card_is_not_said_to_be_unable() -> None:
    at, watch = datetime.now(timezone.utc), FiguresWatch()
    assert watch.judge(None, at, 10.0) is None
    assert watch.judge(figures(at), at, 10.0) == ExternalUse(figures(at), True)
    assert watch.judge(None, at, 60.0) == ExternalUse(figures(at), True)
    assert watch.judge(None, at, 80.0) == ExternalUse(figures(at), False)


@pytest.mark.parametrize("source", ["nvml", "gpm"])
def test_use_that_is_not_known_now_is_not_said_to_be_impossible(source: str) -> None:
    device, at = Device(UUID, "NVIDIA A100-PCIE-40GB", memory_bytes=GIB), datetime.now(timezone.utc)
    once = reading_of(device, DeviceSample(UUID, at, None, GIB, (), source), at, limit=MemoryLimit(False))
    assert (once.used_percent, once.source, once.note) == (None, source, NOT_YET)
    not_read = reading_of(device, None, at, limit=MemoryLimit(False))
    assert not_read.source != "none" and not_read.note == NOT_READ


def test_figures_that_are_no_numbers_are_not_known() -> None:
    now = datetime.now(timezone.utc)
    found = first_look(OneGpu(used_percent=None), figures=figures(now, float("nan")))
    assert (found.used_percent, found.note) == (None, NOT_MEASURABLE)
    half = Figures(UUID, now, 61.0, "dcgm", Counters(sm_percent=float("nan"), dram_percent=12.0))
    assert first_look(OneGpu(used_percent=None), figures=half).counters == Counters(dram_percent=12.0)


def test_who_holds_the_gpu_never_hides_how_it_is(caplog: pytest.LogCaptureFixture) -> None:
    def broken(*_: object) -> Any:
        raise ValueError("an odd /proc")

    reader = OneGpu()
    sampler = sampler_of(reader)
    sampler.use(holding=broken)
    with caplog.at_level(logging.INFO):
        sampler.start()
        sampler.watch("panel", QUICK)
        until(lambda: reader.reads > 3)
    sampler.stop()
    found = sampler.latest().gpus[0]
    assert (sampler.latest().state, found.used_percent) == ("ok", 84.0)
    assert (found.holders, found.holders_note) == (None, NOT_WHICH)
    assert len([line for line in caplog.messages if "odd /proc" in line]) == 1


def test_figures_for_which_nobody_knows_the_device_are_of_the_servers_own_one() -> None:
    """On a cluster no label has the UUID of a MIG device."""
    told = replace(figures(datetime.now(timezone.utc)), uuid="")
    found = first_look(OneGpu(used_percent=None), figures=told)
    assert (found.used_percent, found.source) == (61.0, "dcgm")


def test_figures_of_another_device_are_not_shown() -> None:
    reader = OneGpu(used_percent=None)
    foreign = Figures("MIG-another", datetime.now(timezone.utc), 61.0, "dcgm")
    assert first_look(reader, figures=foreign).used_percent is None


def test_a_share_of_the_device_is_the_limit() -> None:
    found = first_look(OneGpu(), share=0.5, memory_bytes=2 * GIB)
    assert (found.limit_bytes, found.limit_source, found.shared) == (2 * GIB, "share", True)


# ------------------------------------------------------------------ whose memory the history has


class Servers:
    """The service's last word, and one GiB of the device that is this server's own."""

    def __init__(self, state: Any = None, own: int | None = GIB) -> None:
        self.state = state
        self.own = own

    def look(self, reading: Any, shared: Any, clock: float) -> Any:
        return dict.fromkeys(shared, HeldMemory(self.own, ()))

    def memory_after(self, *states: Any, **options: Any) -> list[tuple[int | None, ...]]:
        """What the history has after two looks with each of the states."""
        reader, found = OneGpu(), []
        sampler = sampler_of(reader, **options)
        sampler.use(server=lambda: self.state, holding=self.look)
        self.state = states[0]
        sampler.start()
        sampler.watch("panel", QUICK)
        for state in states:
            self.state = state
            until(lambda reads=reader.reads: reader.reads >= reads + 3)
            found.append(tuple(sampler.history()[0].memory_bytes))
        sampler.stop()
        return found


HALF = a_state(uuid=UUID, share=0.5, memory_bytes=2 * GIB)
WHOLE = a_state(uuid=UUID, share=1.0)


def test_on_a_fraction_the_history_is_this_servers_own_memory_from_the_first_look_before_any_answer() -> None:
    before, after = Servers().memory_after(None, HALF)
    assert set(before) == set(after) == {GIB}


def test_own_memory_that_is_not_known_is_a_gap_and_never_the_devices() -> None:
    for memory in Servers(own=None).memory_after(None, HALF, None):
        assert set(memory) == {None}


def test_a_line_has_one_meaning_also_when_it_comes_to_be_known_that_nobody_shares_the_device() -> None:
    doubt, sure, doubt_again = Servers().memory_after(None, WHOLE, None)
    assert (set(doubt), set(sure), set(doubt_again)) == ({GIB}, {3 * GIB}, {GIB})


def test_under_hamis_limit_the_history_is_own_memory_on_a_whole_lease() -> None:
    (memory,) = Servers().memory_after(WHOLE, environ={"CUDA_DEVICE_MEMORY_LIMIT_0": "2g"})
    assert set(memory) == {GIB}


# ------------------------------------------------------------------ what the machine does to it


def test_sixty_four_gpus_are_read_at_once() -> None:
    reader = ManyGpus(64)
    sampler = sampler_of(reader)
    sampler.start()
    until(lambda: sampler.latest().state == "ok")
    sampler.stop()
    assert len(sampler.latest().gpus) == len(sampler.history()) == 64


def test_a_jump_of_the_wall_clock_moves_no_point_and_no_pace() -> None:
    clock = [datetime(2026, 11, 21, 12, 0, tzinfo=timezone.utc)]
    reader = OneGpu()
    sampler = sampler_of(reader, wall=lambda: clock[0])
    sampler.start()
    sampler.watch("panel", QUICK)
    until(lambda: reader.reads >= 3)
    for jump in (timedelta(days=400), timedelta(days=-800)):
        clock[0] += jump
        reads = reader.reads
        until(lambda reads=reads: reader.reads >= reads + 3)
    sampler.stop()
    ages = sampler.history()[0].ages_seconds
    assert len(ages) >= 9 and max(ages) < 5
    assert sampler.latest().state == "ok"


@pytest.mark.whole
@pytest.mark.slow
def test_a_hang_and_its_end_are_one_log_line_each(caplog: pytest.LogCaptureFixture) -> None:
    reader = GpuThatHangs()
    sampler = sampler_of(reader)
    with caplog.at_level(logging.INFO):
        sampler.start()
        sampler.watch("panel", QUICK)
        until(lambda: sampler.latest().state == "not-answering")
        for _ in range(50):
            sampler.latest()
        reader.release.set()
        until(lambda: sampler.latest().state == "ok")
    sampler.stop()
    assert [line.split()[1] for line in caplog.messages if line.startswith("GPU:")] == ["ok", "not-answering", "ok"]
