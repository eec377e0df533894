"""The training runs of a server: processes that live, end and are killed, the history, and the wishes for a notice."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from hub_extensions.adapters.linux import procfs
from hub_extensions.core.forecast.progress_file import ProgressFile
from hub_extensions.core.forecast.training_history import PastRun, TrainingHistory
from hub_extensions.core.messages import ServerState, Training
from hub_extensions.server_extension import trainings
from hub_extensions.server_extension.codec import decode, encode
from hub_extensions.server_extension.progress_folder import ProgressFolder
from hub_extensions.server_extension.service_client import RequestRefused
from hub_extensions.server_extension.training_history_file import NAME, TrainingHistoryFile
from hub_extensions.server_extension.trainings import Trainings
from tests.core.forecast.test_progress_file import a_file
from tests.fakes.panel_service import a_state
from tests.patience import patient, until

LEASE = "lease-of-this-test"


class Place:
    """A server's folder, history and clock; `state` is what the service said last."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state: ServerState | None = a_state(can_notify=True)
        self.ahead = timedelta()
        self.changes = 0
        self.history = TrainingHistoryFile(path / "data" / NAME)
        self.trainings = self.server()

    def server(self, pace: float = 1.0) -> Trainings:
        return Trainings(
            ProgressFolder(self.path / "gpu-progress"),
            self.history,
            lambda: self.state,
            {procfs.LEASE_MARK: LEASE},
            on_change=self.changed,
            pace=pace,
            wall=lambda: datetime.now(timezone.utc) + self.ahead,
        )

    def changed(self) -> None:
        self.changes += 1

    def write(self, number: int, pid: int, *, ago: float = 0.0, **changes: Any) -> str:
        run, at = f"{number:016x}", time.time() + self.ahead.total_seconds() - ago
        fields = {"run": run, "pid": pid, "born": procfs.start_time(pid), "at": at, "started": at - 100.0, **changes}
        folder = self.path / "gpu-progress"
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / ".new").write_text(json.dumps(a_file(**fields)))
        (folder / ".new").rename(folder / f"{run}.json")
        return run

    def look(self) -> tuple[Training, ...]:
        self.trainings.refresh()
        return self.trainings.shown()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@contextmanager
def a_process(*command: str, **environ: str) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(command or ("sleep", "60"), env={**os.environ, **environ}) as process:
        try:
            yield process
        finally:
            process.kill()


def a_dead_process() -> tuple[int, int]:
    with a_process() as process:
        born = procfs.start_time(process.pid)
    assert born is not None
    return process.pid, born


@pytest.mark.programs
def test_two_notebooks_are_both_shown_the_longer_first(place: Place) -> None:
    with a_process() as one, a_process() as other:
        place.write(1, one.pid, name="short", total=80)
        place.write(2, other.pid, name="long", total=2000)
        shown = place.look()
    assert [(each.name, each.state, each.outside) for each in shown] == [
        ("long", "running", False),
        ("short", "running", False),
    ]
    assert shown[0].left_seconds is not None
    assert shown[1].left_seconds is not None
    assert shown[0].left_seconds > shown[1].left_seconds


@pytest.mark.programs
def test_a_kernel_that_is_killed_has_vanished_at_the_next_look(place: Place) -> None:
    with a_process() as kernel:
        place.write(1, kernel.pid)
        assert place.look()[0].state == "running"
        kernel.send_signal(signal.SIGKILL)
        kernel.wait(patient(10))
        (shown,) = place.look()
    assert (shown.state, shown.outside, shown.left_seconds, shown.bound) == ("vanished", False, None, "")
    assert shown.ended_at == shown.at


@pytest.mark.programs
def test_the_thread_shows_a_run_and_its_end_within_three_looks(place: Place) -> None:
    """5 s a look: seen within 6 s, and a kernel that was killed within 15 s, also one that was never seen alive."""
    pid, born = a_dead_process()
    with a_process() as kernel:
        trainings = place.server(pace=20.0)
        trainings.start()
        try:
            place.write(1, kernel.pid)
            place.write(2, pid, born=born, ago=10.0)
            until(lambda: len(trainings.shown()) == 2, 5)
            kernel.kill()
            until(lambda: {each.state for each in trainings.shown()} == {"vanished"}, 15 / 20 + 2)
        finally:
            trainings.stop()


@pytest.mark.programs
def test_a_dead_process_that_was_never_seen_has_vanished_once_its_file_is_silent(place: Place) -> None:
    pid, born = a_dead_process()
    place.write(1, pid, born=born)
    assert place.look()[0].state == "running"
    place.ahead = timedelta(seconds=10)
    assert place.look()[0].state == "vanished"


@pytest.mark.programs
def test_a_process_that_reuses_the_pid_is_not_the_run(place: Place) -> None:
    with a_process() as kernel:
        born = procfs.start_time(kernel.pid)
        assert born is not None
        place.write(1, kernel.pid, born=born - 1, ago=20)
        place.write(2, kernel.pid, born=None, ago=20, started=time.time() - 3600)
        place.look()
        place.ahead = timedelta(seconds=5)
        assert [each.state for each in place.look()] == ["vanished", "vanished"]
        place.write(3, kernel.pid, born=None, started=time.time() + 1)
        assert [each.state for each in place.look()] == ["running", "vanished", "vanished"]


