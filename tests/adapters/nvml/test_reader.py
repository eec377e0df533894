"""The real pynvml over a library that plays a machine: what the driver says is what the inventory shows, no more."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path

import pytest

from hub_extensions.core.gpu.devices import GpusUnavailable, InventoryReading, Placement
from tests.fakes.nvml import (
    DRIVER_NOT_LOADED,
    FUNCTION_NOT_FOUND,
    GIB,
    LOST,
    NO_PERMISSION,
    NOT_SUPPORTED,
    ROOT,
    TIMEOUT,
    UNKNOWN,
    VERSION_MISMATCH,
    FakeNvml,
    ReaderProcess,
    lab_machine,
    library_folder,
)

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=timezone.utc)
ReadingBuilder = Callable[..., InventoryReading]

pytestmark = pytest.mark.needs("c-compiler")


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return library_folder(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def machine(tmp_path: Path) -> FakeNvml:
    return FakeNvml(tmp_path)


@pytest.fixture
def reader(library: Path) -> Iterator[Callable[[FakeNvml], ReaderProcess]]:
    """Starts readers, and ends them after the test."""
    with ExitStack() as stack:
        yield lambda machine: stack.enter_context(ReaderProcess(machine, library))


Readers = Callable[[FakeNvml], ReaderProcess]


def two_gpus(machine: FakeNvml) -> FakeNvml:
    machine.gpu("GPU-a", used=3 * GIB, reserved=GIB // 2, util=40, cores=6912, cc="8.0")
    return machine.gpu("GPU-b", util=0).write()


def test_importing_the_reader_opens_nothing() -> None:
    code = "import sys, hub_extensions.adapters.nvml.reader; print('pynvml' in sys.modules, 'yaml' in sys.modules)"
    seen = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert seen.stdout.split() == ["False", "False"]


def test_the_published_machine_is_read_as_it_was_cut(tmp_path: Path, reader: Readers) -> None:
    """GPU instance 4 is the 2g.10gb and MIG device 0, although it was the fifth in the command."""
    reading = reader(lab_machine(tmp_path)).read(NOW)
    assert [(d.gpu_instance_id, d.profile) for d in reading.devices] == [
        (4, "2g.10gb"),
        *((gi, "1g.5gb") for gi in (7, 8, 11, 12, 13)),
    ]
    large, small = reading.devices[:2]
    assert (large.memory_bytes, large.sm_count, large.compute_slices) == (9984 << 20, 28, 2)
    assert (small.memory_bytes, small.sm_count, small.compute_slices) == (4864 << 20, 14, 1)
    assert large.placement == Placement(4, 2)
    assert large.product == "NVIDIA A100-PCIE-40GB"
    assert large.parent_uuid == "GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f"
    assert (large.uuid, large.pool, large.compute_instance_id) == ("MIG-lab-4", "mig-2g.10gb", 0)
    assert all(d.usable and not d.simulated for d in reading.devices)
    assert reading.problems == ()


def test_use_of_a_mig_device_is_not_known_on_an_a100_and_its_memory_is(tmp_path: Path, reader: Readers) -> None:
    sample = reader(lab_machine(tmp_path)).read(NOW).samples["MIG-lab-4"]
    assert (sample.used_percent, sample.source) == (None, "none")
    assert sample.memory_used_bytes == 10 << 20
    assert sample.at == NOW


def test_whole_gpus_tell_memory_use_and_multiprocessors(machine: FakeNvml, reader: Readers) -> None:
    reading = reader(two_gpus(machine)).read(NOW)
    first, second = reading.devices
    assert (first.uuid, first.profile, first.pool, first.memory_bytes) == ("GPU-a", None, "gpu", 40 * GIB)
    assert first.sm_count == 108
    assert second.sm_count is None
    sample = reading.samples["GPU-a"]
    assert (sample.used_percent, sample.source) == (40.0, "nvml")
    assert sample.memory_used_bytes == 3 * GIB, "what the driver keeps for itself is not the user's"


def test_an_older_driver_without_the_newer_calls_is_read_too(machine: FakeNvml, reader: Readers) -> None:
    two_gpus(machine).process("GPU-a", os.getpid())
    for call in ("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetMigMode"):
        machine.fails(call, FUNCTION_NOT_FOUND)
    machine.fails("nvmlDeviceGetMPSComputeRunningProcesses_v3", FUNCTION_NOT_FOUND).write()
    sample = reader(machine).read(NOW).samples["GPU-a"]
    assert sample.memory_used_bytes == 3 * GIB + GIB // 2
    assert sample.pids == (os.getpid(),)


def test_compute_processes_are_listed_with_the_device_they_run_on(tmp_path: Path, reader: Readers) -> None:
    machine = lab_machine(tmp_path).process("MIG-lab-7", os.getpid(), used=GIB).process("MIG-lab-8", 1, mps=True)
    samples = reader(machine.write()).read(NOW).samples
    assert samples["MIG-lab-7"].pids == (os.getpid(),)
    assert samples["MIG-lab-8"].pids == (1,), "a client of MPS uses the device as well"
    assert samples["MIG-lab-4"].pids == ()


def test_processes_that_the_driver_does_not_list_are_unknown_not_none(machine: FakeNvml, reader: Readers) -> None:
    two_gpus(machine)
    for form in ("v2", "v3"):
        machine.fails(f"nvmlDeviceGetComputeRunningProcesses_{form}", NO_PERMISSION, on="GPU-a")
    samples = reader(machine.write()).read(NOW).samples
    assert samples["GPU-a"].pids is None
    assert samples["GPU-b"].pids == ()


def test_a_failing_call_hides_neither_the_other_figures_nor_the_other_gpu(machine: FakeNvml, reader: Readers) -> None:
    two_gpus(machine).fails("nvmlDeviceGetUtilizationRates", NOT_SUPPORTED, on="GPU-a").write()
    samples = reader(machine).read(NOW).samples
    assert (samples["GPU-a"].used_percent, samples["GPU-a"].memory_used_bytes) == (None, 3 * GIB)
    assert samples["GPU-b"].used_percent == 0.0, "zero is zero"


def test_a_lost_gpu_is_told_and_does_not_hide_the_other(machine: FakeNvml, reader: Readers) -> None:
    """The first look has both, then one falls off the bus."""
    looking = reader(two_gpus(machine))
    assert len(looking.read(NOW).devices) == 2
    machine.gpus["GPU-a"]["lost"] = 1
    machine.write()
    reading = looking.read(NOW)
    assert [d.uuid for d in reading.devices] == ["GPU-b"]
    assert set(reading.samples) == {"GPU-b"}
    assert reading.problems[0].startswith("GPU 0 is lost.")


def test_the_only_gpu_lost_is_an_answer_not_an_error(machine: FakeNvml, reader: Readers) -> None:
    reading = reader(machine.gpu("GPU-a", lost=1).write()).read(NOW)
    assert reading.devices == ()
    assert len(reading.problems) == 1


def test_a_gpu_that_does_not_answer_for_now_is_kept_without_a_sample(machine: FakeNvml, reader: Readers) -> None:
    looking = reader(two_gpus(machine))
    before = looking.read(NOW)
    machine.fails("nvmlDeviceGetHandleByIndex_v2", TIMEOUT, on="GPU-a").write()
    reading = looking.read(NOW)
    assert {d.identity for d in reading.devices} == {d.identity for d in before.devices}
    assert set(reading.samples) == {"GPU-b"}
    assert reading.problems[0].startswith("GPU 0 cannot be read now.")
    machine.recovers().write()
    assert set(looking.read(NOW).samples) == {"GPU-a", "GPU-b"}


def test_a_mig_device_that_does_not_answer_does_not_hide_its_siblings(tmp_path: Path, reader: Readers) -> None:
    machine = lab_machine(tmp_path)
    looking = reader(machine)
    before = looking.read(NOW)
    machine.fails("nvmlDeviceGetUUID", UNKNOWN, on="MIG-lab-8").write()
    reading = looking.read(NOW)
    assert {d.identity for d in reading.devices} == {d.identity for d in before.devices}
    assert set(before.samples) - set(reading.samples) == {"MIG-lab-8"}
    assert "MIG device 2 of GPU 0 cannot be read now" in reading.problems[0]


def test_a_figure_missed_once_does_not_make_it_another_device(tmp_path: Path, reader: Readers) -> None:
    machine = lab_machine(tmp_path)
    looking = reader(machine)
    before = looking.read(NOW).devices
    machine.fails("nvmlDeviceGetGpuInstanceById", UNKNOWN).fails("nvmlDeviceGetAttributes_v2", UNKNOWN).write()
    assert looking.read(NOW).devices == before


def test_an_instance_whose_number_is_missed_once_stays_the_same_device(tmp_path: Path, reader: Readers) -> None:
    machine = lab_machine(tmp_path)
    looking = reader(machine)
    before = looking.read(NOW).devices
    machine.fails("nvmlDeviceGetGpuInstanceId", TIMEOUT, on="MIG-lab-8").write()
    assert looking.read(NOW).devices == before
    machine.recovers().write()
    assert looking.read(NOW).devices == before


def test_an_account_that_may_not_see_gpu_instances_still_sees_the_mig_devices(tmp_path: Path, reader: Readers) -> None:
    machine = lab_machine(tmp_path)
    machine.fails("nvmlDeviceGetGpuInstanceById", NO_PERMISSION).fails("nvmlDeviceGetGpuInstances", NO_PERMISSION)
    devices = reader(machine.write()).read(NOW).devices
    assert [d.profile for d in devices] == ["2g.10gb", *["1g.5gb"] * 5]
    assert {d.placement for d in devices} == {None}


def test_a_gpu_instance_without_a_compute_instance_is_listed_as_not_usable(tmp_path: Path, reader: Readers) -> None:
    machine = lab_machine(tmp_path)
    machine.rows = [row for row in machine.rows if row[1].get("uuid") != "MIG-lab-11"]
    devices = reader(machine.write()).read(NOW).devices
    (idle,) = [d for d in devices if not d.usable]
    assert (idle.gpu_instance_id, idle.compute_instance_id, idle.profile) == (11, None, "1g.5gb")
    assert idle.placement == Placement(2, 1)
    assert "no compute instance" in idle.reason
    assert sum(d.usable for d in devices) == 5


def test_the_numbers_of_mig_devices_may_have_gaps(tmp_path: Path, reader: Readers) -> None:
    machine = lab_machine(tmp_path)
    machine.rows = [row for row in machine.rows if row[1].get("gi", row[1].get("id")) not in (7, 12)]
    devices = reader(machine.write()).read(NOW).devices
    assert [d.gpu_instance_id for d in devices] == [4, 8, 11, 13]


def test_a_profile_is_named_by_its_gpu_instance_where_the_device_has_a_plain_name(
    tmp_path: Path, reader: Readers
) -> None:
    machine = lab_machine(tmp_path)
    for kind, facts in machine.rows:
        if kind == "mig":
            facts["name"] = "NVIDIA A100-PCIE-40GB"
    assert [d.profile for d in reader(machine.write()).read(NOW).devices] == ["2g.10gb", *["1g.5gb"] * 5]


def test_a_profile_nobody_names_is_named_by_its_share_of_the_gpu(machine: FakeNvml, reader: Readers) -> None:
    """An H200's 1g has 16.00 GiB and is called 1g.18gb: eighths of the card, rounded up, of 141 GiB."""
    machine.gpu("GPU-h", name="NVIDIA H200", mig=1, total=143771 << 20)
    machine.mig("GPU-h", "MIG-h", slot=0, gi=9, name="NVIDIA H200", total=16384 << 20, slices=1, gislices=1, sm=16)
    (device,) = reader(machine.write()).read(NOW).devices
    assert (device.profile, device.memory_bytes) == ("1g.18gb", 16 * GIB)


