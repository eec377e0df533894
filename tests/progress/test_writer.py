"""`track` gives the items of a loop unchanged, writes what it knows, and never disturbs the loop."""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hub_extensions.progress import ProgressRun, track, writer
from hub_extensions.progress.writer import GROUPS, MAX_BYTES, WRITE_SECONDS
from tests.patience import patient
from tests.progress.files import read_run, read_runs, steps_of_groups

ROOT = Path(__file__).parents[2]
LOADER = ["a", "b", "c"]


class Stream:
    """Data without a length, that can be read again."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.count))


class WrongLength(Stream):
    """Data that announces more than it gives, for example because of batches that are left out."""

    def __len__(self) -> int:
        return self.count + 2


def test_a_loop_without_epochs_is_the_loop_itself(folder: Path) -> None:
    assert list(track(LOADER, name="letters")) == LOADER
    run = read_run(folder)
    assert (run["state"], run["steps"], run["total"], run["epochs"], run["epoch_steps"]) == ("done", 3, 3, None, None)
    assert (run["version"], run["name"], run["library"], run["pid"]) == (1, "letters", "loop", os.getpid())
    assert steps_of_groups(run) == 3


def test_one_loop_gives_the_items_of_all_epochs(folder: Path) -> None:
    assert list(track(LOADER, epochs=4)) == LOADER * 4
    run = read_run(folder)
    assert (run["state"], run["steps"], run["total"], run["epochs"], run["epoch_steps"]) == ("done", 12, 12, 4, 3)


def test_a_loop_over_the_epochs_of_ones_own(folder: Path) -> None:
    batches, seen = track(LOADER, epochs=4), []
    for epoch in batches.by_epoch():
        assert len(batches) == 3
        seen.append((epoch, list(batches)))
        assert read_run(folder)["state"] == "running"
    assert seen == [(epoch, LOADER) for epoch in range(4)]
    run = read_run(folder)
    assert (run["state"], run["steps"], run["total"]) == ("done", 12, 12)


def test_a_loop_in_a_loop_trains_no_more_epochs_than_asked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    batches = track(LOADER, epochs=4)
    assert [batch for _ in range(4) for batch in batches] == LOADER * 4
    assert "by_epoch()" in capsys.readouterr().err
    assert read_run(folder)["steps"] == 12


def test_an_iterator_is_gone_through_once_and_the_user_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [batch for _, batch in track(enumerate(LOADER), epochs=4)] == LOADER
    assert "only once" in capsys.readouterr().err
    assert read_run(folder)["steps"] == 3


@pytest.mark.parametrize(
    ("data", "epochs", "start", "total", "first_total"),
    [
        (range(10), None, 0, 10, 10),
        (range(10), None, 30, 40, 40),  # the data is what remains
        (range(10), 4, 20, 40, 40),
        (Stream(10), None, 0, None, None),
        (Stream(10), 4, 0, 40, None),  # known after the first epoch
        (WrongLength(10), 4, 0, 40, 48),
    ],
)
def test_the_total(
    folder: Path, data: Any, epochs: int | None, start: int, total: int | None, first_total: int | None
) -> None:
    loop = track(data, epochs=epochs, start=start)
    steps = iter(loop)
    next(steps)
    assert read_run(folder)["total"] == first_total
    count = 1 + len(list(steps))
    run = read_run(folder)
    assert (run["total"], run["start"], run["steps"]) == (total, start, count)
    assert count == (total or 10) - start


def test_a_total_that_is_given_is_kept(folder: Path) -> None:
    assert len(list(track(Stream(10), total=12))) == 10
    assert read_run(folder)["total"] == 12


def test_a_resumed_run_leaves_out_the_batches_it_has_had(folder: Path) -> None:
    loop = track(LOADER, epochs=3, start=4)
    assert len(loop) == 5
    assert list(loop) == ["b", "c", "a", "b", "c"]
    run = read_run(folder)
    assert (run["start"], run["steps"], run["total"], run["epoch_steps"]) == (4, 5, 9, 3)


def test_a_resumed_loop_over_the_epochs_goes_on_at_the_right_one() -> None:
    batches = track(LOADER, epochs=5, start=6)
    assert [(epoch, len(list(batches))) for epoch in batches.by_epoch()] == [(2, 3), (3, 3), (4, 3)]


def test_epochs_that_are_cut_short_shorten_the_total(folder: Path) -> None:
    batches = track(range(1000), epochs=3)
    for _ in batches.by_epoch():
        for step in batches:
            if step == 9:
                break
    run = read_run(folder)
    assert (run["state"], run["steps"], run["total"], run["epoch_steps"]) == ("done", 27, 27, 9)


def test_break_is_left(folder: Path) -> None:
    for item in track(LOADER, epochs=4):
        if item == "c":
            break
    run = read_run(folder)
    assert (run["state"], run["steps"]) == ("left", 2)


@pytest.mark.parametrize("problem", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_exception_of_the_loop_passes_unchanged(folder: Path, problem: type[BaseException]) -> None:
    raised = problem("mine")
    with pytest.raises(problem) as found:
        for _ in track(LOADER):
            raise raised
    assert found.value is raised
    assert read_run(folder)["state"] == "left"


@pytest.mark.parametrize(("problem", "state"), [(ValueError, "failed"), (KeyboardInterrupt, "left")])
def test_an_exception_of_the_data_passes_unchanged(folder: Path, problem: type[BaseException], state: str) -> None:
    raised = problem("mine")

    def data() -> Iterator[int]:
        yield 1
        raise raised

    with pytest.raises(problem) as found:
        list(track(data()))
    assert found.value is raised
    run = read_run(folder)
    assert (run["state"], run["steps"]) == (state, 1)


def test_what_is_no_data_fails_as_without_track() -> None:
    with pytest.raises(TypeError, match="'int' object is not iterable"):
        list(track(3))  # type: ignore[arg-type]


def test_two_runs_at_once(folder: Path) -> None:
    def train(name: str) -> None:
        for _ in track(range(50), epochs=2, name=name):
            time.sleep(0.0001)

    threads = [threading.Thread(target=train, args=[name]) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted((run["name"], run["steps"], run["state"]) for run in read_runs(folder)) == [
        ("one", 100, "done"),
        ("two", 100, "done"),
    ]


def test_the_loop_passes_on_what_the_loader_has() -> None:
    class Loader(Stream):
        dataset = "mnist"

    loop = track(Loader(3))
    assert loop.dataset == "mnist"
    assert bool(loop)
    with pytest.raises(TypeError):
        len(loop)
    with pytest.raises(AttributeError):
        _ = loop.nothing


def test_durations_are_added_in_pairs_when_there_are_many(folder: Path) -> None:
    run, at = ProgressRun(), time.perf_counter()
    for step in range(1, 1002):
        run.count(step, at + step)
    run.end()
    file = read_run(folder)
    assert (file["group_steps"], file["rest_steps"], file["rest"]) == (16, 1000 % 16, 1000 % 16)
    assert file["groups"] == [16.0] * (1000 // 16)
    assert len(file["groups"]) < GROUPS


def test_steps_that_are_reported_together_share_their_time(folder: Path) -> None:
    run, at = ProgressRun(), time.perf_counter()
    run.count(1, at + 5)
    run.count(5, at + 7)
    run.count(3, at + 8)  # fewer than before: nothing new
    run.end()
    file = read_run(folder)
    assert file["first"] == pytest.approx(5, abs=0.1)
    assert (file["groups"], file["steps"]) == ([0.5] * 4, 5)


def test_a_file_is_written_every_two_seconds_at_most(folder: Path) -> None:
    run, at = ProgressRun(), time.perf_counter()
    run.count(1, at + WRITE_SECONDS - 0.5)
    assert read_run(folder)["steps"] == 0
    run.count(2, at + WRITE_SECONDS + 0.1)
    assert read_run(folder)["steps"] == 2


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> float:
    """A process that has begun no run yet, and the least time between the first files of two."""
    monkeypatch.setattr(writer, "APART_SECONDS", 2.0)
    monkeypatch.setattr(writer, "_last_begun", -math.inf)
    return 2.0


@pytest.mark.usefixtures("apart")
def test_a_loop_inside_a_loop_writes_no_file_for_each_of_its_rounds(folder: Path) -> None:
    for _ in track(range(100), name="outer"):
        assert list(track(LOADER, name="inner")) == LOADER
    run = read_run(folder)
    assert (run["name"], run["steps"], run["state"]) == ("outer", 100, "done")


def test_a_run_that_begins_soon_after_another_writes_when_it_lasts(folder: Path, apart: float) -> None:
    ProgressRun("short").end()
    run, at = ProgressRun("long"), time.perf_counter()
    run.count(1, at + apart - 0.5)
    assert [each["name"] for each in read_runs(folder)] == ["short"]
    run.count(2, at + apart + 0.1)
    assert [(each["name"], each["steps"]) for each in read_runs(folder)] == [("short", 0), ("long", 2)]
    run.end()
    assert [each["state"] for each in read_runs(folder)] == ["done", "done"]


def test_a_long_run_without_a_step_is_written_at_its_end(
    folder: Path, apart: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    ProgressRun("short").end()
    run, later = ProgressRun("long"), time.perf_counter() + apart
    monkeypatch.setattr(time, "perf_counter", lambda: later)
    run.end("failed")
    assert [(each["name"], each["state"]) for each in read_runs(folder)] == [("short", "done"), ("long", "failed")]
    run = ProgressRun("later")
    assert len(read_runs(folder)) == 3, "the last run began long ago"
    run.end()


@pytest.mark.slow
def test_a_million_steps_fit_and_lose_nothing(folder: Path) -> None:
    for _ in track(range(1_000_000), name="x" * 5000):
        pass
    [path] = folder.glob("*.json")
    assert path.stat().st_size <= MAX_BYTES
    run = read_run(folder)
    assert steps_of_groups(run) == run["steps"] == 1_000_000
    assert (folder.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (0o700, 0o600)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("\U0001f600" * 5000, "\U0001f600" * 80),
        ("\ud800 a\u202eb\n\x00c", "a b c"),
        (None, "None"),
        (17, "17"),
    ],
)
def test_a_file_stays_small_with_any_name(folder: Path, name: Any, shown: str) -> None:
    run, at = ProgressRun(name, total=2**52, epochs=2**52, epoch_steps=2**52, start=2**52, patience=2**52), 0.0
    for step in range(1, 128):
        run.count(step, time.perf_counter() + (at := at + 1.2346e-5 * step))
    run.end()
    assert read_run(folder)["name"] == shown
    assert next(folder.glob("*.json")).stat().st_size <= MAX_BYTES


class Unprintable:
    """A name that cannot be shown."""

    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize("number", [-1, math.nan, math.inf, "twenty", 10**30, None, [1]])
def test_numbers_that_mean_nothing_are_unknown(folder: Path, number: Any) -> None:
    assert list(track(LOADER, total=number, name=Unprintable(), patience=number)) == LOADER  # type: ignore[arg-type]
    ProgressRun(epochs=number, epoch_steps=number, start=number).end()
    for run in read_runs(folder):
        assert (run["start"], run["epochs"], run["epoch_steps"], run["patience"]) == (0, None, None, None)


@pytest.mark.parametrize("argument", ["epochs", "start"])
@pytest.mark.parametrize(
    ("value", "problem", "words"),
    [
        ("20", TypeError, "not str"),
        ([1], TypeError, "not list"),
        (1.5, TypeError, "not float"),
        (math.nan, TypeError, "not float"),
        (math.inf, TypeError, "not float"),
        (-1, ValueError, "not -1"),
        (10**30, ValueError, "not 10"),
    ],
)
def test_what_decides_on_the_steps_and_is_no_number_fails_at_the_call(
    folder: Path, argument: str, value: Any, problem: type[Exception], words: str
) -> None:
    with pytest.raises(problem, match=f"^track: {argument} must be a whole number from 0, {words}"):
        track(LOADER, **{argument: value})
    assert read_runs(folder) == []


class Twenty:
    """A whole number of another library, for example of numpy."""

    def __index__(self) -> int:
        return 20


@pytest.mark.parametrize(("epochs", "steps"), [(20.0, 60), (Twenty(), 60), (0, 0), (None, 3)])
def test_whole_numbers_of_any_type_are_taken(epochs: Any, steps: int) -> None:
    assert len(list(track(LOADER, epochs=epochs))) == steps


@pytest.mark.parametrize("variable", ["RANK", "LOCAL_RANK"])
def test_only_rank_0_writes(folder: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "1")
    assert list(track(LOADER)) == LOADER
    assert read_runs(folder) == []
    monkeypatch.setenv(variable, "0")
    assert list(track(LOADER)) == LOADER
    assert len(read_runs(folder)) == 1


def test_a_folder_that_was_there_before_keeps_its_mode(folder: Path) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o755)  # it may be a home or a project of several people
    list(track(LOADER))
    assert read_run(folder)["state"] == "done"
    assert folder.stat().st_mode & 0o777 == 0o755


def test_without_the_variable_it_is_the_folder_that_jupyter_uses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JUPYTERHUB_GPU_PROGRESS")
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "of-jupyter"))
    list(track(LOADER))
    assert read_run(tmp_path / "of-jupyter" / "gpu-progress")["steps"] == 3


def test_old_files_of_this_user_are_removed_and_nothing_else(folder: Path) -> None:
    folder.mkdir(parents=True)
    week = time.time() - 7 * 86_400 - 60
    others = ["mine.txt", "package.json", "results.tmp", "0123456789ABCDEF.json", f"{0:016}.json.bak", f"{1:017}.tmp"]
    for name in ("0" * 16 + ".json", "0" * 16 + ".tmp", "1" * 16 + ".json", *others):
        (folder / name).write_text("{}")
        written = week + 120 * name.startswith("1")
        os.utime(folder / name, (written, written))
    list(track(LOADER))
    kept = {path.name for path in folder.iterdir()}
    assert kept >= {"1" * 16 + ".json", *others}
    assert len(kept) == 2 + len(others)


def test_a_file_that_another_run_renames_meanwhile_hides_no_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(parents=True)
    for name in ("0" * 16 + ".tmp", "1" * 16 + ".json"):
        (folder / name).write_text("{}")
        os.utime(folder / name, (0, 0))

    def entries_of_before(path: str) -> Any:
        with real(path) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
        (folder / listed[0].name).unlink()
        return contextlib.nullcontext(listed)

    real = os.scandir
    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", entries_of_before)
        list(track(LOADER))
    assert read_run(folder)["state"] == "done"


def test_a_link_in_place_of_the_temporary_file_is_not_followed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("kept")
    steps = iter(track(LOADER))
    next(steps)
    [path] = folder.glob("*.json")
    path.with_suffix(".tmp").symlink_to(tmp_path / "precious")
    assert list(steps) == ["b", "c"]
    assert (tmp_path / "precious").read_text() == "kept"


@pytest.mark.parametrize("fault", ["a file in place of the folder", "a folder that may not be written", "gone"])
def test_a_training_goes_on_where_nothing_can_be_written(folder: Path, fault: str) -> None:
    folder.parent.mkdir()
    if fault == "a file in place of the folder":
        folder.write_text("")
    elif fault == "a folder that may not be written":
        folder.parent.chmod(0o500)
    steps = iter(track(LOADER))
    next(steps)
    if fault == "gone":
        next(folder.glob("*.json")).unlink()
        folder.rmdir()
    assert list(steps) == ["b", "c"]
    folder.parent.chmod(0o700)


def test_a_full_disk_leaves_the_last_good_file_or_none(folder: Path) -> None:
    steps = iter(track(range(100)))
    next(steps)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        assert len(list(steps)) == 99
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert read_run(folder)["state"] == "running"
    assert [path.suffix for path in folder.iterdir()] == [".json"]


@pytest.mark.slow
def test_a_reader_never_sees_half_a_file(folder: Path) -> None:
    run, read = ProgressRun(name="y" * 80), 0
    [path] = folder.glob("*.json")
    thread = threading.Thread(target=lambda: [run.write() for _ in range(2000)])
    thread.start()
    while thread.is_alive():
        assert json.loads(path.read_bytes())["name"] == "y" * 80
        read += 1
    thread.join()
    assert read > 10


def program(code: str, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


TRAINING = """
import os, sys, time
from hub_extensions.progress import ProgressRun, track
"""


@pytest.mark.programs
def test_a_killed_process_leaves_its_run_as_running(folder: Path) -> None:
    with program(TRAINING + "for i in track(range(10**6)):\n  print(i, flush=True); time.sleep(60)") as killed:
        assert killed.stdout is not None
        killed.stdout.readline()
        killed.kill()
        killed.wait(patient(10))
    run = read_run(folder)
    assert (run["state"], run["pid"]) == ("running", killed.pid)
    assert run["born"] is not None


@pytest.mark.programs
@pytest.mark.parametrize(
    ("end", "state"),
    [
        ("raise ValueError", "failed"),  # a hook of a library: nothing is called after an exception
        ("raise KeyboardInterrupt", "left"),
        ("sys.exit(1)", "left"),
        ("del run", "left"),
        ("pass", "left"),
        ("run.end()", "done"),
        ("os._exit(0)", "running"),
    ],
)
def test_what_a_program_that_ends_says_of_its_run(folder: Path, end: str, state: str) -> None:
    with program(TRAINING + f"run = ProgressRun(); run.count(1); {end}") as ended:
        ended.communicate(timeout=patient(10))
    assert read_run(folder)["state"] == state


@pytest.mark.programs
def test_processes_that_load_data_write_nothing(folder: Path) -> None:
    code = """
