"""The line: who may start now, who waits and why, who is refused.

Pure: tickets, leases, devices and rights in, a verdict for each ticket out. The rules are those of the field's oldest
queues: one line per pool of devices, first come, first served; nobody behind may delay anybody ahead.
Not here: where a ticket is stored, who asks, and how a server is started.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from datetime import datetime
from operator import attrgetter, itemgetter

from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.offers.model import GpuOffer
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.queue.capacity import Capacity
from hub_extensions.core.queue.forecast import Holding, LineForecast, WaitForecast, forecast_line, starts_now, unknown
from hub_extensions.core.queue.line import lines_of
from hub_extensions.core.queue.model import (
    Admission,
    Answer,
    Availability,
    Lease,
    LeaseState,
    Line,
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
    for pool in lines.lines:
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


NOBODY = Line()


def pools_of(offers: Iterable[GpuOffer]) -> dict[OfferId, str]:
    """Offer -> the pool in whose line one waits for it."""
    return {offer.id: offer.pool or CPU for offer in offers}


class PoolQueues:
    """The waiting tickets of each pool in the order of their places (CPU only is the pool ``cpu``)."""

    def __init__(self, snapshot: QueueSnapshot) -> None:
        self._pool_of = pools_of(snapshot.offers)
        self.lines = lines_of(self._pool_of, snapshot.tickets) if snapshot.kept is None else snapshot.kept
        self._first = dict.fromkeys(self.lines, 0)
        self._left: set[str] = set()
        self._held = _held_by(snapshot, {lease.user for lease in snapshot.leases})
        self._most = snapshot.config.gpu_leases_per_user

    def line(self, pool: str) -> Line:
        return self.lines.get(pool, NOBODY)

    def position(self, pool: str, ticket: Ticket) -> int | None:
        """1 is the first; None: it is not in that line."""
        line = self.line(pool)
        places = (choice.place for choice in ticket.choices if self._pool_of.get(choice.offer) == pool)
        at = bisect_left(line.places, min(places, default=0))
        while at < len(line.tickets) and line.tickets[at].id != ticket.id:
            at += 1
        return at + 1 if at < len(line.tickets) else None

    def pools_of(self, ticket: Ticket) -> list[str]:
        """The lines that it is in, in the order of what its user prefers."""
        if ticket.state is not TicketState.WAITING:
            return []
        return list(dict.fromkeys(self._pool_of[each.offer] for each in ticket.choices if each.offer in self._pool_of))

    def has(self, pool: str, ticket: Ticket) -> bool:
        return pool in self.pools_of(ticket)

    def head(self, pool: str) -> tuple[int, Ticket] | None:
        """Its place, and the first ticket that may be given something of this pool."""
        line = self.line(pool)
        at = self._first[pool] = self._next(pool, self._first.get(pool, 0))
        return (line.places[at], line.tickets[at]) if at < len(line.tickets) else None

    def is_next(self, pool: str, ticket: str, place: int) -> bool:
        """It heads the line with this place too: an offer that it asked for later has a later one than others have."""
        head = self.head(pool)
        if head is None or head[1].id != ticket:
            return False
        places = self.line(pool).places
        behind = self._next(pool, self._first[pool] + 1)
        return behind >= len(places) or place < places[behind]

    def _next(self, pool: str, at: int) -> int:
        """From `at` on, the first that has not left and is not passed."""
        waiting = self.line(pool).tickets
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
            ticket = self.line(pool).tickets[self._first[pool]]  # it was the head
            self._held.setdefault(ticket.user, {})[ticket.server] = None

    def length(self, pool: str) -> int:
        """Before anybody was given anything."""
        return len(self.line(pool).tickets)


# ------------------------------------------------------------------ verdicts


class Standing(Mapping[str, Verdict]):
    """The verdict of every waiting ticket, each found when it is asked for: of a long line most did not change.

    What all of a line have in common, its forecast above all, is computed once.
    """

    def __init__(self, snapshot: QueueSnapshot, now: datetime) -> None:
        self._snapshot = snapshot
        self._now = now
        self._lines = PoolQueues(snapshot)
        self._capacity = Capacity(snapshot)
        self._braked = snapshot.starting >= snapshot.config.max_starting
        self._forecasts: dict[str, Sequence[WaitForecast]] = {}
        self._tickets: Mapping[str, Ticket] | None = None

    def of(self, ticket: Ticket) -> Verdict | None:
        """None: it waits for nothing that there is. The position is the best of its offers'."""
        places = [(self._lines.position(pool, ticket), pool) for pool in self._lines.pools_of(ticket)]
        found = [(position, pool) for position, pool in places if position is not None]
        return self._verdict(ticket, *min(found, key=itemgetter(0))) if found else None

    def _verdict(self, ticket: Ticket, position: int, pool: str) -> Verdict:
        offer = _offer_in(self._capacity, ticket, pool)
        if self._lines.passes(pool, ticket) and (over := over_own_limit(self._snapshot, ticket.user, ticket.server)):
            reason = explain("own-lease-first", **over.params, log_message=over.log_message)
            forecast = unknown(explain("after-own-server"))
        else:
            reason = _why(self._snapshot, self._capacity, offer, position - 1, self._braked)
            forecast = self._forecast(pool)[position - 1]
        return Verdict(Answer.WAIT, reason, offer.id, None, position, position - 1, forecast)

    def _forecast(self, pool: str) -> Sequence[WaitForecast]:
        known = self._forecasts.get(pool)
        if known is None:
            shares = _shares(self._capacity, self._lines.line(pool))
            known = _forecasts(self._snapshot, self._capacity, pool, shares, self._now, self._braked)
            self._forecasts[pool] = known
        return known

    def _known(self) -> Mapping[str, Ticket]:
        if self._tickets is None:
            lines = self._lines.lines.values()
            self._tickets = {ticket.id: ticket for line in lines for ticket in line.tickets}
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
    """The verdict of every waiting ticket, after :func:`admit`: position, reason, forecast."""
    return Standing(snapshot, now)


