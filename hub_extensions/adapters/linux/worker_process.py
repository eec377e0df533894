"""Requests of a worker process to the kernel, so that the process neither outlives its service nor makes the service
run out of memory.
"""

from __future__ import annotations

import ctypes
import signal
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_FIRST_TO_END = "500"  # the service and the users' servers have 0, up to 1000 is possible


def end_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends, even if this process is stopped."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def end_first_without_memory() -> None:
    """If the machine or the container runs out of memory, have the kernel end this process before the service."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_END)
