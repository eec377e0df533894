"""Runs a check or a pass of the tests under ``keeper.py``, so that nothing of it is left when it ends, or we do."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from account import for_child
from steps import Trouble, ending

STOP = threading.Event()
"""Set, everything that is watched is ended: how the main thread stops those that others wait for."""
KEEPER = Path(__file__).with_name("keeper.py")


def begin(
    name: str,
    words: Sequence[str | Path],
    folder: Path,
    env: dict[str, str],
    output: int | IO[bytes] = subprocess.PIPE,
    *,
    unprivileged: bool = False,
) -> subprocess.Popen[bytes]:
    """Start it; what it prints goes to ``output``.

    Raises:
        Trouble: it cannot be started.
    """
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-B", str(KEEPER), *map(str, words)],
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **(for_child() if unprivileged else {}),
        )
    except OSError as error:
        raise Trouble(f"{name} could not be started: {error.strerror} ({error.filename}).") from None


def watched(
    name: str,
    words: Sequence[str | Path],
    folder: Path,
    env: dict[str, str],
    take: Callable[[bytes], object],
    *,
    unprivileged: bool = False,
) -> int:
    """Run a command and give its output to ``take`` as it comes. Returns its exit status."""
    child = begin(name, words, folder, env, unprivileged=unprivileged)
    with ending(child), selectors.DefaultSelector() as selector:
        assert child.stdout is not None
        selector.register(child.stdout, selectors.EVENT_READ)
        while child.poll() is None and not STOP.is_set():
            if selector.select(timeout=0.5):
                chunk = os.read(child.stdout.fileno(), 65536)
                if not chunk:
                    break
                take(chunk)
        if STOP.is_set():
            return 130
        os.set_blocking(child.stdout.fileno(), False)
        while chunk := child.stdout.read() or b"":
            take(chunk)
        return child.wait()
