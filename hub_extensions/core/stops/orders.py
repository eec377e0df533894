"""Orders to stop one run of a server: an administrator's, a sign-out's, its user's own. One of each kind stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from hub_extensions.core.stops.causes import Cause, StopCause
from hub_extensions.core.text.reasons import Reason, explain

GIVEN_BACK, GIVEN_BACK_FOR_CPU = "given-back", "given-back-for-cpu"
"""Why, where the server's own user ordered it: it stops, or comes back without a GPU."""
BY_ADMIN = "stopped-by-admin"
"""Why, where an admin ordered it."""
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


@dataclass(frozen=True, slots=True)
class Order:
    """Its user signed out, may not sign in any more, or gave its GPU back, or an admin orders it: it stops at a time.

    No user moves that time.

    Attributes:
        why: the code of the reason for its user (``core/text/reasons.py``).
        words: the admin's own, for an admin's order.
    """

    at: datetime
    why: str
    words: str = ""

    @property
    def reason(self) -> Reason:
        """What its user is told."""
        return explain("stopped-by-admin-why", why=self.words) if self.words else explain(self.why)

    @property
    def cause(self) -> Cause:
        """Whose order it is: its user's own, an admin's, or the hub's."""
        if self.why == BY_ADMIN:
            return Cause.ADMIN
        return Cause.GIVEN_BACK if self.why in (GIVEN_BACK, GIVEN_BACK_FOR_CPU) else Cause.SIGNED_OUT

    def as_cause(self, warned: datetime) -> StopCause:
        """Among the causes of the stop; it is warned of from the order on, so it waits for no other warning."""
        told = self.reason
        return StopCause(self.cause, self.at, True, told.reason, told.params, warned)


def earliest(orders: tuple[Order, ...]) -> Order | None:
    """The order that comes first; `None` if there is none."""
    return min(orders, key=lambda each: each.at, default=None)


def added(orders: tuple[Order, ...], new: Order) -> tuple[Order, ...]:
    """These orders and a new one: the same tuple where it changes nothing.

    Of one kind the first stands, as its countdown was shown, but not against another one that is sooner: who lost a
    right after a sign-out stops when the lost right says, and an admin may want it sooner than an admin did. The same
    sign-out again, after an outage, moves nothing. An admin's order that comes after another order's time is none.
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
    """These orders without those of one kind: the same tuple where there are none."""
    left = tuple(each for each in orders if each.cause is not cause)
    return orders if len(left) == len(orders) else left
