"""A server's own GPUs by their UUIDs, over the real pynvml and a library that plays a machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path

import pytest

from hub_extensions.core.gpu.devices import GpusUnavailable, InventoryReading
from hub_extensions.core.gpu.samples import Counters
from tests.fakes.nvml import (
    DRIVER_NOT_LOADED,
    GIB,
    LOST,
    NO_PERMISSION,
    NOT_SUPPORTED,
    TIMEOUT,
    UNKNOWN,
    FakeNvml,
    ReaderProcess,
    hopper_machine,
    lab_machine,
    library_folder,
    v100_machine,
)

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=timezone.utc)
LAB = ("MIG-lab-4", "MIG-lab-7", "MIG-lab-8", "MIG-lab-11", "MIG-lab-12", "MIG-lab-13")
PROCESSES = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2")

pytestmark = pytest.mark.needs("c-compiler")


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return library_folder(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def own(library: Path) -> Iterator[Callable[..., ReaderProcess]]:
    """``own(machine, uuid, ...)`` starts a reader of these devices, and ends it after the test."""
    with ExitStack() as stack:
        yield lambda machine, *uuids: stack.enter_context(ReaderProcess(machine, library, uuids))


Own = Callable[..., ReaderProcess]


def uuids_of(reading: InventoryReading) -> list[str]:
    return [device.uuid for device in reading.devices]


def two_gpus(folder: Path) -> FakeNvml:
    machine = FakeNvml(folder).gpu("GPU-a", used=3 * GIB, reserved=GIB // 2, util=40, cores=6912, cc="8.0")
    return machine.gpu("GPU-b", util=0, cores=6912, cc="8.0").write()


def count_between(looking: ReaderProcess, pause: float = 0.12) -> Callable[[float], InventoryReading]:
    """Looks again after GPM's shortest time; `clock` is the reader's."""

    def look(clock: float) -> InventoryReading:
        time.sleep(pause)  # the counters themselves need 100 ms between two samples
        return looking.read(NOW, clock=clock)

    return look


def test_a_slice_is_found_by_its_uuid_whatever_its_number(tmp_path: Path, own: Own) -> None:
    """The 2g.10gb is GPU instance 4 and MIG device 0, although it was the fifth in the command that cut the card."""
    reading = own(lab_machine(tmp_path), "MIG-lab-13", "MIG-lab-4").read(NOW)
    assert [(d.uuid, d.gpu_instance_id, d.profile) for d in reading.devices] == [
        ("MIG-lab-13", 13, "1g.5gb"),
        ("MIG-lab-4", 4, "2g.10gb"),
    ]
    large = reading.devices[1]
    assert (large.product, large.memory_bytes, large.sm_count) == ("NVIDIA A100-PCIE-40GB", 9984 << 20, 28)
    assert set(reading.samples) == {"MIG-lab-13", "MIG-lab-4"}, "nobody else's"
    assert reading.samples["MIG-lab-4"].memory_used_bytes == 10 << 20


def test_what_the_service_reads_of_a_device_is_what_its_server_reads(tmp_path: Path, library: Path, own: Own) -> None:
    machine = lab_machine(tmp_path)
    with ReaderProcess(machine, library) as everybody:
        assert own(machine, *LAB).read(NOW).devices == everybody.read(NOW).devices


def test_use_of_a_slice_of_an_a100_is_unknown_not_zero(tmp_path: Path, own: Own) -> None:
    sample = own(lab_machine(tmp_path), "MIG-lab-4").read(NOW).samples["MIG-lab-4"]
    assert (sample.used_percent, sample.source, sample.counters) == (None, "none", None)
    assert sample.memory_used_bytes == 10 << 20


def test_a_whole_gpu_tells_memory_use_and_who_holds_it(tmp_path: Path, own: Own) -> None:
    machine = two_gpus(tmp_path).process("GPU-a", os.getpid(), used=2 * GIB).process("GPU-a", 1, used=None)
    reading = own(machine.write(), "GPU-a").read(NOW)
    (device,) = reading.devices
    assert (device.memory_bytes, device.sm_count, device.profile) == (40 * GIB, 108, None)
    sample = reading.samples["GPU-a"]
    assert (sample.used_percent, sample.source, sample.memory_used_bytes) == (40.0, "nvml", 3 * GIB)
    assert sample.pids == tuple(sorted((1, os.getpid())))
    assert sample.memory_by_pid == {os.getpid(): 2 * GIB}, "a size that the driver does not tell is left out"


@pytest.mark.whole
@pytest.mark.parametrize(
    ("code", "source"), [(TIMEOUT, "nvml"), (UNKNOWN, "nvml"), (NOT_SUPPORTED, "none"), (NO_PERMISSION, "none")]
)
def test_use_is_said_to_be_impossible_only_where_it_stays_so(tmp_path: Path, own: Own, code: int, source: str) -> None:
    machine = two_gpus(tmp_path).fails("nvmlDeviceGetUtilizationRates", code, on="GPU-a").write()
    samples = own(machine, "GPU-a", "GPU-b").read(NOW).samples
    assert (samples["GPU-a"].used_percent, samples["GPU-a"].source) == (None, source)
    assert (samples["GPU-b"].used_percent, samples["GPU-b"].source) == (0.0, "nvml")


@pytest.mark.whole
@pytest.mark.parametrize(
    "call",
    ["nvmlDeviceGetDeviceHandleFromMigDeviceHandle", "nvmlDeviceGetGpuInstanceId", "nvmlGpmQueryDeviceSupport"],
)
def test_counters_that_cannot_be_asked_for_once_are_not_said_to_be_none(tmp_path: Path, own: Own, call: str) -> None:
    machine = hopper_machine(tmp_path).fails(call, TIMEOUT).write()
    looking = own(machine, "MIG-h-1")
    sample = looking.read(NOW, clock=1.0).samples["MIG-h-1"]
    assert (sample.used_percent, sample.source) == (None, "gpm")
    machine.recovers().fails(call, NO_PERMISSION).write()
    assert looking.read(NOW, clock=7.0).samples["MIG-h-1"].source == "none"


def test_a_v100_is_read_without_mig_and_without_counters(tmp_path: Path, own: Own) -> None:
    reading = own(v100_machine(tmp_path), "GPU-v100").read(NOW)
    (device,) = reading.devices
    assert (device.product, device.memory_bytes, device.sm_count) == ("Tesla V100-SXM2-32GB", 32510 << 20, 80)
    sample = reading.samples["GPU-v100"]
    assert (sample.used_percent, sample.source, sample.counters) == (0.0, "nvml", None)


@pytest.mark.whole
@pytest.mark.parametrize("code", [None, NOT_SUPPORTED, NO_PERMISSION])
def test_a_container_without_processes_to_see_is_still_a_sample(tmp_path: Path, own: Own, code: int | None) -> None:
    machine = lab_machine(tmp_path)
    for call in PROCESSES if code else ():
        machine.fails(call, code or 0)
    sample = own(machine.write(), "MIG-lab-7").read(NOW).samples["MIG-lab-7"]
    assert sample.pids == (None if code else ())
    assert (sample.memory_used_bytes, sample.used_percent) == (10 << 20, None)


def test_a_container_with_one_mig_device_reads_it_though_its_gpu_may_not_be_asked(tmp_path: Path, own: Own) -> None:
    machine = hopper_machine(tmp_path).container_of("MIG-h-1").changes("MIG-h-1", util=70, used=GIB).write()
    looking = own(machine, "MIG-h-1")
    first = looking.read(NOW, clock=1.0)
    (device,) = first.devices
    assert (device.profile, device.product, device.sm_count) == ("1g.10gb", "NVIDIA H100 80GB HBM3", 16)
    second = count_between(looking)(2.0).samples["MIG-h-1"]
    assert (second.used_percent, second.source, second.memory_used_bytes) == (70.0, "gpm", GIB)


def test_a_container_that_hides_the_gpu_altogether_still_tells_the_slices_memory(tmp_path: Path, own: Own) -> None:
    machine = hopper_machine(tmp_path).container_of("MIG-h-1")
    for call in ("nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlGpmQueryDeviceSupport"):
        machine.fails(call, NO_PERMISSION, on="GPU-cut")
    reading = own(machine.write(), "MIG-h-1").read(NOW)
    assert (reading.devices[0].product, reading.devices[0].parent_uuid) == ("NVIDIA H100 80GB HBM3", None)
    sample = reading.samples["MIG-h-1"]
    assert (sample.memory_used_bytes, sample.used_percent, sample.source) == (0, None, "none")


def test_a_slice_whose_profile_nobody_names_is_no_whole_gpu(tmp_path: Path, own: Own) -> None:
    machine = lab_machine(tmp_path).fails("nvmlDeviceGetAttributes_v2", UNKNOWN).changes("MIG-lab-7", name="A100")
    (device,) = own(machine.write(), "MIG-lab-7").read(NOW).devices
    assert device.profile == "MIG"
    assert device.memory_bytes == 4864 << 20


# ------------------------------------------------------------------ GPM


def test_gpm_counts_graphics_multiprocessors_tensor_pipes_and_bandwidth(tmp_path: Path, own: Own) -> None:
    machine = hopper_machine(tmp_path)
    looking = own(machine, "MIG-h-3", "MIG-h-1", "GPU-whole")
    first = looking.read(NOW, clock=1.0).samples["MIG-h-3"]
    assert (first.used_percent, first.source, first.counters) == (None, "gpm", None), "one sample tells nothing"
    machine.changes("MIG-h-3", util=80, smutil=60.5, tensor=12, dram=33).changes("GPU-whole", util=5, tensor=1).write()
    samples = count_between(looking)(2.0).samples
    assert samples["MIG-h-3"].used_percent == 80.0
    assert samples["MIG-h-3"].counters == Counters(60.5, 12.0, 33.0)
    assert (samples["MIG-h-1"].used_percent, samples["MIG-h-1"].counters) == (0.0, Counters(0.0, 0.0, 0.0))
    whole = samples["GPU-whole"]
    assert (whole.used_percent, whole.source, whole.counters) == (5.0, "nvml", Counters(0.0, 1.0, 0.0))


@pytest.mark.whole
@pytest.mark.parametrize("metric", [1, 2, 5, 10])
def test_a_metric_of_gpm_that_fails_alone_is_unknown_alone(tmp_path: Path, own: Own, metric: int) -> None:
    machine = hopper_machine(tmp_path).changes("MIG-h-1", util=1, smutil=2, tensor=5, dram=10)
    looking = own(machine.fails(f"gpm:{metric}", UNKNOWN).write(), "MIG-h-1")
    looking.read(NOW, clock=1.0)
    sample = count_between(looking)(2.0).samples["MIG-h-1"]
    assert sample.counters is not None
    seen = {1: sample.used_percent, 2: sample.counters.sm_percent, 5: sample.counters.tensor_percent}
    seen[10] = sample.counters.dram_percent
    assert seen == {number: None if number == metric else float(number) for number in (1, 2, 5, 10)}


def test_counters_that_may_not_be_read_are_said_to_be_none_and_asked_for_again(tmp_path: Path, own: Own) -> None:
    machine = hopper_machine(tmp_path).fails("nvmlGpmMigSampleGet", NO_PERMISSION).changes("MIG-h-1", util=9).write()
    looking = own(machine, "MIG-h-1")
    assert looking.read(NOW, clock=1.0).samples["MIG-h-1"].source == "none"
    asked = machine.calls()["nvmlGpmMigSampleGet"]
    machine.recovers().write()
    assert looking.read(NOW, clock=2.0).samples["MIG-h-1"].source == "none"
    assert machine.calls()["nvmlGpmMigSampleGet"] == asked, "not each second"
    assert looking.read(NOW, clock=62.0).samples["MIG-h-1"].source == "gpm"
    assert count_between(looking)(63.0).samples["MIG-h-1"].used_percent == 9.0


def test_counters_that_fail_once_are_back_at_the_next_look(tmp_path: Path, own: Own) -> None:
    machine = hopper_machine(tmp_path).changes("MIG-h-1", util=9).write()
    looking = own(machine, "MIG-h-1")
    looking.read(NOW, clock=1.0)
    machine.fails("nvmlGpmMigSampleGet", TIMEOUT).write()
    sample = looking.read(NOW, clock=2.0).samples["MIG-h-1"]
    assert (sample.used_percent, sample.source) == (None, "gpm"), "not known now, and not said to be impossible"
    machine.recovers().write()
    assert count_between(looking)(3.0).samples["MIG-h-1"].used_percent == 9.0


def test_two_devices_on_one_gpu_instance_have_no_use_of_their_own(tmp_path: Path, own: Own) -> None:
    """The counters are the instance's: half of it is somebody else's."""
    machine = hopper_machine(tmp_path).changes("MIG-h-3", slices=1).write()
    looking = own(machine, "MIG-h-3")
    looking.read(NOW, clock=1.0)
    assert count_between(looking)(2.0).samples["MIG-h-3"].source == "none"


def test_no_gpm_sample_is_left_behind(tmp_path: Path, own: Own) -> None:
    machine = hopper_machine(tmp_path)
    looking = own(machine, "MIG-h-1", "GPU-whole")
    for tick in range(5):
        looking.read(NOW, clock=float(tick))
    assert machine.samples_alive() == 4, "two a device take turns"
    machine.without("MIG-h-1").write()
    looking.read(NOW, clock=6.0)
    assert machine.samples_alive() == 2
    machine.reload().write()
    looking.read(NOW, clock=7.0)
    looking.close_reader()
    assert machine.samples_alive() == 0


# ------------------------------------------------------------------ what changes while it is read


def test_a_new_cut_is_seen_at_the_next_look(tmp_path: Path, own: Own) -> None:
    machine = lab_machine(tmp_path)
    looking = own(machine, "MIG-lab-7", "MIG-lab-8")
    assert uuids_of(looking.read(NOW, clock=1.0)) == ["MIG-lab-7", "MIG-lab-8"]
    machine.without("MIG-lab-7").write()
    reading = looking.read(NOW, clock=2.0)
    assert uuids_of(reading) == ["MIG-lab-8"]
    assert reading.problems == ("MIG-lab-7 is not on this machine any more.",)
    machine.without("MIG-lab-8").write()
    assert looking.read(NOW, clock=3.0).devices == ()


def test_a_uuid_that_comes_back_with_another_profile_is_read_anew(tmp_path: Path, own: Own) -> None:
    machine = lab_machine(tmp_path)
    looking = own(machine, "MIG-lab-7")
    looking.read(NOW, clock=1.0)
    larger = {"total": 9984 << 20, "sm": 28, "slices": 2, "gislices": 2}
    machine.changes("MIG-lab-7", name="NVIDIA A100-PCIE-40GB MIG 2g.10gb", **larger).write()
    (device,) = looking.read(NOW, clock=2.0).devices
    assert (device.profile, device.memory_bytes, device.sm_count) == ("2g.10gb", 9984 << 20, 28)


def test_a_driver_loaded_anew_is_no_failure(tmp_path: Path, own: Own) -> None:
    machine = two_gpus(tmp_path)
    looking = own(machine, "GPU-a")
    looking.read(NOW, clock=1.0)
    machine.reload().write()
    assert looking.read(NOW, clock=2.0).samples["GPU-a"].used_percent == 40.0


def test_a_driver_that_goes_and_comes_is_told_and_found_again(tmp_path: Path, own: Own) -> None:
    machine = two_gpus(tmp_path)
    looking = own(machine, "GPU-a")
    looking.read(NOW, clock=1.0)
    machine.init = DRIVER_NOT_LOADED
    machine.write()
    with pytest.raises(GpusUnavailable) as problem:
        looking.read(NOW, clock=2.0)
    assert problem.value.state == "driver-not-loaded"
    machine.init = 0
    machine.reload().write()
    assert set(looking.read(NOW, clock=3.0).samples) == {"GPU-a"}


def test_a_lost_gpu_does_not_hide_the_other_and_both_lost_are_told(tmp_path: Path, own: Own) -> None:
    machine = two_gpus(tmp_path)
    looking = own(machine, "GPU-a", "GPU-b")
    looking.read(NOW, clock=1.0)
    machine.changes("GPU-a", lost=1).write()
    reading = looking.read(NOW, clock=2.0)
    assert uuids_of(reading) == ["GPU-b"]
    assert "Xid" in reading.problems[0]
    machine.changes("GPU-b", lost=1).write()
    with pytest.raises(GpusUnavailable) as problem:
        looking.read(NOW, clock=3.0)
    assert problem.value.state == "lost"
    machine.changes("GPU-a", lost=0).changes("GPU-b", lost=0).write()
    assert set(looking.read(NOW, clock=4.0).samples) == {"GPU-a", "GPU-b"}


@pytest.mark.parametrize(
    ("make", "uuid", "neighbour"), [(two_gpus, "GPU-b", "GPU-a"), (hopper_machine, "MIG-h-1", "GPU-whole")]
)
def test_a_neighbour_that_is_lost_does_not_take_mine_with_it(
    tmp_path: Path, own: Own, make: Callable[[Path], FakeNvml], uuid: str, neighbour: str
) -> None:
    """The driver's search by UUID may say "lost" because of another GPU."""
    machine = make(tmp_path).changes(neighbour, lost=1).fails("nvmlDeviceGetHandleByUUID", LOST).write()
    reading = own(machine, uuid).read(NOW)
    assert (uuids_of(reading), set(reading.samples)) == ([uuid], {uuid})


