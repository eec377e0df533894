"""Joining, waiting, being admitted, leaving: the rules of the line as the service keeps them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from hub_extensions.adapters.hub.jupyterhub_api import HubAway, HubServer
from hub_extensions.adapters.linux import procfs
from hub_extensions.adapters.store import Changes, TicketRow
from hub_extensions.core.gpu.devices import InventoryReading
from hub_extensions.core.messages import Ask, Ended, QueueFigures, Started, Stopped
from hub_extensions.core.offers.model import OfferConfig
from hub_extensions.core.queue.model import QueueLimits, TicketEnd, TicketState
from hub_extensions.hub_service.engine.state.errors import Refused
from hub_extensions.hub_service.engine.views.overview import failed_starts
from tests.fakes.machine import HubAsTold, StoreThatIsFull, large, small
from tests.hub_service.engine.room import room
from tests.patience import patient, soon


async def test_six_servers_get_six_devices_and_the_seventh_waits_first(tmp_path: Path) -> None:
    async with room(tmp_path) as r:
        given = [await r.ask(f"u{n}", "mig-1g.5gb") for n in range(5)] + [await r.ask("u5", "mig-2g.10gb")]
        assert len({state.grant.uuid for state in given if state.grant}) == 6
        seventh = await r.ask("u6", "mig-1g.5gb")
        eighth = await r.ask("u7", "mig-1g.5gb")
        assert (seventh.answer, seventh.position, eighth.position) == ("wait", 1, 2)
        assert seventh.reason.message == "Small GPU: all 5 are in use. You are next."


async def test_the_environment_of_a_grant_names_the_device_and_cpu_only_names_none(tmp_path: Path) -> None:
    async with room(tmp_path) as r:
        gpu = await r.ask("ada", "mig-2g.10gb")
        assert gpu.grant is not None
        assert gpu.grant.environment["CUDA_VISIBLE_DEVICES"] == gpu.grant.uuid == "MIG-large-0"
        assert gpu.grant.environment["NVIDIA_VISIBLE_DEVICES"] == "MIG-large-0"
        assert gpu.grant.environment["JUPYTERHUB_GPU_LEASE"] == gpu.grant.lease
        cpu = await r.ask("ben", "cpu")
        assert cpu.grant is not None
        assert cpu.grant.environment["NVIDIA_VISIBLE_DEVICES"] == "void"
        assert "JUPYTERHUB_GPU_LEASE" not in cpu.grant.environment


@pytest.mark.programs
async def test_when_a_server_ends_its_device_goes_to_the_next_in_line(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        first, child = await r.run("ada", "mig-1g.5gb")
        second = await r.ask("ben", "mig-1g.5gb")
        child.kill()
        child.wait()
        await r.engine.stopped(Stopped("ada", ""))
        await r.engine.watcher.refresh()
        state = next(s for s in r.engine.queue.states() if s.ticket == second.ticket)
        assert state.answer == "admit" and state.grant is not None and first.grant is not None
        assert state.grant.uuid == first.grant.uuid
        assert state.grant.lease != first.grant.lease


@pytest.mark.programs
async def test_a_device_with_a_living_process_is_not_given_again(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        _, child = await r.run("ada", "mig-1g.5gb")
        await r.ask("ben", "mig-1g.5gb")
        await r.engine.stopped(Stopped("ada", ""))
        await r.engine.watcher.refresh()
        assert r.positions() == {"ben": 1}, "the hub said stopped, but the process lives"
        assert child.poll() is None


@pytest.mark.programs
async def test_asking_again_finds_the_same_ticket_and_place(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        ben = await r.ask("ben", "mig-1g.5gb")
        await r.ask("cleo", "mig-1g.5gb")
        again = await r.ask("ben", "mig-1g.5gb")
        assert (again.ticket, again.position, again.attempt) == (ben.ticket, 1, ben.attempt + 1)


@pytest.mark.programs
async def test_an_older_attempts_cancel_does_not_end_a_newer_one(tmp_path: Path) -> None:
    """T4: the confirmed stop of the first spawn comes after the second spawn has asked again."""
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        old = await r.ask("ben", "mig-1g.5gb")
        await r.ask("ben", "mig-1g.5gb")
        await r.left(old)
        assert r.positions() == {"ben": 1}


@pytest.mark.programs
async def test_taking_another_offer_keeps_the_old_place_when_it_is_gone_meanwhile(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        await r.ask("ben", "mig-1g.5gb")
        await r.ask("cleo", "mig-1g.5gb")
        changed = await r.ask("ben", "cpu", "mig-1g.5gb")
        assert changed.answer == "admit" and changed.offer == "cpu"


async def test_another_offer_taken_after_admission_brings_that_offers_device(tmp_path: Path) -> None:
    async with room(tmp_path) as r:
        first = await r.ask("ada", "mig-1g.5gb")
        second = await r.ask("ada", "mig-2g.10gb")
        assert first.grant is not None and second.grant is not None
        assert second.grant.environment["CUDA_VISIBLE_DEVICES"] == "MIG-large-0"
        assert second.grant.lease != first.grant.lease
        await r.engine.ended(second.ticket, Ended(second.attempt, "failed", "no such image"))
        await r.engine.watcher.refresh()
        assert (await r.engine.leases()) == (), "neither device is held"


@pytest.mark.slow
async def test_who_had_no_fault_in_a_failed_start_keeps_the_place_once_also_over_a_restart(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        ada = await r.ask("ada", "mig-1g.5gb")
        await r.ask("ben", "mig-1g.5gb")
        await r.ask("cleo", "mig-1g.5gb")
        await r.engine.ended(ada.ticket, Ended(ada.attempt, "failed", "", "no-answer", 120.0, "a line of its log"))
        await r.engine.watcher.refresh()
        assert r.positions() == {"ben": 0, "cleo": 1}, "the device went to the next"
        (told,) = r.engine.overview("ada").failed
        assert told.reason.reason == "start-no-answer" and told.kept_until is not None and told.log == ""
        assert r.engine.form("ada", "", (), False).failed == (told,)
        assert (
            r.engine.overview("ben").failed == r.engine.form("ben", "", (), False).failed == ()
            and r.engine.overview("ben").tickets[0].grant is None
        )
    async with room(tmp_path, small(0)) as r:
        assert r.engine.overview("ada").failed[0].kept_until is not None
        ada = await r.ask("ada", "mig-1g.5gb")
        assert r.positions() == {"ben": 0, "ada": 1, "cleo": 2}, "before who came after her"
        assert r.engine.overview("ada").failed[0].kept_until is None, "it is taken up"
        await r.left(ada)
        ada = await r.ask("ada", "mig-1g.5gb")
        assert r.positions() == {"ben": 0, "cleo": 1, "ada": 2}, "who left it has it no more"
        cleo = next(each for each in r.engine.queue.states() if each.user == "cleo")
        await r.left(cleo)
        ben = next(each for each in r.engine.queue.states() if each.user == "ben")
        await r.left(ben)
        await r.engine.watcher.refresh()
        await r.engine.ended(ada.ticket, Ended(ada.attempt, "failed", "", "no-answer", 120.0))
        failures = failed_starts(r.engine.state)
        assert failures.last_day == 2 and [each.log for each in failures.latest] == ["", "a line of its log"]
        await r.ask("cleo", "mig-1g.5gb")
        await r.engine.watcher.refresh()
        await r.ask("ada", "mig-1g.5gb")
        assert r.positions() == {"cleo": 0, "ada": 1}, "cleo has it now; a second failure keeps no place"


async def test_leaving_frees_the_place_and_the_device(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        ada = await r.ask("ada", "mig-1g.5gb")
        ben = await r.ask("ben", "mig-1g.5gb")
        await r.left(ada)
        await r.engine.watcher.refresh()
        state = next(s for s in r.engine.queue.states() if s.ticket == ben.ticket)
        assert state.answer == "admit"
        assert ada.ticket not in {s.ticket for s in r.engine.queue.states()}


@pytest.mark.programs
async def test_only_the_owner_or_an_admin_ends_a_ticket(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("cleo", "mig-1g.5gb")
        ada = await r.ask("ada", "mig-1g.5gb")
        dan = await r.ask("dan", "mig-1g.5gb")
        with pytest.raises(Refused) as refused:
            await r.engine.leave(ada.ticket, "ben")
        assert refused.value.status == 404
        await r.engine.leave(ada.ticket, None)
        await r.engine.leave(dan.ticket, "dan")
        assert r.positions() == {}


async def test_a_ticket_whose_server_is_starting_is_not_left_but_stopped(tmp_path: Path) -> None:
    """Else the device would be given to the next while the hub still starts a server on it."""
    async with room(tmp_path, small(0)) as r:
        ada = await r.ask("ada", "mig-1g.5gb")
        for who in ("ada", None):
            with pytest.raises(Refused) as refused:
                await r.engine.leave(ada.ticket, who)
            assert (refused.value.status, refused.value.reason) == (409, "starting")
        await r.ask("ben", "mig-1g.5gb")
        await r.engine.watcher.refresh()
        assert r.positions() == {"ada": 0, "ben": 1}


async def test_a_lease_whose_ticket_is_gone_does_not_start_for_ever(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.ask("ada", "mig-1g.5gb")
        ended = [TicketRow(each, TicketEnd.LEFT) for each in r.engine.state.tickets.values()]
        await r.engine.state.commit(Changes(tickets=tuple(ended)))
        await r.engine.watcher.refresh()
        await r.engine.watcher.refresh()
        assert (await r.engine.leases()) == ()


@pytest.mark.programs
async def test_asking_again_for_a_ticket_that_ended_makes_no_new_one(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        ben = await r.ask("ben", "mig-1g.5gb")
        await r.engine.leave(ben.ticket, "ben")
        again = await r.engine.ask(Ask("ben", "", ("mig-1g.5gb",), ticket=ben.ticket))
        assert again.answer == "ended"
        assert r.positions() == {}


@pytest.mark.programs
async def test_the_ticket_of_an_old_start_is_over_though_the_same_server_has_a_new_one(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        old = await r.ask("ben", "mig-1g.5gb")
        await r.engine.leave(old.ticket, "ben")
        new = await r.ask("ben", "mig-1g.5gb")
        again = await r.engine.ask(Ask("ben", "", ("mig-1g.5gb",), ticket=old.ticket))
        assert (again.answer, again.ticket) == ("ended", old.ticket)
        assert [(state.ticket, state.attempt) for state in r.engine.queue.states()] == [(new.ticket, new.attempt)]


async def test_a_late_word_of_an_earlier_stop_does_not_end_a_lease_that_is_starting(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.ask("ada", "mig-1g.5gb")
        await r.engine.stopped(Stopped("ada", ""))
        await r.engine.stopped(Stopped("ada", "", "It crashed.", "crashed"))
        assert [lease.state for lease in await r.engine.leases()] == ["starting"]
        assert [notice.text for notice in r.engine.form("ada", "", (), False).notices] == ["It crashed."]
        assert r.engine.state.counts[("server-end", "crashed")] == 1


@pytest.mark.programs
async def test_a_server_that_is_asked_for_anew_gives_up_the_lease_of_before(tmp_path: Path) -> None:
    """The word of its end was lost: whoever asks for it does not run it."""
    async with room(tmp_path, small(0), small(1)) as r:
        first, _ = await r.run("ada", "mig-1g.5gb")
        second = await r.ask("ada", "mig-1g.5gb")
        assert first.grant is not None and second.grant is not None
        states = {lease.lease: lease.state for lease in await r.engine.leases()}
        assert states == {first.grant.lease: "ending", second.grant.lease: "starting"}
        assert r.engine.form("ada", "", (), False).gpu_servers == ("",), "the one that starts, once"


@pytest.mark.programs
@pytest.mark.parametrize("offer", ["mig-1g.5gb", "cpu"])
async def test_the_journal_says_which_lease_an_admission_gave(tmp_path: Path, offer: str) -> None:
    async with room(tmp_path, small(0)) as r:
        state = await r.ask("ada", offer)
        lease = (state.grant.lease if state.grant is not None else "") or None
        rows = [row for row in await r.engine.store.journal() if row.kind == "admitted"]
        assert [(row.user, row.ticket, row.lease or None) for row in rows] == [("ada", state.ticket, lease)]
        assert (lease is None) is (offer == "cpu")


@pytest.mark.programs
async def test_a_start_that_looks_after_its_place_writes_nothing(tmp_path: Path) -> None:
    """Every waiter asks again each minute; that is no news for the journal, and no new attempt."""
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        ben = await r.ask("ben", "mig-1g.5gb")
        rows = len(await r.engine.store.journal())
        again = await r.engine.ask(Ask("ben", "", ("mig-1g.5gb",), ticket=ben.ticket))
        assert (again.ticket, again.attempt, again.position) == (ben.ticket, ben.attempt, 1)
        assert len(await r.engine.store.journal()) == rows


@pytest.mark.programs
async def test_a_silent_hub_is_asked_once_a_round_and_not_once_a_ticket(tmp_path: Path) -> None:
    async with room(tmp_path, *(small(n) for n in range(3))) as r:
        servers = [await r.run(f"u{n}", "mig-1g.5gb") for n in range(3)]
        for n in range(3, 6):
            await r.ask(f"u{n}", "mig-1g.5gb")
        r.hands.pass_time(timedelta(minutes=1))
        asked = []

        async def says_nothing(name: str) -> None:
            asked.append(name)
            raise HubAway("no answer")

        r.hub.user = says_nothing  # type: ignore[assignment]
        for _, child in servers:
            child.kill()
            child.wait()
        await r.engine.watcher.refresh()
        await r.engine.watcher.refresh()
        assert r.positions() == {"u3": 1, "u4": 2, "u5": 3}
        assert len(asked) <= 2, "once in each of the two rounds"


@pytest.mark.programs
async def test_a_listing_from_before_a_stop_brings_nobody_back(tmp_path: Path) -> None:
    """The hub's list is read first, the server is stopped then: it is not adopted as a server without a GPU."""
    async with room(tmp_path, small(0)) as r:
        _, child = await r.run("ada", "mig-1g.5gb")
        listed = await r.hub.servers()

        async def an_old_list() -> tuple[HubServer, ...]:
            r.hands.pass_time(timedelta(seconds=1))
            child.kill()
            child.wait()
            await r.engine.stopped(Stopped("ada", ""))
            return listed

        r.hub.servers = an_old_list  # type: ignore[method-assign]
        await r.engine.reconciler.reconcile()
        assert ("ada", "") not in r.engine.state.facts


