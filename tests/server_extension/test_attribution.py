"""Who is said to hold the GPU, from what can be seen; and that nobody else's program is ever named."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from hub_extensions.adapters.linux import procfs
from hub_extensions.adapters.linux.procfs import describe, holds_open, script
from hub_extensions.core.gpu.devices import Device, InventoryReading
from hub_extensions.core.gpu.samples import DeviceSample
from hub_extensions.core.messages import Holder
from hub_extensions.server_extension.attribution import (
    NOT_HOW_MUCH,
    NOT_WHOSE,
    PROBABLY,
    DeviceFacts,
    Kernel,
    Program,
    held,
)
from hub_extensions.server_extension.gpu_processes import GpuProcesses, KernelReader
from hub_extensions.server_extension.readings import NOT_WHICH, Entitlement, HeldMemory, MemoryLimit, memory_limit_of
from tests.fakes.gpu_readers import GIB, UUID
from tests.fakes.panel_service import a_state

NOW = datetime(2026, 11, 21, 14, 0, tzinfo=timezone.utc)
ROOT = "/home/ada"
TRAIN = Kernel("k-train", "train.ipynb", "work/train.ipynb", 100, None, 600.0)
EDA = Kernel("k-eda", "eda.ipynb", "eda.ipynb", 200, NOW, 300.0)
OF_TRAIN = Program(100, 1, "python3", f"{ROOT}/work/train.ipynb")
OF_EDA = Program(200, 1, "python3", f"{ROOT}/eda.ipynb")
WORKER = Program(101, 100, "python3", f"{ROOT}/work/train.ipynb")
SCRIPT = Program(300, 1, "train.py")


def scene(
    pids: tuple[int, ...] | None,
    by_pid: Mapping[int, int] | None = None,
    *,
    used: int | None = 3 * GIB,
    programs: tuple[Program, ...] = (OF_TRAIN, OF_EDA, WORKER, SCRIPT),
    kernels: tuple[Kernel, ...] = (TRAIN, EDA),
    shared: bool = False,
    several: bool = False,
    taken: float | None = None,
    sees_all: bool = False,
) -> DeviceFacts:
    sample = DeviceSample(UUID, NOW, 50.0, used, pids, "nvml", dict(by_pid or {}))
    return DeviceFacts(sample, programs, kernels, shared, several, taken, ROOT, sees_all)


def holding(*programs: Program) -> tuple[Program, ...]:
    """The programs, of which these have the GPU's memory opened."""
    return tuple(
        Program(one.pid, one.ppid, one.name, one.session, one in programs) for one in (OF_TRAIN, OF_EDA, WORKER, SCRIPT)
    )


def named(holders: tuple[Holder, ...] | None) -> list[tuple[str, str, str, int | None]]:
    return [(holder.name, holder.path, holder.kernel, holder.memory_bytes) for holder in holders or ()]


# ------------------------------------------------------------------ the driver lists processes


def test_listed_processes_are_their_notebooks_with_their_memory_the_largest_first() -> None:
    found = held(scene((100, 200), {100: GIB, 200: 2 * GIB}))
    assert named(found.holders) == [
        ("eda.ipynb", "eda.ipynb", "k-eda", 2 * GIB),
        ("train.ipynb", "work/train.ipynb", "k-train", GIB),
    ]
    assert found.own_memory_bytes == 3 * GIB
    assert found.note is None
    assert found.holders is not None and found.holders[0].idle_since == NOW


def test_a_kernels_children_count_to_it() -> None:
    assert named(held(scene((100, 101), {100: GIB, 101: GIB})).holders) == [
        ("train.ipynb", "work/train.ipynb", "k-train", 2 * GIB)
    ]


def test_a_process_that_left_its_kernel_is_known_by_its_environment() -> None:
    left = Program(400, 1, "python3", f"{ROOT}/work/train.ipynb")
    assert named(held(scene((400,), {400: GIB}, programs=(left,))).holders) == [
        ("train.ipynb", "work/train.ipynb", "k-train", GIB)
    ]


