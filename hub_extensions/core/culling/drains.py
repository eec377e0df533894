"""What an order does to one run of a server: it stops at a time, and no user moves that time.

A sign-out and a lost right are orders of the hub; an admin's has a reason; giving the GPU back is its user's own.

Not here: who lost which right, and the time given (``core/sign_on``); the countdown itself (``decision.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from hub_extensions.core.culling.evidence import BY_ADMIN, GIVEN_BACK, GIVEN_BACK_FOR_CPU, Cause, Drain, ServerFacts
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
    a sign-out stops when the lost right says, and an admin may want it sooner than an admin did. Beside a lost right
    every other order is a matter of time alone: what an admin takes back, or its user has come back, is not that.
    """
    ordered, first = Drain(now + max(left, timedelta(0)), WHY.get(cause, UNKNOWN_WHY), words), facts.drain
    if first is None:
        return replace(facts, drain=ordered)
    lost = next((each for each in (first, ordered) if each.cause is Cause.SIGNED_OUT), None)
    repeated = first.why == ordered.why and ordered.cause is not Cause.ADMIN
    if first.at <= ordered.at or repeated:
        ordered = first
    after = ordered if lost is None or ordered.cause is Cause.SIGNED_OUT else replace(lost, at=ordered.at)
    return facts if after == first else replace(facts, drain=after)


def give_back(facts: ServerFacts, cpu: bool, now: datetime) -> ServerFacts | Reason:
    """The facts with its user's own order to stop now; with `cpu` it comes back without a GPU.

    Refused, with the reason, where no GPU is held, and where it stops anyway.
    """
    if facts.lease is None:
        return explain("give-back-no-gpu")
    if facts.stopping is not None or facts.drain is not None:
        return explain("keep-stopping")
    return replace(facts, drain=Drain(now, GIVEN_BACK_FOR_CPU if cpu else GIVEN_BACK))
