"""What follows from one reading of a cluster: whose each pod is, and what each lease and ticket has. Case by case."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from hub_extensions.adapters.hub.jupyterhub_api import HubServer
from hub_extensions.core.cluster.model import ClusterView, PodFacts
from hub_extensions.core.queue.model import LeaseState, TicketState
from hub_extensions.hub_service.engine.line import cluster_leases
from tests.fakes.cluster_table import HOME, ClusterTable, node, pod
from tests.hub_service.engine.pod_room import SMALL, PodRoom, pod_room

pytestmark = pytest.mark.slow

LARGE = "mig-2g.10gb"
SECOND = timedelta(seconds=1)
LACKS = "0/1 nodes are available: 1 Insufficient nvidia.com/mig-1g.5gb."


def known(r: PodRoom, *pods: PodFacts, namespace: str = HOME) -> tuple[dict[str, str], dict[tuple[str, str], str]]:
    """(lease -> name of its pod, server -> name of its pod)"""
    view = ClusterView({}, {each.uid: each for each in pods}, namespace=namespace)
    pods_now = r.engine.state.pods = r.pods._server_pods(view)
    by_lease = {lease: each.name for lease, each in pods_now.by_lease.items()}
    return by_lease, {server: each.name for server, each in pods_now.by_server.items()}


async def test_a_pod_is_known_by_its_lease_and_by_its_server(tmp_path: Path) -> None:
    async with pod_room(tmp_path) as r:
        ours = pod("ours", "a", namespace=HOME, lease="l", user="ada", server="lab")
        assert known(r, ours) == ({"l": "ours"}, {("ada", "lab"): "ours"})
        assert known(r, replace(ours, lease="")) == ({}, {("ada", "lab"): "ours"})
        assert known(r, replace(ours, user="")) == ({"l": "ours"}, {})
        assert known(r, replace(ours, lease="", user="")) == ({}, {})


@pytest.mark.parametrize(
    ("changes", "namespace", "is_hers"),
    [
        ({}, HOME, True),
        ({"namespace": "of-ada"}, HOME, True),
        ({"namespace": "of-ada"}, "", True),
        ({"namespace": "of-ada", "user": "eve"}, HOME, False),
        ({"namespace": "of-ada", "server": "other"}, HOME, False),
        ({"namespace": "of-ada", "lease": "unknown"}, HOME, False),
        ({"namespace": "of-ada", "lease": "unknown"}, "", True),
        ({"lease": "unknown"}, HOME, True),
    ],
)
async def test_a_pod_elsewhere_is_ours_where_it_has_the_lease_of_its_own_server(
    tmp_path: Path, changes: dict[str, str], namespace: str, is_hers: bool
) -> None:
    async with pod_room(tmp_path) as r:
        lease = await r.run("ada")
        made = pod("p", "a", **{"namespace": HOME, "lease": lease.id, "user": "ada", "server": "", **changes})
        by_lease, by_server = known(r, made, namespace=namespace)
        assert (by_lease, list(by_server)) == (({made.lease: "p"}, [(made.user, made.server)]) if is_hers else ({}, []))


@pytest.mark.parametrize(
    ("one", "other", "first"),
    [
        ({}, {"namespace": "of-ada"}, "one"),
        ({"phase": "Failed"}, {}, "other"),
        ({"phase": "Failed"}, {"namespace": "of-ada"}, "one"),
        ({"namespace": "of-ada", "phase": "Failed"}, {"namespace": "of-ada"}, "other"),
        ({}, {}, "one"),
    ],
)
async def test_of_two_pods_of_one_lease_that_of_our_namespace_counts_then_one_that_is_not_over(
    tmp_path: Path, one: dict[str, str], other: dict[str, str], first: str
) -> None:
    async with pod_room(tmp_path) as r:
        lease = await r.run("ada")
        made = [
            pod(name, "a", **{"namespace": HOME, "lease": lease.id, "user": "ada", **changes})
            for name, changes in (("one", one), ("other", other))
        ]
        assert known(r, *made) == ({lease.id: first}, {("ada", ""): first})
        if one != other:
            assert known(r, *made[::-1]) == ({lease.id: first}, {("ada", ""): first})


@pytest.mark.parametrize(
    ("changes", "adopted", "found"),
    [
        ({}, False, True),
        ({"phase": "Failed"}, False, False),
        ({"lease": ""}, False, False),
        ({"lease": ""}, True, True),
        ({"lease": "", "phase": "Succeeded"}, True, False),
        ({"lease": "of another"}, True, False),
        ({"lease": "", "offer": "cpu", "requests": {}}, True, False),
        ({"lease": "", "offer": SMALL}, True, True),
        ({"lease": "", "requests": {}}, True, True),
    ],
)
async def test_a_lease_has_the_pod_with_its_label_or_where_it_was_adopted_its_servers(
    tmp_path: Path, changes: dict[str, object], adopted: bool, found: bool
) -> None:
    async with pod_room(tmp_path) as r:
        lease = replace(await r.run("ada"), adopted=adopted)
        made = pod("p", "a", asks=SMALL, namespace=HOME, lease=lease.id, user="ada")
        known(r, replace(made, **changes))  # type: ignore[arg-type]
        assert (r.engine.state.pods.of(lease) is not None) is found
        assert r.pods.lives(lease) is found
        known(r, replace(made, deleting=True, **changes))  # type: ignore[arg-type]
        assert r.pods.lives(lease) is False


@pytest.mark.parametrize(
    ("changes", "state", "waits"),
    [
        ({}, TicketState.ADMITTED, True),
        ({}, TicketState.WAITING, False),
        ({"node": "a"}, TicketState.ADMITTED, False),
        ({"phase": "Failed"}, TicketState.ADMITTED, False),
        ({"deleting": True}, TicketState.ADMITTED, False),
        ({"lease": ""}, TicketState.ADMITTED, False),
    ],
)
async def test_a_pod_waits_for_a_place_that_an_admitted_ticket_has_and_no_node(
    tmp_path: Path, changes: dict[str, object], state: TicketState, waits: bool
) -> None:
    async with pod_room(tmp_path) as r:
        asked = await r.ask("ada")
        known(r, r.pod_for(asked, **changes))
        ticket = replace(r.engine.state.tickets[asked.ticket], state=state)
        assert (r.pods._waiting_pod(ticket) is not None) is waits


async def test_a_pod_on_cpu_only_waits_for_a_place_by_its_server(tmp_path: Path) -> None:
    async with pod_room(tmp_path) as r:
        asked = await r.ask("ada", "cpu")
        known(r, pod("p", namespace=HOME, user="ada"))
        assert r.pods._waiting_pod(r.engine.state.tickets[asked.ticket]) is not None
        known(r, pod("p", namespace=HOME, user="ben"))
        assert r.pods._waiting_pod(r.engine.state.tickets[asked.ticket]) is None


@pytest.mark.parametrize(
    ("offer", "why", "queue", "seconds", "up", "back"),
    [
        (SMALL, LACKS, "", 30, False, False),
        (SMALL, LACKS, "", 30.1, True, True),
        (SMALL, "", "", 31, True, True),
        (SMALL, "0/1 nodes are available: 1 Insufficient cpu.", "", 31, False, True),
        (SMALL, LACKS, "Kueue", 0, False, True),
        (SMALL, LACKS, "Kueue", 31, False, True),
        ("cpu", LACKS, "", 31, False, True),
    ],
)
async def test_what_a_pod_without_a_place_holds_up(
    tmp_path: Path, offer: str, why: str, queue: str, seconds: float, up: bool, back: bool
) -> None:
    async with pod_room(tmp_path) as r:
        asked = await r.ask("ada", offer)
        known(r, replace(r.pod_for(asked), unscheduled_why=why))
        r.pods._without_a_place(queue)
        r.hands.pass_time(seconds * SECOND)
        assert r.pods._without_a_place(queue) == ({SMALL: None} if up else {}, {asked.ticket} if back else set())
        known(r, r.pod_for(asked, node="a"))
        assert r.pods._without_a_place(queue) == ({}, set())
        known(r, replace(r.pod_for(asked), unscheduled_why=why))
        late = r.pods._without_a_place(queue)
        assert late == ({}, {asked.ticket} if queue else set()), "a new absence begins"


async def test_two_pods_without_a_place_hold_their_offer_up_on_the_nodes_of_both(tmp_path: Path) -> None:
    async with pod_room(tmp_path) as r:
        asked = [await r.ask(user) for user in ("ada", "ben")]
        known(r, *(r.pod_for(each) for each in asked))
        sets = (frozenset("ab"), frozenset("bc"))
        for found, nodes in ((sets, frozenset("abc")), ((sets[0], None), None), ((None, sets[0]), None)):
            r.engine.state.ticket_index.node_sets = {
                each.ticket: nodes for each, nodes in zip(asked, found, strict=True) if nodes is not None
            }
            r.pods._without_a_place("")
            r.hands.pass_time(31 * SECOND)
            assert r.pods._without_a_place("")[0] == {SMALL: nodes}


@pytest.mark.parametrize(
    ("ready", "nodes", "on", "lost"),
    [
        (True, True, "a", False),
        (False, True, "a", True),
        (None, True, "a", True),
        (True, True, "gone", None),
        (False, False, "a", None),
        (False, True, "", None),
    ],
)
async def test_a_machine_is_lost_that_is_there_and_not_ready(
    tmp_path: Path, ready: bool | None, nodes: bool, on: str, lost: bool | None
) -> None:
    async with pod_room(tmp_path) as r:
        view = ClusterView({"a": node("a", (SMALL, 1), ready=ready)} if nodes else None, {}, namespace=HOME)
        assert r.pods._node_lost(pod("p", on), view) is lost


@pytest.mark.parametrize(
    ("seen", "state", "seconds", "gone"),
    [
        (True, LeaseState.RUNNING, 0.9, False),
        (True, LeaseState.RUNNING, 1.0, True),
        (False, LeaseState.RUNNING, 29.9, False),
        (False, LeaseState.RUNNING, 30.0, True),
        (False, LeaseState.ENDING, 1.0, True),
        (False, LeaseState.LOST, 1.0, False),
    ],
)
async def test_a_pod_is_gone_after_a_second_if_it_was_seen_and_after_thirty_if_not(
    tmp_path: Path, seen: bool, state: LeaseState, seconds: float, gone: bool
) -> None:
    async with pod_room(tmp_path) as r:
        lease = replace(await r.run("ada"), state=state)
        r.pods._seen = {lease.id} if seen else set()
        assert r.pods._is_gone(lease) is False
        r.hands.pass_time(seconds * SECOND)
        assert r.pods._is_gone(lease) is gone
        if gone:
            assert lease.id not in r.pods._seen and r.pods._is_gone(lease) is False, "what comes then is another"


# ------------------------------------------------------------------ servers that ran before


@pytest.mark.parametrize(
    ("changes", "pool", "lease_id"),
    [
        ({}, SMALL, None),
        ({"lease": "of before"}, SMALL, "of before"),
        ({"requests": {}}, None, None),
        ({"requests": {}, "offer": SMALL}, SMALL, None),
        ({"offer": LARGE}, LARGE, None),
        ({"offer": "no such"}, SMALL, None),
        ({"offer": "cpu"}, SMALL, None),
        ({"requests": {"nvidia.com/other": 1}}, None, None),
        ({"deleting": True}, None, None),
        ({"phase": "Failed"}, None, None),
        ({"user": "eve"}, None, None),
    ],
)
async def test_a_server_that_ran_before_holds_what_its_label_or_its_pod_says(
    tmp_path: Path, changes: dict[str, object], pool: str | None, lease_id: str | None
) -> None:
    async with pod_room(tmp_path, ClusterTable(node("a", (SMALL, 2), (LARGE, 1)))) as r:
        known(r, replace(pod("p", "a", asks=SMALL, namespace=HOME, user="ada"), **changes))  # type: ignore[arg-type]
        server, now = HubServer("ada", "", True, None, r.hands.wall, r.hands.wall), r.engine.state.clock.now()
        found = r.pods.lease_of_unknown_server(server, now)
        assert (found and found.pool) == pool
        if found is not None:
            assert (found.adopted, found.ends_at) == (True, now + 30 * 60 * SECOND)
            assert found.id == lease_id if lease_id else found.id not in ("", "of before")
            assert found.offer == pool and found.share == 1000
        assert r.pods.is_stopping(server) is bool(changes.get("deleting"))
        r.engine.state.cluster = None
        assert r.pods.lease_of_unknown_server(server, now) is None


async def test_a_server_whose_lease_is_known_is_no_stranger(tmp_path: Path) -> None:
    async with pod_room(tmp_path) as r:
        lease, now = await r.run("ada"), r.engine.state.clock.now()
        for user, adopted in (("ada", False), ("eve", True)):
            known(r, pod("p", "a", asks=SMALL, namespace=HOME, user=user, lease=lease.id))
            server = HubServer(user, "", True, None, r.hands.wall, r.hands.wall)
            found = r.pods.lease_of_unknown_server(server, now)
            assert (found is not None) is adopted
            assert found is None or found.id != lease.id


async def test_a_pod_is_of_the_pool_of_its_machine_where_several_have_what_it_asks_for(tmp_path: Path) -> None:
    cluster = ClusterTable(node("a", ("gpu", 1)), node("b", ("gpu", 1), product="Tesla-T4"))
    async with pod_room(tmp_path, cluster) as r:
        assert r.engine.state.cluster is not None
        survey = r.engine.state.cluster.survey
        of = {each.nodes[0].node: each.id for each in survey.pools.values()}
        assert {on: cluster_leases._pool_of(pod("p", on, asks="gpu"), survey) for on in of} == of
        assert cluster_leases._pool_of(pod("p", "gone", asks="gpu"), survey) == next(iter(survey.pools))
        assert cluster_leases._pool_of(pod("p", "a", asks=SMALL), survey) is None
        assert cluster_leases._pool_of(replace(pod("p", "a"), requests={"nvidia.com/gpu": 0}), survey) is None


async def test_the_journal_says_of_which_machine_a_lease_was(tmp_path: Path) -> None:
    async with pod_room(tmp_path) as r:
        lease, snapshot = await r.run("ada"), r.engine.state.cluster
        found = {
            state: cluster_leases._cause(lease, replace(lease, state=state), snapshot)[1]
            for state in (LeaseState.ENDING, LeaseState.ENDED, LeaseState.LOST, LeaseState.RUNNING)
        }
        assert found == {
            LeaseState.ENDING: "the API server lists no pod of it",
            LeaseState.ENDED: "the API server lists no pod of it",
            LeaseState.LOST: "the node a is not Ready",
            LeaseState.RUNNING: "the node a is Ready",
        }
        lost = replace(lease, state=LeaseState.LOST)
        assert cluster_leases._cause(lease, lost, None)[1] == "the node not known is not Ready"
        assert cluster_leases._cause(replace(lease, id="x"), lost, snapshot)[1] == "the node not known is not Ready"
