"""Which tests that failed in CI are run once more, alone: what only a busy machine fails is named, and to be mended.

A few may be: with more of them something is broken. Nothing that was not run, broke off or could not be read is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MOST = 3
"""So many of a whole run."""


@dataclass(frozen=True)
class Totals:
    """What ``tests/report.py`` counted of one pass. `refused`: what CI takes for a failure though no test failed."""

    passed: int = 0
    failed: tuple[str, ...] = ()
    not_run: int = 0
    refused: tuple[str, ...] = ()


def totals_of(folder: Path, name: str) -> Totals | None:
    """The figures that a pass left; None: it broke off before it had any."""
    file = folder / f"{name}.json"
    if not file.exists():
        return None
    found = json.loads(file.read_text(encoding="utf-8"))
    refused = tuple(found.get("refused by ci", ()))
    return Totals(found["passed"], tuple(found["failed"]), found["not run"], refused)


def tests_to_try_again(totals: Mapping[str, Totals | None], passes: int) -> Mapping[str, tuple[str, ...]]:
    """Pass -> the tests of it that get a second try. `passes`: how many there were, which all have to have figures."""
    known = {name: each for name, each in totals.items() if each is not None}
    failed = [test for each in known.values() for test in each.failed]
    if len(known) < passes or len(failed) > MOST or any("::" not in test for test in failed):
        return {}
    if any(each.refused for each in known.values()):
        return {}
    return {name: each.failed for name, each in known.items() if each.failed}
