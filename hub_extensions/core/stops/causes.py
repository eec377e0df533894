"""The causes for which one server stops: who wants it, what withdraws it, and the end that follows from all of them.

Some causes are *ordered*: by an administrator, by the hub after a sign-out, by the server's user, or by the line (users
who wait for a GPU). An order is valid until it is withdrawn, and there is at most one of each kind. The other causes
(limits of idleness and lifetime) are derived again from the evidence at each decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from hub_extensions.core.text.reasons import SENTENCES, Reason, explain


class Cause(Enum):
    """Why a server stops; also the label `reason` of the metric."""

    IDLE = "idle"
    """The GPU was idle for longer than the limit."""
    LIFETIME = "lifetime"
    """The server has run for the longest time that the policy allows."""
    UNOPENED = "unopened"
    """Nobody opened the server in a browser in time after its start."""
    CPU_IDLE = "cpu-idle"
    """The user of a server without a GPU was away for longer than the limit."""
    SIGNED_OUT = "signed-out"
    """The user was signed out, or may not use the hub any more."""
    GIVEN_BACK = "given-back"
    """The server's user has given the GPU back."""
    ADMIN = "admin"
    """An administrator has ordered the stop."""
    RECLAIMED = "reclaimed"
    """Users who wait take back a GPU that the server has only borrowed. Nothing orders this yet."""


class Withdrawal(Enum):
    """The action that withdraws a cause, so that the server does not stop for it."""

    KEEP = "keep"
    """The server's user presses *Keep*."""
    UNDO = "undo"
    """An administrator withdraws an administrator's order."""
    LINE = "line"
    """The users who wait do not need the GPU any more."""


class Orderer(Enum):
    """The party that wants a server to stop, for the API and the administrators' pages."""

    RULES = "rules"
    """The administrator's limits (`CullPolicy`), without an order."""
    USER = "user"
    ADMIN = "administrator"
    HUB = "hub"
    """The user was signed out, or may not use the hub any more."""
    LINE = "line"
    """Users who wait for a GPU that is guaranteed to them."""


ORDERED = frozenset({Cause.SIGNED_OUT, Cause.GIVEN_BACK, Cause.ADMIN, Cause.RECLAIMED})
"""Causes that somebody ordered. They end a server at their time, even if no warning has reached its user."""
FIXED = frozenset({Cause.LIFETIME, *ORDERED})
"""Causes that the server's user cannot withdraw, so that the server ends at their time at the latest."""
INTERRUPTED = frozenset(each.value for each in FIXED)
"""Causes for which the kernels of a server are interrupted when its stop begins. For others, a cell that starts until
the last moment keeps the server."""
GIVEN_BACK, GIVEN_BACK_FOR_CPU = "given-back", "given-back-for-cpu"
"""Codes of the reasons if the user gives the GPU back: the server stops, or comes back without a GPU."""
WHY: Mapping[str, str] = {
    "sign-out": "signed-out",
    "by-owner": "signed-out",
    "by-admin": "access-ended",
    "provider": "sign-in-ended",
    "disabled": "account-disabled",
    "deleted": "sign-in-ended",
    "not-allowed": "account-not-allowed",
}
"""The hub's code of why a session ended -> the code of the reason that the server's user reads."""
UNKNOWN_WHY = "access-ended"
"""The code of the sentence if the hub's code is not in `WHY`."""
_ORDERED_BY: Mapping[Cause, Orderer] = {
    Cause.SIGNED_OUT: Orderer.HUB,
    Cause.GIVEN_BACK: Orderer.USER,
    Cause.ADMIN: Orderer.ADMIN,
    Cause.RECLAIMED: Orderer.LINE,
}
_WITHDRAWN_BY: Mapping[Cause, Withdrawal] = {
    Cause.IDLE: Withdrawal.KEEP,
    Cause.UNOPENED: Withdrawal.KEEP,
    Cause.ADMIN: Withdrawal.UNDO,
    Cause.RECLAIMED: Withdrawal.LINE,
}


@dataclass(frozen=True, slots=True)
class StopCause:
    """One cause for which a server stops, with its time.

    Attributes:
        at: when it stops the server, after its warning.
        shown: whether a countdown for it is shown to the user.
        code, params: code and parameters of the reason that the server's user reads.
        warned: since when the user is warned of it; `None` if not yet.
        stands: whether somebody ordered the stop, so that the cause is valid until it is withdrawn.
    """

    cause: Cause
    at: datetime
    shown: bool
    code: str
    params: Mapping[str, Any] = field(default_factory=dict)
    warned: datetime | None = None
    stands: bool = False

    @property
    def reason(self) -> Reason:
        """The reason that the server's user reads.

        If this version does not know `code`, because a later version of this product stored the cause, the reason is a
        general sentence.
        """
        return explain(self.code, **self.params) if self.code in SENTENCES else explain("was-to-end")

    @property
    def ordered_by(self) -> Orderer:
        return _ORDERED_BY.get(self.cause, Orderer.RULES)

    @property
    def withdrawn_by(self) -> Withdrawal | None:
        """The action that withdraws the cause; `None` if none does. A lifetime can be extended, but not withdrawn."""
        return _WITHDRAWN_BY.get(self.cause)


