"""The effect of *Keep*, with which a user postpones the stop of the server, and the reasons to refuse it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from hub_extensions.core.culling.decision import CullDecision, can_extend, decide, extension_is_vain
from hub_extensions.core.culling.evidence import Evidence, ServerFacts
from hub_extensions.core.culling.policy import CullPolicy
from hub_extensions.core.offers.offer_id import CPU
from hub_extensions.core.stops import Cause, StopCause
from hub_extensions.core.text.reasons import Reason, explain

DAY = timedelta(hours=24)
"""Time within which a user's presses of *Keep* are counted for `CullPolicy.keeps_per_day`, for all servers together."""


def keep(
    evidence: Evidence, facts: ServerFacts, policy: CullPolicy, now: datetime, pressed: Sequence[datetime]
) -> ServerFacts | Reason:
    """Apply a press of *Keep*.

    *Keep* postpones the end of an idle or unopened server by `policy.keep`. If the lifetime is about to end a server
    whose GPU is busy, *Keep* extends the lifetime by `policy.extend_lifetime`, if the limits allow that. It never makes
    an end earlier. The caller checks that the stop can still be withdrawn (``core/stops``).

    Args:
        evidence: everything that is known about the server.
        facts: what the service remembers of the server.
        policy: the limits for this server.
        now: the present time of the running clock, which stands still while hub or service is down.
        pressed: when the user has pressed *Keep* before, for any server.

    Returns:
        The server's changed facts, or the reason why *Keep* is refused: no countdown is shown, the end cannot be
        postponed, another end comes soon after, the user has no session, or the user has pressed it too often.
    """
    refused = _never_kept(evidence, facts, policy)
    if refused is not None:
        return refused
    decision = decide(evidence, policy, now, facts.warned, facts.cause, facts.promised)
    if decision.cause is Cause.LIFETIME:
        return _extended(evidence, facts, policy, decision)
    ordered = _order_against(decision)
    if ordered is not None:
        return ordered
    if decision.stops_at is None:
        return explain("keep-no-countdown")
    if decision.in_vain:
        return explain("keep-in-vain")
    if keeps_left(policy, now, pressed) == 0:
        return _none_left(policy, now, pressed)
    kept = replace(facts, kept_until=max(decision.stops_at, now) + policy.keep)
    return _not_warned(replace(kept, keeps=(*recent_keeps(now, facts.keeps), now)))


def extend(evidence: Evidence, facts: ServerFacts, policy: CullPolicy, now: datetime) -> ServerFacts | Reason:
    """Apply a request for more time: put off the end of the lifetime as *Keep* does, also long before that end.

    The caller checks that a stop which has begun can still be withdrawn (``core/stops``). The arguments are those of
    `keep`.

    Returns:
        The server's changed facts, or the reason for a refusal: no lifetime ends the server, its GPU is not in use, its
        lifetime was put off as often as it can be, another end comes before, or the user has no session.
    """
    refused = _never_kept(evidence, facts, policy)
    if refused is not None:
        return refused
    decision = decide(evidence, policy, now, facts.warned, facts.cause, facts.promised)
    return _order_against(decision) or _extended(evidence, facts, policy, decision)


def extensions_left(facts: ServerFacts, policy: CullPolicy) -> int | None:
    """Return how often the user may still put off the end of the server's lifetime.

    `None` if it cannot be put off: no lifetime ends the server, the server has no GPU, or the administrator does not
    allow it.
    """
    limited = policy.enabled and not policy.never and policy.lifetime is not None and facts.offer != CPU
    if not limited or policy.max_lifetime_extensions == 0:
        return None
    return max(0, policy.max_lifetime_extensions - facts.extensions)


def _never_kept(evidence: Evidence, facts: ServerFacts, policy: CullPolicy) -> Reason | None:
    """Return why no press of *Keep* is accepted from this server; `None` if that depends on its countdown."""
    if evidence.no_session:
        return explain("keep-no-session")
    if not policy.enabled:
        return explain("keep-dry-run")
    if facts.offer != CPU:
        return None
    limit = policy.cpu_lifetime
    return explain("keep-cpu") if limit is None else explain("keep-lifetime", limit=limit)


def _order_against(decision: CullDecision) -> Reason | None:
    """Return why *Keep* does not help against an order that stops the server; `None` without such an order."""
    if decision.cause is Cause.SIGNED_OUT:
        return explain("keep-signed-out")
    if decision.cause is Cause.GIVEN_BACK:
        return explain("keep-stopping")
    if decision.cause is Cause.ADMIN:
        return explain("stopped-by-admin")
    return explain("reclaimed") if decision.cause is Cause.RECLAIMED else None


