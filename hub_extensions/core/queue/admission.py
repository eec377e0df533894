"""The line: who may start now, who waits and why, who is refused.

Pure: tickets, leases, devices and rights in, a verdict for each ticket out. The rules are those of the field's oldest
queues: one line per pool of devices, first come, first served; nobody behind may delay anybody ahead.
Not here: where a ticket is stored, who asks, and how a server is started.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from datetime import datetime
from functools import partial
from operator import attrgetter

from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.offers.model import GpuOffer
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.queue.capacity import Capacity
from hub_extensions.core.queue.forecast import Holding, WaitForecast, forecast_line, starts_now, unknown
from hub_extensions.core.queue.model import (
    Admission,
    Answer,
    Availability,
    Lease,
    LeaseState,
    QueueSnapshot,
    Ticket,
    TicketState,
    Verdict,
)
from hub_extensions.core.reasons import Reason, explain

# ------------------------------------------------------------------ joining


def refuse_to_join(
    snapshot: QueueSnapshot, user: str, server: str, offers: Sequence[OfferId], groups: Sequence[str]
) -> Reason | None:
    """Why this user may not take a place in line for these offers, or None.

    A refusal is only for: an offer that is unknown to the user, larger than anything there is, the
    user's own limits, or a line that is full. Being taken is never a reason: that is what the line is for.
    The user's own live ticket and lease for the same server do not count against him.
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
    waiting = [t for t in snapshot.tickets if t.user == user and t.server != server and not t.is_cpu]
    if len(waiting) >= snapshot.config.tickets_per_user:
        return explain(
            "own-ticket-limit",
            server=waiting[0].server,
            log_message=f"user has {len(waiting)} GPU ticket(s), limit {snapshot.config.tickets_per_user}",
        )
    lengths = PoolQueues(snapshot)
    for wanted in offers:
        pool = known[wanted].pool
        if any((t.user, t.server) == (user, server) for t in lengths.waiting(pool)):
            continue  # in that line already
        if lengths.length(pool) >= snapshot.config.max_waiting:
            most = snapshot.config.max_waiting
            return explain(
                "line-full",
                title=known[wanted].title,
                most=most,
                log_message=f"line {pool} has {lengths.length(pool)} tickets, max_waiting {most}",
            )
    return None


def over_own_limit(snapshot: QueueSnapshot, user: str, server: str) -> Reason | None:
    """Why this user may not hold one more GPU, or None."""
    held = _held_by(snapshot, {user}).get(user, {})
    others = [name for name in held if name != server]
    if len(others) < snapshot.config.gpu_leases_per_user:
        return None
    log = f"user holds {len(others)} GPU lease(s), limit {snapshot.config.gpu_leases_per_user}"
    return explain("own-lease-limit", server=others[0], log_message=log)


def _held_by(snapshot: QueueSnapshot, users: Set[str]) -> dict[str, dict[str, None]]:
    """User -> the servers that hold a GPU, in the order of the leases. What is ending holds none any more."""
    found: dict[str, dict[str, None]] = {}
    for lease in snapshot.leases:
        if lease.user in users and lease.state in (LeaseState.STARTING, LeaseState.RUNNING):
            found.setdefault(lease.user, {})[lease.server] = None
    return found


def _refuse_offer(known: Mapping[OfferId, GpuOffer], wanted: OfferId, groups: Sequence[str]) -> Reason | None:
    """An offer of other groups is answered like one that does not exist; only the log knows them apart."""
    seen = {offer.id for offer in known.values() if not offer.groups or set(offer.groups) & set(groups)}
    if wanted in seen:
        return None
    log = f"unknown offer {wanted!r}"
    if wanted in known:
        log = f"offer {wanted} is for groups {known[wanted].groups}, user has {tuple(groups)}"
    return explain("unknown-offer", offer=wanted[:80], offers=", ".join(sorted(seen)), log_message=log)


# ------------------------------------------------------------------ admission


def admit(snapshot: QueueSnapshot) -> tuple[Admission, ...]:
    """Who starts now. First come, first served in each pool; a ticket with several offers takes the first it can have.

    Only the head of a pool's line can be given something of that pool: whoever is behind could use the same devices,
    so giving him one might delay the head. In another pool he delays nobody, unless both are cut from the same cards:
    then who came first goes first there too. Who holds as many GPUs as he may is passed until he holds fewer.
    """
    room = snapshot.config.max_starting - snapshot.starting
    lines = PoolQueues(snapshot)
    capacity = Capacity(snapshot)
    admissions: list[Admission] = []
    while len(admissions) < room:
        given = _next_admission(lines, capacity)
        if given is None:
            break
        capacity.take(given)
        lines.leave(given)
        admissions.append(given)
    return tuple(admissions)


