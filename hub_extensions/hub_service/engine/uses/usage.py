"""Usage records (who held which GPU, how long and how busy), derived from changes of leases, tickets and servers.

A use (`core.usage.Use`) is one server's time with a GPU, or without one. `with_uses` runs in every transaction: it adds
a use that begins, and turns a use that ends into a usage record in the same commit. `Measuring` measures every few
seconds how busy the devices are, and stores the result once a minute.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from hub_extensions.adapters.store import Changes, TicketRow
from hub_extensions.core import usage
from hub_extensions.core.culling import ServerFacts
from hub_extensions.core.messages import UsageRecord
from hub_extensions.core.offers.offer_id import CPU
from hub_extensions.core.queue.model import Lease, LeaseState, TicketEnd, TicketState
from hub_extensions.core.text.reasons import Reason
from hub_extensions.core.usage import Figure, Moment, Use, UseEnd
from hub_extensions.core.usage.measurement import Sums, minute_of, with_figure
from hub_extensions.core.usage.right_size import advice_text
from hub_extensions.hub_service.engine.state.state import State

ServerKey = tuple[str, str]  # name of the user and of the server
AT_A_TIME = 200  # measurements taken before other tasks run
LATE_REPORT = timedelta(seconds=60)  # the hub may report this long after a server's record why the server ended
UNWRITTEN_KEPT = timedelta(minutes=60)  # minutes that could not be stored are kept this long


def with_uses(state: State, changes: Changes) -> Changes:
    """Add to the changes of a transaction the uses that begin, change or end because of these changes.

    A use is one server's time with a GPU, or without one.
    """
    if not (changes.tickets or changes.leases or changes.facts or changes.gone_facts):
        return changes
    following = _Following(state, changes)
    following.follow()
    return replace(
        changes,
        uses=tuple(following.uses.values()),
        gone_uses=changes.gone_uses + tuple(following.gone),
        usage=changes.usage + tuple(following.records),
    )


def missing_uses(state: State) -> tuple[Use, ...]:
    """Create uses for stored leases and servers that have none, because an earlier version did not write them.

    A use is one server's time with a GPU, or without one.
    """
    moment = _now(state)
    behind = moment.utc - moment.running
    leases = (each for each in state.leases.values() if each.id not in state.uses)
    found = [usage.adopted(each.id, each.user, each.server, each, moment, behind) for each in leases]
    with_use = {(use.user, use.server) for use in state.uses.values()}
    for key, facts in state.facts.items():
        if facts.lease is None and key not in with_use:
            use = usage.adopted(secrets.token_hex(8), *key, None, moment, behind)
            found.append(replace(use, begun=facts.started, ready_at=facts.started, adopted=facts.adopted,
                                 admitted=facts.started + behind, ready=facts.started + behind))  # fmt: skip
    return tuple(found)


def record_late_report(state: State, server: ServerKey, end: UseEnd) -> Changes:
    """Return the changes that record why a server ended, when the hub reports the cause late.

    The cause is added to the use (one server's time with a GPU) if that is still open. Otherwise it is added to a usage
    record that is at most `LATE_REPORT` old. A cause that is known already is kept.

    Args:
        state: the present state.
        server: name of the user and of the server.
        end: the cause that the hub reports.
    """
    ending = [lease.id for lease in state.leases.values() if (lease.user, lease.server) == server]
    uses = [use for key in ending if (use := state.uses.get(key)) is not None]
    known = tuple(ended for use in uses if (ended := usage.ending(use, end)) is not use)
    last = state.last_uses.get(server)
    if uses or last is None or end is UseEnd.UNKNOWN or state.clock.utc_now() - last.ended > LATE_REPORT:
        return Changes(uses=known)
    return Changes(usage=(replace(last, end=end.value),))


def with_size(state: State, use: Use, end: UseEnd | None = None) -> Use:
    """Note whether a smaller offer would have been enough for a use (one server's time with a GPU) that ends now.

    Args:
        state: the present state.
        use: the use.
        end: how it ends. `None` if the use has that already, or if it is not known.
    """
    others = (each.advice for each in state.uses.values() if each.user == use.user and each.key != use.key)
    advise = state.offer_config.advise_size and state.forecasts.past.may_advise(use.user) and not any(others)
    return usage.sized(use, end, _now(state), state.offers, advise=advise)


def size_sentences(state: State, lease: str | None, end: UseEnd | None) -> tuple[Reason, ...]:
    """Return what the user of a server that ends now is told about the size of its GPU; empty for nothing.

    Args:
        state: the present state, before the end of the server is written.
        lease: id of the server's lease (its right to a GPU). `None` without a GPU.
        end: how the server ends. `None` if that is not known.
    """
    use = state.uses.get(lease or "")
    if use is None:
        return ()
    record = usage.ended(with_size(state, use, end), end, _now(state))
    offers = [each for each in state.offers if not each.groups or set(each.groups) & set(use.groups)]
    return advice_text(record, offers)


class _Following:
    """Derives which uses begin, change or end, by comparing one set of changes with the state before them.

    A use is one server's time with a GPU, or without one.
    """

    def __init__(self, state: State, changes: Changes) -> None:
        self.state = state
        self.changes = changes
        self.moment = _now(state)
        self.uses = {use.key: use for use in changes.uses}
        self.gone: list[str] = []
        self.records: list[UsageRecord] = []
        self._cpu: dict[ServerKey, str] | None = None

    def follow(self) -> None:
        lease_of = {lease.ticket: lease for lease in self.changes.leases if lease.ticket}
        for row in self.changes.tickets:
            self._ticket(row, lease_of.get(row.ticket.id))
        for facts in self.changes.facts:
            self._facts(facts)
        for lease in self.changes.leases:
            self._lease(lease)
        again = {(facts.user, facts.server) for facts in self.changes.facts}
        for server in self.changes.gone_facts:
            known = self.state.facts.get(server)
            if server in again or known is None or known.lease is not None:
                continue
            if (cpu := self._cpu_use(server)) is not None:
                self._over(cpu, self._end_here(server))

    def _use(self, key: str) -> Use | None:
        return None if key in self.gone else self.uses.get(key) or self.state.uses.get(key)

    def _cpu_use(self, server: ServerKey) -> Use | None:
        """Return the open use of a server without a GPU, or `None` if no use is open.

        The index of these uses is built once for all changes.
        """
        if self._cpu is None:
            here = {**self.state.uses, **self.uses}
            self._cpu = {(use.user, use.server): use.key for use in here.values() if not use.devices}
        return self._use(self._cpu.get(server, ""))

    def _ticket(self, row: TicketRow, lease: Lease | None) -> None:
        ticket, before = row.ticket, self.state.tickets.get(row.ticket.id)
        was_admitted = before is not None and before.state is TicketState.ADMITTED
        if ticket.state is TicketState.ADMITTED and not was_admitted:
            use = usage.admitted(ticket, lease, self.moment)
            self.uses[use.key] = self._placed(use, lease)
            return
        cpu = self._use(ticket.id)  # the use of a server without a GPU has the ticket's id as its key
        if cpu is None:
            return
        if row.end is TicketEnd.READY:
            self.uses[cpu.key] = usage.ready(cpu, self.moment, None)
        elif row.end is not None:
            self._over(cpu, usage.end_of_ticket(row.end))
        elif ticket.state is TicketState.WAITING:
            self._over(cpu, UseEnd.LEFT)

    def _lease(self, lease: Lease) -> None:
        before = self.state.leases.get(lease.id)
        use = self._use(lease.id)
        if use is None:
            if before is not None or lease.state is LeaseState.ENDED:
                return
            behind = self.moment.utc - self.moment.running
            use = usage.adopted(lease.id, lease.user, lease.server, lease, self.moment, behind)
        use = self._placed(use, lease)
        if lease.ready_at is not None and use.ready_at is None:
            policy = self.state.policy_of(lease.user, lease.offer)
            lifetime = policy.lifetime if policy.enabled and not policy.never else None
            use = usage.ready(use, self.moment, lifetime)
        was = before.state if before is not None else None
        if lease.state in (LeaseState.ENDING, LeaseState.ENDED) and was is not LeaseState.ENDING:
            use = with_size(self.state, usage.ending(use, self._end_of(lease, was)))
        elif lease.state is LeaseState.RUNNING and was is LeaseState.ENDING:
            use = usage.resumed(use)
        if lease.state is LeaseState.ENDED:
            self._over(use, None)
        elif use != self._use(lease.id):
            self.uses[lease.id] = use

    def _facts(self, facts: ServerFacts) -> None:
        server = (facts.user, facts.server)
        before = self.state.facts.get(server)
        cpu = self._cpu_use(server)
        if facts.lease is None and cpu is None:
            cpu = usage.adopted(secrets.token_hex(8), *server, None, self.moment, timedelta(0))
            cpu = replace(cpu, admitted=self.moment.utc, ready=self.moment.utc, adopted=facts.adopted)
            self.uses[cpu.key] = cpu
            self._cpu = None
        elif facts.lease is not None and cpu is not None and cpu.adopted:
            self._forget(cpu.key)  # the adopted server holds a GPU from now on, and its lease has a use of its own
        use = self._use(facts.lease) if facts.lease is not None else cpu
        if use is not None and (noted := usage.count_keeps_and_warnings(use, before, facts)) is not use:
            self.uses[use.key] = noted

    def _end_of(self, lease: Lease, was: LeaseState | None) -> UseEnd:
        row = next((row for row in self.changes.tickets if row.ticket.id == lease.ticket), None)
        if row is not None and row.end is not None and row.end is not TicketEnd.READY:
            return usage.end_of_ticket(row.end) or UseEnd.UNKNOWN
        if lease.ready_at is None and self.changes.end is None:
            return UseEnd.LEFT
        return self._end_here((lease.user, lease.server), lost=was is LeaseState.LOST)

    def _end_here(self, server: ServerKey, *, lost: bool = False) -> UseEnd:
        """Return the cause for which a running server ends.

        If the service is stopping the server, the cause of that stop counts.

        Args:
            server: name of the user and of the server.
            lost: whether the device had disappeared.
        """
        facts = self.state.facts.get(server)
        stop = None if facts is None else self.state.stop_of(facts)
        if stop is not None and stop.begun and stop.cause is not None:
            return usage.end_of_cull(stop.cause)
        if self.changes.end not in (None, UseEnd.UNKNOWN):
            return self.changes.end
        if lost:
            return UseEnd.NODE_LOST if self.state.on_cluster else UseEnd.LOST
        if self.changes.end is not None:
            return self.changes.end
        hub = self.state.hub_view
        away = hub.listed is None or server in hub.gone_in_outage
        return UseEnd.HUB_STOPPED if away else UseEnd.UNKNOWN

    def _over(self, use: Use, end: UseEnd | None) -> None:
        self._forget(use.key)
        self.records.append(usage.ended(use, end, self.moment))

    def _forget(self, key: str) -> None:
        self.uses.pop(key, None)
        self.gone.append(key)

    def _placed(self, use: Use, lease: Lease | None) -> Use:
        """Return the use with the model of its GPU: of the lease's device or, if that is unknown, of the offer.

        Args:
            use: one server's time with a GPU, or without one.
            lease: the server's right to its GPU. `None` for CPU only.
        """
        device = self.state.device(lease.device) if lease is not None else None
        offer = self.state.offer(use.offer) if use.offer != CPU else None
        kind = device.product if device else offer.product if offer else ""
        return use if not kind or use.device_class == kind else replace(use, device_class=kind)


@dataclass
class _Bucket:
    """The measurements of one use (one server's time with a GPU) in the current minute.

    Attributes:
        at: when the first measurement was added, by the wall clock.
        device: UUID of the device; "" if unknown.
        sums: use and memory of the device, added up over the minute.
        source: what measured the use of the device, such as NVML or DCGM; ``none`` if nothing did.
    """

    at: datetime
    device: str
    sums: Sums = field(default_factory=Sums)
    source: str = "none"


class Measuring:
    """Measures how busy the GPU of each running lease (server's right to its GPU) is, and sums it up by the minute.

    A measurement is in the state at once, and in the store after the end of its minute. If the service is killed, less
    than a minute of measurements is lost.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self._buckets: dict[str, _Bucket] = {}
        self._unwritten: list[tuple[str, _Bucket]] = []

    async def take(
        self,
        figure_of: Callable[[Lease], Figure],
        device_of: Callable[[Lease], str],
    ) -> tuple[dict[str, Use], Changes]:
        """Measure the GPU of every running lease once, in batches between which other tasks run.

        Args:
            figure_of: returns how busy the GPU of a lease is now.
            device_of: returns the device of a lease, as the usage record names it; "" if it is unknown.

        Returns:
            The measured uses (one server's time with a GPU) by key, for the state; and the minutes that ended and have
            to be stored now. The same minutes are returned again until `written` is called.
        """
        moment = _now(self.state)
        running = [each for each in self.state.leases.values() if each.state in (LeaseState.RUNNING, LeaseState.LOST)]
        live = {lease.id for lease in running}
        minute = moment.utc.replace(second=0, microsecond=0)
        begun = {key: each.at.replace(second=0, microsecond=0) for key, each in self._buckets.items()}
        over = [key for key, at in begun.items() if key not in live or at != minute]
        minutes = [each for each in self._unwritten if moment.utc - each[1].at <= UNWRITTEN_KEPT]
        minutes += [(key, self._buckets.pop(key)) for key in over]
        self._unwritten = minutes
        measured: dict[str, Use] = {}
        for number, lease in enumerate(running, 1):
            use = self.state.uses.get(lease.id)
            if use is not None:
                figure, node, device = figure_of(lease), self.state.node_of(lease), device_of(lease)
                measured[use.key] = self._take(lease, use, figure, node, device, moment)
            if number % AT_A_TIME == 0:
                await asyncio.sleep(0)
        return measured, Changes(
            samples=tuple(
                minute_of(key, each.device, each.at, each.sums, each.source)
                for key, each in minutes
                if each.sums.use_seconds or each.sums.memory_seconds  # unmeasured minutes get no row
            ),
            uses=tuple(measured.get(key) or self.state.uses[key] for key in dict(minutes) if key in self.state.uses),
        )

    def written(self) -> None:
        """Record that the measured minutes that `take` returned last are stored. It does not return them again."""
        self._unwritten = []

    def _take(self, lease: Lease, use: Use, figure: Figure, node: str, device: str, moment: Moment) -> Use:
        since = use.measured_at or moment.running
        limit = self.state.policy_of(lease.user, lease.offer).idle_below_percent
        seen = usage.measured(use, figure, moment, limit)
        seen = replace(seen, node=node or use.node, device=device or use.device)
        bucket = self._buckets.setdefault(lease.id, _Bucket(moment.utc, seen.device))
        bucket.device = seen.device
        bucket.sums = with_figure(bucket.sums, figure, (moment.running - since).total_seconds())
        if figure.used_percent is not None:
            bucket.source = figure.source
        return seen


def _now(state: State) -> Moment:
    return Moment(state.clock.utc_now(), state.clock.now())
