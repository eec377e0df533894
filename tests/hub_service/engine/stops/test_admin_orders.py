"""What admins order, with the engine: a drained card, a stop, more time, a letter; and what the overview says of it."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from hub_extensions.adapters.store import Changes, JournalFilter
from hub_extensions.core.messages import Ended, OfferClosing, ServerState, SignedOut, Started
from hub_extensions.core.notices.delivery import DeliveryAction, judge
from hub_extensions.core.notices.letter import A_SERVER
from hub_extensions.core.overview.cards import PieceState
from hub_extensions.core.overview.days import Days, Span, days_of
from hub_extensions.core.overview.view import Asked, Overview
from hub_extensions.core.queue.cordons import MACHINE
from hub_extensions.core.queue.failed_starts import MOST
from hub_extensions.core.stops import Cause, StopState, Withdrawal, reclaim
from hub_extensions.core.usage import UseEnd
from hub_extensions.hub_service.engine.state.errors import Refused
from hub_extensions.hub_service.engine.stops.orders import ORDERS
from hub_extensions.hub_service.engine.views import usage_days
from hub_extensions.server_extension.codec import decode
from hub_extensions.server_extension.events import EndWatch
from tests.fakes.cluster_table import ClusterTable, node
from tests.fakes.machine import HubAsTold, small
from tests.hub_service.engine.pod_room import SMALL as POD_SMALL
from tests.hub_service.engine.pod_room import pod_room
from tests.hub_service.engine.room import Hands, Room, is_stopped, room, settings
from tests.hub_service.engine.stops.test_culler import OPEN, minutes, one_turn, stops_finish
from tests.hub_service.engine.test_followed_uses import SMALL, four, lease

pytestmark = pytest.mark.slow

MINUTE = timedelta(minutes=1)
MAIL = {"smtp_host": "mail.example.org", "mail_from": "gpu@example.org", "mail_to": "{{ user }}@example.org"}


async def seen(r: Room, **asked: object) -> Overview:
    return await r.engine.admin_overview(Asked(**asked))  # type: ignore[arg-type]


async def rows(r: Room) -> list[tuple[str, str, str]]:
    found = await r.engine.journal(JournalFilter(kinds=ORDERS), 50)
    return [(row.kind, row.actor, row.text) for row in reversed(found)]


async def test_a_drained_card_is_given_to_nobody_until_it_is_undone_also_after_a_restart(tmp_path: Path) -> None:
    first = small(0)
    async with room(tmp_path, first) as r:
        await r.engine.watcher.refresh()
        await r.engine.admin_orders.drain(first.uuid, "a  new\nfan", "root")
        state = await r.ask("ada", SMALL)
        assert (state.answer, state.reason.reason) == ("wait", "closed-by-admin")
        offer = next(each for each in r.engine.form("ben", "", (), False).offers if each.id == SMALL)
        assert offer.closed == OfferClosing(1, True, r.hands.wall, "a new fan"), "the form says it in the admin's words"
        assert offer.wait.reason is not None and offer.wait.reason.reason == "offer-closed"
        (card,) = (await seen(r)).cards.shown
        assert card.cordon is not None and card.cordon.why == "a new fan"
        assert [piece.state for piece in card.pieces] == [PieceState.CLOSED]
        with pytest.raises(Refused, match="Nothing new starts there already"):
            await r.engine.admin_orders.drain(first.uuid, "again", "root")
    async with room(tmp_path, first, hub=r.hub, hands=r.hands) as r:
        await r.engine.watcher.refresh()
        assert r.positions() == {"ada": 1}
        await r.engine.admin_orders.undrain(first.uuid, "it turns", "root")
        assert (await seen(r)).totals.held == 1
        assert [each.state.value for each in r.engine.state.leases.values()] == ["starting"]
        with pytest.raises(Refused, match="not being emptied"):
            await r.engine.admin_orders.undrain(first.uuid, "again", "root")
        assert await rows(r) == [
            ("drained-card", "admin root", f"Nothing new starts on {first.uuid}: a new fan"),
            ("undrained-card", "admin root", f"Servers start on {first.uuid} again: it turns"),
        ]


async def test_who_is_on_a_drained_machine_stays_and_the_page_says_when_it_is_empty(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        held = lease(r.engine.state, "ada")
        await r.engine.admin_orders.drain(MACHINE, "it moves", "root")
        found = await seen(r)
        assert found.machine.left == len(r.engine.state.leases)
        ends = [r.engine.state.as_enforced(each).ends_at for each in r.engine.state.leases.values()]
        latest = max(end for end in ends if end is not None)
        assert found.machine.at == r.engine.state.clock.wall(latest)
        assert r.engine.state.leases[held.id] == held
        with pytest.raises(Refused, match="Say why"):
            await r.engine.admin_orders.undrain(MACHINE, "  ", "root")


async def test_on_a_cluster_the_page_says_which_command_drains_a_node_and_who_is_on_one_that_is(tmp_path: Path) -> None:
    cordoned = node("b", (POD_SMALL, 2), cordoned=True)
    async with pod_room(tmp_path, ClusterTable(node("a", (POD_SMALL, 2)), cordoned)) as r:
        await r.run("ada", on="a")
        with pytest.raises(Refused, match="kubectl cordon a"):
            await r.engine.admin_orders.drain("a", "a new fan", "root")
        found = await r.engine.admin_overview(Asked())
        shown = [
            (card.node, [piece.state.value for piece in card.pieces], bool(card.barred)) for card in found.cards.shown
        ]
        assert shown[0][0] == "a" and shown[0][1][1:] == ["free"] and not shown[0][2]
        assert shown[1] == ("b", ["closed", "closed"], True)
        offer = next(each for each in r.engine.form("ben", "", (), False).offers if each.id != "cpu")
        assert offer.closed == OfferClosing(2, False, None, ""), "by kubectl, so nobody's words"
        assert [each.holder.user for each in found.cards.shown[0].pieces if each.holder] == ["ada"]
        assert (await r.engine.admin_overview(Asked(show="drained"))).cards.found == 1


async def test_a_node_is_drained_by_the_clusters_own_cordon_under_the_admins_name(tmp_path: Path) -> None:
    table = ClusterTable(node("a", (POD_SMALL, 2)), node("b", (POD_SMALL, 2)))
    async with pod_room(tmp_path, table, allow_node_drain=True) as r:
        assert table.nodes is not None
        await r.run("ada", on="a")
        orders = r.engine.admin_orders
        await orders.drain("a", "a  new fan", "root")
        await r.engine.watcher.refresh()
        found = await seen(r)
        first, second = found.cards.shown
        assert table.nodes["a"].cordoned and first.cordoned and not second.cordoned and found.may_drain
        assert first.cordon is not None and (first.cordon.admin, first.cordon.why) == ("root", "a new fan")
        assert [each.holder.user for each in first.pieces if each.holder] == ["ada"]
        assert found.emptying["a"].left == 1
        offer = next(each for each in r.engine.form("ben", "", (), False).offers if each.id != "cpu")
        assert offer.closed == OfferClosing(2, False, r.hands.wall, "a new fan")
        with pytest.raises(Refused, match="Nothing new starts there already"):
            await orders.drain("a", "again", "root")
        with pytest.raises(Refused, match="no such machine"):
            await orders.drain(MACHINE, "it moves", "root")
        table.refuses = (403, "nodes is forbidden")
        with pytest.raises(Refused, match="The cluster refuses it, so nothing was changed: it answers 403"):
            await orders.undrain("a", "it turns", "root")
        with pytest.raises(Refused, match="nodes is forbidden"):
            await orders.drain("b", "a new fan", "root")
        assert [each.place for each in r.engine.state.cordons] == ["a"]
        table.refuses, table.silent = None, True
        with pytest.raises(Refused, match="not known whether it was done"):
            await orders.drain("b", "a new fan", "root")
        await r.engine.watcher.refresh()
        assert [card.cordon is not None for card in (await seen(r)).cards.shown] == [True, True]
        table.silent = False
        await orders.undrain("a", "it turns", "root")
        table.set_node("b", cordoned=False)  # somebody ran kubectl uncordon
        await r.refresh(after=61)
        assert r.engine.state.cordons == () and not table.nodes["a"].cordoned
        with pytest.raises(Refused, match="not being emptied"):
            await orders.undrain("b", "again", "root")
        assert await rows(r) == [
            ("drained-card", "admin root", "Nothing new starts on a: a new fan"),
            ("drained-card", "admin root", "Nothing new starts on b: a new fan"),
            ("undrained-card", "service", "Servers start on b again: the cluster refused it."),
            ("drained-card", "admin root", "Nothing new starts on b: a new fan"),
            ("undrained-card", "admin root", "Servers start on a again: it turns"),
            ("undrained-card", "service", "Servers start on b again: the cluster says that it is not cordoned."),
        ]


@pytest.mark.programs
async def test_a_stop_by_an_admin_is_told_saves_and_is_recorded_as_the_admins(tmp_path: Path) -> None:
    async with room(tmp_path, small(0), **MAIL) as r:
        await r.run("ada", SMALL)
        r.gpus.used["MIG-small-0"] = 90.0
        await one_turn(r)
        held = lease(r.engine.state, "ada")
        await r.engine.admin_orders.stop(held.id, 5, "the course {begins}", "root")
        await one_turn(r)
        state = r.engine.server_state("ada", "")
        assert state is not None and state.countdown is not None
        assert (state.countdown.cause, state.countdown.can_keep) == ("admin", False)
        assert state.countdown.reason.message == "An administrator stops it: the course {begins}"
        now = r.engine.state.clock.now()
        # what the user's server hears, and tells the panel last: the stopped server's box is made of it
        heard = decode(ServerState, TypeAdapter(ServerState).dump_json(state))
        assert EndWatch().due(heard, 1.0) == ("warn",)
        assert heard.countdown is not None and heard.countdown.cause == "admin"
        assert heard.countdown.reason.reason == "stopped-by-admin-why"
        assert heard.countdown.reason.params == {"why": "the course {begins}"}
        with pytest.raises(Refused, match="An administrator stops it"):
            await r.engine.keep("ada", "")
        with pytest.raises(Refused, match="ordered already"):
            await r.engine.admin_orders.stop(held.id, 15, "later", "root")
        assert "the course {begins}" in r.engine.form("ada", "", (), False).notices[0].text
        mails = [r.engine.notifier._notice(each, now) for each in r.engine.state.notices.deliveries.values()]
        assert {each.kind for each in mails} == {"warning", "last-warning"}, "who has no page open is told too"
        assert all(each.text.startswith("An administrator stops your server. The server") for each in mails)
        assert all("\nThe administrator's words: the course {begins}\n" in each.text for each in mails)
        await minutes(r, 5)
        assert r.engine.server_state("ada", "").save  # type: ignore[union-attr]
        await r.engine.report("ada", "", replace(OPEN, saved=True))
        await stops_finish(r)
        assert r.hub.stopped == [("ada", "")]
        assert r.engine.state.uses[held.id].end is UseEnd.ADMIN
        assert r.engine.state.culls[Cause.ADMIN.value, ""] == 1
        kind, actor, text = (await rows(r))[0]
        assert (kind, actor) == ("stop-ordered", "admin root") and text.endswith(": the course {begins}")


@pytest.mark.programs
async def test_an_admins_keep_outlasts_idleness_and_lifetime_and_takes_back_a_stop(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", SMALL)
        await one_turn(r)
        held = lease(r.engine.state, "ada")
        await r.engine.admin_orders.stop(held.id, 5, "the course begins", "root")
        await r.engine.admin_orders.keep(held.id, 2, "it is an exam", "root")
        await minutes(r, 40)  # idle for 3 and a lifetime of 30 would have ended it
        assert r.hub.stopped == [] and not r.engine.state.stops
        assert r.engine.state.keeps.get("ada", ()) == (), "it is none of the user's own"
        found = (await seen(r)).cards.shown[0].pieces[0].holder
        assert found is not None and found.ends_at is not None and found.ends_at > r.hands.wall + 70 * MINUTE
        assert [kind for kind, *_ in await rows(r)] == ["stop-ordered", "kept-by-admin"]
        for hours in (1, 1000):
            with pytest.raises(Refused, match="hours has to be one of"):
                await r.engine.admin_orders.keep(held.id, hours, "why", "root")


async def test_a_letter_reaches_the_panel_the_next_page_and_the_mail_of_all_on_the_card(tmp_path: Path) -> None:
    async with room(tmp_path, small(0), small(1), **MAIL) as r:
        for user in ("ada", "ben"):
            asked = await r.ask(user, SMALL)
            await r.engine.started(asked.ticket, Started(asked.attempt, ready=True))
        count = await r.engine.admin_orders.write_to(MACHINE, "The machine restarts\nat six.", "root")
        running = {key for key, facts in r.engine.state.facts.items() if facts.lease}
        assert count == len(running) > 0
        for user, server in running:
            state = r.engine.server_state(user, server)
            assert state is not None and state.warnings[-1].params["text"] == "The machine restarts at six."
            assert "The machine restarts at six." in r.engine.form(user, server, (), False).notices[0].text
        sent = [each for each in r.engine.state.notices.deliveries.values() if each.kind == "letter"]
        assert {(each.user, each.server) for each in sent} == running
        notice = r.engine.notifier._notice(sent[0], r.engine.state.clock.now())
        assert notice.text.startswith("The machine restarts at six.") and notice.kind == "letter"
        for number in range(A_SERVER):
            await r.engine.admin_orders.write_to(MACHINE, f"Number {number}", "root")
            r.hands.pass_time(timedelta(seconds=1))
        kept = [each.params["text"] for each in r.engine.server_state("ada", "").warnings]  # type: ignore[union-attr]
        assert kept == [f"Number {number}" for number in reversed(range(A_SERVER))], "the newest"
        await r.engine.state.commit(r.engine.state.notices.without_user("ada"))
        assert "ada" not in {each.user for each in r.engine.state.notices.letters}
        # the server ends before the mail server answers: what was written is sent all the same, and on the next page
        last = next(each for each in r.engine.state.notices.deliveries.values() if each.user == "ben")
        await r.engine.state.commit(Changes(gone_facts=(("ben", ""),)))
        await r.engine.admin_orders.write_to(MACHINE, "To who is left", "root")
        now = r.engine.state.clock.now()
        assert judge(last, None, now) is DeliveryAction.SEND
        assert r.engine.notifier._notice(last, now).text.startswith("The machine restarts at six.")
        assert any("The machine restarts" in each.text for each in r.engine.form("ben", "", (), False).notices)
        with pytest.raises(Refused, match="Nobody's server runs there"):
            await r.engine.admin_orders.write_to("GPU-none", "Hello", "root")


async def test_a_failed_start_of_today_is_counted_with_its_last_reason(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        state = await r.ask("ada", SMALL)
        await r.engine.ended(state.ticket, Ended(state.attempt, "failed", "it did not answer in 30 s", "timeout"))
        found = await seen(r)
        assert (found.failed.last_day, found.failed.latest[0].user) == (1, "ada")
        assert not found.failed.at_least
        assert "did not answer" in found.failed.latest[0].reason.message
        (failure,) = r.engine.state.notices.failures
        r.engine.state.notices.failures = (failure,) * MOST
        assert (await seen(r)).failed.at_least, "more are not kept"
        r.engine.state.notices.failures = (failure,)
        r.hands.pass_time(timedelta(hours=25))
        await r.engine.watcher.refresh()
        assert (await seen(r)).failed.last_day == 0


async def test_only_the_page_that_is_asked_for_is_written_out_and_the_line_counts_all(tmp_path: Path) -> None:
    async with room(tmp_path, *(small(n) for n in range(45))) as r:
        for number in range(30):
            await r.ask(f"user-{number:02}", SMALL)
        first, last = await seen(r), await seen(r, cards=99, people=2)
        assert (first.totals.pieces, first.totals.held, first.totals.changing, first.totals.free) == (45, 30, 30, 15)
        assert (len(first.cards.shown), first.cards.pages, len(last.cards.shown), last.cards.page) == (20, 3, 5, 3)
        assert set(first.leases) == {each.lease for card in first.cards.shown for each in card.holders}
        assert (first.people.found, len(last.people.shown), last.people.page) == (30, 5, 2)
        one = await seen(r, search="USER-07")
        assert [holder.user for card in one.cards.shown for holder in card.holders] == ["user-07"]
        assert (await seen(r, show="free")).cards.found == 15
        assert (await seen(r, show="held")).cards.found == 30


async def test_ten_thousands_of_uses_are_counted_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = list[threading.Thread]()

    def counted(*args: object) -> Days:
        threads.append(threading.current_thread())
        return days_of(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(usage_days, "days_of", counted)
    async with room(tmp_path, small(0)) as r:
        first = await r.engine.days(Span.WEEK)
        assert await r.engine.days(Span.WEEK) is first, "kept for a minute"
    assert [each is threading.main_thread() for each in threads] == [False]


@pytest.mark.programs
@pytest.mark.parametrize(("idle_minutes", "first", "other"), [(3, "idle", "admin"), (8, "admin", "idle")])
async def test_panel_admins_page_audit_forecast_and_api_say_one_end_and_name_every_cause(
    tmp_path: Path, idle_minutes: int, first: str, other: str
) -> None:
    policy = replace(settings(tmp_path).culling, idle=idle_minutes * MINUTE)
    async with room(tmp_path, small(0), culling=policy) as r:
        await r.run("ada", SMALL)
        await one_turn(r)
        held, state = lease(r.engine.state, "ada"), r.engine.state
        await r.engine.admin_orders.stop(held.id, 5, "the course begins", "root")
        await minutes(r, 2)
        order = state.clock.now() + 3 * MINUTE
        shown = r.engine.server_state("ada", "")
        assert shown is not None and shown.countdown is not None
        assert (shown.countdown.cause, [each.cause for each in shown.countdown.others]) == (first, [other])
        words = {shown.countdown.cause: shown.countdown.reason, other: shown.countdown.others[0].reason}
        assert words["admin"].params == {"why": "the course begins"}
        (piece,) = (await seen(r)).cards.shown[0].pieces
        (info,) = await r.engine.leases()
        (culled,) = (await r.engine.culling()).servers
        latest = [shown.ends_at, piece.holder and piece.holder.ends_at, culled.ends_at]
        enforced = state.as_enforced(held).ends_at
        assert [*latest, enforced] == [state.clock.wall(order)] * 3 + [order]
        assert {info.stops_at, culled.stops_at} == {shown.countdown.stops_at}
        assert [each.cause for each in (*info.others, *culled.others)] == [other, other]
        assert not shown.countdown.can_keep
        with pytest.raises(Refused, match="Keep would not help" if first == "idle" else "An administrator stops it"):
            await r.engine.keep("ada", "")
        assert "ada" not in state.keeps, "none is spent"
        warned = (await r.engine.journal(JournalFilter(kinds=("warned",)), 5))[0]
        assert [each.reason for each in warned.reasons][1:3] == ["it-stops-at", "else-stops-at"]
        # once it is taken back, what stood beside it stands at its own time
        assert r.engine.admin_orders.may_undo_stop(held.id)
        await r.engine.admin_orders.undo_stop(held.id, "root")
        assert not r.engine.admin_orders.may_undo_stop(held.id)
        left = r.engine.server_state("ada", "")
        assert left is not None and left.countdown is not None and left.countdown.cause == "idle"
        assert left.countdown.others == () and left.countdown.can_keep
        assert "took back" in r.engine.form("ada", "", (), False).notices[-1].text
        with pytest.raises(Refused, match="No administrator's order"):
            await r.engine.admin_orders.undo_stop(held.id, "root")


@pytest.mark.whole
@pytest.mark.programs
@pytest.mark.parametrize("way", ["undo", "keep"])
async def test_an_order_is_withdrawn_until_the_kernels_are_interrupted_and_not_after_that(
    tmp_path: Path, way: str
) -> None:
    """Also not by a service that was killed meanwhile."""
    hub, hands, policy = HubAsTold(), Hands(), replace(settings(tmp_path).culling, idle=60 * MINUTE, lifetime=None)
    async with room(tmp_path, small(0), culling=policy, hub=hub, hands=hands) as r:
        await r.run("ada", SMALL)
        r.gpus.used["MIG-small-0"] = 90.0
        held = lease(r.engine.state, "ada")

        async def withdraw(r: Room) -> None:
            if way == "undo":
                await r.engine.admin_orders.undo_stop(held.id, "root")
            else:
                await r.engine.admin_orders.keep(held.id, 2, "it is an exam", "root")

        async def drains(r: Room) -> None:
            await r.engine.admin_orders.stop(held.id, 0, "the course begins", "root")
            await one_turn(r)
            assert is_stopped(r)

        await drains(r)
        assert r.engine.admin_orders.may_undo_stop(held.id)
        await withdraw(r)
        assert not is_stopped(r) and not r.engine.state.stops
        assert "took back" in r.engine.form("ada", "", (), False).notices[-1].text, "its user is told"
        await stops_finish(r)
        await minutes(r, 5)
        assert hub.stopped == [] and not r.engine.state.stops

        await drains(r)
        told = await r.engine.state_for_server("ada", "")
        assert told is not None and told.save and told.countdown is not None and told.countdown.cause == "admin"
        assert not r.engine.admin_orders.may_undo_stop(held.id)
        with pytest.raises(Refused, match="already stopping"):
            await withdraw(r)
        (child,) = r.children
        r.children.clear()
    async with room(tmp_path, small(0), culling=policy, hub=hub, hands=hands) as r:
        r.children.append(child)
        (stop,) = r.engine.state.stops.values()
        assert (stop.state, stop.cause, stop.interrupted) == (StopState.DRAINING, Cause.ADMIN, stop.began)
        with pytest.raises(Refused, match="already stopping"):
            await withdraw(r)
        await one_turn(r, None)
        await stops_finish(r)
        assert hub.stopped == [("ada", "")]


@pytest.mark.programs
async def test_a_reclaim_is_taken_back_by_the_line_alone_until_the_kernels_are_interrupted(tmp_path: Path) -> None:
    """No rule orders one yet."""
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", SMALL)
        await one_turn(r)
        state, held = r.engine.state, lease(r.engine.state, "ada")

        async def order_reclaim() -> None:
            now = state.clock.now()
            stop = state.ordered(state.facts["ada", ""], reclaim(now, MINUTE, now))
            assert stop is not None
            async with r.engine.queue.transaction() as transaction:
                await transaction.write(Changes(stops=(stop,)))
            await one_turn(r)

        async def take_back() -> bool:
            after = r.engine.stop_runner.without_orders(state.facts["ada", ""], Withdrawal.LINE)
            async with r.engine.queue.transaction() as transaction:
                await transaction.write(after or Changes())
            return after is not None

        await order_reclaim()
        shown = r.engine.server_state("ada", "")
        assert shown is not None and shown.countdown is not None
        assert (shown.countdown.cause, shown.countdown.can_keep) == ("reclaimed", False)
        assert shown.countdown.stops_at == state.clock.wall(state.clock.now() + MINUTE)
        with pytest.raises(Refused, match="borrowed"):
            await r.engine.keep("ada", "")
        assert not r.engine.admin_orders.may_undo_stop(held.id)
        with pytest.raises(Refused, match="No administrator's order"):
            await r.engine.admin_orders.undo_stop(held.id, "root")
        await r.engine.admin_orders.keep(held.id, 2, "it is an exam", "root")
        assert [each.cause for each in state.orders_of(state.facts["ada", ""])] == [Cause.RECLAIMED]
        assert await take_back()
        assert not state.stops, "the server is running again"
        assert r.engine.form("ada", "", (), False).notices[-1].text.endswith("its GPU is not taken back.")
        assert not await take_back(), "nothing is left to take back"

        await order_reclaim()
        await minutes(r, 1)
        assert is_stopped(r) and await take_back() and not is_stopped(r), "nothing is interrupted yet"
        await stops_finish(r)
        await order_reclaim()
        await minutes(r, 1)
        told = await r.engine.state_for_server("ada", "")
        assert told is not None and told.save
        assert not await take_back()
        await stops_finish(r)
        assert r.hub.stopped == [("ada", "")]
        assert state.uses[held.id].end is UseEnd.RECLAIMED


@pytest.mark.programs
async def test_a_withdrawn_order_leaves_the_stop_to_the_order_beside_it(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", SMALL)
        await one_turn(r)
        held = lease(r.engine.state, "ada")
        await r.engine.admin_orders.stop(held.id, 0, "the course begins", "root")
        await r.engine.signed_out(SignedOut("ada", "", held.id, 0.0, "disabled"))
        await one_turn(r)
        assert is_stopped(r)
        await r.engine.admin_orders.undo_stop(held.id, "root")
        assert is_stopped(r), "its user may not sign in any more"
        await stops_finish(r)
        assert r.hub.stopped == [("ada", "")]
        assert r.engine.state.uses[held.id].end is UseEnd.SIGNED_OUT
