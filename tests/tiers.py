"""Which tests belong to which run of ``scripts/test``, and why the others are left out.

``--quick``: what starts no program and is not marked ``slow``, and what is marked ``quick``. ``scripts/test``: all but
what is marked ``whole``, and JupyterHub 5.5 in one file. ``--whole``: everything.

The quick run is two runs of pytest beside each other, each with the folders of a half. They share next to no imports,
and do without pytest-xdist: each worker of that reads all tests, and a short test costs less than to tell of it.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Collection
from importlib.metadata import version
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent
ALL = QUICK, USUAL, WHOLE = "quick", "usual", "whole"
STARTS_PROGRAMS = ("programs", "needs", "hub")
IN_BOTH_GENERATIONS = "tests/spawner/test_real_hub.py"
"""What the usual run shows of JupyterHub 5.5."""

ROOTS = frozenset({"root", "cluster", "own-cluster", "kueue", "real-node"})
"""What a test needs of which only root can give it."""
IN_A_PASS = {
    "--only-root": re.compile(rf'needs\([^)]*"(?:{"|".join(ROOTS)})"'),
    "--only-hub": re.compile(r"mark\.hub\b"),
}
"""What stands in each file of which such a pass has a test; others it need not read, which takes most of its start."""

HALVES = ("first", "second")
FIRST_HALF = ("adapters", "core", "docs", "helm_values", "packaging", "tools")
"""The folders of the first half; all else is in the second."""

OF_A_FILE = re.compile(r"^pytestmark = (\[\n.*?^\]|[^\n]*)", re.MULTILINE | re.DOTALL)
"""The marks of a whole file, as its text says them."""

NOT_IN_QUICK = "starts programs, or takes long: ./scripts/test"
IN_THE_OTHER_HALF = "in the other half"
NOT_IN_USUAL = "only in the whole run: ./scripts/test --whole"


def left_out(tier: str, marks: Collection[str], file: str, *, older_hub: bool) -> str:
    """Why this tier leaves a test with these `marks` out; empty when it does not."""
    if tier == WHOLE:
        return ""
    if "whole" in marks or (older_hub and file != IN_BOTH_GENERATIONS):
        return NOT_IN_USUAL
    if tier == QUICK and "quick" not in marks and ("slow" in marks or not marks_are_quick(marks)):
        return NOT_IN_QUICK
    return ""


def tier_of(marks: Collection[str]) -> str:
    """The smallest run that has a test with these marks."""
    return next(tier for tier in ALL if not left_out(tier, marks, "", older_hub=False))


@functools.cache
def not_read(tier: str, file: Path, half: str | None = None) -> str:
    """Why this tier, or this half of it, need not even read the file; empty when it has to."""
    if half and half != HALVES[file.relative_to(TESTS).parts[0] not in FIRST_HALF]:
        return IN_THE_OTHER_HALF
    text = file.read_text(encoding="utf-8") if tier != WHOLE else ""
    marks = re.findall(r"mark\.(\w+)", " ".join(OF_A_FILE.findall(text)))
    return "" if "mark.quick" in text else left_out(tier, marks, "", older_hub=False)


def has_none(file: Path, passes: Collection[str]) -> bool:
    """Whether the file's text says that none of its tests is in one of these passes."""
    text = file.read_text(encoding="utf-8") if passes else ""
    return any(not IN_A_PASS[name].search(text) for name in passes)


def passes_of(marks: Collection[str], needs: Collection[str]) -> list[str]:
    """The passes that a test with these marks and needs is in, of those which do not read all files."""
    return [*(["--only-root"] if ROOTS.intersection(needs) else []), *(["--only-hub"] if "hub" in marks else [])]


def marks_are_quick(marks: Collection[str]) -> bool:
    """Whether nothing says that the test starts a program."""
    return not any(mark in marks for mark in STARTS_PROGRAMS)


def of_another_hub(generations: Collection[str], *, older_hub: bool) -> bool:
    """Whether a test is for the other generation only: ``hub("5.5")``, ``hub("6.1")``; for both: ``hub``."""
    return bool(generations) and ("5.5" if older_hub else "6.1") not in generations


def older_hub() -> bool:
    """Whether this Python has JupyterHub 5."""
    return version("jupyterhub").startswith("5.")


PROGRAM_EVENTS = ("subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "tests.warm")
_started: list[str] = []
_all_started: list[str] = []


def watch_programs() -> None:
    """From now on, note what this process starts (there is no way to take an audit hook off again)."""
    sys.addaudithook(_note)


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event in PROGRAM_EVENTS:
        words = ", ".join(map(repr, arguments[:2]))
        _started.append(f"{event}({words})"[:200])
        _all_started.append(words[:2000])


def all_started() -> list[str]:
    """The words of whatever was started."""
    return _all_started


def started() -> list[str]:
    """What was started since this was last asked."""
    seen = _started[:]
    _started.clear()
    return seen