def test_a_compute_instance_that_is_part_of_its_gpu_instance_keeps_its_own_name(
    machine: FakeNvml, reader: Readers
) -> None:
    name = "NVIDIA A100-PCIE-40GB MIG 1c.2g.10gb"
    machine.gpu("GPU-a", mig=1)
    for ci in (0, 1):
        machine.mig(
            "GPU-a", f"MIG-{ci}", slot=ci, gi=3, ci=ci, name=name, total=9984 << 20, slices=1, gislices=2, sm=14
        )
    assert [d.profile for d in reader(machine.write()).read(NOW).devices] == ["1c.2g.10gb"] * 2


def test_a_gpu_in_mig_mode_that_is_not_cut_is_no_device(machine: FakeNvml, reader: Readers) -> None:
    reading = reader(machine.gpu("GPU-a", mig=1).write()).read(NOW)
    assert reading.devices == ()
    assert "has no MIG device" in reading.problems[0]


def test_a_device_that_is_cut_again_is_another_device(tmp_path: Path, reader: Readers) -> None:
    machine = lab_machine(tmp_path)
    looking = reader(machine)
    before = {d.uuid: d.identity for d in looking.read(NOW).devices}
    for kind, facts in machine.rows:
        if kind == "gi" and facts["id"] == 13:
            facts["start"] = 5
    machine.write()
    after = {d.uuid: d.identity for d in looking.read(NOW).devices}
    assert [uuid for uuid in before if before[uuid] != after[uuid]] == ["MIG-lab-13"]


