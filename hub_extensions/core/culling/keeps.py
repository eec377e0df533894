"""What a press of *Keep* gives, and when it gives nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from hub_extensions.core.culling.decision import decide
from hub_extensions.core.culling.evidence import Cause, ServerFacts, evidence_of
from hub_extensions.core.culling.policy import CullPolicy
from hub_extensions.core.offers.offer_id import CPU
from hub_extensions.core.wording import duration

DAY = timedelta(hours=24)
"""The time in which `CullPolicy.keeps_per_day` are counted."""


@dataclass(frozen=True, slots=True)
class KeepRefused:
    """A *keep* that cannot be given: the message for the user, and a stable code for programs."""

    message: str
    reason: str


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


def _recent_keeps(facts: ServerFacts, now: datetime) -> tuple[datetime, ...]:
    return tuple(pressed for pressed in facts.keeps if now - pressed < DAY)


def _none_left(facts: ServerFacts, policy: CullPolicy, now: datetime) -> str:
    if policy.keeps_per_day == 0:
        return "Keeping a server is not offered here."
    oldest = sorted(_recent_keeps(facts, now))[-policy.keeps_per_day]
    wait = duration(oldest + DAY - now)
    return f"It was kept {policy.keeps_per_day} times in 24 h, which is all; again in {wait}."