def test_a_gpu_that_does_not_answer_for_now_is_listed_without_a_sample(tmp_path: Path, own: Own) -> None:
    machine = two_gpus(tmp_path)
    looking = own(machine, "GPU-a", "GPU-b")
    before = looking.read(NOW, clock=1.0)
    machine.fails("nvmlDeviceGetHandleByUUID", TIMEOUT, on="GPU-a").write()
    reading = looking.read(NOW, clock=2.0)
    assert reading.devices == before.devices
    assert set(reading.samples) == {"GPU-b"}
    machine.recovers().write()
    assert set(looking.read(NOW, clock=3.0).samples) == {"GPU-a", "GPU-b"}


def test_a_gpu_that_does_not_answer_for_minutes_is_not_said_to_be_gone(tmp_path: Path, own: Own) -> None:
    """The driver is opened anew meanwhile, which is no news of it."""
    machine = two_gpus(tmp_path)
    looking = own(machine, "GPU-a", "GPU-b")
    before = looking.read(NOW, clock=1.0)
    opened = machine.calls()["nvmlInitWithFlags"]
    machine.fails("nvmlDeviceGetHandleByUUID", TIMEOUT, on="GPU-a").write()
    for clock in range(10, 400, 10):
        assert looking.read(NOW, clock=float(clock)).devices == before.devices
    assert machine.calls()["nvmlInitWithFlags"] > opened


