"""Which change of a lease, a ticket or a server is which event of a use: case by case, in a state with four servers.

Ada runs on a GPU, Ben on CPU only, Cid's server with a GPU starts, and Dan's was found.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from hub_extensions.adapters.store import Changes, StoreUnavailable, TicketRow
from hub_extensions.core.culling import ServerFacts
from hub_extensions.core.messages import Started
from hub_extensions.core.offers.offer_id import CPU
from hub_extensions.core.queue.model import Lease, LeaseState, TicketEnd, TicketState
from hub_extensions.core.stops import Cause, StopCause, StopRecord, StopState
from hub_extensions.core.usage import Figure, Use, UseEnd
from hub_extensions.hub_service.engine.state.errors import Refused
from hub_extensions.hub_service.engine.state.snapshots import ServerPods
from hub_extensions.hub_service.engine.state.state import State
from hub_extensions.hub_service.engine.uses.usage import (
    LATE_REPORT,
    Measuring,
    missing_uses,
    record_late_report,
    with_uses,
)
from tests.fakes.cluster_table import pod
from tests.fakes.machine import large, small
from tests.hub_service.engine.room import Room, room

pytestmark = pytest.mark.slow

SMALL, LARGE = "mig-1g.5gb", "mig-2g.10gb"
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


@asynccontextmanager
async def four(path: Path) -> AsyncIterator[Room]:
    async with room(path, small(0), large(0)) as r:
        for user, offer in (("ada", SMALL), ("ben", "cpu")):
            state = await r.ask(user, offer)
            await r.engine.started(state.ticket, Started(state.attempt, ready=True))
            r.hub.run(user)
        await r.ask("cid", LARGE)
        r.hub.run("dan")
        await r.engine.reconciler.reconcile()
        r.hands.pass_time(MINUTE)
        await r.engine.watcher.refresh()
        yield r


def lease(state: State, user: str) -> Lease:
    return next(each for each in state.leases.values() if each.user == user)


def use(state: State, user: str) -> Use:
    return next(each for each in state.uses.values() if each.user == user)


def ended(changes: Changes) -> list[tuple[str, str]]:
    """(user, how) of the records that are written."""
    assert len(changes.gone_uses) == len(changes.usage)
    return [(record.user, record.end) for record in changes.usage]


async def test_a_state_of_four_servers_has_four_uses_and_what_changes_none_of_them_writes_none(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        state = r.engine.state
        assert {each.user: (each.offer, each.adopted) for each in state.uses.values()} == {
            "ada": (SMALL, False), "ben": (CPU, False), "cid": (LARGE, False), "dan": (CPU, True),
        }  # fmt: skip
        nothing = Changes(meta={"a": "b"})
        assert with_uses(state, nothing) is nothing
        same = Changes(
            leases=tuple(state.leases.values()),
            facts=tuple(state.facts.values()),
            tickets=tuple(TicketRow(each) for each in state.tickets.values()),
        )
        assert with_uses(state, same) == same


@pytest.mark.parametrize(
    ("was", "now", "end", "known"),
    [
        (LeaseState.RUNNING, LeaseState.ENDING, None, "unknown"),
        (LeaseState.RUNNING, LeaseState.ENDING, UseEnd.USER, "user"),
        (LeaseState.LOST, LeaseState.ENDING, None, "lost"),
        (LeaseState.LOST, LeaseState.ENDING, UseEnd.UNKNOWN, "lost"),
        (LeaseState.LOST, LeaseState.ENDING, UseEnd.USER, "user"),
        (LeaseState.ENDING, LeaseState.ENDING, UseEnd.USER, None),
        (LeaseState.ENDING, LeaseState.RUNNING, UseEnd.USER, None),
        (LeaseState.RUNNING, LeaseState.LOST, UseEnd.USER, None),
    ],
)
async def test_the_use_of_a_lease_knows_its_end_when_the_lease_begins_to_end(
    tmp_path: Path, was: LeaseState, now: LeaseState, end: UseEnd | None, known: str | None
) -> None:
    async with four(tmp_path) as r:
        state, held = r.engine.state, lease(r.engine.state, "ada")
        state.leases[held.id] = replace(held, state=was)
        found = with_uses(state, Changes(leases=(replace(held, state=now),), end=end))
        assert [each.end.value for each in found.uses if each.end is not None] == ([known] if known else [])
        assert found.usage == () and found.gone_uses == ()
        over = with_uses(state, Changes(leases=(replace(held, state=LeaseState.ENDED),), end=end))
        assert over.gone_uses == (held.id,) and [record.user for record in over.usage] == ["ada"]
        first = was is not LeaseState.ENDING
        if first and now is LeaseState.ENDING:
            assert ended(over) == [("ada", known)]


@pytest.mark.parametrize(
    ("away", "end", "known"),
    [
        ("", None, "unknown"),
        ("hub", None, "hub-stopped"),
        ("no list", None, "hub-stopped"),
        ("unseen", None, "hub-stopped"),
        ("hub", UseEnd.UNKNOWN, "unknown"),
        ("hub", UseEnd.FAILED, "failed"),
        ("stopping", UseEnd.USER, "idle"),
        ("stopping, no cause", UseEnd.USER, "user"),
        ("a cause of before", UseEnd.USER, "user"),
        ("announced", UseEnd.USER, "user"),
    ],
)
async def test_how_a_running_server_ended_follows_from_who_is_there_to_say_it(
    tmp_path: Path, away: str, end: UseEnd | None, known: str
) -> None:
    async with four(tmp_path) as r:
        state, held = r.engine.state, lease(r.engine.state, "ada")
        facts, now = state.facts["ada", ""], state.clock.now()
        state.hub_view = replace(
            state.hub_view,
            away_since=r.hands.wall if away == "hub" else None,
            servers=None if away == "no list" else {},
            gone_in_outage=frozenset({("ada", "")} if away == "unseen" else {("eve", "")}),
        )
        idle = (StopCause(Cause.IDLE, now, True, "left"),)
        stopping = {
            "stopping": (StopState.DRAINING, idle),
            "stopping, no cause": (StopState.DRAINING, ()),
            "a cause of before": (StopState.WAITING, idle),
            "announced": (StopState.ANNOUNCED, idle),
        }
        if away in stopping:
            stop = StopRecord("ada", "", held.id, stopping[away][0], facts.started, stopping[away][1], began=now)
            state.stops = {stop.key: stop}
        assert ended(with_uses(state, Changes(leases=(replace(held, state=LeaseState.ENDED),), end=end))) == [
            ("ada", known)
        ]


@pytest.mark.parametrize(
    ("row_end", "end", "known"),
    [
        (None, None, "left"),
        (TicketEnd.LEFT, UseEnd.USER, "left"),
        (TicketEnd.FAILED, None, "failed"),
        (TicketEnd.READY, None, "left"),
        (None, UseEnd.HUB_STOPPED, "hub-stopped"),
    ],
)
async def test_how_a_start_ended_says_its_ticket(
    tmp_path: Path, row_end: TicketEnd | None, end: UseEnd | None, known: str
) -> None:
    async with four(tmp_path) as r:
        state, held = r.engine.state, lease(r.engine.state, "cid")
        ticket, other = state.tickets[held.ticket], replace(state.tickets[held.ticket], id="another")
        rows = (TicketRow(other, TicketEnd.MAX_WAIT), TicketRow(ticket, row_end))
        changes = Changes(tickets=rows, leases=(replace(held, state=LeaseState.ENDED),), end=end)
        assert ended(with_uses(state, changes)) == [("cid", known)]


async def test_a_lease_of_which_no_use_is_known_begins_one_only_where_it_is_new(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        state, held = r.engine.state, lease(r.engine.state, "ada")
        new = replace(held, id="new", user="eve", adopted=True)
        (begun,) = with_uses(state, Changes(leases=(new,))).uses
        assert (begun.key, begun.user, begun.adopted, begun.ready) == (
            "new",
            "eve",
            True,
            state.clock.utc_now() - MINUTE,
        )
        assert with_uses(state, Changes(leases=(replace(new, state=LeaseState.ENDED),))).usage == ()
        del state.uses[held.id]
        assert with_uses(state, Changes(leases=(replace(held, state=LeaseState.ENDING),))).uses == ()


@pytest.mark.parametrize(("enabled", "seconds"), [(True, 1800.0), (False, None)])
async def test_a_use_has_the_limit_that_is_enforced_when_it_is_ready(
    tmp_path: Path, enabled: bool, seconds: float | None
) -> None:
    async with four(tmp_path) as r:
        state, held = r.engine.state, lease(r.engine.state, "cid")
        state.policies.base = replace(state.policy, enabled=enabled)
        ready = replace(held, state=LeaseState.RUNNING, ready_at=state.clock.now())
        (found,) = with_uses(state, Changes(leases=(ready,))).uses
        assert (found.lifetime_seconds, found.ready, found.ready_at) == (
            seconds,
            state.clock.utc_now(),
            state.clock.now(),
        )
        state.uses[found.key] = found
        r.hands.pass_time(MINUTE)
        assert with_uses(state, Changes(leases=(ready,))).uses == ()


async def test_the_kind_of_its_device_is_noted_as_soon_as_it_is_known(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        state = r.engine.state
        assert [use(state, user).device_class for user in ("ada", "ben", "cid", "dan")] == [
            "NVIDIA A100-PCIE-40GB", "", "NVIDIA A100-PCIE-40GB", "",
        ]  # fmt: skip
        held = lease(state, "ada")
        state.uses[held.id] = replace(state.uses[held.id], device_class="")
        (found,) = with_uses(state, Changes(leases=(held,))).uses
        assert found.device_class == "NVIDIA A100-PCIE-40GB"
        gone = replace(held, device="of another machine", offer=SMALL)
        (by_offer,) = with_uses(state, Changes(leases=(gone,))).uses
        assert by_offer.device_class == "NVIDIA A100-PCIE-40GB"
        state.offers = ()
        assert with_uses(state, Changes(leases=(gone,))).uses == ()


async def test_a_ticket_begins_a_use_once_and_one_on_cpu_only_ends_with_its_ticket(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        state = r.engine.state
        await r.ask("eve", "cpu")
        ticket = next(each for each in state.tickets.values() if each.user == "eve")
        assert ticket.state is TicketState.ADMITTED and use(state, "eve").key == ticket.id
        assert with_uses(state, Changes(tickets=(TicketRow(ticket),))).uses == ()
        (found,) = with_uses(state, Changes(tickets=(TicketRow(ticket, TicketEnd.READY),))).uses
        assert (found.ready, found.lifetime_seconds) == (state.clock.utc_now(), None)
        assert ended(with_uses(state, Changes(tickets=(TicketRow(ticket, TicketEnd.FAILED),)))) == [("eve", "failed")]
        back = replace(ticket, state=TicketState.WAITING)
        assert ended(with_uses(state, Changes(tickets=(TicketRow(back),)))) == [("eve", "left")]
        del state.uses[ticket.id]
        assert with_uses(state, Changes(tickets=(TicketRow(ticket, TicketEnd.FAILED),))).usage == ()
        waits = replace(ticket, id="waits", state=TicketState.WAITING)
        assert with_uses(state, Changes(tickets=(TicketRow(waits), TicketRow(waits, TicketEnd.LEFT)))).usage == ()
        (new,) = with_uses(state, Changes(tickets=(TicketRow(replace(ticket, id="new")),))).uses
        assert (new.key, new.user, new.offer) == ("new", "eve", CPU)


async def test_facts_begin_the_use_of_a_server_that_has_none_and_note_what_its_user_was_shown(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        state, now = r.engine.state, r.engine.state.clock.now()
        (found,) = with_uses(state, Changes(facts=(ServerFacts("eve", "", CPU, now, adopted=True),))).uses
        assert (found.user, found.adopted, found.admitted, found.ready) == ("eve", True, r.hands.wall, r.hands.wall)
        for user in ("ada", "ben", "dan"):
            warned = replace(state.facts[user, ""], warned=now)
            (found,) = with_uses(state, Changes(facts=(warned,))).uses
            assert (found.key, found.warnings, found.keeps) == (use(state, user).key, 1, 0)
        two = (ServerFacts("eve", "a", CPU, now), ServerFacts("eve", "b", CPU, now))
        assert [each.server for each in with_uses(state, Changes(facts=two)).uses] == ["a", "b"]


@pytest.mark.parametrize(("user", "ends"), [("dan", True), ("ben", False)])
async def test_only_a_use_that_was_found_is_over_when_its_server_holds_a_gpu(
    tmp_path: Path, user: str, ends: bool
) -> None:
    async with four(tmp_path) as r:
        state = r.engine.state
        found = with_uses(state, Changes(facts=(replace(state.facts[user, ""], lease="of this moment"),)))
        assert found.gone_uses == ((use(state, user).key,) if ends else ()) and found.usage == ()


async def test_a_server_without_a_gpu_ends_its_use_when_it_is_gone_and_one_with_a_lease_with_its_lease(
    tmp_path: Path,
) -> None:
    async with four(tmp_path) as r:
        state = r.engine.state
        for user, how in (("ben", [("ben", "user")]), ("dan", [("dan", "user")]), ("ada", []), ("nobody", [])):
            assert ended(with_uses(state, Changes(gone_facts=((user, ""),), end=UseEnd.USER))) == how
        again = Changes(gone_facts=(("ben", ""),), facts=(state.facts["ben", ""],), end=UseEnd.USER)
        assert with_uses(state, again).usage == ()
        state.facts["ada", ""] = replace(state.facts["ada", ""], lease=None)
        assert with_uses(state, Changes(gone_facts=(("ada", ""),), end=UseEnd.USER)).usage == ()


async def test_what_was_written_meanwhile_is_counted_with(tmp_path: Path) -> None:
    """Changes that bring uses of their own are the newer."""
    async with four(tmp_path) as r:
        state, held = r.engine.state, lease(r.engine.state, "ada")
        brought = replace(use(state, "ada"), end=UseEnd.ADMIN)
        changes = Changes(
            uses=(brought,),
            gone_uses=("x",),
            usage=(),
            leases=(replace(held, state=LeaseState.ENDED),),
            end=UseEnd.USER,
        )
        found = with_uses(state, changes)
        assert [record.end for record in found.usage] == ["admin"] and found.gone_uses == ("x", held.id)


# ------------------------------------------------------------------ after a restart, and said late


async def test_what_a_store_of_before_has_no_use_of_gets_one(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        state = r.engine.state
        assert missing_uses(state) == ()
        keys = {each.user: each.key for each in state.uses.values()}
        state.clock.pause()
        r.hands.pass_time(10 * MINUTE)
        state.clock.resume()
        del state.uses[keys["ada"]], state.uses[keys["dan"]], state.uses[keys["cid"]]
        found = {each.user: each for each in missing_uses(state)}
        assert set(found) == {"ada", "cid", "dan"} and found["ada"].key == keys["ada"]
        began = state.facts["dan", ""].started
        assert (found["dan"].begun, found["dan"].ready_at, found["dan"].adopted) == (began, began, True)
        assert found["dan"].admitted == found["dan"].ready == began + (state.clock.utc_now() - state.clock.now())
        assert found["ada"].admitted == lease(state, "ada").since + (state.clock.utc_now() - state.clock.now())


@pytest.mark.parametrize(
    ("end", "after", "mended"),
    [
        (UseEnd.USER, LATE_REPORT, True),
        (UseEnd.USER, LATE_REPORT + SECOND, False),
        (UseEnd.UNKNOWN, timedelta(0), False),
    ],
)
async def test_for_a_minute_the_hub_may_still_say_who_ended_a_server(
    tmp_path: Path, end: UseEnd, after: timedelta, mended: bool
) -> None:
    async with four(tmp_path) as r:
        state = r.engine.state
        (record,) = with_uses(state, Changes(gone_facts=(("ben", ""),))).usage
        state.last_uses["ben", ""] = record
        r.hands.pass_time(after)
        found = record_late_report(state, ("ben", ""), end)
        assert found.usage == ((replace(record, end=end.value),) if mended else ()) and found.uses == ()
        assert record_late_report(state, ("nobody", ""), end) == Changes()


async def test_of_a_server_that_still_ends_the_hub_says_it_to_the_use_and_to_no_record(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        state, held = r.engine.state, lease(r.engine.state, "ada")
        (record,) = with_uses(state, Changes(gone_facts=(("ben", ""),))).usage
        state.last_uses["ada", ""] = replace(record, user="ada")
        found = record_late_report(state, ("ada", ""), UseEnd.USER)
        assert [(each.key, each.end) for each in found.uses] == [(held.id, UseEnd.USER)] and found.usage == ()
        state.uses[held.id] = replace(state.uses[held.id], end=UseEnd.IDLE)
        assert record_late_report(state, ("ada", ""), UseEnd.USER) == Changes()
        assert record_late_report(state, ("ada", "other"), UseEnd.USER) == Changes()


# ------------------------------------------------------------------ minutes


def figure(percent: float | None = 40.0) -> Figure:
    return Figure(percent, 2**30, "dcgm" if percent is not None else "none")


async def test_a_minute_is_given_when_it_is_over_or_its_lease_is(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        state, measuring = r.engine.state, Measuring(r.engine.state)
        held, begun = lease(state, "ada"), r.hands.wall
        state.pods = ServerPods({held.id: pod("p", "node-1", asks=SMALL, lease=held.id)})

        async def take(percent: float | None = 40.0, device: str = "") -> Changes:
            measured, found = await measuring.take(lambda _: figure(percent), lambda _: device)
            state.take_measured(measured)
            measuring.written()
            return found

        assert await take(80.0) == Changes()
        for _ in range(2):
            r.hands.pass_time(20 * SECOND)
            assert await take() == Changes()
        r.hands.pass_time(19.9 * SECOND)
        assert await take(None) == Changes()
        measured = state.uses[held.id]
        assert (measured.node, measured.device, measured.sums.use_seconds) == ("node-1", "MIG-small-0", 40.0)
        assert measured.sums.mean == 40.0 and measured.first_used == begun
        r.hands.pass_time(0.1 * SECOND)
        found = await take(device="MIG-other")
        (minute,) = found.samples
        assert (minute.key, minute.at, minute.device, minute.source) == (held.id, begun, "MIG-small-0", "dcgm")
        assert (minute.used_percent, minute.measured_seconds, minute.memory_bytes) == (40.0, 40.0, 2**30)
        assert [each.key for each in found.uses] == [held.id]
        r.hands.pass_time(20 * SECOND)
        assert await take(device="MIG-other") == Changes()
        state.leases[held.id] = replace(held, state=LeaseState.LOST)
        assert await take() == Changes(), "it is still measured"
        state.leases[held.id] = replace(held, state=LeaseState.ENDING)
        (last,) = (await take()).samples
        assert (last.at, last.device) == (begun + MINUTE, "MIG-other")
        assert await take() == Changes()


async def test_minutes_that_could_not_be_written_are_given_again_for_an_hour(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        measuring, begun = Measuring(r.engine.state), r.hands.wall

        async def minutes() -> list[int]:
            measured, found = await measuring.take(lambda _: figure(40.0), lambda _: "")
            r.engine.state.take_measured(measured)
            assert len(found.uses) <= 1
            return [(each.at - begun) // MINUTE for each in found.samples]

        assert await minutes() == []
        for count in range(1, 64):
            r.hands.pass_time(MINUTE)
            assert await minutes() == list(range(max(1, count - 60), count)), "nobody measured in the first"
        measuring.written()
        r.hands.pass_time(MINUTE)
        assert await minutes() == [63]


async def test_a_minute_over_which_the_store_is_away_is_written_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with four(tmp_path) as r:
        state, begun = r.engine.state, r.hands.wall
        commit, key = state.store.commit, lease(state, "ada").id
        r.engine.stop_runner.figure_of = lambda _: figure(40.0)  # type: ignore[method-assign]

        async def fails(changes: Changes) -> None:
            raise StoreUnavailable("the disk is full")

        for away in (False, False, True, True, False):
            monkeypatch.setattr(state.store, "commit", fails if away else commit)
            with pytest.raises(Refused) if away else nullcontext():
                await r.engine.stop_runner.decide_all()
            r.hands.pass_time(MINUTE)
        found = await state.store.samples(key, begun - MINUTE)
        assert [(each.at - begun) // MINUTE for each in found] == [1, 2, 3]


async def test_what_has_no_use_or_does_not_run_is_not_measured(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        state, measuring, asked = r.engine.state, Measuring(r.engine.state), list[str]()

        def noted(each: Lease) -> Figure:
            asked.append(each.user)
            return figure()

        state.take_measured((await measuring.take(noted, lambda _: ""))[0])
        assert asked == ["ada"], "Cid's server starts"
        r.hands.pass_time(SECOND)
        state.take_measured((await measuring.take(noted, lambda _: ""))[0])
        held = lease(state, "ada")
        del state.uses[held.id]
        state.take_measured((await measuring.take(noted, lambda _: ""))[0])
        assert held.id not in state.uses
        r.hands.pass_time(MINUTE)
        _, found = await measuring.take(noted, lambda _: "")
        assert [each.key for each in found.samples] == [held.id] and found.uses == ()
