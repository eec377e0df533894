"""The state and the comparison with the hub: what is kept, who counts, what is told of an outage."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from hub_extensions.adapters.hub.jupyterhub_api import HubRefused
from hub_extensions.adapters.store import Changes
from hub_extensions.core.offers.model import OfferConfig
from hub_extensions.core.queue.model import Lease, LeaseState, QueueLimits, TicketState
from hub_extensions.core.text.reasons import Reason, explain
from tests.fakes.machine import HubAsTold, large, small
from tests.hub_service.engine.pod_room import pod_room
from tests.hub_service.engine.room import Hands, Room, room, settings

SECOND = timedelta(seconds=1)


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_an_outage_of_the_hub_is_told_with_its_beginning_until_it_answers(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.engine.reconciler.reconcile()
        assert r.engine.health().hub == "answers"
        r.hub.away, began = "no answer", r.hands.wall
        for _ in range(2):
            await r.engine.reconciler.reconcile()
            r.hands.pass_time(60 * SECOND)
        assert r.engine.health().hub == f"does not answer since {began.isoformat(timespec='seconds')}"
        r.hub.away = ""
        await r.engine.reconciler.reconcile()
        assert (r.engine.health().hub, r.engine.state.hub_view.is_up) == ("answers", True)


class Apart:
    """What a service apart would notice; its hub has other settings from the second listing on."""

    def __init__(self) -> None:
        self.refusals: list[int] = []
        self.asked: list[bool] = []

    async def has_changed(self, may_be_new: bool) -> bool:
        self.asked.append(may_be_new)
        return len(self.asked) > 1

    def refused(self, problem: HubRefused) -> None:
        self.refusals.append(problem.status)


async def test_a_service_apart_learns_of_a_hub_that_refuses_and_not_of_one_that_is_away(tmp_path: Path) -> None:
    apart = Apart()
    async with room(tmp_path, small(0), apart=apart) as r:
        r.hub.away = "no answer"
        await r.engine.reconciler.reconcile()
        assert apart.refusals == []

        async def refuses() -> None:
            raise HubRefused(403, "no")

        r.hub.servers = refuses  # type: ignore[assignment, method-assign]
        await r.engine.reconciler.reconcile()
        assert apart.refusals == [403]


async def test_a_service_apart_whose_hub_has_other_settings_does_nothing_more(tmp_path: Path) -> None:
    apart = Apart()
    async with room(tmp_path, small(0), apart=apart) as r:
        await r.engine.reconciler.reconcile()
        r.hub.run("eve")
        await r.engine.reconciler.reconcile()
        assert r.engine.state.facts == {}
        assert apart.asked == [True, False]


async def test_starts_that_are_still_being_sent_are_not_sent_a_second_time(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.ask("ada", "mig-1g.5gb")
        hub, hands = r.hub, r.hands
    hub.running.clear()
    goes_on, sent = asyncio.Event(), []

    async def slowly(user: str, server: str, options: Mapping[str, object]) -> bool:
        sent.append(user)
        await goes_on.wait()
        return True

    hub.start = slowly  # type: ignore[method-assign]
    async with room(tmp_path, small(0), hub=hub, hands=hands) as r:
        await r.engine.reconciler.reconcile()
        await turns()
        r.engine.reconciler.resume_soon()
        await r.engine.reconciler.reconcile()
        await turns()
        assert sent == ["ada"]
        goes_on.set()
        await turns()
        await r.engine.reconciler.reconcile()
        await turns()
        assert sent == ["ada", "ada"], "the hub was lost in between, so they are sent once more, when those are through"


async def test_a_hub_that_was_away_and_forgot_a_start_is_asked_for_it_again(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.engine.reconciler.reconcile()
        await r.ask("ada", "mig-1g.5gb")
        r.hub.away = "it was killed"
        await r.engine.reconciler.reconcile()
        r.hub.away = ""
        r.hub.running.clear()
        r.hands.pass_time(timedelta(seconds=1))
        await r.engine.reconciler.reconcile()
        await turns()
        assert [each[:2] for each in r.hub.started] == [("ada", "")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("admitted", "ready", "pending", "stays"),
    [
        (True, True, False, True),
        (True, False, True, True),
        (True, False, False, False),
        (False, True, False, False),
        (False, False, True, True),
        (False, None, False, False),
        (True, None, False, False),
    ],
)
async def test_a_hub_that_ran_without_us_keeps_what_it_has_started_or_starts_itself(
    tmp_path: Path, admitted: bool, ready: bool | None, pending: bool, stays: bool
) -> None:
    """`ready` None: it has no such server."""
    async with room(tmp_path, small(0)) as r:
        await r.engine.reconciler.reconcile()
        await r.ask("ada", "mig-1g.5gb")
        await r.ask("ben", "mig-1g.5gb")
        hub, hands = r.hub, r.hands
    who = "ada" if admitted else "ben"
    hub.running.clear()
    hub.token_name = "a7"
    if ready is not None:
        hub.run(who, ready=ready)
        hub.running[(who, "")] = replace(hub.running[(who, "")], pending="spawn" if pending else None)
    async with room(tmp_path, small(0), hub=hub, hands=hands) as r:
        ended: list[str] = []
        r.engine.reconciler._tickets = lambda servers, transaction: nothing()  # type: ignore[method-assign, assignment]
        await r.engine.reconciler.reconcile()
        ended = [row.text for row in r.engine.state.recent_notices(who)]
        assert (who in {ticket.user for ticket in r.engine.state.tickets.values()}) is stays
        assert bool(ended) is not stays
        assert r.engine.state.token_name == "a7"


async def nothing() -> tuple[()]:
    return ()


@pytest.mark.programs
async def test_somebody_the_hub_has_not_listed_is_told_of_no_offer_for_a_group(tmp_path: Path) -> None:
    offers = OfferConfig(groups={"gpu": ("staff",), "mig-2g.10gb": ("staff",)})
    async with room(tmp_path, small(0), large(), offers=offers) as r:
        await r.run("ada", "mig-1g.5gb")
        for people, waits in (({}, ["cpu"]), ({"ada": (("staff",), False)}, ["mig-2g.10gb", "cpu"])):
            r.engine.state.hub_view = replace(r.engine.state.hub_view, people=people)
            state = r.engine.server_state("ada", "")
            assert state is not None and sorted(each.id for each in state.waits) == sorted(waits)


async def test_what_is_not_simulated_is_not_said_to_be(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        given = await r.ask("ada", "mig-1g.5gb")
        waits = await r.ask("ben", "mig-1g.5gb")
        cpu = await r.ask("cleo", "cpu")
        assert [state.simulated for state in (given, waits, cpu)] == [False, False, False]
        assert r.engine.server_state("ada", "").simulated is False  # type: ignore[union-attr]
        assert r.engine.form("eve", "", (), False).simulated is False


async def test_the_form_names_the_users_own_servers_that_are_in_line(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.ask("ada", "mig-1g.5gb")
        await r.ask("ben", "mig-1g.5gb")
        assert r.engine.form("ben", "", (), False).in_line == ("",)
        assert r.engine.form("eve", "", (), False).in_line == ()


async def test_simulated_gpus_are_said_to_be_in_line_at_the_start_and_in_the_server(tmp_path: Path) -> None:
    async with room(tmp_path, replace(small(0), simulated=True)) as r:
        given = await r.ask("ada", "mig-1g.5gb")
        waits = await r.ask("ben", "mig-1g.5gb")
        cpu = await r.ask("cleo", "cpu")
        assert [state.simulated for state in (given, waits, cpu)] == [True, True, False]
        assert r.engine.server_state("ada", "").simulated is True  # type: ignore[union-attr]
        assert r.engine.form("eve", "", (), False).simulated is True


@pytest.mark.parametrize(("seconds", "known"), [(0, True), (60, True), (61, False)])
async def test_what_devices_there_are_is_known_for_a_minute(tmp_path: Path, seconds: int, known: bool) -> None:
    async with room(tmp_path, small(0)) as r:
        r.hands.pass_time(seconds * SECOND)
        assert (r.engine.state.known_devices() is not None) is known
        assert r.engine.state.inventory_age() == seconds * SECOND


async def test_how_offers_stand_is_worked_out_anew_after_a_second_or_a_change(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        first = r.engine.state.availability()
        r.hands.pass_time(0.9 * SECOND)
        assert r.engine.state.availability() is first
        r.hands.pass_time(0.1 * SECOND)
        second = r.engine.state.availability()
        assert second is not first
        await r.ask("ada", "mig-1g.5gb")
        assert [each.free for each in r.engine.state.availability()] != [each.free for each in second]


def cause(before: Lease, after: Lease) -> tuple[str, str]:
    return f"{before.state.value} before {after.state.value}", "as seen"


def notice(lease: Lease) -> Reason:
    return explain("gpu-gone-from-machine", server=lease.server)


@pytest.mark.programs
@pytest.mark.parametrize("after", list(LeaseState))
async def test_a_lease_that_ends_takes_its_facts_with_it_and_only_one_that_goes_on_is_a_servers(
    tmp_path: Path, after: LeaseState
) -> None:
    async with room(tmp_path, small(0)) as r:
        ticket, _ = await r.run("ada", "mig-1g.5gb")
        state = r.engine.state
        (lease,) = state.leases.values()
        async with r.engine.queue.transaction() as transaction:
            await transaction.refresh_leases(lambda each: replace(each, state=after), cause, notice)
        goes_on = after not in (LeaseState.ENDING, LeaseState.ENDED)
        assert (("ada", "") in state.facts) is goes_on
        assert (state.lease_of("ada", "") is not None) is goes_on
        assert (state.lease_of_ticket(ticket.ticket) is not None) is goes_on
        assert (lease.id in state.leases) is (after is not LeaseState.ENDED)
        assert state.lease_of("ada", "other") is None and state.lease_of("ben", "") is None


@pytest.mark.programs
async def test_a_lease_that_ends_leaves_the_facts_of_another_one_alone(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        (lease,) = r.engine.state.leases.values()
        async with r.engine.queue.transaction() as transaction:
            await transaction.write(Changes(leases=(replace(lease, id="of-before"),)))
            await transaction.refresh_leases(
                lambda each: replace(each, state=LeaseState.ENDED) if each.id == "of-before" else each, cause, notice
            )
        assert ("ada", "") in r.engine.state.facts and list(r.engine.state.leases) == [lease.id]


@pytest.mark.programs
@pytest.mark.parametrize(("enabled", "lifetime", "ends"), [(True, 30, True), (True, None, False), (False, 30, False)])
async def test_a_lease_ends_by_the_lifetime_from_its_readiness_where_one_is_enforced(
    tmp_path: Path, enabled: bool, lifetime: int | None, ends: bool
) -> None:
    minutes = None if lifetime is None else timedelta(minutes=lifetime)
    policy = replace(settings(tmp_path).culling, enabled=enabled, lifetime=minutes)
    async with room(tmp_path, small(0), small(1), culling=policy) as r:
        await r.ask("ben", "mig-1g.5gb")
        r.hands.pass_time(60 * SECOND)
        state = await r.ask("ada", "mig-1g.5gb")
        r.hands.pass_time(60 * SECOND)
        await r.ready(state)
        ada, ben = (
            next(each for each in r.engine.state.leases.values() if each.user == name) for name in ("ada", "ben")
        )
        assert ada.ready_at == ada.since + 60 * SECOND and ben.ready_at is None
        assert ada.ends_at == (ada.ready_at + timedelta(minutes=30) if ends else None)
        assert ben.ends_at == (ben.since + r.engine.state.start_allowance + timedelta(minutes=30) if ends else None)


@pytest.mark.programs
async def test_places_and_notices_are_kept_in_their_order_over_a_restart(tmp_path: Path) -> None:
    hands = Hands()
    hands.wall = datetime.now(timezone.utc)
    async with room(tmp_path, small(0), hands=hands, queue=QueueLimits(max_wait=timedelta(hours=1))) as r:
        await r.run("ada", "mig-1g.5gb")
        for _ in range(2):
            await r.ask("ben", "mig-1g.5gb")
            r.hands.pass_time(timedelta(minutes=61))
            await r.engine.reconciler.reconcile()
            r.hub.running.pop(("ben", ""), None)
        before = r.engine.state.recent_notices("ben")
        places, hub = r.engine.state.next_place, r.hub
    assert len(before) == 2 and before[0].at < before[1].at
    async with room(tmp_path, small(0), hub=hub, hands=hands) as r:
        assert [row.at for row in r.engine.state.recent_notices("ben")] == [row.at for row in before]
        assert r.engine.state.next_place == places
        assert not r.engine.state.first_start and r.engine.state.last_offers_by_user["ben"] == ("mig-1g.5gb",)


@pytest.mark.parametrize(("hours", "shown"), [(24, True), (24.1, False)])
async def test_a_notice_is_shown_for_a_day(tmp_path: Path, hours: float, shown: bool) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.ask("ada", "mig-1g.5gb")
        r.hands.pass_time(2 * SECOND)
        await r.engine.reconciler.reconcile()
        r.hub.running.clear()
        await r.engine.reconciler.reconcile()
        r.hands.pass_time(timedelta(minutes=3))
        await r.engine.reconciler.reconcile()
        assert len(r.engine.state.recent_notices("ada")) == 1
        r.hands.wall += timedelta(hours=hours)
        assert bool(r.engine.state.recent_notices("ada")) is shown


async def test_before_a_cluster_was_read_nothing_is_counted_and_cpu_only_is_there(tmp_path: Path) -> None:
    async with pod_room(tmp_path) as r:
        state = r.engine.state
        assert not state.unread and state.known_devices() is None
        assert state.ask_of("mig-1g.5gb") is not None and state.ask_of("nothing") is None


async def people(r: Room) -> set[str]:
    return {ticket.user for ticket in r.engine.state.tickets.values() if ticket.state is TicketState.WAITING}


async def test_somebody_waits_as_long_as_one_who_was_not_admitted_is_in_line(tmp_path: Path) -> None:
    hub = HubAsTold()
    async with room(tmp_path, small(0), hub=hub) as r:
        await r.ask("ada", "mig-1g.5gb")
        await r.ask("ben", "mig-1g.5gb")
        assert (await people(r), r.engine.state.waiting()) == ({"ben"}, 1)
        await r.left(next(state for state in r.engine.queue.states() if state.user == "ben"))
        assert (await people(r), r.engine.state.waiting()) == (set(), 0)


@pytest.mark.parametrize(("problem", "said"), [("", "the service's own"), ("8888 stands in", "8888 stands in")])
async def test_health_says_whose_port_it_is(tmp_path: Path, problem: str, said: str) -> None:
    async with room(tmp_path, small(0)) as r:
        r.engine.note_port_problem(problem)
        assert r.engine.health().port == said
