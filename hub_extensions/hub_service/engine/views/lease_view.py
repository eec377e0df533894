"""What is said of leases: the whole row for admins, and the use alone for the metrics.

Of a thousand leases all are never written out at one go. Not here: who ends a lease (``leases.py``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from hub_extensions.core.cluster.model import PodFacts
from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.messages import LeaseInfo
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.model import Lease, LeaseState
from hub_extensions.hub_service.engine.line.leases import LeaseWatcher
from hub_extensions.hub_service.engine.state.slices import in_slices
from hub_extensions.hub_service.engine.state.state import State
from hub_extensions.hub_service.engine.stops.culler import Culler
from hub_extensions.hub_service.engine.views.presenters import other_ends


class LeaseUse(NamedTuple):
    """How busy the device of a running lease is, and who measured it."""

    offer: OfferId
    percent: float | None
    source: str


class LeaseView:
    """Looks at leases, changes nothing."""

    def __init__(
        self, state: State, culler: Culler, watcher: LeaseWatcher, pod_of: Callable[[Lease], PodFacts | None] | None
    ) -> None:
        """Args: pod_of: the pod of a lease; None: this is one machine."""
        self.state = state
        self.culler = culler
        self.watcher = watcher
        self.pod_of = pod_of

    async def all(self) -> tuple[LeaseInfo, ...]:
        """Those that have not ended, in slices between which others have a turn; what ends meanwhile is left out."""
        found = [self.info(lease) async for lease in in_slices(self.state.leases.values())]
        return tuple(info for info in found if info.lease in self.state.leases)

    def states(self) -> Mapping[str, int]:
        """How many there are in each state."""
        return Counter(lease.state.value for lease in self.state.leases.values())

    def uses(self) -> Iterator[LeaseUse]:
        """Of the running ones."""
        for lease in self.state.leases.values():
            if lease.state is LeaseState.RUNNING:
                yield LeaseUse(lease.offer, *self.culler.measured(lease))

    def info(self, lease: Lease) -> LeaseInfo:
        """Everything that an admin is told of one."""
        device = self.state.device(lease.device)
        facts = self.state.facts.get((lease.user, lease.server))
        decision = self.culler.decision(facts) if facts else None
        wall = self.state.clock.wall
        left = self.watcher.processes(lease) if lease.state is LeaseState.ENDING else ()
        used, source = self.culler.measured(lease)
        pod = self.pod_of(lease) if self.pod_of is not None else None
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
            no_session_since=self.state.no_session_since(lease.user),
            others=other_ends(decision, self.state.policy_of(lease.user, lease.offer), self.state.clock)
            if decision
            else (),
        )
