"""Orders to stop one run of a server at a time that its user cannot move.

The hub orders a stop after a sign-out or a lost right, an administrator with a reason, and the user by giving the GPU
back.
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
    """Return the facts with an order to stop in `left`; `words` are the administrator's own.

    Returns:
        The same facts if the order changes nothing because another one comes sooner (`added`).
    """
    orders = added(facts.orders, Order(now + max(left, timedelta(0)), WHY.get(cause, UNKNOWN_WHY), words))
    return facts if orders is facts.orders else replace(facts, orders=orders)


def give_back(facts: ServerFacts, cpu: bool, now: datetime) -> ServerFacts | Reason:
    """Return the facts with the user's own order to stop now; with `cpu` the server comes back without a GPU.

    A reason instead if the server holds no GPU, or if another order stops it anyway. The caller checks whether its stop
    has begun already (`StopRecord.begun`).
    """
    if facts.lease is None:
        return explain("give-back-no-gpu")
    if any(each.cause is not Cause.ADMIN or each.at <= now for each in facts.orders):
        return explain("keep-stopping")
    return replace(facts, orders=(*facts.orders, Order(now, GIVEN_BACK_FOR_CPU if cpu else GIVEN_BACK)))


def undo(facts: ServerFacts) -> ServerFacts | Reason:
    """Return the facts without the administrators' order and without the time it promised; other causes stay.

    A reason instead if no administrator's order stands.
    """
    left = without(facts.orders, Cause.ADMIN)
    if left is facts.orders:
        return explain("no-stop-ordered")
    own = any(each.at == facts.promised for each in facts.orders if each.cause is Cause.ADMIN)
    promised = None if own else facts.promised
    return replace(facts, orders=left, promised=promised, warned=None, cause=None, announced=None, unheard=False)
