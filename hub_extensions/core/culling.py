"""Stopping servers that hold a GPU for nothing: evidence + policy + now -> keep | warn | stop, with a reason.

A busy or an unknown GPU is never stopped for idleness. The lifetime ends every GPU server, with the same warning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum


@dataclass(frozen=True)
class CullPolicy:
    """The admin's limits. All times are running time of hub and service: an outage moves every deadline.

    Attributes:
        enabled: False is a dry run: decisions are logged, nothing is stopped and no countdown is shown.
        idle: a GPU below `idle_below_percent` for this long is idle.
        idle_by_offer: offer id -> its own idle limit.
        idle_below_percent: use below this is idle, 0 to 100.
        warn: this long before a stop the user is warned.
        keep: how much one *keep* adds.
        keeps_per_day: how many *keep* a server's user has in 24 hours.
        lifetime: a GPU server ends after this, busy or not; no *keep* moves it. None is no limit.
        grace: no idleness is counted this long after the start.
        unopened: a GPU server that nobody has opened this long after its start is stopped. None is never.
        cpu_idle: the idle limit of CPU-only servers, by the hub's last activity. None is never.
    """

    enabled: bool = False
    idle: timedelta = timedelta(minutes=30)
    idle_by_offer: Mapping[str, timedelta] = field(default_factory=dict)
    idle_below_percent: float = 5.0
    warn: timedelta = timedelta(minutes=10)
    keep: timedelta = timedelta(minutes=30)
    keeps_per_day: int = 2
    lifetime: timedelta | None = timedelta(hours=12)
    grace: timedelta = timedelta(minutes=10)
    unopened: timedelta | None = timedelta(minutes=15)
    cpu_idle: timedelta | None = timedelta(hours=12)


class Cause(Enum):
    """Why a server will be stopped; also the word for the metric."""

    IDLE = "idle"
    LIFETIME = "lifetime"
    UNOPENED = "unopened"
    CPU_IDLE = "cpu-idle"


class Action(Enum):
    KEEP = "keep"
    WARN = "warn"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known about one running server. Times are aware and on the service's running clock.

    Attributes:
        offer: the offer's id (``cpu`` for a CPU-only server).
        started: when the server was ready (or adopted).
        adopted: it ran before this product did: nothing counts before one full idle limit.
        opened: first opened by a browser; None: not yet. `opened_known` says whether somebody would have told us.
        idle_since: the device has been below the limit since; None: busy, or not known.
        use_known: False: the card or its driver cannot tell the use; never idle then.
        kept_until: the last *keep* holds idleness off until then.
        last_activity: the hub's figure (CPU only).
        busy_kernels: from the server's report; None is not known (CPU only).
    """

    offer: str
    started: datetime
    adopted: bool
    opened: datetime | None
    opened_known: bool
    idle_since: datetime | None
    use_known: bool
    kept_until: datetime | None = None
    last_activity: datetime | None = None
    busy_kernels: int | None = None


@dataclass(frozen=True, slots=True)
class CullDecision:
    """What to do with one server, and why.

    Attributes:
        stops_at: when it stops if nothing changes; None: no end in sight (or a dry run: ask `would_stop_at`).
        cause: None with action KEEP and no end in sight.
        reason: one sentence for its user ("Idle for 21 min.").
        can_keep: a *keep* would move this end (never the lifetime's).
        ends_at: the lifetime's end, whatever is done; None without a lifetime.
    """

    action: Action
    stops_at: datetime | None
    cause: Cause | None
    reason: str
    can_keep: bool
    ends_at: datetime | None


@dataclass(frozen=True)
class ServerFacts:
    """What the service remembers of one running server between decisions, and across its own restarts.

    Attributes:
        started: when it was ready; with user and server it names this run of the server.
        lease: None for a CPU-only server.
        keeps: when *keep* was pressed (only the last 24 hours count).
        warned: a warning was shown for the present countdown since.
        stopping: the stop was decided (and journaled) then, for `cause`; None: it runs.
    """

    user: str
    server: str
    offer: str
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
