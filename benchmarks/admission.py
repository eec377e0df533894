"""One round of admissions with 10,000 tickets in line: real state, real SQLite store; and the floor, one empty commit.

A device comes free, and the round gives it to the next in line: decided, written, remembered.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from datetime import timedelta
from pathlib import Path

from benchmarks.figures import latency_row, quantile
from hub_extensions.adapters.hub.jupyterhub_api import HubApi
from hub_extensions.adapters.store import Changes, JournalRow, Store, TicketRow
from hub_extensions.core.culling import CullPolicy
from hub_extensions.core.gpu.devices import Device, DeviceState, InventoryReading
from hub_extensions.core.messages import Ended
from hub_extensions.core.offers.model import OfferConfig
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.model import QueueLimits, Ticket, WantedOffer
from hub_extensions.hub_service.engine.line.tickets import Tickets
from hub_extensions.hub_service.engine.state.clock import RunningClock
from hub_extensions.hub_service.engine.state.state import State

TICKETS = 10_000
ROUNDS = 200
OFFERS = tuple(map(OfferId, ("mig-1g.5gb", "mig-2g.10gb", "gpu")))


def device(pool: int, number: int) -> Device:
    profile = (None, "1g.5gb", "2g.10gb")[pool]
    return Device(
        f"{'GPU' if profile is None else 'MIG'}-{pool}-{number}", "NVIDIA A100", profile=profile, memory_bytes=1
    )


async def main() -> None:
    """Fill the line, free a device at a time, and time the rounds."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(f"sqlite:///{Path(folder) / 'gpu.sqlite'}")
        config = QueueLimits(max_waiting=20_000, max_starting=10 * ROUNDS)
        state = await State.open(store, config, CullPolicy(enabled=True, lifetime=timedelta(hours=12)), OfferConfig())
        state.clock = RunningClock(monotonic=lambda: 0.0)  # what is known of rights grows no older on a slow machine
        now = state.clock.now()
        tickets = tuple(
            Ticket(f"t{n}", f"user-{n}", "", (WantedOffer(OFFERS[n % 3], n),), now) for n in range(1, TICKETS + 1)
        )
        await state.commit(Changes(tickets=tuple(TicketRow(ticket) for ticket in tickets)))
        queue = Tickets(state, HubApi("http://127.0.0.1:9/hub/api", "none"), service_url="", simulate=None)
        for ticket in tickets:
            queue.rights.remember(ticket.user, ())
        rounds, spent = [], []
        for number in range(ROUNDS):
            fresh = device((2, 1, 0)[number % 3], number)
            states = {**state.devices, fresh.identity: DeviceState(fresh)}
            state.see(InventoryReading(state.clock.utc_now(), tuple(s.device for s in states.values()), {}), states)
            began, spent_before = time.perf_counter(), time.process_time()
            async with queue.transaction(admit=True):
                pass
            rounds.append(time.perf_counter() - began)
            spent.append(time.process_time() - spent_before)
        admitted = state.counts
        assert sum(admitted.values()) == ROUNDS, admitted
        floor = []
        for number in range(ROUNDS):
            row = JournalRow(state.clock.utc_now(), "floor", None, None, None, None, str(number))
            began = time.perf_counter()
            await store.commit(Changes(journal=(row,)))
            floor.append(time.perf_counter() - began)
        first = next(iter(state.tickets.values()))
        began = time.perf_counter()
        await queue.ended(first.id, Ended(first.attempt, "left"))
        leave = time.perf_counter() - began
        store.close()
    print(f"{TICKETS:,} tickets in three lines, one admission a round, {ROUNDS} rounds")
    print(latency_row("a round (decided, committed, remembered)", rounds))
    print(latency_row("of it time of a processor", spent))
    print(latency_row("floor: one small commit to the same store", floor))
    print(f"one person leaving the line, with its round: {leave * 1000:.1f} ms")
    print(f"ratio of the p95: {quantile(rounds, 0.95) / quantile(floor, 0.95):.1f} times the floor")


if __name__ == "__main__":
    asyncio.run(main())
