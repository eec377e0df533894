"""The journal as an audit log: of each kind of row it is known who did it, and on what evidence."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest

from hub_extensions.adapters.store import Changes, JournalRow
from hub_extensions.core.gpu.samples import DeviceSample
from hub_extensions.core.messages import Ask, Report, Started, Stopped
from hub_extensions.core.notices import Delivery
from hub_extensions.core.offers.model import OfferConfig
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.text.reasons import as_text
from hub_extensions.hub_service.engine.line.reconcile import MISSING
from hub_extensions.hub_service.http.pages.audit import ADMINS_KINDS
from tests.fakes.cluster_table import HOME, pod
from tests.fakes.machine import large, small
from tests.hub_service.engine.pod_room import PodRoom, pod_room
from tests.hub_service.engine.room import Room, room

pytestmark = pytest.mark.slow

SMALL, LARGE = OfferId("mig-1g.5gb"), OfferId("mig-2g.10gb")


async def on_cpu(r: Room) -> None:
    ticket = await r.ask("ada", "cpu")
    await r.engine.started(ticket.ticket, Started(ticket.attempt, ready=True))
    r.hub.run("ada")
    r.hands.pass_time(timedelta(minutes=1))


async def admitted(r: Room) -> None:
    await r.ask("ada", SMALL)


async def ended_by_an_admin(r: Room) -> None:
    await r.ask("ben", SMALL)
    await r.engine.leave((await r.ask("ada", SMALL)).ticket, None, "root")


async def stopped(r: Room) -> None:
    await on_cpu(r)
    await r.engine.stopped(Stopped("ada", "", asked=True))


async def gone(r: Room) -> None:
    await on_cpu(r)
    r.hub.running.clear()
    await r.engine.reconciler.reconcile()
    r.hands.pass_time(MISSING)
    await r.engine.reconciler.reconcile()


async def adopted(r: Room) -> None:
    r.hub.run("ada")
    r.hands.pass_time(timedelta(minutes=1))
    await r.engine.reconciler.reconcile()


async def kept(r: Room) -> None:
    ticket = await r.ask("ada", SMALL)
    await r.engine.started(ticket.ticket, Started(ticket.attempt, ready=True))
    for _ in range(3):
        r.engine.state.samples = {"MIG-small-0": DeviceSample("MIG-small-0", r.hands.wall, 1.5, None, (), "gpm")}
        await r.engine.stop_runner.decide_all()
        r.hands.pass_time(timedelta(minutes=1))
        r.engine.state.read_at = r.engine.state.clock.now()
    await r.engine.keep("ada", "")


async def warned(r: Room) -> None:
    ticket = await r.ask("ada", SMALL)
    await r.engine.started(ticket.ticket, Started(ticket.attempt, ready=True))
    for _ in range(4):
        r.engine.state.read_at = r.engine.state.clock.now()
        r.engine.state.samples = {"MIG-small-0": DeviceSample("MIG-small-0", r.hands.wall, 1.5, None, (), "gpm")}
        await r.engine.report("ada", "", Report(opened=True, kernels=1, busy_kernels=0))
        await r.engine.stop_runner.decide_all()
        r.hands.pass_time(timedelta(seconds=44))


async def not_told(r: Room) -> None:
    now = r.engine.state.clock.now()
    notice = Delivery("n1", "webhook", "ready", "ada", "", SMALL, "A small GPU", now, None, now)
    async with r.engine.queue.transaction() as transaction:
        await transaction.write(Changes(deliveries=(notice,)))
    await r.engine.notifier.send_due("webhook")


@pytest.mark.parametrize(
    ("happens", "kind", "actor", "evidence"),
    [
        (admitted, "admitted", "service", "waited 0 s, GPUs read 0 s ago, groups: none"),
        (ended_by_an_admin, "left", "admin root", ""),
        (stopped, "stopped", "hub", "it was asked to"),
        (gone, "gone", "service", "its lists have lacked it for 60 s"),
        (adopted, "adopted", "service", "the hub lists it as ready"),
        (kept, "kept", "user", "use 1.5 % by gpm, idle since 2026-01-05T12:00:00Z"),
        (
            warned,
            "warned",
            "service",
            "use 1.5 % by gpm, idle since 2026-01-05T12:00:00Z, warned 2026-01-05T12:02:12Z, first opened "
            "2026-01-05T12:00:00Z, told to its server, which asked 0 s ago",
        ),
        (not_told, "not-told", "service", "notice n1, try 1"),
    ],
)
async def test_a_row_says_who_did_it_and_on_what_evidence(
    tmp_path: Path, happens: Callable[[Room], Awaitable[None]], kind: str, actor: str, evidence: str
) -> None:
    async with room(tmp_path, small(0), webhook_url="http://127.0.0.1:9/notices") as r:
        await happens(r)
        row = await last(r, kind)
        assert (row.user, row.actor, row.evidence) == ("ada", actor, evidence)
        if kind in ADMINS_KINDS:  # it stands on a page: in every language
            assert (as_text(row.reasons), as_text(row.grounds, ", ")) == (row.text, row.evidence)


async def last(r: Room | PodRoom, kind: str) -> JournalRow:
    return next(row for row in await r.engine.store.journal() if row.kind == kind)


async def test_the_words_of_an_admin_who_ends_a_place_are_kept_and_read_by_its_user(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.ask("ben", SMALL)
        ada = (await r.ask("ada", SMALL)).ticket
        told = r.engine.changes()
        assert [(await anext(told)).user for _ in range(2)] == ["ben", "ada"]
        await r.engine.leave(ada, None, "root", "the exam needs it")
        assert (await last(r, "left")).text == "taken out of the line: the exam needs it"
        assert (await anext(told)).reason.message == "An administrator ended your place in line: the exam needs it"


async def test_a_warning_says_until_when_and_that_nobody_is_shown_it(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        state = await r.ask("ada", SMALL)
        await r.engine.started(state.ticket, Started(state.attempt, ready=True))
        r.hands.pass_time(timedelta(minutes=29))
        await r.engine.stop_runner.decide_all()
        row = await last(r, "warned")
        assert row.text == "The time limit of 30 min ends. It stops at 2026-01-05T12:30:00Z."
        assert row.evidence.endswith("told to nobody: its server has not asked")
        await r.engine.stop_runner.decide_all()
        assert [each.kind for each in await r.engine.store.journal()].count("warned") == 1


async def test_a_right_that_is_lost_is_written_down_with_the_groups_that_lack_it(tmp_path: Path) -> None:
    offers = OfferConfig(groups={LARGE: ("staff",)})
    async with room(tmp_path, small(0), large(), offers=offers) as r:
        ben = await r.engine.ask(Ask("ben", "", (LARGE,), groups=("staff",)))
        cem = await r.engine.ask(Ask("cem", "", (SMALL,)))
        waits = await r.engine.ask(Ask("ada", "", (LARGE, SMALL), groups=("staff",)))
        assert (ben.answer, cem.answer, waits.answer) == ("admit", "admit", "wait")
        r.hands.pass_time(timedelta(minutes=1))
        await r.left(ben)
        await r.engine.watcher.refresh()
        row = await last(r, "right-lost")
        assert (row.user, row.actor, row.text) == ("ada", "service", LARGE)
        assert row.evidence == f"offer {LARGE} is for ('staff',), user has ()"


async def test_a_lease_that_is_lost_comes_back_and_ends_says_what_was_seen(tmp_path: Path) -> None:
    async with pod_room(tmp_path) as r:
        await r.run("ada")
        r.cluster.set_node("a", ready=False)
        await r.refresh()
        assert (await last(r, "lost")).evidence == "the node a is not Ready"
        r.cluster.set_node("a", ready=True)
        await r.refresh()
        assert (await last(r, "running")).evidence == "the node a is Ready"
        await r.stop("ada")
        r.cluster.remove("jupyter-ada")
        await r.refresh()
        await r.refresh(after=1.1)
        ended = await last(r, "ended")
        assert (ended.actor, ended.evidence) == ("service", "the API server lists no pod of it")


async def test_a_forgotten_pod_that_is_removed_has_a_row(tmp_path: Path) -> None:
    async with pod_room(tmp_path, delete_orphaned_pods=True, forgotten_after=timedelta(seconds=90)) as r:
        r.cluster.put(pod("jupyter-eve", "a", namespace=HOME, lease="l9", user="eve"))
        await r.engine.reconciler.reconcile()
        await r.refresh()
        await r.refresh(after=91)
        row = await last(r, "removed")
        assert (row.user, row.actor, row.text) == ("eve", "service", "the forgotten pod jupyter-eve is removed")
        assert row.evidence == "neither the hub's list nor the line had it for 91 s"