@pytest.mark.programs
def test_a_daemon_that_left_its_terminal_is_ours_by_the_mark_of_its_lease(place: Place) -> None:
    """A process whose parent has ended has another parent, here not this test."""
    start = "import subprocess, sys; print(subprocess.Popen(['sleep', '60'], stdout=-3, stderr=-3).pid)"
    with ExitStack() as stack:
        pids = []
        for lease in (LEASE, "lease-of-another"):
            environ = {**os.environ, procfs.LEASE_MARK: lease}
            said = subprocess.run(
                [sys.executable, "-c", start], env=environ, capture_output=True, text=True, check=True
            )
            pids.append(int(said.stdout))
            stack.callback(os.kill, pids[-1], signal.SIGKILL)
        for number, pid in enumerate(pids):
            assert procfs.parent(pid) != os.getpid()
            place.write(number, pid)
        shown = {each.run[-1]: each.outside for each in place.look()}
    assert shown == {"0": False, "1": True}


def test_a_process_that_this_server_did_not_start_is_outside(place: Place) -> None:
    parent = os.getppid()
    place.write(1, parent)
    assert place.look()[0].outside


def test_a_run_of_another_container_is_outside_and_shown_while_it_writes(place: Place) -> None:
    """Its process is not here, and yet its file is updated."""
    nobody = {"born": 1}
    place.write(1, 2**31 - 1, **nobody)
    place.look()
    place.ahead = timedelta(seconds=5)
    place.write(1, 2**31 - 1, **nobody)
    (shown,) = place.look()
    assert (shown.state, shown.outside) == ("running", True)
    place.ahead = timedelta(seconds=500)
    assert place.look()[0].state == "running"
    place.ahead = timedelta(seconds=700)
    assert place.look() == ()


def test_nothing_is_shown_again_while_nothing_changes(place: Place) -> None:
    place.write(1, os.getpid())
    place.look()
    place.look()
    assert place.changes == 1
    place.write(1, os.getpid(), steps=71)
    place.look()
    assert place.changes == 2


class FolderOnADiskThatHangs(ProgressFolder):
    """Its first look does not come back until `answer`."""

    answer = threading.Event()

    def read(self, now: datetime) -> tuple[ProgressFile, ...]:
        self.answer.wait(patient(20))
        return super().read(now)


def test_a_disk_that_hangs_delays_neither_the_panel_nor_the_end_of_the_server(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write(1, os.getpid())
    folder = FolderOnADiskThatHangs(tmp_path / "gpu-progress")
    trainings = Trainings(folder, place.history, lambda: None, {}, pace=20.0)
    began = time.monotonic()
    trainings.start()
    assert trainings.shown() == ()
    assert time.monotonic() - began < patient(1)
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "gpu-trainings")
    folder.answer.set()
    until(trainings.shown, 5)
    trainings.stop()


# ------------------------------------------------------------------ history


def finish(place: Place, number: int, seconds: float = 600.0, *, name: str = "mnist", state: str = "done") -> None:
    """A whole run of this process, with a look at each tenth."""
    for tenth in range(11):
        at = time.time()
        place.write(
            number,
            os.getpid(),
            name=name,
            state=state if tenth == 10 else "running",
            started=at - seconds * tenth / 10,
            at=at,
            steps=20 * tenth,
            total=200,
            group_steps=10,
            groups=[seconds / 20] * (2 * tenth),
            rest_steps=0,
            rest=0.0,
        )
        place.look()


def kept(place: Place) -> TrainingHistory:
    return decode(TrainingHistory, (place.path / "data" / NAME).read_bytes())


def test_finished_runs_are_kept_and_tell_how_long_the_next_one_takes(place: Place) -> None:
    finish(place, 1, 600)
    finish(place, 2, 800)
    finish(place, 3, 60, state="left")
    finish(place, 4, 60, name="other")
    history = kept(place)
    assert [(run.name, round(run.seconds), run.offer, run.resumed) for run in history.runs] == [
        ("mnist", 600, "mig-1g.5gb", False),
        ("mnist", 800, "mig-1g.5gb", False),
        ("other", 60, "mig-1g.5gb", False),
    ]
    assert [forecast.progress for forecast in history.runs[0].forecasts] == [0.1, 0.3, 0.5, 0.8, 0.9]
    assert (place.path / "data" / NAME).stat().st_mode & 0o777 == 0o600
    assert [file.name for file in (place.path / "data").iterdir()] == [NAME]
    again = Place(place.path)
    again.history.load()
    again.write(5, os.getpid(), steps=0, groups=[], rest_steps=0, rest=0.0, first=None)
    assert {each.run[-1]: (each.usual_seconds, each.usual_runs) for each in again.look()}["5"] == (
        pytest.approx(700, abs=1),
        2,
    )


