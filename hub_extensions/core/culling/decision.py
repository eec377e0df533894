"""Keep, warn or stop: the earliest end wins, and no end comes before its warning."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum

from hub_extensions.core.culling.evidence import MISSED, Evidence, ServerFacts, evidence_of
from hub_extensions.core.culling.policy import CullPolicy
from hub_extensions.core.offers.offer_id import CPU
from hub_extensions.core.stops import ORDERED, Cause, Stop, StopCause, Withdrawal, stop_of
from hub_extensions.core.text.reasons import Reason, explain

SHOWN_AFTER = timedelta(minutes=1)
"""Idle for this long (a quarter of a limit that is shorter than 4 min) and the countdown is shown."""


class Action(Enum):
    """What to do with a server now."""

    KEEP = "keep"
    WARN = "warn"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class CullDecision:
    """What to do with one server, and why.

    Attributes:
        stops_at: when it stops if nothing changes; None: no end in sight (or a dry run: ask `would_stop_at`).
        cause: None with action KEEP and no end in sight.
        reason: why, for its user ("Idle for 21 min."); None in a dry run.
        stop: all causes in sight, also where no countdown is shown yet; None: there is none, or a dry run.
        can_keep: a *keep* would move this end (the lifetime's only while the GPU works, where the policy lets it).
        in_vain: it would not, only because another end comes soon after.
        ends_at: the lifetime's end, whatever is done; None without a lifetime, and in a dry run.
        warned: with WARN and STOP: the warning of this countdown is shown since then (now, when it is a new one).
        would: in a dry run what would have been decided, as if the warnings had been given; for the log.
        begins_before: with STOP, saving begins so long before `stops_at`; the server runs until then.
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
        """The end that nothing moves which the server's user does; None: there is no such end."""
        return None if self.stop is None else self.stop.latest

    @property
    def begins_at(self) -> datetime | None:
        """When the stop begins."""
        return None if self.stops_at is None else self.stops_at - self.begins_before

    @property
    def would_stop_at(self) -> datetime | None:
        """When the server would stop if this were no dry run; the same as `stops_at` where it is none."""
        return self.stops_at if self.would is None else self.would.stops_at


START_OF_USE = timedelta(minutes=2)
"""So long after a start its first samples may come."""


def decide(
    evidence: Evidence,
    policy: CullPolicy,
    now: datetime,
    warned: datetime | None = None,
    warned_for: Cause | None = None,
    promised: datetime | None = None,
) -> CullDecision:
    """What to do with one server now. The earliest end wins; no end comes before its warning was shown for `warn`.

    Nor does one come before a countdown said so, whatever the limits are by now, and whatever its cause was. A drain
    comes at its time, and its stop begins before that by as long as saving takes.

    Args:
        warned: since when a warning is shown (`ServerFacts.warned`), None: none is.
        warned_for: what that warning was for (`ServerFacts.cause`); None: for any end. It counts for another end too
            when that end was in sight as well, but not for one that an admin has moved into the countdown.
        promised: the end that the last countdown showed (`ServerFacts.promised`), None: none was shown yet.
    """
    ends = _ends(evidence, policy, now)
    orders = [each.as_cause(now if warned is None else min(warned, now)) for each in evidence.orders]
    orders += _orphan_end(evidence, policy, now, warned)
    if not policy.enabled and orders:
        return _judge(evidence, policy, now, orders)  # no limit of culling: a dry run does not hold them up
    if policy.enabled:
        dues = (_due(end, policy, now, warned, warned_for) for end in ends)
        return _judge(evidence, policy, now, [*(_as_promised(each, promised, now) for each in dues), *orders])
    would = _judge(evidence, policy, now, [replace(end, warned=now) for end in ends])
    return CullDecision(Action.KEEP, None, None, None, can_keep=False, ends_at=None, would=would)


def lifetime_end(facts: ServerFacts, policy: CullPolicy, now: datetime) -> datetime | None:
    """When the lifetime ends this server at the latest, decided as `decide` does: after its warning, and as promised.

    None: no limit is enforced.
    """
    found = _lifetime_end(evidence_of(facts, use_known=False), policy)
    if found is None or not policy.enabled or policy.never:
        return None
    return _as_promised(_due(found, policy, now, facts.warned, facts.cause), facts.promised, now).at


def settle(facts: ServerFacts, decision: CullDecision) -> ServerFacts:
    """The facts after a decision: since when its user is warned, and why; the ends that its user is shown are kept.

    A countdown that goes away was a promise all the same: the next one is not shorter. An order that comes sooner takes
    no promise back: once it is withdrawn the others come at the times that were shown. The facts of a server whose stop
    has begun (`StopRecord.begun`) are not settled: the stop is carried out, whatever is sampled meanwhile.
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
        return None  # busy, or nobody can tell
    limit, code = idle_limit(evidence, policy)
    ran = evidence.started if evidence.run_ended is None else evidence.run_ended + policy.after_run
    counted = max(evidence.idle_since, evidence.started + policy.grace, _first_use(evidence, policy), ran)
    at = max(counted + limit, evidence.idle_since + evidence.missed * MISSED)  # of the window 90 % is known by then
    if evidence.kept_until is not None:
        at = max(at, evidence.kept_until)
    idle = now - evidence.idle_since
    # what is shown is a promise, and who waits from then on would wait for the longer limit
    shown = idle >= min(SHOWN_AFTER, limit / 4) and (policy.wanted is None or evidence.wanted)
    params = {"idle": _so_far(idle)}
    if code == "idle" and counted == evidence.started + policy.grace > evidence.idle_since:
        code, params["grace"] = "idle-at-first", policy.grace  # else nobody can tell why it stops so late
    return StopCause(Cause.IDLE, at, shown, code, params)


def idle_limit(evidence: Evidence, policy: CullPolicy) -> tuple[timedelta, str]:
    """How long this GPU may be idle now, and the code of the reason that says why it is this long."""
    limit, code = policy.idle_by_offer.get(evidence.offer, policy.idle), "idle"
    held = policy.holds_memory
    if held is not None and held > limit and evidence.memory_held is not False:
        limit, code = held, "idle" if evidence.memory_held is None else "idle-memory"
    if policy.never_used is not None and policy.never_used < limit and _is_untouched(evidence, policy):
        limit, code = policy.never_used, "idle-never-used"
    if policy.wanted is not None and policy.wanted < limit and evidence.wanted:
        limit, code = policy.wanted, "idle-wanted"
    return limit, code


def _is_untouched(evidence: Evidence, policy: CullPolicy) -> bool:
    """Nothing has used it since the start, and that is known: one idle window, which began with it."""
    if evidence.used or evidence.adopted or evidence.memory_held is not False or evidence.idle_since is None:
        return False
    return evidence.idle_since <= evidence.started + max(policy.grace, START_OF_USE)


def _first_use(evidence: Evidence, policy: CullPolicy) -> datetime:
    """Idleness counts from the first opening; without one from the end of the time a server waits to be opened.

    A GPU that was in use counts as opened: what is idle since then has been idle for no longer.
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
        return None  # a script that the API started, or a program in a pod without a page, is work
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
    """The end of a server that has nobody signed in, once it is idle; in doubt it is not.

    It counts in a dry run and beside a rule that keeps servers, because it is about an account and not about a GPU.
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
        return None  # no limit, nobody can tell, or a cell or a program in a terminal is running
    quiet_since = max(min(evidence.last_activity, now), evidence.started)
    quiet = {"quiet": _so_far(now - quiet_since)}
    return StopCause(Cause.CPU_IDLE, quiet_since + policy.cpu_idle, False, "no-activity", quiet)


def _due(
    end: StopCause, policy: CullPolicy, now: datetime, warned: datetime | None, warned_for: Cause | None
) -> StopCause:
    """This end when it stops the server, and since when its warning counts: it has to stand for `warn` first."""
    since = now
    if warned is not None and (warned_for in (None, end.cause) or end.at >= warned + policy.warn):
        since = min(warned, now)
    return replace(end, at=max(end.at, since + policy.warn), warned=since)


def _as_promised(end: StopCause, promised: datetime | None, now: datetime) -> StopCause:
    """Not before what a countdown showed, whatever it was for: its user counts on that time.

    Where that is much later than the limit says, as of a server that nobody had opened, the reason says so, if it has
    no more to say itself.
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
    """Whether a *keep* gives what it promises; None: it never moves this end.

    It does not where an order stops the server before then, and where another end leaves less than half of its time.
    """
    first, others = stop.first, stop.others
    if first.cause is Cause.LIFETIME and _can_extend(evidence, policy):
        longer, until = policy.extend_lifetime, first.at + policy.extend_lifetime
        after = min((until, *(each.at for each in others)))
    elif first.withdrawn_by is Withdrawal.KEEP:
        longer, until = policy.keep, max(first.at, now) + policy.keep
        after = stop.after_keep(until)
    else:
        return None
    ordered = any(each.cause in ORDERED and each.at < until for each in others)
    return not ordered and after - first.at >= longer / 2


def _can_extend(evidence: Evidence, policy: CullPolicy) -> bool:
    """Its GPU computes just now, which is known, and its user has an extension left."""
    at_work = evidence.offer != CPU and evidence.use_known and evidence.idle_since is None
    return at_work and evidence.extensions < policy.extend_lifetime_times


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
    waits = policy.wanted is not None and not evidence.wanted
    return explain("idle-not-wanted" if waits else "gpu-used-just-now")


def _so_far(length: timedelta) -> timedelta:
    """A length that grows while it is read: whole minutes once there is one, else whole seconds."""
    minute, second = timedelta(minutes=1), timedelta(seconds=1)
    return length - length % (minute if length >= minute else second)
