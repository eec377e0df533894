"""How ``scripts/test`` runs the tests: what CI counts as a failure, signs of life, and that nothing is left behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.hubs import until
from tests.packaging.set_up_code import ROOT, copy_set_up, run
from tests.patience import patient

pytestmark = pytest.mark.programs

LONGEST_SILENCE_SECONDS = 10.0


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    return copy_set_up(tmp_path)


# ------------------------------------------------------------------ what CI counts

CONFTEST = """
from tests import costs, report, tiers
from tests.conftest import pytest_runtest_setup

def pytest_configure(config):
    config.pluginmanager.register(report)
    config.pluginmanager.register(costs)
    tiers.watch_programs()
"""
TESTS = """
import pytest

def test_one(): pass

@pytest.mark.needs("gpu")
def test_card(): pass

@pytest.mark.needs("browser")
def test_page(): pass
"""
NO_BROWSER = {"CHROMIUM_PATH": "", "CHROMIUM_MISSING": "no browser here"}


@dataclass(frozen=True)
class Ended:
    """A run of pytest: its exit status, what it said last, and the figures that it left."""

    code: int
    output: str
    totals: dict[str, Any]


def ended(folder: Path, tests: str, *words: str, ci: str = "true", **more: str) -> Ended:
    """Run these tests with the project's own mechanism."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(tests)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = needs\n  hub\n")
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TEST_", "CI"))}
    env |= {"PYTHONPATH": str(ROOT), "TEST_TOTALS": str(folder / "totals"), "CI": ci, **more}
    begin_with = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:schemathesis", "-c", "pytest.ini"]
    done = subprocess.run(
        [*begin_with, *words], cwd=folder, env=env, capture_output=True, text=True, timeout=patient(100), check=False
    )
    return Ended(done.returncode, done.stdout, json.loads((folder / "totals").read_text()))


@pytest.mark.whole
def test_in_ci_a_test_that_was_not_run_is_a_failure(tmp_path: Path) -> None:
    run = ended(tmp_path, TESTS, **NO_BROWSER)
    assert run.code == 1
    assert "1 passed    0 failed     2 not run  test_it.py  (" in run.output
    assert "1: no browser here" in run.output
    assert "CI=true: 1 not run is a failure." in run.output
    refused = ["CI=true: 1 not run is a failure."]
    assert run.totals == {"passed": 1, "failed": [], "not run": 2, "refused by ci": refused}
    assert ended(tmp_path, TESTS, ci="", **NO_BROWSER).code == 0


@pytest.mark.whole
def test_in_ci_a_card_that_is_not_there_is_no_failure(tmp_path: Path) -> None:
    run = ended(tmp_path, TESTS, CHROMIUM_PATH="/usr/bin/browser")
    assert run.code == 0
    assert "test_it.py  (1: needs a real card: ./scripts/test --gpu)" in run.output
    assert run.totals == {"passed": 2, "failed": [], "not run": 1}


@pytest.mark.whole
def test_a_card_that_was_asked_for_and_is_not_there_is_a_failure(tmp_path: Path) -> None:
    run = ended(tmp_path, TESTS, CHROMIUM_PATH="/x", TEST_GPU="1")
    if Path("/proc/driver/nvidia/version").exists():
        assert run.code == 0
        return
    assert run.code == 1
    assert "test_it.py  (1: no NVIDIA driver on this machine)" in run.output


@pytest.mark.whole
@pytest.mark.parametrize("words", [(), ("-n", "2")], ids=["alone", "workers"])
def test_in_ci_a_test_that_nobody_selected_is_a_failure(tmp_path: Path, words: tuple[str, ...]) -> None:
    run = ended(tmp_path, TESTS, "-k", "one", *words)
    assert run.code == 1
    assert "test_it.py  (2: not selected)" in run.output
    refused = ["CI=true: 2 not run is a failure."]
    assert run.totals == {"passed": 1, "failed": [], "not run": 2, "refused by ci": refused}


@pytest.mark.whole
def test_in_ci_a_run_of_some_files_is_a_failure(tmp_path: Path) -> None:
    run = ended(tmp_path, "def test_one(): pass\n", "test_it.py")
    assert run.code == 1
    assert "CI=true: only a part of the tests was asked for" in run.output
    assert ended(tmp_path, "def test_one(): pass\n", "test_it.py", ci="").code == 0


