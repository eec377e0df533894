"""The two warnings before a stop, and what follows where neither reached anybody. Pure.

An end is announced once: to the pages, and by the admin's hooks to who has none open. Whoever heard of it is kept with
the facts. Of an end that nobody heard of the countdown begins again, once; the lifetime's end it does not pass.
Not here: when a warning begins (``decision.py``), and who carries it (``core/notices``).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from hub_extensions.core.culling.decision import Action, CullDecision
from hub_extensions.core.culling.evidence import ServerFacts
from hub_extensions.core.culling.policy import CullPolicy
from hub_extensions.core.stops import ORDERED

PAGE = "page"
"""In `ServerFacts.reached`: a page has shown the warning. The other ways have the names of their channels."""
SAME_END = timedelta(seconds=60)
"""An end that moves by less is the same one, as in ``labextension/src/end.ts``."""
LAST_PART = 10
"""The last warning comes when one part in so many of the first one's time is left."""


def last_warning(stops_at: datetime, policy: CullPolicy) -> datetime:
    """When the last warning of a stop is due."""
    return stops_at - policy.warn / LAST_PART


def is_announced(facts: ServerFacts, stops_at: datetime | None) -> bool:
    """Whether this is the end that was announced last."""
    return facts.announced is not None and stops_at is not None and abs(stops_at - facts.announced) < SAME_END


def announced(facts: ServerFacts, decision: CullDecision) -> ServerFacts:
    """The facts with the end that its user is warned of now. Of another end nobody has heard yet."""
    if decision.warned is None:
        return replace(facts, announced=None, reached=(), unheard=False) if facts.announced is not None else facts
    if decision.stops_at is None or is_announced(facts, decision.stops_at):
        return facts
    return replace(facts, announced=decision.stops_at, reached=())


def reached(facts: ServerFacts, way: str) -> ServerFacts:
    """Its user has heard of the end that is announced."""
    if facts.announced is None or way in facts.reached:
        return facts
    return replace(facts, reached=(*facts.reached, way))


def begun_again(facts: ServerFacts, decision: CullDecision, policy: CullPolicy, now: datetime) -> ServerFacts | None:
    """The facts with a countdown that begins again, because nobody has heard of the stop that is due; None: it stops.

    An end that was ordered waits for nobody, and a stop that has begun is not asked about.
    """
    due = decision.action is Action.STOP and decision.cause not in ORDERED
    if not due or facts.reached or facts.unheard:
        return None
    end = now + policy.warn
    if decision.ends_at is not None:
        end = min(end, decision.ends_at)
    return replace(facts, promised=end, unheard=True, announced=None) if end > now else None
