"""What the engine shows people and admins: the form, the lists, health, and who measures what."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from hub_extensions.adapters.store import Changes, NoticeRow, TicketRow
from hub_extensions.core.gpu.dcgm import DcgmUse
from hub_extensions.core.gpu.samples import DeviceSample
from hub_extensions.core.messages import Progress
from hub_extensions.core.offers.model import OfferConfig
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.offers.pod_request import Mechanism
from hub_extensions.core.queue.model import LeaseState
from hub_extensions.hub_service.engine.engine import AGAIN
from hub_extensions.hub_service.engine.state.errors import Refused
from hub_extensions.hub_service.engine.state.transaction import Transaction, Transactions
from tests.fakes.cluster_table import ClusterTable, node
from tests.hub_service.engine.pod_room import pod_room
from tests.hub_service.engine.test_followed_uses import LARGE, SMALL, four, lease

pytestmark = pytest.mark.slow

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


async def test_the_form_is_that_of_its_user(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        await r.ask("ada", "cpu", server="second")
        await r.ask("ada", SMALL, server="third")
        state = r.engine.state
        state.notices.remember(Changes(notices=(NoticeRow(r.hands.wall, "ada", "", "It was stopped."),)))
        form = r.engine.form("ada", "", (), False)
        assert (form.gpu_servers, form.in_line, form.last_offers) == (("",), ("second",), ("cpu",))
        assert [notice.text for notice in form.notices] == ["It was stopped."]
        assert (form.as_of, form.simulated, form.silent, form.caution) == (r.hands.wall, False, (), "")
        assert form.default_offer is None
        for lease_state, servers in (
            (LeaseState.STARTING, ("",)), (LeaseState.LOST, ()), (LeaseState.ENDING, ()),
        ):  # fmt: skip
            held = lease(state, "ada")
            state.leases[held.id] = replace(held, state=lease_state)
            assert r.engine.form("ada", "", (), False).gpu_servers == servers
        state.offer_config = replace(state.offer_config, default_offer=OfferId(LARGE))
        assert r.engine.form("ada", "", (), False).default_offer == LARGE
        state.offer_config = replace(state.offer_config, default_offer=OfferId("mig-7g.40gb"))
        assert r.engine.form("ada", "", (), False).default_offer is None
        state.read_at = None
        assert r.engine.form("ada", "", (), False).as_of is None


async def test_offers_for_a_group_are_in_the_form_of_its_people_and_of_admins(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        state = r.engine.state
        state.offers = tuple(replace(o, groups=("ml",), simulated=True) if o.id == LARGE else o for o in state.offers)
        state.revision += 1
        for groups, admin, seen in (((), False, False), (("ml",), False, True), ((), True, True)):
            form = r.engine.form("eve", "", groups, admin)
            assert (LARGE in {offer.id for offer in form.offers}) is seen and form.simulated is seen


async def test_tickets_are_listed_by_their_first_place(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        for user, server, offers in (
            ("eve", "a", (SMALL,)), ("fay", "", (SMALL,)), ("eve", "b", ("cpu",)), ("gus", "", (SMALL, LARGE)),
        ):  # fmt: skip
            await r.ask(user, *offers, server=server)
        assert [each.server for each in r.engine.tickets("eve")] == ["a", "b"]
        listed = [(each.user, each.server) for each in await r.engine.all_tickets()]
        assert listed == [("cid", ""), ("eve", "a"), ("fay", ""), ("eve", "b"), ("gus", "")]
        ticket = next(iter(r.engine.tickets("fay"))).ticket
        assert r.engine.owner_of(ticket) == ("fay", "") and r.engine.owner_of("none") is None
        waiting = r.engine.queue_figures()
        assert waiting.states == {"admitted": 2, "waiting": 3}
        assert set(waiting.waiting_since) == {SMALL}


async def test_who_waits_longest_for_an_offer_is_who_joined_it_first(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        await r.ask("eve", SMALL)
        began = r.hands.wall
        r.hands.pass_time(MINUTE)
        await r.ask("fay", SMALL, "cpu")
        await r.ask("gus", LARGE, SMALL)
        found = r.engine.queue_figures()
        assert found.states["waiting"] >= 2
        assert dict(found.waiting_since) == {SMALL: began, LARGE: began + MINUTE}


async def test_a_users_servers_are_those_with_facts_or_a_lease(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        for user, servers in (("ada", [("", SMALL)]), ("ben", [("", CPU)]), ("cid", [("", LARGE)]), ("eve", [])):
            assert [(each.server, each.offer) for each in r.engine.servers_of(user)] == servers
        with pytest.raises(Refused) as refused:
            await r.engine._state_of("eve", "")
        assert (refused.value.status, refused.value.reason) == (404, "unknown-server")


@pytest.mark.parametrize(("user", "counts"), [("ada", True), ("ben", False), ("nobody", False)])
async def test_only_a_server_with_a_gpu_says_when_it_is_done_with_it(tmp_path: Path, user: str, counts: bool) -> None:
    async with four(tmp_path) as r:
        assert await r.engine.progress(user, "", Progress(r.hands.wall, 60.0)) is counts


async def test_on_one_machine_there_is_no_cluster_to_show_and_no_lease_to_give_up(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        assert r.engine.cluster() is None and r.engine.state.node_of(lease(r.engine.state, "ada")) == ""
        with pytest.raises(Refused) as refused:
            await r.engine.give_up(lease(r.engine.state, "ada").id, "root")
        assert (refused.value.status, refused.value.reason) == (404, "local")
    (tmp_path / "pods").mkdir()
    async with pod_room(tmp_path / "pods") as p:
        held = await p.run("ada")
        assert p.engine.cluster() is not None and p.engine.state.node_of(held) == "a"
        assert p.engine.state.node_of(replace(held, id="none")) == ""


@pytest.mark.parametrize(
    ("loops", "store", "failed", "ready"),
    [
        (True, "", None, True),
        (False, "", None, False),
        (True, "The disk is full.", None, False),
        (True, "", 3 * AGAIN + 0.5, True),
        (True, "", 3 * AGAIN - 0.5, False),
    ],
)
async def test_the_service_is_ready_while_it_works_and_can_write(
    tmp_path: Path, loops: bool, store: str, failed: float | None, ready: bool
) -> None:
    async with four(tmp_path) as r:
        engine = r.engine
        engine._loops = [asyncio.ensure_future(asyncio.sleep(0))] if loops else []
        engine.state.store_problem = store
        engine._failed_at = None if failed is None else asyncio.get_running_loop().time() - failed
        health = engine.health()
        assert health.ready is ready and health.store == (store or engine.store.state)
        assert (health.hub, health.port, health.inventory_age_seconds) == ("answers", "the service's own", 0.0)
        engine.note_port_problem("somebody else's")
        assert engine.health().port == "somebody else's"
        engine.state.read_at = None
        engine.state.hub_view = replace(engine.state.hub_view, away_since=r.hands.wall)
        health = engine.health()
        assert health.inventory_age_seconds is None
        assert health.hub == f"does not answer since {r.hands.wall.isoformat(timespec='seconds')}"


async def test_a_service_that_was_stopped_is_not_ready(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        assert not r.engine.health().ready
        r.engine.start()
        assert r.engine.health().ready
        await r.engine.stop()
        assert not r.engine.health().ready


async def test_who_can_start_is_admitted_where_a_ticket_or_a_lease_was_written(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        state, admitted = r.engine.state, list[Transaction]()

        async def admit(transaction: Transaction) -> None:
            admitted.append(transaction)

        transactions = Transactions(state, admit, lambda message: None)
        ticket = next(iter(state.tickets.values()))
        for changes, asked, times in (
            (Changes(), False, 0),
            (Changes(facts=tuple(state.facts.values())), False, 0),
            (Changes(leases=(lease(state, "ada"),)), False, 1),
            (Changes(tickets=(TicketRow(ticket),)), False, 1),
            (Changes(), True, 1),
        ):
            admitted.clear()
            async with transactions(admit=asked) as transaction:
                await transaction.write(changes)
                await transaction.write(Changes())
            assert len(admitted) == times


# ------------------------------------------------------------------ who measures what


def evidence(r: Any, offer: str = SMALL) -> Any:
    return next(each for each in r.engine.offer_sources() if each.offer == offer)


async def test_an_offer_says_who_measures_it_how_much_of_it_and_since_when(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        assert [each.offer for each in r.engine.offer_sources()] == [SMALL, LARGE]
        found, since = evidence(r), r.hands.wall
        assert (found.source, found.leases, found.measured, found.reason) == ("nvml", 1, 1, "measured")
        assert (found.age_seconds, found.since) == (0.0, since)
        r.hands.pass_time(10 * SECOND)
        assert (evidence(r).age_seconds, evidence(r).since) == (10.0, since)
        r.hands.pass_time(60 * SECOND)
        found = evidence(r)
        assert (found.source, found.measured, found.age_seconds) == ("none", 0, None)
        assert found.since == r.hands.wall and evidence(r).since == found.since
        held = lease(r.engine.state, "ada")
        for state, count in ((LeaseState.ENDING, 0), (LeaseState.LOST, 1), (LeaseState.STARTING, 1)):
            r.engine.state.leases[held.id] = replace(held, state=state)
            assert evidence(r).leases == count


@pytest.mark.parametrize(
    ("samples", "source", "reason"),
    [
        ([("nvml", 3.0)], "nvml", "ready"),
        ([("none", None)], "none", "not-told"),
        ([("nvml", None)], "none", "not-read"),
        ([], "none", "not-read"),
    ],
)
async def test_before_a_server_has_one_an_offer_says_who_would_measure_it(
    tmp_path: Path, samples: list[tuple[str, float | None]], source: str, reason: str
) -> None:
    async with four(tmp_path) as r:
        state = r.engine.state
        state.leases.clear()
        found = [DeviceSample("MIG-small-0", r.hands.wall, used, 0, (), by) for by, used in samples]
        state.samples = {each.uuid: each for each in found}
        assert (evidence(r).source, evidence(r).reason) == (source, reason)
        r.engine.dcgm.prometheus = object()  # type: ignore[assignment]
        assert evidence(r).source == ("dcgm" if reason == "not-told" else source)
        r.engine.dcgm.prometheus = None
        state.devices = {name: replace(each, present=False) for name, each in state.devices.items()}
        assert (evidence(r).source, evidence(r).reason) == ("none", "not-read")


async def test_of_a_card_that_is_busy_for_several_nobodys_figure_is_known(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        state, held = r.engine.state, lease(r.engine.state, "ada")
        state.samples = {}
        r.engine.dcgm.use = lambda _: DcgmUse(held.uuid, r.hands.wall, None, card_percent=90.0)  # type: ignore[method-assign]
        assert (evidence(r).source, evidence(r).reason) == ("none", "shared")
        r.engine.dcgm.use = lambda _: DcgmUse(held.uuid, r.hands.wall, 5.0)  # type: ignore[method-assign]
        assert (evidence(r).source, evidence(r).reason) == ("dcgm", "measured")
        r.engine.dcgm.use = lambda _: None  # type: ignore[method-assign]
        r.engine.dcgm.why_not = lambda _: "old"  # type: ignore[method-assign]
        assert (evidence(r).source, evidence(r).reason) == ("none", "old")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({}, "no-prometheus"), ({"replicas": 2}, "no-prometheus"), ({"mechanism": Mechanism.HAMI}, "no-prometheus")],
)
async def test_on_a_cluster_without_prometheus_nobody_measures(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    async with pod_room(tmp_path, ClusterTable(node("a", (SMALL, 2)))) as r:
        state = r.engine.state
        assert state.cluster is not None
        pool = replace(state.cluster.survey.pools[OfferId(SMALL)], **changes)
        state.cluster = replace(state.cluster, survey=replace(state.cluster.survey, pools={OfferId(SMALL): pool}))
        assert (evidence(r).source, evidence(r).reason) == ("none", reason)
        await r.run("ada")
        figure = DcgmUse("", r.hands.wall, 4.0)
        r.engine.dcgm.use = lambda _: figure  # type: ignore[method-assign]
        r.hands.pass_time(SECOND)
        state.cluster = replace(state.cluster, survey=replace(state.cluster.survey, pools={OfferId(SMALL): pool}))
        found = evidence(r)
        assert (found.source, found.reason) == ("dcgm", "shared" if changes else "measured")


async def test_a_part_of_a_card_is_shared(tmp_path: Path) -> None:
    halves = OfferConfig(fractions={"gpu": (0.5,)})
    async with pod_room(tmp_path, ClusterTable(node("a", ("gpu", 2)))) as r:
        assert halves.fractions and evidence(r, "gpu").reason == "no-prometheus"
        r.engine.state.offers = tuple(replace(o, share=500) if o.id == "gpu" else o for o in r.engine.state.offers)
        await r.run("ada", "gpu")
        figure = DcgmUse("", r.hands.wall, 4.0)
        r.engine.dcgm.use = lambda _: figure  # type: ignore[method-assign]
        r.engine.state.offers = tuple(replace(o, share=500) if o.id == "gpu" else o for o in r.engine.state.offers)
        assert evidence(r, "gpu").reason == "shared"