import multiprocessing
steps = iter(track(range(4), name="training"))
next(steps)
def load(n):
    return len(list(steps)), len(list(track(range(n), name="in a worker")))
with multiprocessing.get_context("fork").Pool(1) as pool:
    print(pool.map(load, [2, 3]), flush=True)  # a fork would print it again
if os.fork() == 0:
    list(steps); steps.close(); sys.exit()
os.wait()
print(list(steps))
"""
    with program(TRAINING + code) as parent:
        output, problems = parent.communicate(timeout=patient(20))
    assert (output, problems) == ("[(3, 2), (0, 3)]\n[1, 2, 3]\n", "")
    run = read_run(folder)
    assert (run["name"], run["steps"], run["state"], run["pid"]) == ("training", 4, "done", parent.pid)


@pytest.mark.programs
def test_the_writer_loads_the_standard_library_only() -> None:
    code = (
        "import sys; from hub_extensions import progress; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    with program(code) as asked:
        loaded = set(asked.communicate(timeout=patient(10))[0].split())
    of_this_python = {name.split(".")[0] for name in sys.modules if name.startswith(("_distutils", "sitecustomize"))}
    assert loaded - set(sys.stdlib_module_names) - of_this_python - {"__main__", "__mp_main__"} == {"hub_extensions"}
    with program("import sys; from hub_extensions import progress; print(*sys.modules)") as asked:
        ours = {name for name in asked.communicate(timeout=patient(10))[0].split() if name.startswith("hub_ext")}
    assert ours == {"hub_extensions", "hub_extensions.progress", "hub_extensions.progress.writer"}
