"""What the tests on a card are made of, tried where there is none: the fake driver, and what nvidia-smi would print."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import pytest

from tests.fakes.nvml import FakeNvml, ReaderProcess, hopper_machine, lab_machine, library_folder
from tests.gpu.programs import cost_of, named_by_a_server, working
from tests.gpu.smi import MIB, Said, ask, differences, parse

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=timezone.utc)
A100 = "NVIDIA A100-PCIE-40GB"
TABLE = f"GPU-1, {A100}, 40960, 249, Enabled\nGPU-2, Tesla V100-SXM2-32GB, 32510, 15525, [N/A]\n"
LISTING = f"""GPU 0: {A100} (UUID: GPU-1)
  MIG 2g.10gb     Device  0: (UUID: MIG-4)
  MIG 1g.5gb      Device  1: (UUID: MIG-7)
GPU 1: Tesla V100-SXM2-32GB (UUID: GPU-2)
"""
XML = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log><attached_gpus>2</attached_gpus>
<gpu id="00000000:10:00.0"><mig_devices>
<mig_device><index>0</index><fb_memory_usage><total>9984 MiB</total><used>13 MiB</used></fb_memory_usage></mig_device>
<mig_device><index>1</index><fb_memory_usage><total>4864 MiB</total><used>N/A</used></fb_memory_usage></mig_device>
</mig_devices><uuid>GPU-1</uuid></gpu>
<gpu id="00000000:15:00.0"><mig_devices>None</mig_devices><uuid>GPU-2</uuid></gpu></nvidia_smi_log>
"""


def printing(folder: Path, table: str, listing: str, xml: str) -> str:
    """A program that prints what nvidia-smi would print."""
    for name, text in (("-L", listing), ("-q", xml), ("table", table)):
        (folder / name).write_text(text)
    program = folder / "nvidia-smi"
    program.write_text(f'#!/bin/sh\ncase "$1" in -*=*) exec cat "{folder}/table";; *) exec cat "{folder}/$1";; esac\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


def what_smi_would_print(machine: FakeNvml) -> tuple[str, str, str]:
    """Of the fake machine: table, listing, XML."""
    table = listing = xml = ""
    for uuid, gpu in machine.gpus.items():
        used, total, mode = gpu.get("used", 0), int(str(gpu["total"])) // MIB, gpu["mig"]
        table += f"{uuid}, {gpu['name']}, {total}, {int(str(used)) // MIB}, {'Enabled' if mode == 1 else '[N/A]'}\n"
        listing += f"GPU 0: {gpu['name']} (UUID: {uuid})\n"
        xml += f"<gpu><uuid>{uuid}</uuid>"
        cut = [row for kind, row in machine.rows if kind == "mig" and list(machine.gpus)[int(str(row["gpu"]))] == uuid]
        for row in cut:
            listing += f"  MIG {str(row['name']).split('MIG ')[1]}  Device  {row['slot']}: (UUID: {row['uuid']})\n"
            sizes = (int(str(row[name])) // MIB for name in ("total", "used"))
            xml += "<mig_device><fb_memory_usage><total>{} MiB</total><used>{} MiB</used>".format(*sizes)
            xml += "</fb_memory_usage></mig_device>"
        xml += "</gpu>"
    return table, listing, f"<nvidia_smi_log>{xml}</nvidia_smi_log>"


def test_what_nvidia_smi_prints_is_understood() -> None:
    assert parse(TABLE, LISTING, XML) == [
        Said("MIG-4", A100, "2g.10gb", 9984 * MIB, 13 * MIB),
        Said("MIG-7", A100, "1g.5gb", 4864 * MIB, None),
        Said("GPU-2", "Tesla V100-SXM2-32GB", None, 32510 * MIB, 15525 * MIB),
    ]


@pytest.mark.whole
@pytest.mark.needs("c-compiler")
@pytest.mark.parametrize("make", [lab_machine, hopper_machine])
def test_the_comparison_finds_no_difference_where_there_is_none_and_names_each_that_is(
    tmp_path: Path, make: Callable[[Path], FakeNvml]
) -> None:
    machine = make(tmp_path)
    said = ask(printing(tmp_path, *what_smi_would_print(machine)))
    with ReaderProcess(machine, library_folder(tmp_path)) as looking:
        reading = looking.read(NOW)
        assert {device.uuid for device in reading.devices} == set(said)
        assert differences(reading, said) == []
        moved = next(row for kind, row in machine.rows if kind == "mig")
        moved["used"] = int(str(moved["used"])) + 65 * MIB
        (only,) = differences(looking.read(NOW) if machine.write() else reading, said)
        assert only.startswith(f"{moved['uuid']}: used memory")
    said.pop(str(moved["uuid"]))
    assert differences(reading, said) == [f"{moved['uuid']}: nvidia-smi does not list it"]


@pytest.mark.needs("c-compiler")
def test_the_cost_of_looking_is_measured_and_small_over_the_fake_driver(tmp_path: Path) -> None:
    machine = lab_machine(tmp_path)
    cost = cost_of(50, ("MIG-lab-4", "MIG-lab-7"), machine.environment(library_folder(tmp_path)))
    assert (cost["looks"], cost["samples"]) == (50, 100)
    assert 0 < cost["cpu_seconds"] / 50 < 0.01
    assert 0 < cost["longest"] <= cost["seconds"]


@pytest.fixture
def cuda(tmp_path: Path) -> dict[str, str]:
    """The environment in which the driver's libraries are the fake one, which has both parts."""
    library = library_folder(tmp_path) / "libnvidia-ml.so.1"
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        (tmp_path / "both" / name).parent.mkdir(exist_ok=True)
        shutil.copy(library, tmp_path / "both" / name)
    return {"LD_LIBRARY_PATH": str(tmp_path / "both")}


@pytest.mark.needs("c-compiler")
def test_the_program_that_works_on_the_card_holds_its_memory_until_it_is_told(cuda: dict[str, str]) -> None:
    with working(8, cuda, "driver", "rhythm", "0.01", "0.01") as pid:
        assert Path(f"/proc/{pid}").exists()
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.needs("c-compiler")
def test_the_program_that_works_on_the_card_says_why_it_cannot(cuda: dict[str, str]) -> None:
    with (
        pytest.raises(RuntimeError, match="cuInit answers 100"),
        working(8, {**cuda, "FAKE_CUDA_INIT": "100"}, "driver"),
    ):
        pytest.fail("it works without a card")


@pytest.mark.whole
@pytest.mark.needs("c-compiler")
async def test_a_notebooks_program_is_named_by_a_real_server_over_the_fake_driver(
    tmp_path: Path, cuda: dict[str, str]
) -> None:
    machine = lab_machine(tmp_path)

    def listed(pid: int) -> None:
        machine.process("MIG-lab-7", pid, used=300 * MIB).changes("MIG-lab-7", used=310 * MIB).write()

    memory = await named_by_a_server(
        "MIG-lab-7",
        tmp_path / "server",
        8,
        "driver",
        environment={"FAKE_NVML_STATE": str(machine.path), **cuda},
        started=listed,
    )
    assert memory == 300 * MIB
