"""The service's tiny parent: it starts again what dies, passes on what no start mends, and ends with its own parent."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hub_extensions.adapters.linux.supervisor import pause_before_start
from tests.patience import patient, until

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = """
import os, signal, sys, time
from hub_extensions.adapters.linux import supervisor
supervisor.KILL_SECONDS = 0.3

def serve():
    {before}
    print("serving", os.getpid(), flush=True)
    {then}

sys.exit(supervisor.supervise(serve, {parent}))
"""
FOREVER = "time.sleep(600)"
UNDER_ANOTHER = "import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', {text!r}])"
LEFT_ALONE = "import os, subprocess, sys; subprocess.Popen([sys.executable, '-S', '-c', {text!r}]); os._exit(0)"
AS_IN_A_CONTAINER = "import ctypes; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0); exec({text!r})"


class Program:
    """A service of one line under the supervisor."""

    def __init__(
        self, then: str = FOREVER, *, before: str = "pass", parent: str = "os.getppid()", around: str = ""
    ) -> None:
        text = PROGRAM.format(then=then, before=before, parent=parent)
        command = [sys.executable, "-S", "-c", around.format(text=text) if around else text]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def serving(self) -> int:
        assert self.process.stdout is not None
        word, pid = self.process.stdout.readline().split()
        assert word == "serving"
        return int(pid)

    def ended(self) -> tuple[int, str]:
        _, log = self.process.communicate(timeout=patient(20))
        return self.process.returncode, log


@pytest.fixture
def programs() -> Iterator[list[Program]]:
    started: list[Program] = []
    yield started
    for each in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(each.process.pid, signal.SIGKILL)
        for stream in (each.process.stdout, each.process.stderr):
            assert stream is not None
            stream.close()
        each.process.wait(patient(20))


def gone(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


@pytest.mark.parametrize(
    ("lived", "planned", "expected"),
    [
        (3600.0, 0.0, (0.0, 0.2)),
        (0.1, 0.0, (0.0, 0.2)),
        (0.1, 0.2, (0.2, 0.4)),
        (4.9, 0.4, (0.4, 0.8)),
        (0.1, 30.0, (30.0, 30.0)),
        (5.0, 30.0, (0.0, 0.2)),
    ],
)
def test_it_starts_at_once_and_pauses_longer_where_the_service_dies_at_once(
    lived: float, planned: float, expected: tuple[float, float]
) -> None:
    assert pause_before_start(lived, planned) == expected


@pytest.mark.programs
@pytest.mark.parametrize("then", [FOREVER, "os._exit(0)", "sys.exit(69)"])
def test_what_dies_or_ends_is_started_again(programs: list[Program], then: str) -> None:
    programs.append(Program(then))
    first = programs[-1].serving()
    if then == FOREVER:
        os.kill(first, signal.SIGKILL)
    assert programs[-1].serving() != first
    programs[-1].process.terminate()
    by_itself = 69 if "69" in then else 0  # it may just end when it is told to
    assert programs[-1].ended()[0] in (0, by_itself)


@pytest.mark.programs
def test_what_no_start_mends_is_passed_on(programs: list[Program]) -> None:
    programs.append(Program("return 78"))
    programs[-1].serving()
    assert programs[-1].ended() == (78, "")


@pytest.mark.programs
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_service_in_order_and_its_status_is_passed_on(
    programs: list[Program], number: signal.Signals
) -> None:
    for before, status in (("signal.signal(signal.SIGTERM, lambda *_: os._exit(1))", 1), ("pass", 0)):
        programs.append(Program(before=before))
        pid = programs[-1].serving()
        programs[-1].process.send_signal(number)
        assert programs[-1].ended()[0] == status
        assert gone(pid)


@pytest.mark.programs
def test_a_service_that_does_not_end_is_killed(programs: list[Program]) -> None:
    programs.append(Program(before="signal.signal(signal.SIGTERM, signal.SIG_IGN)"))
    pid = programs[-1].serving()
    programs[-1].process.terminate()
    assert programs[-1].ended()[0] == 1
    assert gone(pid)


@pytest.mark.programs
def test_it_ends_with_its_own_parent_also_after_a_kill(programs: list[Program]) -> None:
    programs.append(Program(around=UNDER_ANOTHER))
    pid = programs[-1].serving()
    programs[-1].process.kill()
    until(lambda: gone(pid), 10, "the service has ended")
    assert "the parent process is gone" in programs[-1].ended()[1]


@pytest.mark.programs
def test_without_a_parent_to_watch_it_lives_on(programs: list[Program]) -> None:
    programs.append(Program(parent="None", around=LEFT_ALONE))
    first = programs[-1].serving()
    programs[-1].process.wait(patient(20))
    os.kill(first, signal.SIGKILL)
    assert programs[-1].serving() != first


@pytest.mark.programs
def test_orphans_that_come_to_the_first_process_of_a_container_are_buried(programs: list[Program]) -> None:
    orphans = "[(os.fork(), os._exit(0)) for _ in range(3) if not os.fork()]; print('serving', 0, flush=True)"
    programs.append(Program(before=orphans, around=AS_IN_A_CONTAINER))
    programs[-1].serving()
    service = programs[-1].serving()
    supervisor = programs[-1].process.pid

    def below() -> str:
        return Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().strip()

    until(lambda: below() == str(service), 10, below)
