"""Admission: which tickets (places in line) may start now, which wait and why, and which are refused.

The input is a snapshot of tickets, leases, devices and rights. The output is a verdict for each ticket. The rules for
the order of the tickets are in ``discipline.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import accumulate
from operator import itemgetter

from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.offers.model import GpuOffer
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.queue.bounds import bounds_of, bounds_on_nodes, brake_of
from hub_extensions.core.queue.capacity import Capacity
from hub_extensions.core.queue.discipline import (
    Candidate,
    Head,
    QueuedOffer,
    Shares,
    limit_left,
    next_grant,
    starts_left,
)
from hub_extensions.core.queue.heads import PoolQueues, held_by, offer_in
from hub_extensions.core.queue.model import (
    Admission,
    Answer,
    Availability,
    LeaseState,
    QueueSnapshot,
    Ticket,
    Verdict,
)
from hub_extensions.core.queue.node_sets import NodeWish
from hub_extensions.core.queue.wait_bound import (
    QueueForecast,
    WaitForecast,
    after_other_starts,
    best_of,
    starts_now,
    unknown,
    within_max_wait,
)
from hub_extensions.core.text.reasons import Reason, explain

# ------------------------------------------------------------------ joining


def refuse_to_join(
    snapshot: QueueSnapshot, user: str, server: str, offers: Sequence[OfferId], groups: Sequence[str]
) -> Reason | None:
    """Return why this user may not take a place in line for these offers, or None if the user may.

    The user is refused if an offer is unknown or not for the user's groups, if the user has reached a limit, or if the
    line is full. A device that is in use is never a reason to refuse. The user's own ticket and lease for the same
    server do not count.

    Args:
        server: name of the server that the user wants to start.
        offers: the offers that the user accepts.
        groups: the user's groups.
    """
    known = {offer.id: offer for offer in snapshot.offers}
    for wanted in offers:
        refusal = _refuse_offer(known, wanted, groups)
        if refusal is not None:
            return refusal
    if all(wanted == CPU for wanted in offers):
        return None
    refusal = over_own_limit(snapshot, user, server)
    if refusal is not None:
        return refusal
    own = [t for t in snapshot.tickets if t.user == user and not t.is_cpu]
    waiting = [t for t in own if t.server != server]
    if len(waiting) >= snapshot.config.tickets_per_user:
        return explain(
            "own-ticket-limit",
            server=waiting[0].server,
            log_message=f"user has {len(waiting)} GPU ticket(s), limit {snapshot.config.tickets_per_user}",
        )
    lengths = PoolQueues(snapshot)
    for wanted in offers:
        pool = known[wanted].pool
        if any(t.server == server and lengths.has(pool, t) for t in own):
            continue  # in that line already
        if lengths.length(pool) >= snapshot.config.max_waiting:
            most = snapshot.config.max_waiting
            return explain(
                "line-full",
                title=known[wanted].plain_name,
                most=most,
                log_message=f"line {pool} has {lengths.length(pool)} tickets, max_waiting {most}",
            )
    return None


def over_own_limit(snapshot: QueueSnapshot, user: str, server: str) -> Reason | None:
    """Return why this user may not hold one more GPU for this server, or None if the user may.

    Args:
        server: the server to start. A GPU that it already holds does not count.
    """
    held = held_by(snapshot, {user}).get(user, {})
    if limit_left(held.keys(), server, snapshot.config.gpu_leases_per_user) > 0:
        return None
    others = [name for name in held if name != server]
    log = f"user holds {len(others)} GPU lease(s), limit {snapshot.config.gpu_leases_per_user}"
    return explain("own-lease-limit", server=others[0], log_message=log)


def _refuse_offer(known: Mapping[OfferId, GpuOffer], wanted: OfferId, groups: Sequence[str]) -> Reason | None:
    """Return why an offer is refused to a user who wants to join its line, or None if the user may choose it.

    An offer of other groups is refused with the same text as an unknown offer; only the log message differs.

    Args:
        known: all offers that exist.
        wanted: id of the offer that the user wants.
        groups: the user's groups.
    """
    seen = {offer.id for offer in known.values() if not offer.groups or set(offer.groups) & set(groups)}
    if wanted in seen:
        return None
    log = f"unknown offer {wanted!r}"
    if wanted in known:
        log = f"offer {wanted} is for groups {known[wanted].groups}, user has {tuple(groups)}"
    return explain("unknown-offer", offer=wanted[:80], offers=", ".join(sorted(seen)), log_message=log)


# ------------------------------------------------------------------ admission


def admit(snapshot: QueueSnapshot) -> tuple[Admission, ...]:
    """Return the tickets that start now, by the rules of ``discipline.py``.

    A ticket with several offers gets the first one that is available. The tickets of a user who holds as many GPUs as
    allowed are passed over until the user holds fewer.
    """
    room = starts_left(snapshot.config.max_starting, snapshot.starting)
    capacity = Capacity(snapshot)
    queues = PoolQueues(snapshot, capacity)
    admissions: list[Admission] = []
    while len(admissions) < room:
        given = _next_admission(queues, capacity)
        if given is None:
            break
        ticket = queues.leave(given)
        capacity.take(given, ticket)
        admissions.append(given)
    return tuple(admissions)


def _next_admission(queues: PoolQueues, capacity: Capacity) -> Admission | None:
    heads: dict[str, tuple[Ticket, dict[str, Head]]] = {}
    for pool in queues.queues:
        for ticket, head in queues.heads(pool):
            heads.setdefault(ticket.id, (ticket, {}))[1][pool] = head

    def fit(candidate: Candidate, wanted: QueuedOffer) -> Shares | None:
        offer, (ticket, own) = capacity.offers[wanted.offer], heads[candidate.ticket]
        return capacity.fit(offer, ticket, own[wanted.queue].ahead)

    def reserves(pool: str) -> frozenset[str]:
        if pool not in capacity.cut or capacity.total.get(pool, 0) <= capacity.foreign.get(pool, 0):
            return frozenset()  # if others' pods are in the way, nothing becomes free by waiting
        return capacity.costing(pool)

    candidates = (Candidate(ticket.id, queues.wanted_offers(ticket), own) for ticket, own in heads.values())
    found = next_grant(candidates, fit, reserves)
    if found is None:
        return None
    return Admission(found.ticket, found.wanted.offer, found.shares[0][0] if found.shares else None)


# ------------------------------------------------------------------ verdicts


class Standing(Mapping[str, Verdict]):
    """Ticket id -> verdict of every waiting ticket: its position, why it waits, and its longest possible wait.

    A verdict is computed on access, because most verdicts of a long line are never read. Values that a whole line
    shares, such as the upper bounds of its waits, are computed once.
    """

    def __init__(self, snapshot: QueueSnapshot, now: datetime) -> None:
        self._snapshot = snapshot
        self._now = now
        self._capacity = Capacity(snapshot)
        self._queues = PoolQueues(snapshot, self._capacity)
        self._on_nodes = {pool: _OnNodes(self._queues, pool) for pool in self._capacity.by_node}
        self._braked = starts_left(snapshot.config.max_starting, snapshot.starting) <= 0
        self._forecasts: dict[str, QueueForecast] = {}
        self._tickets: Mapping[str, Ticket] | None = None

    def of(self, ticket: Ticket) -> Verdict | None:
        """Return the verdict of a ticket, or None if the ticket waits in no line.

        A ticket that waits in several lines gets its best position and the best wait.
        """
        places = [(self._queues.position(pool, ticket), pool) for pool in self._queues.pools_of(ticket)]
        found = [(self._concerned(pool, ticket, place), pool) for place, pool in places if place is not None]
        if not found:
            return None
        found.sort(key=itemgetter(0))
        forecast = best_of([self._wait(pool, ticket, position) for position, pool in found])
        config = self._snapshot.config
        forecast = within_max_wait(forecast, ticket.joined + config.max_wait - self._now, config.max_wait)
        return self._verdict(ticket, *found[0], forecast)

    def could_have(self, offer: GpuOffer, ticket: Ticket) -> bool:
        """Return whether a device of the offer is free on the nodes that the ticket's server may use.

        Always True for a pool of which all servers may use the same nodes.
        """
        return offer.pool not in self._capacity.by_node or self._capacity.seen_by(offer, ticket).free > 0

    def _concerned(self, pool: str, ticket: Ticket, position: int) -> int:
        """Return the ticket's position if only those tickets of this line count that may use one of the same nodes.

        Args:
            pool: id of the pool (all devices of one kind) of the line.
            ticket: the ticket.
            position: its position among all tickets of the line.
        """
        wish = self._queues.wish(pool, ticket)
        return position if wish is None else self._on_nodes[pool].ahead(wish, position - 1) + 1

    def _verdict(self, ticket: Ticket, position: int, pool: str, forecast: WaitForecast) -> Verdict:
        offer = offer_in(self._capacity, ticket, pool)
        reason = _why(self._snapshot, self._capacity, offer, ticket, position - 1, self._braked)
        if self._queues.is_passed(pool, ticket) and (
            over := over_own_limit(self._snapshot, ticket.user, ticket.server)
        ):
            reason = explain("own-lease-first", **over.params, log_message=over.log_message)
        return Verdict(Answer.WAIT, reason, offer.id, None, position, position - 1, forecast)

    def _wait(self, pool: str, ticket: Ticket, position: int) -> WaitForecast:
        """Return the ticket's wait in this line, with its upper bound if there is one.

        Args:
            pool: id of the pool (all devices of one kind) of the line.
            position: the ticket's position in the line, counted from 1, among the tickets whose servers may use one of
                the same nodes.
        """
        if self._queues.is_passed(pool, ticket) or self._queues.can_be_overtaken(pool, ticket):
            return unknown(explain("after-own-server"))
        wish = self._queues.wish(pool, ticket)
        queue = self._forecast(pool) if wish is None else self._node_forecast(pool, ticket, wish)
        return queue(position - 1, self._queues.came_before(pool, ticket))

    def _forecast(self, pool: str) -> QueueForecast:
        known = self._forecasts.get(pool)
        if known is None:
            shares, places = self._queues.shares(pool), self._queues.length(pool)
            known = bounds_of(self._snapshot, self._capacity, pool, shares, places, self._now)
            self._forecasts[pool] = known
        return known

    def _node_forecast(self, pool: str, ticket: Ticket, wish: NodeWish) -> QueueForecast:
        queue = self._on_nodes[pool]
        if wish not in queue.forecasts:
            seen = self._capacity.seen_by(offer_in(self._capacity, ticket, pool), ticket)
            shares, places = queue.shares_of(wish)
            queue.forecasts[wish] = bounds_on_nodes(
                self._snapshot, self._capacity, pool, (wish, seen), shares, places, self._now
            )
        return queue.forecasts[wish]

    def _known(self) -> Mapping[str, Ticket]:
        if self._tickets is None:
            queues = self._queues.queues.values()
            self._tickets = {ticket.id: ticket for queue in queues for ticket in queue.tickets}
        return self._tickets

    def __getitem__(self, ticket_id: str) -> Verdict:
        verdict = self.of(self._known()[ticket_id])
        if verdict is None:
            raise KeyError(ticket_id)
        return verdict

    def __iter__(self) -> Iterator[str]:
        return iter(self._known())

    def __len__(self) -> int:
        return len(self._known())


def standing(snapshot: QueueSnapshot, now: datetime) -> Standing:
    """Return the verdict (position, reason, wait) of every ticket that still waits after :func:`admit`."""
    return Standing(snapshot, now)


class _OnNodes:
    """The line of a pool in which servers may use different nodes.

    For each ticket, only those tickets ahead are counted that may use at least one of the same nodes.
    """

    def __init__(self, queues: PoolQueues, pool: str) -> None:
        self._wishes = queues.wishes(pool)
        self._shares = [queues.shares_of(pool, ticket) for ticket in queues.queue(pool).tickets]
        self._before: dict[frozenset[str], list[int]] = {}
        self.forecasts: dict[NodeWish, QueueForecast] = {}

    def ahead(self, wish: NodeWish, position: int) -> int:
        """Return how many of the first `position` tickets in line may use a node that the wish may use too.

        Args:
            wish: the nodes that a server may use, and the share of a device that it asks for.
            position: number of tickets from the head of the line that are counted.
        """
        if wish.nodes not in self._before:
            met = ((1 if other.nodes & wish.nodes else 0) for other in self._wishes)
            self._before[wish.nodes] = [0, *accumulate(met)]
        return self._before[wish.nodes][position]

    def shares_of(self, wish: NodeWish) -> tuple[set[int], int]:
        """Return which shares are asked for on the nodes of a wish, and by how many tickets.

        The shares are those of the tickets that may use one of these nodes, and the wish's own. The number of such
        tickets is at least 1.

        Args:
            wish: the nodes that a server may use, and the share of a device (thousandths) that it needs.
        """
        met = [each for other, each in zip(self._wishes, self._shares, strict=True) if other.nodes & wish.nodes]
        return {wish.share}.union(*met), max(1, len(met))


def _why(
    snapshot: QueueSnapshot, capacity: Capacity, offer: GpuOffer, ticket: Ticket, ahead: int, braked: bool
) -> Reason:
    if offer.id in snapshot.over_quota:
        why = snapshot.over_quota[offer.id]
        code = "over-quota-of-ahead" if why.params else "over-quota-ahead"
        return explain(code, **why.params, ahead=ahead, log_message=why.message)
    seen = capacity.seen_by(offer, ticket)
    if seen.held_up:
        code = "machine-silent" if seen.silent else "taken-outside"
        return explain(code, ahead=ahead, log_message=f"an admitted pod of {offer.id} is not scheduled")
    if offer.pool and (not capacity.known or (seen.unknown and not seen.free)):
        return explain("unknown-inventory", ahead=ahead, log_message="inventory unknown")
    total = seen.total
    if offer.pool and total == 0:
        code = "none-on-its-machines" if seen.part else "none-there"
        return explain(code, title=offer.plain_name, ahead=ahead, log_message=f"no usable device in pool {offer.pool}")
    if not offer.pool or seen.free > 0:
        if braked:
            most = snapshot.config.max_starting
            return explain("start-brake", starting=most, ahead=ahead, log_message=f"start brake, max_starting {most}")
        if offer.pool in capacity.cut and not ahead:
            log = f"the head of a pool of the same cards as {offer.pool} first"
            return explain("behind-on-same-cards", ahead=ahead, log_message=log)
        return explain("behind", ahead=ahead, log_message=f"head of {offer.pool} first")
    foreign = seen.foreign
    if seen.part:
        log = f"{total} of pool {offer.pool} on its nodes, {foreign} of them held by others, none free"
        return explain("in-use-on-its-machines", total=total, title=offer.plain_name, ahead=ahead, log_message=log)
    if foreign == total:
        return explain("held-by-others", total=total, ahead=ahead, log_message=f"{foreign} of {total} held by others")
    if seen.closed:
        log = f"{seen.closed} of {total} in pool {offer.pool} closed by an admin, none free"
        return explain(
            "closed-by-admin", total=total, title=offer.plain_name, closed=seen.closed, ahead=ahead, log_message=log
        )
    if offer.pool in capacity.cut:
        log = f"pool {offer.pool} shares its cards, none free"
        return explain("in-use-or-cut", title=offer.plain_name, ahead=ahead, log_message=log)
    log = f"{total} in pool {offer.pool}, none free for share {offer.share}"
    if foreign:
        return explain(
            "in-use-also-by-others", total=total, title=offer.plain_name, foreign=foreign, ahead=ahead, log_message=log
        )
    return explain("in-use", total=total, title=offer.plain_name, ahead=ahead, log_message=log)


def availability(snapshot: QueueSnapshot, now: datetime) -> tuple[Availability, ...]:
    """Return for every offer to how many servers it could be given, and the wait of a user who joins the line now."""
    capacity = Capacity(snapshot)
    queues = PoolQueues(snapshot, capacity)
    held_back = starts_left(snapshot.config.max_starting, snapshot.starting) <= 0
    found = (_availability(snapshot, queues, capacity, offer, now) for offer in snapshot.offers)
    return tuple(_after_others(snapshot, queues, each) if held_back and each.wait.now else each for each in found)


def _after_others(snapshot: QueueSnapshot, queues: PoolQueues, found: Availability) -> Availability:
    """Return the availability of a free offer with the wait that the limit of simultaneous starts causes.

    Args:
        snapshot: the state of the lines.
        queues: the lines of all pools.
        found: the availability as if that limit were not reached.
    """
    return replace(found, wait=after_other_starts(brake_of(snapshot), queues.waiting()))


def _availability(
    snapshot: QueueSnapshot, queues: PoolQueues, capacity: Capacity, offer: GpuOffer, now: datetime
) -> Availability:
    pool = offer.pool or CPU
    waiting = queues.length(pool)
    if not offer.pool:
        return Availability(offer, None, None, 0, 0, 0, waiting, starts_now(explain("starts-now")))
    leases = [lease for lease in snapshot.leases if lease.pool == offer.pool and lease.state is not LeaseState.ENDED]
    lost = sum(1 for lease in leases if lease.state is LeaseState.LOST)
    held = sum(1 for lease in leases if lease.offer == offer.id) - sum(
        1 for lease in leases if lease.offer == offer.id and lease.state is LeaseState.LOST
    )
    free = capacity.free(offer)
    if not capacity.known or (offer.pool in capacity.unknown and not free):
        wait = unknown(explain("not-known-which-free"))
        return Availability(offer, None, None, held, 0, lost, waiting, wait, snapshot.queue)
    total = capacity.total.get(offer.pool, 0) * (WHOLE // offer.share)
    foreign = capacity.foreign.get(offer.pool, 0)
    if offer.pool in capacity.by_node:
        wait = _wait_on_nodes(snapshot, queues, capacity, offer, now)
    elif _is_next(snapshot, queues, capacity, offer):
        wait = starts_now(explain("one-free"))
    else:
        shares, places = {*queues.shares(pool), offer.share}, waiting + 1
        wait = bounds_of(snapshot, capacity, pool, shares, places, now)(waiting, queues.waiting())
    max_wait = snapshot.config.max_wait
    wait = within_max_wait(wait, max_wait, max_wait)
    return Availability(offer, free, total, held, foreign, lost, waiting, wait, snapshot.queue)


def _is_next(snapshot: QueueSnapshot, queues: PoolQueues, capacity: Capacity, offer: GpuOffer) -> bool:
    """Return whether a user who joins the line of this offer now would start at once.

    Args:
        queues: the lines of all pools.
        capacity: the devices that can still be given.
    """
    before = queues.has_head(offer.pool) or any(map(queues.has_head, capacity.costed(offer.pool)))
    free = capacity.free(offer) > 0 and offer.id not in snapshot.over_quota
    return free and not before and not snapshot.queue and offer.id not in snapshot.held_up


def _wait_on_nodes(
    snapshot: QueueSnapshot, queues: PoolQueues, capacity: Capacity, offer: GpuOffer, now: datetime
) -> WaitForecast:
    """Return the wait of a user who joins now and may use the nodes that are open to all servers.

    Tickets that may use only other nodes are not ahead of this user.

    Args:
        queues: the lines of all pools.
        capacity: the devices that can still be given.
        offer: the offer whose line the user joins.
    """
    wishes = queues.wishes(offer.pool)
    if offer.id in snapshot.over_quota:
        return unknown(snapshot.over_quota[offer.id])
    if not snapshot.queue and capacity.fit(offer, None, Counter(wishes)) is not None:
        return starts_now(explain("one-free"))
    wish, seen = capacity.wish(offer, None), capacity.seen_by(offer, None)
    shares, places = _OnNodes(queues, offer.pool).shares_of(wish)
    ahead = sum(1 for other in wishes if other.nodes & wish.nodes)
    queue = bounds_on_nodes(snapshot, capacity, offer.pool, (wish, seen), shares, places + 1, now)
    return queue(ahead, queues.waiting())
