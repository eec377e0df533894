"""Measure the cost of the likely waits: the computation, the loop and form beside it, and the memory of a long history.

The floor is the same line played in plain Python, once for each of 200 draws (``tools/backtest/world.py``): what a
simulation without arrays costs for one ticket. Times are of a processor, but for the form's, which people wait for.
"""

from __future__ import annotations

import asyncio
import gc
import random
import tempfile
import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

from benchmarks.figures import latency_row
from benchmarks.loop_steps import Steps
from hub_extensions.adapters.store import Changes, TicketRow
from hub_extensions.core.forecast.results import Stay
from hub_extensions.core.forecast.wait_model import WaitModel
from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.messages import UsageRecord
from hub_extensions.core.offers.model import OfferConfig
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.model import Lease, LeaseState, QueueLimits, Ticket, WantedOffer
from hub_extensions.hub_service.engine.forecasts.forecast_worker import ForecastWorker
from hub_extensions.tools.backtest.world import LogSession, Running, World
from tests.fakes.machine import large, small
from tests.hub_service.engine.room import Room, room

SMALL, LARGE = OfferId("mig-1g.5gb"), OfferId("mig-3g.20gb")
DRAWS = 200
NOW = datetime(2026, 11, 1, 12, tzinfo=timezone.utc)
SIZES = ((7, 3), (40, 20), (200, 100), (2000, 1000))
RECORDS = 100_000
FORMS = 200


def floor(running: int, waiting: int) -> float:
    """Seconds of a processor for one ticket, the last in line: 200 draws, each played in plain Python."""
    rng, world = random.Random(16), World(running, 1)
    for n in range(running + waiting):
        session = LogSession(n, float(n), rng.lognormvariate(8, 1), 1, 1, f"u{n}", None)
        if n < running:
            world.running[n], world.free[n] = Running(session, 0.0, (n,)), 0
        else:
            world.waiting.append(session)
    times = DRAWS if running < 1000 else 5
    began = time.process_time()
    for _ in range(times):
        world.planned(
            0.0, lambda each: rng.lognormvariate(8, 1), lambda each: rng.lognormvariate(8, 1), running + waiting - 1
        )
    return (time.process_time() - began) / times * DRAWS


async def fill(r: Room, running: int, waiting: int, *, both: bool) -> None:
    """Everybody holds one of the running, and the rest wait; `both`: each for two offers."""
    now, rng = r.engine.state.clock.now(), random.Random(16)
    leases = []
    for n, each in enumerate(state.device for state in r.engine.state.devices.values()):
        since = now - timedelta(minutes=rng.uniform(1, 300))
        leases.append(
            Lease(
                f"l{n}", "", f"u{n % (running // 2 + 1)}", f"s{n}", OfferId(each.pool), each.identity, each.uuid,
                each.pool, WHOLE, LeaseState.RUNNING, since, since, since + timedelta(hours=12),
            )
        )  # fmt: skip
    offers = sorted({lease.offer for lease in leases})
    tickets = [
        Ticket(
            f"t{n}",
            f"w{n}",
            "",
            tuple(WantedOffer(offer, n + 1) for offer in (offers if both else [offers[n % len(offers)]])),
            now,
        )
        for n in range(waiting)
    ]
    await r.engine.state.commit(Changes(leases=tuple(leases), tickets=tuple(map(TicketRow, tickets))))


def past(pools: Iterable[str], uses: int = 2000, people: int = 120) -> list[Stay]:
    """A history that nobody measured; of fewer than three people the line is played twice."""
    rng = random.Random(16)
    return [
        Stay(
            f"{pool}{n}",
            f"u{rng.randrange(people)}",
            pool,
            1,
            WHOLE,
            3600.0 * n,
            rng.lognormvariate(8, 1),
            starting=20.0,
        )
        for pool in pools
        for n in range(uses)
    ]


def learned(pools: Iterable[str], people: int = 120) -> WaitModel:
    """A model that has learned from such a history."""
    teller = WaitModel()
    teller.learn(past(pools, people=people))
    return teller


