"""What a sign-out, a lost right or an admin does to one run of a server: it stops at a time, and no user moves it.

Not here: who lost which right, and the time given (``core/sign_on``); the countdown itself (``decision.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from hub_extensions.core.culling.decision import BY_ADMIN
from hub_extensions.core.culling.evidence import Drain, ServerFacts

WHY: Mapping[str, str] = {
    "sign-out": "signed-out",
    "by-owner": "signed-out",
    "by-admin": "access-ended",
    "provider": "sign-in-ended",
    "disabled": "account-disabled",
    "deleted": "sign-in-ended",
    "not-allowed": "account-not-allowed",
    "admin": BY_ADMIN,
}
"""By the hub's word for the cause: the code of the reason that the server's user reads."""
UNKNOWN_WHY = "access-ended"


def drain(facts: ServerFacts, left: timedelta, cause: str, now: datetime) -> ServerFacts:
    """The facts with the order to stop in `left`.

    The first order stands, as its countdown was shown, but not against another that is sooner: who lost a right after
    a sign-out stops when the lost right says.
    """
    ordered = Drain(now + max(left, timedelta(0)), WHY.get(cause, UNKNOWN_WHY))
    first = facts.drain
    if first is not None and (first.why == ordered.why or first.at <= ordered.at):
        return facts
    return replace(facts, drain=ordered)