def test_a_gpu_that_has_never_answered_is_listed_by_its_uuid(tmp_path: Path, own: Own) -> None:
    machine = lab_machine(tmp_path).fails("nvmlDeviceGetHandleByUUID", TIMEOUT, on="MIG-lab-7").write()
    reading = own(machine, "MIG-lab-4", "MIG-lab-7").read(NOW)
    assert uuids_of(reading) == ["MIG-lab-4", "MIG-lab-7"]
    assert reading.devices[1].profile == "MIG", "no whole GPU"
    assert set(reading.samples) == {"MIG-lab-4"}


def test_for_a_gpu_that_is_gone_the_driver_is_opened_anew_less_and_less_often(tmp_path: Path, own: Own) -> None:
    """Each time costs the other one its use for a look."""
    machine = two_gpus(tmp_path)
    looking = own(machine, "GPU-a", "GPU-gone")
    looking.read(NOW, clock=0.0)
    anew, opened = [], machine.calls()["nvmlInitWithFlags"]
    for clock in range(20, 4000, 20):
        assert uuids_of(looking.read(NOW, clock=float(clock))) == ["GPU-a"]
        if machine.calls()["nvmlInitWithFlags"] > opened:
            anew, opened = [*anew, clock], machine.calls()["nvmlInitWithFlags"]
    assert anew == [60, 180, 420, 900, 1860, 2820, 3780]


