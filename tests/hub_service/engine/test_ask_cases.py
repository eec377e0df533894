"""What one question of the hub for a place in line is answered with and changes: case by case."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from hub_extensions.adapters.hub.jupyterhub_api import HubAway
from hub_extensions.adapters.store import Changes
from hub_extensions.core.messages import Ask, Ended, TicketStatus
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.queue.model import Admission, Lease, LeaseState, Ticket, TicketState, WantedOffer
from hub_extensions.core.text.reasons import Reason, as_text, explain
from hub_extensions.hub_service.engine.state.errors import Refused
from hub_extensions.hub_service.engine.state.meta import read_failures, write_failures
from hub_extensions.hub_service.engine.state.transaction import Transaction
from tests.fakes.machine import small
from tests.hub_service.engine.pod_room import pod_room
from tests.hub_service.engine.room import Room, room
from tests.hub_service.engine.test_followed_uses import LARGE, SMALL, four, lease

pytestmark = pytest.mark.slow

SECOND = timedelta(seconds=1)
NO_IMAGE = (explain("image-not-there", image="lab:1"), explain("choose-another"))


async def asked(
    r: Room, user: str, *offers: str, ticket: str = "", kept: bool = False, groups: Sequence[str] = ()
) -> TicketStatus:
    wanted = tuple(map(OfferId, offers or (SMALL,)))
    return await r.engine.ask(Ask(user, "", wanted, {}, ticket=ticket, kept=kept, groups=tuple(groups)))


async def kinds(r: Room) -> list[str]:
    return [row.kind for row in await r.engine.store.journal(50)]


@pytest.mark.whole
@pytest.mark.parametrize(
    ("user", "offers", "how", "answer", "written"),
    [
        ("eve", (SMALL,), {}, "wait", True),  # a new place
        ("fay", (SMALL,), {}, "wait", True),  # asked for anew: the next attempt
        ("fay", (SMALL,), {"ticket": "own"}, "wait", False),  # it looks after its place
        ("fay", (LARGE,), {"ticket": "own"}, "wait", True),  # and asks for another
        ("fay", (SMALL,), {"kept": True}, "wait", False),  # sent again, long after
        ("fay", (LARGE,), {"kept": True}, "wait", False),
        ("fay", (SMALL,), {"ticket": "old"}, "ended", False),
        ("eve", (SMALL,), {"ticket": "old"}, "ended", False),
        ("eve", (SMALL,), {"kept": True}, "wait", True),
        ("ada", (SMALL,), {"kept": True}, "ended", False),  # it runs by now
        ("ben", ("cpu",), {"kept": True}, "ended", False),
        ("fay", ("mig-9g.90gb",), {}, "refuse", True),  # its place ends with it
        ("eve", ("mig-9g.90gb",), {}, "refuse", False),
        ("eve", ("mig-9g.90gb",), {"kept": True}, "refuse", False),
    ],
)
async def test_what_is_asked_is_answered_and_written_once(
    tmp_path: Path, user: str, offers: tuple[str, ...], how: dict[str, object], answer: str, written: bool
) -> None:
    async with four(tmp_path) as r:
        fay = await asked(r, "fay", SMALL)
        state, before = r.engine.state, await kinds(r)
        state.touched.clear()
        attempt = state.tickets[fay.ticket].attempt
        how = {**how, "ticket": {"own": fay.ticket, "old": "of before"}.get(str(how.get("ticket")), "")}
        found = await asked(r, user, *offers, **how)  # type: ignore[arg-type]
        assert (found.answer, (await kinds(r)) != before) == (answer, written)
        assert ((user, "") in state.touched) is not bool(how.get("kept"))
        if user == "fay":
            there = state.tickets.get(fay.ticket)
            assert (there is None) is (answer == "refuse")
            assert there is None or there.attempt == attempt + (written and answer == "wait")
            assert (await kinds(r)).count("asked-again") == (written and answer == "wait")
        else:
            assert any(each.user == user for each in state.tickets.values()) is (answer == "wait")
        told = [notice.text for notice in state.recent_notices(user)]
        assert bool(told) is (answer == "refuse" and (bool(how.get("kept")) or user == "fay"))
        assert state.counts.get(("refused", "unknown-offer"), 0) == (answer == "refuse")


async def test_who_the_hub_calls_an_admin_stays_one_and_groups_are_those_of_the_last_question(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        state = r.engine.state
        state.hub_view = replace(state.hub_view, people={"eve": (("old",), True)})
        for user, admin in (("eve", True), ("fay", False)):
            await asked(r, user, SMALL, groups=["ml"])
            assert state.hub_view.people[user] == (("ml",), admin)


async def test_an_offer_that_a_ticket_has_may_be_gone_for_a_while(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        fay = await asked(r, "fay", SMALL)
        offers = r.engine.state.offers
        r.engine.state.offers = tuple(each for each in offers if each.id != SMALL)
        assert (await asked(r, "fay", SMALL)).answer == "wait"
        assert (await asked(r, "fay", SMALL, LARGE)).answer == "wait"
        assert (await asked(r, "gus", SMALL)).answer == "refuse"
        assert fay.ticket in r.engine.state.tickets


@pytest.mark.parametrize(
    ("user", "offer", "how", "cleared"),
    [
        ("cid", LARGE, {}, True),
        ("cid", LARGE, {"kept": True}, False),
        ("cid", LARGE, {"ticket": "own"}, False),
        ("cid", SMALL, {}, False),
        ("ada", SMALL, {}, False),
        ("eve", "cpu", {}, False),
        ("nobody", LARGE, {}, False),
    ],
)
async def test_an_admitted_ticket_that_is_asked_for_again_begins_with_an_empty_device(
    tmp_path: Path, user: str, offer: str, how: dict[str, object], cleared: bool
) -> None:
    async with four(tmp_path) as r:
        await asked(r, "eve", "cpu")
        held, seen = lease(r.engine.state, "cid"), list[Lease]()

        async def clear_dead_start(each: Lease) -> None:
            seen.append(each)

        r.engine.watcher.clear_dead_start = clear_dead_start  # type: ignore[method-assign]
        own = next((each.id for each in r.engine.state.tickets.values() if each.user == user), "")
        how = {**how, "ticket": own if how.get("ticket") else ""}
        await asked(r, user, offer, **how)  # type: ignore[arg-type]
        assert seen == ([held] if cleared else [])


@pytest.mark.parametrize(
    ("resumed", "attempt", "ends"),
    [(None, 2, True), (None, 1, False), (1, 1, True), (1, 2, True), (2, 1, False), (0, 0, False), (1, 3, False)],
)
async def test_a_word_of_the_start_before_ends_one_that_only_we_wanted(
    tmp_path: Path, resumed: int | None, attempt: int, ends: bool
) -> None:
    async with four(tmp_path) as r:
        fay = await asked(r, "fay", SMALL)
        await asked(r, "fay", SMALL)
        state = r.engine.state
        assert state.tickets[fay.ticket].attempt == 2
        if resumed is not None:
            state.resumed[fay.ticket] = resumed
        await r.engine.ended(fay.ticket, Ended(attempt, "left"))
        assert (fay.ticket not in state.tickets) is ends


@pytest.mark.parametrize(
    ("message", "reason", "reasons", "said", "counted"),
    [
        ("It crashed.", "crashed", (), ["start-failed-why"], "crashed"),
        ("", "", (), ["start-failed"], "unknown"),
        ("", "image", NO_IMAGE, ["image-not-there", "choose-another"], "image"),
    ],
)
async def test_a_start_that_failed_says_why_where_that_is_known(
    tmp_path: Path, message: str, reason: str, reasons: tuple[Reason, ...], said: list[str], counted: str
) -> None:
    async with four(tmp_path) as r:
        state, held = r.engine.state, lease(r.engine.state, "cid")
        ended: list[TicketStatus] = []
        r.engine.queue._send = ended.append  # type: ignore[method-assign]
        r.engine.queue.transaction._publish = ended.append
        await r.engine.ended(held.ticket, Ended(1, "failed", message, reason, reasons=reasons))
        assert state.counts["start-failed", counted] == 1
        assert said[0] in {each.reason.reason for each in ended if each.ticket == held.ticket}
        (row,) = [row for row in await r.engine.store.journal(20) if row.kind == "failed"]
        assert (row.actor, row.evidence) == ("hub", reason)
        assert [each.reason for each in row.reasons] == said, "what happened is told in its reader's language"
        assert row.text == f"start failed: {as_text(reasons) or message or reason}"
        (failed,) = r.engine.state.notices.failures
        assert [(each.reason, each.log_message) for each in failed.start.reasons] == [(each, "") for each in said]
        assert read_failures(write_failures((failed,))) == (failed,)
        (older,) = json.loads(write_failures((failed,)))
        del older["start"]["then"]
        assert read_failures(json.dumps([older])) == (replace(failed, start=replace(failed.start, then=())),)


@pytest.mark.parametrize(
    ("user", "admin", "actor"), [("fay", "", "user"), (None, "root", "admin root"), (None, "", "admin")]
)
async def test_who_leaves_and_whom_an_admin_ends_is_written_down(
    tmp_path: Path, user: str | None, admin: str, actor: str
) -> None:
    async with four(tmp_path) as r:
        fay = await asked(r, "fay", SMALL)
        await r.engine.leave(fay.ticket, user, admin)
        (row,) = [row for row in await r.engine.store.journal(20) if row.kind == "left"]
        assert row.actor == actor
        with pytest.raises(Refused):
            await r.engine.leave(fay.ticket, user)


# ------------------------------------------------------------------ admission


def admitted(r: Room, ticket: Ticket, device: str | None, offer: str = SMALL) -> Changes:
    """What is written when a ticket is admitted to a device, or to the pool of a cluster."""
    admission = Admission(ticket.id, OfferId(offer), device)
    return r.engine.queue._admissions([(admission, ticket)], Transaction(r.engine.state))


async def test_an_admission_is_written_with_what_it_was_decided_on(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        fay = await asked(r, "fay", SMALL, groups=["ml", "lab"])
        ticket = r.engine.state.tickets[fay.ticket]
        (row,) = admitted(r, replace(ticket, joined=ticket.joined - 90 * SECOND), SMALL).journal
        assert row.evidence == "waited 90 s, GPUs read 0 s ago, groups: ml, lab"
        r.engine.state.read_at = None
        await asked(r, "fay", SMALL)
        (row,) = admitted(r, ticket, SMALL).journal
        assert row.evidence == "waited 0 s, GPUs not read, groups: none"


async def test_an_admitted_ticket_holds_what_it_was_given_for_as_long_as_is_enforced(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        state = r.engine.state
        fay = await asked(r, "fay", SMALL)
        ticket, held = state.tickets[fay.ticket], lease(state, "ada")
        (given,) = admitted(r, ticket, held.device).leases
        assert (given.uuid, given.pool, given.share, given.device) == (held.uuid, SMALL, 1000, held.device)
        assert given.ends_at == given.since + state.start_allowance + 30 * 60 * SECOND
        (pooled,) = admitted(r, ticket, SMALL).leases
        assert (pooled.uuid, pooled.pool) == ("", SMALL)
        state.offers = tuple(replace(each, share=250) if each.id == SMALL else each for each in state.offers)
        assert [each.share for each in admitted(r, ticket, held.device).leases] == [250]
        state.offers = ()
        assert [each.share for each in admitted(r, ticket, held.device).leases] == [1000]
        assert admitted(r, ticket, None, CPU).leases == ()


async def test_in_one_turn_who_has_lost_the_right_to_several_offers_is_given_the_last(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        state = r.engine.state
        fay = await asked(r, "fay", SMALL)
        held = lease(state, "fay")
        names = [f"mig-{n}g.5gb" for n in range(2, 7)]
        known = next(each for each in state.offers if each.id == SMALL)
        closed = tuple(replace(known, id=OfferId(name), groups=("ml",)) for name in names)
        state.offers = (*closed, *state.offers)
        ticket = state.tickets[fay.ticket]
        wanted = tuple(WantedOffer(each.id, 1) for each in (*closed, known))
        state.leases.pop(held.id)
        state._index(replace(held, state=LeaseState.ENDED))
        state._remember_ticket(
            replace(ticket, state=TicketState.WAITING, wanted_offers=wanted, admitted_offer=None, admitted_at=None)
        )
        async with r.engine.queue.transaction(admit=True):
            pass
        after = state.tickets[fay.ticket]
        assert (after.state, after.admitted_offer) == (TicketState.ADMITTED, SMALL)
        assert len(state.recent_notices("fay")) == len(names)


async def test_a_hub_that_does_not_answer_leaves_others_their_admission(tmp_path: Path) -> None:
    async with room(tmp_path, small(0), small(1), small(2)) as r:
        state = r.engine.state
        r.engine.queue.rights.begin()
        state.hub_view = replace(state.hub_view, away_since=r.hands.wall)
        for user in ("ada", "ben", "cid"):
            await asked(r, user, SMALL)
        r.hands.pass_time(31 * SECOND)
        r.engine.queue.rights.remember("ben", ())
        state.hub_view, calls = replace(state.hub_view, away_since=None), list[str]()

        async def away(name: str) -> None:
            calls.append(name)
            raise HubAway("no answer")

        r.hub.user = away  # type: ignore[method-assign, assignment]
        await r.engine.watcher.refresh()
        admitted = {each.user for each in state.tickets.values() if each.state is TicketState.ADMITTED}
        assert (admitted, calls) == ({"ben"}, ["ada"])


async def test_on_a_cluster_that_was_not_read_yet_who_joined_is_judged_when_it_is(tmp_path: Path) -> None:
    async with pod_room(tmp_path) as r:
        state, queue = r.engine.state, r.engine.queue
        fay = await r.ask("fay", "mig-1g.5gb")
        assert queue._unjudged == {}
        state.cluster = None
        await r.ask("gus", "mig-9g.90gb")
        await r.ask("hal", "mig-1g.5gb")
        gus, hal = r.ticket("gus"), r.ticket("hal")
        assert queue._unjudged == {gus: ("mig-9g.90gb",), hal: ("mig-1g.5gb",)}
        await r.ask("gus", "mig-9g.90gb", "mig-8g.80gb")
        assert queue._unjudged[gus] == ("mig-9g.90gb", "mig-8g.80gb")
        await r.refresh()
        assert queue._unjudged == {} and gus not in state.tickets and hal in state.tickets
        assert state.counts["refused", "unknown-offer"] == 1 and fay.ticket in state.tickets
        assert [notice.text for notice in state.recent_notices("gus")]


async def test_a_place_says_that_the_hub_is_away_and_where_nothing_of_it_is_there(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        fay = await asked(r, "fay", SMALL)
        ticket = r.engine.state.tickets[fay.ticket]

        def reason() -> str:
            return r.engine.queue._state(ticket).reason.reason

        assert reason() != "hub-away"
        r.engine.state.hub_view = replace(r.engine.state.hub_view, away_since=r.hands.wall)
        assert reason() == "hub-away"
        r.engine.state.offers = ()
        assert reason() == "offers-gone"
