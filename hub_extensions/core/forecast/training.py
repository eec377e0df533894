"""Forecast when a training run will end, from the times of its steps. Uses the standard library only.

The level is the mean of the steps without the first one, times the remaining steps. The interval follows from how much
the means of blocks of several lengths differ, and is corrected by how earlier runs of the same pool came out. A pool is
the finished runs of one user that are alike, such as those of one name.
"""

from __future__ import annotations

import math
from bisect import bisect, insort
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median

ABOUT, AT_LEAST, AT_MOST = "about", "at-least", "at-most"

MARKS = (0.1, 0.25, 0.5, 0.75, 0.9)
"""Shares of the steps at which the forecast of a run is noted."""
BETWEEN = (0.16, 0.37, 0.63, 0.84)
"""Boundaries of progress. An interval is corrected only by forecasts from between the same two. Each boundary lies
halfway between two marks, as the ratio of done to remaining steps on a logarithmic scale."""
EARLIER = 60
"""Largest number of earlier forecasts that correct an interval, the latest ones (the reference measurement)."""
FEWEST = 8
"""Smallest number of earlier forecasts that correct an interval (the reference measurement)."""
COVERED = 0.8
"""Share of the runs whose end should lie within the interval."""
ADAPTATION = 0.15
"""Step size of the adaptive correction; chosen because coverage on development data was nearest 80 %."""
SHARES = (0.5, 0.95)
"""Least and largest share of the earlier errors that the adaptive correction covers."""
NORMAL = 1.2816
"""Half width of the 80 % interval of a normal distribution in standard deviations."""
FLOOR = 0.01
"""Least spread of an uncorrected forecast (the reference measurement)."""
LEAST_CORRECTED = 0.002
"""Least spread of a corrected forecast: the steps of a quiet machine differ by more."""
LARGEST = 1.0
"""Largest spread of a forecast: the service accepts no more of a report."""
MEMORIES = tuple(tenth / 10 for tenth in range(1, 11))
"""Exponents b that are tried in "the variance of a mean of m steps is v·m^-b": 1 if steps are independent, near 0 if
a slow step makes the next hundred slow as well."""
FEWEST_BLOCKS = 4
"""Smallest number of blocks of one length whose means are compared."""
START_SPREAD = 0.25
"""Extra spread at the start of a run, for example for a neighbour who comes onto the GPU. An estimate; unimportant once
earlier runs correct the interval."""
ONE_EPOCH_SHARE = 0.2
"""Share of the steps before which a forecast is "at least" if it is not known when the first epoch ends."""
PATIENT_SPREAD = 0.5
"""Least spread of an end that early stopping may bring forward."""
VALIDATED = 2.0
"""Longest time of an epoch with its validation, as a multiple of the time of its steps. There are fewer data for
validation than for training, and a step of it is cheaper, because nothing is differentiated."""
WINDOW = 6
"""Number of groups of steps whose median is the present rate. It is even and a multiple of three, so that validations
in each second or third group leave it as it is."""
SLOWER = 1.3
"""Ratio of the present to the usual time of a step from which a run counts as slower than before."""


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

    @property
    def progress(self) -> float | None:
        """Share of the steps of this run that are done, 0 to 1. `None` if their number is not known or was exceeded."""
        if self.total is None or self.start + self.steps > self.total:
            return None
        return self.steps / (self.total - self.start) if self.total > self.start else 1.0

    @property
    def timed_steps(self) -> int:
        """Number of steps whose durations are known: all but the first one."""
        return self.group_steps * len(self.groups) + self.rest_steps

    @property
    def step_seconds(self) -> float | None:
        """Mean duration of a step without the first one; `None` before the second step."""
        return (sum(self.groups) + self.rest_seconds) / self.timed_steps if self.timed_steps else None


@dataclass(frozen=True, slots=True)
class NotedForecast:
    """An uncorrected forecast of a run, kept until the run has ended.

    Attributes:
        progress: share of the steps that were done, 0 to 1.
        at: when it was made.
        left_seconds: the forecast time left at that time.
        spread: its standard deviation of log(left).
    """

    progress: float
    at: datetime
    left_seconds: float
    spread: float


