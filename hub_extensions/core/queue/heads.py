"""The lines of all pools during one admission: each ticket's position, and the tickets that are served next.

A pool is all devices of one kind. Its line consists of the tickets (servers' places) that wait for these devices. A
ticket is passed over while its user's other servers use up the limit of GPUs per user.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from operator import attrgetter

from hub_extensions.core.offers.model import GpuOffer
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.queue.capacity import Capacity
from hub_extensions.core.queue.discipline import Head, QueuedOffer, limit_left
from hub_extensions.core.queue.model import Admission, LeaseState, PoolQueue, QueueSnapshot, Ticket, TicketState
from hub_extensions.core.queue.node_sets import NodeWish
from hub_extensions.core.queue.pool_queue import pool_queues_of

NOBODY = PoolQueue()
LAST = 2**63


def pools_of(offers: Iterable[GpuOffer]) -> dict[OfferId, str]:
    """Return offer -> the pool (all devices of one kind) in whose line tickets wait for it."""
    return {offer.id: offer.pool or CPU for offer in offers}


def lengths(offers: Iterable[GpuOffer], tickets: Iterable[Ticket]) -> Mapping[OfferId, int]:
    """Return offer -> number of tickets in the line of its pool (all devices of one kind).

    All offers of a pool have the same number.
    """
    pool_of = pools_of(offers)
    waiting = (ticket.wanted_offers for ticket in tickets if ticket.state is TicketState.WAITING)
    in_line = Counter(pool for wanted in waiting for pool in {pool_of.get(each.offer, "") for each in wanted})
    return {offer: in_line[pool] for offer, pool in pool_of.items()}


class PoolQueues:
    """The lines of all pools during one admission: waiting tickets in the order of their places.

    A pool is all devices of one kind. CPU only is the pool ``cpu``.
    """

    def __init__(self, snapshot: QueueSnapshot, capacity: Capacity | None = None) -> None:
        """Build the lines of a snapshot.

        Args:
            capacity: the devices that can still be given. None is allowed if neither `heads` nor `wishes` is called.
        """
        self._capacity = capacity
        self._pool_of = pools_of(snapshot.offers)
        self._share_of = {offer.id: offer.share for offer in snapshot.offers}
        self.queues = pool_queues_of(self._pool_of, snapshot.tickets) if snapshot.queues is None else snapshot.queues
        self._first = dict.fromkeys(self.queues, 0)
        self._left: set[str] = set()
        self._held = held_by(snapshot, {lease.user for lease in snapshot.leases})
        self._most = snapshot.config.gpu_leases_per_user
        self._index: tuple[list[int], dict[str, list[Ticket]]] | None = None

    def queue(self, pool: str) -> PoolQueue:
        return self.queues.get(pool, NOBODY)

    def position(self, pool: str, ticket: Ticket) -> int | None:
        """Return the ticket's position in a pool's line, counted from 1, or None if the ticket is not in that line."""
        queue = self.queue(pool)
        places = (choice.place for choice in ticket.wanted_offers if self._pool_of.get(choice.offer) == pool)
        at = bisect_left(queue.places, min(places, default=0))
        while at < len(queue.tickets) and queue.tickets[at].id != ticket.id:
            at += 1
        return at + 1 if at < len(queue.tickets) else None

    def came_before(self, pool: str, ticket: Ticket) -> int:
        """Return how many tickets of all lines start before this one if too many servers are starting.

        These are the other tickets with an earlier place (a serial number) than this ticket has in the line of this
        pool. Of another ticket with several places, the earliest counts.
        """
        firsts, place = self._known()[0], self._place(pool, ticket)
        itself = min(each.place for each in ticket.wanted_offers if each.offer in self._pool_of) < place
        return bisect_left(firsts, place) - itself

    def waiting(self) -> int:
        """Return how many tickets wait in all lines together."""
        return len(self._known()[0])

    def shares(self, pool: str) -> set[int]:
        """Return the shares of a device (thousandths) that tickets in this line ask for."""
        return {self._share_of[offer] for offer, count in self.queue(pool).asked.items() if count}

    def shares_of(self, pool: str, ticket: Ticket) -> set[int]:
        """Return the shares of a device of this pool (thousandths) that the ticket asks for."""
        return {self._share_of[each.offer] for each in ticket.wanted_offers if self._pool_of.get(each.offer) == pool}

    def can_be_overtaken(self, pool: str, ticket: Ticket) -> bool:
        """Return whether other tickets of the user may be served before this one and use up the user's limit of GPUs.

        If so, the wait of this ticket has no upper bound.
        """
        own = self._known()[1].get(ticket.user, ())
        before = {other.server for other in own if other.id != ticket.id and not self._is_behind(other, pool, ticket)}
        held = self._held.get(ticket.user, {})
        return pool != CPU and limit_left(before | held.keys(), ticket.server, self._most) < 1

    def _is_behind(self, other: Ticket, pool: str, ticket: Ticket) -> bool:
        """Return whether `other` waits only in this line, at a later place than `ticket`."""
        pools = [each for each in self.pools_of(other) if each != CPU]
        return pools == [pool] and self._place(pool, other) > self._place(pool, ticket)

    def _place(self, pool: str, ticket: Ticket) -> int:
        return min(choice.place for choice in ticket.wanted_offers if self._pool_of.get(choice.offer) == pool)

    def _known(self) -> tuple[list[int], dict[str, list[Ticket]]]:
        """Return all waiting tickets in two forms. They are computed once, at the first call.

        A ticket has one place (serial number) for each of its offers, so that it waits in several lines at once.

        Returns:
            The lowest place of each ticket, in ascending order. Second, user -> the user's tickets that wait for a GPU,
            without those for CPU only.
        """
        if self._index is None:
            first, own = dict[str, int](), dict[str, dict[str, Ticket]]()
            for pool, queue in self.queues.items():
                for place, ticket in zip(queue.places, queue.tickets, strict=True):
                    first[ticket.id] = min(place, first.get(ticket.id, place))
                    if pool != CPU:
                        own.setdefault(ticket.user, {})[ticket.id] = ticket
            self._index = sorted(first.values()), {user: list(tickets.values()) for user, tickets in own.items()}
        return self._index

    def pools_of(self, ticket: Ticket) -> list[str]:
        """Return the pools in whose lines the ticket waits, in the user's order of preference."""
        if ticket.state is not TicketState.WAITING:
            return []
        return list(
            dict.fromkeys(self._pool_of[each.offer] for each in ticket.wanted_offers if each.offer in self._pool_of)
        )

    def has(self, pool: str, ticket: Ticket) -> bool:
        return pool in self.pools_of(ticket)

    def wanted_offers(self, ticket: Ticket) -> tuple[QueuedOffer, ...]:
        """Return the offers that the ticket accepts, in the user's order; offers that are not known are left out."""
        return tuple(
            QueuedOffer(each.offer, self._pool_of[each.offer], each.place)
            for each in ticket.wanted_offers
            if each.offer in self._pool_of
        )

    def has_head(self, pool: str) -> bool:
        """Return whether the line has a ticket that can be served next.

        Tickets of users who have used up their limit of GPUs do not count.
        """
        at = self._first[pool] = self._next(pool, self._first.get(pool, 0))
        return at < len(self.queue(pool).tickets)

    def heads(self, pool: str) -> list[tuple[Ticket, Head]]:
        """Return the tickets that may be served next in this line, each with its position.

        Usually this is only the first ticket. If servers may use different nodes of the pool, it is the first ticket
        for each combination of nodes and share (thousandths of a device that a ticket asks for).
        """
        found: list[tuple[Ticket, Head]] = []
        queue = self.queue(pool)
        ahead = Counter[NodeWish]()
        at = self._first[pool] = self._next(pool, self._first.get(pool, 0))
        while at < len(queue.tickets):
            behind = self._next(pool, at + 1)
            next_place = queue.places[behind] if behind < len(queue.places) else LAST
            ticket, wish = queue.tickets[at], self.wish(pool, queue.tickets[at])
            if wish is None or wish not in ahead:
                found.append((ticket, Head(queue.places[at], next_place, Counter(ahead))))
            if wish is None:
                break
            ahead[wish] += 1
            at = behind
        return found

    def wish(self, pool: str, ticket: Ticket) -> NodeWish | None:
        """Return the nodes and the share (thousandths of a device) that the ticket waits for.

        None for a pool of which all servers may use the same nodes.
        """
        if self._capacity is None or pool not in self._capacity.by_node:
            return None
        return self._capacity.wish(offer_in(self._capacity, ticket, pool), ticket)

    def wishes(self, pool: str) -> tuple[NodeWish, ...]:
        """Return the nodes and the share (thousandths of a device) that each ticket in the line asks for.

        Empty for a pool of which all servers may use the same nodes.
        """
        found = (self.wish(pool, ticket) for ticket in self.queue(pool).tickets)
        return tuple(wish for wish in found if wish is not None)

    def _next(self, pool: str, at: int) -> int:
        """Return the index of the first ticket, from index `at` on, that is neither admitted yet nor passed over."""
        waiting = self.queue(pool).tickets
        while at < len(waiting) and (waiting[at].id in self._left or self.is_passed(pool, waiting[at])):
            at += 1
        return at

    def is_passed(self, pool: str, ticket: Ticket) -> bool:
        """Return whether the ticket is passed over because its user's other servers use up the user's limit of GPUs."""
        held = self._held.get(ticket.user)
        return pool != CPU and held is not None and limit_left(held.keys(), ticket.server, self._most) < 1

    def leave(self, given: Admission) -> Ticket:
        """Take an admitted ticket out of the lines and return it.

        Its server then counts against the user's limit of GPUs.

        Args:
            given: the admission of the ticket.
        """
        heads = self.heads(self._pool_of[given.offer])
        ticket = next(ticket for ticket, _ in heads if ticket.id == given.ticket)
        self._left.add(given.ticket)
        if given.device is not None:
            self._held.setdefault(ticket.user, {})[ticket.server] = None
        return ticket

    def length(self, pool: str) -> int:
        """Return the number of tickets in the line, including those that this admission has already admitted."""
        return len(self.queue(pool).tickets)


def held_by(snapshot: QueueSnapshot, users: Set[str]) -> dict[str, dict[str, None]]:
    """Return user -> servers that hold a GPU, in the order of the leases. Ending and lost leases do not count.

    Args:
        users: names of the users to include.
    """
    found: dict[str, dict[str, None]] = {}
    for lease in snapshot.leases:
        if lease.user in users and lease.state in (LeaseState.STARTING, LeaseState.RUNNING):
            found.setdefault(lease.user, {})[lease.server] = None
    return found


def offer_in(capacity: Capacity, ticket: Ticket, pool: str) -> GpuOffer:
    """Return the offer for which the ticket waits in this pool's line.

    A ticket has a place (a serial number) for each offer that it accepts. If it accepts several offers of this pool,
    the offer with the earliest place counts; if several have that place, the one that the user prefers.
    """
    here = (
        c for c in ticket.wanted_offers if c.offer in capacity.offers and (capacity.offers[c.offer].pool or CPU) == pool
    )
    return capacity.offers[min(here, key=attrgetter("place")).offer]