def hopper(machine: FakeNvml, util: int) -> FakeNvml:
    machine.gpus.clear()
    machine.rows.clear()
    machine.gpu("GPU-h", name="NVIDIA H100 80GB HBM3", mig=1, total=80 * GIB, gpm=1)
    name = "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
    facts = {"slices": 1, "gislices": 1, "sm": 16, "util": util}
    return machine.mig("GPU-h", "MIG-h", slot=0, gi=9, name=name, total=9984 << 20, **facts).write()


def test_use_of_a_mig_device_is_counted_between_two_looks_on_hopper(machine: FakeNvml, reader: Readers) -> None:
    looking = reader(hopper(machine, 10))
    first = looking.read(NOW, clock=1.0).samples["MIG-h"]
    assert (first.used_percent, first.source) == (None, "gpm")
    time.sleep(0.12)  # the counters themselves need 100 ms between two samples
    hopper(machine, 64)
    second = looking.read(NOW, clock=1.2).samples["MIG-h"]
    assert (second.used_percent, second.source) == (64.0, "gpm")
    assert looking.read(NOW, clock=1.25).samples["MIG-h"].used_percent == 64.0, "too soon for a new one"


def test_no_sample_of_the_counters_is_left_behind(machine: FakeNvml, reader: Readers) -> None:
    looking = reader(hopper(machine, 10))
    for tick in range(5):
        looking.read(NOW, clock=float(tick))
    assert machine.samples_alive() == 2, "two a device take turns"
    machine.rows.clear()
    machine.write()
    looking.read(NOW, clock=6.0)
    assert machine.samples_alive() == 0
    hopper(machine, 10)
    looking.read(NOW, clock=7.0)
    looking.close_reader()
    assert machine.samples_alive() == 0


