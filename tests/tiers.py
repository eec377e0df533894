"""Which tests belong to which run of ``scripts/test``, and why the others are left out.

``--quick``: what starts no program, and what is marked ``quick``. ``scripts/test``: all but what is marked ``whole``,
and JupyterHub 5.5 in one file. ``--whole``: everything.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from importlib.metadata import version
from typing import Any

QUICK, USUAL, WHOLE = "quick", "usual", "whole"
STARTS_PROGRAMS = ("programs", "needs", "hub")
IN_BOTH_GENERATIONS = "tests/spawner/test_real_hub.py"
"""What the usual run shows of JupyterHub 5.5."""

NOT_IN_QUICK = "starts programs: ./scripts/test"
NOT_IN_USUAL = "only in the whole run: ./scripts/test --whole"


def left_out(tier: str, marks: Collection[str], file: str, *, older_hub: bool) -> str:
    """Why this tier leaves a test with these `marks` out; empty when it does not."""
    if tier == WHOLE:
        return ""
    if "whole" in marks or (older_hub and file != IN_BOTH_GENERATIONS):
        return NOT_IN_USUAL
    if tier == QUICK and "quick" not in marks and not marks_are_quick(marks):
        return NOT_IN_QUICK
    return ""


def marks_are_quick(marks: Collection[str]) -> bool:
    """Whether nothing says that the test starts a program."""
    return not any(mark in marks for mark in STARTS_PROGRAMS)


def older_hub() -> bool:
    """Whether this Python has JupyterHub 5."""
    return version("jupyterhub").startswith("5.")


PROGRAM_EVENTS = ("subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "tests.warm")
_started: list[str] = []


def watch_programs() -> None:
    """From now on, note what this process starts (there is no way to take an audit hook off again)."""
    sys.addaudithook(_note)


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event in PROGRAM_EVENTS:
        _started.append(f"{event}({', '.join(map(repr, arguments[:2]))})"[:200])


def started() -> list[str]:
    """What was started since this was last asked."""
    seen = _started[:]
    _started.clear()
    return seen