@pytest.mark.whole
def test_two_at_a_time_report_the_same_as_one_after_the_other(tmp_path: Path) -> None:
    alone, two = (ended(tmp_path, TESTS, *words, **NO_BROWSER) for words in ((), ("-n", "2")))
    rows = [[line for line in run.output.splitlines() if "not run" in line] for run in (alone, two)]
    assert rows[0] == rows[1] != []
    assert alone.totals == two.totals


DEAR = """
import subprocess, sys, time

def burn():
    until = time.process_time() + 0.6
    while time.process_time() < until: pass

def test_by_itself(): burn()

def test_by_a_program():
    subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < 0.6: pass"], check=True)

def test_of_a_hub():
    subprocess.run([sys.executable, "-c", "", "-m", "jupyterhub"], check=True)
"""


@pytest.mark.whole
def test_the_dearest_tests_are_named_and_what_was_started_is_counted(tmp_path: Path) -> None:
    output = ended(tmp_path, DEAR, "-n", "2", ci="").output
    dear = [line.split(" s  test_it.py::") for line in output.splitlines() if " s  test_it.py::" in line]
    assert {name for _, name in dear} == {"test_by_itself", "test_by_a_program"}
    assert all(float(cpu) >= 0.5 for cpu, _ in dear)
    assert "started: 1 hubs" in output


@pytest.mark.whole
def test_a_test_that_takes_its_worker_down_is_a_failed_test(tmp_path: Path) -> None:
    tests = TESTS + "\ndef test_end():\n    import os\n    os._exit(7)\n"
    run = ended(tmp_path, tests, "-n", "2", ci="", CHROMIUM_PATH="/x")
    assert run.code == 1
    assert run.totals["failed"] == ["test_it.py::test_end"]
    assert run.totals["refused by ci"] == ["test_it.py::test_end crashed."], "it gets no second try"
    assert "crashed" in run.output


@pytest.mark.whole
def test_a_file_that_cannot_be_read_is_a_failed_test(tmp_path: Path) -> None:
    run = ended(tmp_path, "import nothing_of_this_name\n", ci="")
    assert run.code not in (0, 5)
    assert run.totals["failed"] == ["test_it.py"]
    assert "nothing_of_this_name" in run.output


TOTALS = """
from lanes import Job, Over
from place import RUN
from testing import _totals
RUN.mkdir(parents=True, exist_ok=True)
{before}
print(_totals(Job("hub6", (), title="Tests on hub 6.1"), Over({code}, b"")))
"""


def test_a_pass_that_broke_off_says_so_and_one_that_failed_says_what(clone: Path) -> None:
    broken = run(clone, TOTALS.format(before="", code=3))
    assert broken == "pytest itself broke off in: Tests on hub 6.1.\n(0, 0, 0)\n"
    figures = """(RUN / "hub6.json").write_text('{"passed": 4, "failed": ["tests/a.py::one"], "not run": 2}')"""
    failed = run(clone, TOTALS.format(before=figures, code=1))
    assert failed == "Failed: tests/a.py::one (Tests on hub 6.1)\n(4, 1, 2)\n"


# ------------------------------------------------------------------ once more, alone

AGAIN = """
from unsteady import Totals, tests_to_try_again
one, two = ("a.py::one",), ("b.py::two", "b.py::three")
print(tests_to_try_again({"hub6": Totals(9, one), "hub5": Totals(3, two)}, 2))
print(tests_to_try_again({"hub6": Totals(9, (*one, "a.py::two")), "hub5": Totals(3, two)}, 2), "more than three")
print(tests_to_try_again({"hub6": Totals(9, one)}, 2), "a pass that broke off")
print(tests_to_try_again({"hub6": Totals(9, one), "hub5": None}, 2), "a pass without figures")
print(tests_to_try_again({"hub6": Totals(9, ("a.py",))}, 1), "a file that cannot be read")
print(tests_to_try_again({"hub6": Totals(9, one, 4, ("not run",))}, 1), "something was not run")
"""


def test_at_most_three_tests_are_run_once_more_and_nothing_that_broke_off(clone: Path) -> None:
    first, *others = run(clone, AGAIN).splitlines()
    assert first == "{'hub6': ('a.py::one',), 'hub5': ('b.py::two', 'b.py::three')}"
    assert len(others) == 5
    assert all(line.startswith("{} ") for line in others)


ONCE_MORE_CONFTEST = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from tests import report

def pytest_addoption(parser):
    parser.addoption("--tier")
    for name in ("--only-root", "--without-root", "--only-hub"):
        parser.addoption(name, action="store_true")