def _next_admission(lines: PoolQueues, capacity: Capacity) -> Admission | None:
    """The head with the lowest place that can be given something, at the most preferred of the offers it heads."""
    heads: dict[str, tuple[int, Ticket]] = {}
    for pool in lines.pools:
        head = lines.head(pool)
        if head is not None and (head[1].id not in heads or head[0] < heads[head[1].id][0]):
            heads[head[1].id] = head
    kept: set[str] = set()
    for _, ticket in sorted(heads.values(), key=lambda entry: entry[0]):
        waits_for: set[str] = set()
        for choice in ticket.choices:
            offer = capacity.offers.get(choice.offer)
            if offer is None or not lines.is_next(offer.pool or CPU, ticket.id, choice.place):
                continue
            fits, device = capacity.fit(offer)
            if fits and offer.pool not in kept:
                return Admission(ticket.id, offer.id, device)
            others = capacity.foreign.get(offer.pool, 0)
            if (
                offer.pool in capacity.cut and capacity.total.get(offer.pool, 0) > others
            ):  # else others' pods are in the way
                waits_for.add(offer.pool)
        for pool in waits_for:
            kept |= capacity.costing(pool)
    return None


class PoolQueues:
    """The waiting tickets of each pool in the order of their places (CPU only is the pool ``cpu``)."""

    def __init__(self, snapshot: QueueSnapshot) -> None:
        self._pool_of = {offer.id: offer.pool or CPU for offer in snapshot.offers}
        entries: dict[str, list[Ticket]] = {}  # tickets only, no pairs: a long line costs no garbage collection
        for ticket in snapshot.tickets:
            if ticket.state is not TicketState.WAITING:
                continue
            for pool in {self._pool_of[c.offer] for c in ticket.choices if c.offer in self._pool_of}:
                entries.setdefault(pool, []).append(ticket)
        for pool, waiting in entries.items():
            waiting.sort(key=partial(self._place, pool))
        self._entries = entries
        self._first = dict.fromkeys(entries, 0)
        self._left: set[str] = set()
        self._held = _held_by(snapshot, {ticket.user for ticket in snapshot.tickets})
        self._most = snapshot.config.gpu_leases_per_user

    def _place(self, pool: str, ticket: Ticket) -> int:
        return min(choice.place for choice in ticket.choices if self._pool_of.get(choice.offer) == pool)

    @property
    def pools(self) -> tuple[str, ...]:
        return tuple(self._entries)

    def head(self, pool: str) -> tuple[int, Ticket] | None:
        """Its place, and the first ticket that may be given something of this pool."""
        waiting = self._entries.get(pool, [])
        at = self._first[pool] = self._next(pool, self._first.get(pool, 0))
        return (self._place(pool, waiting[at]), waiting[at]) if at < len(waiting) else None

    def is_next(self, pool: str, ticket: str, place: int) -> bool:
        """It heads the line with this place too: an offer that it asked for later has a later one than others have."""
        head = self.head(pool)
        if head is None or head[1].id != ticket:
            return False
        waiting = self._entries[pool]
        behind = self._next(pool, self._first[pool] + 1)
        return behind >= len(waiting) or place < self._place(pool, waiting[behind])

    def _next(self, pool: str, at: int) -> int:
        """From `at` on, the first that has not left and is not passed."""
        waiting = self._entries.get(pool, [])
        while at < len(waiting) and (waiting[at].id in self._left or self.passes(pool, waiting[at])):
            at += 1
        return at

    def passes(self, pool: str, ticket: Ticket) -> bool:
        """Its user's other servers hold as many GPUs as the user may."""
        held = self._held.get(ticket.user)
        return pool != CPU and held is not None and len(held.keys() - {ticket.server}) >= self._most

    def leave(self, given: Admission) -> None:
        """It is admitted, and its user holds one more from now on."""
        self._left.add(given.ticket)
        if given.device is not None:
            pool = self._pool_of[given.offer]
            ticket = self._entries[pool][self._first[pool]]  # it was the head
            self._held.setdefault(ticket.user, {})[ticket.server] = None

    def length(self, pool: str) -> int:
        return sum(1 for ticket in self._entries.get(pool, ()) if ticket.id not in self._left)

    def waiting(self, pool: str) -> list[Ticket]:
        """Tickets of one pool in order, each once (a ticket may name two fractions of one pool)."""
        return [ticket for ticket in self._entries.get(pool, ()) if ticket.id not in self._left]


