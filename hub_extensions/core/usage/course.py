"""The course of one use: what is noted at each event while it lasts, and the record that is written of it once.

Each function takes the use as it is noted and gives it back with one event more. A moment is said by both clocks: the
record has UTC for moments and running time for durations, so an outage lengthens no wait and no use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from hub_extensions.core.culling import ServerFacts
from hub_extensions.core.messages.usage import UsageRecord
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.queue.model import Lease, Ticket
from hub_extensions.core.usage.ends import UseEnd
from hub_extensions.core.usage.measurement import Figure, Sums, with_figure

OWN_OPTIONS = ("offer", "offers")
CHOICE_LENGTH = 500


@dataclass(frozen=True, slots=True)
class Moment:
    """Now, by both clocks."""

    utc: datetime
    running: datetime


@dataclass(frozen=True, slots=True)
class OpenUse:
    """A use that is not over; names as in `UsageRecord`.

    Attributes:
        begun: its admission (or adoption) on the running clock. ready_at: of its being ready.
        measured_at: running time of the last figure. sums: what was measured.
        end: how it ends, once that is known, while something of its server is still there.
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


def admitted(ticket: Ticket, lease: Lease | None, moment: Moment) -> OpenUse:
    """A ticket was admitted; `lease` None: CPU only."""
    return OpenUse(
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


def adopted(key: str, user: str, server: str, lease: Lease | None, moment: Moment, wall: timedelta) -> OpenUse:
    """A server that ran before this product did, or whose beginning was not noted.

    Args:
        wall: how far the wall clock is ahead of the running one, for what the lease knows of its own past.
    """
    begun = lease.since if lease else moment.running
    ready_at = moment.running if lease is None else lease.ready_at
    return OpenUse(
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


def ready(use: OpenUse, moment: Moment, lifetime: timedelta | None) -> OpenUse:
    """Its server is ready; `lifetime`: the limit that is enforced, None: none is."""
    limit = None if lifetime is None or not use.devices else lifetime.total_seconds()
    return replace(use, ready=moment.utc, ready_at=moment.running, lifetime_seconds=limit)


def faced(use: OpenUse, before: ServerFacts | None, after: ServerFacts) -> OpenUse:
    """*Keep* was pressed, or a warning was given, between two facts of its server."""
    kept = bool(after.keeps) and (before is None or after.keeps[-1:] != before.keeps[-1:])
    warned = after.warned is not None and (before is None or before.warned is None)
    if not kept and not warned:
        return use
    return replace(use, keeps=use.keeps + kept, warnings=use.warnings + warned)


def measured(use: OpenUse, figure: Figure, moment: Moment, in_use_percent: float) -> OpenUse:
    """A figure was read. It stands for the time since the one before; the first for none."""
    since = use.measured_at
    seconds = 0.0 if since is None else (moment.running - since).total_seconds()
    use = replace(use, measured_at=moment.running, sums=with_figure(use.sums, figure, seconds))
    if figure.used_percent is None or figure.used_percent < in_use_percent:
        return use
    return replace(use, first_used=use.first_used or moment.utc, last_used=moment.utc)


def ending(use: OpenUse, end: UseEnd | None) -> OpenUse:
    """Its server ends, so. What was known before stays; None, and *unknown*, say nothing new."""
    known = use.end not in (None, UseEnd.UNKNOWN)
    return use if known or end is None else replace(use, end=end)


def goes_on(use: OpenUse) -> OpenUse:
    """A stop that failed: it has not ended."""
    return replace(use, end=None)


def ended(use: OpenUse, end: UseEnd | None, moment: Moment) -> UsageRecord:
    """It is over: the record of it."""
    return record_of(ending(use, end), moment)


def record_of(use: OpenUse, moment: Moment) -> UsageRecord:
    """The record of a use that ends at this moment."""
    held = max(0.0, (moment.running - use.begun).total_seconds())
    ran = None if use.ready_at is None else max(0.0, (moment.running - use.ready_at).total_seconds())
    by_wall = (moment.utc - use.admitted).total_seconds()
    return UsageRecord(
        key=use.key,
        user=use.user,
        server=use.server,
        offer=use.offer,
        pool=use.pool,
        share=use.share,
        ended=moment.utc,
        end=(use.end or UseEnd.UNKNOWN).value,
        devices=use.devices,
        ticket=use.ticket,
        groups=use.groups,
        choice=use.choice,
        device_class=use.device_class,
        node=use.node,
        device=use.device,
        asked=use.asked,
        admitted=use.admitted,
        ready=use.ready,
        first_used=use.first_used,
        last_used=use.last_used,
        lifetime_seconds=use.lifetime_seconds,
        adopted=use.adopted,
        waited_seconds=use.waited_seconds,
        held_seconds=held,
        ran_seconds=ran,
        outage_seconds=max(0.0, by_wall - held),
        mean_use_percent=use.sums.mean,
        highest_use_percent=use.sums.highest,
        use_measured=_part(use, use.sums.use_seconds, ran),
        peak_memory_bytes=use.sums.memory,
        memory_measured=_part(use, use.sums.memory_seconds, ran),
        keeps=use.keeps,
        warnings=use.warnings,
    )


def _part(use: OpenUse, seconds: float, ran: float | None) -> float | None:
    """For which part of the time that it ran something was measured; None: it has no GPU, or never ran."""
    return min(1.0, seconds / ran) if ran and use.devices else None


def _choice(options: Mapping[str, object]) -> str:
    """Image, profile and their options as a line: ``profile=torch image=cu12``. Only what is text or a number."""
    parts = (
        f"{name}={value}"
        for name, value in sorted(options.items())
        if name not in OWN_OPTIONS and isinstance(value, str | int | float)
    )
    return " ".join(parts)[:CHOICE_LENGTH]