def pytest_configure(config):
    config.pluginmanager.register(report)
"""
ONCE_MORE_TESTS = """
from pathlib import Path

def test_steady(): pass

def test_at_second_try():
    tried = Path(__file__).with_name("tried")
    assert tried.exists() or tried.write_text("") is None and False

def test_never(): assert Path(__file__).with_name("mended").exists()
"""
ONCE_MORE = """
import os, sys
from place import ROOT, RUN, VENV
import testing
(VENV / "bin").mkdir(parents=True, exist_ok=True)
python = VENV / "bin" / "python"
if not python.exists():
    python.write_text(f"#!/bin/sh\\nexec {sys.executable} \\"$@\\"\\n")
    python.chmod(0o755)
RUN.mkdir(parents=True, exist_ok=True)
testing.lanes = lambda tier, root, part=False: [["hub6"]]
testing.checks = lambda nice: []
testing.is_root = lambda: False
testing.own_folder = lambda path: path.mkdir(parents=True, exist_ok=True)
asked = testing.asked_by(["--quick", "-p", "no:schemathesis"])
print("exit", testing._run(asked, {**os.environ, "CI": "true"}, 0.0))
"""


@pytest.mark.whole
def test_a_test_that_fails_in_ci_and_passes_alone_is_named_and_no_failure(clone: Path) -> None:
    (clone / "conftest.py").write_text(ONCE_MORE_CONFTEST)
    (clone / "pytest.ini").write_text("[pytest]\naddopts = -p no:randomly\n")
    (clone / "test_it.py").write_text(ONCE_MORE_TESTS)
    twice = run(clone, ONCE_MORE, TEST_WORKERS="1")
    assert "Failed: test_it.py::test_never (Tests on hub 6.1)" in twice, (
        "what fails twice is a failure, and all with it"
    )
    assert "1 passed, 2 failed, 0 skipped\nexit 1" in twice
    (clone / "mended").touch()
    (clone / "tried").unlink()
    once = run(clone, ONCE_MORE, TEST_WORKERS="1")
    unsteady = "Unsteady: test_it.py::test_at_second_try (Tests on hub 6.1) failed, and passed when it ran once more"
    assert unsteady in once
    assert "3 passed, 0 failed, 0 skipped\nexit 0" in once


# ------------------------------------------------------------------ signs of life

SILENT = """
import sys, time, kept, steps
steps.BEAT_SECONDS = 0.6
env = {"PATH": "/usr/bin:/bin"}
def act():
    for number in range(6):
        time.sleep(0.25)
        kept.command("part", f"Part {number}", ["sleep", "0.25"], env=env)
with steps.beating("Setting up"):
    steps.step("One", steps.WORK / "one" / steps.NOTE, "inputs", act)
    for _ in range(10):
        time.sleep(0.2)
        steps.pass_on(b".")
"""


@pytest.mark.whole
def test_a_line_comes_often_enough_whatever_small_parts_a_set_up_has(clone: Path) -> None:
    """No part is longer than the pause between two lines: each one's own clock would never strike."""
    lines = run(clone, SILENT).splitlines()
    assert sum(line.endswith("s") and ": " in line for line in lines) >= 5, lines
    assert not any("Traceback" in line for line in lines)


def test_the_pause_between_two_lines_is_within_what_is_promised(clone: Path) -> None:
    output = run(clone, "from steps import BEAT_SECONDS\nprint(BEAT_SECONDS)")
    assert float(output) + 1 < LONGEST_SILENCE_SECONDS


def test_a_row_of_dots_is_closed_before_a_line_is_said(clone: Path) -> None:
    output = run(
        clone,
        "from steps import pass_on, report\npass_on(b'...')\nreport('still here')\npass_on(b'done\\n')\nreport('end')",
    )
    assert output == "...\nstill here\ndone\nend\n"


# ------------------------------------------------------------------ nothing is left

LEAVES_MUCH = """
import os, signal, subprocess, sys, time
subprocess.Popen(["sleep", "600"])
subprocess.Popen(["sleep", "601"], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open("pid", "w").write(str(os.getpid()))
        time.sleep(602)
    os._exit(0)
while not (os.path.exists("pid") and open("pid").read()):
    time.sleep(0.01)
print("mine:", os.getpid(), flush=True)
"""


