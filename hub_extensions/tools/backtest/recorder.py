"""Replay a log on a pool (set of equal GPUs) and record the forecasts of all methods for each session that has to wait.

The forecasts are made when the session joins the line. Our forecast gets the same inputs as in the service: the
sessions that hold GPUs, the sessions that wait, and the sessions that have ended. It knows the future only through
`progress`: this share of the running sessions reports when it will end, as a training does (`REPORTED`). The texts of
the service are derived from the recording later (``replay.py``), so that other rules need no second simulation.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hub_extensions.core.forecast.durations import DurationHistory, Left, UseHolder
from hub_extensions.core.forecast.inputs import kind_of_use
from hub_extensions.core.forecast.interval import Interval
from hub_extensions.core.forecast.results import Stay
from hub_extensions.core.forecast.simulate import HeldShares, SimulationState, Waiting, Wish
from hub_extensions.core.forecast.wait_model import WaitModel
from hub_extensions.tools.backtest.baselines import LIMITS, Baselines
from hub_extensions.tools.backtest.limit import bound_of
from hub_extensions.tools.backtest.log import Log, ReplayPool
from hub_extensions.tools.backtest.world import NEVER, LogSession, Running, World

POOL = "pool"
REPORTED = (0.03, 0.3)
"""Standard deviations of log(reported / real remaining time): of a training on a GPU of its own, and on a contended one
(``core/forecast/training.py``). Each reporting session has one of them, and reports it as its spread."""
REPORTED_FROM = 0.1
"""Share of a session's duration before which it reports nothing: the first of ten epochs, in which only "at least" is
known."""


@dataclass(slots=True)
class RecordedWait:
    """One session that had to wait, with the forecasts that were made when it joined the line. Times are seconds.

    Attributes:
        number: number of the session in the log.
        episode: number of the busy episode, which lasts from the first waiting session until the line is empty.
        joined: when the session joined the line.
        first_joined: when the first session in line joined; None if this session is the first.
        state: numbers that describe the line at the join, from the function `describe` of the `Recorder`; empty without
            it.
        simulated: our forecast before the correction by past errors, an interval for each random seed; empty if no
            forecast was made.
        points: name of a simple method -> its forecast.
        bound: the upper bound by the method QBETS; None if too few waits were known.
        limits: the wait if all sessions last until their time limits; None if the limits are not known.
        at_most: the upper bound that the GPU service would show; None if no limit is enforced.
        took: processor time of our forecast.
        started: when the session started and the wait was over.
    """

    number: int
    episode: int
    joined: float
    first_joined: float | None
    state: list[float] = field(default_factory=list)
    simulated: tuple[Interval, ...] = ()
    points: Mapping[str, float] = field(default_factory=dict)
    bound: float | None = None
    limits: float | None = None
    at_most: float | None = None
    took: float = 0.0
    started: float = NEVER

    @property
    def real(self) -> float:
        """The real wait of the session, in seconds."""
        return self.started - self.joined


class Recorder:
    """Replays one log on one pool and records the waits.

    Args:
        log: the sessions to replay.
        pool: the GPUs on which they are replayed.
        seeds: random seeds. Our forecast is made once with each of them.
        since: number of the first session for which forecasts are made.
        progress: share of the sessions that report when they will end.
        every: a forecast is made for every n-th wait only.
        describe: returns numbers that describe the line at a join, for further methods that learn from them; None for
            no such methods.
    """

    def __init__(
        self,
        log: Log,
        pool: ReplayPool,
        seeds: tuple[int, ...],
        since: int,
        progress: float = 0.0,
        every: int = 1,
        describe: Callable[[Baselines, World, LogSession, float], list[float]] | None = None,
    ) -> None:
        self._log, self._pool, self._since, self._every, self._describe = log, pool, since, every, describe
        self._world = World(pool.gpus, pool.slices, pool.policy)
        self._devices = tuple(f"{number:05}" for number in range(pool.gpus))
        histories: dict[str, DurationHistory] = {}  # the seeds learn the same of them
        self._ours = [(seed, WaitModel(histories)) for seed in seeds]
        self._others = Baselines()
        self._waiting: dict[int, RecordedWait] = {}
        limits = [session.limit for session in log.sessions]
        self._longest = max((each for each in limits if each is not None), default=None) if all(limits) else None
        self._episode = 0
        self._reports = {
            session.number: _report(random.Random(f"{session.number}"))
            for session in log.sessions
            if random.Random(f"report {session.number}").random() < progress
        }
        self._recorded: list[RecordedWait] = []

    def run(self) -> list[RecordedWait]:
        """Replay the whole log of sessions and return their waits, in the order in which the sessions started."""
        queued = 0
        for session in self._log.sessions:
            self._until(session.submit)
            if not self._world.fits_ever(session):
                continue
            if not self._world.waiting:
                self._episode += 1
            self._world.waiting.append(session)
            if self._start(session.submit, asked=session):
                continue
            queued += 1
            head = self._world.waiting[0]
            wait = RecordedWait(
                session.number,
                self._episode,
                session.submit,
                None if head is session else head.submit,
            )
            if self._describe is not None:
                wait.state = self._describe(self._others, self._world, session, session.submit)
            self._waiting[session.number] = wait
            if session.number >= self._since and queued % self._every == 0:
                self._ask(session, wait)
        self._until(NEVER)
        return self._recorded

    def _until(self, moment: float) -> None:
        world = self._world
        while world.next_end() <= moment and world.next_end() < NEVER:
            now = world.next_end()
            while world.next_end() <= now:
                over = world.end().session
                self._others.ended(over, over.duration, now)
                self._ours[0][1].learn([_stay(over)])
            self._start(now)

    def _start(self, now: float, asked: LogSession | None = None) -> bool:
        """Start all waiting sessions that may start now.

        Args:
            now: the current time of the replay.
            asked: the session that has just joined the line; None if no session has joined.

        Returns:
            True if the session `asked` was started and so did not have to wait; otherwise, and without `asked`, False.
        """
        started = self._world.start(now, lambda session: session.duration)
        for session in started:
            if session is not asked:
                self._others.started(now - session.submit)
                wait = self._waiting.pop(session.number)
                wait.started = now
                self._recorded.append(wait)
        return asked in started

    def _ask(self, session: LogSession, wait: RecordedWait) -> None:
        now = session.submit
        wait.points = self._others.predict(self._world, session, now)
        wait.bound = self._others.bound()
        if self._pool.policy == "strict" and session.limit is not None:
            wait.limits = wait.points[LIMITS]
        began = time.process_time()
        state = self._state(now)
        likely = [model.waits(state, seed, now=now).tickets[str(session.number)] for seed, model in self._ours]
        wait.took = (time.process_time() - began) / len(likely)
        known = tuple(each.played for each in likely if each is not None)
        if len(known) == len(likely):
            wait.simulated = known
            if self._longest is not None and self._pool.policy == "strict":
                wait.at_most = bound_of(self._world, self._longest, now)

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
        if session.number in self._reports and age >= REPORTED_FROM * session.duration:
            ratio, spread = self._reports[session.number]
            left = Left((session.duration - age) * ratio, spread)
        shares = tuple((self._devices[place], session.slices) for place in running.places)
        return HeldShares(str(session.number), _holder(session, age, left), shares)


def _report(rng: random.Random) -> tuple[float, float]:
    """Return the reported remaining time divided by the real one, and the reported spread."""
    spread = rng.choice(REPORTED)
    return math.exp(rng.gauss(0, spread)), spread


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
    kind = kind_of_use(session.devices, session.slices, session.limit)
    return UseHolder(session.user, kind, session.submit, age, session.limit, left)
