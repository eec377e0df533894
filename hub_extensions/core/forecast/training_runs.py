"""Decide what is shown and reported of the training runs of one server.

Whether the process of a run still works is judged by evidence: what /proc shows of it, and whether its file is still
updated. A process that was never seen may belong to another container that shares the folder of progress files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from hub_extensions.core.forecast.progress import LONGEST, NO_INFORMATION
from hub_extensions.core.forecast.progress_file import DONE, RUNNING, VANISHED
from hub_extensions.core.forecast.training import (
    ABOUT,
    AT_MOST,
    TimeLeft,
    TrainingRun,
    present_step_seconds,
)
from hub_extensions.core.messages import Progress, Training

SILENT = timedelta(minutes=10)
"""A run whose process cannot be seen counts as running only if its file was updated within this time."""
UNSEEN = timedelta(seconds=10)
"""A process that was never seen is gone if its file was not updated for this time, or for `UNSEEN_STEPS` steps."""
UNSEEN_STEPS = 2
SHOWN = timedelta(hours=12)  # how long a run that ended is shown
NEXT = timedelta(seconds=10)
REPORT_SECONDS = 30.0
REPEAT_SECONDS = 300.0  # a report is sent again although no step was done since: the service may have restarted
CHANGED = 0.1  # an end is reported earlier if the time left differs by this part


@dataclass(frozen=True, slots=True)
class Trace:
    """What is known about the process of one run.

    Attributes:
        seen: whether the process was seen here.
        outside: whether it was not started by this server.
        missing: when it was first not found (wall-clock time); `None` if it was found each time, or cannot be searched.
        gone: whether it has ended.
    """

    seen: bool = False
    outside: bool = False
    missing: datetime | None = None
    gone: bool = False

    @property
    def ours(self) -> bool:
        """Return whether the process was seen, and belongs to this server."""
        return self.seen and not self.outside


def followed(trace: Trace, run: TrainingRun, alive: bool | None, ours: bool, now: datetime) -> Trace:
    """Return what is known about the process of a run after another look.

    Args:
        trace: what was known before.
        run: the latest report of the run.
        alive: whether the process exists here; `None` if that cannot be seen.
        ours: whether it is a process of this server, if it exists.
        now: wall-clock time.
    """
    if alive is None:
        return trace
    if alive:
        return Trace(seen=True, outside=not (ours or trace.ours))  # a daemon that leaves its terminal stays ours
    missing = trace.missing or now
    if trace.seen:
        return replace(trace, missing=missing, gone=True)
    if trace.outside or run.at > missing + timedelta(seconds=1):
        return Trace(outside=True, missing=missing)  # it reports, and is not here: it is in another container
    step = step_seconds(run) or 0.0
    patience = min(max(UNSEEN, timedelta(seconds=UNSEEN_STEPS * step)), SILENT)
    return Trace(missing=missing, gone=missing < now and now - run.at >= patience)


def state_of(run: TrainingRun, trace: Trace) -> str:
    """Return the state of a run: as it was reported, or `VANISHED` if its process has ended without a report."""
    return VANISHED if run.state == RUNNING and trace.gone else run.state


def is_shown(run: TrainingRun, trace: Trace, alive: bool | None, now: datetime) -> bool:
    """Return whether the panel shows a run.

    A run that ended is shown for `SHOWN`. A run that goes on is shown while its process is seen or its file is updated.
    """
    if state_of(run, trace) != RUNNING:
        return now - run.at < SHOWN
    return alive is True or now - run.at < SILENT


def step_seconds(run: TrainingRun) -> float | None:
    """Return the mean duration of a step without the first one; `None` before the second step."""
    steps = len(run.groups) * run.group_steps + run.rest_steps
    return (sum(run.groups) + run.rest_seconds) / steps if steps else None


def length_seconds(run: TrainingRun) -> float:
    """Return the time from the start of a run to its last report."""
    return (run.at - run.started).total_seconds()


def done_steps(run: TrainingRun) -> int:
    """Return the steps that are done, with those of an earlier run that this one resumes."""
    return run.start + run.steps


def epoch_of(run: TrainingRun) -> int | None:
    """Return the present epoch, from 1; `None` if the number of steps in an epoch is not known."""
    steps = run.epoch_steps
    if not steps and run.epochs and run.total:
        steps = max(1, round(run.total / run.epochs))
    if not steps:
        return None
    epoch = done_steps(run) // steps + 1
    return epoch if run.epochs is None else min(epoch, run.epochs)


@dataclass(frozen=True, slots=True)
class Followed:
    """A run with all that was found out about it.

    Attributes:
        state: as `state_of` returns it.
        left: how long it still takes; `None` if that is not known, or if it has ended.
        usual_seconds, usual_runs: median length of earlier runs of that name, and their number.
        notify: whether the user wishes a notice at the end.
    """

    run: TrainingRun
    trace: Trace
    state: str
    left: TimeLeft | None = None
    usual_seconds: float | None = None
    usual_runs: int = 0
    notify: bool = False

    @property
    def running(self) -> bool:
        """Return whether the run goes on."""
        return self.state == RUNNING


def training_of(followed: Followed) -> Training:
    """Return what the panel shows of a run."""
    run, left = followed.run, followed.left
    present, usual = (present_step_seconds(run) if followed.running else None) or (None, None)
    return Training(
        run=run.run,
        name=run.name,
        library=run.library,
        state=followed.state,
        outside=followed.trace.outside,
        started=run.started,
        at=run.at,
        steps=done_steps(run),
        total_steps=run.total,
        epoch=epoch_of(run),
        epochs=run.epochs,
        step_seconds=step_seconds(run) if usual is None else present,
        left_seconds=None if left is None else left.seconds,
        low_seconds=None if left is None else left.low_seconds,
        high_seconds=None if left is None else left.high_seconds,
        bound="" if left is None else left.bound,
        usual_step_seconds=usual,
        usual_seconds=followed.usual_seconds,
        usual_runs=followed.usual_runs,
        ended_at=None if followed.running else run.at,
        notify=followed.notify,
    )


def in_order(runs: Iterable[Followed]) -> list[Followed]:
    """Return the runs that go on, the one with the most time left first, then the ended ones, the latest first."""

    def place(each: Followed) -> tuple[int, float]:
        if not each.running:
            return 2, -each.run.at.timestamp()
        return (1, -each.run.started.timestamp()) if each.left is None else (0, -each.left.seconds)

    return sorted(runs, key=place)


# ------------------------------------------------------------------ reports to the service


def next_report(last: Progress | None, runs: Sequence[Followed], now: datetime, seconds: float) -> Progress | None:
    """Return what to report to the service now; `None` if there is nothing new to report.

    Of several runs, the end of the one with the most time left is reported. If one of them has no known end, the server
    has none either: then nothing is reported, and a reported end is withdrawn by a spread of 1. 0 seconds are left when
    no run goes on, and no other has begun within `NEXT`, as one does in a loop of trainings. A run that ended
    otherwise than `DONE` withdraws the reported end at once, so that an interruption does not make the report wrong.

    Args:
        last: the previous report; `None` before the first one.
        runs: all runs. Only those whose process was seen in this server count, because another server of the user may
            share the folder.
        now: wall-clock time.
        seconds: time since the previous report.
    """
    ours = [each for each in runs if each.trace.ours]
    going = [each for each in ours if each.running]
    known = [(each.run, each.left) for each in going if each.left is not None and each.left.bound in (ABOUT, AT_MOST)]
    is_broken_off = (
        last is not None
        and last.left_seconds > 0
        and last.spread < NO_INFORMATION
        and any(each.state not in (RUNNING, DONE) and each.run.at >= last.at for each in ours)
    )
    if known and len(known) == len(going) and not is_broken_off:
        wanted = max((_progress(run, left, last) for run, left in known), key=_end)
        return wanted if last is None or _is_due(last, wanted, seconds) else None
    if last is None or last.left_seconds == 0:
        return None
    at = max(now, last.at)  # a report must not be dated before the last one
    if going:
        return Progress(at, _expected(last, at), NO_INFORMATION) if last.spread < NO_INFORMATION else None
    if is_broken_off or not ours:
        return Progress(at, 0.0, NO_INFORMATION)
    return Progress(at, 0.0) if all(now - each.run.at >= NEXT for each in ours) else None


def _is_due(last: Progress, wanted: Progress, seconds: float) -> bool:
    if last.left_seconds == 0 or last.spread >= NO_INFORMATION > wanted.spread:
        return True
    expected = _expected(last, wanted.at)
    changed = abs(wanted.left_seconds - expected) > CHANGED * expected
    return seconds >= REPEAT_SECONDS or (wanted != last and (seconds >= REPORT_SECONDS or changed))


def _end(progress: Progress) -> datetime:
    return progress.at + timedelta(seconds=progress.left_seconds)


def _progress(run: TrainingRun, left: TimeLeft, last: Progress | None) -> Progress:
    at = run.at if last is None else max(run.at, last.at)
    seconds = left.seconds - (at - run.at).total_seconds()
    # 0 means that the run has ended, so one that goes on has at least a second left
    return Progress(at, min(max(1.0, seconds), LONGEST.total_seconds()), min(max(0.0, left.spread), 1.0))


def _expected(last: Progress, at: datetime) -> float:
    """Return the time left at a later time if the last report was right, at least a second."""
    return max(1.0, last.left_seconds - (at - last.at).total_seconds())
