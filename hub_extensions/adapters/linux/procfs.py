"""The live processes of this machine, read from /proc: which of them belong to a lease, and whether they still run.

A lease is the right of one server to a share of a GPU. The server is started with the lease mark in its environment
(``JUPYTERHUB_GPU_LEASE=<lease id>``). Kernels, their children and daemons inherit the mark, so they are found
whatever their parent is. A process is identified by its pid and its start time, because the kernel of Linux reuses
pids. Linux only.

This module reads /proc itself instead of using psutil. psutil lacks a start time since boot that could be stored. It
checks a process and then signals its pid, which may belong to another process by then. It returns an empty environment
for a process that has overwritten the beginning of its environment. It does not report where the environment lies in
memory, by which a scan knows that a mark is still valid without reading it again.
"""

from __future__ import annotations

import os
import pwd
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

LEASE_MARK = "JUPYTERHUB_GPU_LEASE"  # the environment variable with a lease's id


@dataclass(frozen=True, slots=True)
class Process:
    """One live process.

    Attributes:
        started: clock ticks since boot; together with `pid` it identifies the process.
        owner: the account's name, or the uid in digits if the account is unnamed.
        command: the program's base name, without its arguments (they may contain secrets).
        lease: the id in its lease mark; `None` without a mark, or if the environment cannot be read.
        kernel: a Jupyter kernel, or a process started by one (``JPY_PARENT_PID`` is set).
        notebook: base name of the notebook that the kernel belongs to (``JPY_SESSION_NAME``); `None` without a
            notebook.
        cpu_seconds: processor time used so far, without that of its children.
        rss_bytes: resident memory; pages shared with other processes are counted in each.
        device: ``CUDA_VISIBLE_DEVICES``; `None` if it is not set.
        session: path of that notebook (also from ``JPY_SESSION_NAME``); `None` without a notebook.
        service: address of the GPU service that its server uses (``JUPYTERHUB_GPU_SERVICE_URL``), which identifies the
            installation; `None` without a service.
    """

    pid: int
    started: int
    ppid: int
    uid: int
    owner: str
    command: str
    lease: str | None
    kernel: bool
    notebook: str | None
    cpu_seconds: float
    rss_bytes: int
    device: str | None = None
    session: str | None = None
    service: str | None = None


class Scan(NamedTuple):
    """The live processes that carry a readable lease mark (the environment variable with a lease's id).

    Attributes:
        marked: the processes with a mark.
        unread: the accounts of live processes whose environment we may not read. These processes may carry a mark, too.
        hidden: the kernel hides processes of other accounts (``hidepid``), so `unread` may be incomplete.
    """

    marked: tuple[Process, ...]
    unread: frozenset[int]
    hidden: bool


def marked() -> tuple[Process, ...]:
    """Return all live processes that carry a readable lease mark (the environment variable with a lease's id). Zombies
    do not count, because they hold no GPU.
    """
    return scan().marked


def scan() -> Scan:
    """Return the processes with a lease mark (the environment variable with a lease's id), and which cannot be read."""
    global _marks_seen
    hidden = _hides_others()
    before, now = _marks_seen, {}
    owners: dict[int, str] = {}
    found = []
    unread: set[int | None] = set()
    for pid in _pids():
        stat = _stat(pid)
        if stat is None and _may_not_see(pid):
            unread.add(_uid(pid))
        if stat is None or not stat.living:
            continue
        key = stat.key(pid)
        marks = before.get(key) or _marks(pid, stat)
        if marks is _NO_MARKS and stat.beginning:
            stat = _begun(pid)
            marks = None if stat is None else _marks(pid, stat)
        if marks is None and stat is not None and not stat.of_the_kernel:
            unread.add(_uid(pid))  # a program can forbid this; it is then treated like one that lost its mark
        if marks is None or stat is None:
            continue
        if stat.env_start:
            now[stat.key(pid)] = marks
        if marks.lease is None:
            continue
        uid = _uid(pid)
        if uid is None:
            continue
        if uid not in owners:
            owners[uid] = _owner(uid)
        found.append(_process(pid, stat, marks, uid, owners[uid]))
    _marks_seen = now
    return Scan(tuple(found), frozenset(uid for uid in unread if uid is not None), hidden)


