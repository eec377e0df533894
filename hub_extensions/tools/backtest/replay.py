"""Derive from a recording (``recorder.py``) the forecasts that the service would have shown to each waiting session.

The service corrects its forecast by its past errors. So the first part of a log serves only to learn them. The
forecasts for the rest of the log, the test, are scored.
"""

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
    """The division of a log into history, from which only durations are learned, warm-up, and test.

    Attributes:
        first: share of the sessions before the test.
        warm_up: share of the sessions, right before the test, for which forecasts are made and learned from, but not
            scored. For earlier sessions no forecast is made.
    """

    first: float
    warm_up: float

    @property
    def name(self) -> str:
        """The name of this division of a log in the reports, like ``60/40, warm-up 10 %``."""
        return f"{100 * self.first:.0f}/{100 - 100 * self.first:.0f}, warm-up {100 * self.warm_up:.0f} %"

    def of(self, log: Log) -> tuple[int, int]:
        """Divide a log: compute at which sessions its warm-up and its test begin.

        Returns:
            Two numbers of sessions. From the first number on, the sessions are the test, whose forecasts are scored.
            From the second, smaller number on, forecasts are made; the sessions between the two are the warm-up.
        """
        sessions = len(log.sessions)
        return int(self.first * sessions), math.ceil(int(self.first * sessions) - self.warm_up * sessions)


PROTOCOL = Cut(0.6, 0.1)


@dataclass(frozen=True, slots=True)
class ScoredForecast:
    """The forecasts of all methods for one wait of the test, with the real wait. Times are seconds.

    Attributes:
        number: number of the session in the log.
        episode: number of its busy episode, from the first waiting session until the line is empty.
        real: the real wait.
        ours: the interval that the GPU service would show, for each random seed.
        raw: the intervals of our forecast before they are corrected by past errors, for each random seed.
        others: name of a simple method -> its interval.
        took: processor time of our forecast.
        bound: the upper bound of the wait by time limits; None if no limit is enforced.
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
    """Replays one log on one pool (a set of equal GPUs), and returns the forecasts that the service would have shown.

    Args:
        log: the sessions to replay.
        pool: the GPUs on which they are replayed.
        seeds: random seeds. Our forecast is made once with each of them.
        progress: share of the sessions that report when they will end.
        every: a forecast is made for every n-th wait only.
        first: number of the first session of the test (the scored part); no forecast is made before it. If None, the
            test is the last 40 % of the log (`PROTOCOL`). Then forecasts are also made for a warm-up before the test,
            but not scored.
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
        """Replay the log and return the forecasts for the sessions of the test."""
        return shown(self._log, self._recorder.run(), self._first, self._since)


def shown(
    log: Log, waits: Sequence[RecordedWait], first: int, since: int, rules: Rules = RULES
) -> list[ScoredForecast]:
    """Return the forecasts for the sessions of the test (the scored part of the log), with the real waits.

    Args:
        log: the log that was replayed.
        waits: the recording, in the order in which the sessions started.
        first: number of the first session of the test.
        since: number of the first session with a forecast.
        rules: how past errors correct our forecast.
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
    """Return number of a session -> the intervals that the GPU service would show when it joins the line.

    There is one interval for each random seed of the forecast.

    Args:
        waits: the recording, in the order in which the sessions started.
        since: number of the first session with a forecast.
        rules: how past errors correct the forecast.
    """
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
    """Return number of a session -> name of a simple method -> its interval when the session joins the line.

    Args:
        waits: the recording, in the order in which the sessions started.
        first: number of the first session for which intervals are returned.
        since: number of the first session with a forecast.
        more: number of a session -> further method -> its point forecast in seconds; None for no further methods.
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
    """Yield each wait with a forecast twice, in the order in which sessions joined the line and started.

    The flag is False when the session joins the line, because the forecast is made then. It is True when the session
    starts, because the real wait is then known and the methods learn from it.

    Args:
        waits: the recording, in the order in which the sessions started.
        since: number of the first session with a forecast.
    """
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