@dataclass(frozen=True, slots=True)
class Stop:
    """When one server stops, and why.

    Attributes:
        first: the cause that stops the server, with its time.
        others: the causes that would stop it later, the earliest first.
    """

    first: StopCause
    others: tuple[StopCause, ...] = ()

    @property
    def causes(self) -> tuple[StopCause, ...]:
        """All causes for which the server stops; the one that stops it first comes first."""
        return (self.first, *self.others)

    @property
    def at(self) -> datetime:
        return self.first.at

    @property
    def latest(self) -> datetime | None:
        """The earliest time of a cause that the server's user cannot postpone; `None` if the user can postpone all."""
        return latest_end(self.causes)

    def seen(self, now: datetime, warn: timedelta) -> tuple[StopCause, ...]:
        """Return the later causes that the user is shown beside the first one.

        A cause is shown if somebody ordered it, if its countdown is shown already, or if its time is near.

        Args:
            now: the present time.
            warn: a cause that is due within this time is shown.
        """
        return tuple(each for each in self.others if each.cause in ORDERED or each.shown or each.at - now <= warn)

    def after_keep(self, until: datetime) -> datetime:
        """Return when the server would stop if its user pressed *Keep*.

        Args:
            until: the time to which *Keep* postpones the causes that it can postpone.
        """
        return min(max(each.at, until) if each.withdrawn_by is Withdrawal.KEEP else each.at for each in self.causes)


def by_admin(at: datetime, words: str) -> StopCause:
    """Return an administrator's order to stop a server.

    Args:
        at: when to stop it.
        words: the administrator's text for the user; "" for none.
    """
    code, params = ("stopped-by-admin-why", {"why": words}) if words else ("stopped-by-admin", {})
    return StopCause(Cause.ADMIN, at, True, code, params, stands=True)


def by_hub(at: datetime, cause: str) -> StopCause:
    """Return the hub's order to stop a server, because its user signed out or may not sign in any more.

    Args:
        at: when to stop it.
        cause: the hub's code of why the session ended, a value of ``core.sign_on.EndCause``.
    """
    return StopCause(Cause.SIGNED_OUT, at, True, WHY.get(cause, UNKNOWN_WHY), stands=True)


def reclaim(at: datetime, warn: timedelta, now: datetime) -> StopCause:
    """Return the order to take back a borrowed GPU for users who wait.

    Args:
        at: when the GPU is wanted.
        warn: the warning time; the stop comes at the earliest this long after `now`.
    """
    return StopCause(Cause.RECLAIMED, max(at, now + warn), True, "reclaimed", stands=True)


def give_back(orders: Iterable[StopCause], now: datetime, *, on_gpu: bool, cpu: bool) -> StopCause | Reason:
    """Make the order of a user who gives the server's GPU back now.

    The caller checks whether the server's stop has begun already (`StopRecord.begun`).

    Args:
        orders: the orders to stop the server so far.
        on_gpu: whether the server holds a GPU.
        cpu: whether the server comes back without a GPU.

    Returns:
        The order, or the reason for a refusal: the server holds no GPU, or another order stops it anyway.
    """
    if not on_gpu:
        return explain("give-back-no-gpu")
    if any(each.cause in (Cause.SIGNED_OUT, Cause.GIVEN_BACK) or each.at <= now for each in orders):
        return explain("keep-stopping")
    return StopCause(Cause.GIVEN_BACK, now, True, GIVEN_BACK_FOR_CPU if cpu else GIVEN_BACK, stands=True)


def added(causes: tuple[StopCause, ...], new: StopCause) -> tuple[StopCause, ...]:
    """Return these causes with a new order; the same tuple if the order changes nothing.

    An earlier order with the same `cause` remains, because its countdown was shown. It is replaced only if the new
    order has an earlier time: after a sign-out the user also loses the right to sign in, or an administrator wants the
    stop sooner. A second report of the same sign-out, which can come after an outage, changes nothing. The first order
    of an administrator is ignored if another order stops the server at the same time or before.

    Args:
        causes: the causes of the stop so far.
        new: the new order.
    """
    first = next((each for each in causes if each.stands and each.cause is new.cause), None)
    if first is None:
        late = new.cause is Cause.ADMIN and any(each.stands and each.at <= new.at for each in causes)
        return causes if late else (*causes, new)
    repeated = first.code == new.code and new.cause is not Cause.ADMIN
    if first.at <= new.at or repeated:
        return causes
    return (*(each for each in causes if each is not first), new)


def without(causes: tuple[StopCause, ...], by: Withdrawal) -> tuple[StopCause, ...]:
    """Return these causes without the orders that an action withdraws; the same tuple if nothing is withdrawn.

    Args:
        causes: the causes of a stop.
        by: the action, such as an administrator's *undo*.
    """
    left = tuple(each for each in causes if not (each.stands and each.withdrawn_by is by))
    return causes if len(left) == len(causes) else left


def earliest(orders: Iterable[StopCause]) -> StopCause | None:
    """Return the order with the earliest time; `None` if `orders` is empty."""
    return min(orders, key=lambda each: each.at, default=None)


def stop_of(causes: Iterable[StopCause], now: datetime, use_known: bool = True) -> Stop | None:
    """Return when and why a server with these causes stops; `None` without a cause.

    The earliest cause stops it. If idleness and another cause have the same time, the other cause comes first.

    Args:
        use_known: whether it is known now how busy the GPU is. If not, nothing is stopped as idle, so another cause
            that is due comes before idleness.
    """
    found = sorted(causes, key=lambda each: (each.at, each.cause is Cause.IDLE))
    if not found:
        return None
    sure = (each for each in found if each.at <= now and (use_known or each.cause is not Cause.IDLE))
    first = next(sure, found[0])
    return Stop(first, tuple(each for each in found if each is not first))


def latest_end(causes: Iterable[StopCause]) -> datetime | None:
    """Return the earliest time of a cause that the server's user cannot withdraw; `None` without such a cause."""
    return min((each.at for each in causes if each.cause in FIXED), default=None)