def test_a_notebook_whose_kernel_is_gone_is_still_named() -> None:
    assert named(held(scene((100,), {100: GIB}, kernels=())).holders) == [("train.ipynb", "work/train.ipynb", "", GIB)]


def test_a_renamed_notebook_has_its_new_name() -> None:
    renamed = Kernel("k-train", "final.ipynb", "final.ipynb", 100, None, 600.0)
    assert named(held(scene((100,), {100: GIB}, kernels=(renamed,))).holders)[0][0] == "final.ipynb"


def test_a_program_of_a_terminal_is_named_by_its_program() -> None:
    assert named(held(scene((300,), {300: GIB})).holders) == [("train.py", "", "", GIB)]


def test_a_path_outside_the_servers_root_is_not_told() -> None:
    outside = Program(400, 1, "python3", "/scratch/secret/run.ipynb")
    assert named(held(scene((400,), {400: GIB}, programs=(outside,))).holders) == [("run.ipynb", "", "", GIB)]


def test_others_on_a_shared_device_are_never_named_and_their_memory_is_not_ours() -> None:
    found = held(scene((100, 999), {100: GIB, 999: 2 * GIB}, shared=True))
    assert [holder.name for holder in found.holders or ()] == ["train.ipynb"]
    assert found.own_memory_bytes == GIB


def test_a_device_only_others_use_has_no_holder_of_ours() -> None:
    found = held(scene((999,), {999: 2 * GIB}, shared=True))
    assert (found.own_memory_bytes, found.holders) == (0, ())


def test_a_driver_that_does_not_tell_sizes_leaves_them_unknown() -> None:
    found = held(scene((100, 200), {200: GIB}))
    assert found.own_memory_bytes is None
    assert found.note == NOT_HOW_MUCH
    assert named(found.holders)[1] == ("train.ipynb", "work/train.ipynb", "k-train", None)


@pytest.mark.parametrize("pids", [(), None])
def test_memory_that_nobody_needs_to_hold_has_no_holder(pids: tuple[int, ...] | None) -> None:
    found = held(scene(pids, used=20 * 1024**2))
    assert (found.own_memory_bytes, found.holders, found.note) == (0, (), None)


def test_on_the_machine_itself_an_empty_list_is_the_answer_and_nothing_is_guessed() -> None:
    """Memory without a process: of graphics, or of one that has just ended. Who has it opened may use another GPU."""
    guessable = scene((), programs=holding(OF_TRAIN), kernels=(TRAIN,), taken=1.0, sees_all=True)
    assert held(guessable) == HeldMemory(0, ())
    hidden = scene(None, programs=holding(OF_TRAIN), kernels=(TRAIN,), taken=1.0, sees_all=True)
    assert [holder.name for holder in held(hidden).holders or ()] == ["train.ipynb"]


# ------------------------------------------------------------------ the driver hides them


@pytest.mark.parametrize("pids", [(), None])
def test_hidden_the_only_one_that_has_it_open_holds_all(pids: tuple[int, ...] | None) -> None:
    found = held(scene(pids, programs=holding(OF_TRAIN, WORKER)))
    assert named(found.holders) == [("train.ipynb", "work/train.ipynb", "k-train", 3 * GIB)]
    assert (found.own_memory_bytes, found.note) == (3 * GIB, None)


def test_hidden_several_that_have_it_open_are_named_without_amounts() -> None:
    found = held(scene(None, programs=holding(OF_TRAIN, OF_EDA)))
    assert {name for name, *_ in named(found.holders)} == {"train.ipynb", "eda.ipynb"}
    assert {amount for *_, amount in named(found.holders)} == {None}
    assert (found.own_memory_bytes, found.note) == (3 * GIB, NOT_HOW_MUCH)


def test_hidden_on_a_shared_device_no_amount_is_ours() -> None:
    found = held(scene(None, programs=holding(OF_TRAIN), shared=True))
    assert named(found.holders) == [("train.ipynb", "work/train.ipynb", "k-train", None)]
    assert (found.own_memory_bytes, found.note) == (None, NOT_WHOSE)


