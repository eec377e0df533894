"""Indexes of the live tickets (users' places in line): by server, by line, and by the nodes that servers may use."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from hub_extensions.core.cluster.model import NodeFacts, Volumes
from hub_extensions.core.cluster.placement import NodeSets
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.model import PoolQueue, Ticket
from hub_extensions.core.queue.pool_queue import PoolQueueIndex


class TicketIndex:
    """Finds live tickets (users' places in line) by server, by line, and by the nodes that their servers may use.

    Attributes:
        node_sets: ticket id -> the nodes of the cluster that its server may use. A ticket is missing while they are
            unknown.
    """

    def __init__(self) -> None:
        self.node_sets: dict[str, frozenset[str]] = {}
        self._of_server: dict[tuple[str, str], str] = {}
        self._queues = PoolQueueIndex({})
        self._matched = NodeSets()

    def put(self, ticket: Ticket) -> None:
        """Add a ticket (place in line) to the index, or replace it."""
        self._of_server[ticket.user, ticket.server] = ticket.id
        self._queues.put(ticket)
        self._match(ticket)

    def drop(self, ticket: Ticket) -> None:
        """Remove a ticket (place in line) that has ended from the index."""
        if self._of_server.get((ticket.user, ticket.server)) == ticket.id:
            del self._of_server[ticket.user, ticket.server]
        self._queues.drop(ticket.id)
        self.node_sets.pop(ticket.id, None)

    def see_nodes(self, nodes: Mapping[str, NodeFacts], volumes: Volumes, tickets: Collection[Ticket]) -> None:
        """Update the nodes that each ticket's server may use, after the cluster's nodes and volumes were read again.

        Args:
            nodes: name -> node.
            volumes: the volumes that bind servers to some of the nodes.
            tickets: all live tickets (places in line).
        """
        if self._matched.know(nodes, volumes):
            for ticket in tickets:
                self._match(ticket)

    def _match(self, ticket: Ticket) -> None:
        """Store the nodes that the server of a ticket (place in line) may use, as far as they are known."""
        found = self._matched.of(ticket.demands)
        if found is None:
            self.node_sets.pop(ticket.id, None)
        else:
            self.node_sets[ticket.id] = found

    def of_server(self, user: str, server: str) -> str:
        """Return the id of a server's ticket (place in line); "" without a ticket."""
        return self._of_server.get((user, server), "")

    def queues(self, pool_of: Mapping[OfferId, str], tickets: Collection[Ticket]) -> Mapping[str, PoolQueue]:
        """Return the line of each pool (devices of one kind), by the pool's id.

        Args:
            pool_of: offer id -> id of its pool.
            tickets: all live tickets (places in line), to build the lines again if the pools have changed.
        """
        if pool_of != self._queues.pool_of:
            self._queues = PoolQueueIndex(pool_of, tickets)
        return self._queues.queues()
