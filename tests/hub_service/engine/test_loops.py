"""What the service does again and again: how long each loop waits, what it asks anew, what it keeps and forgets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hub_extensions.adapters.hub.jupyterhub_api import HubServer, HubUser
from hub_extensions.adapters.store import Changes, TicketRow
from hub_extensions.core.culling import Action, Cause, CullDecision, ServerFacts
from hub_extensions.core.messages import Ended, Report, TicketStatus
from hub_extensions.core.offers.model import OfferConfig
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.model import Lease, LeaseState, QueueLimits, Ticket, WantedOffer
from hub_extensions.core.text.reasons import explain
from hub_extensions.hub_service.engine.line import local_leases, reconcile, tickets
from hub_extensions.hub_service.engine.line.rights import KEPT, LAST, UNANSWERED
from hub_extensions.hub_service.engine.line.tickets import SLICE
from tests.fakes.cluster_table import HOME, ClusterTable, node, pod
from tests.fakes.machine import small
from tests.fakes.reasons import because
from tests.hub_service.engine.pod_room import SMALL, pod_room
from tests.hub_service.engine.room import begin_stop, room
from tests.patience import soon

pytestmark = pytest.mark.slow

SECOND = timedelta(seconds=1)
ADA, BEN = ("ada", ""), ("ben", "")


async def waits(
    patch: pytest.MonkeyPatch, module: ModuleType, loop: Callable[[], Awaitable[None]], turns: int = 1
) -> list[float]:
    """How long a loop waits after each of its first turns, in none of which it is woken."""
    found: list[float] = []

    async def within(seconds: float, work: Coroutine[Any, Any, object]) -> None:
        work.close()
        found.append(seconds)
        if len(found) == turns:
            raise asyncio.CancelledError
        raise asyncio.TimeoutError

    patch.setattr(module, "with_timeout", within)
    with pytest.raises(asyncio.CancelledError):
        await loop()
    return found


@pytest.mark.parametrize(
    ("ending", "waiting", "seconds"), [(False, False, 2.0), (True, False, 0.4), (False, True, 0.4), (True, True, 0.4)]
)
async def test_the_machine_is_looked_at_more_often_while_a_lease_ends_or_somebody_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: bool, waiting: bool, seconds: float
) -> None:
    async with room(tmp_path, small(0)) as r:
        ada = await r.ask("ada", "mig-1g.5gb")
        if waiting:
            await r.ask("ben", "mig-1g.5gb")
        if ending:
            r.gpus.pids["MIG-small-0"] = (4242,)  # somebody is on it, so that it is not free yet
            await r.engine.ended(ada.ticket, Ended(ada.attempt, "left"))
        watcher = r.engine.watcher
        watcher.refresh_soon()
        assert await waits(monkeypatch, local_leases, watcher.run, 2) == [seconds, seconds]
        assert not watcher._soon.is_set()  # type: ignore[attr-defined]


@pytest.mark.parametrize(("away", "seconds"), [("", 30.0), ("no answer", 1.0)])
async def test_the_hub_is_asked_more_often_while_it_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, away: str, seconds: float
) -> None:
    async with room(tmp_path, small(0)) as r:
        r.hub.away = away
        reconciler = r.engine.reconciler
        reconciler.resume_soon()
        assert await waits(monkeypatch, reconcile, reconciler.run, 3) == [seconds] * 3
        reconciler.note_hub_contact()
        assert reconciler._soon.is_set() is bool(away), "a hub that speaks is asked at once, if it was away"
        reconciler.resume_soon()
        assert reconciler._soon.is_set()


@pytest.mark.parametrize(
    ("took", "up", "pauses", "between"),
    [
        (0.5, True, [30.0, 30.0], []),
        (1.5, True, [30.0, 30.0, 15.0, 30.0], ["up", "up"]),
        (30.0, True, [30.0] * 11, ["up"] * 9),
        (30.0, False, [30.0, 30.0], ["up"]),
    ],
)
async def test_a_list_that_takes_long_is_asked_for_seldom_and_in_between_whether_the_hub_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, took: float, up: bool, pauses: list[float], between: list[str]
) -> None:
    async with room(tmp_path, small(0)) as r:
        asked: list[str] = []

        async def listed() -> tuple[HubServer, ...]:
            asked.append("list")
            r.hands.seconds += took
            return ()

        async def is_up() -> bool:
            asked.append("up")
            return up

        r.hub.servers, r.hub.up = listed, is_up  # type: ignore[method-assign]
        assert await waits(monkeypatch, reconcile, r.engine.reconciler.run, len(pauses)) == pauses
        assert asked == ["list", *between, "list"]


async def test_the_hub_is_asked_for_our_token_again_when_its_stream_has_ended(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        asked: list[str] = []

        async def own_token() -> str:
            asked.append("asked")
            return "a1"

        r.hub.own_token = own_token  # type: ignore[method-assign]
        for lost, times in ((False, 1), (False, 1), (True, 2), (False, 2)):
            if lost:
                r.engine.reconciler.resume_soon()
            await r.engine.reconciler.reconcile()
            assert (len(asked), r.engine.state.token_name) == (times, "a1")


async def test_who_is_in_which_group_is_known_of_those_listed_and_of_those_in_line(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.ask("ada", "mig-1g.5gb")
        r.hub.running.clear()
        r.hub.groups["ben"] = ("staff",)
        r.hub.run("ben")
        people = dict.fromkeys(("ada", "ben", "eve"), (("old",), True))
        r.engine.state.hub_view = replace(r.engine.state.hub_view, people=people)
        r.hands.pass_time(SECOND)
        await r.engine.reconciler.reconcile()
        assert r.engine.state.hub_view.people == {"ada": (("old",), True), "ben": (("staff",), False)}


@pytest.mark.parametrize(("minutes", "known"), [(-5, -5), (0, 0), (5, 0), (None, None)])
async def test_the_hubs_activity_is_kept_on_the_running_clock_and_never_in_the_future(
    tmp_path: Path, minutes: int | None, known: int | None
) -> None:
    async with room(tmp_path, small(0)) as r:
        at = None if minutes is None else r.hands.wall + timedelta(minutes=minutes)
        for user, server in (ADA, BEN):
            r.hub.running[(user, server)] = HubServer(user, server, True, None, at, at)
        saved = r.engine.state.clock.now() - timedelta(hours=1)
        r.engine.state.hub_view = replace(r.engine.state.hub_view, activity={BEN: saved})
        begin_stop(r, BEN[0])
        await r.engine.reconciler.reconcile()
        now = r.engine.state.clock.now()
        fresh = {} if known is None else {ADA: now + timedelta(minutes=known)}
        assert r.engine.state.hub_view.activity == {**fresh, BEN: saved}, "the saving of notebooks is no activity"


@pytest.mark.parametrize(
    ("seconds", "counts"), [(0, True), (60, True), (-60, True), (61, False), (-7200, False), (None, False)]
)
async def test_the_hubs_activity_counts_only_while_its_clock_is_known_to_be_ours(
    tmp_path: Path, seconds: int | None, counts: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with room(tmp_path, small(0)) as r:
        r.hub.clock_ahead = None if seconds is None else timedelta(seconds=seconds)
        r.hub.running[ADA] = HubServer(*ADA, True, None, r.hands.wall, r.hands.wall)
        await r.engine.reconciler.reconcile()
        await r.engine.reconciler.reconcile()
        assert (ADA in r.engine.state.hub_view.activity) is counts
        warned = [line for line in caplog.messages if "nobody is stopped by last_activity" in line]
        assert len(warned) == (0 if counts else 1)


async def test_activity_that_lies_ahead_counts_as_now_and_admins_read_of_it_once(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        later = r.hands.wall + timedelta(minutes=58)
        r.hub.running[ADA] = HubServer(*ADA, True, None, r.hands.wall, later)
        for _ in range(2):
            await r.engine.reconciler.reconcile()
        assert r.engine.state.hub_view.activity[ADA] == r.engine.state.clock.now()
        rows = [row for row in await r.engine.store.journal() if row.kind == "future-activity"]
        assert [(row.user, row.text) for row in rows] == [("ada", explain("activity-ahead", at=later).message)]


async def test_a_word_about_a_server_is_newer_than_a_listing_of_before(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        seconds = r.engine.state.clock.elapsed()
        r.engine.state.touched = {ADA: seconds - 1, BEN: seconds}
        r.hub.run("ada")
        r.hub.run("ben")
        await r.engine.reconciler.reconcile()
        assert (r.engine.state.touched, r.engine.state.facts.keys()) == ({BEN: seconds}, {ADA})
        assert (r.engine.state.hub_view.listed or {}).keys() == {ADA, BEN}


async def test_what_a_server_reports_that_nobody_knows_writes_nothing(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        before = r.engine.state.revision
        await r.engine.servers.take_report("eve", "", Report(opened=True, kernels=1, busy_kernels=0))
        assert (r.engine.state.facts, r.engine.state.revision) == ({}, before)


async def test_the_first_opening_that_a_server_reports_is_written_and_survives(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        r.hub.run("ada")
        await r.engine.reconciler.reconcile()
        assert not r.engine.state.facts[ADA].opened_known
        await r.engine.report("ada", "", Report(opened=True, kernels=1, busy_kernels=0))
        facts = r.engine.state.facts[ADA]
        assert facts.opened_known and facts.opened == r.engine.state.clock.now()
        assert (await r.engine.state.store.load()).facts == (facts,)


@pytest.mark.parametrize(("later", "state"), [(60, LeaseState.ENDING), (59, LeaseState.RUNNING)])
async def test_a_lease_without_a_process_ends_when_the_hub_has_not_listed_its_server_for_a_minute(
    tmp_path: Path, later: int, state: LeaseState
) -> None:
    async with room(tmp_path, small(0)) as r:
        lease = Lease(
            "l1", "", "ada", "", OfferId("mig-1g.5gb"), small(0).identity, "", "mig-1g.5gb", 1000, LeaseState.RUNNING,
            r.engine.state.clock.now(),
        )  # fmt: skip
        await r.engine.state.commit(Changes(leases=(lease,)))
        for seconds in (1, later):
            r.hands.pass_time(seconds * SECOND)
            await r.engine.reconciler.reconcile()
        assert r.engine.state.leases["l1"].state is state


async def test_a_word_of_a_server_begins_the_minute_anew_in_which_the_hub_does_not_list_it(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        r.hub.run("ada")
        await r.engine.reconciler.reconcile()
        r.hub.running.clear()
        for seconds, word in ((1, False), (59, True), (59, False)):
            r.hands.pass_time(seconds * SECOND)
            r.engine.state.touched = {ADA: r.engine.state.clock.elapsed()} if word else {}
            await r.engine.reconciler.reconcile()
        assert ADA in r.engine.state.facts


# ------------------------------------------------------------------ tickets and rights


@pytest.mark.parametrize(("stale", "kept"), [(100, 100), (101, 0)])
async def test_what_was_told_of_tickets_that_are_gone_is_forgotten_once_there_is_much_of_it(
    tmp_path: Path, stale: int, kept: int
) -> None:
    async with room(tmp_path, small(0)) as r:
        r.engine.queue._published = {str(number): () for number in range(stale)}
        await r.engine.queue.publish_changed()
        assert len(r.engine.queue._published) == kept


@pytest.mark.parametrize(("stale", "kept"), [(101, 102), (102, 1)])
async def test_with_each_live_ticket_two_more_may_be_remembered(tmp_path: Path, stale: int, kept: int) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.ask("ada", "mig-1g.5gb")
        await anext(r.engine.queue.changes())
        r.engine.queue._published = {str(number): () for number in range(stale)}
        await r.engine.queue.publish_changed()
        assert len(r.engine.queue._published) == kept


async def test_a_listener_is_told_all_and_counted_as_long_as_it_listens(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.ask("ada", "mig-1g.5gb")
        await r.ask("ben", "mig-1g.5gb")
        changes = r.engine.queue.changes()
        heard = [await changes.__anext__(), await changes.__anext__()]
        assert ([state.user for state in heard], r.engine.queue.listeners) == (["ada", "ben"], 1)
        await changes.aclose()
        assert r.engine.queue.listeners == 0


async def test_a_long_line_is_told_in_slices_between_which_others_have_a_turn(tmp_path: Path) -> None:
    """And whoever changes something in the middle of it is told as it is then: the last word of each is the truth."""
    config = QueueLimits(max_waiting=1000, max_starting=1000)
    async with room(tmp_path, small(0), queue=config) as r:
        state = r.engine.state
        tickets = [
            Ticket(f"t{n}", f"u{n}", "", (WantedOffer(OfferId("mig-1g.5gb"), n),), state.clock.now())
            for n in range(1, 401)
        ]
        await state.commit(Changes(tickets=tuple(map(TicketRow, tickets))))
        state.hub_view = replace(state.hub_view, away_since=r.hands.wall)
        heard, turns = dict[str, TicketStatus](), 0

        async def listen() -> None:
            async for said in r.engine.changes():
                heard[said.ticket] = said

        async def others() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1
                if turns == 3:
                    tasks.append(asyncio.ensure_future(two_leave()))

        async def two_leave() -> None:
            await r.engine.leave("t1", "u1")
            await r.engine.leave("t300", "u300")

        tasks = [asyncio.ensure_future(listen()), asyncio.ensure_future(others())]
        await soon(lambda: len(heard) == 400 and "t300" not in state.tickets)
        assert turns >= 400 // SLICE
        await r.engine.queue.publish_changed()
        await asyncio.sleep(0.05)
        said = {each.ticket: each for each in r.engine.queue.states()}
        assert {name: heard[name].position for name in said} == {name: each.position for name, each in said.items()}
        assert (heard["t1"].answer, heard["t300"].answer) == ("ended", "ended")
        for task in tasks:
            task.cancel()


@pytest.mark.parametrize(("seconds", "asked"), [(0, 0), (30, 0), (31, 1)])
async def test_what_the_hub_said_of_a_users_groups_holds_for_30_s(tmp_path: Path, seconds: int, asked: int) -> None:
    async with room(tmp_path, small(0), offers=OfferConfig(groups={"mig-1g.5gb": ("staff",)})) as r:
        rights, questions = r.engine.queue.rights, list[str]()

        async def user(name: str) -> HubUser | None:
            questions.append(name)
            return HubUser(name, False, ("others",))

        r.hub.user = user  # type: ignore[method-assign]
        r.engine.state.config = replace(r.engine.state.config, max_starting=1)
        await r.ask("ben", "cpu")
        r.hub.groups["ada"] = ("staff",)
        ada = await r.ask("ada", "cpu")
        ticket = replace(r.engine.state.tickets[ada.ticket], groups=("staff",))
        rights.remember("ada", ("staff",))
        r.hands.pass_time(seconds * SECOND)
        for _ in range(2):
            found = await rights.ask(ticket, "mig-1g.5gb")
            assert (found is None, questions) == (not asked, ["ada"] * asked)
        assert await rights.ask(ticket, "cpu") is None, "an offer for everybody"


async def test_after_one_question_without_an_answer_the_hub_is_asked_again_in_the_next_round(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.ask("ada", "mig-1g.5gb")
        (ticket,) = r.engine.state.tickets.values()
        r.hub.away = "no answer"
        r.hands.pass_time(60 * SECOND)
        assert await r.engine.queue.rights.ask(ticket, "mig-1g.5gb") is UNANSWERED
        r.hub.away = ""
        assert await r.engine.queue.rights.ask(ticket, "mig-1g.5gb") is UNANSWERED
        r.engine.queue.rights.begin()
        assert await r.engine.queue.rights.ask(ticket, "mig-1g.5gb") is None


@pytest.mark.parametrize(("known", "kept"), [(KEPT - 1, KEPT), (KEPT, KEPT + 1), (KEPT + 1, 1)])
async def test_what_was_said_of_users_long_ago_is_forgotten_once_there_are_many(
    tmp_path: Path, known: int, kept: int
) -> None:
    async with room(tmp_path, small(0)) as r:
        rights = r.engine.queue.rights
        before = r.engine.state.clock.now() - LAST - SECOND
        rights._groups = {f"u{number}": ((), before) for number in range(known)}
        rights.remember("ada", ("staff",))
        assert len(rights._groups) == kept


# ------------------------------------------------------------------ culling


def dry(action: Action) -> CullDecision:
    would = CullDecision(action, None, Cause.IDLE, because("Idle for 3 min."), can_keep=False, ends_at=None)
    return CullDecision(Action.KEEP, None, None, None, can_keep=False, ends_at=None, would=would)


async def test_a_dry_run_says_once_a_day_of_a_server_that_it_would_be_stopped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "hub_extensions.hub_service")
    async with room(tmp_path, small(0)) as r:
        runner, now = r.engine.stop_runner, r.engine.state.clock.now()
        facts = ServerFacts("ada", "", "mig-1g.5gb", now)
        hours = {0: 1, 23: 1, 24: 1, 25: 2, 48: 2, 49: 2, 50: 3}
        for hour, said in hours.items():
            runner._dry_run(facts, dry(Action.STOP), now + timedelta(hours=hour))
            assert caplog.text.count("dry run: would stop this server (Idle for 3 min.)") == said
        runner._dry_run(replace(facts, user="ben"), dry(Action.WARN), now)
        runner._dry_run(replace(facts, user="ben"), replace(dry(Action.STOP), would=None), now)
        assert caplog.text.count("dry run") == 3


# ------------------------------------------------------------------ pods

LACKS_CPU = "0/1 nodes are available: 1 Insufficient cpu. preemption: none"
LACKS_GPU = "0/1 nodes are available: 1 Insufficient nvidia.com/mig-1g.5gb. preemption: none"


@pytest.mark.parametrize(
    ("offer", "why", "changes", "up", "back"),
    [
        (SMALL, "", {}, True, True),
        (SMALL, LACKS_GPU, {}, True, True),
        (SMALL, LACKS_CPU, {}, False, True),
        ("cpu", LACKS_CPU, {}, False, True),
        ("cpu", "", {}, False, True),
        (SMALL, "", {"deleting": True}, False, False),
        (SMALL, "", {"phase": "Failed"}, False, False),
        (SMALL, "", {"node": "a"}, False, False),
    ],
)
async def test_an_admitted_pod_without_a_place_for_30_s_holds_up_its_line_where_it_lacks_a_gpu(
    tmp_path: Path, offer: str, why: str, changes: dict[str, object], up: bool, back: bool
) -> None:
    async with pod_room(tmp_path) as r:
        state = await r.ask("ada", offer)
        r.cluster.put(replace(r.pod_for(state, **changes), unscheduled_why=why))
        for seconds, late in ((0, False), (30, False), (1, True), (60, True)):
            await r.refresh(seconds)
            stand = r.engine.state.cluster
            assert stand is not None
            assert stand.held_up == ({offer} if up and late else set())
            assert stand.held_back == ({state.ticket} if back and late else set())


@pytest.mark.parametrize(("line", "queue"), [("kueue_queue", "Kueue"), ("kai_queue", "KAI")])
async def test_a_pod_in_anothers_line_holds_up_nobody_and_does_not_count_as_starting(
    tmp_path: Path, line: str, queue: str
) -> None:
    async with pod_room(tmp_path, **{line: "q"}) as r:
        state = await r.ask("ada")
        r.cluster.put(r.pod_for(state))
        for seconds in (0, 100):
            await r.refresh(seconds)
            stand = r.engine.state.cluster
            assert stand is not None
            assert (stand.queue, stand.held_up, stand.held_back) == (queue, set(), {state.ticket})


FORGOTTEN = pod("jupyter-eve", "a", asks=SMALL, namespace=HOME, lease="old", offer=SMALL, user="eve")


async def test_a_forgotten_pod_is_removed_after_5_min_and_tried_again_a_minute_after_a_refusal(tmp_path: Path) -> None:
    cluster = ClusterTable(node("a", (SMALL, 2)))
    async with pod_room(tmp_path, cluster, delete_orphaned_pods=True) as r:
        await r.engine.reconciler.reconcile()
        cluster.put(FORGOTTEN)
        cluster.refuses = (403, "no")
        asked = []
        for seconds in (0, 299, 1, 59, 1, 59):
            await r.refresh(seconds)
            asked.append(cluster.asked)
        assert asked == [0, 0, 1, 1, 2, 2]
        info = r.engine.cluster()
        assert info is not None and [(each.pod, each.removing) for each in info.orphaned_pods] == [
            ("jupyter-eve", False)
        ]
        cluster.refuses = None
        await r.refresh(1)
        assert cluster.deleted == [(HOME, "jupyter-eve", "uid-jupyter-eve", False)]
        assert r.engine.state.counts[("pods", "forgotten-removed")] == 1
        await r.refresh(600)
        assert cluster.asked == 3


async def test_a_forgotten_pod_that_takes_long_to_end_is_shown_as_being_removed_and_deleted_once(
    tmp_path: Path,
) -> None:
    cluster = ClusterTable(node("a", (SMALL, 2)))
    async with pod_room(tmp_path, cluster, delete_orphaned_pods=True) as r:
        await r.engine.reconciler.reconcile()
        cluster.put(FORGOTTEN)
        cluster.lingers = True
        await r.refresh()
        for _ in range(3):
            await r.refresh(300)
            info = r.engine.cluster()
            assert info is not None and [(each.pod, each.removing) for each in info.orphaned_pods] == [
                ("jupyter-eve", True)
            ]
        assert cluster.asked == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"user": "", "server": ""},
        {"lease": "", "offer": ""},
        {"namespace": "others"},
        {"phase": "Succeeded"},
        {"deleting": True},
        {"user": "ada"},
        {"name": "jupyter-renamed"},
    ],
)
async def test_a_pod_that_is_known_or_over_or_not_ours_is_not_forgotten(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    async with pod_room(tmp_path, ClusterTable(node("a", (SMALL, 2)))) as r:
        r.hub.run("ada")
        r.hub.running[ADA] = replace(r.hub.running[ADA], pod="jupyter-renamed")
        await r.engine.reconciler.reconcile()
        r.cluster.put(FORGOTTEN)
        await r.refresh()
        assert set(r.pods.forgotten.pods) == {"uid-jupyter-eve"}
        r.cluster.put(replace(FORGOTTEN, **changes))  # type: ignore[arg-type]
        await r.refresh(1)
        assert r.pods.forgotten.pods == {}


async def test_changed_places_are_published_again_and_again_also_if_nothing_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with room(tmp_path, small(0)) as r:
        assert await waits(monkeypatch, tickets, r.engine.queue.publish_changes, turns=3) == [15.0] * 3