def test_a_device_that_is_given_back_is_found_without_a_restart(tmp_path: Path, own: Own) -> None:
    """Also by a driver that would not see it before it is opened anew."""
    machine = lab_machine(tmp_path).fails("nvmlDeviceGetHandleByUUID", UNKNOWN).write()
    looking = own(machine, "MIG-lab-7")
    with pytest.raises(GpusUnavailable) as problem:
        looking.read(NOW, clock=1.0)
    assert problem.value.state == "detached"
    opened = machine.calls()["nvmlInitWithFlags"]
    machine.recovers().write()
    assert set(looking.read(NOW, clock=12.0).samples) == {"MIG-lab-7"}
    assert machine.calls()["nvmlInitWithFlags"] == opened + 1


def test_a_gpu_that_refuses_every_answer_says_why(tmp_path: Path, own: Own) -> None:
    machine = lab_machine(tmp_path)
    looking = own(machine, "MIG-lab-7")
    looking.read(NOW, clock=1.0)
    for call in ("nvmlDeviceGetMemoryInfo_v2", *PROCESSES):
        machine.fails(call, UNKNOWN, on="MIG-lab-7")
    machine.write()
    with pytest.raises(GpusUnavailable) as problem:
        looking.read(NOW, clock=2.0)
    assert problem.value.state == "detached"


