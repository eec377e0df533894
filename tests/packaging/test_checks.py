"""The checks of ``scripts/test``, begun before the tests and collected after them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.packaging.set_up_code import copy_set_up, run

CHECKS = """
import time
from pathlib import Path
import checks
from place import ROOT

def tool(name, text):
    return checks.Tool(name, ("/bin/sh", "-c", text), ROOT)

def lanes(*both):
    checks.tools = lambda: tuple([tool(name, text) for name, text in lane] for lane in both)

def all_of(env):
    with checks.Checks() as alone:
        alone.begin(env, nice=0)
        return alone.finish()

env = {"PATH": "/usr/bin:/bin"}
"""
pytestmark = pytest.mark.programs


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    return copy_set_up(tmp_path)


def test_checks_run_beside_something_else_and_a_failed_one_is_shown_at_the_end(clone: Path) -> None:
    said = run(
        clone,
        CHECKS + "lanes([('one', 'echo bad words; exit 3'), ('two', 'echo fine')], [('three', 'nice >niceness')])\n"
        "with checks.Checks() as beside:\n"
        "    beside.begin(env)\n"
        "    time.sleep(1.5)\n"
        "    print('the tests are over')\n"
        "    print([(check.name, check.outcome) for check in beside.finish()])\n"
        "print('niceness', (ROOT / 'niceness').read_text())",
    )
    before, after = said.split("the tests are over")
    assert before == ""
    assert "  one: failed\nbad words\n\n  two: passed\n  three: passed\n" in after
    assert "[('one', 'failed'), ('two', 'passed'), ('three', 'passed')]" in after
    assert "fine" not in after
    assert f"niceness {min(19, os.nice(0) + 10)}" in after


def test_checks_that_nothing_runs_beside_are_not_slowed_down(clone: Path) -> None:
    said = run(
        clone,
        CHECKS + "lanes([('one', 'nice >niceness')], [])\nprint([check.outcome for check in all_of(env)])\n"
        "print('niceness', (ROOT / 'niceness').read_text())",
    )
    assert "['passed']" in said
    assert f"niceness {os.nice(0)}" in said


def test_a_check_that_cannot_be_started_is_a_failed_check_that_says_why(clone: Path) -> None:
    said = run(
        clone,
        CHECKS + "checks.tools = lambda: ([checks.Tool('one', ('/bin/true',), ROOT / 'nowhere')], [])\n"
        "print([check.outcome for check in all_of(env)])",
    )
    assert "one could not be started" in said
    assert "['failed']" in said


def test_checks_that_nobody_waits_for_are_ended(clone: Path) -> None:
    said = run(
        clone,
        CHECKS + "lanes([('one', 'echo $$ >pid; sleep 600'), ('two', 'echo >second')], [])\n"
        "with checks.Checks() as beside:\n"
        "    beside.begin(env)\n"
        "    while not ((ROOT / 'pid').exists() and (ROOT / 'pid').read_text()):\n"
        "        time.sleep(0.05)\n"
        "pid = int((ROOT / 'pid').read_text())\n"
        "print('still there:', Path(f'/proc/{pid}').exists(), (ROOT / 'second').exists())",
    )
    assert "still there: False False" in said
