"""Decide whether a server is kept, its user warned, or the server stopped.

Each cause (idle, not opened, lifetime, an order) has a time at which it ends the server. The earliest of these ends
decides. No end comes before its user has been warned for long enough.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum

from hub_extensions.core.culling.evidence import MISSED, Evidence, ServerFacts, evidence_of
from hub_extensions.core.culling.policy import CullPolicy
from hub_extensions.core.offers.offer_id import CPU
from hub_extensions.core.stops import ORDERED, Cause, Stop, StopCause, Withdrawal, stop_of
from hub_extensions.core.text.reasons import Reason, explain

SHOWN_AFTER = timedelta(minutes=1)
"""Idle time after which the countdown is shown. If the idle limit is shorter than 4 min, a quarter of the limit."""


class Action(Enum):
    """The action for one server now: keep it, warn its user, or stop it."""

    KEEP = "keep"
    WARN = "warn"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class CullDecision:
    """The decision about one server now, with its reason.

    Attributes:
        stops_at: when the server stops if nothing changes; `None` if no countdown is shown. In a dry run see `would`.
        cause: the cause for which the server stops at `stops_at`; `None` if no countdown is shown.
        reason: the sentence for the user ("Idle for 21 min."), or why the server is kept; `None` in a dry run.
        can_keep: whether a press of *Keep* would postpone the end at `stops_at`. *Keep* extends the lifetime only while
            the GPU computes and the limits allow an extension.
        ends_at: the end of the lifetime; `None` without a lifetime, and in a dry run.
        warned: with WARN and STOP, since when the warning of this countdown is shown (now if the warning is new).
            `None` with KEEP.
        would: in a dry run, the decision that would have been made if warnings were given, for the log; otherwise
            `None`.
        begins_before: how long before `stops_at` the stop begins, so that notebooks can be saved. Zero unless somebody
            ordered the stop.
        stop: all causes that will end the server, also before a countdown is shown. `None` without such causes, and in
            a dry run.
        in_vain: True if *Keep* could postpone the end at `stops_at`, but another end comes soon after that end.
    """

    action: Action
    stops_at: datetime | None
    cause: Cause | None
    reason: Reason | None
    can_keep: bool
    ends_at: datetime | None
    warned: datetime | None = None
    would: CullDecision | None = None
    begins_before: timedelta = timedelta(0)
    stop: Stop | None = None
    in_vain: bool = False

    @property
    def latest(self) -> datetime | None:
        """The earliest time at which the server stops and that its user cannot postpone; `None` without such a time."""
        return None if self.stop is None else self.stop.latest

    @property
    def begins_at(self) -> datetime | None:
        """When the stop of the server begins, with the saving of notebooks; `None` if no countdown is shown."""
        return None if self.stops_at is None else self.stops_at - self.begins_before


START_OF_USE = timedelta(minutes=2)  # the first samples of a server may take this long after its start


def decide(
    evidence: Evidence,
    policy: CullPolicy,
    now: datetime,
    warned: datetime | None = None,
    warned_for: Cause | None = None,
    promised: datetime | None = None,
) -> CullDecision:
    """Decide about one server. The earliest end decides, but no end comes before its warning was shown for `warn`.

    A countdown is a promise: no end comes before the time that a countdown has shown, even if the limits have changed
    since, or if that countdown was for another cause. An order is the exception: it comes at its own time, and its stop
    begins earlier by the time that saving takes.

    Args:
        evidence: everything that is known about the server.
        policy: the limits for this server.
        now: the present time of the running clock, which stands still while hub or service is down.
        warned: since when a warning is shown (`ServerFacts.warned`); `None` if none is shown.
        warned_for: the cause of that warning (`ServerFacts.cause`); `None` if the warning counts for any end. A warning
            also counts for an end by another cause, if that end is at least `policy.warn` after the warning began. So
            it does not count for an end that came nearer because an administrator changed the limits.
        promised: the end that the last countdown showed (`ServerFacts.promised`); `None` if none was shown.
    """
    ends = _ends(evidence, policy, now)
    orders = [replace(each, warned=now if warned is None else min(warned, now)) for each in evidence.orders]
    orders += _orphan_end(evidence, policy, now, warned)
    if not policy.enabled and orders:
        return _judge(evidence, policy, now, orders)  # no limit of culling: a dry run does not hold them up
    if policy.enabled:
        dues = (_due(end, policy, now, warned, warned_for) for end in ends)
        return _judge(evidence, policy, now, [*(_as_promised(each, promised, now) for each in dues), *orders])
    would = _judge(evidence, policy, now, [replace(end, warned=now) for end in ends])
    return CullDecision(Action.KEEP, None, None, None, can_keep=False, ends_at=None, would=would)


def lifetime_end(facts: ServerFacts, policy: CullPolicy, now: datetime) -> datetime | None:
    """Return when the lifetime ends this server at the latest; `None` if no lifetime is enforced.

    The returned time is not before the server's user has been warned for long enough, and not before a time that a
    countdown has shown.

    Args:
        facts: what the service remembers of the server.
        policy: the limits for this server.
        now: the present time of the running clock, which stands still while hub or service is down.
    """
    found = _lifetime_end(evidence_of(facts, use_known=False), policy)
    if found is None or not policy.enabled or policy.never:
        return None
    return _as_promised(_due(found, policy, now, facts.warned, facts.cause), facts.promised, now).at


def settle(facts: ServerFacts, decision: CullDecision) -> ServerFacts:
    """Record a decision in the server's facts: since when its user is warned, and the end that was shown.

    The end that a countdown has shown stays a promise after the countdown disappears: the next countdown does not end
    sooner. An order that comes sooner does not cancel the promise: if the order is withdrawn, the other causes end the
    server at the times that were shown. Do not call this for a server whose stop has begun (`StopRecord.begun`), so
    that the stop is carried out as decided.
    """
    promised, cause, ends_at = facts.promised, facts.cause, facts.ends_at
    if decision.stops_at is not None:
        sooner = decision.cause in ORDERED and promised is not None and promised > decision.stops_at
        promised, cause = promised if sooner else decision.stops_at, decision.cause
    if decision.ends_at is not None and (ends_at is None or decision.ends_at > ends_at):
        ends_at = decision.ends_at
    after = (promised, cause, ends_at, decision.warned)
    if after == (facts.promised, facts.cause, facts.ends_at, facts.warned):
        return facts  # of thousands hardly one changes
    return replace(facts, promised=promised, cause=cause, ends_at=ends_at, warned=decision.warned)


def _ends(evidence: Evidence, policy: CullPolicy, now: datetime) -> list[StopCause]:
    if policy.never:
        found: list[StopCause | None] = []
    elif evidence.offer == CPU:
        found = [_cpu_end(evidence, policy, now), _lifetime_end(evidence, policy)]
    else:
        found = [
            _idle_end(evidence, policy, now),
            _unopened_end(evidence, policy, now),
            _lifetime_end(evidence, policy),
        ]
    return [end for end in found if end is not None]


def _idle_end(evidence: Evidence, policy: CullPolicy, now: datetime) -> StopCause | None:
    if evidence.idle_since is None:
        return None  # busy, or its use is not known
    limit, code = idle_limit(evidence, policy)
    ran = evidence.started if evidence.run_ended is None else evidence.run_ended + policy.after_run
    counted = max(evidence.idle_since, evidence.started + policy.grace, _first_use(evidence, policy), ran)
    at = max(counted + limit, evidence.idle_since + evidence.missed * MISSED)  # 90 % of the window is measured by then
    if evidence.kept_until is not None:
        at = max(at, evidence.kept_until)
    idle = now - evidence.idle_since
    # a countdown is a promise: with `wanted`, one that is shown too early would hold the GPU for the longer limit
    shown = idle >= min(SHOWN_AFTER, limit / 4) and (policy.contended_idle is None or evidence.wanted)
    params = {"idle": _so_far(idle)}
    if code == "idle" and counted == evidence.started + policy.grace > evidence.idle_since:
        code, params["grace"] = "idle-at-first", policy.grace  # else its user could not understand why it stops so late
    return StopCause(Cause.IDLE, at, shown, code, params)


def idle_limit(evidence: Evidence, policy: CullPolicy) -> tuple[timedelta, str]:
    """Return how long this server's GPU may be idle now, and the code of the reason why this limit applies.

    Args:
        evidence: everything that is known about the server.
        policy: the limits for this server.
    """
    limit, code = policy.idle_by_offer.get(evidence.offer, policy.idle), "idle"
    held = policy.holds_memory
    if held is not None and held > limit and evidence.memory_held is not False:
        limit, code = held, "idle" if evidence.memory_held is None else "idle-memory"
    if policy.never_used is not None and policy.never_used < limit and _is_untouched(evidence, policy):
        limit, code = policy.never_used, "idle-never-used"
    if policy.contended_idle is not None and policy.contended_idle < limit and evidence.wanted:
        limit, code = policy.contended_idle, "idle-wanted"
    return limit, code


def _is_untouched(evidence: Evidence, policy: CullPolicy) -> bool:
    """Return whether it is known that nothing has used the GPU since the server's start.

    This is known only if the GPU has been idle without a break since shortly after the start, and if no program holds
    GPU memory.

    Args:
        evidence: everything that is known about the server.
        policy: the limits for this server.
    """
    if evidence.used or evidence.adopted or evidence.memory_held is not False or evidence.idle_since is None:
        return False
    return evidence.idle_since <= evidence.started + max(policy.grace, START_OF_USE)


def _first_use(evidence: Evidence, policy: CullPolicy) -> datetime:
    """Return the time from which idleness counts: when the server was first opened.

    If nobody has opened the server, this is the end of the time that users have to open it. It is the server's start if
    the GPU was in use, if the server was found already running (`Evidence.adopted`), or if the time to open it is not
    limited.

    Args:
        evidence: everything that is known about the server.
        policy: the limits for this server.
    """
    if evidence.opened is not None:
        return evidence.opened
    if evidence.used or evidence.adopted or policy.unopened is None:
        return evidence.started
    return evidence.started + policy.unopened


def _unopened_end(evidence: Evidence, policy: CullPolicy, now: datetime) -> StopCause | None:
    if policy.unopened is None or not evidence.opened_known or evidence.opened is not None or evidence.adopted:
        return None  # opened, or it may have been
    if evidence.used:
        return None  # a script that was started by the API, or a program in a pod without a page, is work
    since = {"since": _so_far(now - evidence.started)}
    at = max(evidence.started + policy.unopened, evidence.kept_until or evidence.started)
    return StopCause(Cause.UNOPENED, at, True, "unopened", since)


def _lifetime_end(evidence: Evidence, policy: CullPolicy) -> StopCause | None:
    limit = policy.cpu_lifetime if evidence.offer == CPU else policy.lifetime
    if limit is None:
        return None
    at = evidence.started + limit
    at = at if evidence.ends_at is None else max(at, evidence.ends_at)
    return StopCause(Cause.LIFETIME, at, False, "lifetime", {"limit": at - evidence.started})


def _orphan_end(evidence: Evidence, policy: CullPolicy, now: datetime, warned: datetime | None) -> list[StopCause]:
    """Return the cause that ends an idle server because its user has no sign-on session.

    Without a session it is not known whether the user's account still exists. This cause also counts in a dry run and
    under a rule that keeps servers, because it is about the account, not the GPU.

    Args:
        evidence: what is known of the server.
        policy: the limits for the server.
        now: the present time of the running clock, which stands still while hub or service is down.
        warned: since when the user is warned of this cause; `None` if not yet.

    Returns:
        A list with the cause. Empty if the user has a session, if the server is at work or may be, or if its end is
        further away than the warning time.
    """
    quiet_since = evidence.last_activity if evidence.offer == CPU else evidence.idle_since
    is_known = evidence.use_known or evidence.offer == CPU
    at_rest = evidence.busy_kernels == 0 and not evidence.busy_terminals  # kernels that are not known may be at work
    if evidence.orphaned_at is None or quiet_since is None or not is_known or not at_rest:
        return []
    at = max(evidence.orphaned_at, quiet_since + policy.idle)
    if at > now + policy.warn:
        return []
    since = now if warned is None else min(warned, now)
    params = {"idle": _so_far(now - quiet_since)}
    return [StopCause(Cause.SIGNED_OUT, at, True, "no-session-idle", params, since)]


def _cpu_end(evidence: Evidence, policy: CullPolicy, now: datetime) -> StopCause | None:
    if policy.cpu_idle is None or evidence.last_activity is None or evidence.busy_kernels or evidence.busy_terminals:
        return None  # no limit, unknown activity, or a cell or a program in a terminal is running
    quiet_since = max(min(evidence.last_activity, now), evidence.started)
    quiet = {"quiet": _so_far(now - quiet_since)}
    return StopCause(Cause.CPU_IDLE, quiet_since + policy.cpu_idle, False, "no-activity", quiet)


def _due(
    end: StopCause, policy: CullPolicy, now: datetime, warned: datetime | None, warned_for: Cause | None
) -> StopCause:
    """Return an end, postponed until its warning has been shown for `policy.warn`, with the time of that warning.

    Args:
        end: the cause that ends the server, with its time.
        policy: the limits for the server.
        now: the present time of the running clock, which stands still while hub or service is down.
        warned: since when a warning is shown; `None` if none is shown.
        warned_for: the cause of that warning; `None` if it counts for any end. A warning also counts for an end by
            another cause that is at least `policy.warn` after the warning began.
    """
    since = now
    if warned is not None and (warned_for in (None, end.cause) or end.at >= warned + policy.warn):
        since = min(warned, now)
    return replace(end, at=max(end.at, since + policy.warn), warned=since)


def _as_promised(end: StopCause, promised: datetime | None, now: datetime) -> StopCause:
    """Return this cause, postponed to the time that a countdown has shown, because the user relies on that time.

    If the shown time is much later than the limit, the sentence about idleness is replaced by one that explains the
    difference.

    Args:
        end: the cause.
        promised: the end that the last countdown showed, for any cause. `None` if none was shown.
        now: the present time of the running clock, which stands still while hub or service is down.
    """
    if promised is None or promised < end.at:
        return end
    if end.code in ("idle", "idle-at-first") and promised - max(end.at, now) > SHOWN_AFTER:
        end = replace(end, code="idle-promised", params={"idle": end.params["idle"]})
    return replace(end, at=promised, shown=True)


def _judge(evidence: Evidence, policy: CullPolicy, now: datetime, causes: list[StopCause]) -> CullDecision:
    stop = stop_of(causes, now, evidence.use_known)
    if stop is None:
        return CullDecision(Action.KEEP, None, None, _why_kept(evidence, policy), can_keep=False, ends_at=None)
    limit, end = next((each.at for each in causes if each.cause is Cause.LIFETIME), None), stop.first
    known = evidence.use_known or end.cause is not Cause.IDLE
    warns = end.cause in ORDERED or end.at - now <= policy.warn
    before = evidence.saves_for if end.cause in ORDERED else timedelta(0)
    action = Action.STOP if now >= end.at - before and known else Action.WARN if warns else Action.KEEP
    if action is Action.KEEP and not any(each.shown for each in causes):
        why = _why_kept(evidence, policy)
        return CullDecision(Action.KEEP, None, None, why, can_keep=False, ends_at=limit, stop=stop)
    moved = _moved(stop, evidence, policy, now)
    return CullDecision(
        action=action,
        stops_at=end.at,
        cause=end.cause,
        reason=end.reason,
        can_keep=not evidence.no_session and moved is not None and moved,
        ends_at=limit,
        warned=None if action is Action.KEEP else end.warned,
        begins_before=before,
        stop=stop,
        in_vain=moved is False,
    )


def _moved(stop: Stop, evidence: Evidence, policy: CullPolicy, now: datetime) -> bool | None:
    """Return whether a press of *Keep* would give the user at least half of the time that *Keep* promises.

    False if another end comes too soon, or if an order stops the server before the promised time. `None` if *Keep*
    cannot postpone the end that comes first.

    Args:
        stop: the causes that end the server, the first of which *Keep* would postpone.
        evidence: everything that is known about the server.
        policy: the limits for this server.
        now: the present time of the running clock, which stands still while hub or service is down.
    """
    first, others = stop.first, stop.others
    if first.cause is Cause.LIFETIME and can_extend(evidence, policy):
        return not extension_is_vain(first, others, policy)
    if first.withdrawn_by is not Withdrawal.KEEP:
        return None
    until = max(first.at, now) + policy.keep
    ordered = any(each.cause in ORDERED and each.at < until for each in others)
    return not ordered and stop.after_keep(until) - first.at >= policy.keep / 2


def extension_is_vain(lifetime: StopCause, causes: Iterable[StopCause], policy: CullPolicy) -> bool:
    """Return whether the server would gain less than half of an extension of its lifetime, because of another end.

    An order that comes before the extended end counts at any time.

    Args:
        lifetime: the end of the lifetime.
        causes: the causes that end the server, with or without that one.
        policy: the limits for this server.
    """
    until = lifetime.at + policy.extend_lifetime
    others = [each for each in causes if each.cause is not Cause.LIFETIME]
    ordered = any(each.cause in ORDERED and each.at < until for each in others)
    return ordered or any(each.at - lifetime.at < policy.extend_lifetime / 2 for each in others)


def can_extend(evidence: Evidence, policy: CullPolicy) -> bool:
    """Return whether *Keep* can extend the lifetime: the GPU is known to compute, and an extension is left.

    Args:
        evidence: everything that is known about the server.
        policy: the limits for this server.
    """
    at_work = evidence.offer != CPU and evidence.use_known and evidence.idle_since is None
    return at_work and evidence.extensions < policy.max_lifetime_extensions


def _why_kept(evidence: Evidence, policy: CullPolicy) -> Reason:
    if policy.never:
        return explain("kept-by-rule")
    if evidence.offer == CPU:
        if policy.cpu_idle is None:
            return explain("cpu-not-stopped" if policy.cpu_lifetime is None else "cpu-time-limit-only")
        if evidence.busy_kernels or evidence.busy_terminals:
            return explain("cell-runs" if evidence.busy_kernels else "terminal-busy")
        return explain("activity-not-known" if evidence.last_activity is None else "used-lately")
    if not evidence.use_known and evidence.idle_since is None:
        return explain("use-not-known")
    if evidence.idle_since is None:
        return explain("gpu-in-use")
    waits = policy.contended_idle is not None and not evidence.wanted
    return explain("idle-not-wanted" if waits else "gpu-used-just-now")


def _so_far(length: timedelta) -> timedelta:
    """Round down a duration that grows while the user reads it: to whole minutes, or to seconds below a minute."""
    minute, second = timedelta(minutes=1), timedelta(seconds=1)
    return length - length % (minute if length >= minute else second)
