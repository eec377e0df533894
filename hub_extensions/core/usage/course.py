"""One use of a server: the `Use` record, open or finished, and the events that change it while it lasts.

A `Moment` carries both clocks: a record has UTC for moments and running time for durations, so that an outage makes no
wait and no use longer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta

from hub_extensions.core.culling import ServerFacts
from hub_extensions.core.messages.usage import UsageRecord
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.queue.model import Lease, Ticket
from hub_extensions.core.usage.ends import UseEnd
from hub_extensions.core.usage.measurement import Figure, Sums, with_figure

OWN_OPTIONS = ("offer", "offers")  # options of the form that are recorded as `offer`, not as `choice`
CHOICE_LENGTH = 500  # characters
_OF_USE = [each.name for each in fields(UsageRecord) if each.name != "source"]


@dataclass(frozen=True, slots=True)
class Moment:
    """One moment by both clocks."""

    utc: datetime
    running: datetime


@dataclass(frozen=True, slots=True)
class Use:
    """One use of a server. Fields and properties that `UsageRecord` has too are described there.

    Attributes:
        begun: running time of its admission or adoption.
        ready_at: running time at which its server was ready; `None` until then.
        measured_at: running time of the last figure; `None` before the first.
        sums: what was measured so far.
        end: how it ends. It may be known while something of its server is still there.
        over: when it ended; `None` while it is open.
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
    measured_at: datetime | None = None
    sums: Sums = field(default_factory=Sums)
    end: UseEnd | None = None
    over: Moment | None = None

    @property
    def ended(self) -> datetime | None:
        """UTC; `None` while it is open."""
        return None if self.over is None else self.over.utc

    @property
    def held_seconds(self) -> float | None:
        """From its admission to its end."""
        return None if self.over is None else max(0.0, (self.over.running - self.begun).total_seconds())

    @property
    def ran_seconds(self) -> float | None:
        """From when its server was ready to its end."""
        if self.over is None or self.ready_at is None:
            return None
        return max(0.0, (self.over.running - self.ready_at).total_seconds())

    @property
    def outage_seconds(self) -> float | None:
        """The difference between its duration by the wall clock and `held_seconds`."""
        if self.over is None or self.held_seconds is None:
            return None
        return max(0.0, (self.over.utc - self.admitted).total_seconds() - self.held_seconds)

    @property
    def mean_use_percent(self) -> float | None:
        """The mean use of the GPU, over the time that was measured."""
        return self.sums.mean

    @property
    def highest_use_percent(self) -> float | None:
        """The highest use of the GPU that was measured."""
        return self.sums.highest

    @property
    def peak_memory_bytes(self) -> int | None:
        """The most GPU memory that was measured."""
        return self.sums.memory

    @property
    def use_measured(self) -> float | None:
        """The part of `ran_seconds` for which its use was measured."""
        return self._part(self.sums.use_seconds)

    @property
    def memory_measured(self) -> float | None:
        """The part of `ran_seconds` for which its memory was measured."""
        return self._part(self.sums.memory_seconds)

    def _part(self, seconds: float) -> float | None:
        return min(1.0, seconds / self.ran_seconds) if self.ran_seconds and self.devices else None


def admitted(ticket: Ticket, lease: Lease | None, moment: Moment) -> Use:
    """Begin the use of a ticket that was admitted; `lease` is `None` for a server without a GPU."""
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
        waited_seconds=max(0.0, (moment.running - ticket.joined).total_seconds()),
    )


def adopted(key: str, user: str, server: str, lease: Lease | None, moment: Moment, wall: timedelta) -> Use:
    """Begin the use of a server that ran before this product did, or whose start was not recorded.

    Args:
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
    """Note that the server is ready.

    Args:
        lifetime: the enforced limit of its lifetime; `None` without a limit.
    """
    limit = None if lifetime is None or not use.devices else lifetime.total_seconds()
    return replace(use, ready=moment.utc, ready_at=moment.running, lifetime_seconds=limit)


def count_keeps_and_warnings(use: Use, before: ServerFacts | None, after: ServerFacts) -> Use:
    """Count a press of *keep* and a warning that happened between two states of the server's facts."""
    kept = bool(after.keeps) and (before is None or after.keeps[-1:] != before.keeps[-1:])
    warned = after.warned is not None and (before is None or before.warned is None)
    if not kept and not warned:
        return use
    return replace(use, keeps=use.keeps + kept, warnings=use.warnings + warned)


def measured(use: Use, figure: Figure, moment: Moment, in_use_percent: float) -> Use:
    """Add a figure. It counts for the time since the figure before, so the first counts for no time.

    Args:
        in_use_percent: from this use on, the GPU counts as used at this moment.
    """
    since = use.measured_at
    seconds = 0.0 if since is None else (moment.running - since).total_seconds()
    use = replace(use, measured_at=moment.running, sums=with_figure(use.sums, figure, seconds))
    if figure.used_percent is None or figure.used_percent < in_use_percent:
        return use
    return replace(use, first_used=use.first_used or moment.utc, last_used=moment.utc)


def ending(use: Use, end: UseEnd | None) -> Use:
    """Note how the use ends. The first known end stays; `None` and *unknown* change nothing that is known."""
    known = use.end not in (None, UseEnd.UNKNOWN)
    return use if known or end is None else replace(use, end=end)


def resumed(use: Use) -> Use:
    """Note that the use goes on after all, because its server did not stop."""
    return replace(use, end=None)


def ended(use: Use, end: UseEnd | None, moment: Moment) -> UsageRecord:
    """Finish the use and return its record."""
    return record_of(replace(ending(use, end), over=moment))


def record_of(use: Use) -> UsageRecord:
    """Return the record of a finished use."""
    values = {name: getattr(use, name) for name in _OF_USE}
    return UsageRecord(**{**values, "end": (use.end or UseEnd.UNKNOWN).value})


def _choice(options: Mapping[str, object]) -> str:
    """Image, profile and their options on one line: ``profile=torch image=cu12``. Only text and numbers are kept."""
    parts = (
        f"{name}={value}"
        for name, value in sorted(options.items())
        if name not in OWN_OPTIONS and isinstance(value, str | int | float)
    )
    return " ".join(parts)[:CHOICE_LENGTH]
