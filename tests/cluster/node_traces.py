"""What a real node puts into this machine outside its own folders, noted down first, so that all of it can be removed.

The same removal serves the end of a run, a start that failed, and what a killed run has left: its notes are on disk
before the first trace is made. Processes are found by what they are (their control group, or a command line with our
folder in it), never by name alone.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.cluster.network import remove_bridge
from tests.patience import patient

TAKEN = "\0jupyterhub-gpu-node"
"""An abstract Unix socket: whoever has bound it has the machine, until it ends, however it ends."""

NOTES = Path("/run/jupyterhub-gpu-node.json")
DEVICE_PLUGINS = Path("/var/lib/kubelet/device-plugins")
CONTAINER_LOGS = Path("/var/log/containers")
SHIMS = Path("/run/containerd/s")
CGROUPS = Path("/sys/fs/cgroup")
KUBELET_SETTINGS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
"""What a kubelet sets in the kernel at its start (pkg/kubelet/cm/container_manager_linux.go, setupKernelTunables)."""

PROGRAMS = ("kubelet", "containerd", "containerd-shim-runc-v2", "deviceplugin", "ctr", "runc")
GONE_SECONDS = 20.0


class NodeRunsAlready(Exception):
    """There can be one kubelet on a machine, and there is one; a sentence says whose."""


@dataclass
class Traces:
    """What one node has made: ``folders`` (mounts below them too), a bridge, a control group, kernel settings.

    ``others_sockets``: those in the folder of containerd's shims that were there before.
    """

    folders: list[str]
    bridge: str
    cgroup: str
    settings: dict[str, str] = field(default_factory=dict)
    made_folders: list[str] = field(default_factory=list)
    others_sockets: list[str] = field(default_factory=list)

    def write(self) -> None:
        """Note them down, with the kernel settings and folders as they are now."""
        self.settings = {name: Path("/proc/sys", name).read_text().strip() for name in KUBELET_SETTINGS}
        shared = [DEVICE_PLUGINS, DEVICE_PLUGINS.parent, CONTAINER_LOGS, SHIMS, SHIMS.parent]
        self.made_folders = [str(path) for path in shared if not path.exists()]
        self.others_sockets = [str(path) for path in SHIMS.iterdir()] if SHIMS.exists() else []
        NOTES.write_text(json.dumps(asdict(self)), encoding="utf-8")


def take_the_machine(wait: float = 0.0) -> socket.socket:
    """The right to run the one node of this machine, until this is closed; what a killed run left is removed.

    Raises:
        NodeRunsAlready: another run has it, after ``wait`` seconds still, or a kubelet of the machine itself runs.
    """
    lock = socket.socket(socket.AF_UNIX)
    deadline = time.monotonic() + wait
    while not _bound(lock):
        if time.monotonic() >= deadline:
            lock.close()
            raise NodeRunsAlready(
                "another test run has its node on this machine; two kubelets would delete each other's device plugins"
            )
        time.sleep(0.2)
    try:
        if NOTES.exists():
            remove(Traces(**json.loads(NOTES.read_text(encoding="utf-8"))))
        if _somebody_listens(DEVICE_PLUGINS / "kubelet.sock"):
            raise NodeRunsAlready(
                f"a kubelet runs on this machine ({DEVICE_PLUGINS}/kubelet.sock answers), and there can be only one"
            )
    except BaseException:
        lock.close()
        raise
    return lock


def _bound(lock: socket.socket) -> bool:
    try:
        lock.bind(TAKEN)
    except OSError:
        return False
    return True


def make_cgroup(name: str) -> None:
    """The kubelet's own root among the control groups, in every hierarchy of version 1, or in the one of version 2."""
    if (CGROUPS / "cgroup.controllers").exists():
        there = (CGROUPS / "cgroup.controllers").read_text().split()
        (CGROUPS / "cgroup.subtree_control").write_text(" ".join(f"+{controller}" for controller in there))
        (CGROUPS / name).mkdir()
        return
    for hierarchy in _hierarchies():
        (hierarchy / name).mkdir(exist_ok=True)
        for file in ("cpuset.cpus", "cpuset.mems"):
            if (hierarchy / name / file).exists():
                (hierarchy / name / file).write_text((hierarchy / file).read_text())


def remove(traces: Traces) -> None:
    """Remove them all. Nothing that is gone already is an error.

    Raises:
        RuntimeError: something could not be removed; the text says what. The notes are kept then.
    """
    _end_processes(traces)
    _unmount(traces.folders)
    remove_bridge(traces.bridge)
    _remove_cgroup(traces.cgroup)
    _remove_shared_files(traces)
    for folder in traces.folders:
        shutil.rmtree(folder, ignore_errors=True)
    for name, value in traces.settings.items():
        if Path("/proc/sys", name).read_text().strip() != value:
            Path("/proc/sys", name).write_text(value)
    if left := what_is_left(traces):
        raise RuntimeError(f"the node has left behind: {'; '.join(left)}")
    NOTES.unlink(missing_ok=True)


