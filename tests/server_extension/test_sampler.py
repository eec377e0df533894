"""One thread, its pace, and what it says when the driver does not."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import pytest

from hub_extensions.server_extension.sampler import NOT_MEASURABLE, Sampler, leased_uuids
from tests.fakes.gpu_readers import UUID, GpuThatBreaks, GpuThatHangs, GpuWithoutDriver, OneGpu


def until(true: Callable[[], object], seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.005)


def sampler_of(reader: OneGpu, **periods: float) -> Sampler:
    paces = {"watched_seconds": 0.02, "unwatched_seconds": 30.0, "hung_after_seconds": 0.1} | periods
    return Sampler(lambda: reader, (UUID,), **paces)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("environ", "uuids"),
    [
        ({}, ()),
        ({"CUDA_VISIBLE_DEVICES": UUID}, ()),
        ({"JUPYTERHUB_GPU_LEASE": "l1", "CUDA_VISIBLE_DEVICES": UUID}, (UUID,)),
        ({"JUPYTERHUB_GPU_LEASE": "l1", "CUDA_VISIBLE_DEVICES": f"{UUID}, GPU-b"}, (UUID, "GPU-b")),
        ({"JUPYTERHUB_GPU_LEASE": "l1", "CUDA_VISIBLE_DEVICES": "void"}, ()),
        ({"JUPYTERHUB_GPU_LEASE": "l1", "CUDA_VISIBLE_DEVICES": "0"}, ()),
    ],
)
def test_the_devices_are_those_of_the_lease(environ: dict[str, str], uuids: tuple[str, ...]) -> None:
    assert leased_uuids(environ) == uuids


def test_a_server_without_a_gpu_opens_nothing() -> None:
    def never() -> OneGpu:
        raise AssertionError("opened")

    sampler = Sampler(never, ())
    before = threading.active_count()
    sampler.start()
    sampler.watch()
    assert threading.active_count() == before
    assert (sampler.latest().state, sampler.latest().sentence) == ("no-gpu", "This server has no GPU.")


def test_it_reads_in_one_thread_of_its_own() -> None:
    reader = OneGpu()
    sampler = sampler_of(reader)
    sampler.start()
    sampler.start()
    until(lambda: sampler.latest().state == "ok")
    assert reader.thread == "jupyterhub-gpu-sampler"
    assert sampler.latest().gpus[0].used_percent == 84.0
    sampler.stop()
    assert reader.closed.wait(5)


def test_a_watcher_gets_a_new_sample_at_once_and_then_a_quick_pace() -> None:
    reader = OneGpu()
    sampler = sampler_of(reader)
    sampler.start()
    until(lambda: reader.reads == 1)
    sampler.watch()
    until(lambda: reader.reads > 4)
    sampler.unwatch()
    sampler.stop()


def test_ten_watchers_cost_one_reader() -> None:
    reader = OneGpu()
    sampler = sampler_of(reader, watched_seconds=0.2)
    sampler.start()
    for _ in range(10):
        sampler.watch()
    began = time.monotonic()
    until(lambda: reader.reads >= 4)
    assert time.monotonic() - began > 0.3
    sampler.stop()


def test_a_driver_that_hangs_is_told_with_the_last_numbers_and_holds_nothing_up() -> None:
    reader = GpuThatHangs()
    sampler = sampler_of(reader)
    sampler.start()
    until(lambda: sampler.latest().state == "ok")
    sampler.watch()
    until(lambda: sampler.latest().state == "not-answering")
    told = sampler.latest()
    assert told.sentence.startswith("The GPU driver is not answering since 2")
    assert told.gpus[0].memory_used_bytes == 3 * 1024**3
    began = time.monotonic()
    sampler.stop()
    assert time.monotonic() - began < 0.5
    reader.release.set()
    assert reader.closed.wait(5)


def test_a_driver_that_comes_back_is_shown_again() -> None:
    reader = GpuThatHangs()
    sampler = sampler_of(reader)
    sampler.start()
    sampler.watch()
    until(lambda: sampler.latest().state == "not-answering")
    reader.release.set()
    until(lambda: sampler.latest().state == "ok")
    sampler.stop()


def test_no_driver_is_an_answer_and_one_log_line(caplog: pytest.LogCaptureFixture) -> None:
    reader = GpuWithoutDriver()
    sampler = sampler_of(reader)
    with caplog.at_level(logging.INFO):
        sampler.start()
        sampler.watch()
        until(lambda: reader.reads > 5)
    assert sampler.latest().state == "driver-not-loaded"
    assert "not loaded" in sampler.latest().sentence
    assert len([line for line in caplog.messages if "driver-not-loaded" in line]) == 1
    sampler.stop()


def test_a_fault_in_the_reader_does_not_end_the_sampling() -> None:
    sampler = sampler_of(GpuThatBreaks())
    sampler.start()
    until(lambda: sampler.latest().state == "unknown")
    assert "a bug in the reader" in sampler.latest().sentence
    sampler.watch()
    until(lambda: sampler.latest().state == "ok")
    sampler.stop()


def test_a_gpu_that_is_gone_is_said_to_be_gone() -> None:
    sampler = sampler_of(OneGpu(uuid="GPU-another"))
    sampler.start()
    until(lambda: sampler.latest().state == "lost")
    assert "gone" in sampler.latest().sentence
    assert sampler.latest().gpus == ()
    sampler.stop()


def test_unknown_use_stays_unknown_and_says_why() -> None:
    sampler = sampler_of(OneGpu(used_percent=None))
    sampler.start()
    until(lambda: sampler.latest().state == "ok")
    assert sampler.latest().gpus[0].used_percent is None
    assert sampler.latest().gpus[0].note == NOT_MEASURABLE
    sampler.stop()
