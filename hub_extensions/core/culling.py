"""Stopping servers that hold a GPU for nothing: evidence + policy + now -> keep | warn | stop, with a reason.

A busy or an unknown GPU is never stopped for idleness. The lifetime ends every GPU server, with the same warning.
One round of the service for one server: `observe` its sample, `decide`, `settle` the facts, then act on the decision.
Not here: who reads the samples, who asks the user to save, and who stops the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, ClassVar

from hub_extensions.core.gpu.samples import ServerReport
from hub_extensions.core.offers.offer_id import CPU, OfferId, OfferIdError
from hub_extensions.core.reasons import Reason, explain
from hub_extensions.core.settings import setting
from hub_extensions.core.wording import duration

DAY = timedelta(hours=24)
"""The time in which `CullPolicy.keeps_per_day` are counted."""

SHOWN_AFTER = timedelta(minutes=1)
"""Idle for this long (a quarter of a limit that is shorter than 4 min) and the countdown is shown."""


@dataclass(frozen=True)
class CullPolicy:
    """When servers are stopped to give their GPU to the next in line.

    All times are running time of hub and service: an outage moves every deadline.
    """

    section: ClassVar[str] = "GpuCulling"

    enabled: bool = setting(
        False,
        "True stops servers by the limits below. False only writes into the service's log what would have been "
        "stopped: no server stops, no countdown is shown, and no wait is said to be at most so long.",
    )
    idle: timedelta = setting(
        timedelta(minutes=30), "A server whose GPU was idle for this long is stopped.", name="idle_minutes", least=0
    )
    idle_by_offer: Mapping[str, timedelta] = setting(
        {},
        'Another idle limit for single offers, by the offer\'s id: {"gpu": 15}.',
        name="idle_minutes_by_offer",
        least=0,
    )
    idle_below_percent: float = setting(
        5.0, "A GPU used less than this is idle. Unit: percent, 0 to 100.", least=0, most=100
    )
    warn: timedelta = setting(
        timedelta(minutes=10), "Users are warned this long before their server stops.", name="warn_minutes", least=0
    )
    keep: timedelta = setting(
        timedelta(minutes=30), "How much time one press of Keep adds.", name="keep_minutes", least=0
    )
    keeps_per_day: int = setting(2, "How often a user may press Keep for a server in 24 hours.", least=0)
    lifetime: timedelta | None = setting(
        timedelta(hours=12),
        "A server with a GPU ends after this, busy or not; Keep does not move it. None: no such limit.",
        name="lifetime_hours",
        least=0,
    )
    grace: timedelta = setting(
        timedelta(minutes=10),
        "No idle time is counted this long after a server's start.",
        name="grace_minutes",
        least=0,
    )
    unopened: timedelta | None = setting(
        timedelta(minutes=15),
        "A server with a GPU that nobody has opened this long after its start is stopped, and its user is told. None: "
        "never.",
        name="unopened_minutes",
        least=0,
    )
    cpu_idle: timedelta | None = setting(
        timedelta(hours=12),
        "A server without a GPU is stopped when its user was away for this long and no kernel is busy. None: never.",
        name="cpu_idle_minutes",
        least=0,
    )


class Cause(Enum):
    """Why a server will be stopped; also the metric's `reason`."""

    IDLE = "idle"
    LIFETIME = "lifetime"
    UNOPENED = "unopened"
    CPU_IDLE = "cpu-idle"


class Action(Enum):
    """What to do with a server now."""

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
        kept_until: the last *keep* promised that it is not stopped for idleness before then.
        last_activity: the hub's figure (CPU only).
        busy_kernels: from the server's report; None is not known (CPU only).
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


@dataclass(frozen=True, slots=True)
class CullDecision:
    """What to do with one server, and why.

    Attributes:
        stops_at: when it stops if nothing changes; None: no end in sight (or a dry run: ask `would_stop_at`).
        cause: None with action KEEP and no end in sight.
        reason: why, for its user ("Idle for 21 min."); None in a dry run.
        can_keep: a *keep* would move this end (never the lifetime's).
        ends_at: the lifetime's end, whatever is done; None without a lifetime, and in a dry run.
        warned: with WARN and STOP: the warning of this countdown is shown since then (now, when it is a new one).
        would: in a dry run what would have been decided, as if the warnings had been given; for the log.
    """

    action: Action
    stops_at: datetime | None
    cause: Cause | None
    reason: Reason | None
    can_keep: bool
    ends_at: datetime | None
    warned: datetime | None = None
    would: CullDecision | None = None

    @property
    def would_stop_at(self) -> datetime | None:
        """When the server would stop if this were no dry run; the same as `stops_at` where it is none."""
        return self.stops_at if self.would is None else self.would.stops_at


