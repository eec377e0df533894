"""Runs one command and leaves nothing of it behind, however it ends: ``python keeper.py NICENESS COMMAND …``.

What the command starts, and what that starts, ends up below this process even when it left its session or lost its
parent (Linux: child subreaper), so all of it is found when the command is over. Its exit status is the command's.
SIGTERM and SIGINT first interrupt the command alone, so that it can tidy up itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterator

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
TIDY_SECONDS = 6.0
LEAVE_SECONDS = 1.0


def keep(words: list[str]) -> int:
    """Run ``words``; returns its exit status, or 128 and the signal that ended it."""
    _control(PR_SET_CHILD_SUBREAPER, 1)
    _control(PR_SET_PDEATHSIG, signal.SIGTERM)
    asked: list[float] = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: asked.append(time.monotonic()))
    signals = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    try:
        child = os.posix_spawnp(words[0], words, os.environ, setpgroup=0, setsigdef=signals)
    except OSError as error:
        print(f"{words[0]} could not be started: {error.strerror}.", flush=True)
        return 127
    told = False
    while (status := _reap(child)) is None:
        if asked and not told:
            os.kill(child, signal.SIGINT)
            told = True
        if asked and time.monotonic() - asked[0] > TIDY_SECONDS:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.05)
    end_descendants()
    code = os.waitstatus_to_exitcode(status)
    return 128 - code if code < 0 else code


def be_nice(niceness: int) -> None:
    """To what else runs: Linux may weigh sessions first, and takes one wish about them in 0.1 s."""
    os.nice(niceness)
    for _ in range(3 if niceness else 0):
        with contextlib.suppress(OSError), open("/proc/self/autogroup", "w", encoding="ascii") as autogroup:
            autogroup.write(str(niceness))
            autogroup.close()
            return
        time.sleep(0.15)


def end_descendants() -> None:
    """SIGTERM to everything below this process, then SIGKILL, until nothing is left."""
    deadline = time.monotonic() + LEAVE_SECONDS
    number = signal.SIGTERM
    while left := list(descendants(os.getpid())):
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        while time.monotonic() < deadline and any(descendants(os.getpid())):
            _reap(0)
            time.sleep(0.02)
        number = signal.SIGKILL
        _reap(0)
        if time.monotonic() > deadline + LEAVE_SECONDS:
            return  # what cannot be ended by SIGKILL is not ours to wait for
        time.sleep(0.01)


def descendants(top: int) -> Iterator[int]:
    """The live processes below ``top``."""
    children: dict[int, list[int]] = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{entry}/stat", "rb") as stat:
            state, parent = stat.read().rpartition(b")")[2].split()[:2]
            if state != b"Z":
                children.setdefault(int(parent), []).append(int(entry))
    below = [top]
    while below:
        found = children.get(below.pop(), [])
        yield from found
        below += found


def _reap(wanted: int) -> int | None:
    """Collect all who have ended, orphans too; the status of ``wanted`` if it is among them."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return None
            if pid == wanted:
                return status
    return None


def _control(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    be_nice(int(sys.argv[1]))
    sys.exit(keep(sys.argv[2:]))