def test_a_run_is_kept_once_though_two_servers_saw_it(place: Place) -> None:
    finish(place, 1)
    place.trainings = place.server()
    finish(place, 1)
    other = Place(place.path)
    finish(other, 1)
    finish(other, 2)
    assert [run.run[-1] for run in kept(place).runs] == ["1", "2"]


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"[]",
        b'{"version": 2, "runs": []}',
        b'{"version": 1, "runs": [{"run": 7}]}',
        b"[" * 100_000,
        b"\x00" * 2_000_000,
    ],
)
def test_a_damaged_history_is_set_aside_with_a_line_of_the_log(
    place: Place, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    file = place.path / "data" / NAME
    file.parent.mkdir()
    (file.parent / f"{NAME}.damaged").write_text("an earlier one")
    file.write_bytes(damage)
    finish(place, 1)
    finish(place, 2)
    assert (file.parent / f"{NAME}.damaged-1").read_bytes() == damage
    assert (file.parent / f"{NAME}.damaged").read_text() == "an earlier one"
    assert len(kept(place).runs) == 2
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["a pipe", "a folder", "not to be written"])
def test_a_history_that_cannot_be_kept_is_left_alone_and_changes_nothing_else(
    place: Place, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = place.path / "data" / NAME
    file.parent.mkdir()
    match kind:
        case "a pipe":
            os.mkfifo(file)
        case "a folder":
            file.mkdir()
        case "not to be written":
            if os.geteuid() == 0:
                pytest.skip("root may write everything")
            file.parent.chmod(0o500)
    finish(place, 1)
    assert place.look()[0].state == "done"
    assert len(caplog.records) == 1
    assert [each.name for each in file.parent.iterdir()] == ([] if kind == "not to be written" else [NAME])


def test_a_history_that_another_server_writes_is_added_to_later(place: Place) -> None:
    lock = place.path / "data" / f".{NAME}.new"
    lock.parent.mkdir()
    lock.touch()
    finish(place, 1)
    assert not (place.path / "data" / NAME).exists()
    os.utime(lock, (time.time() - 100,) * 2)  # that server was killed while it wrote
    place.look()
    assert len(kept(place).runs) == 1
    assert not lock.exists()


class FullDisk(TrainingHistoryFile):
    """A history on a disk that is full until `free` is set; `tried` counts the attempts to write."""

    free, tried = False, 0

    def add(self, run: PastRun) -> bool:
        self.tried += 1
        return self.free and super().add(run)


def test_on_a_full_disk_one_attempt_is_made_at_a_time_and_the_last_runs_wait(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainings, "MAX_RUNS", 30)
    place.history = disk = FullDisk(place.path / "data" / NAME)
    place.trainings = place.server()
    for number in range(40):
        place.write(number, os.getpid(), state="done")
        if number % 5 == 4:  # the writer removes old files, and 20 are read
            place.look()
            disk.tried = 0
            place.look()
            assert disk.tried == 1
    assert len(place.trainings._unsaved) == 30
    disk.free = True
    place.look()
    assert {int(run.run, 16) for run in kept(place).runs} == set(range(10, 40))
    assert not place.trainings._unsaved


def test_a_long_history_is_cut_and_stays_small(place: Place) -> None:
    finish(place, 1)
    run = kept(place).runs[0]
    runs = tuple(PastRun(f"{n:016x}", "x" * 80, *list_of(run)) for n in range(100, 300))
    (place.path / "data" / NAME).write_text(encode(TrainingHistory(runs=runs)))
    finish(place, 2)
    assert len(kept(place).runs) == 200
    assert kept(place).runs[-1].run == f"{2:016x}"
    assert (place.path / "data" / NAME).stat().st_size < 200_000


def list_of(run: PastRun) -> tuple[Any, ...]:
    return run.offer, run.started, run.seconds, run.resumed, run.forecasts


# ------------------------------------------------------------------ wishes


def test_a_notice_can_be_wished_while_a_run_goes_on(place: Place) -> None:
    run = place.write(1, os.getpid())
    place.look()
    place.trainings.wish(run, True)
    assert place.trainings.shown()[0].notify
    assert place.look()[0].notify
    place.trainings.wish(run, False)
    assert not place.trainings.shown()[0].notify


@pytest.mark.parametrize(
    ("changes", "run", "can_notify", "status"),
    [
        ({}, "f" * 16, True, 404),
        ({}, "", True, 404),
        ({"state": "done"}, f"{1:016x}", True, 404),
        ({"pid": os.getppid(), "born": procfs.start_time(os.getppid())}, f"{1:016x}", True, 404),
        ({}, f"{1:016x}", False, 409),
        ({}, f"{1:016x}", None, 409),
    ],
)
def test_a_notice_is_refused_for_what_does_not_run_and_where_none_can_be_sent(
    place: Place, changes: dict[str, Any], run: str, can_notify: bool | None, status: int
) -> None:
    place.state = None if can_notify is None else a_state(can_notify=can_notify)
    place.write(1, **{"pid": os.getpid(), **changes})
    place.look()
    with pytest.raises(RequestRefused) as refused:
        place.trainings.wish(run, True)
    assert refused.value.status == status
    assert refused.value.problem.reason
    assert not any(each.notify for each in place.look())