# ------------------------------------------------------------------ verdicts


def standing(snapshot: QueueSnapshot, now: datetime) -> Mapping[str, Verdict]:
    """The verdict of every waiting ticket, after :func:`admit`: position, reason, forecast.

    The position is the best of a ticket's offers.
    """
    lines = PoolQueues(snapshot)
    capacity = Capacity(snapshot)
    braked = snapshot.starting >= snapshot.config.max_starting
    best: dict[str, Verdict] = {}
    for pool in lines.pools:
        waiting = lines.waiting(pool)
        offers = [_offer_in(capacity, ticket, pool) for ticket in waiting]
        forecasts = _forecasts(snapshot, capacity, pool, [offer.share for offer in offers], now, braked)
        for position, (ticket, offer) in enumerate(zip(waiting, offers, strict=True), start=1):
            known = best.get(ticket.id)
            if known is not None and known.position <= position:
                continue
            forecast = forecasts[position - 1]
            if lines.passes(pool, ticket) and (over := over_own_limit(snapshot, ticket.user, ticket.server)):
                reason = explain("own-lease-first", **over.params, log_message=over.log_message)
                forecast = unknown(explain("after-own-server"))
            else:
                reason = _why(snapshot, capacity, offer, position - 1, braked)
            best[ticket.id] = Verdict(Answer.WAIT, reason, offer.id, None, position, position - 1, forecast)
    return best


def _offer_in(capacity: Capacity, ticket: Ticket, pool: str) -> GpuOffer:
    """The offer of its first place in this pool; of several with one place the one its user prefers."""
    here = (c for c in ticket.choices if c.offer in capacity.offers and (capacity.offers[c.offer].pool or CPU) == pool)
    return capacity.offers[min(here, key=attrgetter("place")).offer]


def _forecasts(
    snapshot: QueueSnapshot, capacity: Capacity, pool: str, shares: list[int], now: datetime, braked: bool
) -> tuple[WaitForecast, ...]:
    why = _no_forecast(snapshot, capacity, pool)
    if why is not None:
        return tuple(unknown(why) for _ in shares)
    held = [lease for lease in snapshot.leases if lease.pool == pool and lease.state is not LeaseState.ENDED]
    if snapshot.pools is not None:
        return _counted_forecasts(snapshot, capacity, pool, held, shares, now, braked)
    return forecast_line(
        devices=capacity.devices(pool),
        holdings=tuple(Holding(lease.device, lease.share, _end(lease, now)) for lease in held),
        shares=shares,
        lifetime=snapshot.lifetime,
        start_allowance=snapshot.start_allowance,
        now=now,
        max_starting=snapshot.config.max_starting,
        held_back=braked,
    )


def _no_forecast(snapshot: QueueSnapshot, capacity: Capacity, pool: str) -> Reason | None:
    """Why nothing can be said of a pool's waits; None when something can."""
    if pool == CPU:
        return explain("others-start")
    if snapshot.queue:
        return explain("line-elsewhere", queue=snapshot.queue)
    if not capacity.known or pool in capacity.unknown:
        return explain("not-known-which-free")
    if pool in capacity.cut:
        return explain("cut-as-asked")
    if any(offer.pool == pool and offer.id in snapshot.held_up for offer in snapshot.offers):
        return explain("free-one-taken-outside")
    return None


