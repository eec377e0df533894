"""How long is the loop of the service held with 10,000 people in line? The longest step of each thing that happens.

A step is what the loop runs without looking at anything else, until the next `await` that waits. Real state and SQLite
store, a listener of the changes as the hub is one; devices and the hub are tables. Times are of a processor.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
from asyncio.events import Handle
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

from benchmarks.figures import latency_row
from hub_extensions.adapters.store import Changes, TicketRow
from hub_extensions.core.gpu.devices import WHOLE, Device
from hub_extensions.core.messages import Ask, TicketStatus
from hub_extensions.core.offers.model import OfferConfig
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.model import Lease, LeaseState, QueueLimits, Ticket, TicketEnd, WantedOffer
from tests.fakes.machine import GIB, small
from tests.hub_service.engine.room import Room, room

TICKETS, LEASED, TIMES = 10_000, 60, 10
SMALL, LARGE, HALF = map(OfferId, ("mig-1g.5gb", "gpu", "gpu-0.5"))
WANTED = ((SMALL,), (SMALL,), (LARGE, SMALL), (HALF, LARGE))


class Steps:
    """Counts the processor's time of every step of the running loop."""

    def __init__(self) -> None:
        self.taken: list[float] = []
        self._run = Handle._run

    def __enter__(self) -> Steps:
        run, taken = self._run, self.taken

        def counted(handle: Handle) -> None:
            began = time.thread_time()
            run(handle)
            taken.append(time.thread_time() - began)

        Handle._run = counted  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        Handle._run = self._run  # type: ignore[method-assign]


def devices() -> tuple[Device, ...]:
    """Small ones, and whole ones that are also given by halves."""
    whole = (Device(f"GPU-{n}", "NVIDIA A100-PCIE-40GB", memory_bytes=40 * GIB) for n in range(LEASED // 2))
    return (*(small(n) for n in range(LEASED // 2)), *whole)


def leases(r: Room) -> tuple[Lease, ...]:
    """Every device is held, each until another time."""
    now = r.engine.state.clock.now()
    return tuple(
        Lease(
            f"l{n}", "", f"holder-{n}", "", OfferId(each.pool), each.identity, each.uuid, each.pool, WHOLE,
            LeaseState.RUNNING, now, now, now + timedelta(minutes=n),
        )
        for n, each in enumerate(devices())
    )  # fmt: skip


def tickets(r: Room) -> tuple[Ticket, ...]:
    """In two lines, some in both."""
    now = r.engine.state.clock.now()
    return tuple(
        Ticket(f"t{n}", f"user-{n}", "", tuple(WantedOffer(offer, n) for offer in WANTED[n % len(WANTED)]), now)
        for n in range(1, TICKETS + 1)
    )


async def listen(r: Room, heard: list[TicketStatus], most: int | None = None) -> None:
    """As the hub does, which writes a line for each."""
    changes = cast("AsyncGenerator[TicketStatus, None]", r.engine.changes())
    async with aclosing(changes):
        async for state in changes:
            heard.append(state)
            if len(heard) == most:
                return
            await asyncio.sleep(0)


async def measured(what: str, work: Callable[[], Awaitable[Any]], times: int = TIMES) -> None:
    """Print the longest step of each run, with all that comes of it."""
    longest = []
    for _ in range(times):
        gc.collect()
        with Steps() as steps:
            await asyncio.ensure_future(work())
        longest.append(max(steps.taken))
    print(latency_row(what, longest), flush=True)


async def fill(r: Room) -> None:
    """The line and the leases, as if they had come one after the other."""
    await r.engine.state.commit(Changes(leases=leases(r), tickets=tuple(map(TicketRow, tickets(r)))))
    r.engine.state.next_place = TICKETS + 1
    for n in range(1, TICKETS + 1):
        r.engine.queue.rights.remember(f"user-{n}", ())


async def main() -> None:
    """Print all figures."""
    config = QueueLimits(max_waiting=2 * TICKETS, max_starting=TICKETS)
    offers = OfferConfig(fractions={"gpu": (0.5,)})
    with tempfile.TemporaryDirectory() as folder:
        async with room(Path(folder), *devices(), queue=config, offers=offers) as r:
            await fill(r)
            await figures(r)


class Happenings:
    """Everything that happens to a line, each a thing to measure."""

    def __init__(self, r: Room) -> None:
        self.room, self.engine, self.queue, self.state = r, r.engine, r.engine.queue, r.engine.state
        self._turn = iter(range(1, TICKETS))

    async def publish(self) -> None:
        head = self.state.tickets[f"t{next(self._turn)}"]
        await self.state.commit(Changes(tickets=(TicketRow(head, TicketEnd.LEFT, "", self.state.clock.utc_now()),)))
        await self.queue.publish_changed()

    async def join(self) -> None:
        await self.engine.ask(Ask(f"late-{next(self._turn)}", "", (SMALL,), {}))

    async def again(self) -> None:
        ticket = self.state.tickets["t9999"]
        offers = tuple(choice.offer for choice in ticket.wanted_offers)
        await self.engine.ask(Ask(ticket.user, "", offers, {}, ticket=ticket.id))

    async def leave(self) -> None:
        number = next(self._turn)
        await self.engine.leave(f"t{5000 + number}", f"user-{5000 + number}")

    async def form(self) -> None:
        self.state.revision += 1
        self.engine.form("somebody", "", (), False)

    async def own_page(self) -> None:
        self.engine.tickets("user-9999")

    async def admins_list(self) -> None:
        await self.engine.all_tickets()

    async def admission(self) -> None:
        lease = next(each for each in self.state.leases.values() if each.user.startswith("holder"))
        await self.state.commit(Changes(leases=(replace(lease, state=LeaseState.ENDED),)))
        async with self.queue.transaction(admit=True):
            pass

    async def first_words(self) -> None:
        heard: list[TicketStatus] = []
        await listen(self.room, heard, len(self.state.tickets))

    async def compared(self) -> None:
        await self.engine.reconciler.reconcile()

    async def metrics(self) -> None:
        self.engine.queue_figures()

    async def question(self) -> None:
        self.engine.forecaster.question()


async def figures(r: Room) -> None:
    """Measure and print all of it."""
    gc.freeze()  # as the service does with what it begins with
    each = Happenings(r)
    for ticket in r.engine.state.tickets.values():
        r.hub.run(ticket.user, "", ready=False)
    print(f"{TICKETS:,} tickets in two lines, {LEASED} devices; the longest step of the loop in each run")
    await measured("a listener is told everything", each.first_words, 3)
    heard: list[TicketStatus] = []
    listener = asyncio.ensure_future(listen(r, heard))
    await each.first_words()
    await measured("publish, after the head has left", each.publish, 3)
    await measured("ask: somebody joins", each.join)
    await measured("ask again with the same ticket", each.again)
    await measured("leave", each.leave)
    await measured("form", each.form)
    await measured("somebody's own page", each.own_page)
    await measured("an admin's list of all", each.admins_list, 3)
    await measured("a round of admissions, one device free", each.admission)
    await measured("the hub's list is compared", each.compared)
    await measured("the line for the metrics", each.metrics)
    await measured("what the forecast asks", each.question)
    listener.cancel()


if __name__ == "__main__":
    asyncio.run(main())
