"""Counting a cluster of 1,000 nodes, 8,000 GPUs and 10,000 pods: in pure code, and one look of the service.

Half of the nodes have whole cards, a quarter MIG devices, a quarter places on shared cards; 1,000 pods are servers of
ours with a lease, and 300 users are in line. One pod changes between two counts, as it does on a cluster. No API
server: what its watch costs is another figure. Times are of the processor, so that a busy machine says the same.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

from benchmarks.figures import latency_row
from hub_extensions.adapters.store import Changes, TicketRow
from hub_extensions.core.cluster.model import ClusterConfig, ClusterView, NodeFacts, PodFacts
from hub_extensions.core.cluster.nodes import NodeReadings
from hub_extensions.core.cluster.offers import derive_cluster_offers
from hub_extensions.core.cluster.pools import survey_pools
from hub_extensions.core.offers.model import OfferConfig
from hub_extensions.core.queue.admission import admit, availability, standing
from hub_extensions.core.queue.model import Lease, LeaseState, QueueSnapshot, Ticket, WantedOffer
from tests.fakes.cluster_table import HOME, ClusterTable, node, pod
from tests.hub_service.engine.pod_room import pod_room

NODES, PODS, SERVERS, IN_LINE = 1_000, 10_000, 1_000, 300
TIMES = 50
NOW = datetime(2026, 1, 5, 12, tzinfo=timezone.utc)
H100 = "NVIDIA-H100-80GB-HBM3"


def nodes() -> dict[str, NodeFacts]:
    """250 nodes of each kind, with as many labels as a real one has."""
    found = {}
    for number in range(NODES):
        name = f"node-{number:04}"
        more = {f"feature.node.kubernetes.io/cpu-{at}": "true" for at in range(40)}
        kind = number % 4
        if kind == 0:
            made = node(name, ("gpu", 8), product=H100, labels={"nvidia.com/gpu.memory": "81559", **more})
        elif kind == 1:
            cut = {"nvidia.com/gpu.count": "8", "nvidia.com/gpu.replicas": "0"}
            made = node(name, ("gpu", 0), ("mig-1g.5gb", 40), ("mig-2g.10gb", 8), labels={**cut, **more})
        elif kind == 2:
            sliced = {"nvidia.com/gpu.sharing-strategy": "time-slicing", "nvidia.com/gpu.replicas": "4"}
            made = node(name, ("gpu.shared", 32), product="Tesla-T4", labels={**sliced, **more})
        else:
            made = node(name, ("gpu", 8), labels={"nvidia.com/gpu.memory": "40960", **more})
        found[name] = made
    return found


def pods(there: dict[str, NodeFacts]) -> dict[str, PodFacts]:
    """Every tenth is a server of ours."""
    chance = random.Random(1)
    found = {}
    for number in range(PODS):
        name = f"node-{chance.randrange(NODES):04}"
        asks = next(key for key, count in there[name].allocatable.items() if count).removeprefix("nvidia.com/")
        ours = number % (PODS // SERVERS) == 0
        made = pod(
            f"pod-{number}", name, asks=asks, namespace=HOME if ours else "ml", user=f"u{number}" if ours else ""
        )
        found[made.uid] = replace(made, lease=f"l{number}" if ours else "")
    return found


def leases(of: dict[str, PodFacts]) -> dict[str, Lease]:
    """Of our servers' pods."""
    ends = NOW + timedelta(hours=8)
    return {
        each.lease: Lease(
            each.lease, f"t-{each.lease}", each.user, "", "gpu", "gpu", "", "gpu", 1000, LeaseState.RUNNING, NOW,
            ready_at=NOW, ends_at=ends,
        )
        for each in of.values()
        if each.lease
    }  # fmt: skip


def in_line() -> tuple[Ticket, ...]:
    """All wait for one thing."""
    return tuple(Ticket(f"t{n}", f"w{n}", "", (WantedOffer("gpu@h100-80gb-hbm3", n),), NOW) for n in range(IN_LINE))


def timed(what: str, work: Callable[[], object], before: Callable[[], object] = lambda: None) -> None:
    """Print the figures of `TIMES` runs."""
    taken = []
    for _ in range(TIMES):
        before()
        began = time.thread_time()
        work()
        taken.append(time.thread_time() - began)
    print(latency_row(what, taken))


async def a_look(there: dict[str, NodeFacts], running: dict[str, PodFacts], change: Callable[[], object]) -> None:
    """The service's own: everything it does at a change, real state and store."""
    table = ClusterTable(*there.values())
    table.pods = running
    with tempfile.TemporaryDirectory() as folder:
        async with pod_room(Path(folder), table) as room:
            held = tuple(leases(running).values())
            await room.engine.state.commit(Changes(leases=held, tickets=tuple(map(TicketRow, in_line()))))
            away = replace(room.engine.state.hub_view, away_since=room.engine.state.clock.utc_now())
            room.engine.state.hub_view = away  # so nobody is admitted: only the counting is measured
            taken = []
            for _ in range(TIMES):
                change()
                began = time.thread_time()
                await room.refresh()
                taken.append(time.thread_time() - began)
            print(latency_row("one look of the service", taken))


def main() -> None:
    """Print all figures."""
    there = nodes()
    running = pods(there)
    held = leases(running)
    view, config, offers = ClusterView(there, running, namespace=HOME), ClusterConfig(), OfferConfig()
    names = dict(survey_pools(view, offers, config, names={}, leases=held).names)
    turn = iter(range(1_000_000))

    def one_pod_changes() -> None:
        uid = f"uid-pod-{next(turn) % PODS}"
        running[uid] = replace(running[uid], ready=not running[uid].ready)

    kept = NodeReadings()
    timed("counted all anew", lambda: survey_pools(view, offers, config, names=names, leases=held))
    timed(
        "counted after a change",
        lambda: survey_pools(view, offers, config, names=names, leases=held, kept=kept),
        one_pod_changes,
    )
    survey = survey_pools(view, offers, config, names=names, leases=held)
    timed("offers and their asks", lambda: derive_cluster_offers(survey.pools, offers, config))
    found = derive_cluster_offers(survey.pools, offers, config).offers
    snapshot = QueueSnapshot(
        found,
        None,
        in_line(),
        tuple(held.values()),
        lifetime=timedelta(hours=8),
        pools=survey.pools,
        bound=survey.bound,
    )
    timed("admissions", lambda: admit(snapshot))
    timed("how every offer stands", lambda: availability(snapshot, NOW))
    timed("what everybody in line is told", lambda: standing(snapshot, NOW))
    asyncio.run(a_look(there, running, one_pod_changes))


if __name__ == "__main__":
    main()