@dataclass(frozen=True, slots=True)
class PastForecast:
    """A forecast of an earlier run, with the time that was really left. The interval is corrected by it.

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
        seconds: likely time from the report to the end. With `AT_MOST` the time that it takes at most, unless it
            becomes slower; with `AT_LEAST` the time without the validations, of which there was none yet.
        low_seconds, high_seconds: 80 % interval. With `AT_MOST` the lower end is the earliest possible end.
        spread: standard deviation of log(seconds).
        bound: `ABOUT`, `AT_LEAST` or `AT_MOST`.
    """

    seconds: float
    low_seconds: float
    high_seconds: float
    spread: float
    bound: str


def time_left(run: TrainingRun, past: Sequence[PastForecast] = ()) -> TimeLeft | None:
    """Return how long a run still takes.

    The result is "at least" until one epoch is over, because the time of a validation is not known before, and "at
    most" if early stopping may end the run.

    Args:
        run: the run.
        past: forecasts of earlier finished runs of the same pool that the interval is corrected by, the latest last.

    Returns:
        The forecast. `None` if the run is over, if its end is not known, if it has done more steps than it announced,
        or if no step after the first one is done.
    """
    raw = _level_and_spread(run)
    if raw is None:
        return None
    seconds, spread = raw
    place = bisect(BETWEEN, run.progress or 0.0)
    spread = _corrected(spread, [each for each in past if bisect(BETWEEN, each.progress) == place])
    factor = math.exp(NORMAL * spread)
    low, high = seconds / factor, seconds * factor
    early = run.steps <= _first_validation(run)
    if run.patience is None:
        return TimeLeft(seconds, low, high, spread, AT_LEAST if early else ABOUT)
    most = high * VALIDATED if early else high
    return TimeLeft(most, _earliest(run, low), most, max(spread, PATIENT_SPREAD), AT_MOST)


def forecast_to_note(run: TrainingRun, noted: Sequence[NotedForecast] = ()) -> NotedForecast | None:
    """Return the uncorrected forecast of a run if it is to be noted now; `None` if it passed no mark since the last.

    Args:
        run: the run.
        noted: its forecasts that were noted so far, the latest last.
    """
    progress, last = run.progress, noted[-1].progress if noted else 0.0
    if progress is None or not any(last < mark <= progress for mark in MARKS):
        return None
    raw = _level_and_spread(run)
    return None if raw is None or not raw[0] else NotedForecast(progress, run.at, *raw)


def past_forecasts(ended: TrainingRun, noted: Sequence[NotedForecast]) -> tuple[PastForecast, ...]:
    """Return what a finished run teaches about later ones of its pool.

    A run that ended before its last step, by early stopping or a mistake, teaches nothing.

    Args:
        ended: the last report of the run.
        noted: its forecasts that were noted while it ran.
    """
    if ended.state != "done" or ended.progress != 1.0:
        return ()
    return tuple(
        PastForecast(each.progress, each.left_seconds, each.spread, (ended.at - each.at).total_seconds())
        for each in noted
        if ended.at > each.at
    )


def present_step_seconds(run: TrainingRun) -> tuple[float, float | None] | None:
    """Return the present time of a step in seconds, and the usual one if the run has become slower than before.

    Returns:
        `None` before the end of the second step. The second value is `None` if the run is about as fast as before, or
        too short to tell.
    """
    mean = run.step_seconds
    if mean is None:
        return None
    rates = [seconds / run.group_steps for seconds in run.groups]
    if len(rates) < WINDOW:
        return mean, None
    medians = [median(rates[end - WINDOW : end]) for end in range(len(rates), WINDOW - 1, -WINDOW)]
    now, before = medians[0], medians[1:]
    if len(before) < 2:
        return now, None
    usual = median(before)
    return now, usual if now > SLOWER * usual else None


def _level_and_spread(run: TrainingRun) -> tuple[float, float] | None:
    """Return the time left in seconds and its standard deviation of log(left), both without a correction."""
    mean = run.step_seconds
    if run.state != "running" or run.progress is None or run.total is None or mean is None:
        return None
    remaining = run.total - run.start - run.steps
    if not math.isfinite(mean * remaining):
        return None
    if not mean * remaining:
        return 0.0, FLOOR
    rates = [seconds / run.group_steps / mean for seconds in run.groups]
    seen = _variance(rates, run.group_steps, run.timed_steps, remaining)
    unseen = START_SPREAD**2 * (1 - run.progress)
    return mean * remaining, min(LARGEST, math.sqrt(max(FLOOR**2, seen) + unseen))


