"""A store that the first schema keeps opens: nothing is lost, and every row is read as the value it was."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from hub_extensions.adapters.store import Changes, JournalRow, NoticeRow, Store
from hub_extensions.adapters.store.database import make_engine, parse_url
from hub_extensions.core.culling import Cause, CullPolicy, ServerFacts
from hub_extensions.core.forecast.interval import Interval
from hub_extensions.core.messages import UsageRecord
from hub_extensions.core.offers.model import OfferConfig
from hub_extensions.core.queue.model import Lease, LeaseState, QueueLimits, Ticket, TicketState, WantedOffer
from hub_extensions.core.stops import by_admin
from hub_extensions.core.usage import Minute
from hub_extensions.hub_service.engine.state.state import State
from tests.adapters.store.filled_store import statements, tables, write_filled_store

pytestmark = pytest.mark.slow

START = datetime(2026, 11, 20, 9, 0, 0, 250000, tzinfo=timezone.utc)
SMALL, LARGE = "mig-1g.5gb", "mig-2g.10gb"
GIB = 2**30


def at(minutes: int) -> datetime:
    return START + timedelta(minutes=minutes)


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    write_filled_store(url)
    store = Store.open(url)
    yield store
    store.close()


def lease(number: int, user: str, state: LeaseState, since: int, ends: int, **more: object) -> Lease:
    uuid = f"MIG-small-{number}"
    made = Lease(f"l-{number}", f"t-{number}", user, "", SMALL, f"{uuid}|1g.5gb|{7 + number}|", uuid, SMALL, 1000,
                 state, at(since), ends_at=at(ends))  # fmt: skip
    return replace(made, **more)  # type: ignore[arg-type]


TICKETS = (
    Ticket("t-0", "ada", "", (WantedOffer(SMALL, 8),), at(8), TicketState.ADMITTED, options={"offers": [SMALL]},
           admitted_offer=SMALL, admitted_at=at(9)),
    Ticket("t-14", "joe", "", (WantedOffer("cpu", 9),), at(9), TicketState.ADMITTED, options={"offer": "cpu"},
           admitted_offer="cpu", admitted_at=at(9)),
    Ticket("t-15", "kim", "", (WantedOffer(SMALL, 10), WantedOffer(LARGE, 12)), at(10), TicketState.WAITING, 3,
           ("ml", "students"), {"offers": [SMALL, LARGE], "profile": "torch", "n": [1, None, True]}),
    Ticket("t-16", "Åsa", "näyte", (WantedOffer(LARGE, 11),), at(11), options={"offer": LARGE}),
)  # fmt: skip
LEASES = (
    lease(0, "ada", LeaseState.STARTING, 9, 42),
    lease(1, "bea", LeaseState.RUNNING, 1, 32, ready_at=at(2), pid=4021, pid_started=88123),
    lease(2, "cid", LeaseState.LOST, 2, 33, ready_at=at(3), pid=4022, pid_started=88124),
    lease(3, "dan", LeaseState.RUNNING, 3, 33, ticket="", ready_at=at(3), pid=4023, pid_started=88125, adopted=True),
    lease(4, "eve", LeaseState.ENDING, 4, 37, pid=4024, pid_started=88126),
    Lease("l-5", "t-5", "lea", "half", "gpu-0.5@tesla-t4", "gpu@tesla-t4", "", "gpu@tesla-t4", 500,
          LeaseState.RUNNING, at(5), at(6), at(36)),
)  # fmt: skip
FACTS = (
    ServerFacts("bea", "", SMALL, at(2), "l-1", opened=at(3), opened_known=True, idle_since=at(4), kept_until=at(20),
                keeps=(at(4), at(5)), warned=at(22), cause=Cause.IDLE),
    ServerFacts("cid", "", SMALL, at(3), "l-2", warned=at(23), cause=Cause.LIFETIME),
    ServerFacts("dan", "", SMALL, at(3), "l-3", adopted=True),
    ServerFacts("lea", "half", "gpu-0.5@tesla-t4", at(6), "l-5", opened_known=True, warned=at(8),
                cause=Cause.UNOPENED),
    ServerFacts("max", "", "cpu", at(1), opened=at(1), opened_known=True, warned=at(9), cause=Cause.CPU_IDLE),
)  # fmt: skip
USAGE = (
    UsageRecord("l-9", "ned", "", SMALL, SMALL, 1000, at(-10), "unknown", ticket="t-9", device="MIG-small-4",
                asked=at(-90), admitted=at(-80), ready=at(-79), waited_seconds=600.5, held_seconds=4200.0,
                ran_seconds=4140.0, mean_use_percent=41.25, peak_memory_bytes=4 * GIB, use_measured=0.0,
                memory_measured=0.0),
    UsageRecord("l-7", "ned", "lab", SMALL, SMALL, 1000, at(-40), "unknown", admitted=at(-50), ready=at(-49),
                held_seconds=600.0, ran_seconds=540.0, mean_use_percent=0.0, peak_memory_bytes=0),
    UsageRecord("l-8", "deleted/1", "", "gpu-0.5", "gpu", 500, at(-60), "unknown", admitted=at(-70),
                held_seconds=600.0),
)  # fmt: skip
SAMPLES = (
    Minute("device/MIG-small-1", at(9), "MIG-small-1", "nvml", 3.5, 3.5, GIB, 10.0),
    Minute("device/MIG-small-2", at(9), "MIG-small-2", "none", None, None, None, 0.0),
    Minute("device/MIG-small-3", at(9), "MIG-small-3", "dcgm", 0.0, 0.0, 0, 10.0),
)
JOURNAL = [
    ("joined", "t-1", None, "bea"),
    ("admitted", "t-1", "l-1", "bea"),
    ("ready", "t-1", None, "bea"),
    ("adopted", None, "l-3", "dan"),
    ("asked-again", "t-15", None, "kim"),
    ("failed", "t-4", None, "eve"),
    ("ending", "t-4", "l-4", "eve"),
    ("left", "t-10", None, "fay"),
    ("abandoned", "t-11", None, "gus"),
    ("max-wait", "t-12", None, "hal"),
    ("refused", "t-13", None, "ida"),
    ("lost", "t-2", "l-2", "cid"),
    ("running", "t-2", "l-2", "cid"),
    ("kept", None, "l-1", "bea"),
    ("culled", None, "l-2", "cid"),
    ("ended", "t-9", "l-9", "ned"),
]


def test_the_first_schema_has_rows_in_every_table_and_column(url: str) -> None:
    write_filled_store(url)
    written = {
        match[1]: {name.strip(' "') for name in match[2].split(",")}
        for match in (re.search(r"INSERT INTO (\w+) \(([^)]*)\)", each) for each in statements())
        if match
    }
    counted = {"gpu_journal": {"id"}, "gpu_notices": {"id"}}  # counted by the database
    assert {name: columns | counted.get(name, set()) for name, columns in written.items()} == tables(url)


async def test_tickets_leases_facts_and_notes_are_read_as_they_were(store: Store) -> None:
    stored = await store.load()
    assert stored.tickets == TICKETS
    assert sorted(stored.leases, key=lambda each: each.id) == list(LEASES)
    assert stored.facts == FACTS
    assert stored.next_place == 13
    assert set(stored.meta) == {"clock", "pool-names", "token-name", "offers", "deleted-users"}


async def test_the_history_is_read_as_it_was(store: Store) -> None:
    assert (await store.usage()).uses == USAGE
    assert await store.users() == ("cid", "hal", "ned")
    for sample in SAMPLES:
        assert await store.samples(sample.key, at(0)) == (sample,)
    rows = (await store.journal())[::-1]
    assert [(row.kind, row.ticket, row.lease, row.user) for row in rows] == JOURNAL
    assert rows[12] == JournalRow(at(9), "running", "t-2", "l-2", "cid", "", "device MIG-small-2 is back")
    assert await store.notices("hal", at(0)) == (NoticeRow(at(8), "hal", "", "You waited 24 h, which is the longest."),)
    assert len(await store.notices(None, at(0))) == 2
    ended = dict.fromkeys(("bea", "cid", "eve", "fay", "gus", "hal", "ida", "ada"), (SMALL,))
    live = {"joe": ("cpu",), "kim": (SMALL, LARGE), "Åsa": (LARGE,)}
    assert await store.last_offers_by_user() == ended | live


async def test_renamed_columns_keep_their_values(url: str) -> None:
    write_filled_store(url)
    engine = make_engine(parse_url(url))
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE gpu_forecasts SET soon = '[0.25]', \"end\" = 'started', waited = 90.5, "
            "over = '2026-11-20 09:12:00.25'"
        )
        connection.exec_driver_sql(
            "UPDATE gpu_server_facts SET drain_at = '2026-11-20 09:30:00.25', "
            "drain_why = 'stopped-by-admin: new driver' WHERE \"user\" = 'dan'"
        )
    engine.dispose()
    store = Store.open(url)
    [forecast] = await store.matured_forecasts()
    assert (forecast.played, forecast.shown) == (
        Interval(60.0, 600.0, 1800.0, (0.25,)),
        Interval(50.0, 600.0, 2200.0, (0.25,)),
    )
    assert (forecast.end, forecast.waited, forecast.over) == ("started", 90.5, at(12))
    [dan] = [stop for stop in (await store.load()).earlier_stops if stop.user == "dan"]
    assert dan.orders == (by_admin(at(30), "new driver"),)
    store.close()


async def test_the_service_goes_on_from_where_it_stopped(store: Store) -> None:
    policy = CullPolicy(enabled=True, lifetime=timedelta(minutes=30))
    state = await State.open(store, QueueLimits(), policy, OfferConfig())
    assert tuple(state.tickets.values()) == TICKETS
    assert sorted(state.leases.values(), key=lambda each: each.id) == list(LEASES)
    assert state.facts == {(facts.user, facts.server): facts for facts in FACTS}
    assert (state.first_start, state.token_name, state.new_place()) == (False, "a1", 13)
    assert state.pool_names == {"gpu@tesla-t4": "Tesla T4"}
    assert at(12) <= state.clock.now() < at(12) + timedelta(hours=1)
    assert {number: held.id for number in range(6) if (held := state.lease_of_ticket(f"t-{number}"))} == {
        0: "l-0",
        1: "l-1",
        2: "l-2",
        5: "l-5",
    }
    state.expect_cluster()
    assert [(offer.id, offer.product) for offer in state.offers] == [(SMALL, "NVIDIA A100-PCIE-40GB"), ("cpu", "")]


async def test_new_rows_stand_after_those_of_the_first_schema(store: Store) -> None:
    before = await store.journal()
    over = replace(LEASES[4], state=LeaseState.ENDED)
    row = JournalRow(at(13), "ended", "t-4", "l-4", "eve", "", "device MIG-small-4 is free")
    record = UsageRecord("l-4", "eve", "", SMALL, SMALL, 1000, at(13), "failed", admitted=at(4))
    await store.commit(Changes(leases=(over,), journal=(row,), usage=(record,)))
    assert await store.journal() == (row, *before)
    assert (await store.usage()).uses == (record, *USAGE)
    assert {each.id for each in (await store.load()).leases} == {"l-0", "l-1", "l-2", "l-3", "l-5"}
