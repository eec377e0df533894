"""What a server in a pod takes for its own devices where nothing names them: those that it sees, once and for good."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path

import pytest

from hub_extensions.core.gpu.devices import GpusUnavailable, InventoryReading
from tests.fakes.nvml import (
    DRIVER_NOT_LOADED,
    FUNCTION_NOT_FOUND,
    LOST,
    NO_PERMISSION,
    TIMEOUT,
    FakeNvml,
    ReaderProcess,
    lab_machine,
    library_folder,
)

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=timezone.utc)
LAB_GPU = "GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f"

pytestmark = pytest.mark.needs("c-compiler")


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return library_folder(tmp_path_factory.mktemp("nvml"))


InPod = Callable[..., ReaderProcess]


@pytest.fixture
def in_pod(library: Path) -> Iterator[InPod]:
    """``in_pod(machine)`` starts a reader that sees this machine from a pod, and ends it after the test."""
    with ExitStack() as stack:
        yield lambda machine: stack.enter_context(ReaderProcess(machine, library, pod=True))


def uuids_of(reading: InventoryReading) -> list[str]:
    return [device.uuid for device in reading.devices]


def gpus(folder: Path, *uuids: str) -> FakeNvml:
    machine = FakeNvml(folder)
    for uuid in uuids:
        machine.gpu(uuid, util=40, cores=6912, cc="8.0")
    return machine.write()


def test_a_whole_gpu_that_is_seen_is_read(tmp_path: Path, in_pod: InPod) -> None:
    reading = in_pod(gpus(tmp_path, "GPU-a")).read(NOW)
    assert uuids_of(reading) == ["GPU-a"]
    assert reading.samples["GPU-a"].used_percent == 40.0


def test_several_gpus_that_are_seen_are_read_in_the_drivers_order(tmp_path: Path, in_pod: InPod) -> None:
    assert uuids_of(in_pod(gpus(tmp_path, "GPU-b", "GPU-a")).read(NOW)) == ["GPU-b", "GPU-a"]


@pytest.mark.parametrize("mode", [None, NO_PERMISSION, TIMEOUT])
def test_of_a_cut_gpu_only_the_mig_device_that_is_seen_is_read_and_never_the_gpu(
    tmp_path: Path, in_pod: InPod, mode: int | None
) -> None:
    """Also where the GPU does not tell whether it is cut."""
    machine = lab_machine(tmp_path).container_of("MIG-lab-7")
    if mode is not None:
        machine.fails("nvmlDeviceGetMigMode", mode)
    reading = in_pod(machine.write()).read(NOW)
    assert [(device.uuid, device.profile) for device in reading.devices] == [("MIG-lab-7", "1g.5gb")]
    assert set(reading.samples) == {"MIG-lab-7"}


def test_an_old_driver_that_knows_no_mig_has_whole_gpus(tmp_path: Path, in_pod: InPod) -> None:
    machine = gpus(tmp_path, "GPU-a").fails("nvmlDeviceGetMigMode", FUNCTION_NOT_FOUND).write()
    assert uuids_of(in_pod(machine).read(NOW)) == ["GPU-a"]


def test_a_cut_gpu_without_a_mig_device_to_see_is_no_device(tmp_path: Path, in_pod: InPod) -> None:
    assert in_pod(lab_machine(tmp_path).container_of().write()).read(NOW).devices == ()


def test_a_gpu_that_may_not_be_asked_is_somebody_elses(tmp_path: Path, in_pod: InPod) -> None:
    machine = gpus(tmp_path, "GPU-a", "GPU-b").fails("nvmlDeviceGetHandleByIndex_v2", NO_PERMISSION, on="GPU-a").write()
    looking = in_pod(machine)
    assert uuids_of(looking.read(NOW, clock=1.0)) == ["GPU-b"]
    machine.recovers().write()
    assert uuids_of(looking.read(NOW, clock=500.0)) == ["GPU-b"]


def test_what_was_found_is_kept_and_what_comes_later_is_not_taken(tmp_path: Path, in_pod: InPod) -> None:
    machine = gpus(tmp_path, "GPU-a")
    looking = in_pod(machine)
    looking.read(NOW, clock=1.0)
    machine.gpu("GPU-b", cores=6912, cc="8.0").write()
    asked = machine.calls()["nvmlDeviceGetCount_v2"]
    assert uuids_of(looking.read(NOW, clock=500.0)) == ["GPU-a"]
    machine.gpus.pop("GPU-a")
    assert uuids_of(looking.read(NOW, clock=501.0)) == ["GPU-a"]
    machine.write()
    assert looking.read(NOW, clock=502.0).devices == ()
    assert machine.calls()["nvmlDeviceGetCount_v2"] == asked


def test_while_none_is_found_it_is_looked_for_again_slowly(tmp_path: Path, in_pod: InPod) -> None:
    machine = gpus(tmp_path)
    looking = in_pod(machine)
    for clock in range(1, 31):
        assert looking.read(NOW, clock=float(clock)).devices == ()
    assert machine.calls()["nvmlDeviceGetCount_v2"] == 1
    machine.gpu("GPU-a", cores=6912, cc="8.0").write()
    assert uuids_of(looking.read(NOW, clock=31.0)) == ["GPU-a"]


def test_one_that_does_not_answer_yet_is_found_later_and_hides_no_other(tmp_path: Path, in_pod: InPod) -> None:
    machine = gpus(tmp_path, "GPU-a", "GPU-b").fails("nvmlDeviceGetUUID", TIMEOUT, on="GPU-a").write()
    looking = in_pod(machine)
    assert uuids_of(looking.read(NOW, clock=1.0)) == ["GPU-b"]
    machine.recovers().write()
    assert uuids_of(looking.read(NOW, clock=5.0)) == ["GPU-b"]
    assert uuids_of(looking.read(NOW, clock=31.0)) == ["GPU-b", "GPU-a"]


def test_one_that_was_found_is_read_though_a_later_search_fails(tmp_path: Path, in_pod: InPod) -> None:
    machine = gpus(tmp_path, "GPU-a", "GPU-b").fails("nvmlDeviceGetHandleByIndex_v2", TIMEOUT, on="GPU-a").write()
    looking = in_pod(machine)
    looking.read(NOW, clock=1.0)
    machine.fails("nvmlDeviceGetHandleByIndex_v2", TIMEOUT).write()
    assert uuids_of(looking.read(NOW, clock=40.0)) == ["GPU-b"]


@pytest.mark.parametrize(
    ("code", "word"), [(TIMEOUT, "not-answering"), (LOST, "lost"), (NO_PERMISSION, "no-permission")]
)
def test_where_none_answers_it_is_said_why_and_found_as_soon_as_one_does(
    tmp_path: Path, in_pod: InPod, code: int, word: str
) -> None:
    machine = gpus(tmp_path, "GPU-a").fails("nvmlDeviceGetHandleByIndex_v2", code).write()
    looking = in_pod(machine)
    with pytest.raises(GpusUnavailable) as problem:
        looking.read(NOW, clock=1.0)
    assert problem.value.state == word
    machine.recovers().write()
    assert uuids_of(looking.read(NOW, clock=2.0)) == ["GPU-a"]


def test_a_driver_that_is_loaded_anew_is_no_failure_of_the_search(tmp_path: Path, in_pod: InPod) -> None:
    machine = gpus(tmp_path, "GPU-a")
    looking = in_pod(machine)
    looking.read(NOW, clock=1.0)
    machine.reload().write()
    assert uuids_of(looking.read(NOW, clock=2.0)) == ["GPU-a"]


@pytest.mark.parametrize("own", [(), ("GPU-a",)])
def test_a_pod_without_the_drivers_library_is_told_for_its_user(tmp_path: Path, own: tuple[str, ...]) -> None:
    with (
        ReaderProcess(gpus(tmp_path, "GPU-a"), None, own, pod=True) as looking,
        pytest.raises(GpusUnavailable) as problem,
    ):
        looking.read(NOW)
    assert problem.value.state == "no-library"
    assert problem.value.reason.message.startswith("The GPU's driver is not in this container. Tell an admin")


def test_a_pod_whose_driver_does_not_open_is_told_for_its_user(tmp_path: Path, in_pod: InPod) -> None:
    machine = gpus(tmp_path, "GPU-a")
    machine.init = DRIVER_NOT_LOADED
    with pytest.raises(GpusUnavailable) as problem:
        in_pod(machine.write()).read(NOW)
    assert problem.value.state == "driver-not-loaded"
    assert "in this container" in problem.value.reason.message and "modprobe" not in problem.value.reason.message