def _variance(rates: list[float], length: int, done: int, remaining: int) -> float:
    """Return the variance of the difference between the mean of the done and of the remaining steps.

    The variance of a mean of m steps is taken as v·m^-b. Both numbers are fitted to the variances of the means of
    blocks of 1, 2, 4 … groups, each weighted by its degrees of freedom. Blocks of a run with a long memory lie nearer
    to each other than to what comes: of K blocks of m steps, v·m^-b - v·(K·m)^-b is seen.

    Args:
        rates: mean times of a step in the groups, in units of the mean of all steps.
        length: number of steps of a group.
        done, remaining: number of done and remaining steps.
    """
    found: list[tuple[int, int, float]] = []
    while len(rates) >= FEWEST_BLOCKS:
        middle = sum(rates) / len(rates)
        variance = sum((each - middle) ** 2 for each in rates) / (len(rates) - 1)
        if variance > 0:
            found.append((length, len(rates), variance))
        rates = [(rates[at] + rates[at + 1]) / 2 for at in range(len(rates) % 2, len(rates), 2)]
        length *= 2
    if not found:
        return 0.0
    best, fitted = math.inf, 0.0
    weight = sum(count - 1 for _, count, _ in found)
    for b in MEMORIES:
        logs = [
            (math.log(variance / (m**-b * (1 - count**-b) * count / (count - 1))), count - 1)
            for m, count, variance in found
        ]
        level = sum(log * freedom for log, freedom in logs) / weight
        misfit = sum((log - level) ** 2 * freedom for log, freedom in logs)
        if misfit < best:
            both = done + remaining
            shared = (both ** (2 - b) - done ** (2 - b) - remaining ** (2 - b)) / (done * remaining)
            best, fitted = misfit, math.exp(level) * (done**-b + remaining**-b - shared)
    return fitted


def _corrected(spread: float, past: Sequence[PastForecast]) -> float:
    """Return a spread that is corrected by earlier forecasts; the same one if there are too few of them.

    This is adaptive conformal inference (Gibbs and Candès, 2021): the share of the earlier errors that is to be covered
    starts at 80 %, rises with each of them that the interval of its time missed, and falls with each that it covered.
    """
    known = [
        (abs(math.log(each.actual_seconds) - math.log(each.left_seconds)) / NORMAL, min(each.spread, LARGEST))
        for each in past
        if each.actual_seconds > 0 and each.left_seconds > 0 and each.spread > 0
    ][-EARLIER:]
    if len(known) < FEWEST:
        return spread
    share, factors, constants = COVERED, list[float](), list[float]()
    for needed, said in known:
        if len(factors) >= FEWEST:
            missed = needed > _covering(said, factors, constants, share)
            share = min(max(share + ADAPTATION * (missed - (1 - COVERED)), SHARES[0]), SHARES[1])
        insort(factors, needed / said)
        insort(constants, needed**2 - said**2)
    return _covering(spread, factors, constants, share)


def _covering(spread: float, factors: Sequence[float], constants: Sequence[float], share: float) -> float:
    """Return a spread that would have covered a share of the earlier errors (conformal prediction).

    Where the earlier intervals were too wide it shrinks by a factor; where they were too narrow a constant is added in
    quadrature.

    Args:
        factors: for each earlier forecast the spread that it should have had at least, divided by the one that it had;
            sorted.
        constants: the differences of the squares of the two; sorted.
    """
    place = min(math.ceil(share * (len(factors) + 1)), len(factors)) - 1
    if factors[place] <= 1:
        return max(LEAST_CORRECTED, spread * factors[place])
    return min(LARGEST, math.sqrt(spread**2 + max(0.0, constants[place])))


def _first_validation(run: TrainingRun) -> float:
    """Return the number of steps of this run after which its first validation, if there is any, may still be missing.

    That is an epoch. A validation's time is counted in the next step, so it is known one step later. If there is one
    epoch only, or their number is not known, it is a share of the steps.
    """
    steps = (run.total or 0) - run.start
    epoch = run.epoch_steps or (steps / run.epochs if run.epochs else None)
    return epoch if epoch is not None and epoch < steps else ONE_EPOCH_SHARE * steps


def _earliest(run: TrainingRun, low: float) -> float:
    """Return the least time in seconds until early stopping may end the run.

    The first epoch is always the best so far, and `patience` epochs without improvement have to follow.

    Args:
        low: lower end of the interval without early stopping.
    """
    remaining = (run.total or 0) - run.start - run.steps
    if not run.epoch_steps or not remaining:
        return 0.0
    needed = ((run.patience or 0) + 1) * run.epoch_steps - run.start - run.steps
    return low * min(1.0, max(0.0, needed / remaining))
