"""The admins' pages on a real port, in a thread of its own: an engine of memory with as many cards as a test wants."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from hub_extensions.core import messages
from hub_extensions.core.gpu.devices import WHOLE, Device, DeviceState, Placement
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.overview.cards import Card, PieceHolder, cards_of_machine, emptying
from hub_extensions.core.overview.days import CountedUse
from hub_extensions.core.overview.health import HealthVerdict
from hub_extensions.core.overview.totals import totals_of
from hub_extensions.core.overview.view import Overview, PageRows, paged
from hub_extensions.core.queue.cordons import Cordon
from hub_extensions.core.queue.failed_starts import failure
from hub_extensions.core.text.reasons import explain
from tests.fakes.engine import NOON, EngineInMemory, an_overview
from tests.fakes.hub_frame import frame
from tests.hub_service.conftest import Running, known_hub

SMALL, LARGE, WHOLE_GPU = OfferId("mig-1g.5gb"), OfferId("mig-2g.10gb"), OfferId("gpu")
NAMES = ("ada", "ben", "cem", "dan", "eva", "fay", "gus", "hana")
STATES = (84.0, 0.0, 12.0, None, 97.0, 3.0)


def a_holder(n: int, device: Device, offer: OfferId) -> PieceHolder:
    use, user = STATES[n % len(STATES)], f"{NAMES[n % len(NAMES)]}{n // len(NAMES) or ''}"
    state = "ending" if n % 11 == 10 else "running"
    since = NOON - timedelta(minutes=7 * (n % 50))
    return PieceHolder(
        f"lease-{n}", user, "", offer, device.identity, WHOLE, state, since, use, 5.0, NOON + timedelta(hours=9)
    )


def cards(count: int) -> tuple[tuple[Card, ...], tuple[PieceHolder, ...]]:
    """Every third is whole, the others are cut: one in four pieces is free, the second card is drained."""
    states, holders = [], []
    for n in range(count):
        uuid, product = f"GPU-{n:04}", "NVIDIA A100-SXM4-40GB"
        if n % 3 == 2:
            found = [(Device(uuid, product), WHOLE_GPU)]
        else:
            found = [
                (
                    Device(
                        f"MIG-{n:04}-{place}", product, profile=profile, gpu_instance_id=place,
                        placement=Placement(place, slices), parent_uuid=uuid, compute_slices=slices,
                    ),
                    offer,
                )
                for place, slices, profile, offer in (
                    (0, 2, "2g.10gb", LARGE), *((at, 1, "1g.5gb", SMALL) for at in range(2, 7)),
                )
            ]  # fmt: skip
        for device, offer in found:
            states.append(DeviceState(device))
            if len(states) % 4:
                holders.append(a_holder(len(holders), device, offer))
    drained = (Cordon("GPU-0001", "root", "its fan is loud", NOON - timedelta(hours=1)),) if count > 1 else ()
    return cards_of_machine(states, holders, drained), tuple(holders)


def a_lease(each: PieceHolder) -> messages.LeaseInfo:
    idle = each.use_percent is not None and each.use_percent < each.idle_below
    stops = NOON + timedelta(minutes=8) if idle else None
    return messages.LeaseInfo(
        each.lease, each.user, each.server, each.offer, "", None, 1.0, each.state, each.since, each.since, 4711,
        each.use_percent, stops, "Idle for 22 min." if idle else "", False,
    )  # fmt: skip


def people(count: int) -> tuple[messages.TicketInfo, ...]:
    return tuple(
        messages.TicketInfo(
            f"t{n}", f"student-{n:03}", "", "waiting", (LARGE, SMALL), n + 1, NOON - timedelta(seconds=1380 - 2 * n),
            explain("in-use", total=5, title="MIG 2g.10gb", ahead=n), "",
        )
        for n in range(count)
    )  # fmt: skip


def a_view(card_count: int, waiting: int, *, wrong: bool = False) -> Overview:
    """The first page of so many cards and people."""
    every, holders = cards(card_count)
    waits, known = people(waiting), {each.lease: a_lease(each) for each in holders}
    findings = (
        explain("health-stops", stops=1),
        explain("health-evidence", offer=SMALL, servers=3, why="Prometheus has no series."),
    )
    failed = (
        messages.FailedStart(
            NOON - timedelta(hours=2),
            "gus",
            "",
            SMALL,
            "Small GPU",
            failure("no-answer", "", 30),
            log="Traceback (most recent call last):\n  …\nKeyError: 'HOME'",
        ),
    )
    plain = an_overview(*every, people=waits)
    return Overview(
        at=NOON,
        read=NOON - timedelta(seconds=2),
        totals=totals_of(every),
        health=HealthVerdict(findings if wrong else ()),
        cards=paged(every, 1, 20),
        leases=known,
        emptying=plain.emptying,
        people=PageRows(waits[:25], len(waits), 1, max(1, -(-len(waits) // 25))),
        longest_seconds=plain.longest_seconds,
        failed=messages.FailedStarts(len(failed), failed) if wrong else messages.FailedStarts(0, ()),
        machine=emptying(holders),
        titles={SMALL: "Small GPU", LARGE: "Medium GPU", WHOLE_GPU: "Whole GPU"},
    )


def past_uses() -> tuple[CountedUse, ...]:
    """A month of two offers and two groups."""
    found = []
    for n in range(240):
        began = NOON - timedelta(hours=3 * n + n % 5)
        failed = n % 19 == 18
        end = "failed" if failed else ("idle", "user", "lifetime", "user", "idle", "admin")[n % 6]
        length = timedelta(minutes=1) if failed else timedelta(hours=1 + n % 7)
        group = ("course-ml",) if n % 3 else ("thesis",)
        found.append(
            CountedUse(
                (SMALL, LARGE)[n % 2], group, began, min(began + length, NOON), end, not failed, 1.0, 60.0 * (n % 40)
            )
        )
    return tuple(found)


@contextmanager
def served(engine: EngineInMemory) -> Iterator[str]:
    """The address of the pages; whoever sends ``Bearer admin-token`` is an admin."""
    ready, done = threading.Event(), threading.Event()
    found: list[str] = []

    async def serve() -> None:
        running = Running(engine, known_hub())
        running.hub.frame = frame("root")
        found.append(running.url)
        ready.set()
        await asyncio.to_thread(done.wait)
        await running.stop()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    ready.wait()
    try:
        yield found[0]
    finally:
        done.set()
        thread.join()
