"""Orders to stop one run of a server: by an administrator, after a sign-out, by its user. One of each kind stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from hub_extensions.core.stops.causes import Cause, StopCause
from hub_extensions.core.text.reasons import Reason, explain

GIVEN_BACK, GIVEN_BACK_FOR_CPU = "given-back", "given-back-for-cpu"
"""Reasons of the user's own order: the server stops, or comes back without a GPU."""
BY_ADMIN = "stopped-by-admin"
"""Reason of an administrator's order."""
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
"""The hub's code of a cause -> the code of the reason that the server's user reads."""
UNKNOWN_WHY = "access-ended"


@dataclass(frozen=True, slots=True)
class Order:
    """An order to stop a server at a time that its user cannot move.

    Attributes:
        why: the code of the reason for the user (``core/text/reasons.py``).
        words: the administrator's own words, for an administrator's order.
    """

    at: datetime
    why: str
    words: str = ""

    @property
    def reason(self) -> Reason:
        """The reason for the server's user."""
        return explain("stopped-by-admin-why", why=self.words) if self.words else explain(self.why)

    @property
    def cause(self) -> Cause:
        """The kind of the order: of the user, an administrator, or the hub."""
        if self.why == BY_ADMIN:
            return Cause.ADMIN
        return Cause.GIVEN_BACK if self.why in (GIVEN_BACK, GIVEN_BACK_FOR_CPU) else Cause.SIGNED_OUT

    def as_cause(self, warned: datetime) -> StopCause:
        """Return the order as a cause of the stop. Its warning counts from the order on."""
        told = self.reason
        return StopCause(self.cause, self.at, True, told.reason, told.params, warned)


def earliest(orders: tuple[Order, ...]) -> Order | None:
    """Return the order that comes first; `None` without an order."""
    return min(orders, key=lambda each: each.at, default=None)


def added(orders: tuple[Order, ...], new: Order) -> tuple[Order, ...]:
    """Return these orders with a new one; the same tuple if it changes nothing.

    The first order of a kind stands, because its countdown was shown, unless the new one comes sooner: a right that is
    lost after a sign-out, or an administrator who wants the stop earlier. The same sign-out, repeated after an outage,
    moves nothing. An administrator's order for a later time than another order is ignored.
    """
    first = next((each for each in orders if each.cause is new.cause), None)
    if first is None:
        late = new.cause is Cause.ADMIN and any(each.at <= new.at for each in orders)
        return orders if late else (*orders, new)
    repeated = first.why == new.why and new.cause is not Cause.ADMIN
    if first.at <= new.at or repeated:
        return orders
    return (*(each for each in orders if each is not first), new)


def without(orders: tuple[Order, ...], cause: Cause) -> tuple[Order, ...]:
    """Return these orders without those of one kind; the same tuple if it contains none of them."""
    left = tuple(each for each in orders if each.cause is not cause)
    return orders if len(left) == len(orders) else left
