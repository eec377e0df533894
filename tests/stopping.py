"""A run that is told to end (SIGTERM) ends as by Ctrl-C: its fixtures end the hubs, services and servers they started.

pytest leaves SIGTERM as it is, so that the process is gone and what its tests started lives on. Workers of pytest-xdist
hear of an interruption only when their test is over: they are told by a signal too, and hear the first one only.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from typing import Any

import pytest

SIGNALS = (signal.SIGTERM, signal.SIGINT) if "PYTEST_XDIST_WORKER" in os.environ else (signal.SIGTERM,)
_workers: list[int] = []
_told = False


def listen() -> None:
    """From now on (a test may have taken the handlers away)."""
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            signal.signal(number, _end)


def _end(number: int, _: object) -> None:
    global _told
    if not _told:  # a second one would cut the fixtures' own end short
        _told = True
        raise KeyboardInterrupt(signal.Signals(number).name)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodeready(node: Any) -> None:
    """A worker is there."""
    _workers.append(node.gateway._io.popen.pid)


def pytest_keyboard_interrupt() -> None:
    """Tell the workers."""
    for pid in _workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
