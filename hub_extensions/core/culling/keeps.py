"""What a press of *Keep* gives, and when it gives nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from hub_extensions.core.culling.decision import decide
from hub_extensions.core.culling.evidence import Cause, ServerFacts, evidence_of
from hub_extensions.core.culling.policy import CullPolicy
from hub_extensions.core.offers.offer_id import CPU
from hub_extensions.core.reasons import Reason, explain

DAY = timedelta(hours=24)
"""The time in which `CullPolicy.keeps_per_day` are counted."""


def keep(facts: ServerFacts, policy: CullPolicy, now: datetime, *, used: bool = False) -> ServerFacts | Reason:
    """Move the idle end of a server by `policy.keep`, for one of its keeps. It never moves an end to the front.

    `used`: as in `Evidence`.

    Refused, with the reason, where it would move nothing: no countdown, the lifetime's end, none left.
    """
    if facts.stopping is not None:
        return explain("keep-stopping")
    if not policy.enabled:
        return explain("keep-dry-run")
    if facts.offer == CPU:
        return explain("keep-cpu")
    known = evidence_of(facts, use_known=facts.idle_since is not None, used=used)
    decision = decide(known, policy, now, facts.warned, facts.cause, facts.promised)
    if decision.cause is Cause.LIFETIME and decision.reason is not None:
        return explain("keep-lifetime", limit=decision.reason.params["limit"])
    if decision.cause is Cause.UNOPENED:
        return explain("keep-unopened")
    if decision.stops_at is None:
        return explain("keep-no-countdown")
    if keeps_left(facts, policy, now) == 0:
        return _none_left(facts, policy, now)
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


def _recent_keeps(facts: ServerFacts, now: datetime) -> tuple[datetime, ...]:
    return tuple(pressed for pressed in facts.keeps if now - pressed < DAY)


def _none_left(facts: ServerFacts, policy: CullPolicy, now: datetime) -> Reason:
    if policy.keeps_per_day == 0:
        return explain("keep-not-offered")
    oldest = sorted(_recent_keeps(facts, now))[-policy.keeps_per_day]
    return explain("keep-none-left", times=policy.keeps_per_day, day=DAY, wait=oldest + DAY - now)
