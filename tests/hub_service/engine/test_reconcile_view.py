"""What follows from one list of the hub, server by server. Ada runs on a GPU, Ben on CPU only; Dan's was found."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from hub_extensions.adapters.hub.jupyterhub_api import HubServer
from hub_extensions.adapters.store import Changes
from hub_extensions.core.messages import Stopped
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.queue.model import Lease, LeaseState
from hub_extensions.core.queue.wait_bound import WaitForecast
from hub_extensions.hub_service.engine.line.reconcile import Reconciler
from hub_extensions.hub_service.engine.views.queue_view import QueueView, content_of
from tests.hub_service.engine.room import Room
from tests.hub_service.engine.test_followed_uses import LARGE, SMALL, four, lease

pytestmark = pytest.mark.slow

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
ADA, BEN, CID, DAN = (("ada", ""), ("ben", ""), ("cid", ""), ("dan", ""))


def server(r: Room, user: str = "ada", **changes: object) -> HubServer:
    made = HubServer(user, "", True, None, r.hands.wall, r.hands.wall)
    return replace(made, **changes)  # type: ignore[arg-type]


def reconciler(r: Room, *, lives: bool = False, found: Lease | None = None) -> Reconciler:
    """Its leases say of every process whether it lives, and what a server holds that nobody knows."""
    leases = r.engine.reconciler.leases
    leases.lives = lambda _: lives  # type: ignore[method-assign]
    leases.lease_of_unknown_server = lambda server, now: found  # type: ignore[method-assign]
    return r.engine.reconciler


async def test_what_the_lists_lack_is_missing_since_the_first_that_lacked_it(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        made = r.engine.reconciler
        made._changed_since = set()
        listed = {ADA: server(r), BEN: server(r, "ben", ready=False, pending="stop"), ("eve", ""): server(r, "eve")}
        assert made._missing_for(listed) == {CID: timedelta(0), DAN: timedelta(0)}
        r.hands.pass_time(MINUTE)
        neither = {**listed, ADA: server(r, ready=False)}
        assert made._missing_for(neither) == {ADA: timedelta(0), CID: MINUTE, DAN: MINUTE}
        made._changed_since = {CID}
        assert made._missing_for(listed) == {DAN: MINUTE}
        made._changed_since = set()
        assert made._missing_for(listed) == {CID: timedelta(0), DAN: MINUTE}


async def test_a_server_that_nobody_knows_is_adopted_with_what_it_holds(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        now, held = (
            r.engine.state.clock.now(),
            replace(lease(r.engine.state, "ada"), id="new", user="eve", adopted=True),
        )
        for found, what, about in (
            (held, f"It was started before, on {held.uuid}.", {"pid": 7, "pod": "x"}),
            (None, "It was started before, without a GPU of this hub.", {"pod": "jupyter-eve"}),
            (None, "It was started before, without a GPU of this hub.", {}),
        ):
            changes = reconciler(r, found=found)._adopt(server(r, "eve", **about))
            (facts,), (row,) = changes.facts, changes.journal
            assert (facts.user, facts.started, facts.adopted) == ("eve", now, True)
            assert (facts.offer, facts.lease) == ((SMALL, "new") if found else (CPU, None))
            assert changes.leases == ((held,) if found else ())
            seen = {7: ", pid 7"}.get(about.get("pid"), ", pod jupyter-eve" if about else "")  # type: ignore[call-overload]
            assert (row.kind, row.text, row.lease, row.user) == ("adopted", what, facts.lease, "eve")
            assert row.evidence == f"the hub lists it as ready{seen}"


@pytest.mark.parametrize(
    ("state", "lives", "back"),
    [
        (LeaseState.RUNNING, False, LeaseState.RUNNING),
        (LeaseState.LOST, False, LeaseState.LOST),
        (LeaseState.ENDING, True, LeaseState.RUNNING),
        (LeaseState.ENDING, False, None),
    ],
)
async def test_a_server_whose_lease_is_known_goes_on_under_it(
    tmp_path: Path, state: LeaseState, lives: bool, back: LeaseState | None
) -> None:
    async with four(tmp_path) as r:
        held = replace(lease(r.engine.state, "ada"), state=state)
        r.engine.state.leases[held.id] = held
        changes = reconciler(r, lives=lives)._adopt(server(r))
        (facts,) = changes.facts
        assert [each.state for each in changes.leases] == ([back] if back else [])
        assert facts.lease == (held.id if back else None) and facts.adopted is (back is None)
        assert facts.started == (held.ready_at if back else r.engine.state.clock.now())
        r.engine.state.leases[held.id] = replace(held, ready_at=None, server="other")
        assert reconciler(r, lives=lives)._adopt(server(r)).leases == ()
        assert (
            reconciler(r, lives=lives)._adopt(server(r, server="other")).facts[0].started == r.engine.state.clock.now()
        )


async def test_a_stop_that_the_hub_has_not_heard_the_end_of_adopts_nothing(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        made = reconciler(r)
        made.leases.is_stopping = lambda server: True  # type: ignore[method-assign]
        assert made._adopt(server(r, "eve")).empty


@pytest.mark.parametrize(
    ("user", "changes", "begins"),
    [("dan", {}, True), ("ben", {}, False), ("dan", {"lease": "has one"}, False), ("dan", {"adopted": False}, False)],
)
async def test_a_server_that_was_found_may_begin_to_hold_a_gpu(
    tmp_path: Path, user: str, changes: dict[str, object], begins: bool
) -> None:
    async with four(tmp_path) as r:
        state, held = r.engine.state, replace(lease(r.engine.state, "ada"), id="new", user=user)
        state.facts[user, ""] = replace(state.facts[user, ""], **changes)  # type: ignore[arg-type]
        found = reconciler(r, found=held)._adopt_late(server(r, user))
        assert found.leases == ((held,) if begins else ())
        if begins:
            (facts,) = found.facts
            assert (facts.lease, facts.offer, facts.started) == ("new", SMALL, state.clock.now())
        assert reconciler(r, found=None)._adopt_late(server(r, user)).empty


@pytest.mark.parametrize(
    ("user", "pid", "lives", "goes", "written"),
    [
        ("ben", None, False, True, True),
        ("ada", 7, True, False, False),
        ("ada", 7, False, True, False),
        ("ada", None, True, True, False),
    ],
)
async def test_a_server_that_the_hub_has_forgotten_is_forgotten_unless_it_runs(
    tmp_path: Path, user: str, pid: int | None, lives: bool, goes: bool, written: bool
) -> None:
    async with four(tmp_path) as r:
        state, held = r.engine.state, lease(r.engine.state, "ada")
        state.leases[held.id] = replace(held, pid=pid)
        found = reconciler(r, lives=lives)._forget(state.facts[user, ""])
        assert found.gone_facts == (((user, ""),) if goes else ())
        assert [row.evidence for row in found.journal] == (["its lists have lacked it for 60 s"] if written else [])


# ------------------------------------------------------------------ a stop that the hub reports


@pytest.mark.parametrize(
    ("user", "report", "end", "evidence", "text"),
    [
        ("ada", {"asked": True}, "user", "it was asked to", "the hub stopped its server"),
        ("ada", {"asked": True, "closing": True}, "hub-stopped", "the hub ends", "the hub stopped its server"),
        ("ada", {}, "unknown", "it ended by itself", "the hub stopped its server"),
        ("ada", {"message": "It broke.", "reason": "crashed"}, "failed", "crashed", "It broke."),
        ("ben", {"asked": True}, "user", "it was asked to", "the hub stopped its server"),
        ("eve", {"asked": True}, None, None, None),
        ("cid", {"asked": True}, None, None, None),
    ],
)
async def test_a_stop_is_written_down_with_who_asked_for_it(
    tmp_path: Path, user: str, report: dict[str, object], end: str | None, evidence: str | None, text: str | None
) -> None:
    async with four(tmp_path) as r:
        state = r.engine.state
        await r.engine.stopped(Stopped(user, "", **report))  # type: ignore[arg-type]
        rows = [row for row in await r.engine.store.journal(20) if row.kind == "stopped"]
        assert [(row.text, row.evidence, row.actor, row.user) for row in rows] == (
            [(text, evidence, "hub", user)] if text else []
        )
        assert (user, "") not in state.facts
        assert [notice.text for notice in state.recent_notices(user)] == ([text] if "message" in report else [])
        assert state.counts.get(("server-end", "crashed"), 0) == ("message" in report)
        if user == "ada":
            (use,) = (each for each in state.uses.values() if each.user == "ada")
            assert use.end is not None and use.end.value == end
            await r.engine.stopped(Stopped("ada", "", "Again.", "crashed"))
            assert len([row for row in await r.engine.store.journal(20) if row.kind == "stopped"]) == 1
            assert [notice.text for notice in state.recent_notices(user)][-1] == "Again."
        if user == "cid":
            assert lease(state, "cid").state is LeaseState.STARTING
        elif user == "ben":
            assert [record.end for record in (await r.engine.store.usage()).uses] == [end]


# ------------------------------------------------------------------ what is told beside a place


async def test_what_could_be_had_sooner_is_named_two_at_most_and_the_soonest_first(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        state = r.engine.state
        await r.ask("eve", LARGE)
        ticket = next(each for each in state.tickets.values() if each.user == "eve")
        stands = {each.offer.id: each for each in state.availability()}

        def likely(minutes: int) -> WaitForecast:
            return WaitForecast(False, MINUTE, MINUTE, minutes * MINUTE, None, None)

        names = [OfferId(f"mig-{n}g.5gb") for n in range(1, 6)]
        others = [
            replace(stands[SMALL], offer=replace(stands[SMALL].offer, id=name), wait=likely(minutes))
            for name, minutes in zip(names, (30, 10, 20, 60, 59), strict=True)
        ]
        unknown = replace(stands[SMALL], wait=replace(likely(1), p90=None))
        free = replace(stands[SMALL], offer=replace(stands[SMALL].offer, id=OfferId("mig-7g.5gb")),
                       wait=replace(likely(1), now=True))  # fmt: skip
        cpu = replace(stands[CPU], wait=likely(1))
        own = replace(stands[LARGE], wait=likely(1))
        view = QueueView.of(state)
        view.offers = (*others, unknown, free, cpu, own)

        def named(p50: timedelta | None) -> list[str]:
            found, simulated = view.besides(ticket, WaitForecast(False, None, p50, None, None, None))
            assert not simulated
            return [each.offer.id for each in found]

        now = named(None)
        assert set(now) <= {"mig-7g.5gb"}
        assert named(60 * MINUTE) == [*now, names[1], names[2]]
        assert named(20 * MINUTE) == [*now, names[1]] and named(10 * MINUTE) == now
        view.offers = (replace(others[0], offer=replace(others[0].offer, simulated=True)), *others[1:])
        view._besides.clear()
        assert view.besides(ticket, None)[1]


async def test_a_reader_is_told_again_what_reads_otherwise(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        await r.ask("eve", LARGE)
        (status,) = (each for each in r.engine.queue.states() if each.user == "eve")
        assert status.wait is not None
        wait = replace(status.wait, p10_seconds=600.0, p90_seconds=3600.0, at_most_seconds=None)
        status = replace(status, wait=wait)
        for changes, same in (
            ({"p90_seconds": 3590.0}, True),
            ({"p90_seconds": 5400.0}, False),
            ({"p10_seconds": 660.0}, False),
            ({"p10_seconds": None}, False),
            ({"at_most_seconds": 7200.0}, False),
            ({"note": "rough"}, False),
        ):
            other = replace(status, wait=replace(wait, **changes))  # type: ignore[arg-type]
            assert (content_of(other) == content_of(status)) is same
        for differs in ({"position": 9}, {"attempt": 9}, {"wait": None}, {"answer": "admit"}):
            assert content_of(replace(status, **differs)) != content_of(status)  # type: ignore[arg-type]


async def test_thousands_of_servers_that_are_new_are_written_together(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        for number in range(250):
            r.hub.run(f"u{number}")
        writes: list[Changes] = []
        commit = r.engine.store.commit

        async def counted(changes: Changes) -> None:
            writes.append(changes)
            await commit(changes)

        r.engine.store.commit = counted  # type: ignore[method-assign]
        await r.engine.reconciler.reconcile()
        assert sum(len(changes.facts) for changes in writes) == 250
        assert sum(bool(changes.facts) for changes in writes) == 3
        adopted = [use for use in r.engine.state.uses.values() if use.user.startswith("u")]
        assert len(adopted) == 250 and all(use.adopted for use in adopted)
