"""The store keeps what it was given, all of it or nothing, on SQLite and on PostgreSQL alike."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterator
from dataclasses import fields, replace
from datetime import datetime, timedelta, timezone
from types import UnionType
from typing import get_type_hints

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from hub_extensions.adapters.store import (
    Changes,
    JournalRow,
    NoticeRow,
    Store,
    StoreUnavailable,
    TicketRow,
)
from hub_extensions.adapters.store.usage import USAGE
from hub_extensions.core.culling import Cause, ServerFacts
from hub_extensions.core.messages import UsageRecord
from hub_extensions.core.notices import Delivery
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.model import Lease, LeaseState, Ticket, TicketEnd, TicketState, WantedOffer
from hub_extensions.core.text.reasons import Reason, explain
from hub_extensions.core.usage import Minute, Use, UseEnd
from hub_extensions.core.usage.measurement import Sums
from tests.examples import many

pytestmark = pytest.mark.slow

NOW = datetime(2027, 3, 1, 12, 0, 0, 123456, tzinfo=timezone.utc)

WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)
NAMES = WORDS.filter(bool)
OFFERS = st.sampled_from(["cpu", "gpu", "gpu-0.5", "gpu-8gib@tesla-t4", "mig-1g.10gb.me"]).map(OfferId)
TIMES = st.datetimes(
    datetime(2000, 1, 2), datetime(2200, 1, 1), timezones=st.sampled_from([timezone.utc, timezone(timedelta(hours=-7))])
)
SERIALS = st.integers(0, 2**62)
CHOICES = st.lists(st.builds(WantedOffer, OFFERS, SERIALS), min_size=1, max_size=3).map(tuple)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
TICKETS = st.builds(
    Ticket,
    id=NAMES,
    wanted_offers=CHOICES,
    user=WORDS,
    server=WORDS,
    joined=TIMES,
    state=st.sampled_from([TicketState.WAITING, TicketState.ADMITTED]),
    attempt=SERIALS,
    groups=st.lists(WORDS, max_size=3).map(tuple),
    options=st.dictionaries(WORDS, JSON, max_size=3),
    admitted_offer=st.none() | OFFERS,
    admitted_at=st.none() | TIMES,
    asked=st.none() | TIMES,
)
LEASES = st.builds(
    Lease,
    **dict.fromkeys(("id", "ticket", "user", "server", "device", "uuid", "pool"), WORDS),
    offer=OFFERS,
    share=st.integers(1, 1000),
    state=st.sampled_from([state for state in LeaseState if state is not LeaseState.ENDED]),
    since=TIMES,
    ready_at=st.none() | TIMES,
    ends_at=st.none() | TIMES,
    pid=st.none() | SERIALS,
    pid_started=st.none() | SERIALS,
    adopted=st.booleans(),
)
FACTS = st.builds(
    ServerFacts,
    **dict.fromkeys(("user", "server"), WORDS),
    offer=OFFERS,
    lease=st.none() | WORDS,
    adopted=st.booleans(),
    opened_known=st.booleans(),
    started=TIMES,
    **dict.fromkeys(("opened", "idle_since", "kept_until", "warned", "promised"), st.none() | TIMES),
    keeps=st.lists(TIMES, max_size=3).map(tuple),
    cause=st.none() | st.sampled_from(Cause),
)

DELIVERIES = st.builds(
    Delivery,
    **dict.fromkeys(("id", "channel", "kind"), NAMES),
    **dict.fromkeys(("user", "server", "title"), WORDS),
    offer=OFFERS,
    **dict.fromkeys(("run", "due"), TIMES),
    open_until=st.none() | TIMES,
    tries=st.integers(0, 8),
)


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    store = Store.open(url)
    yield store
    store.close()


def ticket(number: int, state: TicketState = TicketState.WAITING, **more: object) -> Ticket:
    wanted_offers = (WantedOffer("mig-1g.5gb", number), WantedOffer("cpu", number))
    made = Ticket(f"t{number}", f"user{number}", "", wanted_offers, NOW + timedelta(seconds=number), state)
    return dataclasses.replace(made, **more)  # type: ignore[arg-type]


def lease(number: int, **more: object) -> Lease:
    uuid = f"MIG-{number}"
    made = Lease(f"l{number}", f"t{number}", f"user{number}", "", "mig-1g.5gb", f"{uuid}|1g.5gb|7|0:1", uuid,
                 "mig-1g.5gb", 1000, LeaseState.STARTING, NOW)  # fmt: skip
    return dataclasses.replace(made, **more)  # type: ignore[arg-type]


def usage(number: int, ended: datetime = NOW, **more: object) -> UsageRecord:
    made = UsageRecord(f"l{number}", f"user{number}", "", OfferId("gpu"), "gpu", 1000, ended, "left", asked=NOW,
                       admitted=NOW, waited_seconds=3.5, peak_memory_bytes=2**40, groups=("ml",), keeps=2)  # fmt: skip
    return dataclasses.replace(made, **more)  # type: ignore[arg-type]


def journal(text: str, at: datetime = NOW, user: str | None = None) -> JournalRow:
    return JournalRow(at, "admitted", None, None, user, None, text)


async def test_a_new_store_is_empty_and_its_first_place_is_one(store: Store) -> None:
    stored = await store.load()
    assert (stored.tickets, stored.leases, stored.facts, stored.next_place, stored.meta) == ((), (), (), 1, {})
    assert store.state == "ok"
    assert await store.last_offers("nobody") == ()


@pytest.mark.whole
@many(25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    tickets=st.lists(TICKETS, max_size=4, unique_by=lambda each: each.id),
    leases=st.lists(LEASES, max_size=4, unique_by=lambda each: each.id),
    facts=st.lists(FACTS, max_size=4, unique_by=lambda each: (each.user, each.server)),
    deliveries=st.lists(DELIVERIES, max_size=4, unique_by=lambda each: each.key),
)
def test_what_was_committed_is_what_a_restarted_service_reads(
    store: Store, tickets: list[Ticket], leases: list[Lease], facts: list[ServerFacts], deliveries: list[Delivery]
) -> None:
    async def there_and_back() -> None:
        written = Changes(tuple(map(TicketRow, tickets)), tuple(leases), tuple(facts), deliveries=tuple(deliveries))
        await store.commit(written)
        read = await store.load()
        assert {each.id: each for each in read.tickets} == {each.id: each for each in tickets}
        assert {each.id: each for each in read.leases} == {each.id: each for each in leases}
        assert {(each.user, each.server): each for each in read.facts} == {(f.user, f.server): f for f in facts}
        assert {each.key: each for each in read.deliveries} == {each.key: each for each in deliveries}
        ended = tuple(
            TicketRow(dataclasses.replace(each, state=TicketState.ENDED), TicketEnd.LEFT, "", NOW) for each in tickets
        )
        gone = tuple(dataclasses.replace(each, state=LeaseState.ENDED) for each in leases)
        keys, done = tuple((each.user, each.server) for each in facts), tuple(each.key for each in deliveries)
        await store.commit(Changes(ended, gone, gone_facts=keys, delivered=done))
        empty = await store.load()
        assert (empty.tickets, empty.leases, empty.facts, empty.deliveries) == ((), (), (), ())

    asyncio.run(there_and_back())


async def test_all_times_come_back_aware_and_in_utc(store: Store) -> None:
    berlin = datetime(2027, 3, 1, 13, tzinfo=timezone(timedelta(hours=1)))
    await store.commit(Changes(tickets=(TicketRow(ticket(1, joined=berlin)),)))
    joined = (await store.load()).tickets[0].joined
    assert joined == berlin and joined.tzinfo is timezone.utc


async def test_a_time_without_a_zone_is_refused_and_nothing_is_written(store: Store) -> None:
    with pytest.raises(Exception, match="without a time zone"):
        await store.commit(Changes((TicketRow(ticket(1)),), (lease(1, since=datetime(2027, 3, 1)),)))
    assert (await store.load()).tickets == ()


async def test_a_name_that_no_database_can_keep_does_not_lose_the_commit(store: Store) -> None:
    await store.commit(Changes((TicketRow(ticket(1, user="a\0b\ud800c")),), journal=(journal("x\0"),)))
    assert (await store.load()).tickets[0].user == "a�b�c"


async def test_tickets_come_back_in_the_order_in_which_they_joined(store: Store) -> None:
    await store.commit(Changes(tuple(TicketRow(ticket(number)) for number in (3, 1, 2))))
    assert [each.id for each in (await store.load()).tickets] == ["t1", "t2", "t3"]


async def test_an_ended_ticket_is_not_read_back_but_its_place_is_never_given_again(store: Store) -> None:
    row = TicketRow(ticket(41, TicketState.ENDED), TicketEnd.LEFT, "left the line", NOW)
    await store.commit(Changes((row,)))
    stored = await store.load()
    assert stored.tickets == () and stored.next_place == 42


async def test_a_later_commit_replaces_the_same_ticket_lease_facts_and_note(store: Store) -> None:
    facts = ServerFacts("user1", "", "mig-1g.5gb", NOW)
    await store.commit(Changes((TicketRow(ticket(1)),), (lease(1),), (facts,), meta={"stopped": "a", "other": "o"}))
    running = lease(1, state=LeaseState.RUNNING, pid=7, pid_started=99)
    kept = dataclasses.replace(facts, keeps=(NOW,), cause=Cause.IDLE, busy_since=NOW, run_ended=NOW, unknown_since=NOW)
    kept = dataclasses.replace(kept, missed=timedelta(seconds=90.5), ends_at=NOW, extensions=2)
    admitted = ticket(1, TicketState.ADMITTED, admitted_offer="mig-1g.5gb", admitted_at=NOW)
    await store.commit(Changes((TicketRow(admitted),), (running,), (kept,), meta={"stopped": "b"}))
    stored = await store.load()
    assert stored.tickets == (admitted,) and stored.leases == (running,) and stored.facts == (kept,)
    assert stored.meta == {"stopped": "b", "other": "o"}


async def test_facts_that_are_gone_and_new_in_one_commit_are_new(store: Store) -> None:
    old, new = (ServerFacts("ada", "", offer, NOW) for offer in ("cpu", "gpu"))
    await store.commit(Changes(facts=(old,)))
    await store.commit(Changes(facts=(new,), gone_facts=(("ada", ""),)))
    assert (await store.load()).facts == (new,)


async def test_a_commit_of_which_one_part_fails_leaves_no_part(store: Store) -> None:
    bad = usage(1, server=None)
    with pytest.raises(Exception, match=r"(?i)null"):
        await store.commit(Changes((TicketRow(ticket(1)),), (lease(1),), journal=(journal("given"),), usage=(bad,)))
    assert (await store.load()).tickets == () and (await store.load()).leases == ()
    assert await store.journal() == ()
    await store.commit(Changes(leases=(lease(1),)))
    assert (await store.load()).leases == (lease(1),)


async def test_the_journal_is_newest_first_also_when_the_clock_was_set_back_an_hour(store: Store) -> None:
    await store.commit(Changes(journal=(journal("first"),)))
    await store.commit(Changes(journal=(journal("second", NOW - timedelta(hours=1)), journal("third"))))
    assert [row.text for row in await store.journal()] == ["third", "second", "first"]
    assert [row.text for row in await store.journal(limit=1)] == ["third"]


async def test_the_last_choice_is_of_the_newest_ticket_also_when_the_clock_was_set_back(store: Store) -> None:
    older = TicketRow(ticket(1, TicketState.ENDED, user="ada"), TicketEnd.READY, "", NOW)
    newer = ticket(
        2, user="ada", joined=NOW - timedelta(hours=1), wanted_offers=(WantedOffer("gpu", 9), WantedOffer("cpu", 9))
    )
    await store.commit(Changes((TicketRow(newer), older)))
    assert await store.last_offers("ada") == ("gpu", "cpu")


async def test_a_last_choice_that_is_no_offer_any_more_is_left_out(store: Store) -> None:
    chosen = tuple(WantedOffer(offer, 9) for offer in ("half-a-gpu", "gpu"))  # type: ignore[arg-type]
    await store.commit(Changes((TicketRow(ticket(2, user="ada", wanted_offers=chosen), TicketEnd.READY, "", NOW),)))
    assert (await store.last_offers("ada"), await store.last_offers_by_user()) == (("gpu",), {"ada": ("gpu",)})


async def test_a_user_reads_own_notices_only_and_not_the_old_ones(store: Store) -> None:
    rows = [NoticeRow(NOW - timedelta(hours=hours), user, "", f"{user} {hours}") for user in "ab" for hours in (30, 1)]
    ours = NoticeRow.because(NOW, "a", "lab", explain("server-stopped", server="lab"), explain("idle", idle=300.0))
    assert ours.text == "Server lab was stopped. Idle for 5 min."
    await store.commit(Changes(notices=(*rows, ours)))
    assert await store.notices("a", NOW - timedelta(hours=24)) == (ours, rows[1])


async def test_what_a_row_says_by_codes_comes_back_unless_a_code_is_not_known(store: Store) -> None:
    seen = [explain("seen-use", percent=0.5, source="nvml"), explain("seen-no-use")]
    told = JournalRow.because(NOW, "culled", ("l1", "a", ""), [explain("idle", idle=60.0)], "service", seen)
    later = replace(told, reasons=(Reason("of-a-later-version", "Because."),))
    notice = NoticeRow.because(NOW, "a", "", explain("files-kept"))
    await store.commit(Changes(journal=(told, later), notices=(notice,)))
    assert (told.text, told.evidence) == ("Idle for 1 min.", "use 0.5 % by nvml, use not known")
    assert await store.journal() == (replace(told, reasons=()), told)
    assert await store.notices("a", NOW) == (notice,)


async def test_usage_records_come_back_last_ended_first_and_by_user(store: Store) -> None:
    rows = [usage(number, NOW + timedelta(hours=number)) for number in range(3)]
    await store.commit(Changes(usage=tuple(rows)))
    assert (await store.usage()).uses == (rows[2], rows[1], rows[0])
    assert (await store.usage("user1")).uses == (rows[1],)


async def test_pages_meet_each_record_once_also_where_many_ended_at_once_and_more_end_meanwhile(store: Store) -> None:
    rows = [usage(number, NOW + timedelta(hours=number // 4)) for number in range(11)]
    await store.commit(Changes(usage=tuple(rows)))
    seen, before = [], None
    while True:
        page = await store.usage(before=before, limit=3)
        seen += [record.key for record in page.uses]
        if page.next is None:
            break
        before = page.next
        await store.commit(Changes(usage=(usage(100 + len(seen), NOW + timedelta(days=1)),)))
    assert sorted(seen) == sorted(row.key for row in rows)
    assert seen[:3] == ["l9", "l8", "l10"], "last ended first, then by key"
    for bad in ("", "yesterday", "2027-03-01T12:00:00", "2027-03-01T12:00:00,l1"):
        with pytest.raises(ValueError, match=r".*"):
            await store.usage(before=bad)


def test_a_usage_record_has_a_column_of_each_field_that_may_be_null_where_the_field_may_be_none() -> None:
    types = get_type_hints(UsageRecord)
    columns = {column.name: column.nullable for column in USAGE.columns if column.name not in ("began", "batch")}
    assert columns == {each.name: isinstance(types[each.name], UnionType) for each in fields(UsageRecord)}


async def test_a_use_that_is_not_over_is_read_as_it_was_written_until_it_is_over(store: Store) -> None:
    use = Use("l1", "ada", "lab", OfferId("gpu-0.5"), "gpu", 500, NOW, NOW, groups=("ml",), keeps=1,
                  sums=Sums(1.5, 60.0, 0.0, 0.0, None), measured_at=NOW, end=UseEnd.IDLE)  # fmt: skip
    await store.commit(Changes(uses=(use,)))
    assert (await store.load()).uses == (use,)
    await store.commit(Changes(gone_uses=("l1",), usage=(usage(1),)))
    assert (await store.load()).uses == ()


async def test_minutes_keep_what_is_not_known_apart_from_zero(store: Store) -> None:
    unknown = Minute("l1", NOW, "GPU-1", "none", None, None, None, 0.0)
    zero = Minute("l1", NOW + timedelta(minutes=1), "", "dcgm", 0.0, 0.0, 0, 55.0)
    await store.commit(Changes(samples=(unknown, zero)))
    await store.commit(Changes(samples=(zero,)))
    assert await store.samples("l1", NOW) == (unknown, zero)


async def test_what_is_too_old_is_pruned_and_nothing_that_lives(store: Store) -> None:
    old = NOW - timedelta(days=366)
    month = NOW - timedelta(days=31)
    waiting = ticket(1, joined=old)
    await store.commit(
        Changes(
            (
                TicketRow(waiting),
                TicketRow(ticket(2, TicketState.ENDED, user="old"), TicketEnd.READY, "", old),
                TicketRow(ticket(3, TicketState.ENDED, user="new"), TicketEnd.READY, "", NOW),
            ),
            (lease(1, since=old),),
            journal=(journal("old", old), journal("new", month)),
            notices=(NoticeRow(month, "ada", "", "old"), NoticeRow(NOW, "ada", "", "new")),
            usage=(usage(1, old), usage(2, month)),
            samples=tuple(Minute("l1", at, "GPU-1", "nvml", 1.0, 1.0, 1, 60.0) for at in (month, NOW)),
        )
    )
    await store.prune(NOW)
    stored = await store.load()
    assert stored.tickets == (waiting,) and len(stored.leases) == 1
    assert [row.text for row in await store.journal()] == ["new"]
    assert [row.text for row in await store.notices("ada", old)] == ["new"]
    assert [row.key for row in (await store.usage()).uses] == ["l2"]
    assert len(await store.samples("l1", old)) == 1
    assert await store.last_offers("old") == () and await store.last_offers("new") != ()


async def test_a_deleted_users_records_stay_without_the_name_and_the_rest_goes(store: Store) -> None:
    await store.commit(
        Changes(
            (TicketRow(ticket(1, TicketState.ENDED), TicketEnd.READY, "", NOW),),
            facts=(ServerFacts("user1", "lab", "gpu", NOW), ServerFacts("user2", "", "gpu", NOW)),
            journal=(journal("a", user="user1"), replace(journal("b", user="user2"), actor="admin user1")),
            notices=(NoticeRow(NOW, "user1", "", "n"),),
            usage=(usage(1, server="lab"), usage(2), usage(3), usage(4, user="user1")),
        )
    )
    await store.forget_user("user1")
    await store.forget_user("user3")
    left = {row.key: (row.user, row.server, row.groups) for row in (await store.usage()).uses}
    assert left == {
        "l1": ("deleted/1", "", ()),
        "l4": ("deleted/1", "", ()),
        "l2": ("user2", "", ("ml",)),
        "l3": ("deleted/2", "", ()),
    }, "two who were deleted are not one person"
    assert await store.users() == ("user2",)
    assert [(row.text, row.actor) for row in await store.journal()] == [("b", "admin")]
    assert await store.notices("user1", NOW) == () and await store.last_offers("user1") == ()
    assert [each.user for each in (await store.load()).facts] == ["user2"]


@pytest.mark.whole
@pytest.mark.slow
async def test_ten_thousand_tickets_are_written_and_read_with_few_statements(store: Store) -> None:
    said: list[str] = []
    sa.event.listen(store._engine, "before_cursor_execute", lambda *about: said.append(about[2]))
    await store.commit(Changes(tuple(TicketRow(ticket(number)) for number in range(10_000))))
    stored = await store.load()
    assert len(stored.tickets) == 10_000
    assert len(said) < 100, said[:100]


async def test_a_caller_that_is_cancelled_does_not_take_its_commit_back(store: Store) -> None:
    commits = [asyncio.ensure_future(store.commit(Changes((TicketRow(ticket(number)),)))) for number in range(20)]
    await asyncio.sleep(0)
    for commit in commits:
        commit.cancel()
    await asyncio.gather(*commits, return_exceptions=True)
    assert all(commit.cancelled() for commit in commits)
    assert len((await store.load()).tickets) == 20


async def test_a_closed_store_says_so_and_keeps_what_it_had(url: str) -> None:
    store = Store.open(url)
    await store.commit(Changes((TicketRow(ticket(1)),)))
    store.close()
    store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.load()
    again = Store.open(url)
    assert len((await again.load()).tickets) == 1
    again.close()


def test_changes_know_whether_there_is_anything_to_write() -> None:
    assert Changes().empty
    assert not Changes(meta={"a": "b"}).empty and not Changes(gone_facts=(("ada", ""),)).empty


async def test_a_store_in_memory_works_like_any_other() -> None:
    store = Store.open("sqlite://")
    await store.commit(Changes((TicketRow(ticket(1)),)))
    assert len((await store.load()).tickets) == 1
    store.close()