def test_a_fact_that_was_missed_is_asked_for_again(tmp_path: Path, own: Own) -> None:
    machine = lab_machine(tmp_path).fails("nvmlDeviceGetAttributes_v2", TIMEOUT).write()
    looking = own(machine, "MIG-lab-7")
    assert looking.read(NOW, clock=1.0).devices[0].sm_count is None
    machine.recovers().write()
    assert looking.read(NOW, clock=7.0).devices[0].sm_count == 14


@pytest.mark.parametrize(
    ("call", "missing"),
    [
        ("nvmlDeviceGetMemoryInfo_v2", "memory_used_bytes"),
        ("nvmlDeviceGetUtilizationRates", "used_percent"),
        ("nvmlDeviceGetComputeRunningProcesses_v3", "pids"),
    ],
)
def test_a_figure_that_fails_hides_neither_the_others_nor_another_gpu(
    tmp_path: Path, own: Own, call: str, missing: str
) -> None:
    machine = two_gpus(tmp_path).fails(call, UNKNOWN, on="GPU-a").write()
    samples = own(machine, "GPU-a", "GPU-b").read(NOW).samples
    figures = ("memory_used_bytes", "used_percent", "pids")
    assert [name for name in figures if getattr(samples["GPU-a"], name) is None] == [missing]
    assert [name for name in figures if getattr(samples["GPU-b"], name) is None] == []