def test_hidden_with_several_devices_it_is_not_known_which_one() -> None:
    found = held(scene(None, programs=holding(OF_TRAIN), several=True))
    assert (found.own_memory_bytes, found.note) == (None, NOT_HOW_MUCH)


# ------------------------------------------------------------------ nothing can be seen


def test_unseen_the_one_kernel_that_was_there_when_the_memory_was_taken_is_it_probably() -> None:
    found = held(scene(None, programs=(), taken=400.0))
    assert named(found.holders) == [("train.ipynb", "work/train.ipynb", "k-train", 3 * GIB)]
    assert found.note == PROBABLY


@pytest.mark.parametrize(
    "changes",
    [
        {"taken": 200.0},
        {"taken": 700.0},
        {"taken": None},
        {"taken": 400.0, "shared": True},
        {"taken": 400.0, "several": True},
        {"taken": 400.0, "kernels": (TRAIN, Kernel("k", "far", "", None, None, None))},
    ],
    ids=["two were there", "none was there", "nobody saw it", "others are there", "two devices", "one of unknown age"],
)
def test_unseen_and_not_clear_it_is_not_known(changes: dict[str, Any]) -> None:
    found = held(scene(None, programs=(), **changes))
    assert (found.own_memory_bytes, found.holders, found.note) == (None, None, NOT_WHICH)


# ------------------------------------------------------------------ limits

MIG = Device(UUID, "NVIDIA A100-PCIE-40GB", profile="1g.5gb", memory_bytes=5 * GIB)


@pytest.mark.parametrize(
    ("environ", "limit"),
    [
        ({"CUDA_DEVICE_MEMORY_LIMIT_0": "1024m"}, (GIB, "hami")),
        ({"CUDA_DEVICE_MEMORY_LIMIT": "2g"}, (2 * GIB, "hami")),
        ({"CUDA_DEVICE_MEMORY_LIMIT_0": "1024m", "CUDA_DEVICE_MEMORY_LIMIT": "2g"}, (GIB, "hami")),
        ({"CUDA_DEVICE_MEMORY_LIMIT_1": "1024m"}, (None, "")),
        ({"CUDA_DEVICE_MEMORY_LIMIT_0": "17592186044416m"}, (5 * GIB, "hami")),
        ({"CUDA_DEVICE_MEMORY_LIMIT_0": "17T"}, (5 * GIB, "hami")),
        ({"CUDA_DEVICE_MEMORY_LIMIT_0": "1073741824"}, (GIB, "hami")),
        ({"CUDA_DEVICE_MEMORY_LIMIT_0": "0"}, (None, "")),
        ({"CUDA_DEVICE_MEMORY_LIMIT_0": "-5m"}, (None, "")),
        ({"CUDA_DEVICE_MEMORY_LIMIT_0": "much"}, (None, "")),
        ({"CUDA_DEVICE_MEMORY_LIMIT_0": "9" * 400}, (None, "")),
    ],
)
def test_hamis_limit_is_read_and_cut_to_the_device(environ: dict[str, str], limit: tuple[int | None, str]) -> None:
    terms = memory_limit_of(MIG, Entitlement((UUID,), environ))
    assert (terms.limit_bytes, terms.limit_source) == limit
    assert terms.shared is (limit[0] is not None)


def test_a_limit_above_every_card_says_nothing_where_the_cards_size_is_not_known() -> None:
    unknown = Device(UUID, "NVIDIA A100-PCIE-40GB")
    assert memory_limit_of(unknown, Entitlement((UUID,), {"CUDA_DEVICE_MEMORY_LIMIT_0": "17T"})) == MemoryLimit(False)
    assert memory_limit_of(unknown, Entitlement((UUID,), {"CUDA_DEVICE_MEMORY_LIMIT_0": "10g"})) == MemoryLimit(
        True, 10 * GIB, "hami"
    )


def leased(state: Any, *uuids: str) -> Entitlement:
    return Entitlement(uuids or (UUID,), {}, True, state)


