"""A machine with NVIDIA GPUs that does not exist: the real pynvml loads ``fake_nvml.c`` as the driver's library.

`FakeNvml` writes what the machine has; `ReaderProcess` looks at it with the product's own reader, in a process of its
own, because a library that is loaded once stays loaded.
"""

from __future__ import annotations

import os
import pickle
import shutil
import struct
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from hub_extensions.core.gpu.devices import GpusUnavailable, InventoryReading
from tests.patience import patient

ROOT = Path(__file__).resolve().parents[3]
SOURCE = Path(__file__).with_name("fake_nvml.c")
GIB = 2**30

NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, DRIVER_NOT_LOADED, TIMEOUT = 3, 4, 6, 9, 10
FUNCTION_NOT_FOUND, LOST, VERSION_MISMATCH, UNKNOWN = 13, 15, 18, 999

REFUSED_OF_A_PARENT = (
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetComputeRunningProcesses_v2",
    "nvmlDeviceGetGpuInstanceById",
    "nvmlDeviceGetGpuInstances",
)
"""What a container with one MIG device may not ask of its GPU (NVIDIA/nvidia-container-toolkit#842 has the first)."""


def library_folder(build_in: Path) -> Path:
    """Where libnvidia-ml.so.1 is: as FAKE_NVML says, else built into `build_in` with the machine's C compiler."""
    told = os.environ.get("FAKE_NVML")
    if told:
        return Path(told)
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    command = [compiler] if compiler else [sys.executable, "-m", "ziglang", "cc"]
    target = build_in / "libnvidia-ml.so.1"
    subprocess.run([*command, "-shared", "-fPIC", "-O1", "-o", str(target), str(SOURCE)], check=True)
    return build_in


