"""A log is played on a pool event by event; at each join that has to wait, everybody says how long.

The forecast is asked as the service asks it: who holds what since when, who waits, what ended before. Nothing of the
future is handed on, but for `progress`: that share of those who run reports its end, within 10 %.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass

from hub_extensions.core.queue.durations import DurationHistory, Left, UseHolder
from hub_extensions.core.queue.foretell import Foreteller, alike
from hub_extensions.core.queue.interval import Interval
from hub_extensions.core.queue.outlook import Likely, Stay
from hub_extensions.core.queue.play import HeldShares, SimulationState, Waiting, Wish
from hub_extensions.tools.backtest.baselines import LIMITS, Baselines, PointCorrection
from hub_extensions.tools.backtest.limit import bound_of
from hub_extensions.tools.backtest.log import Log, ReplayPool
from hub_extensions.tools.backtest.world import NEVER, LogSession, Running, World

HISTORY = 0.6
"""The share of the log that is history alone (the protocol)."""
WARM_UP = 0.1
"""Before that end forecasts begin to be made, so that the first that count can be corrected."""
POOL = "pool"
REPORTED = 0.1
"""A progress report is off by at most this."""


@dataclass(frozen=True, slots=True)
class ScoredForecast:
    """One forecast that counts: what each said, and what came true. Seconds. `bound`: "at most" of the limits."""

    number: int
    episode: int
    real: float
    ours: tuple[Interval, ...]
    raw: tuple[Interval, ...]
    others: Mapping[str, Interval]
    took: float
    bound: float | None = None


@dataclass(frozen=True, slots=True)
class _Asked:
    """What everybody said to one who waits; `episode` -1: it does not count. `others_told`: after their correction."""

    episode: int
    likely: list[Likely]
    others: dict[str, Interval]
    others_shown: dict[str, Interval]
    took: float
    bound: float | None
    limits: float | None


@dataclass
class _Forecaster:
    """The product's forecast with one seed, and its record of what came true."""

    seed: int
    foreteller: Foreteller