def _counted_forecasts(
    snapshot: QueueSnapshot,
    capacity: Capacity,
    pool: str,
    held: Sequence[Lease],
    shares: list[int],
    now: datetime,
    braked: bool,
) -> tuple[WaitForecast, ...]:
    """Counted devices have no names: each lease is one, and each that is free. Only equal shares are equal slots."""
    if len({*shares, *(lease.share for lease in held)}) > 1:
        return tuple(unknown(explain("parts-differ")) for _ in shares)
    free = sum(room // shares[0] * count for room, count in capacity.room(pool).items()) if shares else 0
    slots = [lease.id for lease in held] + [f"free {number}" for number in range(min(free, len(shares)))]
    return forecast_line(
        devices=slots,
        holdings=tuple(Holding(lease.id, WHOLE, _end(lease, now)) for lease in held),
        shares=[WHOLE] * len(shares),
        lifetime=snapshot.lifetime,
        start_allowance=snapshot.start_allowance,
        now=now,
        max_starting=snapshot.config.max_starting,
        held_back=braked,
        by_others_too=True,
    )


def _end(lease: Lease, now: datetime) -> datetime | None:
    """The enforced end. A lease whose left-overs outlived it has none: what cannot be ended holds its device."""
    late = lease.state is LeaseState.ENDING and lease.ends_at is not None and lease.ends_at < now
    return None if late else lease.ends_at


def _why(snapshot: QueueSnapshot, capacity: Capacity, offer: GpuOffer, ahead: int, braked: bool) -> Reason:
    if offer.id in snapshot.held_up:
        return explain("taken-outside", ahead=ahead, log_message=f"an admitted pod of {offer.id} is not scheduled")
    if offer.pool and (not capacity.known or (offer.pool in capacity.unknown and not capacity.free(offer))):
        return explain("unknown-inventory", ahead=ahead, log_message="inventory unknown")
    total = capacity.total.get(offer.pool, 0)
    if offer.pool and total == 0:
        return explain(
            "none-there", title=offer.title, ahead=ahead, log_message=f"no usable device in pool {offer.pool}"
        )
    if not offer.pool or capacity.free(offer) > 0:
        if braked:
            most = snapshot.config.max_starting
            return explain("start-brake", starting=most, ahead=ahead, log_message=f"start brake, max_starting {most}")
        if offer.pool in capacity.cut and not ahead:
            log = f"the head of a pool of the same cards as {offer.pool} first"
            return explain("behind-on-same-cards", ahead=ahead, log_message=log)
        return explain("behind", ahead=ahead, log_message=f"head of {offer.pool} first")
    foreign = capacity.foreign.get(offer.pool, 0)
    if foreign == total:
        return explain("held-by-others", total=total, ahead=ahead, log_message=f"{foreign} of {total} held by others")
    if offer.pool in capacity.cut:
        log = f"pool {offer.pool} shares its cards, none free"
        return explain("in-use-or-cut", title=offer.title, ahead=ahead, log_message=log)
    log = f"{total} in pool {offer.pool}, none free for share {offer.share}"
    if foreign:
        return explain(
            "in-use-also-by-others", total=total, title=offer.title, foreign=foreign, ahead=ahead, log_message=log
        )
    return explain("in-use", total=total, title=offer.title, ahead=ahead, log_message=log)


def availability(snapshot: QueueSnapshot, now: datetime) -> tuple[Availability, ...]:
    """How every offer stands now, and the wait of somebody who joined this moment."""
    lines = PoolQueues(snapshot)
    capacity = Capacity(snapshot)
    return tuple(_availability(snapshot, lines, capacity, offer, now) for offer in snapshot.offers)


def _availability(
    snapshot: QueueSnapshot, lines: PoolQueues, capacity: Capacity, offer: GpuOffer, now: datetime
) -> Availability:
    pool = offer.pool or CPU
    waiting = lines.waiting(pool)
    if not offer.pool:
        return Availability(offer, None, None, 0, 0, 0, len(waiting), starts_now(explain("starts-now")))
    leases = [lease for lease in snapshot.leases if lease.pool == offer.pool and lease.state is not LeaseState.ENDED]
    lost = sum(1 for lease in leases if lease.state is LeaseState.LOST)
    held = sum(1 for lease in leases if lease.offer == offer.id) - sum(
        1 for lease in leases if lease.offer == offer.id and lease.state is LeaseState.LOST
    )
    free = capacity.free(offer)
    if not capacity.known or (offer.pool in capacity.unknown and not free):
        wait = unknown(explain("not-known-which-free"))
        return Availability(offer, None, None, held, 0, lost, len(waiting), wait, snapshot.queue)
    total = capacity.total.get(offer.pool, 0) * (WHOLE // offer.share)
    foreign = capacity.foreign.get(offer.pool, 0)
    before = lines.head(pool) or any(map(lines.head, capacity.costed(offer.pool)))
    if free > 0 and not before and not snapshot.queue and offer.id not in snapshot.held_up:
        wait = starts_now(explain("one-free"))
    else:
        shares = [_offer_in(capacity, ticket, pool).share for ticket in waiting] + [offer.share]
        wait = _forecasts(snapshot, capacity, pool, shares, now, False)[-1]
    return Availability(offer, free, total, held, foreign, lost, len(waiting), wait, snapshot.queue)
