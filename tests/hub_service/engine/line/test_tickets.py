"""A ticket from the form to its end, and what form, users and admins read of it: each field of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from hub_extensions.adapters.store import Changes
from hub_extensions.core.messages import Ask, Ended, Started, Stopped
from hub_extensions.core.offers.model import OfferConfig
from hub_extensions.core.queue.model import LeaseState, QueueLimits, TicketState
from hub_extensions.core.text.reasons import Reason, explain
from hub_extensions.hub_service.engine.state.errors import Refused
from tests.fakes.machine import large, small
from tests.hub_service.engine.room import Room, room

CRASH = explain("server-crashed-with", code=3)

SECOND = timedelta(seconds=1)


def ticket(r: Room, user: str) -> object:
    return next(each for each in r.engine.state.tickets.values() if each.user == user)


@pytest.mark.slow
async def test_the_form_has_the_users_servers_his_last_choices_that_are_there_and_his_notices(tmp_path: Path) -> None:
    offers = OfferConfig(groups={"mig-2g.10gb": ("staff",)})
    async with room(
        tmp_path, small(0), small(1), large(), offers=offers, queue=QueueLimits(gpu_leases_per_user=2)
    ) as r:
        r.hub.groups["ada"] = ("staff",)
        r.hub.run("ada", "x", ready=False)
        await r.engine.ask(Ask("ada", "x", ("mig-2g.10gb", "mig-1g.5gb"), {}, groups=("staff",)))
        await r.ask("ben", "mig-1g.5gb")
        staff = r.engine.form("ada", "", ("staff",), False)
        assert (staff.gpu_servers, staff.last_offers) == (("x",), ("mig-2g.10gb", "mig-1g.5gb"))
        assert sorted(each.id for each in staff.offers) == ["cpu", "mig-1g.5gb", "mig-2g.10gb"]
        other = r.engine.form("ada", "", (), False)
        assert (other.last_offers, sorted(each.id for each in other.offers)) == (("mig-1g.5gb",), ["cpu", "mig-1g.5gb"])
        assert len(r.engine.form("ada", "", (), True).offers) == 3, "an admin sees all"
        assert not staff.simulated and staff.caution == "" and staff.as_of is not None
        nobody = r.engine.form("eve", "", (), False)
        assert (nobody.gpu_servers, nobody.last_offers, nobody.notices) == ((), (), ())


@pytest.mark.programs
@pytest.mark.parametrize("state", list(LeaseState))
async def test_the_form_names_a_server_that_starts_or_runs_with_a_gpu_and_no_other(
    tmp_path: Path, state: LeaseState
) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        (lease,) = r.engine.state.leases.values()
        async with r.engine.queue.transaction() as transaction:
            await transaction.write(Changes(leases=(replace(lease, state=state),)))
        shown = state in (LeaseState.STARTING, LeaseState.RUNNING)
        assert r.engine.form("ada", "", (), False).gpu_servers == (("",) if shown else ())


@pytest.mark.programs
async def test_tickets_are_listed_in_the_order_of_their_places_and_to_their_user_alone(tmp_path: Path) -> None:
    async with room(tmp_path, small(0), queue=QueueLimits(tickets_per_user=2)) as r:
        await r.run("ada", "mig-1g.5gb")
        for user, server in (("cleo", ""), ("ben", ""), ("ben", "two")):
            await r.ask(user, "mig-1g.5gb", server=server)
            r.hands.pass_time(SECOND)
        await r.ask("cleo", "mig-1g.5gb")
        assert [(each.user, each.server, each.position) for each in await r.engine.all_tickets()] == [
            ("cleo", "", 1), ("ben", "", 2), ("ben", "two", 3),
        ]  # fmt: skip
        assert [each.server for each in r.engine.tickets("ben")] == ["", "two"]
        assert r.engine.tickets("eve") == ()


@pytest.mark.programs
async def test_each_attempt_has_its_number_and_an_offer_that_stays_keeps_its_place(tmp_path: Path) -> None:
    async with room(tmp_path, small(0), large()) as r:
        await r.run("ada", "mig-1g.5gb")
        await r.run("eve", "mig-2g.10gb")
        first = await r.ask("ben", "mig-1g.5gb")
        await r.ask("cleo", "mig-1g.5gb")
        second = await r.ask("ben", "mig-2g.10gb", "mig-1g.5gb")
        assert (first.attempt, second.attempt, first.ticket == second.ticket) == (1, 2, True)
        places = {choice.offer: choice.place for choice in ticket(r, "ben").wanted_offers}  # type: ignore[attr-defined]
        after = ticket(r, "cleo").wanted_offers[0].place  # type: ignore[attr-defined]
        assert places["mig-1g.5gb"] < after < places["mig-2g.10gb"]
        assert second.since == first.since and r.positions()["cleo"] == 2


async def test_the_process_of_a_server_is_kept_when_its_readiness_is_told_without_it(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        state = await r.ask("ada", "mig-1g.5gb")
        await r.engine.started(state.ticket, Started(state.attempt, 4194000, 7))
        (lease,) = r.engine.state.leases.values()
        assert (lease.pid, lease.pid_started, lease.state) == (4194000, 7, LeaseState.STARTING)
        r.hands.pass_time(SECOND)
        told = await r.engine.started(state.ticket, Started(state.attempt, ready=True))
        (lease,) = r.engine.state.leases.values()
        assert (lease.pid, lease.pid_started, lease.state) == (4194000, 7, LeaseState.RUNNING)
        assert lease.ready_at == r.engine.state.clock.now() and lease.since == lease.ready_at - SECOND
        assert (told.answer, told.reason.message, told.position, told.ahead) == ("ended", "Your server is ready.", 0, 0)
        assert r.engine.state.tickets == {} and r.engine.state.counts[("ended", "ready")] == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("attempt", "how", "ended"),
    [(1, "left", False), (2, "left", True), (3, "left", False), (2, "failed", True), (1, "failed", False)],
)
async def test_only_the_word_of_the_present_attempt_ends_a_start(
    tmp_path: Path, attempt: int, how: str, ended: bool
) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.ask("ada", "mig-1g.5gb")
        state = await r.ask("ada", "mig-1g.5gb")
        assert state.attempt == 2
        await r.engine.ended(state.ticket, Ended(attempt, how, "It crashed.", "crashed"))
        assert (r.engine.state.tickets == {}) is ended
        assert [each.state for each in r.engine.state.leases.values()] == [
            LeaseState.ENDING if ended else LeaseState.STARTING
        ]
        assert r.engine.state.counts.get(("start-failed", "crashed"), 0) == int(ended and how == "failed")
        assert r.engine.state.recent_notices("ada") == ()


@pytest.mark.programs
async def test_a_start_that_failed_is_no_word_about_one_that_waits(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        state = await r.ask("ben", "mig-1g.5gb")
        await r.engine.ended(state.ticket, Ended(1, "failed"))
        assert r.positions() == {"ben": 1}
        await r.engine.ended("unknown", Ended(1, "left"))
        await r.engine.ended(state.ticket, Ended(1, "left"))
        assert r.positions() == {}


@pytest.mark.programs
@pytest.mark.parametrize(
    ("reason", "reasons"),
    [("", ()), ("Out of memory.", ()), ("The server crashed with exit code 3.", (CRASH,))],
    ids=["none", "of an older hub", "of this one"],
)
@pytest.mark.parametrize("offer", ["mig-1g.5gb", "cpu"])
async def test_a_stop_ends_lease_and_facts_and_tells_a_reason_where_there_is_one(
    tmp_path: Path, reason: str, reasons: tuple[Reason, ...], offer: str
) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", offer)
        message = "" if reasons else reason
        await r.engine.stopped(Stopped("ada", "", message, "oom" if reason else "", reasons=reasons))
        assert r.engine.state.facts == {}
        assert [each.state for each in r.engine.state.leases.values()] == (
            [LeaseState.ENDING] if offer != "cpu" else []
        )
        told = [(each.text, each.reasons) for each in r.engine.state.recent_notices("ada")]
        assert told == ([(reason, reasons)] if reason else [])
        assert r.engine.state.counts.get(("server-end", "oom"), 0) == int(bool(reason))


@pytest.mark.parametrize("reason", ["", "It went."])
async def test_a_stop_of_a_start_leaves_its_lease_to_its_ticket(tmp_path: Path, reason: str) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.ask("ada", "mig-1g.5gb")
        await r.engine.stopped(Stopped("ada", "", reason))
        assert [each.state for each in r.engine.state.leases.values()] == [LeaseState.STARTING]
        assert [each.text for each in r.engine.state.recent_notices("ada")] == ([reason] if reason else [])


async def test_nobody_leaves_for_another_and_who_is_starting_stops_instead(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        ada = await r.ask("ada", "mig-1g.5gb")
        ben = await r.ask("ben", "mig-1g.5gb")
        for name, user, status in ((ben, "ada", 404), (ada, "ada", 409), (ada, None, 409)):
            with pytest.raises(Refused) as refused:
                await r.engine.leave(name.ticket, user)
            assert refused.value.status == status
        with pytest.raises(Refused) as refused:
            await r.engine.leave("unknown", None)
        assert refused.value.status == 404
        await r.engine.leave(ben.ticket, "ben")
        assert r.positions() == {"ada": 0} and r.engine.state.counts[("ended", "left")] == 1


async def test_what_an_admission_writes_into_ticket_and_lease(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        r.hands.pass_time(5 * SECOND)
        state = await r.ask("ada", "mig-1g.5gb", server="two")
        (lease,), made = r.engine.state.leases.values(), ticket(r, "ada")
        now = r.engine.state.clock.now()
        assert (made.state, made.admitted_offer, made.admitted_at) == (TicketState.ADMITTED, "mig-1g.5gb", now)  # type: ignore[attr-defined]
        assert (lease.ticket, lease.user, lease.server, lease.offer) == (state.ticket, "ada", "two", "mig-1g.5gb")
        assert (lease.device, lease.uuid) == (small(0).identity, "MIG-small-0")
        assert (lease.pool, lease.share, lease.since, lease.pid, lease.adopted) == (
            "mig-1g.5gb",
            1000,
            now,
            None,
            False,
        )
        assert r.engine.state.counts[("admitted", "mig-1g.5gb")] == 1 and r.engine.state.last_admission_seconds >= 0


@pytest.mark.programs
async def test_an_admin_reads_of_a_lease_what_it_is_and_when_it_ends(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        _, child = await r.run("ada", "mig-1g.5gb")
        r.gpus.used["MIG-small-0"] = 40.0
        await r.engine.watcher.refresh()
        (info,) = await r.engine.leases()
        assert (info.user, info.offer, info.profile, info.share, info.state) == (
            "ada",
            "mig-1g.5gb",
            "1g.5gb",
            1.0,
            "running",
        )
        assert (info.pid, info.last_use_percent, info.use_source, info.adopted) == (child.pid, 40.0, "nvml", False)
        assert (info.processes, info.pod, info.node, info.stops_at) == ((), "", "", None)
        assert info.ready_at is not None and info.since <= info.ready_at


@pytest.mark.programs
async def test_a_users_servers_are_listed_with_those_on_cpu_and_the_default_one_first(tmp_path: Path) -> None:
    async with room(tmp_path, small(0), small(1)) as r:
        await r.ready(await r.ask("ada", "cpu", server="b"))
        await r.ready(await r.ask("ada", "mig-1g.5gb"))
        await r.run("ben", "mig-1g.5gb")
        assert [(each.server, each.offer, each.lease_state) for each in r.engine.servers_of("ada")] == [
            ("", "mig-1g.5gb", "running"), ("b", "cpu", "none"),
        ]  # fmt: skip
        assert r.engine.servers_of("eve") == () and r.engine.server_state("eve", "") is None


async def test_the_service_is_ready_while_its_loops_run_and_the_store_can_be_written(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        assert not r.engine.health().ready, "not started yet"
        r.engine.start()
        assert r.engine.health().ready and r.engine.health().inventory_age_seconds == 0.0
        r.engine.state.store_problem = "The disk is full."
        assert (r.engine.health().ready, r.engine.health().store) == (False, "The disk is full.")
        r.engine.state.store_problem = ""
        assert r.engine.health().ready
        await r.engine.stop()
        assert not r.engine.health().ready


@pytest.mark.programs
@pytest.mark.parametrize("adopted", [False, True])
async def test_a_server_that_begins_to_use_a_gpu_holds_it_only_where_it_ran_before(
    tmp_path: Path, adopted: bool
) -> None:
    async with room(tmp_path, small(0), small(1)) as r:
        _, child = await r.run("ada", "cpu")
        if adopted:
            facts = r.engine.state.facts[("ada", "")]
            await r.engine.state.commit(Changes(facts=(replace(facts, adopted=True),)))
        r.hands.pass_time(SECOND)
        r.gpus.pids["MIG-small-1"] = (child.pid,)
        for _ in range(2):
            await r.engine.watcher.refresh()
            await r.engine.reconciler.reconcile()
            r.hands.pass_time(SECOND)
        held = [(lease.user, lease.uuid, lease.pid, lease.adopted) for lease in r.engine.state.leases.values()]
        assert held == ([("ada", "MIG-small-1", child.pid, True)] if adopted else [])
        assert r.engine.state.facts[("ada", "")].offer == ("mig-1g.5gb" if adopted else "cpu")
