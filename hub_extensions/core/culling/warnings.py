"""The two warnings before a stop, and the second countdown if neither warning reached the user. Pure.

An end is announced once: to open pages, and by the administrator's channels to users without an open page. The facts
keep which ways have reached the user. If none has, the countdown begins again once, but not beyond the lifetime.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from hub_extensions.core.culling.decision import Action, CullDecision
from hub_extensions.core.culling.evidence import ServerFacts
from hub_extensions.core.culling.policy import CullPolicy
from hub_extensions.core.stops import ORDERED, SAME_END

PAGE = "page"
"""In `ServerFacts.reached`, an open page that has shown the warning. Other ways have the names of their channels."""
LAST_PART = 10
"""The last warning comes when a tenth of the first warning's time is left."""


def last_warning(stops_at: datetime, policy: CullPolicy) -> datetime:
    """Return when the last warning of a stop is due."""
    return stops_at - policy.warn / LAST_PART


def is_announced(facts: ServerFacts, stops_at: datetime | None) -> bool:
    """Whether this end is the one that was announced last."""
    return facts.announced is not None and stops_at is not None and abs(stops_at - facts.announced) < SAME_END


def announced(facts: ServerFacts, decision: CullDecision) -> ServerFacts:
    """Return the facts with the end that the user is warned of now. A new end has reached nobody yet."""
    if decision.warned is None:
        return replace(facts, announced=None, reached=(), unheard=False) if facts.announced is not None else facts
    if decision.stops_at is None or is_announced(facts, decision.stops_at):
        return facts
    return replace(facts, announced=decision.stops_at, reached=())


def reached(facts: ServerFacts, way: str) -> ServerFacts:
    """Note a way by which the announced end has reached the user."""
    if facts.announced is None or way in facts.reached:
        return facts
    return replace(facts, reached=(*facts.reached, way))


def begun_again(facts: ServerFacts, decision: CullDecision, policy: CullPolicy, now: datetime) -> ServerFacts | None:
    """Return the facts with a countdown that begins again because the warnings reached nobody; `None` if it does not.

    Ends that were ordered do not wait. Do not call it for a server whose stop has begun.
    """
    due = decision.action is Action.STOP and decision.cause not in ORDERED
    if not due or facts.reached or facts.unheard:
        return None
    end = now + policy.warn
    if decision.ends_at is not None:
        end = min(end, decision.ends_at)
    return replace(facts, promised=end, unheard=True, announced=None) if end > now else None
