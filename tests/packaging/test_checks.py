"""The checks of ``scripts/test``, begun before the tests and collected after them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.packaging.set_up_code import copy_set_up, run

CHECKS = """
import threading, time
from pathlib import Path
from kept import STOP
from lanes import Job, run_lanes
from place import ROOT
from testing import _check

def job(name, text, **more):
    return Job(name, ("/bin/sh", "-c", text), **more)

def all_of(*lanes):
    over = run_lanes(lanes, {"PATH": "/usr/bin:/bin"}, lambda: "Checks")
    print([_check(job, over[job.name]) for lane in lanes for job in lane if not job.title])
"""
pytestmark = pytest.mark.programs


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    return copy_set_up(tmp_path)


@pytest.mark.whole
def test_checks_run_beside_something_else_and_a_failed_one_is_shown_at_the_end(clone: Path) -> None:
    output = run(
        clone,
        CHECKS + "all_of([job('tests', 'sleep 1.5; echo the tests are over', title='Tests', loud=True)],\n"
        "    [job('one', 'echo bad words; exit 3', nice=10), job('two', 'echo fine')],\n"
        "    [job('three', 'nice >niceness', nice=10)])\n"
        "print('niceness', (ROOT / 'niceness').read_text())",
    )
    before, after = output.split("the tests are over")
    assert before == "\n== Tests\n"
    assert "  one: failed\nbad words\n\n  two: passed\n  three: passed\n" in after
    assert "[(0, 1, 0), (1, 0, 0), (1, 0, 0)]" in after
    assert "fine" not in after
    assert f"niceness {min(19, os.nice(0) + 10)}" in after


def test_checks_that_nothing_runs_beside_are_not_slowed_down(clone: Path) -> None:
    output = run(clone, CHECKS + "all_of([job('one', 'nice >niceness')])\nprint((ROOT / 'niceness').read_text())")
    assert f"[(1, 0, 0)]\n{os.nice(0)}" in output


@pytest.mark.parametrize("what", ["('/nowhere/ruff',)", "('/bin/true',), ROOT / 'nowhere'"])
def test_a_check_that_cannot_be_started_is_a_failed_check_that_says_why(clone: Path, what: str) -> None:
    output = run(clone, CHECKS + f"all_of([Job('one', {what})])")
    assert "could not be started: No such file or directory" in output
    assert "[(0, 1, 0)]" in output


@pytest.mark.whole
def test_checks_that_nobody_waits_for_are_ended(clone: Path) -> None:
    output = run(
        clone,
        CHECKS + "def stop():\n"
        "    while not ((ROOT / 'pid').exists() and (ROOT / 'pid').read_text()):\n"
        "        time.sleep(0.05)\n"
        "    STOP.set()\n"
        "threading.Thread(target=stop).start()\n"
        "run_lanes([[job('one', 'echo $$ >pid; sleep 600'), job('two', 'echo >second')]], {}, lambda: '')\n"
        "pid = int((ROOT / 'pid').read_text())\n"
        "print('still there:', Path(f'/proc/{pid}').exists(), (ROOT / 'second').exists())",
    )
    assert "still there: False False" in output


def test_a_check_that_passed_is_done_again_when_what_it_reads_has_changed(clone: Path) -> None:
    output = run(
        clone,
        CHECKS + "def again(inputs, text='echo ran >>runs'):\n"
        "    all_of([job('one', text, note=ROOT / 'note', inputs=inputs)])\n"
        "again('a'); again('a'); again('b'); again('c', 'exit 3'); again('c')\n"
        "print((ROOT / 'runs').read_text().split())",
    )
    lines = output.splitlines()
    assert lines[::2][:5] == [
        "  one: passed",
        "  one: passed, and nothing changed since",
        "  one: passed",
        "  one: failed",
        "[(0, 1, 0)]",
    ]
    assert lines[-1] == "['ran', 'ran', 'ran']"