@dataclass
class FakeNvml:
    """The state of the machine, in the words of the C file. Every method changes it; `write` makes it so.

    Attributes:
        folder: where the state file is kept.
    """

    folder: Path
    init: int = 0
    reloads: int = 0
    driver: str = "550.54.15"
    gpus: dict[str, dict[str, object]] = field(default_factory=dict)
    rows: list[tuple[str, dict[str, object]]] = field(default_factory=list)

    @property
    def path(self) -> Path:
        return self.folder / "nvml.state"

    def environment(self, library: Path | None) -> dict[str, str]:
        """What a process needs to see this machine; without a library there is no driver at all."""
        more = {} if library is None else {"LD_LIBRARY_PATH": str(library)}
        return {**os.environ, "FAKE_NVML_STATE": str(self.path), **more}

    def gpu(
        self, uuid: str, *, name: str = "NVIDIA A100-PCIE-40GB", mig: int = -1, total: int = 40 * GIB, **facts: object
    ) -> FakeNvml:
        """A GPU, in the order of their indices. `mig`: -1 no MIG at all, 0 off, 1 on.

        Facts: used, reserved, util, cores, cc, lost; with gpm=1 also what GPM counts of it: smutil, tensor, dram.
        """
        self.gpus[uuid] = {"mig": mig, "total": total, **facts, "name": name}
        return self

    def profile(
        self, gpu: str, name: str, *, enum: int, id: int, slices: int, sm: int, mb: int, count: int
    ) -> FakeNvml:
        """A profile that the card can be cut by; `enum` is the library's number, `id` the one nvidia-smi takes."""
        facts: dict[str, object] = {"enum": enum, "id": id, "slices": slices, "sm": sm, "mb": mb, "count": count}
        return self._row("profile", gpu=self._index(gpu), **facts, name=f"MIG {name}")

    def instance(self, gpu: str, id: int, *, profile: int, start: int, size: int) -> FakeNvml:
        """A GPU instance; nobody can run on it before it has a `mig` device."""
        return self._row("gi", gpu=self._index(gpu), id=id, profile=profile, start=start, size=size)

    def mig(
        self, gpu: str, uuid: str, *, slot: int, gi: int, ci: int = 0, name: str, total: int, **facts: object
    ) -> FakeNvml:
        """A MIG device (a compute instance that fills its GPU instance).

        Facts: slices, gislices, sm, used; what GPM counts of it on a card with gpm=1: util (graphics), smutil, tensor,
        dram, in percent; one that is left out is not supported.
        """
        return self._row(
            "mig", gpu=self._index(gpu), slot=slot, gi=gi, ci=ci, uuid=uuid, total=total, **facts, name=name
        )

    def changes(self, uuid: str, **facts: object) -> FakeNvml:
        """New facts of a GPU or MIG device that is there, e.g. used, util, smutil, tensor, dram, lost."""
        found = [row for kind, row in self.rows if kind == "mig" and row["uuid"] == uuid]
        (self.gpus.get(uuid) or found[0]).update(facts)
        return self

    def without(self, uuid: str) -> FakeNvml:
        """A MIG device is gone; its GPU instance stays."""
        self.rows = [(kind, row) for kind, row in self.rows if not (kind == "mig" and row["uuid"] == uuid)]
        return self

    def process(self, on: str, pid: int, *, used: int | None = 0, mps: bool = False) -> FakeNvml:
        """A process on a device. `used` bytes; None: the driver does not tell how much."""
        return self._row("proc", on=on, pid=pid, used="none" if used is None else used, mps=int(mps))

    def no_processes(self) -> FakeNvml:
        self.rows = [row for row in self.rows if row[0] != "proc"]
        return self

    def fails(self, call: str, code: int, on: str = "*") -> FakeNvml:
        """From now on this call (``*``: every one) answers with `code`, for one device or for all.

        ``gpm:5`` is metric 5 of nvmlGpmMetricsGet alone.
        """
        return self._row("error", call=call, on=on, code=code)

    def lacks(self, *calls: str) -> FakeNvml:
        """A driver that is older than these calls."""
        for call in calls:
            self.fails(call, FUNCTION_NOT_FOUND)
        return self

    def slow(self, milliseconds: int, call: str = "*", on: str = "*") -> FakeNvml:
        """Each such call takes so long from now on."""
        return self._row("delay", call=call, on=on, ms=milliseconds)

    def hangs(self, call: str = "*", on: str = "*") -> FakeNvml:
        """Such a call does not come back before `recovers`."""
        return self._row("hang", call=call, on=on)

    def recovers(self) -> FakeNvml:
        """Nothing fails, is slow or hangs any more."""
        self.rows = [row for row in self.rows if row[0] not in ("error", "delay", "hang")]
        return self

    def reload(self) -> FakeNvml:
        """The driver is unloaded and loaded: nothing answers before it is opened anew."""
        self.reloads += 1
        return self

    def container_of(self, *uuids: str) -> FakeNvml:
        """Seen from a container that was given these MIG devices: the others are hidden, their GPU may not be asked."""
        for kind, row in self.rows.copy():
            if kind == "mig" and row["uuid"] not in uuids:
                for call in ("nvmlDeviceGetHandleByUUID", "nvmlDeviceGetMigDeviceHandleByIndex"):
                    self.fails(call, NOT_FOUND, on=str(row["uuid"]))
        for gpu in self.gpus:
            for call in REFUSED_OF_A_PARENT:
                self.fails(call, NO_PERMISSION, on=gpu)
        return self

    def write(self) -> FakeNvml:
        """Make it so, at once and as a whole."""
        lines = [f"init {self.init}", f"reload {self.reloads}", f"driver {self.driver}"]
        lines += [_line("gpu", {"uuid": uuid, **facts}) for uuid, facts in self.gpus.items()]
        lines += [_line(kind, facts) for kind, facts in self.rows]
        draft = self.path.with_suffix(".draft")
        draft.write_text("\n".join(lines) + "\n", encoding="utf-8")
        draft.replace(self.path)
        return self

    def calls(self) -> Counter[str]:
        """How often each call of the library was made so far, by all programs that look at this machine."""
        return Counter({name: count for name, count in self._counts().items() if name.startswith("nvml")})

    def samples_alive(self) -> int:
        """GPM samples that were allocated and not freed."""
        return self._counts().get("samples not freed", 0)

    def _counts(self) -> dict[str, int]:
        file = Path(f"{self.path}.calls")
        if not file.exists():
            return {}
        slots = struct.iter_unpack("=56sq", file.read_bytes())
        return {name.rstrip(b"\0").decode(): count for name, count in slots if name.strip(b"\0")}

    def _index(self, gpu: str) -> int:
        return list(self.gpus).index(gpu)

    def _row(self, kind: str, **facts: object) -> FakeNvml:
        self.rows.append((kind, facts))
        return self