def what_is_left(traces: Traces) -> list[str]:
    """Everything of these traces that is still there, in words."""
    left = [f"process {pid}" for pid in processes(traces)]
    left += [f"mount {point}" for point in mounts(traces.folders)]
    left += [f"folder {folder}" for folder in traces.folders if Path(folder).exists()]
    left += [f"control group {path}" for path in _cgroup_folders(traces.cgroup)]
    if Path("/sys/class/net", traces.bridge).exists():
        left.append(f"bridge {traces.bridge}")
    return left


def processes(traces: Traces) -> list[int]:
    """The processes of the node and of its containers."""
    found = {int(pid) for top in _cgroup_folders(traces.cgroup) for pid in _members(top)}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _is_ours(entry, traces.folders):
            found.add(int(entry.name))
    return sorted(found - {os.getpid()})


def mounts(folders: list[str]) -> list[str]:
    """The mount points in and below these folders, the last mounted first."""
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    inside = [point for point in points if any(point == one or point.startswith(f"{one}/") for one in folders)]
    return inside[::-1]


def _is_ours(process: Path, folders: list[str]) -> bool:
    try:
        words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return False  # it has just ended
    return Path(words[0]).name in PROGRAMS and any(folder in word for folder in folders for word in words)


def _end_processes(traces: Traces) -> None:
    deadline = time.monotonic() + patient(GONE_SECONDS)
    while found := processes(traces):
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue  # it has just ended
        if time.monotonic() > deadline:
            raise RuntimeError(f"these processes of the node do not end: {found}")
        time.sleep(0.05)


def _unmount(folders: list[str]) -> None:
    for point in mounts(folders):
        if subprocess.run(["umount", point], capture_output=True, timeout=patient(60), check=False).returncode:
            subprocess.run(["umount", "--lazy", point], capture_output=True, timeout=patient(60), check=False)


def _hierarchies() -> list[Path]:
    lines = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [Path(line[1]) for line in lines if line[2] == "cgroup"]


def _cgroup_folders(name: str) -> list[Path]:
    tops = [CGROUPS] if (CGROUPS / "cgroup.controllers").exists() else [*_hierarchies(), CGROUPS / "unified"]
    return [top / name for top in tops if (top / name).is_dir()]


def _members(top: Path) -> list[str]:
    found = []
    for folder, _, _ in os.walk(top):
        try:
            found += Path(folder, "cgroup.procs").read_text().split()
        except OSError:
            continue  # this group has just gone
    return found


def _remove_cgroup(name: str) -> None:
    for top in _cgroup_folders(name):
        for folder, _, _ in os.walk(top, topdown=False):
            _remove_group(Path(folder))


def _remove_group(folder: Path) -> None:
    """A group can be removed a moment after its last process ended, not at once."""
    deadline = time.monotonic() + patient(GONE_SECONDS)
    while folder.exists():
        try:
            folder.rmdir()
        except OSError as error:
            if time.monotonic() > deadline:
                raise RuntimeError(f"the control group {folder} cannot be removed: {error}") from error
            time.sleep(0.05)


def _remove_shared_files(traces: Traces) -> None:
    for file in [*DEVICE_PLUGINS.glob("tests-*.sock"), DEVICE_PLUGINS / "kubelet.sock"]:
        file.unlink(missing_ok=True)
    (DEVICE_PLUGINS / "kubelet_internal_checkpoint").unlink(missing_ok=True)
    if CONTAINER_LOGS.exists():
        for link in CONTAINER_LOGS.iterdir():
            if link.is_symlink() and any(os.readlink(link).startswith(f"{folder}/") for folder in traces.folders):
                link.unlink()
    _remove_sockets(traces)
    for folder in traces.made_folders:
        if Path(folder).is_dir() and not any(Path(folder).iterdir()):
            Path(folder).rmdir()


def _remove_sockets(traces: Traces) -> None:
    """Containerd's shims have their sockets in one place, whatever folder containerd is told.

    A shim that was killed leaves its own there (a kubelet that has just started kills those of pods that it does not
    know), with no note of it: nobody listens at it any more.
    """
    for path in SHIMS.iterdir() if SHIMS.exists() else ():
        if str(path) not in traces.others_sockets and not _somebody_listens(path):
            path.unlink(missing_ok=True)


def _somebody_listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True