def test_a_fraction_is_shared_and_a_limit_by_agreement_and_a_whole_device_is_neither() -> None:
    half = a_state(uuid=UUID, share=0.5, memory_bytes=2 * GIB)
    assert memory_limit_of(MIG, leased(half)) == MemoryLimit(True, 2 * GIB, "share")
    assert memory_limit_of(MIG, leased(a_state(uuid=UUID, share=1.0))) == MemoryLimit(False)


@pytest.mark.parametrize("state", [None, a_state(uuid=None, share=0.0), a_state(uuid="GPU-other", share=1.0)])
def test_in_doubt_others_are_on_the_device(state: Any) -> None:
    """Before the service's first answer, when it knows nothing of this server, and when it speaks of another device."""
    assert memory_limit_of(MIG, leased(state)) == MemoryLimit(True)


def test_of_several_whole_devices_none_is_shared_though_the_service_names_one() -> None:
    several = leased(a_state(uuid=UUID, share=1.0), UUID, "GPU-b")
    assert memory_limit_of(MIG, several) == MemoryLimit(False)
    assert memory_limit_of(Device("GPU-b", "NVIDIA A100-PCIE-40GB"), several) == MemoryLimit(False)
    fractions = leased(a_state(uuid=UUID, share=0.5, memory_bytes=GIB), UUID, "GPU-b")
    assert memory_limit_of(Device("GPU-b", "NVIDIA A100-PCIE-40GB"), fractions) == MemoryLimit(True)


def test_outside_a_hub_nothing_is_shared() -> None:
    assert memory_limit_of(MIG, Entitlement((UUID,), {})) == MemoryLimit(False)


def in_a_pod(mechanism: str, state: Any, *uuids: str, **environ: str) -> Entitlement:
    return Entitlement(uuids or (UUID,), {"JUPYTERHUB_GPU_POD": mechanism, **environ}, True, state)


@pytest.mark.parametrize("mechanism", ["whole", "mig", "mig-single", "dra"])
@pytest.mark.parametrize("state", [None, a_state(uuid=None, share=1.0)])
def test_in_a_pod_nobody_else_is_on_a_device_that_hardware_separates(mechanism: str, state: Any) -> None:
    """The service names no device there, so it is not asked for one; and how a device was given does not change."""
    assert memory_limit_of(MIG, in_a_pod(mechanism, state)) == MemoryLimit(False)
    assert memory_limit_of(MIG, in_a_pod(mechanism, state, "GPU-b", UUID)) == MemoryLimit(False)


@pytest.mark.parametrize(
    "mechanism", ["time-slicing", "mps", "hami", "kai-fraction", "kai-memory", "1", "of-next-year"]
)
@pytest.mark.parametrize("state", [None, a_state(uuid=None, share=1.0, memory_bytes=None)])
def test_in_a_pod_others_are_on_every_other_device(mechanism: str, state: Any) -> None:
    assert memory_limit_of(MIG, in_a_pod(mechanism, state)) == MemoryLimit(True)


def test_in_a_pod_a_part_by_agreement_is_the_limit_and_one_that_is_enforced_elsewhere_is_not_called_that() -> None:
    part = {"uuid": None, "share": 1.0, "memory_bytes": GIB}
    sliced = a_state(**part, memory_enforced=False)
    assert memory_limit_of(MIG, in_a_pod("time-slicing", sliced)) == MemoryLimit(True, GIB, "share")
    assert memory_limit_of(MIG, in_a_pod("time-slicing", sliced, UUID, "GPU-b")) == MemoryLimit(True)
    assert memory_limit_of(MIG, in_a_pod("mps", a_state(**part, memory_enforced=True))) == MemoryLimit(True)
    all_of_it = a_state(uuid=None, share=1.0, memory_bytes=MIG.memory_bytes, memory_enforced=False)
    assert memory_limit_of(MIG, in_a_pod("time-slicing", all_of_it)) == MemoryLimit(True)


def test_in_a_pod_hamis_limit_goes_first() -> None:
    right = in_a_pod("hami", a_state(uuid=None, share=0.5), CUDA_DEVICE_MEMORY_LIMIT_0="1024m")
    assert memory_limit_of(MIG, right) == MemoryLimit(True, GIB, "hami")


