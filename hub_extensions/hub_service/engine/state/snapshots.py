"""What the state has of the world outside, as it was read last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hub_extensions.core.cluster.model import NodeFacts, Volumes
from hub_extensions.core.cluster.offers import ClusterOffers
from hub_extensions.core.cluster.pools import PoolSurvey
from hub_extensions.core.culling.orphans import ListedServer
from hub_extensions.core.offers.offer_id import OfferId


@dataclass(frozen=True)
class ClusterSnapshot:
    """How a cluster stands: what was counted, what is offered of it, and whose pods are held up.

    Attributes:
        queue, held_up, held_up_on, held_back, node_of: as in `core.queue.model.QueueSnapshot`.
        caution: what the figures do not count, for users.
        device_of: lease -> the devices that claims gave it.
        nodes: those that have devices; volumes: what keeps servers to some of them.
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
class Listing:
    """What the hub's list said last; `asked_at`: when it was asked for (the machine's seconds)."""

    servers: tuple[ListedServer, ...]
    asked_at: float
