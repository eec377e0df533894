"""What an order does to one run of a server: it stops at a time, and no user moves that time.

A sign-out and a lost right are orders of the hub; an admin's has a reason; giving the GPU back is its user's own.

Not here: who lost which right, and the time given (``core/sign_on``); the countdown itself (``decision.py``).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from hub_extensions.core.culling.evidence import ServerFacts
from hub_extensions.core.stops import (
    GIVEN_BACK,
    GIVEN_BACK_FOR_CPU,
    UNKNOWN_WHY,
    WHY,
    Cause,
    Order,
    added,
    without,
)
from hub_extensions.core.text.reasons import Reason, explain


def drain(facts: ServerFacts, left: timedelta, cause: str, now: datetime, words: str = "") -> ServerFacts:
    """The facts with the order to stop in `left`, for an admin's with the own words of the admin.

    Returns:
        The same facts where the order changes nothing: another stands that comes sooner (`added`).
    """
    orders = added(facts.orders, Order(now + max(left, timedelta(0)), WHY.get(cause, UNKNOWN_WHY), words))
    return facts if orders is facts.orders else replace(facts, orders=orders)


def give_back(facts: ServerFacts, cpu: bool, now: datetime) -> ServerFacts | Reason:
    """The facts with its user's own order to stop now; with `cpu` it comes back without a GPU.

    Refused, with the reason, where no GPU is held, and where another order stops it anyway. Whether its stop has begun
    already says its `StopRecord`.
    """
    if facts.lease is None:
        return explain("give-back-no-gpu")
    if any(each.cause is not Cause.ADMIN or each.at <= now for each in facts.orders):
        return explain("keep-stopping")
    return replace(facts, orders=(*facts.orders, Order(now, GIVEN_BACK_FOR_CPU if cpu else GIVEN_BACK)))


def undo(facts: ServerFacts) -> ServerFacts | Reason:
    """The facts without the administrators' order to stop, and without what it promised; every other cause stands.

    Refused, with the reason, where there is no such order.
    """
    left = without(facts.orders, Cause.ADMIN)
    if left is facts.orders:
        return explain("no-stop-ordered")
    own = any(each.at == facts.promised for each in facts.orders if each.cause is Cause.ADMIN)
    promised = None if own else facts.promised
    return replace(facts, orders=left, promised=promised, warned=None, cause=None, announced=None, unheard=False)
