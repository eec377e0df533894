"""A use (one server's time with one offer) from its beginning to its record, and the events that change it.

Points in time are UTC. Durations are measured on the running clock, which stands still while hub or service is down, so
that an outage makes no wait and no use longer. A `Moment` therefore contains the times of both clocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta

from hub_extensions.core.culling import ServerFacts
from hub_extensions.core.messages.usage import UsageRecord
from hub_extensions.core.offers.model import GpuOffer
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.queue.model import Lease, Ticket
from hub_extensions.core.usage.ends import UseEnd
from hub_extensions.core.usage.measurement import Figure, Sums, with_figure
from hub_extensions.core.usage.right_size import right_size

OWN_OPTIONS = ("offer", "offers")  # options of the form that are recorded as `offer`, not as `choice`
CHOICE_LENGTH = 500  # characters
_OF_USE = [each.name for each in fields(UsageRecord) if each.name != "source"]


@dataclass(frozen=True, slots=True)
class Moment:
    """One moment on two clocks.

    Attributes:
        utc: the time of the wall clock.
        running: the time of the running clock, which stands still while hub or service is down.
    """

    utc: datetime
    running: datetime


@dataclass(frozen=True, slots=True)
class Use:
    """One server's time with one offer, from its admission to its end. It is open until the server and its lease end.

    `UsageRecord` describes the fields and properties that are not listed here; they have the same names there. The
    running clock stands still while hub or service is down.

    Attributes:
        begun: when the server was admitted, or found already running (`adopted`), on the running clock.
        ready_at: when the server was ready, on the running clock. `None` before.
        measured_at: time of the last measurement of the GPU, on the running clock. `None` before the first.
        sums: sums of the measurements so far.
        free_when_asked: the offers that could start at once when the user asked. `None` if that is not known.
        end: how the use ends. `None` until that is known; it may be known before the server's last process is gone.
        over: when the use ended. `None` while it is open.
    """

    key: str
    user: str
    server: str
    offer: OfferId
    pool: str
    share: int
    admitted: datetime
    begun: datetime
    devices: int = 1
    ticket: str = ""
    groups: tuple[str, ...] = ()
    choice: str = ""
    device_class: str = ""
    node: str = ""
    device: str = ""
    asked: datetime | None = None
    ready: datetime | None = None
    ready_at: datetime | None = None
    first_used: datetime | None = None
    last_used: datetime | None = None
    lifetime_seconds: float | None = None
    adopted: bool = False
    waited_seconds: float | None = None
    keeps: int = 0
    warnings: int = 0
    free_when_asked: tuple[OfferId, ...] | None = None
    smaller_would_do: str | None = None
    advice: str = ""
    measured_at: datetime | None = None
    sums: Sums = field(default_factory=Sums)
    end: UseEnd | None = None
    over: Moment | None = None

    @property
    def ended(self) -> datetime | None:
        """When the use (a server's time with one offer) ended, UTC. `None` while it is open."""
        return None if self.over is None else self.over.utc

    @property
    def held_seconds(self) -> float | None:
        """Seconds from the server's admission to its end, without outages. `None` while the use is open."""
        return None if self.over is None else max(0.0, (self.over.running - self.begun).total_seconds())

    @property
    def ran_seconds(self) -> float | None:
        """Seconds from when the server was ready to its end, without outages. `None` while the use is open.

        Also `None` if the server was never ready.
        """
        if self.over is None or self.ready_at is None:
            return None
        return max(0.0, (self.over.running - self.ready_at).total_seconds())

    @property
    def outage_seconds(self) -> float | None:
        """Seconds during this use of a server in which hub or service was down. `None` while the use is open."""
        if self.over is None or self.held_seconds is None:
            return None
        return max(0.0, (self.over.utc - self.admitted).total_seconds() - self.held_seconds)

    @property
    def mean_use_percent(self) -> float | None:
        """Mean GPU use in percent over the measured time of this use of a server. `None` if it was never measured."""
        return self.sums.mean

    @property
    def highest_use_percent(self) -> float | None:
        """Highest GPU use in percent during this use of a server. `None` if it was never measured."""
        return self.sums.highest

    @property
    def peak_memory_bytes(self) -> int | None:
        """Most GPU memory, in bytes, that this server has used at a time. `None` if it was never measured."""
        return self.sums.memory

    @property
    def use_measured(self) -> float | None:
        """The part of `ran_seconds`, 0 to 1, in which GPU use was measured; `None` without a GPU or before the end."""
        return self._part(self.sums.use_seconds)

    @property
    def memory_measured(self) -> float | None:
        """The part of `ran_seconds`, 0 to 1, in which memory was measured; `None` without a GPU or before the end."""
        return self._part(self.sums.memory_seconds)

    def _part(self, seconds: float) -> float | None:
        return min(1.0, seconds / self.ran_seconds) if self.ran_seconds and self.devices else None


def admitted(ticket: Ticket, lease: Lease | None, moment: Moment) -> Use:
    """Return the new use of a server that was just admitted.

    Args:
        ticket: the server's ticket (its place in line), whose wait is over.
        lease: the server's right to its device. `None` for a server without a GPU.
        moment: now.
    """
    return Use(
        key=lease.id if lease else ticket.id,
        user=ticket.user,
        server=ticket.server,
        offer=lease.offer if lease else CPU,
        pool=lease.pool if lease else str(CPU),
        share=lease.share if lease else 0,
        devices=1 if lease else 0,
        admitted=moment.utc,
        begun=moment.running,
        ticket=ticket.id,
        groups=ticket.groups,
        choice=_choice(ticket.options),
        device=lease.uuid if lease else "",
        asked=ticket.asked,
        free_when_asked=ticket.free_when_asked,
        waited_seconds=max(0.0, (moment.running - ticket.joined).total_seconds()),
    )


def adopted(key: str, user: str, server: str, lease: Lease | None, moment: Moment, wall: timedelta) -> Use:
    """Return the new use (one server's time with one offer) of a running server whose start has no use.

    The service found the server already running, or an earlier version did not record the use of a lease.

    Args:
        key: id of the lease, or for a server without a GPU an id made for this use.
        user, server: name of the user and of the server.
        lease: the server's right to its device. `None` for a server without a GPU.
        moment: now.
        wall: how far the wall clock is ahead of the running clock, to convert the times that the lease has.
    """
    begun = lease.since if lease else moment.running
    ready_at = moment.running if lease is None else lease.ready_at
    return Use(
        key=key,
        user=user,
        server=server,
        offer=lease.offer if lease else CPU,
        pool=lease.pool if lease else str(CPU),
        share=lease.share if lease else 0,
        devices=1 if lease else 0,
        ticket=lease.ticket if lease else "",
        admitted=begun + wall,
        begun=begun,
        device=lease.uuid if lease else "",
        ready=ready_at + wall if ready_at else None,
        ready_at=ready_at,
        adopted=lease.adopted if lease else True,
    )


def ready(use: Use, moment: Moment, lifetime: timedelta | None) -> Use:
    """Return the use after its server is ready.

    Args:
        use: the use.
        moment: now.
        lifetime: time after which the server is stopped in any case. `None` without a limit.
    """
    limit = None if lifetime is None or not use.devices else lifetime.total_seconds()
    return replace(use, ready=moment.utc, ready_at=moment.running, lifetime_seconds=limit)


def count_keeps_and_warnings(use: Use, before: ServerFacts | None, after: ServerFacts) -> Use:
    """Return the use with higher counts if the user has pressed *Keep* or a warning has been shown since `before`.

    Args:
        use: the use.
        before: the earlier facts about its server. `None` if the server was not known then.
        after: the present facts.
    """
    kept = bool(after.keeps) and (before is None or after.keeps[-1:] != before.keeps[-1:])
    warned = after.warned is not None and (before is None or before.warned is None)
    if not kept and not warned:
        return use
    return replace(use, keeps=use.keeps + kept, warnings=use.warnings + warned)


def measured(use: Use, figure: Figure, moment: Moment, in_use_percent: float) -> Use:
    """Add a measurement of the GPU. It counts for the time since the previous one; the first counts for no time.

    Args:
        use: the use.
        figure: the measurement.
        moment: now.
        in_use_percent: GPU use in percent from which the GPU counts as used at this moment.
    """
    since = use.measured_at
    seconds = 0.0 if since is None else (moment.running - since).total_seconds()
    use = replace(use, measured_at=moment.running, sums=with_figure(use.sums, figure, seconds))
    if figure.used_percent is None or figure.used_percent < in_use_percent:
        return use
    return replace(use, first_used=use.first_used or moment.utc, last_used=moment.utc)


def ending(use: Use, end: UseEnd | None) -> Use:
    """Note how a use will end, before it has ended. The first known end is kept.

    Args:
        use: the use.
        end: how it will end; `None` changes nothing.
    """
    known = use.end not in (None, UseEnd.UNKNOWN)
    return use if known or end is None else replace(use, end=end)


def resumed(use: Use) -> Use:
    """Remove the noted end and the advice from the use, because its server did not stop after all."""
    return replace(use, end=None, smaller_would_do=None, advice="")


def sized(use: Use, end: UseEnd | None, moment: Moment, offers: Sequence[GpuOffer], *, advise: bool) -> Use:
    """Note whether a smaller offer would have been enough for a use whose server is gone. A known verdict is kept.

    Args:
        use: the use.
        end: how it ends. `None` if that is not known now.
        moment: now.
        offers: all offers of the hub.
        advise: whether the user may be told.
    """
    if use.smaller_would_do is not None or use.advice:
        return use
    record = record_of(replace(ending(use, end), over=moment))
    verdict = right_size(record, offers, use.free_when_asked)
    return replace(use, smaller_would_do=verdict.would_do, advice=verdict.advice if advise else "")


def ended(use: Use, end: UseEnd | None, moment: Moment) -> UsageRecord:
    """Finish the use and return its record.

    Args:
        use: the open use.
        end: how it ends. `None` if that is not known now; then the end noted before counts, or else *unknown*.
        moment: now.
    """
    return record_of(replace(ending(use, end), over=moment))


def record_of(use: Use) -> UsageRecord:
    """Return the usage record (a row of the history) of a finished use."""
    values = {name: getattr(use, name) for name in _OF_USE}
    return UsageRecord(**{**values, "end": (use.end or UseEnd.UNKNOWN).value})


def _choice(options: Mapping[str, object]) -> str:
    """Return the user's choice of image and profile on one line: ``profile=torch image=cu12``.

    Options whose value is not a text or number are left out.
    """
    parts = (
        f"{name}={value}"
        for name, value in sorted(options.items())
        if name not in OWN_OPTIONS and isinstance(value, str | int | float)
    )
    return " ".join(parts)[:CHOICE_LENGTH]