def unreadable() -> int:
    """Return how many processes of other people (no system accounts) have an environment that we may not read.

    It cannot be seen whether these processes carry a lease mark. A hub that is not root and starts servers under other
    accounts therefore cannot find the processes that a server left behind.
    """
    own, count = os.geteuid(), 0
    for pid in _pids():
        uid = _uid(pid)
        if uid is None or uid == own or uid < _FIRST_PERSON:
            continue
        stat = _stat(pid)
        if stat is not None and stat.living and _marks(pid, stat) is None:
            count += 1
    return count


def describe(pid: int) -> Process | None:
    """Return the current state of a process, with or without a lease mark (the environment variable with a lease's id).

    `None` if the process does not exist or is a zombie.
    """
    stat = _stat(pid)
    if stat is None or not stat.living:
        return None
    uid = _uid(pid)
    if uid is None:
        return None
    marks = (_marks(pid, stat) or _NO_MARKS)._replace(command=_command(pid, stat))
    return _process(pid, stat, marks, uid, _owner(uid))


def pids() -> Iterator[int]:
    """Yield all current process ids."""
    return _pids()


def environment(pid: int) -> dict[str, str]:
    """Return the environment with which the process was started; empty if it does not exist or may not be read."""
    data = _read(f"/proc/{pid}/environ") or b""
    pairs = (entry.partition(b"=") for entry in data.split(b"\0") if b"=" in entry)
    values: dict[str, str] = {}
    for name, _, value in pairs:
        values.setdefault(os.fsdecode(name), os.fsdecode(value))  # getenv() takes the first
    return values


def start_time(pid: int) -> int | None:
    """Return when the process started, in clock ticks since boot (field 22 of /proc/<pid>/stat); `None` if it does
    not exist.
    """
    stat = _stat(pid)
    return None if stat is None else stat.started


def parent(pid: int) -> int | None:
    """Return the pid of the process's parent; `None` if the process does not exist."""
    stat = _stat(pid)
    return None if stat is None else stat.ppid


def alive(pid: int, started: int) -> bool:
    """Return whether the process with this pid and start time (clock ticks since boot) still runs; False for a zombie,
    and for another process that reuses the pid.
    """
    stat = _stat(pid)
    return stat is not None and stat.living and stat.started == started


def liveness(pid: int, started: int) -> bool | None:
    """Return whether the process with this pid and start time still runs, as `alive` does; `None` if a process has this
    pid, but we may not see whether it is this process.
    """
    if _stat(pid) is not None:
        return alive(pid, started)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return None
    return None if _stat(pid) is None else alive(pid, started)


def account(pid: int) -> int | None:
    """Return the uid of the account that a process runs under; `None` if the process ended or is hidden from us."""
    found = re.search(rb"^Uid:\t(\d+)", _read(f"/proc/{pid}/status") or b"", re.MULTILINE)
    return int(found[1]) if found else _uid(pid)


def age_seconds(started: int) -> float:
    """Return the age of a process in seconds. `started` is its start time in clock ticks since boot."""
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started / _TICK)


def has_children(pid: int) -> bool | None:
    """Return whether a process has living children; `None` if that cannot be seen, or if it ended."""
    found, seen = False, False
    for thread in _threads(pid):
        children = _read(f"/proc/{pid}/task/{thread}/children")
        seen = seen or children is not None
        found = found or bool(children)
    return found if seen else None


def script(pid: int) -> str:
    """Return the base name of the Python script that a process runs; "" without one. The name may be shown only to the
    owner of the process, because it comes from the arguments of the command.
    """
    arguments = (_read(f"/proc/{pid}/cmdline") or b"").split(b"\0")
    if not os.path.basename(arguments[0]).startswith(b"python"):
        return ""
    for argument in arguments[1:]:
        if argument in (b"-c", b"-m"):
            return ""
        if not argument.startswith(b"-"):
            return os.path.basename(argument).decode(errors="replace") if argument.endswith(b".py") else ""
    return ""


