"""The content of the administrators' page, computed from the state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hub_extensions.core.messages import Health, OfferState, TicketInfo
from hub_extensions.core.overview.cards import (
    Card,
    PieceHolder,
    cards_of_cluster,
    cards_of_machine,
    emptying,
    holders_on,
)
from hub_extensions.core.overview.health import judge_health
from hub_extensions.core.overview.totals import totals_of
from hub_extensions.core.overview.view import (
    CARDS_A_PAGE,
    Asked,
    Overview,
    PageRows,
    chosen,
    paged,
    titles_of,
)
from hub_extensions.core.queue.cordons import MACHINE
from hub_extensions.core.queue.model import Lease, LeaseState, TicketState
from hub_extensions.hub_service.engine.line.leases import LeaseWatcher
from hub_extensions.hub_service.engine.state.batches import in_batches
from hub_extensions.hub_service.engine.state.state import State
from hub_extensions.hub_service.engine.stops.server_evidence import ServerEvidence
from hub_extensions.hub_service.engine.views.lease_view import lease_info
from hub_extensions.hub_service.engine.views.overview import failed_starts

if TYPE_CHECKING:  # one machine needs no library of Kubernetes
    from hub_extensions.hub_service.engine.line.cluster_leases import ClusterLeases


def all_cards(state: State, evidence: ServerEvidence, cluster: ClusterLeases | None) -> tuple[Card, ...]:
    """Return all GPUs of the machine or the cluster, with the leases (servers' rights to them) on each.

    Args:
        state: the present state.
        evidence: the measurements.
        cluster: reads the cluster's pools and nodes. `None` on one machine.
    """
    return _cards(state, [_holder(state, evidence, lease) for lease in state.leases.values()], cluster)


def _cards(state: State, holders: Sequence[PieceHolder], cluster: ClusterLeases | None) -> tuple[Card, ...]:
    if cluster is None:
        return cards_of_machine(state.devices.values(), holders, state.cordons)
    closed = {name for name, cordoned in cluster.drains.nodes().items() if cordoned}
    return cards_of_cluster(cluster.info().pools, holders, cluster.drains.standing(), closed)


def _holder(state: State, evidence: ServerEvidence, lease: Lease) -> PieceHolder:
    used = evidence.measured(lease)[0] if lease.state is LeaseState.RUNNING else None
    end, wall = state.as_enforced(lease).ends_at, state.clock.wall
    return PieceHolder(
        lease=lease.id,
        user=lease.user,
        server=lease.server,
        offer=lease.offer,
        place=(state.node_of(lease), lease.pool) if state.on_cluster else lease.device,
        share=lease.share,
        state=lease.state.value,
        since=wall(lease.since),
        use_percent=used,
        idle_below=state.policy_of(lease.user, lease.offer).idle_below_percent,
        ends_at=None if end is None else wall(end),
    )


async def admin_overview(
    state: State,
    evidence: ServerEvidence,
    watcher: LeaseWatcher,
    cluster: ClusterLeases | None,
    asked: Asked,
    offers: tuple[OfferState, ...],
    health: Health,
    queue: PageRows[TicketInfo],
) -> Overview:
    """Return the content of the administrators' page. GPUs that are not on the requested page count in the totals only.

    Args:
        state: the present state.
        evidence: the measurements.
        watcher: knows the leases (servers' rights to GPUs) that seem to be over without proof.
        cluster: reads the cluster's pools and nodes. `None` on one machine.
        asked: which parts, pages and filters the administrator requested.
        offers: all offers, as administrators see them.
        health: the service's health report.
        queue: the requested page of the tickets (users' places in line).
    """
    found = [_holder(state, evidence, lease) async for lease in in_batches(state.leases.values())]
    holders = [holder for holder in found if holder.lease in state.leases]  # the others have ended meanwhile
    info = None if cluster is None else cluster.info()
    cards = _cards(state, holders, cluster)
    shown = paged(chosen(cards, asked), asked.cards, CARDS_A_PAGE)
    leases = [state.leases[holder.lease] for card in shown.shown for holder in card.holders]
    joined = [each.joined for each in state.tickets.values() if each.state is TicketState.WAITING]
    wall = state.clock.wall
    holds = {offer: replace(hold, since=wall(hold.since)) for offer, hold in state.quota_holds.items()}
    places = {card.place for card in shown.shown}
    return Overview(
        at=state.clock.utc_now(),
        read=None if state.read_at is None else wall(state.read_at),
        totals=totals_of(cards),
        health=judge_health(
            health,
            offers,
            info.blocked_offers if info is not None else (),
            info.problem if info is not None else "",
            state.reading.problems if state.reading is not None else (),
            unproved=len(watcher.unproved),
            over_quota=holds,
        ),
        cards=shown,
        leases={lease.id: lease_info(state, evidence, watcher, lease) for lease in leases},
        unproved=watcher.unproved,
        contradicted={lease.id: both for lease in leases if (both := evidence.contradicted(lease)) is not None},
        # all rows of a node count, also those on another page of the list
        emptying={
            place: emptying(h for card in cards if card.place == place for h in card.holders) for place in places
        },
        people=queue,
        longest_seconds=max(0.0, (state.clock.now() - min(joined)).total_seconds()) if joined else None,
        failed=failed_starts(state),
        cordons=state.cordons if cluster is None else cluster.drains.standing(),
        machine=emptying(holders_on(cards, MACHINE)),
        on_cluster=cluster is not None,
        may_drain=cluster is None or cluster.drains.allowed,
        simulated=any(offer.simulated for offer in offers),
        titles=titles_of(offers),
    )