async def computed(folder: Path, running: int, waiting: int, *, both: bool = False, people: int = 120) -> None:
    """One line: the computation of all tickets and offers beside the floor."""
    place = folder / f"{running}-{both}-{people}"
    place.mkdir()
    devices = [(small if n % 2 or not both else large)(n) for n in range(running)]
    settings = {"queue": QueueLimits(max_waiting=5000, max_starting=64), "offers": OfferConfig()}
    async with room(place, *devices, **settings) as r:
        await fill(r, running, waiting, both=both)
        question = r.engine.forecaster.question()
        teller = learned({state.device.pool for state in r.engine.state.devices.values()}, people=people)
        took = []
        for _ in range(5 if running < 1000 else 3):
            began = time.process_time()
            found = teller.answer(question, 1)
            took.append(time.process_time() - began)
        least, base = min(took), floor(running, waiting)
        what = (
            f"{running:>5} running, {waiting:>4} waiting, {'two offers' if both else 'one offer'} each, {people} people"
        )
        ours = f"{1000 * least:7.0f} ms for {len(found.tickets)} tickets"
        print(f"{what}: {ours}; floor {1000 * base:7.0f} ms for one; ratio {least / base:.3f}", flush=True)


async def beside(folder: Path) -> None:
    """The loop's longest step and the form, with and without a computation that never ends beside it."""
    devices = [small(n) for n in range(2000)]
    (folder / "beside").mkdir()
    worker = ForecastWorker()
    async with room(folder / "beside", *devices, calculator=worker, queue=QueueLimits(max_waiting=5000)) as r:
        await fill(r, 2000, 1000, both=False)
        worker.answer(r.engine.forecaster.question(), past([SMALL]), (), 1)
        gc.collect()
        gc.freeze()  # the service freezes its first objects too
        for busy in (False, True):
            task = asyncio.ensure_future(endless(r)) if busy else None
            forms, late = [], []
            with Steps() as steps:
                for _ in range(FORMS):
                    began = time.perf_counter()
                    await asyncio.sleep(0.002)
                    late.append(time.perf_counter() - began - 0.002)
                    r.engine.state.revision += 1  # nothing is kept from the last
                    began = time.perf_counter()
                    r.engine.form("somebody", "", (), False)
                    forms.append(time.perf_counter() - began)
            words = "with" if busy else "without"
            print(latency_row(f"form {words} a computation beside it", forms))
            print(latency_row(f"loop late {words} it", late))
            print(latency_row(f"steps of the loop {words} it (processor)", steps.taken), flush=True)
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


async def endless(r: Room) -> None:
    """As `Forecaster.run`, without a pause."""
    while True:
        await r.engine.forecaster.compute()


def resident() -> float:
    """MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


async def remembered(folder: Path) -> None:
    """The memory that 100,000 uses take in the service beside its worker, and how long the service works on them."""
    (folder / "history").mkdir()
    worker = ForecastWorker()
    async with room(folder / "history", small(0), calculator=worker) as r:
        rng = random.Random(16)
        for part in range(RECORDS // 5000):
            await r.engine.store.commit(Changes(usage=tuple(record(part * 5000 + n, rng) for n in range(5000))))
        before, began = resident(), time.process_time()
        await r.engine.forecaster.refresh()
        took = time.process_time() - began
        found, _ = worker.answer(r.engine.forecaster.question(), (), (), 1)
        finished = found.pools[SMALL].finished
        print(f"{RECORDS:,} records: {resident() - before:.0f} MiB, {took:.1f} s; learned from the last {finished:,}")


def record(number: int, rng: random.Random) -> UsageRecord:
    """One that nobody measured."""
    held = rng.lognormvariate(8, 1)
    ended = NOW + number * timedelta(minutes=5)
    asked = ended - timedelta(seconds=held)
    made = UsageRecord(
        f"r{number}", f"u{rng.randrange(3000)}", "", SMALL, SMALL, WHOLE, ended, "user", held_seconds=held
    )
    return replace(made, asked=asked, admitted=asked, ready=asked)


async def main() -> None:
    """Print all figures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for running, waiting in SIZES:
            await computed(folder, running, waiting)
        for running, waiting in SIZES[2:]:
            await computed(folder, running, waiting, both=True)
        for both in (False, True):
            await computed(folder, *SIZES[2], both=both, people=2)
        await beside(folder)
        await remembered(folder)


if __name__ == "__main__":
    asyncio.run(main())