def holds_open(pid: int, beginning: str) -> bool | None:
    """Return whether the process has opened a file whose path begins with the text `beginning`; `None` if we may not
    look.
    """
    directory = f"/proc/{pid}/fd"
    try:
        files = os.listdir(directory)
    except PermissionError:
        return None
    except OSError:  # it ended meanwhile
        return False
    for file in files:
        try:
            if os.readlink(f"{directory}/{file}").startswith(beginning):
                return True
        except PermissionError:
            return None
        except OSError:  # closed meanwhile
            continue
    return False


def send_signal(pid: int, started: int, signum: int) -> bool:
    """Send a signal to this process, never to another one that reuses its pid.

    Returns False if it ended, if its pid belongs to another process now, or if we may not signal it.

    Args:
        pid: id of the process.
        started: start time of the process in clock ticks since boot, which distinguishes it from another process with
            its pid.
        signum: number of the signal.
    """
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    except OSError:  # a kernel or a sandbox without pidfd
        return _send_without_handle(pid, started, signum)
    try:
        # The handle refers to the current owner of the pid, so check that it is the process that is meant.
        if not alive(pid, started):
            return False
        signal.pidfd_send_signal(handle, signum)
        return True
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(handle)


# ---------------------------------------------------------------- /proc


class _Marks(NamedTuple):
    """Those values of a process's environment that we use. They do not change until the next exec().

    The fields are explained in `Process`. A value is `None` if the process lacks the variable.
    """

    command: str = ""
    lease: str | None = None
    kernel: bool = False
    notebook: str | None = None
    device: str | None = None
    session: str | None = None
    service: str | None = None


class _Stat(NamedTuple):
    comm: str
    state: str
    ppid: int
    ticks: int
    threads: int
    started: int
    size: int
    pages: int
    env_start: int
    env_end: int

    @property
    def beginning(self) -> bool:
        """Return whether the process is in the middle of an exec(), so that its environment cannot be read yet."""
        return self.size > 0 and self.env_start == 0

    @property
    def of_the_kernel(self) -> bool:
        """Return whether this is a kernel thread, which has neither memory of its own nor an environment."""
        return self.size == 0

    @property
    def living(self) -> bool:
        """Return whether the process is alive. A zombie that still has threads counts as alive: only its main thread
        ended, and the program may hold a GPU.
        """
        return self.state not in "ZXx" or self.threads > 1

    def key(self, pid: int) -> _ProcessKey:
        """Return a value that identifies the environment of a process.

        As long as the value is the same, a scan need not read the environment again. After exec() the value differs,
        because exec() moves the environment to a random ``env_start``. After fork() it differs in the pid.

        Args:
            pid: id of the process.
        """
        return (pid, self.started, self.env_start, self.env_end)


_ProcessKey = tuple[int, int, int, int]
_NO_MARKS = _Marks()
_FIRST_PERSON = 1000  # Debian and Ubuntu number people's accounts from here
_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_CAP_SYS_PTRACE = 19
_SHOWN = (b"0", b"off", b"1", b"noaccess")  # values of ``hidepid`` that still list the processes of others
_GONE = (FileNotFoundError, ProcessLookupError)

_marks_seen: dict[_ProcessKey, _Marks] = {}
"""The results of the last scan; the next one replaces them as a whole, so that threads may scan at the same time."""


def _pids() -> Iterator[int]:
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit():
                yield int(entry.name)


def _stat(pid: int) -> _Stat | None:
    data = _read(f"/proc/{pid}/stat")
    if not data:
        return None
    # The name is in brackets and may contain anything, also brackets.
    opening, closing = data.index(b"("), data.rindex(b")")
    rest = data[closing + 2 :].split()
    return _Stat(
        comm=data[opening + 1 : closing].decode(errors="replace"),
        state=rest[0].decode(),
        ppid=int(rest[1]),
        ticks=int(rest[11]) + int(rest[12]),
        threads=int(rest[17]),
        started=int(rest[19]),
        size=int(rest[20]),
        pages=max(0, int(rest[21])),
        env_start=int(rest[47]) if len(rest) > 48 else 0,
        env_end=int(rest[48]) if len(rest) > 48 else 0,
    )


