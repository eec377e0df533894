"""The four servers side by side: no panel, ours, and two known ones; each a process with eight fake GPUs of its own.

All four run in the same Python, with the same JupyterLab, and differ in one extension.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.fakes.nvml import GIB, SOURCE, FakeNvml
from tests.fakes.user_server import UserServer

GPUS = 8
UUIDS = tuple(f"GPU-00000000-0000-0000-0000-{number:012d}" for number in range(GPUS))
EXTENSIONS = {
    "none": "",
    "ours": "hub_extensions.server_extension",
    "nvdashboard": "jupyterlab_nvdashboard",
    "resource-usage": "jupyter_resource_usage",
}
"""The four, in the order they are measured in."""


def build_library(folder: Path) -> Path:
    """The fake libnvidia-ml.so.1 with the calls that a peer makes on top; returns its folder."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    command = [compiler] if compiler else [sys.executable, "-m", "ziglang", "cc"]
    sources = (str(SOURCE), str(Path(__file__).with_name("peer_calls.c")))
    target = folder / "libnvidia-ml.so.1"
    subprocess.run([*command, "-shared", "-fPIC", "-O1", "-o", str(target), *sources], check=True)
    return folder


def eight_gpus(folder: Path) -> FakeNvml:
    """Eight whole GPUs at work, with a process on each."""
    fake = FakeNvml(folder)
    for number, gpu in enumerate(UUIDS):
        fake.gpu(gpu, total=40 * GIB, used=(10 + number) * GIB, util=50 + number, cores=6912, cc="8.0")
        fake.process(gpu, os.getpid(), used=(10 + number) * GIB)
    return fake.write()


@dataclass
class Peer:
    """One of the four: its server and the machine that this server sees."""

    name: str
    server: UserServer
    machine: FakeNvml

    def slow(self, milliseconds: int) -> None:
        """From now on every call of the driver takes so long."""
        self.machine.recovers().slow(milliseconds).write()

    def calls(self) -> int:
        """Calls of the driver since the server started."""
        return sum(self.machine.calls().values())

    def cpu_seconds(self) -> float:
        """CPU of the server's process since it started, kernel and user."""
        return cpu_seconds(self.server.process.pid)


def cpu_seconds(pid: int) -> float:
    """CPU of a process since it started, all threads, in steps of a clock tick (10 ms)."""
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / os.sysconf("SC_CLK_TCK")


def start(python: str, folder: Path, library: Path, stack: ExitStack) -> dict[str, Peer]:
    """Start the four; they are stopped with the stack."""
    peers = {}
    for name, extension in EXTENSIONS.items():
        place = folder / name
        place.mkdir()
        machine = eight_gpus(place)
        environ = {"FAKE_NVML_STATE": str(machine.path), "LD_LIBRARY_PATH": str(library)}
        environ |= {"JUPYTERHUB_GPU_LEASE": "lease-of-the-benchmark", "CUDA_VISIBLE_DEVICES": ",".join(UUIDS)}
        wanted = {other: other == extension for other in EXTENSIONS.values() if other}
        server = UserServer(place, environ, extensions=wanted, python=python)
        stack.callback(server.stop)
        peers[name] = Peer(name, server, machine)
    return peers