def _offer_in(capacity: Capacity, ticket: Ticket, pool: str) -> GpuOffer:
    """The offer of its first place in this pool; of several with one place the one its user prefers."""
    here = (c for c in ticket.choices if c.offer in capacity.offers and (capacity.offers[c.offer].pool or CPU) == pool)
    return capacity.offers[min(here, key=attrgetter("place")).offer]


def _shares(capacity: Capacity, line: Line) -> list[int]:
    """What the tickets of a line ask for, in any order."""
    shares: list[int] = []
    for offer, count in line.asked.items():
        shares += [capacity.offers[offer].share] * count
    return shares


def _forecasts(
    snapshot: QueueSnapshot, capacity: Capacity, pool: str, shares: Sequence[int], now: datetime, braked: bool
) -> Sequence[WaitForecast]:
    why = _no_forecast(snapshot, capacity, pool)
    if why is not None:
        nothing = unknown(why)
        return LineForecast(len(shares), lambda place: nothing)
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
        return explain("free-one-silent" if snapshot.silent(pool) else "free-one-taken-outside")
    return None


def _counted_forecasts(
    snapshot: QueueSnapshot,
    capacity: Capacity,
    pool: str,
    held: Sequence[Lease],
    shares: Sequence[int],
    now: datetime,
    braked: bool,
) -> Sequence[WaitForecast]:
    """Counted devices have no names: each lease is one, and each that is free. Only equal shares are equal slots."""
    if len({*shares, *(lease.share for lease in held)}) > 1:
        differ = unknown(explain("parts-differ"))
        return LineForecast(len(shares), lambda place: differ)
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
        code = "machine-silent" if snapshot.silent(offer.pool) else "taken-outside"
        return explain(code, ahead=ahead, log_message=f"an admitted pod of {offer.id} is not scheduled")
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
    waiting = lines.length(pool)
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
    before = lines.head(pool) or any(map(lines.head, capacity.costed(offer.pool)))
    if free > 0 and not before and not snapshot.queue and offer.id not in snapshot.held_up:
        wait = starts_now(explain("one-free"))
    else:
        shares = [*_shares(capacity, lines.line(pool)), offer.share]
        wait = _forecasts(snapshot, capacity, pool, shares, now, False)[-1]
    return Availability(offer, free, total, held, foreign, lost, waiting, wait, snapshot.queue)