def lab_machine(folder: Path) -> FakeNvml:
    """The published LAB machine: one A100 cut 19,19,19,19,14,19; GPU instance 4 is the 2g.10gb and MIG device 0."""
    gpu = "GPU-5c89852c-d268-c3f3-1b07-005d5ae1dc3f"
    product = "NVIDIA A100-PCIE-40GB"
    fake = FakeNvml(folder).gpu(gpu, name=product, mig=1, used=0, cores=6912, cc="8.0")
    fake.profile(gpu, "1g.5gb", enum=0, id=19, slices=1, sm=14, mb=4864, count=7)
    fake.profile(gpu, "2g.10gb", enum=1, id=14, slices=2, sm=28, mb=9984, count=3)
    cut = [(4, "2g.10gb", 14, 4, 2, 28, 9984)]
    cut += [(gi, "1g.5gb", 19, start, 1, 14, 4864) for gi, start in ((7, 0), (8, 1), (11, 2), (12, 3), (13, 6))]
    for slot, (gi, profile, number, start, slices, sm, mb) in enumerate(cut):
        fake.instance(gpu, gi, profile=number, start=start, size=slices)
        facts = {"slices": slices, "gislices": slices, "sm": sm, "used": 10 << 20}
        fake.mig(gpu, f"MIG-lab-{gi}", slot=slot, gi=gi, name=f"{product} MIG {profile}", total=mb << 20, **facts)
    return fake.write()


def v100_machine(folder: Path) -> FakeNvml:
    """One GPU of a DGX-1: a card without MIG and without GPM, 32510 MiB as nvidia-smi shows them."""
    fake = FakeNvml(folder)
    fake.gpu("GPU-v100", name="Tesla V100-SXM2-32GB", total=32510 << 20, used=0, util=0, cores=5120, cc="7.0")
    return fake.write()


def hopper_machine(folder: Path) -> FakeNvml:
    """Two H100: GPU-whole, and one cut into MIG-h-1 (1g.10gb) and MIG-h-3 (3g.40gb), which count their use (GPM)."""
    fake, product = FakeNvml(folder), "NVIDIA H100 80GB HBM3"
    counts: dict[str, Any] = {"util": 0, "smutil": 0, "tensor": 0, "dram": 0}
    card: dict[str, Any] = {"name": product, "total": 81559 << 20, "used": 0, "cores": 16896, "cc": "9.0", "gpm": 1}
    fake.gpu("GPU-whole", mig=0, **card, **counts).gpu("GPU-cut", mig=1, **card)
    for slot, (gi, slices, profile, sm, mb) in enumerate([(2, 3, "3g.40gb", 60, 40448), (9, 1, "1g.10gb", 16, 9984)]):
        fake.instance("GPU-cut", gi, profile=9 if slices == 3 else 19, start=0 if slices == 3 else 4, size=slices)
        facts = {"slices": slices, "gislices": slices, "sm": sm, "used": 0, **counts}
        name = f"{product} MIG {profile}"
        fake.mig("GPU-cut", f"MIG-h-{slices}", slot=slot, gi=gi, name=name, total=mb << 20, **facts)
    return fake.write()


class ReaderProcess:
    """The product's reader in a process that sees the fake machine. Use it as a context.

    Args:
        machine: what there is.
        library: the folder of the fake library; None: no driver on this machine.
        own: a server's own devices, read as its panel reads them; none: all GPUs, as the service reads them.
        pod: it is a server in a pod; without `own` it reads what it sees.
    """

    def __init__(
        self, machine: FakeNvml, library: Path | None, own: tuple[str, ...] = (), *, pod: bool = False
    ) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.fakes.nvml.reader", *(["--pod"] if pod else []), *own],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**machine.environment(library), "PYTHONPATH": str(ROOT)},
        )

    def read(self, now: datetime, *, clock: float = 0.0) -> InventoryReading:
        """One look. `clock`: what the reader's running clock shows. Raises GpusUnavailable as the reader does."""
        answer = self._ask(("read", now, clock))
        if isinstance(answer, tuple):
            raise GpusUnavailable(*answer)
        assert isinstance(answer, InventoryReading)
        return answer

    def close_reader(self) -> None:
        assert self._ask(("close",)) is None

    def __enter__(self) -> ReaderProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(timeout=patient(10))

    def _ask(self, question: tuple[object, ...]) -> object:
        assert self._process.stdin is not None and self._process.stdout is not None
        pickle.dump(question, self._process.stdin)
        self._process.stdin.flush()
        answer: object = pickle.load(self._process.stdout)
        return answer


def _line(kind: str, facts: dict[str, object]) -> str:
    name = facts.pop("name", None) if "name" in facts else None
    words = [kind, *(f"{key}={value}" for key, value in facts.items())]
    if name is not None:
        facts["name"] = name
        words.append(f"name={name}")
    return " ".join(words)
