"""A whole service of a cluster without HTTP: real state, real store; a cluster and a hub as told, clocks in hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from hub_extensions.core.cluster.model import ClusterConfig, PodFacts
from hub_extensions.core.cluster.placement import PodDemands
from hub_extensions.core.messages import Ask, Ended, Started, Stopped, TicketStatus
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.offers.pod_request import label_value
from hub_extensions.core.queue.model import Availability, Lease
from hub_extensions.hub_service.engine.engine import Engine
from hub_extensions.hub_service.engine.forecasts.calculator import ForecastCalculator
from hub_extensions.hub_service.engine.line.cluster_leases import ClusterLeases
from hub_extensions.hub_service.engine.state.clock import RunningClock
from hub_extensions.hub_service.engine.state.state import State
from tests.fakes.cluster_table import HOME, ClusterTable, node, pod
from tests.fakes.empty_store import open_store
from tests.fakes.machine import HubAsTold
from tests.hub_service.engine.room import Hands, settings

SMALL = "mig-1g.5gb"


class PodRoom:
    """An engine of a cluster and what stands around it."""

    def __init__(self, engine: Engine, cluster: ClusterTable, hub: HubAsTold, hands: Hands) -> None:
        assert engine.cluster_leases is not None
        self.engine = engine
        self.pods: ClusterLeases = engine.cluster_leases
        self.cluster = cluster
        self.hub = hub
        self.hands = hands

    async def refresh(self, after: float = 0.0) -> None:
        """Look, `after` so many seconds."""
        self.hands.pass_time(timedelta(seconds=after))
        await self.pods.refresh()

    async def ask(self, user: str, *offers: str, server: str = "", demands: PodDemands | None = None) -> TicketStatus:
        self.hub.run(user, server, ready=False)
        wanted = tuple(map(OfferId, offers or (SMALL,)))
        return await self.engine.ask(Ask(user, server, wanted, {}, demands=demands))

    def pod_for(self, state: TicketStatus, on: str = "", **changes: object) -> PodFacts:
        """The pod that a spawner makes of a grant."""
        assert state.grant is not None
        limits = state.grant.pod.limits if state.grant.pod is not None else {}
        asks = next((name.removeprefix("nvidia.com/") for name in limits), "")
        made = pod(
            f"jupyter-{state.user}",
            on,
            asks=asks,
            namespace=HOME,
            lease=state.grant.lease,
            offer=label_value(state.grant.offer),
            user=state.user,
            server=state.server,
        )
        return replace(made, **changes)  # type: ignore[arg-type]

    async def ready(self, state: TicketStatus) -> None:
        """The server of an admitted ticket answers."""
        await self.engine.started(state.ticket, Started(state.attempt, ready=True))
        self.hub.run(state.user, state.server)

    async def run(self, user: str, *offers: str, on: str = "a") -> Lease:
        """From the form to a server that answers in a pod on this node."""
        state = await self.ask(user, *offers)
        assert state.answer == "admit", state
        self.cluster.put(self.pod_for(state, on))
        await self.refresh()
        await self.ready(state)
        return self.lease(user)

    async def stop(self, user: str) -> None:
        """The hub stopped it: its pod is being deleted."""
        self.hub.running.pop((user, ""), None)
        self.cluster.change_pod(f"jupyter-{user}", deleting=True)
        await self.engine.stopped(Stopped(user, ""))

    async def failed(self, state: TicketStatus) -> None:
        """The spawner gave its start up."""
        self.hub.running.pop((state.user, state.server), None)
        await self.engine.ended(state.ticket, Ended(state.attempt, "failed", "It crashed."))

    def lease(self, user: str) -> Lease:
        return next(each for each in self.engine.state.leases.values() if each.user == user)

    def ticket(self, user: str) -> str:
        return next(each.id for each in self.engine.state.tickets.values() if each.user == user)

    def holds(self, user: str) -> bool:
        return any(each.user == user for each in self.engine.state.leases.values())

    def stands(self, offer: str = SMALL) -> Availability:
        return next(each for each in self.engine.state.availability() if each.offer.id == offer)

    def positions(self) -> dict[str, int]:
        return {self.engine.state.tickets[each.ticket].user: each.position for each in self.engine.queue.states()}


@asynccontextmanager
async def pod_room(
    path: Path,
    cluster: ClusterTable | None = None,
    *,
    hub: HubAsTold | None = None,
    hands: Hands | None = None,
    prometheus_url: str = "",
    **config: object,
) -> AsyncIterator[PodRoom]:
    """A service of a cluster, by default one node with two MIG devices; on the same path it goes on where it was."""
    cluster = cluster or ClusterTable(node("a", (SMALL, 2)))
    hub, hands = hub or HubAsTold(), hands or Hands()
    made = settings(path, cluster=ClusterConfig(**config), prometheus_url=prometheus_url)  # type: ignore[arg-type]
    store = open_store(made.store_url)
    state = await State.open(store, made.queue, made.culling, made.offers, on_cluster=True)
    kept = None if state.first_start else state.clock.now()
    state.clock = RunningClock(kept, monotonic=lambda: hands.seconds, utc_now=lambda: hands.wall)
    engine = Engine(made, store, state, hub, cluster, calculator=ForecastCalculator())  # type: ignore[arg-type]
    await engine.watcher.refresh()
    try:
        yield PodRoom(engine, cluster, hub, hands)
    finally:
        await engine.stop()
        store.close()
