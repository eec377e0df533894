"""Where live tickets are found: by server, by the line of a pool, and by the nodes that their servers may use.

It follows the tickets of the state. Not here: who of a line is next (``core/queue/admission.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from hub_extensions.core.cluster.model import NodeFacts, Volumes
from hub_extensions.core.cluster.placement import NodeSets
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.model import PoolQueue, Ticket
from hub_extensions.core.queue.pool_queue import PoolQueueIndex


class TicketIndex:
    """Live tickets, by what they are asked for.

    Attributes:
        node_sets: ticket -> the nodes of the cluster that its server may use, where that is known.
    """

    def __init__(self) -> None:
        self.node_sets: dict[str, frozenset[str]] = {}
        self._of_server: dict[tuple[str, str], str] = {}
        self._queues = PoolQueueIndex({})
        self._matched = NodeSets()

    def put(self, ticket: Ticket) -> None:
        """A ticket is new, or another than it was."""
        self._of_server[ticket.user, ticket.server] = ticket.id
        self._queues.put(ticket)
        self._match(ticket)

    def drop(self, ticket: Ticket) -> None:
        """A ticket is over."""
        if self._of_server.get((ticket.user, ticket.server)) == ticket.id:
            del self._of_server[ticket.user, ticket.server]
        self._queues.drop(ticket.id)
        self.node_sets.pop(ticket.id, None)

    def see_nodes(self, nodes: Mapping[str, NodeFacts], volumes: Volumes, tickets: Collection[Ticket]) -> None:
        """A cluster was read: its nodes are these, and so are the volumes that keep servers to some of them."""
        if self._matched.know(nodes, volumes):
            for ticket in tickets:
                self._match(ticket)

    def _match(self, ticket: Ticket) -> None:
        """Find the nodes that its server may use, as far as they are known."""
        found = self._matched.of(ticket.demands)
        if found is None:
            self.node_sets.pop(ticket.id, None)
        else:
            self.node_sets[ticket.id] = found

    def of_server(self, user: str, server: str) -> str:
        """The id of a server's ticket; "": it has none."""
        return self._of_server.get((user, server), "")

    def queues(self, pool_of: Mapping[OfferId, str], tickets: Collection[Ticket]) -> Mapping[str, PoolQueue]:
        """The line of each pool, where these offers are in these pools."""
        if pool_of != self._queues.pool_of:
            self._queues = PoolQueueIndex(pool_of, tickets)
        return self._queues.queues()
