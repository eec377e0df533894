"""The small parent process of a service: restarts it at once if it dies, and ends with the process that started it.

JupyterHub checks only every 30 s whether a service lives, and a kubelet waits minutes for one that died twice. The
parent forks before the service's imports and opens nothing, so that it stays small and each service starts clean.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import NoReturn

CHECK_SECONDS = 0.5  # interval between checks whether its own parent still lives
STEADY_SECONDS = 5.0  # a service that lived this long is restarted without a pause
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 30.0
KILL_SECONDS = 5.0  # the service limits its own orderly stop to less; one that does not end is killed
FINAL = (2, 77, 78)
"""Exit statuses (of argparse and sysexits.h) after which a restart would not help: wrong arguments, a token that the
hub refuses (the process that starts this parent again passes a new token), wrong settings.
"""
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
WATCHED = (*STOP_SIGNALS, signal.SIGCHLD)


def pause_before_start(lived: float, planned: float) -> tuple[float, float]:
    """Return the seconds until the next start of the service, and the pause to pass as `planned` after that run.

    The next start is immediate after a run that lived long enough, and after the first run that did not. Further short
    runs double the pause.

    Args:
        lived: seconds that the last run lived.
        planned: pause that the previous call returned; 0 at first.
    """
    pause = 0.0 if lived >= STEADY_SECONDS else planned
    return pause, min(max(pause * 2, FIRST_PAUSE), LONGEST_PAUSE)


def supervise(serve: Callable[[], int], parent: int | None) -> int:
    """Run `serve` in a child process, again and again, until a stop is requested or the process `parent` ends.

    Call it before any thread is started.

    Args:
        serve: runs the service and returns its exit status.
        parent: our parent's process id at the very start; `None` to watch none.

    Returns:
        The exit status for this process.
    """
    for number in STOP_SIGNALS:
        # blocked signals wait for sigtimedwait(), even if they were ignored before or this is PID 1 of a container
        signal.signal(number, _leave)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    planned = 0.0
    while True:
        began = time.monotonic()
        child = _forked(serve)
        status = _watched(child, parent)
        if status is None:
            return _stopped(child)
        if status in FINAL:
            return status
        lived = time.monotonic() - began
        pause, planned = pause_before_start(lived, planned)
        _log(f"the service {_how(status)} after {lived:.1f} s: starting it again in {pause:g} s")
        if pause and _stop_asked(pause, parent):
            return 0


def _forked(serve: Callable[[], int]) -> int:
    pid = os.fork()
    if pid:
        return pid
    for number in STOP_SIGNALS:
        # until its event loop runs, a signal ends it by default
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
    sys.exit(serve())


def _watched(child: int, parent: int | None) -> int | None:
    """Wait for the child, and return its exit status (negative if a signal ended it).

    Return `None` if a stop was requested while the child may still run.

    Args:
        child: process id of the child.
        parent: process id of our parent, whose end requests a stop; `None` to watch no parent.
    """
    while True:
        if _stop_asked(CHECK_SECONDS, parent, also=signal.SIGCHLD):
            return None
        if (status := _ended(child)) is not None:
            return status


def _stop_asked(seconds: float, parent: int | None, also: signal.Signals | None = None) -> bool:
    """Wait, and return True as soon as a signal requests a stop or the parent ends.

    Args:
        seconds: the longest wait.
        parent: process id of our parent; `None` to watch no parent.
        also: a further signal, which ends the wait early with False; `None` for no such signal.
    """
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        taken = signal.sigtimedwait(WATCHED, min(left, CHECK_SECONDS))
        if taken is not None and taken.si_signo in STOP_SIGNALS:
            return True
        if parent is not None and os.getppid() != parent:
            _log("stopping: the parent process is gone")
            return True
        if taken is not None and taken.si_signo == also:
            return False
    return False


def _stopped(child: int) -> int:
    """Stop the child process with the service: request its end, then kill the process if it does not end in time.

    Args:
        child: process id of the child.

    Returns:
        Its exit status; 0 if the signal came before the child's event loop ran.
    """
    os.kill(child, signal.SIGTERM)
    killed_at = time.monotonic() + KILL_SECONDS
    while (status := _ended(child)) is None:
        signal.sigtimedwait((signal.SIGCHLD,), 0.1)
        if time.monotonic() > killed_at:
            os.kill(child, signal.SIGKILL)
    return 1 if status == -signal.SIGKILL else max(status, 0)


def _ended(child: int) -> int | None:
    """Return the exit status of the child process with the service; `None` while it still runs.

    Other child processes that have ended are waited for too. PID 1 of a container has to do that.
    """
    while True:
        try:
            pid, waited = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return None
        if pid == child:
            return os.waitstatus_to_exitcode(waited)
        if not pid:
            return None


def _how(status: int) -> str:
    return f"died of {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"


def _log(message: str) -> None:
    """Write one line in the format of the service's log, without importing ``adapters/files/json_log.py``."""
    line = {"time": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()), "level": "warning", "logger": __name__}
    print(json.dumps({**line, "message": message}), file=sys.stderr, flush=True)


def _leave(number: int, _: object) -> NoReturn:
    os._exit(0)
