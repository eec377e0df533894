"""The last readings of the cluster and of the hub. Each is one immutable value that is replaced as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

from hub_extensions.adapters.hub.jupyterhub_api import HubServer
from hub_extensions.core.cluster.model import NodeFacts, PodFacts, Volumes
from hub_extensions.core.cluster.offers import ClusterOffers
from hub_extensions.core.cluster.pools import PoolSurvey
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.model import Lease

ServerKey = tuple[str, str]  # user and server name


@dataclass(frozen=True)
class ClusterSnapshot:
    """The last reading of a cluster: the counted devices, the offers, and admitted pods that find no node.

    Attributes:
        survey: the pools (devices of one kind) with their counts.
        offers: the offers, and what a pod of each requests.
        queue: name of the external queue (``Kueue``, ``KAI``) that decides who starts; "" without one.
        held_up: offers of which nobody else is admitted now, because the last admitted pod finds no device: something
            outside this hub holds it, or its node does not answer.
        held_back: ids of admitted tickets (places in line) that do not count towards the limit of simultaneous starts,
            because their pods have no node yet.
        caution: a sentence for users about devices that the counts do not include; "" if the counts include all.
        held_up_on: offer in `held_up` -> the nodes on which nobody else is admitted. If an offer of `held_up` is
            missing here, that is so on all nodes.
        node_of: lease id -> the node of its pod.
        device_of: lease id -> the devices that its resource claims were given.
        nodes: the nodes that have devices.
        volumes: the volumes that bind servers to some of the nodes.
    """

    survey: PoolSurvey
    offers: ClusterOffers
    queue: str = ""
    held_up: frozenset[OfferId] = frozenset()
    held_back: frozenset[str] = frozenset()
    caution: str = ""
    held_up_on: Mapping[OfferId, frozenset[str]] = field(default_factory=dict)
    node_of: Mapping[str, str] = field(default_factory=dict)
    device_of: Mapping[str, str] = field(default_factory=dict)
    nodes: Mapping[str, NodeFacts] = field(default_factory=dict)
    volumes: Volumes = field(default_factory=Volumes)


@dataclass(frozen=True)
class ServerPods:
    """The pods of leases (servers' rights to a device) and of servers, as the cluster was read last.

    Attributes:
        by_lease: lease id -> the pod with that lease's label.
        by_server: (user, server) -> the pod with these names in its labels.
    """

    by_lease: Mapping[str, PodFacts] = field(default_factory=dict)
    by_server: Mapping[ServerKey, PodFacts] = field(default_factory=dict)

    def of(self, lease: Lease) -> PodFacts | None:
        """Return the pod of the server of a lease (right to a GPU).

        `None` without a pod, or if the pod has finished.
        """
        pod = self.by_lease.get(lease.id)
        if pod is None and lease.adopted:
            pod = self.by_server.get((lease.user, lease.server))
            if pod is not None and (pod.lease or (pod.offer and not pod.requests)):
                pod = None  # a later server of that name that we started, with a lease of its own or on CPU only
        return None if pod is None or pod.over else pod


@dataclass(frozen=True)
class HubView:
    """The servers and users that the hub listed last, and whether the hub answers now.

    While the hub is away, the view keeps what the hub reported before; only `listed` becomes `None`. Times by the
    running clock are of a clock that stands still while the hub is away.

    Attributes:
        servers: every server that is not stopped. `None` before the first list.
        read_at: when that list was requested, in seconds of the machine's monotonic clock.
        away_since: wall-clock time since which the hub does not answer. `None` if it answers.
        back: when the hub answered again after its last long outage, by the running clock. `None` if it had none.
        clock_ahead: how far the hub's clock is ahead of this machine's. `None` if unknown.
        people: user -> the user's groups, and whether the user is an administrator.
        activity: when each server was last used, by the running clock. Activity that a restart of the proxy or the
            saving of notebooks before a stop caused does not count.
        gone_in_outage: servers that disappeared during an outage. No list since then has contained them.
    """

    servers: Mapping[ServerKey, HubServer] | None = None
    read_at: float = 0.0
    away_since: datetime | None = None
    back: datetime | None = None
    clock_ahead: timedelta | None = None
    people: Mapping[str, tuple[tuple[str, ...], bool]] = field(default_factory=dict)
    activity: Mapping[ServerKey, datetime] = field(default_factory=dict)
    gone_in_outage: frozenset[ServerKey] = frozenset()

    @property
    def is_up(self) -> bool:
        """Whether the hub answers."""
        return self.away_since is None

    @property
    def listed(self) -> Mapping[ServerKey, HubServer] | None:
        """The servers that the hub lists now; `None` if that is not known, because the hub does not answer."""
        return self.servers if self.is_up else None

    @cached_property
    def pods(self) -> Mapping[str, ServerKey | None]:
        """Pods of the listed servers: name of a pod -> its server while the spawn is pending, otherwise `None`.

        A pod of this hub whose name is missing here has been forgotten by the hub.
        """
        servers = (self.servers or {}).items()
        there = {item.pod for _, item in servers if item.pending != "spawn"}
        return {item.pod: None if item.pod in there else key for key, item in servers}