class Replay:
    """One log on one pool.

    Args:
        first: the place in the log of the first session whose forecast counts, where nothing is foretold before it;
            None: the protocol's, with its warm-up.
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
        self._log, self._pool, self._progress, self._every = log, pool, progress, every
        self._world = World(pool.gpus, pool.slices, pool.policy)
        self._devices = tuple(f"{number:05}" for number in range(pool.gpus))
        histories: dict[str, DurationHistory] = {}  # the seeds learn the same of them
        self._ours = [_Forecaster(seed, Foreteller(histories)) for seed in seeds]
        self._others = Baselines()
        self._corrections: dict[str, PointCorrection] = {}
        self._asked: dict[int, _Asked] = {}
        limits = [session.limit for session in log.sessions]
        self._longest = max((each for each in limits if each is not None), default=None) if all(limits) else None
        self._episode = 0
        self._first = int(HISTORY * len(log.sessions)) if first is None else first
        self._warm_up = WARM_UP * len(log.sessions) if first is None else 0.0
        self._reports = {
            session.number: random.Random(f"{session.number}").uniform(1 - REPORTED, 1 + REPORTED)
            for session in log.sessions
            if random.Random(f"report {session.number}").random() < progress
        }
        self.shown: list[ScoredForecast] = []

    def run(self) -> list[ScoredForecast]:
        """All of it; what was told of the last part, and came true."""
        first, queued = self._first, 0
        for session in self._log.sessions:
            self._until(session.submit)
            if session.number == first:
                self._others.fit()
            if not self._world.fits_ever(session):
                continue
            if not self._world.waiting:
                self._episode += 1
            self._world.waiting.append(session)
            if self._start(session.submit, asked=session):
                continue
            queued += 1
            if session.number >= first - self._warm_up:
                if queued % self._every == 0:
                    self._ask(session, counts=session.number >= first)
            else:
                self._others.see(self._world, session, session.submit)
        self._until(NEVER)
        return self.shown

    def _until(self, moment: float) -> None:
        world = self._world
        while world.next_end() <= moment and world.next_end() < NEVER:
            now = world.next_end()
            while world.next_end() <= now:
                over = world.end().session
                self._others.ended(over, over.duration, now)
                self._ours[0].foreteller.learn([_stay(over)])
            self._start(now)

    def _start(self, now: float, asked: LogSession | None = None) -> bool:
        """Whoever may; whether the one who just asked did."""
        started = self._world.start(now, lambda session: session.duration)
        for session in started:
            if session is not asked:
                self._others.started(session, now - session.submit)
                self._came_true(session, now - session.submit)
        return asked in started

    def _came_true(self, session: LogSession, wait: float) -> None:
        asked = self._asked.pop(session.number, None)
        if asked is None:
            return
        for ours, each in zip(self._ours, asked.likely, strict=True):
            ours.foreteller.matured(POOL, each.played, wait, asked.limits, session.submit)
        for name, point in asked.others.items():
            self._corrections.setdefault(name, PointCorrection()).matured(point.p50, wait)
        if asked.episode >= 0:
            shown = tuple(each.shown for each in asked.likely)
            raw = tuple(each.played for each in asked.likely)
            self.shown.append(
                ScoredForecast(
                    session.number, asked.episode, wait, shown, raw, asked.others_shown, asked.took, asked.bound
                )
            )

    def _ask(self, session: LogSession, *, counts: bool) -> None:
        now = session.submit
        played = {name: Interval(at, at, at) for name, at in self._others.predict(self._world, session, now).items()}
        shown = {
            name: self._corrections.get(name, PointCorrection()).around(point.p50) for name, point in played.items()
        }
        bound = self._others.bound()
        if bound is not None:
            median = played["median of the last 50"].p50
            shown["bound of the waits (QBETS)"] = Interval(0.0, median, max(median, bound))
        limits = played[LIMITS].p50 if self._pool.policy == "strict" and session.limit is not None else None
        began = time.process_time()
        likely = [self._forecast(ours, session, now, limits) for ours in self._ours]
        took = (time.process_time() - began) / len(likely)
        if all(each is not None for each in likely):
            known = [each for each in likely if each is not None]
            bound = None
            if counts and self._longest is not None and self._pool.policy == "strict":
                bound = bound_of(self._world, self._longest, now)
            episode = self._episode if counts else -1
            self._asked[session.number] = _Asked(episode, known, played, shown, took, bound, limits)

    def _forecast(self, ours: _Forecaster, session: LogSession, now: float, limits: float | None) -> Likely | None:
        name = str(session.number)
        most = {} if limits is None else {name: limits}
        return ours.foreteller.waits(self._state(now), ours.seed, (), most).tickets[name]

    def _state(self, now: float) -> SimulationState:
        held = tuple(self._held(running, now) for running in self._world.running.values())
        waiting = tuple(
            Waiting(str(each.number), (Wish(POOL, each.slices, _holder(each), each.devices),), now - each.submit)
            for each in self._world.waiting
        )
        return SimulationState({POOL: self._devices}, held, waiting, whole=self._pool.slices)

    def _held(self, running: Running, now: float) -> HeldShares:
        session, age = running.session, now - running.since
        left = None
        if session.number in self._reports:
            left = Left((session.duration - age) * self._reports[session.number], REPORTED / 2)
        shares = tuple((self._devices[place], session.slices) for place in running.places)
        return HeldShares(str(session.number), _holder(session, age, left), shares)


def _stay(session: LogSession) -> Stay:
    return Stay(
        str(session.number),
        session.user,
        POOL,
        session.devices,
        session.slices,
        session.submit,
        session.duration,
        session.limit is not None and session.duration >= session.limit,
        limit=session.limit,
    )


def _holder(session: LogSession, age: float | None = None, left: Left | None = None) -> UseHolder:
    kind = alike(session.devices, session.slices, session.limit)
    return UseHolder(session.user, kind, session.submit, age, session.limit, left)
