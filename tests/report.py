"""At the end of pytest's summary: a table of what ran and what did not, and why; with CI=true, not run is a failure.

Only for ``scripts/test``: TEST_TOTALS names a file for the figures of its last line, and TEST_CURRENT one that says
which tests run now. pytest-xdist's workers know what was left out; the process above them hears of it, and reports.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import costs, secret_search

LEFT_OUT = pytest.StashKey[dict[str, str]]()
"""Tests that are there and were not selected, and why."""
ALLOWED = "allowed_not_run"
MOST_TOLD = 2000
"""Bytes that say what runs now."""
_running: list[str] = []
_told: list[int] = []


def leave_out(config: pytest.Config, tests: dict[str, str]) -> None:
    """These are left out, for that reason."""
    known = config.stash.setdefault(LEFT_OUT, {})
    known.update(tests)
    if hasattr(config, "workeroutput"):
        config.workeroutput["left_out"] = known


def pytest_deselected(items: list[pytest.Item]) -> None:
    """By an option of pytest's own, as ``-k``."""
    if items:
        leave_out(items[0].config, {item.nodeid: "not selected" for item in items})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker is done; all of them left out the same."""
    leave_out(node.config, getattr(node, "workeroutput", {}).get("left_out", {}))


def pytest_runtest_logstart(nodeid: str) -> None:
    """It runs now."""
    _running.append(nodeid)
    _tell_running()


def pytest_runtest_logfinish(nodeid: str) -> None:
    """It no longer does."""
    if nodeid in _running:
        _running.remove(nodeid)
    _tell_running()


def _tell_running() -> None:
    """Written in place, two times a test: to open the file anew waits for the disk, for milliseconds."""
    if not (told := os.environ.get("TEST_CURRENT")) or "PYTEST_XDIST_WORKER" in os.environ:
        return
    if not _told:
        _told.append(os.open(told, os.O_WRONLY | os.O_CREAT, 0o644))
    os.pwrite(_told[0], " and ".join(_running).encode()[:MOST_TOLD].ljust(MOST_TOLD), 0)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """The figures; with CI=true, the exit status of a failure where something was not run that could have been."""
    target = os.environ.get("TEST_TOTALS")
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if not target or reporter is None:  # a worker has none
        return
    outcomes = list(_outcomes(session.config, reporter))
    counts = Counter(outcome for _, outcome, _, _ in outcomes)
    failed = list(dict.fromkeys(test for test, outcome, _, _ in outcomes if outcome == "failed"))  # in its end too
    readable = secret_search.found(session.config).findings
    left_out = [*_not_run_in_ci(session.config, reporter), *_crashes(reporter), *readable]
    totals = {"passed": counts["passed"], "failed": failed, "not run": counts["not run"]}
    totals |= {"refused by ci": left_out} if left_out else {}
    Path(target).write_text(json.dumps(totals), encoding="utf-8")
    if _not_run_in_ci(session.config, reporter) and session.exitstatus in (0, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """One row a file, with the reasons why some of it was not run."""
    if not os.environ.get("TEST_TOTALS"):
        return
    rows: dict[str, Counter[str]] = {}
    reasons: Counter[tuple[str, str]] = Counter()
    for test, outcome, reason, _ in _outcomes(config, terminalreporter):
        file = test.partition("::")[0]
        rows.setdefault(file, Counter())[outcome] += 1
        if outcome == "not run":
            reasons[file, reason] += 1
    terminalreporter.section("ran / not run, and why")
    for file, counts in sorted(rows.items()):
        why = "; ".join(f"{count}: {reason}" for (where, reason), count in sorted(reasons.items()) if where == file)
        figures = f"{counts['passed']:>6} passed {counts['failed']:>4} failed {counts['not run']:>5} not run"
        terminalreporter.write_line(f"{figures}  {file}{f'  ({why})' if why else ''}")
    terminalreporter.section(f"seconds of CPU, the {costs.MOST} dearest tests")
    for line in [*costs.lines(config), *_not_run_in_ci(config, terminalreporter)]:
        terminalreporter.write_line(line)


def _crashes(reporter: pytest.TerminalReporter) -> list[str]:
    """Tests that took their worker down, as pytest-xdist reports them: no second try is given for those."""
    return [f"{each.nodeid} crashed." for each in reporter.stats.get("failed", ()) if each.when == "???"]


def _not_run_in_ci(config: pytest.Config, reporter: pytest.TerminalReporter) -> list[str]:
    """What CI counts as a failure though no test failed."""
    if os.environ.get("CI", "").lower() not in ("true", "1"):
        return []
    left = sum(outcome == "not run" and not allowed for _, outcome, _, allowed in _outcomes(config, reporter))
    said = [f"CI=true: {left} not run is a failure."] if left else []
    if config.args_source is pytest.Config.ArgsSource.ARGS:
        said.append("CI=true: only a part of the tests was asked for, which is a failure.")
    return said


def _outcomes(config: pytest.Config, reporter: pytest.TerminalReporter) -> Iterator[tuple[str, str, str, bool]]:
    """Every test with what became of it, why it was not run, and whether CI may leave it out."""
    for category, outcome in (("passed", "passed"), ("failed", "failed"), ("error", "failed"), ("skipped", "not run")):
        for report in reporter.stats.get(category, ()):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
            properties = dict(getattr(report, "user_properties", ()))
            yield report.nodeid, outcome, reason.removeprefix("Skipped: "), ALLOWED in properties
    for test, reason in config.stash.get(LEFT_OUT, {}).items():
        yield test, "not run", reason, False
