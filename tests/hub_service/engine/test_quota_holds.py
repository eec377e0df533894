"""Offers that a namespace's quota holds back: who is let in, what the form says, and what admins read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hub_extensions.core.messages import Ended, TicketStatus
from hub_extensions.core.overview.view import Asked
from hub_extensions.core.text.reasons import explain
from tests.fakes.cluster_table import ClusterTable, node
from tests.hub_service.engine.pod_room import SMALL, PodRoom, pod_room

pytestmark = pytest.mark.slow


async def refused_by_quota(r: PodRoom, state: TicketStatus) -> None:
    """Its hub was told by the cluster that the namespace's quota is used up."""
    r.hub.running.pop((state.user, state.server), None)
    why = explain("quota-used-up-of", most="1", what="mig-1g.5gb")
    await r.engine.ended(state.ticket, Ended(state.attempt, "failed", why.message, "quota", reasons=(why,)))


async def test_an_offer_whose_pods_a_quota_refuses_is_held_back_and_tried_by_one_each_minute(tmp_path: Path) -> None:
    """The same free device was handed to every next person, whose starts failed one after the other."""
    async with pod_room(tmp_path) as r:
        ada = await r.ask("ada")
        await refused_by_quota(r, ada)
        assert (r.stands().free, r.stands().total) == (0, 2)
        assert (r.stands().wait.now, r.stands().wait.reason.reason) == (False, "over-quota-of")
        for user in ("ben", "cleo", "dora"):
            waiting = await r.ask(user)
            assert (waiting.answer, waiting.reason.reason) == ("wait", "over-quota-of-ahead")
        overview = await r.engine.admin_overview(Asked())
        assert "health-quota" in {each.reason for each in overview.health.findings}
        await r.refresh(after=59)
        assert r.positions() == {"ben": 1, "cleo": 2, "dora": 3}
        await r.refresh(after=1)
        assert r.positions() == {"ben": 0, "cleo": 1, "dora": 2}, "one tries, nobody else"
        await r.refresh(after=120)
        assert r.positions() == {"ben": 0, "cleo": 1, "dora": 2} and r.stands().free == 0
        await refused_by_quota(r, replace(waiting, user="ben", ticket=r.ticket("ben")))
        assert r.positions() == {"cleo": 1, "dora": 2}
        await r.refresh(after=60)
        assert r.positions() == {"cleo": 0, "dora": 1}
        cleo = next(each for each in r.engine.queue.states() if each.user == "cleo")
        r.cluster.put(r.pod_for(cleo, "a"))
        await r.refresh(after=2)
        assert r.positions()["dora"] == 0, "the cluster took a pod"
        assert r.engine.state.quota_holds == {}
        assert "health-quota" not in {e.reason for e in (await r.engine.admin_overview(Asked())).health.findings}


async def test_what_a_quota_holds_back_is_tried_as_soon_as_a_server_ends(tmp_path: Path) -> None:
    async with pod_room(tmp_path) as r:
        await r.run("ada")
        await refused_by_quota(r, await r.ask("ben"))
        await r.ask("cleo")
        await r.refresh(after=5)
        assert r.positions() == {"cleo": 1}
        await r.stop("ada")
        r.cluster.remove("jupyter-ada")
        for _ in range(3):
            await r.refresh(after=2)
        assert r.positions() == {"cleo": 0}


async def test_a_quota_holds_back_no_other_offer_and_no_server_without_a_gpu(tmp_path: Path) -> None:
    async with pod_room(tmp_path, ClusterTable(node("a", (SMALL, 2)), node("b", ("mig-2g.10gb", 1)))) as r:
        await refused_by_quota(r, await r.ask("ada"))
        assert (await r.ask("ben", "mig-2g.10gb")).answer == "admit"
        cpu = await r.ask("cleo", "cpu")
        await refused_by_quota(r, cpu)
        assert (await r.ask("dora", "cpu")).answer == "admit"
        either = await r.ask("eve", SMALL, "cpu")
        assert either.answer == "admit" and either.grant is not None and either.grant.offer == "cpu"