def test_where_hami_sets_a_limit_the_device_is_shared_though_the_lease_is_a_whole_one() -> None:
    right = Entitlement((UUID,), {"CUDA_DEVICE_MEMORY_LIMIT_0": "1024m"}, True, a_state(uuid=UUID, share=1.0))
    assert memory_limit_of(MIG, right) == MemoryLimit(True, GIB, "hami")


# ------------------------------------------------------------------ looking at real processes


@contextmanager
def a_process(environ: dict[str, str], *open_files: Path) -> Iterator[int]:
    """A process with this environment that has these files open and waits."""
    code = "import sys; files = [open(name) for name in sys.argv[1:]]; print('up', flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, open_files)],
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == b"up\n"
        yield process.pid
    finally:
        process.kill()
        process.communicate()


def environ_of(lease: str, notebook: str) -> dict[str, str]:
    return {"JUPYTERHUB_GPU_LEASE": lease, "JPY_PARENT_PID": "1", "JPY_SESSION_NAME": notebook}


def reading_of(pids: tuple[int, ...] | None, by_pid: dict[int, int] | None = None) -> InventoryReading:
    sample = DeviceSample(UUID, NOW, 50.0, 3 * GIB, pids, "nvml", by_pid or {})
    return InventoryReading(NOW, (MIG,), {UUID: sample})


def gpu_processes(kernels: Callable[[], tuple[Kernel, ...]] = tuple, **options: Any) -> GpuProcesses:
    return GpuProcesses("lease-of-this-test", ROOT, kernels, **options)


@pytest.mark.programs
def test_own_processes_are_told_by_the_lease_mark_and_a_neighbours_is_not() -> None:
    with (
        a_process(environ_of("lease-of-this-test", f"{ROOT}/mine.ipynb")) as mine,
        a_process(environ_of("another-lease", "/home/bob/secret.ipynb")) as other,
    ):
        found = gpu_processes().refresh(reading_of((mine, other), {mine: GIB, other: 2 * GIB}), {UUID: True}, 0.0)[UUID]
    assert named(found.holders) == [("mine.ipynb", "mine.ipynb", "", GIB)]
    assert found.own_memory_bytes == GIB


@pytest.mark.programs
def test_a_process_that_came_after_the_scan_is_found_when_the_driver_lists_it() -> None:
    processes = gpu_processes(scan_seconds=3600.0)
    processes.refresh(reading_of(()), {UUID: False}, 0.0)
    with a_process(environ_of("lease-of-this-test", f"{ROOT}/late.ipynb")) as late:
        found = processes.refresh(reading_of((late,), {late: GIB}), {UUID: False}, 1.0)[UUID]
    assert [holder.name for holder in found.holders or ()] == ["late.ipynb"]


@pytest.mark.programs
def test_a_listed_pid_that_is_nobodys_any_more_is_no_holder() -> None:
    processes = gpu_processes(scan_seconds=3600.0)
    with a_process(environ_of("lease-of-this-test", f"{ROOT}/gone.ipynb")) as gone:
        processes.refresh(reading_of((gone,), {gone: GIB}), {UUID: False}, 0.0)
    assert processes.refresh(reading_of((gone,), {gone: GIB}), {UUID: False}, 1.0)[UUID].holders == ()


def test_memory_that_rises_is_seen_and_the_one_kernel_before_it_is_named() -> None:
    processes = gpu_processes(lambda: (TRAIN,))
    empty = InventoryReading(NOW, (MIG,), {UUID: DeviceSample(UUID, NOW, 0.0, 10 * 1024**2, None, "none")})
    assert processes.refresh(empty, {UUID: False}, 0.0)[UUID].holders == ()
    processes.refresh(reading_of(None), {UUID: False}, 10.0)
    found = processes.refresh(reading_of(None), {UUID: False}, 20.0)[UUID]
    assert (named(found.holders)[0][0], found.note) == ("train.ipynb", PROBABLY)


