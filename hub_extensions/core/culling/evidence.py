"""What is known of one running server: of this moment (`Evidence`), and between decisions (`ServerFacts`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum

from hub_extensions.core.culling.policy import CullPolicy
from hub_extensions.core.gpu.samples import ServerReport
from hub_extensions.core.offers.offer_id import OfferId


class Cause(Enum):
    """Why a server will be stopped; also the metric's `reason`."""

    IDLE = "idle"
    LIFETIME = "lifetime"
    UNOPENED = "unopened"
    CPU_IDLE = "cpu-idle"
    SIGNED_OUT = "signed-out"


SAME_CLOCK = timedelta(seconds=60)
"""Clocks that differ by more are not compared with each other."""


@dataclass(frozen=True, slots=True)
class Drain:
    """Its user signed out, or may not sign in any more: it stops at a time that nothing moves.

    Attributes:
        why: the code of the reason for its user (``core/reasons.py``).
    """

    at: datetime
    why: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known about one running server. Times are aware and on the service's running clock.

    Attributes:
        offer: the offer's id (``cpu`` for a CPU-only server).
        started: when the server was ready (or adopted).
        adopted: it ran before this product did: nothing counts before one full idle limit.
        opened: first opened by a browser; None: not yet. `opened_known` says whether somebody would have told us.
        used: its device was measured in use at some time since the start: somebody works on it, opened or not.
        idle_since: the device has been below the limit since; None: busy, or not known.
        use_known: False: the card or its driver cannot tell the use; never idle then.
        kept_until: the last *keep* promised that it is not stopped for idleness before then.
        last_activity: the hub's figure (CPU only).
        busy_kernels: from the server's report; None is not known (CPU only).
        drain: it stops at a time whatever it does; None: nothing like that was ordered.
    """

    offer: OfferId
    started: datetime
    adopted: bool
    opened: datetime | None
    opened_known: bool
    idle_since: datetime | None
    use_known: bool
    kept_until: datetime | None = None
    last_activity: datetime | None = None
    busy_kernels: int | None = None
    used: bool = False
    drain: Drain | None = None


@dataclass(frozen=True)
class ServerFacts:
    """What the service remembers of one running server between decisions, and across its own restarts.

    Attributes:
        started: when it was ready; with user and server it names this run of the server.
        lease: None for a CPU-only server.
        keeps: when *keep* was pressed for this run of it (in the last 24 hours).
        warned: a warning was shown for the present countdown since.
        stopping: the stop was decided (and journaled) then; None: it runs.
        cause: what the countdown, the warning or the stop is for, or was last; None: there was none.
        promised: the end that the countdown shows, or showed last; no change of limits takes it back.
        drain: what the hub ordered when its user was signed out; None: nothing.
    """

    user: str
    server: str
    offer: OfferId
    started: datetime
    lease: str | None = None
    adopted: bool = False
    opened: datetime | None = None
    opened_known: bool = False
    idle_since: datetime | None = None
    kept_until: datetime | None = None
    keeps: tuple[datetime, ...] = ()
    warned: datetime | None = None
    stopping: datetime | None = None
    cause: Cause | None = None
    promised: datetime | None = None
    drain: Drain | None = None


def activity_counts(hub_clock_ahead: timedelta | None) -> bool:
    """Whether the hub's `last_activity` says how long somebody was away: its clock has to be ours, and known to be."""
    return hub_clock_ahead is not None and abs(hub_clock_ahead) <= SAME_CLOCK


def is_forged(last_activity: datetime, now: datetime) -> bool:
    """Whether a `last_activity` lies ahead of now (both by clocks that agree). Any user's server can write one."""
    return last_activity > now + SAME_CLOCK


def evidence_of(
    facts: ServerFacts,
    *,
    use_known: bool,
    last_activity: datetime | None = None,
    busy_kernels: int | None = None,
    used: bool = False,
) -> Evidence:
    """What is remembered of a server, with what is known of it just now (see `Evidence`)."""
    return Evidence(
        offer=facts.offer,
        started=facts.started,
        adopted=facts.adopted,
        opened=facts.opened,
        opened_known=facts.opened_known,
        idle_since=facts.idle_since if use_known else None,
        use_known=use_known,
        kept_until=facts.kept_until,
        last_activity=last_activity,
        busy_kernels=busy_kernels,
        used=used,
        drain=facts.drain,
    )


def observe(facts: ServerFacts, sample_percent: float | None, policy: CullPolicy, now: datetime) -> ServerFacts:
    """Fold one sample of the server's device into its facts. None (or no number) is not known, and never idle."""
    if sample_percent is None or not sample_percent < policy.idle_below_percent:
        return replace(facts, idle_since=None)
    return replace(facts, idle_since=now if facts.idle_since is None else min(facts.idle_since, now))


def opened(facts: ServerFacts, now: datetime) -> ServerFacts:
    """A browser has opened this server. Only the first time counts."""
    return replace(facts, opened=facts.opened or now, opened_known=True)


def reported(facts: ServerFacts, report: ServerReport, now: datetime) -> ServerFacts:
    """Its own extension has spoken: from now on we would be told of an opening, and perhaps just were."""
    return opened(facts, now) if report.opened else replace(facts, opened_known=True)
