"""The fake library does what its file says, while a program looks at it: slow, hung, counted, loaded anew."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest

from hub_extensions.core.gpu.devices import InventoryReading
from tests.fakes.nvml import GIB, NOT_FOUND, FakeNvml, ReaderProcess, lab_machine, library_folder
from tests.patience import patient, until

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=timezone.utc)

pytestmark = pytest.mark.needs("c-compiler")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return library_folder(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def machine(tmp_path: Path) -> FakeNvml:
    return FakeNvml(tmp_path).gpu("GPU-a", util=40).gpu("GPU-b", util=20).write()


@pytest.fixture
def looking(machine: FakeNvml, library: Path) -> Iterator[ReaderProcess]:
    with ReaderProcess(machine, library, ("GPU-a", "GPU-b")) as reader:
        reader.read(NOW)
        yield reader


def seconds_of_a_look(looking: ReaderProcess) -> float:
    begin = time.monotonic()
    looking.read(NOW)
    return time.monotonic() - begin


@pytest.mark.whole
def test_a_call_takes_as_long_as_it_is_told(machine: FakeNvml, looking: ReaderProcess) -> None:
    machine.slow(150, "nvmlDeviceGetMemoryInfo_v2", on="GPU-a").write()
    assert seconds_of_a_look(looking) >= 0.15
    machine.recovers().slow(20).write()
    before = machine.calls().total()
    took = seconds_of_a_look(looking)
    assert took >= 0.02 * (machine.calls().total() - before), "every call of the look"
    machine.slow(600_000).write()
    machine.recovers().write()
    looking.read(NOW)  # at once: with the ten minutes of each call this test would be cut off


def test_a_call_that_hangs_comes_back_when_it_is_told(machine: FakeNvml, looking: ReaderProcess) -> None:
    machine.hangs("nvmlDeviceGetHandleByUUID", on="GPU-b").write()
    readings: list[InventoryReading] = []
    look = threading.Thread(target=lambda: readings.append(looking.read(NOW)))
    before = machine.calls()["nvmlDeviceGetHandleByUUID"]
    look.start()
    until(lambda: machine.calls()["nvmlDeviceGetHandleByUUID"] >= before + 2)
    look.join(0.3)
    assert look.is_alive() and readings == []
    machine.recovers().write()
    look.join(patient(10))
    assert set(readings[0].samples) == {"GPU-a", "GPU-b"}


def test_calls_are_counted_by_name_and_over_all_programs(
    machine: FakeNvml, library: Path, looking: ReaderProcess
) -> None:
    before = machine.calls()
    looking.read(NOW)
    with ReaderProcess(machine, library, ("GPU-b",)) as another:
        another.read(NOW)
    assert (machine.calls() - before)["nvmlDeviceGetMemoryInfo_v2"] == 3
    assert (machine.calls() - before)["nvmlInitWithFlags"] == 1


def test_facts_change_while_a_program_looks(machine: FakeNvml, looking: ReaderProcess) -> None:
    machine.changes("GPU-a", used=GIB, util=99).process("GPU-a", os.getpid(), used=GIB).write()
    sample = looking.read(NOW).samples["GPU-a"]
    assert (sample.used_percent, sample.memory_used_bytes, sample.memory_by_pid) == (99.0, GIB, {os.getpid(): GIB})


def test_nothing_answers_after_a_reload_before_it_is_opened_anew(machine: FakeNvml, looking: ReaderProcess) -> None:
    opened = machine.calls()["nvmlInitWithFlags"]
    machine.reload().write()
    assert len(looking.read(NOW).samples) == 2
    assert machine.calls()["nvmlInitWithFlags"] == opened + 1


def test_a_container_is_shown_its_own_mig_device_only(tmp_path: Path, library: Path) -> None:
    machine = lab_machine(tmp_path).container_of("MIG-lab-8")
    assert {row["on"] for kind, row in machine.rows if kind == "error" and row["code"] == NOT_FOUND} == {
        f"MIG-lab-{gi}" for gi in (4, 7, 11, 12, 13)
    }
    with ReaderProcess(machine.write(), library) as looking:
        assert [device.uuid for device in looking.read(NOW).devices] == ["MIG-lab-8"]
