"""The two warnings before a stop, and the second countdown if neither warning reached the user.

The end of a server (the time at which it stops) is announced once: on open pages, and by the administrator's channels
(e-mail, webhook) to users without an open page. The service remembers which of these have reached the user. If none
has, the countdown begins again once, but does not go beyond the lifetime.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from hub_extensions.core.culling.decision import Action, CullDecision
from hub_extensions.core.culling.evidence import ServerFacts
from hub_extensions.core.culling.policy import CullPolicy
from hub_extensions.core.stops import ORDERED, SAME_END

PAGE = "page"
"""Entry of `ServerFacts.reached` for an open page that has shown the warning. Other entries are names of channels."""
LAST_PART = 10
"""The last warning comes when one part in this many of the warning time is left."""


def last_warning(stops_at: datetime, policy: CullPolicy) -> datetime:
    """Return when the user gets the last warning of a stop: when a tenth of the warning time is left.

    Args:
        stops_at: when the server stops.
        policy: the limits for the server, with the warning time.
    """
    return stops_at - policy.warn / LAST_PART


def is_announced(facts: ServerFacts, stops_at: datetime | None) -> bool:
    """Return whether the last warning that the user got was about the end (time of the stop) `stops_at`.

    Times that differ by less than `SAME_END` are the same end.

    Args:
        facts: what the service remembers of the server, with the end of which the user was warned last.
        stops_at: when the server stops. `None` if the server does not stop; the result is then False.
    """
    return facts.announced is not None and stops_at is not None and abs(stops_at - facts.announced) < SAME_END


def announced(facts: ServerFacts, decision: CullDecision) -> ServerFacts:
    """Record the end (time of the stop) of which the user is warned now.

    If the user was not warned of this end before, no warning of it counts as received yet. If the user is not warned of
    any end now, what was recorded is removed.

    Args:
        facts: what the service remembers of the server.
        decision: the present decision about the server.
    """
    if decision.warned is None:
        return replace(facts, announced=None, reached=(), unheard=False) if facts.announced is not None else facts
    if decision.stops_at is None or is_announced(facts, decision.stops_at):
        return facts
    return replace(facts, announced=decision.stops_at, reached=())


def reached(facts: ServerFacts, way: str) -> ServerFacts:
    """Record that the warning has reached the user.

    Args:
        facts: what the service remembers of the server, with the end of which the user was warned last.
        way: `PAGE` for an open page, or the name of a channel (webhook, e-mail).
    """
    if facts.announced is None or way in facts.reached:
        return facts
    return replace(facts, reached=(*facts.reached, way))


def begun_again(facts: ServerFacts, decision: CullDecision, policy: CullPolicy, now: datetime) -> ServerFacts | None:
    """Return the server's facts with a second countdown, because no warning of a stop that is due has reached the user.

    `None` if the server does not get one: it had one already, a warning has reached the user, or somebody ordered the
    stop. Do not call this for a server whose stop has begun.

    Args:
        facts: what the service remembers of the server.
        decision: the present decision about the server.
        policy: the limits for the server, with the length of a countdown.
        now: the present time of the running clock, which stands still while hub or service is down.
    """
    due = decision.action is Action.STOP and decision.cause not in ORDERED
    if not due or facts.reached or facts.unheard:
        return None
    end = now + policy.warn
    if decision.ends_at is not None:
        end = min(end, decision.ends_at)
    return replace(facts, promised=end, unheard=True, announced=None) if end > now else None