def test_a_driver_older_than_a_call_is_read_with_the_older_one(tmp_path: Path, own: Own) -> None:
    machine = two_gpus(tmp_path).process("GPU-a", os.getpid(), used=GIB)
    machine.lacks("nvmlDeviceGetMemoryInfo_v2", PROCESSES[0], "nvmlDeviceGetMPSComputeRunningProcesses_v3")
    sample = own(machine.lacks("nvmlGpmQueryDeviceSupport").write(), "GPU-a").read(NOW).samples["GPU-a"]
    assert sample.memory_used_bytes == 3 * GIB + GIB // 2, "the older call counts what the driver keeps for itself"
    assert sample.memory_by_pid == {os.getpid(): GIB}


# ------------------------------------------------------------------ what a look costs


@pytest.mark.whole
@pytest.mark.parametrize(
    ("make", "uuid", "idle", "in_use"),
    [(lab_machine, "MIG-lab-7", 3, 5), (v100_machine, "GPU-v100", 4, 6), (hopper_machine, "MIG-h-1", 5, 7),
     (hopper_machine, "GPU-whole", 6, 8)],
)  # fmt: skip
def test_a_look_costs_few_calls(
    tmp_path: Path, own: Own, make: Callable[[Path], FakeNvml], uuid: str, idle: int, in_use: int
) -> None:
    """Idle: handle, memory, processes; use of a whole GPU one more, GPM two. pynvml asks twice where processes are."""
    machine = make(tmp_path)
    looking = own(machine, uuid)

    def calls_of_a_look(clock: float) -> int:
        before = machine.calls().total()
        looking.read(NOW, clock=clock)
        return machine.calls().total() - before

    calls_of_a_look(1.0)
    calls_of_a_look(2.0)  # the second GPM sample
    assert calls_of_a_look(3.0) == idle
    machine.process(uuid, os.getpid(), used=GIB).write()
    assert calls_of_a_look(4.0) == in_use


def test_nothing_is_asked_of_devices_that_are_not_its_own(tmp_path: Path, own: Own) -> None:
    machine = FakeNvml(tmp_path)
    for number in range(64):
        machine.gpu(f"GPU-{number:02}", cores=6912, cc="8.0", util=1)
    machine.fails("nvmlDeviceGetMemoryInfo_v2", LOST, on="GPU-63").write()
    looking = own(machine, "GPU-07")
    looking.read(NOW)
    before = machine.calls()
    assert uuids_of(looking.read(NOW)) == ["GPU-07"]
    assert (machine.calls() - before).total() == 4


def test_a_device_that_is_named_twice_is_read_once(tmp_path: Path, own: Own) -> None:
    assert uuids_of(own(lab_machine(tmp_path), "MIG-lab-7", "MIG-lab-7").read(NOW)) == ["MIG-lab-7"]


def test_64_gpus_of_one_server_are_read_in_their_order(tmp_path: Path, own: Own) -> None:
    machine = FakeNvml(tmp_path)
    uuids = [f"GPU-{number:02}" for number in range(64)]
    for uuid in uuids:
        machine.gpu(uuid, cores=6912, cc="8.0")
    looking = own(machine.write(), *reversed(uuids))
    reading = looking.read(NOW)
    assert uuids_of(reading) == uuids[::-1]
    assert len(reading.samples) == 64