def keep_by_admin(facts: ServerFacts, orders: Iterable[StopCause], until: datetime) -> ServerFacts | Reason:
    """Protect a server from the limits of idleness and lifetime until a time, because an administrator ordered that.

    This does not count as a press of the user's *Keep*, and makes no end earlier. The caller withdraws administrators'
    orders to stop the server.

    Args:
        facts: what the service remembers of the server.
        orders: the orders to stop the server.
        until: the time until which it is protected.

    Returns:
        The server's changed facts, or the reason for a refusal: the server stops because of a sign-out, or because its
        user gave the GPU back.
    """
    causes = {each.cause for each in orders}
    if Cause.GIVEN_BACK in causes:
        return explain("keep-stopping")
    if Cause.SIGNED_OUT in causes:
        return explain("keep-signed-out")
    kept_until, ends_at = max(until, facts.kept_until or until), max(until, facts.ends_at or until)
    return _not_warned(replace(facts, kept_until=kept_until, ends_at=ends_at))


def undo(facts: ServerFacts, withdrawn: Iterable[StopCause]) -> ServerFacts:
    """Return the server's facts after orders to stop it were withdrawn.

    The user is no longer warned, and the times of these orders do not count as promises. Times that countdowns for
    other causes have shown still count.
    """
    times = {each.at for each in withdrawn}
    return _not_warned(replace(facts, promised=None) if facts.promised in times else facts)


def _not_warned(facts: ServerFacts) -> ServerFacts:
    """Return the server's facts without the present warning, so that the next end gets a new one."""
    return replace(facts, warned=None, cause=None, announced=None, unheard=False)


def why_not_kept(facts: ServerFacts, policy: CullPolicy, decision: CullDecision) -> Reason | None:
    """Return why *Keep* does not postpone this end now. `None` if *Keep* postpones it, or never can.

    Args:
        facts: what the service remembers of the server.
        policy: the limits for this server.
        decision: the decision about the server, with its end.
    """
    if decision.in_vain:
        return explain("keep-in-vain")
    if decision.cause is not Cause.LIFETIME or decision.can_keep or policy.max_lifetime_extensions == 0:
        return None
    if facts.offer == CPU:
        return None
    left = facts.extensions < policy.max_lifetime_extensions
    return explain("extend-idle") if left else explain("extend-none-left")


def _extended(
    evidence: Evidence, facts: ServerFacts, policy: CullPolicy, decision: CullDecision
) -> ServerFacts | Reason:
    """Return the server's facts with an extended lifetime, or the reason why the lifetime cannot be extended."""
    causes = () if decision.stop is None else decision.stop.causes
    end = next((each for each in causes if each.cause is Cause.LIFETIME), None)
    if end is None:
        return explain("extend-no-limit")
    if policy.max_lifetime_extensions == 0:
        return explain("keep-lifetime", limit=end.params["limit"])
    if facts.extensions >= policy.max_lifetime_extensions:
        return explain("extend-none-left")
    if not can_extend(evidence, policy):
        return explain("extend-idle")
    if extension_is_vain(end, causes, policy):
        return explain("keep-in-vain")
    return _not_warned(replace(facts, ends_at=end.at + policy.extend_lifetime, extensions=facts.extensions + 1))


def keeps_left(policy: CullPolicy, now: datetime, pressed: Sequence[datetime]) -> int:
    """Return how often a user may still press *Keep* now.

    Args:
        pressed: the times of earlier presses, for any server.
    """
    return max(0, policy.keeps_per_day - len(recent_keeps(now, pressed)))


def recent_keeps(now: datetime, pressed: Sequence[datetime]) -> tuple[datetime, ...]:
    """Return the times of the presses of *Keep* that still count, because they are less than 24 hours ago."""
    return tuple(at for at in pressed if now - at < DAY)


def _none_left(policy: CullPolicy, now: datetime, pressed: Sequence[datetime]) -> Reason:
    if policy.keeps_per_day == 0:
        return explain("keep-not-offered")
    oldest = sorted(recent_keeps(now, pressed))[-policy.keeps_per_day]
    return explain("keep-none-left", times=policy.keeps_per_day, day=DAY, wait=oldest + DAY - now)
