"""A server's own GPUs by their UUIDs, over the real pynvml and a library that plays a machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime, timezone
from pathlib import Path

import pytest

from hub_extensions.core.inventory import InventoryReading
from tests.fakes.nvml import ReaderProcess, lab_machine, library_folder

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=timezone.utc)
LAB = ("MIG-lab-4", "MIG-lab-7", "MIG-lab-8", "MIG-lab-11", "MIG-lab-12", "MIG-lab-13")

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
