"""What the state remembers of changes, and how it answers: case by case."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from hub_extensions.adapters.store import Changes, JournalRow, NoticeRow, TicketRow
from hub_extensions.core.gpu.devices import DeviceState, InventoryReading
from hub_extensions.core.gpu.samples import DeviceSample
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.model import LeaseState, TicketEnd, TicketState
from hub_extensions.hub_service.engine.state.meta import POOL_NAMES, TOKEN_NAME
from hub_extensions.hub_service.engine.uses.usage import with_uses
from tests.fakes.machine import small
from tests.hub_service.engine.pod_room import pod_room
from tests.hub_service.engine.room import room
from tests.hub_service.engine.test_followed_uses import SMALL, four, lease

pytestmark = pytest.mark.slow

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)


async def test_places_are_numbers_that_go_up_by_one_from_one(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        assert [r.engine.state.new_place() for _ in range(3)] == [1, 2, 3]
        assert r.engine.state.first_start


async def test_what_may_be_seen_otherwise_is_another_revision(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        state = r.engine.state
        ticket = next(iter(state.tickets.values()))
        for changes, grows in (
            (Changes(), False),
            (Changes(meta={"a": "b"}), False),
            (Changes(tickets=(TicketRow(ticket),)), True),
            (Changes(facts=tuple(state.facts.values())), True),
        ):
            before = state.revision
            await state.commit(changes)
            assert (state.revision > before) is grows


async def test_a_ticket_that_ends_is_forgotten_and_the_next_of_its_server_is_not(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        state = r.engine.state
        fay = await r.ask("fay", SMALL)
        old = state.tickets[fay.ticket]
        new = replace(old, id="new")
        state.ticket_index.node_sets[old.id] = frozenset("a")
        await state.commit(Changes(tickets=(TicketRow(new),)))
        assert state.live_ticket("fay", "") == new
        await state.commit(Changes(tickets=(TicketRow(old, TicketEnd.LEFT),)))
        assert (
            state.live_ticket("fay", "") == new
            and old.id not in state.tickets
            and old.id not in state.ticket_index.node_sets
        )
        await state.commit(Changes(tickets=(TicketRow(new, TicketEnd.LEFT),)))
        assert state.live_ticket("fay", "") is None and state.last_offers_by_user["fay"] == (SMALL,)


async def test_only_a_pressed_keep_of_somebody_is_counted_and_the_older_ones_drop_out(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        state = r.engine.state

        def row(kind: str, user: str | None) -> JournalRow:
            return JournalRow(r.hands.wall, kind, None, None, user, "", "", "user", "")

        first = state.clock.now()
        await state.commit(Changes(journal=(row("kept", "ada"), row("kept", None), row("culled", "ben"))))
        assert state.keeps == {"ada": (first,)}
        r.hands.pass_time(23 * HOUR)
        await state.commit(Changes(journal=(row("kept", "ada"),)))
        assert state.keeps["ada"] == (first, first + 23 * HOUR)
        r.hands.pass_time(HOUR + SECOND)
        await state.commit(Changes(journal=(row("kept", "ada"),)))
        assert state.keeps["ada"] == (first + 23 * HOUR, first + 24 * HOUR + SECOND)


async def test_the_last_record_of_a_server_is_remembered_for_a_minute_while_its_end_is_not_known(
    tmp_path: Path,
) -> None:
    async with four(tmp_path) as r:
        state = r.engine.state
        (record,) = with_uses(state, Changes(gone_facts=(("ben", ""),))).usage
        assert record.end == "unknown"
        for later, kept in ((59 * SECOND, {"ben", "eve"}), (60 * SECOND, {"eve"})):
            state.last_uses = {}
            await state.commit(Changes(usage=(record,)))
            other = replace(record, key=f"k{later}", user="eve", ended=record.ended + later)
            await state.commit(Changes(usage=(other,)))
            assert {user for user, _ in state.last_uses} == kept
        await state.commit(Changes(usage=(replace(record, user="eve", end="user"),)))
        assert ("eve", "") not in state.last_uses


async def test_notes_that_others_read_are_kept_as_they_are_written(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        state = r.engine.state
        await state.commit(Changes(meta={POOL_NAMES: json.dumps({"a": "b"}), TOKEN_NAME: "a9"}))
        assert (state.pool_names, state.token_name) == ({"a": "b"}, "a9")
        await state.commit(Changes(meta={"x": "y"}))
        assert (state.pool_names, state.token_name) == ({"a": "b"}, "a9")


@pytest.mark.parametrize(("enabled", "lifetime"), [(False, 30), (True, None), (True, 30)])
async def test_a_lease_ends_by_the_lifetime_where_one_is_enforced(
    tmp_path: Path, enabled: bool, lifetime: int | None
) -> None:
    async with four(tmp_path) as r:
        state = r.engine.state
        span = None if lifetime is None else lifetime * MINUTE
        state.policies.base = replace(state.policy, enabled=enabled, lifetime=span)
        runs, starts = lease(state, "ada"), lease(state, "cid")
        assert runs.ready_at is not None
        ends = span is not None and enabled
        assert state.end_of(runs) == (runs.ready_at + 30 * MINUTE if ends else None)
        assert state.end_of(starts) == (starts.since + state.start_allowance + 30 * MINUTE if ends else None)
        assert state.queue_snapshot().lifetime == (span if ends else None)


@pytest.mark.parametrize(
    ("ends", "promised", "facts_of", "enforced"),
    [
        (10, None, "own", 10),  # far away
        (1, None, "own", 1),  # no sooner than its warning, which begins now
        (0.5, None, "own", 1),
        (-5, None, "own", 1),
        (10, 20, "own", 20),  # what its user was promised
        (10, 20, "another", 10),
        (10, 20, "none", 10),
        (None, 20, "own", None),
    ],
)
async def test_a_lease_has_the_end_that_its_server_really_has(
    tmp_path: Path, ends: float | None, promised: float | None, facts_of: str, enforced: float | None
) -> None:
    async with four(tmp_path) as r:
        state, now = r.engine.state, r.engine.state.clock.now()
        held = replace(lease(state, "ada"), ends_at=None if ends is None else now + ends * MINUTE)
        facts = replace(
            state.facts["ada", ""],
            started=now + ends * MINUTE - 30 * MINUTE if ends is not None else now,
            lease=held.id if facts_of == "own" else "another",
            warned=None if promised is None else now,
            promised=None if promised is None else now + promised * MINUTE,
        )
        state.facts["ada", ""] = facts
        if facts_of == "none":
            del state.facts["ada", ""]
        found = state.as_enforced(held)
        assert found.ends_at == (None if enforced is None else now + enforced * MINUTE)


async def test_the_highest_use_since_the_last_decision_is_kept(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        state = r.engine.state
        device = small(0)
        states = dict(state.devices)
        state.highest_use = {}
        for used, highest in ((3.0, 3.0), (9.0, 9.0), (5.0, 9.0), (None, 9.0)):
            sample = DeviceSample(device.uuid, r.hands.wall, used, 0, (), "nvml" if used is not None else "none")
            revision, wanted = state.revision, state.forecasts.revision
            state.take_reading(
                InventoryReading(r.hands.wall, (device,), {device.uuid: sample}, ("One.", "Two.")), states
            )
            assert state.highest_use == {device.uuid: highest}
            assert (state.revision, state.forecasts.revision) == (revision, wanted), "nothing is there that was not"
            assert (state.problem, state.read_at) == ("One. Two.", state.clock.now())
        gone = {name: replace(each, present=False) for name, each in states.items()}
        revision, wanted = state.revision, state.forecasts.revision
        state.take_reading(InventoryReading(r.hands.wall, (), {}), gone)
        assert state.revision > revision and state.forecasts.revision > wanted
        assert SMALL not in {offer.id for offer in state.offers} and state.devices == gone
        other = DeviceState(small(1))
        state.take_reading(InventoryReading(r.hands.wall, (small(1),), {}), {other.device.identity: other})
        assert SMALL in {offer.id for offer in state.offers} and state.device(other.device.identity) == small(1)
        assert state.device("none") is None


async def test_one_lease_that_lives_is_a_servers_and_one_that_ends_is_no_tickets(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        state, held = r.engine.state, lease(r.engine.state, "cid")
        assert state.lease_of("cid", "") == held and state.lease_of_ticket(held.ticket) == held
        assert state.lease_of("cid", "x") is None and state.lease_of("eve", "") is None
        again = replace(held, id="again")
        await state.commit(Changes(leases=(again,)))
        assert state.lease_of_ticket(held.ticket) == again
        await state.commit(Changes(leases=(replace(held, state=LeaseState.ENDING),)))
        assert state.lease_of_ticket(held.ticket) == again, "of two the one that lives"
        await state.commit(Changes(leases=(replace(again, state=LeaseState.ENDED),)))
        assert state.lease_of_ticket(held.ticket) is None and "again" not in state.leases


async def test_notices_of_the_last_day_are_a_users_own(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        state = r.engine.state
        now = r.hands.wall
        rows = [NoticeRow(now - ago, "ada", "", str(n)) for n, ago in enumerate((25 * HOUR, 24 * HOUR, HOUR))]
        await state.commit(Changes(notices=tuple(rows)))
        assert [notice.text for notice in state.recent_notices("ada")] == ["1", "2"]
        assert state.recent_notices("ben") == ()
        state.notices.forget_old(now)
        assert len(state.notices.recent("ada", now - 24 * HOUR)) == 2, "the oldest is kept no longer"


async def test_on_a_cluster_that_was_not_read_an_offer_that_is_asked_for_has_a_line(tmp_path: Path) -> None:
    async with pod_room(tmp_path) as r:
        state = r.engine.state
        assert state.queue_snapshot().pools is not None and state.queue_snapshot().devices is None
        r.hands.pass_time(61 * SECOND)
        assert state.queue_snapshot().pools is None, "a minute old"
        state.cluster = None
        names = {offer.id for offer in state.queue_snapshot((OfferId("mig-7g.40gb"),)).offers}
        assert "mig-7g.40gb" in names and SMALL in names and "cpu" in names
        hidden = replace(state.offer_config, hidden=("mig-7g.40gb",))
        state.offer_config = hidden
        assert "mig-7g.40gb" not in {offer.id for offer in state.queue_snapshot((OfferId("mig-7g.40gb"),)).offers}
        assert {each.offer.id for each in state.availability()} == {offer.id for offer in state.offers}


async def test_somebody_who_was_admitted_waits_no_more(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        assert r.engine.state.waiting() == 0
        fay = await r.ask("fay", SMALL)
        assert r.engine.state.waiting() == 1
        ticket = r.engine.state.tickets[fay.ticket]
        r.engine.state.tickets[fay.ticket] = replace(ticket, state=TicketState.ADMITTED)
        assert r.engine.state.waiting() == 0