async def test_a_listing_from_before_a_start_does_not_say_that_it_is_ready(tmp_path: Path) -> None:
    """It has the server of before, which was ready."""
    async with room(tmp_path, small(0)) as r:
        r.hub.run("ada")
        listed, asked = await r.hub.servers(), []

        async def an_old_list() -> tuple[HubServer, ...]:
            r.hands.pass_time(timedelta(seconds=1))
            asked.append(await r.ask("ada", "cpu"))
            return listed

        r.hub.servers = an_old_list  # type: ignore[method-assign]
        await r.engine.reconciler.reconcile()
        assert asked[0].answer == "admit"
        assert r.engine.state.tickets[asked[0].ticket].state is TicketState.ADMITTED


@pytest.mark.programs
async def test_the_records_of_a_deleted_user_lose_the_name(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        _, child = await r.run("ada", "mig-1g.5gb")
        child.kill()
        child.wait()
        await r.engine.watcher.refresh()
        assert [record.user for record in (await r.engine.store.usage()).uses] == ["ada"]
        for known, kept in (
            ((), "ada"),
            (("ada", "ben"), "ada"),
            (("ben",), "deleted/1"),
        ):  # an empty list is no answer
            r.hub.known = known
            await r.engine._forget_deleted_users()
            assert [record.user for record in (await r.engine.store.usage()).uses] == [kept]


async def test_a_failed_start_ends_the_lease_and_the_next_is_admitted(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        ada = await r.ask("ada", "mig-1g.5gb")
        ben = await r.ask("ben", "mig-1g.5gb")
        await r.engine.ended(ada.ticket, Ended(ada.attempt, "failed", "no such image"))
        await r.engine.watcher.refresh()
        assert next(s for s in r.engine.queue.states() if s.ticket == ben.ticket).answer == "admit"


async def test_an_unknown_offer_is_refused_with_the_offers_there_are(tmp_path: Path) -> None:
    async with room(tmp_path) as r:
        told = await r.ask("ada", "mig-9g.90gb")
        assert told.answer == "refuse" and told.reason.reason == "unknown-offer"
        assert "mig-1g.5gb" in told.reason.message


@pytest.mark.programs
async def test_a_second_gpu_is_refused_and_says_which_server_holds_the_first(tmp_path: Path) -> None:
    async with room(tmp_path) as r:
        await r.run("ada", "mig-1g.5gb")
        told = await r.ask("ada", "mig-2g.10gb", server="thesis")
        assert told.answer == "refuse" and told.reason.reason == "own-lease-limit"
        assert "your default server" in told.reason.message


@pytest.mark.programs
async def test_two_places_in_line_are_not_two_gpus_where_one_may_be_held(tmp_path: Path) -> None:
    line = QueueLimits(tickets_per_user=2, gpu_leases_per_user=1)
    async with room(tmp_path, small(0), small(1), queue=line) as r:
        bea = await r.ask("bea", "mig-1g.5gb")
        cal = await r.ask("cal", "mig-1g.5gb")
        for server in ("", "thesis"):
            assert (await r.ask("ada", "mig-1g.5gb", server=server)).answer == "wait"
        await r.left(bea)
        await r.left(cal)
        await r.engine.watcher.refresh()
        states = {state.server: state for state in r.engine.queue.states()}
        assert (states[""].answer, states["thesis"].answer) == ("admit", "wait"), "a start may fail yet"
        await r.ready(states[""])
        await r.engine.watcher.refresh()
        (state,) = r.engine.queue.states()
        assert (state.server, state.answer, state.reason.reason) == ("thesis", "wait", "own-lease-first")
        mine = [(lease.user, lease.server) for lease in await r.engine.leases() if lease.user == "ada"]
        assert mine == [("ada", "")]
        bea = await r.ask("bea", "mig-1g.5gb")
        assert bea.answer == "admit", "who is passed holds nobody up"


@pytest.mark.programs
async def test_the_start_brake_holds_until_one_is_ready(tmp_path: Path) -> None:
    async with room(tmp_path, queue=QueueLimits(max_starting=1)) as r:
        ada = await r.ask("ada", "mig-1g.5gb")
        ben = await r.ask("ben", "cpu")
        assert ben.answer == "wait" and ben.reason.reason == "start-brake"
        await r.ready(ada)
        assert next(s for s in r.engine.queue.states() if s.ticket == ben.ticket).answer == "admit"


async def test_rights_are_asked_again_at_admission(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        ada = await r.ask("ada", "mig-1g.5gb")
        ben = await r.ask("ben", "mig-1g.5gb")
        r.hub.deleted.add("ben")
        r.hands.pass_time(timedelta(minutes=1))
        await r.left(ada)
        await r.engine.watcher.refresh()
        assert ben.ticket not in {s.ticket for s in r.engine.queue.states()}
        assert r.engine.state.counts[("ended", "refused")] == 1


async def test_a_hub_that_does_not_answer_admits_nobody_and_refuses_nobody(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        ada = await r.ask("ada", "mig-1g.5gb")
        await r.ask("ben", "mig-1g.5gb")
        r.hub.away = "no answer"
        await r.engine.reconciler.reconcile()
        await r.left(ada)
        await r.engine.watcher.refresh()
        assert r.positions() == {"ben": 1}
        r.hub.away = ""
        await r.engine.reconciler.reconcile()
        assert r.positions() == {"ben": 0}


async def test_a_listener_hears_one_event_a_change(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        ada = await r.ask("ada", "mig-1g.5gb")
        ben = await r.ask("ben", "mig-1g.5gb")
        changes = r.engine.changes()
        heard = [await changes.__anext__(), await changes.__anext__()]
        assert {h.ticket for h in heard} == {ada.ticket, ben.ticket}
        await r.engine.queue.publish_changed()
        await r.engine.queue.publish_changed()
        await r.left(ada)
        await r.engine.watcher.refresh()
        await r.engine.queue.publish_changed()
        words = [
            (h.ticket, h.answer) for h in [await asyncio.wait_for(changes.__anext__(), patient(2)) for _ in range(2)]
        ]
        assert words.count((ada.ticket, "ended")) == 1
        assert words.count((ben.ticket, "admit")) == 1
        await changes.aclose()  # type: ignore[attr-defined]


async def test_ready_for_an_unknown_attempt_is_refused(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        ada = await r.ask("ada", "mig-1g.5gb")
        with pytest.raises(Refused):
            await r.engine.started(ada.ticket, Started(ada.attempt + 1, ready=True))


async def test_the_metrics_are_told_how_long_the_line_is_and_who_waits_longest_for_what(tmp_path: Path) -> None:
    async with room(tmp_path, small(0), large(0)) as r:
        assert r.engine.queue_figures() == QueueFigures({}, {})
        for user, offers in (("ada", ["cpu"]), ("ben", ["mig-1g.5gb"]), ("cid", ["mig-1g.5gb", "mig-2g.10gb"])):
            await r.ask(user, *offers)
        r.engine.state.hub_view = replace(r.engine.state.hub_view, away_since=r.hands.wall)  # nobody else is admitted
        began = r.hands.wall
        for user in ("dan", "eve", "fay"):
            r.hands.pass_time(timedelta(minutes=1))
            await r.ask(user, "mig-2g.10gb" if user == "dan" else "mig-1g.5gb")
        found = r.engine.queue_figures()
        assert found.states == {"admitted": 3, "waiting": 3}
        minute = timedelta(minutes=1)
        assert {offer: round((at - began) / minute) for offer, at in found.waiting_since.items()} == {
            "mig-2g.10gb": 1,
            "mig-1g.5gb": 2,
        }


@pytest.mark.programs
async def test_nobody_but_an_admin_reads_another_users_name(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("zelda", "mig-1g.5gb")
        await r.ask("ada", "mig-1g.5gb")
        ben = await r.ask("ben", "mig-1g.5gb")
        form = r.engine.form("ben", "", (), False)
        for said in (repr(ben), repr(form), repr(r.engine.tickets("ben"))):
            assert "zelda" not in said and "ada" not in said


async def test_the_store_cannot_be_written_so_nothing_changes_and_cpu_needs_no_store(tmp_path: Path) -> None:
    """Disk full: the spawner starts CPU only by itself and a GPU waits; a refusal is a 503, the state is as before."""
    async with room(tmp_path, small(0)) as r:
        r.engine.store.close()
        with pytest.raises(Refused) as refused:
            await r.ask("ada", "mig-1g.5gb")
        assert refused.value.status == 503
        assert r.positions() == {}
        assert not r.engine.health().ready


async def test_a_full_disk_is_one_log_line_and_one_more_when_it_is_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with room(tmp_path, small(0)) as r:
        full = r.engine.store
        r.engine.state.store = StoreThatIsFull()  # type: ignore[assignment]
        for _ in range(5):
            with pytest.raises(Refused):
                await r.ask("ada", "mig-1g.5gb")
            await r.engine.watcher.refresh()
        assert [record.levelname for record in caplog.records if "written" in record.message] == ["ERROR"]
        r.engine.state.store = full
        assert (await r.ask("ada", "mig-1g.5gb")).answer == "admit"
        assert [record.levelname for record in caplog.records if "written" in record.message] == ["ERROR", "WARNING"]


@pytest.mark.programs
async def test_a_ticket_and_its_place_survive_the_service(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        _, child = await r.run("ada", "mig-1g.5gb")
        r.children.clear()
        await r.ask("ben", "mig-1g.5gb")
        await r.ask("cleo", "mig-1g.5gb")
        hub, hands = r.hub, r.hands
    try:
        async with room(tmp_path, small(0), hub=hub, hands=hands) as r:
            assert r.positions() == {"ben": 1, "cleo": 2}
            assert [(lease.user, lease.state) for lease in await r.engine.leases()] == [("ada", "running")]
    finally:
        child.kill()
        child.wait()


async def test_after_an_outage_waiting_tickets_are_started_again_in_order_admitted_first(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.ask("ada", "mig-1g.5gb")
        await r.ask("ben", "mig-1g.5gb")
        await r.ask("cleo", "mig-1g.5gb")
        hub, hands = r.hub, r.hands
    hub.running.clear()
    async with room(tmp_path, small(0), hub=hub, hands=hands) as r:
        await r.engine.reconciler.reconcile()
        await soon(lambda: [user for user, _, _ in hub.started] == ["ada", "ben", "cleo"])
        assert hub.started[0][2] == {"offers": ["mig-1g.5gb"]}


async def test_who_left_while_the_service_was_away_is_not_brought_back_by_it(tmp_path: Path) -> None:
    """The hub's word of it comes after the start that we thought it had forgotten; the word of a start does not."""
    async with room(tmp_path, small(0)) as r:
        await r.ask("ada", "mig-1g.5gb")
        ben = await r.ask("ben", "mig-1g.5gb")
        cleo = await r.ask("cleo", "mig-1g.5gb")
        hub, hands = r.hub, r.hands
    hub.running.clear()
    async with room(tmp_path, small(0), hub=hub, hands=hands) as r:
        await r.engine.reconciler.reconcile()
        await soon(lambda: len(hub.started) == 3)
        await r.ask("ben", "mig-1g.5gb")
        for _ in range(2):
            await r.ask("cleo", "mig-1g.5gb")  # asked for by herself as well
        await r.left(ben)
        await r.left(cleo)
        assert set(r.positions()) == {"ada", "cleo"}


def starts_slowly(hub: HubAsTold) -> asyncio.Event:
    """It answers no start before this is set."""
    goes_on, start = asyncio.Event(), hub.start

    async def slowly(user: str, server: str, options: Mapping[str, object]) -> bool:
        sent = await start(user, server, options)
        await goes_on.wait()
        return sent

    hub.start = slowly  # type: ignore[method-assign]
    return goes_on


async def test_who_leaves_while_others_are_started_again_is_not_started(tmp_path: Path) -> None:
    users = [f"u{number}" for number in range(7)]  # five at a time
    async with room(tmp_path, small(0)) as r:
        asked = {user: await r.ask(user, "mig-1g.5gb") for user in users}
        hub, hands = r.hub, r.hands
    hub.running.clear()
    goes_on = starts_slowly(hub)
    async with room(tmp_path, small(0), hub=hub, hands=hands) as r:
        await r.engine.reconciler.reconcile()
        await soon(lambda: len(hub.started) == 5)
        await r.left(asked["u6"])
        goes_on.set()
        await soon(lambda: len(hub.started) == 6)
        await asyncio.sleep(0.05)
        assert [user for user, _, _ in hub.started] == users[:6]


async def test_who_waits_to_be_started_again_behind_a_long_line_is_not_taken_for_gone(tmp_path: Path) -> None:
    """A restarted hub answers five starts at a time, each after its ``slow_spawn_timeout``: of 1,000 who waited the
    last 250 lost their places."""
    users = [f"u{number}" for number in range(7)]
    async with room(tmp_path, small(0)) as r:
        for user in users:
            await r.ask(user, "mig-1g.5gb")
        hub, hands = r.hub, r.hands
    hub.running.clear()
    goes_on = starts_slowly(hub)
    async with room(tmp_path, small(0), hub=hub, hands=hands) as r:
        await r.engine.reconciler.reconcile()
        await soon(lambda: len(hub.started) == 5)
        hands.pass_time(timedelta(seconds=100))
        await r.engine.reconciler.reconcile()
        hands.pass_time(timedelta(seconds=100))
        await r.engine.reconciler.reconcile()
        assert len(r.positions()) == 7, "two wait for their turn"
        for user in users[:5]:
            hub.running.pop((user, ""), None)  # a second restart of the hub meanwhile
        hands.pass_time(timedelta(seconds=100))
        await r.engine.reconciler.reconcile()
        hands.pass_time(timedelta(seconds=100))
        await r.engine.reconciler.reconcile()
        assert len(r.positions()) == 7, "nobody is started again before the others are"
        for user in users[:5]:
            hub.run(user, "", ready=False)
        goes_on.set()
        await soon(lambda: len(hub.started) == 7)
        for user in users[5:]:
            del hub.running[(user, "")]  # the hub has forgotten them again
        await r.engine.reconciler.reconcile()
        hands.pass_time(timedelta(seconds=119))
        await r.engine.reconciler.reconcile()
        assert len(r.positions()) == 7, "counted from their turn"
        hands.pass_time(timedelta(seconds=2))
        await r.engine.reconciler.reconcile()
        assert set(r.positions()) == set(users[:5])


@pytest.mark.programs
async def test_a_ticket_that_nobody_wants_ends_after_120_s_in_which_the_hub_answers(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        await r.ask("ben", "mig-1g.5gb")
        await r.engine.reconciler.reconcile()
        del r.hub.running[("ben", "")]
        await r.engine.reconciler.reconcile()
        r.hub.away = "no answer"
        await r.engine.reconciler.reconcile()
        r.hands.pass_time(timedelta(minutes=10))
        r.hub.away = ""
        r.hub.started.clear()
        await r.engine.reconciler.reconcile()
        assert r.positions() == {"ben": 1}, "the clock stood still while the hub was away"
        await soon(lambda: r.engine.reconciler._starting is not None and r.engine.reconciler._starting.done())
        r.hub.running.pop(("ben", ""), None)
        r.hands.pass_time(timedelta(seconds=121))
        await r.engine.reconciler.reconcile()
        assert r.positions() == {}


async def test_who_waits_reads_that_the_hub_is_not_reached_and_not_that_it_is_the_next(tmp_path: Path) -> None:
    async with room(tmp_path, small(0), small(1)) as r:
        r.hub.away = "no connection"
        await r.engine.reconciler.reconcile()
        state = await r.ask("ada", "mig-1g.5gb")
        assert (state.answer, state.position) == ("wait", 1)
        assert state.reason.message == "The GPU service does not reach the hub, so nobody's server is started now. " + (
            "Your place is kept."
        )
        r.hub.away = ""
        await r.engine.reconciler.reconcile()
        assert [state.answer for state in r.engine.queue.states()] == ["admit"]


@pytest.mark.programs
async def test_max_wait_ends_a_ticket_and_tells_its_user(tmp_path: Path) -> None:
    async with room(tmp_path, small(0), queue=QueueLimits(max_wait=timedelta(hours=1))) as r:
        await r.run("ada", "mig-1g.5gb")
        await r.ask("ben", "mig-1g.5gb")
        r.hands.pass_time(timedelta(minutes=61))
        await r.engine.watcher.refresh()
        await r.engine.reconciler.reconcile()
        assert r.positions() == {}
        (told,) = r.engine.form("ben", "", (), False).notices
        assert "ended after 1 h" in told.text
        assert [each.log_message for each in told.reasons] == [""]  # the log's words are no user's


@pytest.mark.programs
async def test_the_failure_of_a_start_that_still_waits_costs_no_place(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        ben = await r.ask("ben", "mig-1g.5gb")
        await r.engine.ended(ben.ticket, Ended(ben.attempt, "failed", "no such image"))
        assert r.positions() == {"ben": 1}


async def test_whoever_leaves_or_fails_to_start_is_left_no_notice_of_it(tmp_path: Path) -> None:
    """They know it: the one did it, the other reads it on the page of the start."""
    async with room(tmp_path, small(0), small(1)) as r:
        await r.left(await r.ask("ada", "mig-1g.5gb"))
        ben = await r.ask("ben", "mig-1g.5gb")
        await r.engine.ended(ben.ticket, Ended(ben.attempt, "failed", "no such image"))
        assert [r.engine.form(user, "", (), False).notices for user in ("ada", "ben")] == [(), ()]


@pytest.mark.programs
async def test_the_word_ready_leaves_a_pid_that_was_told_before_as_it_is(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        ada = await r.ask("ada", "mig-1g.5gb")
        child = r.process(ada)
        await r.engine.started(ada.ticket, Started(ada.attempt, child.pid, 7))
        await r.engine.started(ada.ticket, Started(ada.attempt, ready=True))
        (lease,) = r.engine.state.leases.values()
        assert (lease.state.value, lease.pid, lease.pid_started) == ("running", child.pid, 7)


@pytest.mark.programs
async def test_whoever_holds_a_gpu_may_have_a_server_on_cpu_only_as_well(tmp_path: Path) -> None:
    async with room(tmp_path) as r:
        await r.run("ada", "mig-1g.5gb")
        await r.engine.reconciler.reconcile()
        assert (await r.ask("ada", "cpu", server="thesis")).answer == "admit"


async def test_a_second_place_is_kept_while_the_first_start_may_fail_yet(tmp_path: Path) -> None:
    line = QueueLimits(tickets_per_user=2, gpu_leases_per_user=1)
    async with room(tmp_path, small(0), small(1), queue=line) as r:
        held = [await r.ask(user, "mig-1g.5gb") for user in ("bea", "cal")]
        for server in ("", "thesis"):
            await r.ask("ada", "mig-1g.5gb", server=server)
        await r.engine.reconciler.reconcile()
        for state in held:
            await r.left(state)
        for _ in range(2):
            await r.engine.watcher.refresh()
            states = {state.server: state for state in r.engine.queue.states()}
            assert (states[""].answer, states["thesis"].answer) == ("admit", "wait")
        await r.engine.ended(states[""].ticket, Ended(states[""].attempt, "failed", "no such image"))
        await r.engine.watcher.refresh()
        assert [(state.server, state.answer) for state in r.engine.queue.states()] == [("thesis", "admit")]


async def test_max_wait_is_for_those_who_wait_and_not_for_a_server_that_starts(tmp_path: Path) -> None:
    async with room(tmp_path, small(0), queue=QueueLimits(max_wait=timedelta(hours=1))) as r:
        await r.ask("ada", "mig-1g.5gb")
        await r.ask("ben", "mig-1g.5gb")
        for minutes, users in ((60, {"ada", "ben"}), (1, {"ada"})):
            r.hands.pass_time(timedelta(minutes=minutes))
            await r.engine.reconciler.reconcile()
            assert set(r.positions()) == users


@pytest.mark.programs
async def test_a_ticket_that_somebody_wants_again_has_its_full_time_anew(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        await r.ask("ben", "mig-1g.5gb")
        await r.engine.reconciler.reconcile()
        for wanted, seconds in ((False, 100), (True, 100), (False, 100), (False, 20)):
            r.hub.running.pop(("ben", ""), None)
            if wanted:
                r.hub.run("ben", ready=False)
            r.hands.pass_time(timedelta(seconds=seconds))
            await r.engine.reconciler.reconcile()
            assert r.positions() == {"ben": 1}
        for seconds in (100, 1):
            assert r.positions() == {"ben": 1}, "120 s are not over"
            r.hands.pass_time(timedelta(seconds=seconds))
            await r.engine.reconciler.reconcile()
        assert r.positions() == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("has", "seconds", "admitted"), [(("staff",), 31, True), ((), 30, True), ((), 31, False), (("other",), 31, False)]
)
async def test_an_offer_is_for_those_who_are_in_its_group_when_they_are_admitted(
    tmp_path: Path, has: tuple[str, ...], seconds: int, admitted: bool
) -> None:
    """The hub's word of the groups is good for 30 s."""
    offers = OfferConfig(groups={"mig-1g.5gb": ("staff",)})
    async with room(tmp_path, small(0), offers=offers) as r:
        asks = [Ask(user, "", ("mig-1g.5gb",), groups=("staff",)) for user in ("ada", "ben")]
        ada, _ = [await r.engine.ask(ask) for ask in asks]
        r.hub.groups["ben"] = has
        r.hands.pass_time(timedelta(seconds=seconds))
        await r.left(ada)
        await r.engine.watcher.refresh()
        assert [state.answer for state in r.engine.queue.states()] == (["admit"] if admitted else [])
        notices = [notice.text for notice in r.engine.form("ben", "", (), False).notices]
        assert notices == ([] if admitted else ["mig-1g.5gb is no longer for your groups. Choose another offer."])


async def test_who_loses_the_right_to_the_first_offer_is_given_the_second(tmp_path: Path) -> None:
    offers = OfferConfig(groups={"mig-2g.10gb": ("staff",)})
    async with room(tmp_path, small(0), large(), offers=offers) as r:
        ada = await r.engine.ask(Ask("ada", "", ("mig-2g.10gb",), groups=("staff",)))
        cal = await r.engine.ask(Ask("cal", "", ("mig-1g.5gb",), groups=("staff",)))
        await r.engine.ask(Ask("ben", "", ("mig-2g.10gb", "mig-1g.5gb"), groups=("staff",)))
        r.hub.groups["ben"] = ()
        r.hands.pass_time(timedelta(seconds=31))
        await r.left(ada)
        await r.engine.watcher.refresh()
        (waits,) = (state for state in r.engine.queue.states() if state.user == "ben")
        assert (waits.answer, waits.offers) == ("wait", ("mig-1g.5gb",))
        (notice,) = r.engine.form("ben", "", (), False).notices
        assert notice.text == "mig-2g.10gb is no longer for your groups. Your place for your other offers is kept."
        await r.left(cal)
        await r.engine.watcher.refresh()
        (state,) = (state for state in r.engine.queue.states() if state.user == "ben")
        assert (state.answer, state.grant.offer) == ("admit", "mig-1g.5gb")


@pytest.mark.programs
async def test_a_user_is_shown_the_own_servers_only_those_that_start_included(tmp_path: Path) -> None:
    async with room(tmp_path) as r:
        await r.run("ada", "mig-1g.5gb")
        await r.run("ben", "cpu")
        await r.ask("cleo", "mig-1g.5gb", server="thesis")
        shown = {
            user: [(s.server, s.offer) for s in r.engine.servers_of(user)] for user in ("ada", "ben", "cleo", "dan")
        }
        assert shown == {
            "ada": [("", "mig-1g.5gb")],
            "ben": [("", "cpu")],
            "cleo": [("thesis", "mig-1g.5gb")],
            "dan": [],
        }
        held = [r.engine.form(user, "", (), False).gpu_servers for user in ("ada", "ben", "cleo")]
        assert held == [("",), (), ("thesis",)]
        assert [info.user for info in await r.engine.all_tickets()] == ["cleo"]
        assert r.engine.tickets("ada") == ()
        assert r.engine.state.waiting() == 0
        state = r.engine.server_state("ada", "")
        assert state is not None and {offer.id for offer in state.waits} == {"mig-2g.10gb", "cpu"}


@pytest.mark.programs
async def test_asking_for_what_there_is_not_ends_the_place_in_line(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        ben = await r.ask("ben", "mig-1g.5gb")
        told = await r.ask("ben", "mig-9g.90gb")
        assert (told.answer, told.ticket) == ("refuse", ben.ticket)
        assert r.positions() == {} and r.engine.state.waiting() == 0


@pytest.mark.programs
async def test_an_offer_that_is_asked_for_as_well_changes_nothing_of_the_place_for_the_other(tmp_path: Path) -> None:
    async with room(tmp_path, small(0), large(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        await r.run("eve", "mig-2g.10gb")
        await r.ask("dan", "mig-2g.10gb")
        await r.ask("ben", "mig-1g.5gb")
        await r.ask("cleo", "mig-1g.5gb")
        assert (await r.ask("ben", "mig-2g.10gb", "mig-1g.5gb")).position == 1
        assert r.positions() == {"dan": 1, "ben": 1, "cleo": 2}
        assert r.engine.state.waiting() == 3


async def test_the_offers_of_last_time_are_proposed_as_far_as_there_are_any(tmp_path: Path) -> None:
    async with room(tmp_path, small(0), large(0)) as r:
        await r.left(await r.ask("ada", "mig-2g.10gb", "mig-1g.5gb"))
        await r.engine.watcher.refresh()
        for there in (("mig-2g.10gb", "mig-1g.5gb"), ("mig-1g.5gb",)):
            assert r.engine.form("ada", "", (), False).last_offers == there
            r.gpus.devices[:] = [small(0)]
            await r.engine.watcher.refresh()


async def test_an_admission_that_cannot_be_written_is_tried_once_a_transaction(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        r.engine.state.hub_view = replace(r.engine.state.hub_view, away_since=r.hands.wall)
        for user in ("ada", "ben", "cal"):
            assert (await r.ask(user, "mig-1g.5gb")).answer == "wait"
        r.engine.state.hub_view = replace(r.engine.state.hub_view, away_since=None)
        tries = list[Changes]()

        class Counted(StoreThatIsFull):
            async def commit(self, changes: Changes) -> None:
                tries.append(changes)
                await super().commit(changes)

        r.engine.state.store = Counted()  # type: ignore[assignment]
        async with r.engine.queue.transaction(admit=True):
            pass
        assert len(tries) == 1 and tries[0].leases


async def test_a_service_that_cannot_write_is_not_ready(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        r.engine.start()
        assert r.engine.health().ready
        r.engine.state.store = StoreThatIsFull()  # type: ignore[assignment]
        with pytest.raises(Refused):
            await r.ask("ada", "mig-1g.5gb")
        assert not r.engine.health().ready


@pytest.mark.programs
async def test_a_start_whose_word_ready_was_lost_ends_well_by_the_hubs_list(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        ada = await r.ask("ada", "mig-1g.5gb")
        r.hub.run("ada")
        r.hands.pass_time(timedelta(seconds=1))
        await r.engine.watcher.refresh()
        await r.engine.reconciler.reconcile()
        assert r.positions() == {"ada": 0}, "the hub says that it is ready, and nothing of it runs"
        pid = r.process(ada).pid
        await soon(lambda: any(each.pid == pid for each in procfs.marked()))
        await r.engine.watcher.refresh()
        await r.engine.reconciler.reconcile()
        assert r.positions() == {}
        assert [lease.state for lease in await r.engine.leases()] == ["running"]
        assert r.engine.state.counts[("ended", "ready")] == 1


@pytest.mark.programs
async def test_a_server_is_known_until_its_stop_is_over(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "cpu")
        server = r.hub.running[("ada", "")]
        stopping = replace(server, ready=False, pending="stop")
        for seconds, listed, known in (
            (1, server, True), (1, stopping, True), (100, None, True), (59, None, True), (1, None, False),
        ):  # fmt: skip
            r.hub.running = {} if listed is None else {("ada", ""): listed}
            r.hands.pass_time(timedelta(seconds=seconds))
            await r.engine.reconciler.reconcile()
            assert (("ada", "") in r.engine.state.facts) is known


@pytest.mark.programs
async def test_a_server_that_one_list_of_the_hub_lacks_keeps_its_time_and_its_keeps(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "cpu")
        before = r.engine.state.facts[("ada", "")]
        server = r.hub.running.pop(("ada", ""))
        for listed in ({}, {("ada", ""): server}):
            r.hub.running = listed
            r.hands.pass_time(timedelta(seconds=59))
            await r.engine.reconciler.reconcile()
        assert r.engine.state.facts[("ada", "")] == before


async def test_after_a_restart_of_the_service_nobody_is_admitted_by_what_was_known_before(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        ada = await r.ask("ada", "mig-1g.5gb")
        await r.ask("ben", "mig-1g.5gb")
        hub, hands = r.hub, r.hands
    hub.deleted.add("ben")
    async with room(tmp_path, small(0), hub=hub, hands=hands) as r:
        await r.left(ada)
        await r.engine.watcher.refresh()
        assert r.positions() == {}
        assert r.engine.state.counts[("ended", "refused")] == 1


@pytest.mark.programs
async def test_a_wall_clock_set_back_an_hour_moves_nothing(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        ben = await r.ask("ben", "mig-1g.5gb")
        before = r.engine.state.clock.now()
        r.hands.wall -= timedelta(hours=1)
        await r.ask("cleo", "mig-1g.5gb")
        assert r.positions() == {"ben": 1, "cleo": 2}
        assert r.engine.state.clock.now() == before
        assert ben.wait is not None and ben.wait.at_most_seconds == pytest.approx((31 + 3) * 60, abs=5)


@pytest.mark.programs
async def test_in_a_dry_run_there_is_no_at_most(tmp_path: Path) -> None:
    from tests.hub_service.engine.room import settings

    dry = replace(settings(tmp_path).culling, enabled=False)
    async with room(tmp_path, small(0), culling=dry) as r:
        await r.run("ada", "mig-1g.5gb")
        ben = await r.ask("ben", "mig-1g.5gb")
        assert ben.wait is not None and ben.wait.at_most_seconds is None
        assert r.engine.form("ben", "", (), False).culling == ""


async def test_a_fault_in_one_loop_is_shown_and_ends_neither_it_nor_the_service(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with room(tmp_path, small(0)) as r:
        faults = [RuntimeError("a driver nobody met before")]
        read = r.gpus.read

        def reads_badly_once(now: datetime) -> InventoryReading:
            if faults:
                raise faults.pop()
            return read(now)

        r.gpus.read = reads_badly_once  # type: ignore[method-assign]
        r.engine.start()
        await soon(lambda: "a driver nobody met before" in caplog.text)
        assert not r.engine.health().ready
        assert (await r.ask("ada", "mig-1g.5gb")).answer == "admit"
        await soon(lambda: not faults and r.engine.health().inventory_age_seconds is not None, 10)