def test_a_driver_loaded_later_is_found_without_a_restart(machine: FakeNvml, reader: Readers) -> None:
    machine.init = DRIVER_NOT_LOADED
    looking = reader(two_gpus(machine))
    with pytest.raises(GpusUnavailable) as problem:
        looking.read(NOW)
    assert problem.value.state == "driver-not-loaded"
    machine.init = 0
    machine.write()
    assert len(looking.read(NOW).devices) == 2


def test_a_driver_unloaded_and_loaded_again_is_found_again(machine: FakeNvml, reader: Readers) -> None:
    looking = reader(two_gpus(machine))
    assert len(looking.read(NOW).devices) == 2
    machine.init = DRIVER_NOT_LOADED
    machine.write()
    with pytest.raises(GpusUnavailable):
        looking.read(NOW)
    machine.init = 0
    machine.write()
    assert len(looking.read(NOW).devices) == 2


@pytest.mark.whole
@pytest.mark.parametrize(
    ("code", "word"),
    [(VERSION_MISMATCH, "version-mismatch"), (NO_PERMISSION, "no-permission"), (LOST, "lost"),
     (TIMEOUT, "not-answering"), (UNKNOWN, "detached")],
)  # fmt: skip
def test_each_way_to_fail_has_its_word_and_a_sentence(machine: FakeNvml, reader: Readers, code: int, word: str) -> None:
    machine.init = code
    with pytest.raises(GpusUnavailable) as problem:
        reader(machine.write()).read(NOW)
    assert problem.value.state == word
    assert problem.value.reason.message.endswith(".")


def test_a_container_that_lost_its_devices_says_so(machine: FakeNvml, reader: Readers) -> None:
    two_gpus(machine).fails("nvmlDeviceGetHandleByIndex_v2", UNKNOWN).write()
    with pytest.raises(GpusUnavailable) as problem:
        reader(machine).read(NOW)
    assert problem.value.state == "detached"
    assert "restart the server" in problem.value.reason.message


def test_without_a_driver_the_machine_has_no_library(machine: FakeNvml) -> None:
    with ReaderProcess(machine, None) as looking, pytest.raises(GpusUnavailable) as problem:
        looking.read(NOW)
    assert problem.value.state == "no-library"


def test_a_machine_of_64_gpus_is_read_in_order_with_few_calls(machine: FakeNvml, reader: Readers) -> None:
    for number in range(64):
        machine.gpu(f"GPU-{number:02}", name="NVIDIA H100 80GB HBM3", mig=1, total=80 * GIB)
    for number in range(64):
        for slot in range(7):
            name = "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
            facts = {"slices": 1, "gislices": 1, "sm": 16}
            machine.mig(
                f"GPU-{number:02}",
                f"MIG-{number:02}-{slot}",
                slot=slot,
                gi=7 + slot,
                name=name,
                total=9984 << 20,
                **facts,
            )
    looking = reader(machine.write())
    looking.read(NOW)
    before = machine.calls()
    reading = looking.read(NOW)
    calls = machine.calls() - before
    assert max(calls.values()) <= 3 * (64 + 448), calls
    assert [d.uuid for d in reading.devices] == [f"MIG-{number:02}-{slot}" for number in range(64) for slot in range(7)]
    assert len(reading.samples) == 448
