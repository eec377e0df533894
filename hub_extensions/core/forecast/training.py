"""Forecast when a training run will end, from the times of its steps. Uses the standard library only.

The level is the mean of the steps without the first one, times the remaining steps. The interval follows from how much
the means of blocks of several lengths differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

ABOUT, AT_LEAST, AT_MOST = "about", "at-least", "at-most"


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """What a training program has reported of itself; all numbers are checked.

    Attributes:
        run: id of the run.
        name: its name, at most 80 characters; "" if the program gave none.
        library: ``loop``, ``tqdm``, ``keras``, ``lightning``, ``transformers`` or ``fastai``.
        state: ``running``, ``done``, ``left``, ``failed`` or ``vanished``.
        started, at: wall-clock times of the start and of the report.
        steps: steps done in this run.
        start: steps of an earlier run that this one resumes; they took no time here.
        total: steps until the end, with `start`; `None` if it is not known.
        epochs: number of epochs; `None` if it is not known.
        epoch_steps: steps of an epoch; `None` if it is not known.
        first_seconds: duration of the first step; `None` before its end.
        group_steps: number of steps in each of `groups`.
        groups: durations of consecutive groups of steps in seconds, after the first step, the oldest first.
        rest_steps, rest_seconds: steps after the last group, and their duration in seconds.
        patience: epochs without improvement after which the run stops early; `None` without early stopping.
    """

    run: str
    name: str
    library: str
    state: str
    started: datetime
    at: datetime
    steps: int
    start: int
    total: int | None
    epochs: int | None
    epoch_steps: int | None
    first_seconds: float | None
    group_steps: int
    groups: tuple[float, ...]
    rest_steps: int
    rest_seconds: float
    patience: int | None = None


@dataclass(frozen=True, slots=True)
class PastForecast:
    """A forecast of the time left of an earlier run, and what it was, from which the interval is corrected.

    Attributes:
        progress: share of the steps that were done, 0 to 1.
        left_seconds: the forecast time left, before any correction.
        spread: its standard deviation of log(left), before any correction.
        actual_seconds: the time that was left.
    """

    progress: float
    left_seconds: float
    spread: float
    actual_seconds: float


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """The forecast of how long a run still takes.

    Attributes:
        seconds: likely time from the report to the end.
        low_seconds, high_seconds: 80 % interval.
        spread: standard deviation of log(seconds).
        bound: `ABOUT`, `AT_LEAST` or `AT_MOST`.
    """

    seconds: float
    low_seconds: float
    high_seconds: float
    spread: float
    bound: str


def time_left(run: TrainingRun, past: Sequence[PastForecast] = ()) -> TimeLeft | None:
    """Return how long a run still takes; `None` if its end is not known.

    Args:
        run: the run.
        past: forecasts of earlier finished runs that the interval is corrected by, the latest last.
    """
    raise NotImplementedError
