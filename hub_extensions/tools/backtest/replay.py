"""Derive the forecasts that would have been shown at the joins of a recorded log, after a first part to learn from."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hub_extensions.core.forecast.episodes import RULES, BusyEpisodes, Rules
from hub_extensions.core.forecast.interval import Interval
from hub_extensions.tools.backtest.baselines import LAST_FIFTY, PointCorrection
from hub_extensions.tools.backtest.log import Log, ReplayPool
from hub_extensions.tools.backtest.recorder import RecordedWait, Recorder

BOUND = "bound of the waits (QBETS)"


@dataclass(frozen=True, slots=True)
class Cut:
    """A division of a log into history, warm-up and test.

    Attributes:
        first: share of the sessions before the test.
        warm_up: share of the sessions, right before the test, whose forecasts are learned from but not scored.
    """

    first: float
    warm_up: float

    @property
    def name(self) -> str:
        """The name in the reports, like ``60/40, warm-up 10 %``."""
        return f"{100 * self.first:.0f}/{100 - 100 * self.first:.0f}, warm-up {100 * self.warm_up:.0f} %"

    def of(self, log: Log) -> tuple[int, int]:
        """Return the number of the first session of the test, and of the first session with a forecast."""
        sessions = len(log.sessions)
        return int(self.first * sessions), math.ceil(int(self.first * sessions) - self.warm_up * sessions)


PROTOCOL = Cut(0.6, 0.1)


@dataclass(frozen=True, slots=True)
class ScoredForecast:
    """The forecasts of all methods for one wait of the test, with the real wait, in seconds.

    Attributes:
        ours: the shown interval with each seed.
        raw: the simulated interval with each seed.
        took: processor seconds.
        bound: the upper bound by limits. None if no limit is enforced.
    """

    number: int
    episode: int
    real: float
    ours: tuple[Interval, ...]
    raw: tuple[Interval, ...]
    others: Mapping[str, Interval]
    took: float
    bound: float | None = None


class Replay:
    """One log replayed on one pool.

    Args:
        first: number of the first session whose forecast counts; no forecast is made before it. None for the
            protocol's, with its warm-up.
    """

    def __init__(
        self,
        log: Log,
        pool: ReplayPool,
        seeds: tuple[int, ...],
        progress: float = 0.0,
        every: int = 1,
        first: int | None = None,
    ) -> None:
        self._log = log
        self._first, self._since = PROTOCOL.of(log) if first is None else (first, first)
        self._recorder = Recorder(log, pool, seeds, self._since, progress, every)

    def run(self) -> list[ScoredForecast]:
        """Return the forecasts of the test."""
        return shown(self._log, self._recorder.run(), self._first, self._since)


def shown(
    log: Log, waits: Sequence[RecordedWait], first: int, since: int, rules: Rules = RULES
) -> list[ScoredForecast]:
    """Return the forecasts of the test.

    Args:
        waits: in the order in which they were over.
        first: number of the first session of the test.
        since: number of the first session with a forecast.
    """
    ours, others = our_forecasts(waits, since, rules), other_forecasts(waits, first, since)
    return [
        ScoredForecast(
            each.number,
            each.episode,
            each.real,
            ours[each.number],
            each.simulated,
            others[each.number],
            each.took,
            each.at_most,
        )
        for each in waits
        if each.number >= first and each.simulated
    ]


def our_forecasts(waits: Sequence[RecordedWait], since: int, rules: Rules) -> dict[int, tuple[Interval, ...]]:
    """Return the intervals that are shown at each join: session -> one interval for each seed."""
    episodes: list[BusyEpisodes] = []
    found: dict[int, tuple[Interval, ...]] = {}
    for wait, over in _in_time(waits, since):
        if over:
            for each, simulated in zip(episodes, wait.simulated, strict=True):
                each.matured(simulated, wait.real, wait.limits, wait.joined)
            continue
        episodes = episodes or [BusyEpisodes(rules) for _ in wait.simulated]
        found[wait.number] = tuple(
            each.lessons.shown(simulated, wait.limits, wait.first_joined, wait.joined)
            for each, simulated in zip(episodes, wait.simulated, strict=True)
        )
    return found


def other_forecasts(
    waits: Sequence[RecordedWait], first: int, since: int, more: Mapping[int, Mapping[str, float]] | None = None
) -> dict[int, dict[str, Interval]]:
    """Return the forecasts of the simple methods at each join, by number and name, with intervals by their last errors.

    Args:
        more: forecasts of further methods in seconds, by number and name.
    """
    corrections: dict[str, PointCorrection] = {}
    found: dict[int, dict[str, Interval]] = {}
    for wait, over in _in_time(waits, since):
        points = {**wait.points, **(more or {}).get(wait.number, {})}
        for name, point in points.items():
            correction = corrections.setdefault(name, PointCorrection())
            if over:
                correction.matured(point, wait.real)
            elif wait.number >= first:
                found.setdefault(wait.number, {})[name] = correction.around(point)
        if not over and wait.number >= first and wait.bound is not None:
            median = points[LAST_FIFTY]
            found[wait.number][BOUND] = Interval(0.0, median, max(median, wait.bound))
    return found


def _in_time(waits: Sequence[RecordedWait], since: int) -> Iterator[tuple[RecordedWait, bool]]:
    """Yield each wait for which a forecast is made at its join, and again, with True, when it is over."""
    asked = [each for each in waits if each.number >= since and each.simulated]
    over = iter(asked)
    ended = next(over, None)
    for wait in sorted(asked, key=lambda each: each.number):
        while ended is not None and ended.started <= wait.joined:
            yield ended, True
            ended = next(over, None)
        yield wait, False
    while ended is not None:
        yield ended, True
        ended = next(over, None)
