"""What an order does to one run of a server: it stops at a time, and no user moves that time.

A sign-out and a lost right are orders of the hub; an admin's has a reason; giving the GPU back is its user's own.

Not here: who lost which right, and the time given (``core/sign_on``); the countdown itself (``decision.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from hub_extensions.core.culling.evidence import BY_ADMIN, GIVEN_BACK, GIVEN_BACK_FOR_CPU, Drain, ServerFacts
from hub_extensions.core.reasons import Reason, explain

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


def drain(facts: ServerFacts, left: timedelta, cause: str, now: datetime, words: str = "") -> ServerFacts:
    """The facts with the order to stop in `left`, for an admin's with the own words of the admin.

    The first order stands, as its countdown was shown, but not against another that is sooner: who lost a right after
    a sign-out stops when the lost right says.
    """
    ordered = Drain(now + max(left, timedelta(0)), WHY.get(cause, UNKNOWN_WHY), words)
    first = facts.drain
    if first is not None and (first.why == ordered.why or first.at <= ordered.at):
        return facts
    return replace(facts, drain=ordered)


def give_back(facts: ServerFacts, cpu: bool, now: datetime) -> ServerFacts | Reason:
    """The facts with its user's own order to stop now; with `cpu` it comes back without a GPU.

    Refused, with the reason, where no GPU is held, and where it stops anyway.
    """
    if facts.lease is None:
        return explain("give-back-no-gpu")
    if facts.stopping is not None or facts.drain is not None:
        return explain("keep-stopping")
    return replace(facts, drain=Drain(now, GIVEN_BACK_FOR_CPU if cpu else GIVEN_BACK))