@dataclass(frozen=True)
class ServerFacts:
    """What the service remembers of one running server between decisions, and across its own restarts.

    Attributes:
        started: when it was ready; with user and server it names this run of the server.
        lease: None for a CPU-only server.
        keeps: when *keep* was pressed (only the last 24 hours count).
        warned: a warning was shown for the present countdown since.
        stopping: the stop was decided (and journaled) then; None: it runs.
        cause: what the warning or the stop is for; None without either.
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


@dataclass(frozen=True, slots=True)
class KeepRefused:
    """A *keep* that cannot be given: the message for the user, and a stable code for programs."""

    message: str
    reason: str


class PolicyError(ValueError):
    """A limit that cannot be followed.

    Attributes:
        field: the field of `CullPolicy`.
        text: what is wrong and what would be right.
    """

    def __init__(self, field: str, text: str) -> None:
        super().__init__(f"{field}: {text}")
        self.field = field
        self.text = text


@dataclass(frozen=True, slots=True)
class _End:
    """One reason to stop, when it falls due without regard to warnings, and whether its countdown is shown already."""

    cause: Cause
    at: datetime
    shown: bool
    reason: Reason


def decide(
    evidence: Evidence,
    policy: CullPolicy,
    now: datetime,
    warned: datetime | None = None,
    warned_for: Cause | None = None,
) -> CullDecision:
    """What to do with one server now. The earliest end wins; no end comes before its warning was shown for `warn`.

    Args:
        warned: since when a warning is shown (`ServerFacts.warned`), None: none is.
        warned_for: what that warning was for (`ServerFacts.cause`); None: for any end. It counts for another end too
            when that end was in sight as well, but not for one that an admin has moved into the countdown.
    """
    ends = _ends(evidence, policy, now)
    if policy.enabled:
        return _judge(evidence, policy, now, [(end, *_due(end, policy, now, warned, warned_for)) for end in ends])
    would = _judge(evidence, policy, now, [(end, end.at, now) for end in ends])
    return CullDecision(Action.KEEP, None, None, None, can_keep=False, ends_at=None, would=would)


def evidence_of(
    facts: ServerFacts,
    *,
    use_known: bool,
    last_activity: datetime | None = None,
    busy_kernels: int | None = None,
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


def settle(facts: ServerFacts, decision: CullDecision, now: datetime) -> ServerFacts:
    """The facts after a decision: when it was warned or stopped, and why; a countdown that went away is forgotten."""
    if facts.stopping is not None:
        return facts  # a stop that was decided is carried out, whatever is sampled meanwhile
    if decision.action is Action.KEEP:
        return replace(facts, warned=None, cause=None)
    stopping = now if decision.action is Action.STOP else None
    return replace(facts, warned=decision.warned, cause=decision.cause, stopping=stopping)


def keep(facts: ServerFacts, policy: CullPolicy, now: datetime) -> ServerFacts | KeepRefused:
    """Move the idle end of a server by `policy.keep`, for one of its keeps. It never moves an end to the front.

    Refused, with a sentence, where it would move nothing: no countdown, the lifetime's end, none left.
    """
    if facts.stopping is not None:
        return KeepRefused("This server is already stopping.", "stopping")
    if not policy.enabled:
        return KeepRefused("There is nothing to keep: no server is stopped for idleness here.", "dry-run")
    if facts.offer == CPU:
        return KeepRefused("A CPU-only server stays as long as it is used: there is nothing to keep.", "cpu")
    known = evidence_of(facts, use_known=facts.idle_since is not None)
    decision = decide(known, policy, now, facts.warned, facts.cause)
    if decision.cause is Cause.LIFETIME and decision.reason is not None:
        return KeepRefused(f"{decision.reason.message} That end cannot be moved.", "lifetime")
    if decision.cause is Cause.UNOPENED:
        return KeepRefused("Open this server to keep it.", "unopened")
    if decision.stops_at is None:
        return KeepRefused("There is no countdown: this server is not about to stop.", "no-countdown")
    if keeps_left(facts, policy, now) == 0:
        return KeepRefused(_none_left(facts, policy, now), "none-left")
    return replace(
        facts,
        kept_until=max(decision.stops_at, now) + policy.keep,
        keeps=(*_recent_keeps(facts, now), now),
        warned=None,
        cause=None,
    )


def keeps_left(facts: ServerFacts, policy: CullPolicy, now: datetime) -> int:
    """How many *keep* are left of those in 24 hours."""
    return max(0, policy.keeps_per_day - len(_recent_keeps(facts, now)))


def ends_at(started: datetime, policy: CullPolicy) -> datetime | None:
    """When the lifetime ends a GPU server that was ready at `started`; None: no limit is enforced (a dry run, too)."""
    return started + policy.lifetime if policy.enabled and policy.lifetime is not None else None


def culling_rule(policy: CullPolicy) -> Reason | None:
    """When a GPU server stops; None in a dry run."""
    if not policy.enabled:
        return None
    limits = (policy.idle, *policy.idle_by_offer.values())
    code, lengths = "rule", dict[str, Any](idle=min(limits), warn=policy.warn)
    if min(limits) != max(limits):
        code, lengths["longest"] = f"{code}-by-offer", max(limits)
    if policy.lifetime is not None:
        code, lengths["limit"] = f"{code}-at-most", policy.lifetime
    return explain(code, **lengths)


def culling_sentence(policy: CullPolicy) -> str:
    """When a GPU server stops, for the spawn form; empty in a dry run."""
    rule = culling_rule(policy)
    return "" if rule is None else rule.message


def check_policy(policy: CullPolicy) -> None:
    """Refuse limits that cannot be followed.

    Raises:
        PolicyError: the first field that is wrong.
    """
    for offer in policy.idle_by_offer:
        _check_offer(offer)
    if not 0 < policy.idle_below_percent <= 100:
        raise PolicyError("idle_below_percent", f"above 0 and at most 100, not {policy.idle_below_percent:g}")
    if policy.keeps_per_day < 0:
        raise PolicyError("keeps_per_day", f"0 or more, not {policy.keeps_per_day}")
    if policy.grace < timedelta(0):
        raise PolicyError("grace", "0 or more, not negative")
    for name, value in (("warn", policy.warn), ("keep", policy.keep)):
        if value <= timedelta(0):
            raise PolicyError(name, "longer than 0 is needed")
    limits = {
        "idle": policy.idle,
        **{f"idle_by_offer[{offer!r}]": limit for offer, limit in policy.idle_by_offer.items()},
        "lifetime": policy.lifetime,
        "unopened": policy.unopened,
        "cpu_idle": policy.cpu_idle,
    }
    for name, limit in limits.items():
        if limit is not None and limit <= timedelta(0):
            raise PolicyError(name, "longer than 0 is needed")
        if limit is not None and limit <= policy.warn:
            raise PolicyError(name, f"longer than the warning is needed (warn is {duration(policy.warn)})")


# How the ends of one server are found


def _ends(evidence: Evidence, policy: CullPolicy, now: datetime) -> list[_End]:
    if evidence.offer == CPU:
        found = [_cpu_end(evidence, policy, now)]
    else:
        found = [
            _idle_end(evidence, policy, now),
            _unopened_end(evidence, policy, now),
            _lifetime_end(evidence, policy),
        ]
    return [end for end in found if end is not None]


def _idle_end(evidence: Evidence, policy: CullPolicy, now: datetime) -> _End | None:
    if not evidence.use_known or evidence.idle_since is None:
        return None  # busy, or nobody can tell
    limit = policy.idle_by_offer.get(evidence.offer, policy.idle)
    counted = max(evidence.idle_since, evidence.started + policy.grace, _first_use(evidence, policy))
    at = counted + limit if evidence.kept_until is None else max(counted + limit, evidence.kept_until)
    shown = now - evidence.idle_since >= min(SHOWN_AFTER, limit / 4)
    return _End(Cause.IDLE, at, shown, explain("idle", idle=_so_far(now - evidence.idle_since)))


def _first_use(evidence: Evidence, policy: CullPolicy) -> datetime:
    """Idleness counts from the first opening; without one from the end of the time a server waits to be opened."""
    if evidence.opened is not None:
        return evidence.opened
    if evidence.adopted or policy.unopened is None:
        return evidence.started
    return evidence.started + policy.unopened


def _unopened_end(evidence: Evidence, policy: CullPolicy, now: datetime) -> _End | None:
    if policy.unopened is None or not evidence.opened_known or evidence.opened is not None or evidence.adopted:
        return None  # opened, or it may have been
    reason = explain("unopened", since=_so_far(now - evidence.started))
    return _End(Cause.UNOPENED, evidence.started + policy.unopened, True, reason)


def _lifetime_end(evidence: Evidence, policy: CullPolicy) -> _End | None:
    if policy.lifetime is None:
        return None
    reason = explain("lifetime", limit=policy.lifetime)
    return _End(Cause.LIFETIME, evidence.started + policy.lifetime, False, reason)


def _cpu_end(evidence: Evidence, policy: CullPolicy, now: datetime) -> _End | None:
    if policy.cpu_idle is None or evidence.last_activity is None or evidence.busy_kernels:
        return None  # no limit, nobody can tell, or a cell is running
    quiet_since = max(min(evidence.last_activity, now), evidence.started)
    reason = explain("no-activity", quiet=_so_far(now - quiet_since))
    return _End(Cause.CPU_IDLE, quiet_since + policy.cpu_idle, False, reason)


# How one of them becomes the decision


def _due(
    end: _End, policy: CullPolicy, now: datetime, warned: datetime | None, warned_for: Cause | None
) -> tuple[datetime, datetime]:
    """When this end stops the server, and since when its warning counts: it has to stand for `warn` first."""
    since = now
    if warned is not None and (warned_for in (None, end.cause) or end.at >= warned + policy.warn):
        since = min(warned, now)
    return max(end.at, since + policy.warn), since


def _judge(
    evidence: Evidence, policy: CullPolicy, now: datetime, dues: list[tuple[_End, datetime, datetime]]
) -> CullDecision:
    limit = next((stops_at for end, stops_at, _ in dues if end.cause is Cause.LIFETIME), None)
    if not dues:
        return CullDecision(Action.KEEP, None, None, _why_kept(evidence, policy), can_keep=False, ends_at=None)
    # of two at the same time the one that no *keep* moves
    end, stops_at, since = min(dues, key=lambda due: (due[1], due[0].cause is Cause.IDLE))
    action = Action.STOP if now >= stops_at else Action.WARN if stops_at - now <= policy.warn else Action.KEEP
    if action is Action.KEEP and not any(due[0].shown for due in dues):
        return CullDecision(Action.KEEP, None, None, _why_kept(evidence, policy), can_keep=False, ends_at=limit)
    return CullDecision(
        action=action,
        stops_at=stops_at,
        cause=end.cause,
        reason=end.reason,
        can_keep=end.cause is Cause.IDLE,
        ends_at=limit,
        warned=None if action is Action.KEEP else since,
    )


def _why_kept(evidence: Evidence, policy: CullPolicy) -> Reason:
    if evidence.offer == CPU:
        if policy.cpu_idle is None:
            return explain("cpu-not-stopped")
        if evidence.busy_kernels:
            return explain("cell-runs")
        return explain("activity-not-known" if evidence.last_activity is None else "used-lately")
    if not evidence.use_known:
        return explain("use-not-known")
    return explain("gpu-in-use" if evidence.idle_since is None else "gpu-used-just-now")


def _so_far(length: timedelta) -> timedelta:
    """A length that grows while it is read: whole minutes once there is one, else whole seconds."""
    minute, second = timedelta(minutes=1), timedelta(seconds=1)
    return length - length % (minute if length >= minute else second)


def _recent_keeps(facts: ServerFacts, now: datetime) -> tuple[datetime, ...]:
    return tuple(pressed for pressed in facts.keeps if now - pressed < DAY)


def _none_left(facts: ServerFacts, policy: CullPolicy, now: datetime) -> str:
    if policy.keeps_per_day == 0:
        return "Keeping a server is not offered here."
    oldest = sorted(_recent_keeps(facts, now))[-policy.keeps_per_day]
    wait = duration(oldest + DAY - now)
    return f"It was kept {policy.keeps_per_day} times in 24 h, which is all; again in {wait}."


def _check_offer(offer: str) -> None:
    try:
        OfferId(offer)
    except OfferIdError as error:
        raise PolicyError(f"idle_by_offer[{offer!r}]", str(error)) from error
    if offer == CPU:
        raise PolicyError(f"idle_by_offer[{offer!r}]", "CPU-only servers have a limit of their own: cpu_idle")
