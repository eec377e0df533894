"""Views of leases (servers' rights to their GPUs): the lists for administrators, and the values of the metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.messages import LeaseInfo
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.model import Lease, LeaseState
from hub_extensions.hub_service.engine.line.leases import LeaseWatcher
from hub_extensions.hub_service.engine.state.batches import in_batches
from hub_extensions.hub_service.engine.state.state import State
from hub_extensions.hub_service.engine.stops.server_evidence import ServerEvidence
from hub_extensions.hub_service.engine.views.presenters import other_ends


class LeaseUse(NamedTuple):
    """The use of the device of a running lease (a server's right to its GPU), for the metrics.

    Attributes:
        offer: the offer of the lease.
        percent: the use of the device in percent; `None` if nothing measures it.
        source: what measured it, such as ``nvml`` or ``dcgm``; ``none`` if nothing does.
    """

    offer: OfferId
    percent: float | None
    source: str


async def all_leases(state: State, evidence: ServerEvidence, watcher: LeaseWatcher) -> tuple[LeaseInfo, ...]:
    """Return all leases (servers' rights to their GPUs) that have not ended, as administrators see them.

    They are read in batches, between which other tasks run.

    Args:
        state: the present state.
        evidence: the measurements and the decisions of culling.
        watcher: finds the processes that are left of a server.
    """
    found = [lease_info(state, evidence, watcher, lease) async for lease in in_batches(state.leases.values())]
    return tuple(info for info in found if info.lease in state.leases)


def lease_states(state: State) -> Mapping[str, int]:
    """Return the number of leases (servers' rights to their GPUs) in each state, such as ``running``."""
    return Counter(lease.state.value for lease in state.leases.values())


def lease_uses(state: State, evidence: ServerEvidence) -> Iterator[LeaseUse]:
    """Yield how busy the device of each running lease (a server's right to its GPU) is."""
    for lease in state.leases.values():
        if lease.state is LeaseState.RUNNING:
            yield LeaseUse(lease.offer, *evidence.measured(lease))


def lease_info(state: State, evidence: ServerEvidence, watcher: LeaseWatcher, lease: Lease) -> LeaseInfo:
    """Return everything that administrators see of a lease (a server's right to its GPU).

    Args:
        state: the present state.
        evidence: the measurements and the decisions of culling.
        watcher: finds the processes that are left of a server.
        lease: a server's right to its GPU.
    """
    device = state.device(lease.device)
    facts = state.facts.get((lease.user, lease.server))
    decision = evidence.decision(facts) if facts else None
    wall = state.clock.wall
    left = watcher.processes(lease) if lease.state is LeaseState.ENDING else ()
    used, source = evidence.measured(lease)
    pod = state.pods.of(lease)
    return LeaseInfo(
        lease=lease.id,
        user=lease.user,
        server=lease.server,
        offer=lease.offer,
        uuid=lease.uuid,
        profile=device.profile if device else None,
        share=lease.share / WHOLE,
        state=lease.state.value,
        since=wall(lease.since),
        ready_at=wall(lease.ready_at) if lease.ready_at else None,
        pid=lease.pid,
        last_use_percent=used,
        stops_at=wall(decision.stops_at) if decision and decision.stops_at else None,
        stop_reason=decision.reason.message if decision and decision.reason else "",
        adopted=lease.adopted,
        processes=tuple(f"{p.command} (pid {p.pid}, {p.owner})" for p in left),
        use_source=source,
        pod=pod.name if pod else "",
        node=pod.node if pod else "",
        stop_why=decision.reason if decision else None,
        no_session_since=state.no_session_since(lease.user),
        others=other_ends(decision, state.policy_of(lease.user, lease.offer), state.clock) if decision else (),
    )