def _begun(pid: int) -> _Stat | None:
    """Return the state of a process once its exec() is finished, because its environment can be read only then.

    An exec() takes microseconds unless the machine is very busy. `None` if the process ended.
    """
    for _ in range(100):
        time.sleep(0.001)
        stat = _stat(pid)
        if stat is None or not stat.living or not stat.beginning:
            return stat
    return stat


def _marks(pid: int, stat: _Stat) -> _Marks | None:
    """Read the lease mark (the variable with the lease's id) and our other variables from a process's environment.

    `None` if we may not read it.

    Args:
        pid: id of the process.
        stat: the state of the process.
    """
    path = f"/proc/{pid}/environ"
    if stat.state == "Z":  # the main thread has ended, so read through another thread
        path = next((f"{task}/environ" for task in _other_threads(pid)), path)
    try:
        with open(path, "rb") as file:
            data = file.read()
    except PermissionError:
        return None
    except OSError:  # it ended meanwhile
        return _NO_MARKS
    if not any(name in data for name in (b"JUPYTERHUB_GPU_LEASE=", b"JPY_PARENT_PID=", b"CUDA_VISIBLE_DEVICES=")):
        return _NO_MARKS
    values: dict[bytes, bytes] = {}
    for entry in data.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        if equals:
            values.setdefault(name, value)  # getenv() takes the first
    session = _text(values.get(b"JPY_SESSION_NAME"))
    return _Marks(
        command=_command(pid, stat),
        lease=_text(values.get(LEASE_MARK.encode())),
        kernel=b"JPY_PARENT_PID" in values,
        notebook=(os.path.basename(session) or None) if session else None,
        device=_text(values.get(b"CUDA_VISIBLE_DEVICES")),
        service=_text(values.get(b"JUPYTERHUB_GPU_SERVICE_URL")),
        session=session,
    )


def _threads(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []


def _other_threads(pid: int) -> Iterator[str]:
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:  # it ended meanwhile
        return
    yield from (f"/proc/{pid}/task/{task}" for task in tasks if task != str(pid))


def _process(pid: int, stat: _Stat, marks: _Marks, uid: int, owner: str) -> Process:
    return Process(
        pid=pid,
        started=stat.started,
        ppid=stat.ppid,
        uid=uid,
        owner=owner,
        command=marks.command,
        lease=marks.lease,
        kernel=marks.kernel,
        notebook=marks.notebook,
        cpu_seconds=stat.ticks / _TICK,
        rss_bytes=stat.pages * _PAGE,
        device=marks.device,
        service=marks.service,
        session=marks.session,
    )


def _command(pid: int, stat: _Stat) -> str:
    program = (_read(f"/proc/{pid}/cmdline") or b"").split(b"\0", 1)[0]
    return os.path.basename(program.decode(errors="replace")) or stat.comm


def _send_without_handle(pid: int, started: int, signum: int) -> bool:
    if not alive(pid, started):
        return False
    try:
        os.kill(pid, signum)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _uid(pid: int) -> int | None:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:  # it ended meanwhile
        return None


def _may_not_see(pid: int) -> bool:
    """Return whether the process is listed although even its state is hidden from us (``hidepid=1``)."""
    try:
        with open(f"/proc/{pid}/stat", "rb"):
            return False
    except PermissionError:
        return True
    except OSError:  # it ended meanwhile
        return False


def _hides_others() -> bool:
    """Return whether /proc is mounted so that processes of others are hidden from us."""
    status = _read("/proc/self/status") or b""
    rights = re.search(rb"^CapEff:\t([0-9a-f]+)", status, re.MULTILINE)
    if rights and int(rights[1], 16) >> _CAP_SYS_PTRACE & 1:
        return False
    for line in (_read("/proc/self/mountinfo") or b"").splitlines():
        if b" /proc " in line.partition(b" - ")[0]:
            options = line.rpartition(b" ")[2].split(b",")
            hides = any(each.startswith(b"hidepid=") and each[8:] not in _SHOWN for each in options)
            group = next((int(option[4:]) for option in options if option.startswith(b"gid=")), None)
            if hides and (group is None or group not in (os.getegid(), *os.getgroups())):
                return True
    return not os.path.exists("/proc/1")


def _owner(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except (*_GONE, PermissionError):
        return None


def _text(value: bytes | None) -> str | None:
    return os.fsdecode(value) if value else None
