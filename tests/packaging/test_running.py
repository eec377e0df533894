"""How ``scripts/test`` runs the tests: what CI counts as a failure, signs of life, and that nothing is left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

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
from tests.conftest import pytest_runtest_setup
from tests.report import (
    pytest_collectreport, pytest_itemcollected, pytest_runtest_logfinish, pytest_runtest_logreport,
    pytest_runtest_logstart,
)
"""
TESTS = """
import pytest

def test_one(): pass

@pytest.mark.needs("gpu")
def test_card(): pass

@pytest.mark.needs("browser")
def test_page(): pass
"""
VERDICT = """
import os
from pathlib import Path
from table import print_table, read_reports
from testing import verdict
results = read_reports(Path(os.environ["REPORTS"]))
print_table([], results)
print("status:", verdict([], results, [], strict=True), verdict([], results, [], strict=False))
"""


def reports_of(folder: Path, tests: str, *words: str, **more: str) -> Path:
    """Run these tests with the project's own mechanism. Returns the folder with the report."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(tests)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = needs\n  hub\n")
    reports = folder / "reports"
    reports.mkdir()
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TEST_"))}
    env |= {"PYTHONPATH": str(ROOT), "TEST_REPORT": str(reports / "report-hub6.jsonl"), **more}
    begin_with = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "pytest.ini"]
    subprocess.run([*begin_with, *words], cwd=folder, env=env, capture_output=True, timeout=patient(100), check=False)
    return reports


def counted(clone: Path, reports: Path) -> list[str]:
    """The table, and the exit status with ``CI=true`` and without."""
    return run(clone, VERDICT, REPORTS=str(reports)).splitlines()


def test_in_ci_a_test_that_was_not_run_is_a_failure(clone: Path) -> None:
    said = counted(clone, reports_of(clone, TESTS, CHROMIUM_PATH="", CHROMIUM_MISSING="no browser here"))
    assert said[-1] == "status: 1 0"
    assert "  test_it.py (hub 6.1), 1: no browser here" in said
    assert "CI=true: 1 not run is a failure." in said
    assert "1 passed, 0 failed, 2 skipped" in said


def test_in_ci_a_card_that_is_not_there_is_no_failure(clone: Path) -> None:
    said = counted(clone, reports_of(clone, TESTS, CHROMIUM_PATH="/usr/bin/browser"))
    assert said[-1] == "status: 0 0"
    assert "  test_it.py (hub 6.1), 1: needs a real card: ./scripts/test --gpu" in said
    assert "2 passed, 0 failed, 1 skipped" in said


def test_a_card_that_was_asked_for_and_is_not_there_is_a_failure(clone: Path) -> None:
    if Path("/proc/driver/nvidia/version").exists():
        assert counted(clone, reports_of(clone, TESTS, CHROMIUM_PATH="/x", TEST_GPU="1"))[-1] == "status: 0 0"
        return
    said = counted(clone, reports_of(clone, TESTS, CHROMIUM_PATH="/x", TEST_GPU="1"))
    assert said[-1] == "status: 1 0"
    assert "  test_it.py (hub 6.1), 1: no NVIDIA driver on this machine" in said


def test_in_ci_a_test_that_nobody_selected_is_a_failure(clone: Path) -> None:
    said = counted(clone, reports_of(clone, TESTS, "-k", "one"))
    assert said[-1] == "status: 1 0"
    assert "  test_it.py (hub 6.1), 2: not selected" in said


def test_two_at_a_time_report_the_same_as_one_after_the_other(clone: Path) -> None:
    said = counted(clone, reports_of(clone, TESTS, "-n", "2", CHROMIUM_PATH="", CHROMIUM_MISSING="no browser here"))
    assert "  test_it.py (hub 6.1), 1: no browser here" in said
    assert "  test_it.py (hub 6.1), 1: needs a real card: ./scripts/test --gpu" in said
    assert "1 passed, 0 failed, 2 skipped" in said


def test_a_test_that_takes_its_worker_down_is_a_failed_test(clone: Path) -> None:
    tests = TESTS + "\ndef test_end():\n    import os\n    os._exit(7)\n"
    said = counted(clone, reports_of(clone, tests, "-n", "2", CHROMIUM_PATH="/x"))
    assert said[-1] == "status: 1 1"
    assert any(line.startswith("  test_it.py::test_end (hub 6.1): ") and "crashed" in line for line in said)


def test_a_file_that_cannot_be_read_is_a_failed_test(clone: Path) -> None:
    said = counted(clone, reports_of(clone, "import nothing_of_this_name\n"))
    assert said[-1] == "status: 1 1"
    assert any("nothing_of_this_name" in line for line in said)


def test_a_pass_that_broke_off_is_a_failure_though_no_test_failed(clone: Path) -> None:
    said = run(clone, "from testing import verdict\nprint('status:', verdict([], [], ['hub6'], strict=False))")
    assert "pytest itself broke off in: hub6." in said
    assert "status: 1" in said


# ------------------------------------------------------------------ signs of life

SILENT = """
import sys, time, steps
steps.BEAT_SECONDS = 0.6
env = {"PATH": "/usr/bin:/bin"}
def act():
    for number in range(6):
        time.sleep(0.25)
        steps.command("part", f"Part {number}", ["sleep", "0.25"], env=env)
    (steps.WORK / "made").write_text("x")
with steps.beating("Setting up"):
    steps.step("one", "One", "inputs", [steps.WORK / "made"], act)
    for _ in range(10):
        time.sleep(0.2)
        steps.pass_on(b".")
"""


def test_a_line_comes_often_enough_whatever_small_parts_a_set_up_has(clone: Path) -> None:
    """No part is longer than the pause between two lines: each one's own clock would never strike."""
    lines = run(clone, SILENT).splitlines()
    assert sum(line.endswith("s") and ": " in line for line in lines) >= 5, lines
    assert not any("Traceback" in line for line in lines)


def test_the_pause_between_two_lines_is_within_what_is_promised(clone: Path) -> None:
    said = run(clone, "from steps import BEAT_SECONDS\nprint(BEAT_SECONDS)")
    assert float(said) + 1 < LONGEST_SILENCE_SECONDS


def test_a_row_of_dots_is_closed_before_a_line_is_said(clone: Path) -> None:
    said = run(
        clone, "from steps import pass_on, say\npass_on(b'...')\nsay('still here')\npass_on(b'done\\n')\nsay('end')"
    )
    assert said == "...\nstill here\ndone\nend\n"


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
    words = [sys.executable, str(keeper), sys.executable, "-c", LEAVES_MUCH + code]
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
    keeper = [sys.executable, str(ROOT / "scripts" / "prepare" / "keeper.py")]
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
