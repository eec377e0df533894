"""Writes what became of every test, one JSON line each, for the table that ``scripts/test`` ends with.

Does nothing unless the environment variable TEST_REPORT names a file. TEST_CURRENT names a folder with the test that
runs now, a file for each pytest-xdist worker, so that a long silence can say what it waits for. With workers, the first
one tells what there is, and the process above them what became of it, also of a test whose worker broke off.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")


def _write(row: dict[str, Any]) -> None:
    target = os.environ.get("TEST_REPORT")
    if not target:
        return
    with Path(target).open("a", encoding="utf-8") as out:
        out.write(json.dumps(row) + "\n")


def _result(test: str, outcome: str, reason: str = "", *, allowed: bool = False) -> None:
    _write({"kind": "result", "test": test, "outcome": outcome, "reason": reason, "allowed": allowed})


def pytest_itemcollected(item: pytest.Item) -> None:
    """Every test there is, before any is deselected."""
    if WORKER in ("", "gw0"):
        _write({"kind": "collected", "test": item.nodeid, "hub": item.get_closest_marker("hub") is not None})


def tell_left_out(item: pytest.Item, why: str) -> None:
    """A test that this tier leaves out."""
    if WORKER in ("", "gw0"):
        _result(item.nodeid, "not run", why)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A file that cannot be read is a failed test of that file's name."""
    if report.failed:
        _write({"kind": "collected", "test": report.nodeid or "tests", "hub": False})
        _result(report.nodeid or "tests", "failed", str(report.longrepr).strip().rsplit("\n", 1)[-1])


def pytest_runtest_logstart(nodeid: str) -> None:
    """Remember which test runs now."""
    _now(nodeid)


def pytest_runtest_logfinish() -> None:
    """Nothing runs until the next one begins."""
    _now("")


def _now(test: str) -> None:
    folder = os.environ.get("TEST_CURRENT")
    if folder:
        Path(folder, WORKER or "main").write_text(test, encoding="utf-8")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Passed, failed, or not run and why; a failed teardown fails a test that had passed."""
    if WORKER:
        return
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, (tuple, list)) else str(report.longrepr)
        allowed = any(name == "allowed_not_run" for name, _ in report.user_properties)
        _result(report.nodeid, "not run", reason.removeprefix("Skipped: "), allowed=allowed)
    elif report.failed:
        lines = str(report.longrepr).strip().splitlines()
        reason = next((line[2:] for line in lines if line.startswith("E ")), lines[-1] if lines else "")
        _result(report.nodeid, "failed", f"{report.when}: {reason.strip()}")
    elif report.when == "call":
        _result(report.nodeid, "passed")
