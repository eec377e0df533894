"""The live processes of this machine, as /proc tells them: who carries the mark of a lease, and are they still there.

A server is started with ``JUPYTERHUB_GPU_LEASE=<lease id>`` in its environment; kernels, their children and daemonised
ones inherit it, so the mark finds them whatever their parent is. A process is known by its pid and its start time:
a pid alone is used again by the kernel.
Not here: which process is to be ended, and when. Linux only.

It reads /proc itself and not through psutil. psutil gives no start time since boot that a store could keep. It looks
at a process and then signals its pid, and takes an environment whose beginning was written over for empty. Nor does it
tell where the environment lies, by which a scan knows that a mark is still true without reading it again.
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

LEASE_MARK = "JUPYTERHUB_GPU_LEASE"
"""The environment variable that carries a lease's id."""


@dataclass(frozen=True, slots=True)
class Process:
    """One live process.

    Attributes:
        started: clock ticks since boot; with `pid` it names this very process.
        owner: the account's name, or the uid in digits where there is no such account.
        command: the program's base name, without its arguments (they may hold secrets).
        lease: the id in its lease mark; None without one, or where the environment cannot be read.
        kernel: a Jupyter kernel, or something a kernel started (``JPY_PARENT_PID`` is set).
        notebook: base name of the notebook the kernel belongs to (``JPY_SESSION_NAME``); session: the same as a path.
        cpu_seconds: processor time used so far, without that of its children.
        rss_bytes: resident memory; pages shared with other processes are counted in each.
        device: ``CUDA_VISIBLE_DEVICES`` as it is set, None where it is not.
        service: the GPU service its server asks (``JUPYTERHUB_GPU_SERVICE_URL``): whose installation it belongs to.
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
    """The live processes that carry a lease mark we can read.

    Attributes:
        unread: the accounts of live processes whose environment we may not read: theirs may carry one.
        hidden: processes of other accounts are not shown at all (``hidepid``).
    """

    marked: tuple[Process, ...]
    unread: frozenset[int]
    hidden: bool


def marked() -> tuple[Process, ...]:
    """All live processes that carry a lease mark we can read. Zombies do not count: they hold no GPU."""
    return scan().marked


def scan() -> Scan:
    """Those, and what cannot be seen."""
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
            unread.add(_uid(pid))  # root's where it forbids to be looked into: like one that has lost its mark
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
    """How many processes of other people (no system accounts) we may not read the environment of.

    Their marks stay unseen: a hub that is not root and starts servers as other accounts cannot follow left-overs.
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
    """The process `pid` as it is now, marked or not; None when there is none (a zombie is none)."""
    stat = _stat(pid)
    if stat is None or not stat.living:
        return None
    uid = _uid(pid)
    if uid is None:
        return None
    marks = (_marks(pid, stat) or _NO_MARKS)._replace(command=_command(pid, stat))
    return _process(pid, stat, marks, uid, _owner(uid))


def pids() -> Iterator[int]:
    """All processes there are now."""
    return _pids()


def environment(pid: int) -> dict[str, str]:
    """The variables that the process was started with; empty where there is none, or where we may not read it."""
    data = _read(f"/proc/{pid}/environ") or b""
    pairs = (entry.partition(b"=") for entry in data.split(b"\0") if b"=" in entry)
    values: dict[str, str] = {}
    for name, _, value in pairs:
        values.setdefault(os.fsdecode(name), os.fsdecode(value))  # getenv() takes the first
    return values


def start_time(pid: int) -> int | None:
    """When the process began, in clock ticks since boot (field 22 of /proc/<pid>/stat); None when there is none."""
    stat = _stat(pid)
    return None if stat is None else stat.started


def alive(pid: int, started: int) -> bool:
    """Is this very process still running? False for a zombie, and for another process that got the same pid."""
    stat = _stat(pid)
    return stat is not None and stat.living and stat.started == started


def liveness(pid: int, started: int) -> bool | None:
    """As `alive`; None: something has this pid, and it is not shown to us which process it is."""
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
    """The uid under which it runs; None: it is gone, or not shown to us."""
    found = re.search(rb"^Uid:\t(\d+)", _read(f"/proc/{pid}/status") or b"", re.MULTILINE)
    return int(found[1]) if found else _uid(pid)


def age_seconds(started: int) -> float:
    """How long ago that was, of a process's `started`."""
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started / _TICK)


def has_children(pid: int) -> bool | None:
    """Whether a process has started others that live; None: it cannot be seen, or is gone."""
    found, seen = False, False
    for thread in _threads(pid):
        children = _read(f"/proc/{pid}/task/{thread}/children")
        seen = seen or children is not None
        found = found or bool(children)
    return found if seen else None


def script(pid: int) -> str:
    """Base name of the Python script a process runs; "" where it runs none. For its owner only: it is an argument."""
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
    """Has it a file open whose path begins so? None where we may not look."""
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
    """Send a signal to this very process, never to another one that got its pid.

    False: it is gone, its pid belongs to another process now, or we may not signal it.
    """
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    except OSError:  # a kernel or a sandbox without pidfd
        return _send_without_handle(pid, started, signum)
    try:
        # The handle is of whoever has the pid now. Only if that is the one we mean, the signal goes out.
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
    """What does not change until the next exec()."""

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
        """In the middle of an exec(): it has memory of its own, and no environment in it yet."""
        return self.size > 0 and self.env_start == 0

    @property
    def of_the_kernel(self) -> bool:
        """A thread of the kernel: it has no memory of its own, and no environment."""
        return self.size == 0

    @property
    def living(self) -> bool:
        """A zombie with threads is a program whose main thread has ended: it runs on, and may hold a GPU."""
        return self.state not in "ZXx" or self.threads > 1

    def key(self, pid: int) -> _ProcessKey:
        """Same key, same environment: an exec() moves it (``env_start`` is random), a fork() keeps pid apart."""
        return (pid, self.started, self.env_start, self.env_end)


_ProcessKey = tuple[int, int, int, int]
_NO_MARKS = _Marks()
_FIRST_PERSON = 1000  # Debian and Ubuntu number people's accounts from here
_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_CAP_SYS_PTRACE = 19
_SHOWN = (b"0", b"off", b"1", b"noaccess")
"""Values of ``hidepid`` with which the processes of others are listed."""
_GONE = (FileNotFoundError, ProcessLookupError)

_marks_seen: dict[_ProcessKey, _Marks] = {}
"""What the last scan read: replaced as a whole by the next one, so that threads may scan side by side."""


def _pids() -> Iterator[int]:
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit():
                yield int(entry.name)


def _stat(pid: int) -> _Stat | None:
    data = _read(f"/proc/{pid}/stat")
    if not data:
        return None
    # The name stands in brackets and may hold anything, brackets too.
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
    """The process once its exec() is over, which takes microseconds unless the machine is very busy; None: it ended."""
    for _ in range(100):
        time.sleep(0.001)
        stat = _stat(pid)
        if stat is None or not stat.living or not stat.beginning:
            return stat
    return stat


def _marks(pid: int, stat: _Stat) -> _Marks | None:
    """What the environment says; None where we may not read it."""
    path = f"/proc/{pid}/environ"
    if stat.state == "Z":  # the main thread is gone, the memory is the other threads'
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
    """It is listed, and even its state is not shown to us (``hidepid=1``)."""
    try:
        with open(f"/proc/{pid}/stat", "rb"):
            return False
    except PermissionError:
        return True
    except OSError:  # it ended meanwhile
        return False


def _hides_others() -> bool:
    """/proc is mounted so that whoever may not look into a process is not shown it."""
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
