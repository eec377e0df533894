"""A whole service without HTTP: real state, real store, real clock and processes; a hub and GPUs as told."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

from hub_extensions.adapters.linux import procfs
from hub_extensions.core.culling import CullPolicy, ServerFacts
from hub_extensions.core.gpu.devices import Device
from hub_extensions.core.messages import Ask, Ended, Started, TicketStatus
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.queue.model import QueueLimits
from hub_extensions.core.stops import Cause, StopCause
from hub_extensions.core.stops.lifecycle import announce, begin, running
from hub_extensions.hub_service.engine.engine import Engine
from hub_extensions.hub_service.engine.forecasts.calculator import ForecastCalculator
from hub_extensions.hub_service.engine.forecasts.forecast_worker import ForecastWorker
from hub_extensions.hub_service.engine.line.reconcile import ServiceApart
from hub_extensions.hub_service.engine.state.clock import RunningClock
from hub_extensions.hub_service.setup.settings import Settings
from tests.fakes.empty_store import open_store
from tests.fakes.machine import GpusAsTold, HubAsTold, large, small

LAB = (large(), *(small(n) for n in range(5)))


class Hands:
    """The machine's clocks in a test's hands."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.wall = datetime(2026, 1, 5, 12, tzinfo=timezone.utc)

    def pass_time(self, span: timedelta) -> None:
        self.seconds += span.total_seconds()
        self.wall += span

    def unix_time(self) -> float:
        """The wall clock as Prometheus writes it."""
        return self.wall.timestamp()


class Room:
    """An engine and what stands around it."""

    def __init__(self, engine: Engine, hub: HubAsTold, gpus: GpusAsTold, hands: Hands, path: Path) -> None:
        self.engine = engine
        self.hub = hub
        self.gpus = gpus
        self.hands = hands
        self.path = path
        self.children: list[subprocess.Popen[bytes]] = []

    async def ask(self, user: str, *offers: str, server: str = "") -> TicketStatus:
        self.hub.run(user, server, ready=False)
        return await self.engine.ask(Ask(user, server, tuple(map(OfferId, offers)), {"offers": list(offers)}))

    def process(self, state: TicketStatus, code: str = "import time; time.sleep(60)") -> subprocess.Popen[bytes]:
        """A real process with the mark of the ticket's lease, as a spawner starts it."""
        assert state.grant is not None
        child = subprocess.Popen(
            [sys.executable, "-c", code], env={**os.environ, **state.grant.environment}, start_new_session=True
        )
        self.children.append(child)
        return child

    async def ready(self, state: TicketStatus) -> subprocess.Popen[bytes]:
        """Start the server of an admitted ticket for real and tell the engine that it is ready."""
        child = self.process(state)
        told = Started(state.attempt, child.pid, procfs.start_time(child.pid))
        await self.engine.started(state.ticket, told)
        await self.engine.started(state.ticket, replace(told, ready=True))
        self.hub.run(state.user, state.server, pid=child.pid)
        return child

    async def run(self, user: str, *offers: str) -> tuple[TicketStatus, subprocess.Popen[bytes]]:
        state = await self.ask(user, *offers)
        assert state.answer == "admit", state
        return state, await self.ready(state)

    async def left(self, state: TicketStatus) -> None:
        await self.engine.ended(state.ticket, Ended(state.attempt, "left"))

    def positions(self) -> dict[str, int]:
        return {self.engine.state.tickets[each.ticket].user: each.position for each in self.engine.queue.states()}


def settings(path: Path, **changes: object) -> Settings:
    made = Settings(
        state_dir=str(path),
        hub_secret=secrets.token_hex(8),
        api_token=secrets.token_hex(8),
        queue=QueueLimits(),
        culling=CullPolicy(
            enabled=True,
            idle=timedelta(minutes=3),
            warn=timedelta(minutes=1),
            keep=timedelta(minutes=3),
            lifetime=timedelta(minutes=30),
            grace=timedelta(0),
        ),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


@asynccontextmanager
async def room(
    path: Path,
    *devices: Device,
    hub: HubAsTold | None = None,
    hands: Hands | None = None,
    apart: ServiceApart | None = None,
    calculator: ForecastCalculator | ForecastWorker | None = None,
    **changes: object,
) -> AsyncIterator[Room]:
    """A service on these devices; on the same path it goes on with what the last one stored.

    Without another `calculator` it computes the likely waits itself, and starts no worker process.
    """
    hub = hub or HubAsTold()
    hands = hands or Hands()
    gpus = GpusAsTold(*(devices or LAB))
    made = settings(path, **changes)
    store = open_store(made.store_url)
    engine = await Engine.open(made, store, hub, gpus, apart, calculator or ForecastCalculator())  # type: ignore[arg-type]
    kept = None if engine.state.first_start else engine.state.clock.now()
    engine.state.clock = RunningClock(kept, monotonic=lambda: hands.seconds, utc_now=lambda: hands.wall)
    await engine.watcher.refresh()
    there = Room(engine, hub, gpus, hands, path)
    try:
        yield there
    finally:
        await engine.stop()
        store.close()
        for child in there.children:
            if child.poll() is None:
                child.kill()
            child.wait()


def is_stopped(r: Room, user: str = "ada") -> bool:
    """Whether the user's default server is being stopped now."""
    return r.engine.state.is_being_stopped(user, "")


def begin_stop(r: Room, user: str, *, saves: bool = True) -> None:
    """The drain of the user's default server has begun, or not yet."""
    state, now = r.engine.state, r.engine.state.clock.now()
    facts = state.facts.setdefault((user, ""), ServerFacts(user, "", CPU, now))
    key = (user, "", facts.lease or "")
    cause = StopCause(Cause.IDLE, now, True, "left")
    state.stops = {key: begin(announce(running(key, facts.started), (cause,)), (), now)} if saves else {}
