"""A service of a cluster whose servers may not all use the same nodes: nobody waits for a node that is not his."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from hub_extensions.core.cluster.model import ClusterView, Requirement, VolumeFacts, Volumes
from hub_extensions.core.cluster.placement import PodDemands, Toleration
from tests.fakes.cluster_table import HOME, ClusterTable, node, pod
from tests.hub_service.engine.pod_room import SMALL, PodRoom, pod_room

pytestmark = pytest.mark.slow

ON_A = PodDemands(selector=(("rack", "a"),))
ZONE = "topology.kubernetes.io/zone"


class TableWithVolumes(ClusterTable):
    """`volumes` are what claims are bound to."""

    volumes = Volumes()

    def view(self, now: datetime) -> ClusterView:
        return replace(super().view(now), volumes=self.volumes)


def two_nodes() -> TableWithVolumes:
    """One device each; others hold that of node a."""
    there = TableWithVolumes(
        node("a", (SMALL, 1), labels={"rack": "a", ZONE: "a"}), node("b", (SMALL, 1), labels={"rack": "b", ZONE: "b"})
    )
    there.put(pod("others", "a", asks=SMALL))
    return there


def said_to(room: PodRoom, user: str) -> str:
    return next(each.reason.message for each in room.engine.queue.states() if each.user == user)


async def test_who_may_use_a_full_node_only_waits_and_the_next_starts_on_the_free_one(tmp_path: Path) -> None:
    async with pod_room(tmp_path, two_nodes()) as r:
        assert (await r.ask("ada", demands=ON_A)).answer == "wait"
        assert (await r.ask("ben", demands=PodDemands())).answer == "admit"
        assert said_to(r, "ada").startswith(
            "Small GPU: the only one on the machines that your server may use is in use."
        )
        r.cluster.remove("others")
        r.cluster.put(r.pod_for(await r.ask("ben", demands=PodDemands()), "b"))
        await r.refresh()
        assert r.positions() == {"ada": 0, "ben": 0}


async def test_a_pod_that_finds_no_device_on_its_nodes_holds_nobody_up_on_others(tmp_path: Path) -> None:
    table = two_nodes()
    table.remove("others")
    async with pod_room(tmp_path, table) as r:
        state = await r.ask("ada", demands=ON_A)
        assert state.answer == "admit"
        why = (
            "0/2 nodes are available: 1 Insufficient nvidia.com/mig-1g.5gb, 1 node(s) didn't match Pod's node affinity"
        )
        r.cluster.put(r.pod_for(state, unscheduled="Unschedulable", unscheduled_why=why))
        r.cluster.put(pod("others", "a", asks=SMALL))
        await r.refresh()
        await r.refresh(after=31)
        assert r.pods.info().blocked_offers == (SMALL,)
        assert (await r.ask("cem", demands=ON_A)).answer == "wait"
        assert said_to(r, "cem").startswith("Something outside this hub took the GPU of the first in line")
        assert (await r.ask("ben", demands=PodDemands())).answer == "admit"


async def test_a_claim_that_is_bound_to_a_zone_keeps_its_server_there(tmp_path: Path) -> None:
    table, claims = two_nodes(), (f"{HOME}/home-ada",)
    in_a = VolumeFacts(((Requirement(ZONE, "In", ("a",)),),))
    table.volumes = Volumes({claims[0]: "pv"}, {"pv": in_a})
    async with pod_room(tmp_path, table) as r:
        assert (await r.ask("ada", demands=PodDemands(claims=claims))).answer == "wait"
        table.volumes = Volumes(unread=True)
        await r.refresh()
        assert r.positions() == {"ada": 0}, "what may not be read keeps nobody"
        assert "volumes of users' files" in [item.what for item in r.pods.info().left_out]


async def test_whose_demands_are_not_known_waits_for_any_node_as_ever(tmp_path: Path) -> None:
    async with pod_room(tmp_path, two_nodes()) as r:
        assert (await r.ask("ada")).answer == "admit"


async def test_the_demands_of_those_in_line_outlive_the_service(tmp_path: Path) -> None:
    table = two_nodes()
    wanted = PodDemands(
        (("rack", "a"),), ((Requirement("x", "DoesNotExist"),),), (Toleration("t", "Exists"),), ("n/c",)
    )
    async with pod_room(tmp_path, table) as r:
        await r.ask("ada", demands=wanted)
        (kept,) = r.engine.state.tickets.values()
    async with pod_room(tmp_path, table) as r:
        assert r.engine.state.tickets[kept.id].demands == wanted
        assert r.positions() == {"ada": 1}