@pytest.mark.programs
def test_whether_a_process_has_a_file_open_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "nvidia-uvm"
    file.write_text("")
    with a_process({}, file) as holder:
        assert holds_open(holder, str(tmp_path / "nvidia")) is True
        assert holds_open(holder, str(tmp_path / "another")) is False
    assert holds_open(2**22 + 1, "/dev") is False


@pytest.mark.programs
def test_a_script_is_named_and_its_arguments_are_not(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("import sys; print('up', flush=True); sys.stdin.read()")
    command = [sys.executable, "-u", str(file), "--key=secret"]
    environ = {"JUPYTERHUB_GPU_LEASE": "lease-of-this-test"}
    with subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"up\n"
            assert script(process.pid) == "train.py"
            found = gpu_processes().refresh(reading_of((process.pid,), {process.pid: GIB}), {UUID: True}, 0.0)[UUID]
        finally:
            process.kill()
    assert named(found.holders) == [("train.py", "", "", GIB)]
    with a_process({}) as inline:
        assert script(inline) == ""


@pytest.mark.programs
def test_the_whole_path_of_a_session_is_known_of_a_process() -> None:
    with a_process(environ_of("lease-of-this-test", "/home/ada/deep/er.ipynb")) as pid:
        process = describe(pid)
    assert process is not None
    assert (process.session, process.notebook) == ("/home/ada/deep/er.ipynb", "er.ipynb")


# ------------------------------------------------------------------ Jupyter Server's kernels


class ManagerOfKernels:
    """One kernel, as Jupyter Server's managers tell it."""

    def __init__(self, *, state: str = "idle", kind: str = "notebook") -> None:
        self.state = state
        self.kind = kind

    def list_kernels(self) -> list[dict[str, Any]]:
        at = "2026-11-21T14:00:00.000000Z"
        return [{"id": "k1", "name": "python3", "execution_state": self.state, "last_activity": at}]

    async def list_sessions(self) -> list[dict[str, Any]]:
        return [{"path": "deep/train.ipynb", "name": "", "type": self.kind, "kernel": {"id": "k1"}}]

    def get_kernel(self, kernel_id: str) -> Any:
        raise KeyError(kernel_id)


class ManagerThatFails(ManagerOfKernels):
    """A site's own manager whose far end is away."""

    def list_kernels(self) -> list[dict[str, Any]]:
        raise OSError("the gateway is away")


async def test_a_kernel_is_known_with_its_notebook_and_since_when_it_is_idle() -> None:
    manager = ManagerOfKernels()
    kernels = KernelReader(manager, manager)
    await kernels.refresh()
    (kernel,) = kernels.kernels()
    assert (kernel.id, kernel.name, kernel.path, kernel.pid) == ("k1", "train.ipynb", "deep/train.ipynb", None)
    assert kernel.idle_since == NOW
    assert kernel.age_seconds is not None and kernel.age_seconds < 60
    manager.state = "busy"
    await kernels.refresh()
    assert kernels.kernels()[0].idle_since is None


async def test_a_console_has_no_notebook() -> None:
    manager = ManagerOfKernels(kind="console")
    kernels = KernelReader(manager, manager)
    await kernels.refresh()
    assert (kernels.kernels()[0].name, kernels.kernels()[0].path) == ("python3", "")


async def test_kernels_that_cannot_be_listed_are_not_known_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    manager = ManagerThatFails()
    kernels = KernelReader(manager, manager)
    with caplog.at_level("INFO"):
        for _ in range(3):
            await kernels.refresh()
    assert kernels.kernels() == ()
    assert len(caplog.messages) == 1


def test_looking_costs_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look between two scans reads one small file for each pid the driver lists."""
    processes, mine = gpu_processes(scan_seconds=3600.0), os.getpid()
    processes.refresh(reading_of((mine,), {mine: GIB}), {UUID: False}, 0.0)
    opened: list[str] = []

    def noted(path: str, mode: str) -> Any:
        opened.append(path)
        return open(path, mode)

    monkeypatch.setattr(procfs, "open", noted, raising=False)
    for number in range(100):
        processes.refresh(reading_of((mine,), {mine: GIB}), {UUID: False}, number / 100)
    assert opened == [f"/proc/{mine}/stat"] * 100