@contextlib.contextmanager
def kept(folder: Path, code: str) -> Iterator[subprocess.Popen[str]]:
    keeper = ROOT / "scripts" / "prepare" / "keeper.py"
    words = [sys.executable, str(keeper), "0", sys.executable, "-c", LEAVES_MUCH + code]
    env = {**os.environ, "KEPT_BY": str(folder)}
    with subprocess.Popen(words, cwd=folder, env=env, text=True, stdout=subprocess.PIPE) as child:
        yield child


def with_mark(folder: Path) -> list[int]:
    """The live processes that were started in this test."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if f"KEPT_BY={folder}".encode() in Path(f"/proc/{entry}/environ").read_bytes():
                found.append(int(entry))
    return found


def test_what_a_run_leaves_behind_is_ended_and_its_exit_status_kept(tmp_path: Path) -> None:
    """T17: also what left its session, lost its parent and ignores SIGTERM."""
    with kept(tmp_path, "sys.exit(5)") as child:
        assert child.wait(patient(20)) == 5
    assert (tmp_path / "pid").exists()
    assert with_mark(tmp_path) == []


def test_a_run_that_is_stopped_may_tidy_up_first_and_leaves_nothing(tmp_path: Path) -> None:
    tidy = "try:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    print('tidied', flush=True)\n    sys.exit(3)\n"
    with kept(tmp_path, tidy) as child:
        assert child.stdout is not None
        child.stdout.readline()
        child.send_signal(signal.SIGTERM)
        assert child.stdout.readline() == "tidied\n"
        assert child.wait(patient(20)) == 3, "its own status: it was not killed"
    assert with_mark(tmp_path) == []


@pytest.mark.whole
def test_a_run_that_will_not_stop_is_ended(tmp_path: Path) -> None:
    deaf = "signal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('deaf', flush=True)\ntime.sleep(60)\n"
    with kept(tmp_path, deaf) as child:
        assert child.stdout is not None
        assert [child.stdout.readline()[:4] for _ in range(2)] == ["mine", "deaf"]
        child.send_signal(signal.SIGTERM)
        assert child.wait(patient(20)) == 128 + signal.SIGKILL
    assert with_mark(tmp_path) == []


def test_a_run_ends_with_the_one_who_asked_for_it(tmp_path: Path) -> None:
    starter = "import subprocess, sys; subprocess.run(sys.argv[1:])"
    keeper = [sys.executable, str(ROOT / "scripts" / "prepare" / "keeper.py"), "0"]
    words = [sys.executable, "-c", starter, *keeper, sys.executable, "-c", LEAVES_MUCH + "time.sleep(60)"]
    env = {**os.environ, "KEPT_BY": str(tmp_path)}
    with subprocess.Popen(words, cwd=tmp_path, env=env, text=True, stdout=subprocess.PIPE) as starting:
        assert starting.stdout is not None
        starting.stdout.readline()
        starting.kill()
        starting.wait(patient(5))
        until(lambda: with_mark(tmp_path) == [], 15, "nothing is left")
    assert with_mark(tmp_path) == []


# ------------------------------------------------------------------ a run that is stopped

STOPS = """
from tests import stopping
from tests.stopping import pytest_keyboard_interrupt, pytest_testnodeready

def pytest_configure():
    stopping.listen()
"""
STARTS = """
import subprocess, time
import pytest

@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    started = subprocess.Popen(["sleep", "600"], start_new_session=True)
    yield started
    started.kill()
    started.wait()
    open("torn-down", "a").write("x")

@pytest.mark.parametrize("number", range(2))
def test_it(hub, number):
    open("begun", "a").write("x")
    time.sleep(600)
"""


@pytest.mark.whole
@pytest.mark.programs
@pytest.mark.parametrize("words", [(), ("-n", "2")], ids=["alone", "workers"])
def test_a_run_that_gets_sigterm_ends_what_its_tests_started_before_it_is_over(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "conftest.py").write_text(STOPS)
    (tmp_path / "test_it.py").write_text(STARTS)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TEST_"))}
    env |= {"PYTHONPATH": str(ROOT), "KEPT_BY": str(tmp_path)}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words]
    begun, torn_down = tmp_path / "begun", tmp_path / "torn-down"
    workers = 2 if words else 1
    with (tmp_path / "log").open("w") as log, subprocess.Popen(command, cwd=tmp_path, env=env, stdout=log) as run:
        until(lambda: begun.exists() and len(begun.read_text()) == workers, 60)
        run.terminate()
        assert run.wait(patient(60)) == pytest.ExitCode.INTERRUPTED, (tmp_path / "log").read_text()
        assert torn_down.read_text() == "x" * workers
    assert with_mark(tmp_path) == []
