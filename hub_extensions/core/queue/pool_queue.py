"""Build the line of each pool (all devices of one kind): its waiting tickets in the order of their places.

A line is either built once from all tickets, or kept up to date while tickets come and go.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.model import PoolQueue, Ticket, TicketState


def pool_queues_of(pool_of: Mapping[OfferId, str], tickets: Iterable[Ticket]) -> Mapping[str, PoolQueue]:
    """Return pool -> its line, built from those of the tickets that wait.

    Args:
        pool_of: offer -> its pool.
    """
    entries: dict[str, list[tuple[int, Ticket]]] = {}
    asked: dict[str, Counter[OfferId]] = {}
    for ticket in tickets:
        for pool, (place, offers) in _places(pool_of, ticket).items():
            entries.setdefault(pool, []).append((place, ticket))
            asked.setdefault(pool, Counter()).update(offers)
    for waiting in entries.values():
        waiting.sort(key=_place)
    return {
        pool: PoolQueue(tuple(ticket for _, ticket in waiting), tuple(place for place, _ in waiting), asked[pool])
        for pool, waiting in entries.items()
    }


def _place(entry: tuple[int, Ticket]) -> int:
    return entry[0]


def _places(pool_of: Mapping[OfferId, str], ticket: Ticket) -> dict[str, tuple[int, tuple[OfferId, ...]]]:
    """Return pool -> (the ticket's earliest place in its line, the offers that the ticket accepts there).

    A place is a serial number. Empty if the ticket does not wait.

    Args:
        pool_of: offer -> its pool.
        ticket: the ticket.
    """
    found: dict[str, tuple[int, tuple[OfferId, ...]]] = {}
    if ticket.state is not TicketState.WAITING:
        return found
    for choice in ticket.wanted_offers:
        pool = pool_of.get(choice.offer)
        if pool is not None:
            place, offers = found.get(pool, (choice.place, ()))
            found[pool] = min(place, choice.place), (*offers, choice.offer)
    return found


@dataclass
class _QueueBuilder:
    """The line of one pool (all devices of one kind) while tickets are added to it and removed from it.

    `value` returns its present state.

    Attributes:
        tickets: the tickets in the order of their places.
        places: the first place (a serial number) of each of these tickets in this line.
        asked: offer -> number of tickets that ask for it.
        queue: the value that `value` returned last; None if a ticket has been added or removed since.
    """

    tickets: list[Ticket] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    asked: Counter[OfferId] = field(default_factory=Counter)
    queue: PoolQueue | None = None

    def value(self) -> PoolQueue:
        if self.queue is None:
            self.queue = PoolQueue(tuple(self.tickets), tuple(self.places), Counter(self.asked))
        return self.queue

    def put(self, place: int, offers: Iterable[OfferId], ticket: Ticket) -> None:
        at = bisect_left(self.places, place)
        self.places.insert(at, place)
        self.tickets.insert(at, ticket)
        self.asked.update(offers)
        self.queue = None

    def drop(self, place: int, offers: Iterable[OfferId], ticket: Ticket) -> None:
        at = bisect_left(self.places, place)
        while self.tickets[at].id != ticket.id:
            at += 1
        del self.places[at], self.tickets[at]
        self.asked.subtract(offers)
        self.queue = None


class PoolQueueIndex:
    """The lines of all pools, kept up to date. Adding or removing a ticket costs one binary search per line."""

    def __init__(self, pool_of: Mapping[OfferId, str], tickets: Iterable[Ticket] = ()) -> None:
        self.pool_of = pool_of
        self._pools: dict[str, _QueueBuilder] = {}
        self._known: dict[str, Ticket] = {}
        for pool, queue in pool_queues_of(pool_of, tickets := tuple(tickets)).items():
            self._pools[pool] = _QueueBuilder(list(queue.tickets), list(queue.places), Counter(queue.asked), queue)
        self._known = {ticket.id: ticket for ticket in tickets}

    def put(self, ticket: Ticket) -> None:
        """Add a ticket (a server's place in line) to its lines, or replace its earlier version.

        A ticket that no longer waits leaves the lines.
        """
        self.drop(ticket.id)
        self._known[ticket.id] = ticket
        for pool, (place, offers) in _places(self.pool_of, ticket).items():
            self._pools.setdefault(pool, _QueueBuilder()).put(place, offers, ticket)

    def drop(self, ticket_id: str) -> None:
        ticket = self._known.pop(ticket_id, None)
        if ticket is None:
            return
        for pool, (place, offers) in _places(self.pool_of, ticket).items():
            self._pools[pool].drop(place, offers, ticket)

    def queues(self) -> Mapping[str, PoolQueue]:
        """Return pool -> line as it is now. Later changes do not alter the returned values."""
        return {pool: kept.value() for pool, kept in self._pools.items() if kept.tickets}
