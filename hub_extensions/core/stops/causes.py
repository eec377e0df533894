"""The causes of one server's stop, with orderer and withdrawal, and the end that follows from them.

Some causes are *ordered*: by an administrator, by the hub after a sign-out, by the server's user, by the line. They
stand until they are withdrawn, one of each kind. The other causes are found again from the evidence at each decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from hub_extensions.core.text.reasons import SENTENCES, Reason, explain


class Cause(Enum):
    """Cause of a stop; also the metric's `reason`."""

    IDLE = "idle"
    LIFETIME = "lifetime"
    UNOPENED = "unopened"
    CPU_IDLE = "cpu-idle"
    SIGNED_OUT = "signed-out"
    GIVEN_BACK = "given-back"
    ADMIN = "admin"
    """An administrator has ordered the stop."""
    RECLAIMED = "reclaimed"
    """The line takes a borrowed GPU back. No rule orders it yet."""


class Withdrawal(Enum):
    """The actions that withdraw a cause."""

    KEEP = "keep"
    """The server's user presses *Keep*."""
    UNDO = "undo"
    """An administrator withdraws an administrator's order."""
    LINE = "line"
    """The line does not need the GPU any more."""


class Orderer(Enum):
    """The side that wants a server to stop."""

    RULES = "rules"
    """The limits of culling."""
    USER = "user"
    ADMIN = "administrator"
    HUB = "hub"
    """The user was signed out, or may not use the hub any more."""
    LINE = "line"
    """Those who wait for a GPU that is theirs."""


ORDERED = frozenset({Cause.SIGNED_OUT, Cause.GIVEN_BACK, Cause.ADMIN, Cause.RECLAIMED})
"""Ordered ends, which do not wait until a warning has reached the user."""
FIXED = frozenset({Cause.LIFETIME, *ORDERED})
"""Ends that the server's user cannot withdraw: the server ends by then at the latest."""
INTERRUPTED = frozenset(each.value for each in FIXED)
"""The causes for which a server interrupts its kernels; for another one a cell that begins late keeps the server."""
GIVEN_BACK, GIVEN_BACK_FOR_CPU = "given-back", "given-back-for-cpu"
"""Codes of the user's own order: the server stops, or comes back without a GPU."""
WHY: Mapping[str, str] = {
    "sign-out": "signed-out",
    "by-owner": "signed-out",
    "by-admin": "access-ended",
    "provider": "sign-in-ended",
    "disabled": "account-disabled",
    "deleted": "sign-in-ended",
    "not-allowed": "account-not-allowed",
}
"""The hub's code of a cause -> the code of the reason that the server's user reads."""
UNKNOWN_WHY = "access-ended"
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
    """One cause, with its own time.

    Attributes:
        at: when it stops the server, after its warning. shown: its countdown is shown already.
        code, params: of the reason that the server's user reads. warned: since when its warning counts.
        stands: it was ordered, so it stands until it is withdrawn.
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
        """The reason for the user; a general one if a later version wrote the cause."""
        return explain(self.code, **self.params) if self.code in SENTENCES else explain("was-to-end")

    @property
    def ordered_by(self) -> Orderer:
        """The side that wants the stop."""
        return _ORDERED_BY.get(self.cause, Orderer.RULES)

    @property
    def withdrawn_by(self) -> Withdrawal | None:
        """The action that withdraws the cause; `None` for a fixed end. An extension moves a lifetime instead."""
        return _WITHDRAWN_BY.get(self.cause)


@dataclass(frozen=True, slots=True)
class Stop:
    """The end of one server.

    Attributes:
        first: the cause that counts. others: the causes that stand beside it, the earliest first.
    """

    first: StopCause
    others: tuple[StopCause, ...] = ()

    @property
    def causes(self) -> tuple[StopCause, ...]:
        """All causes, the one that counts first."""
        return (self.first, *self.others)

    @property
    def at(self) -> datetime:
        """When the server stops."""
        return self.first.at

    @property
    def latest(self) -> datetime | None:
        """The end that the server's user cannot move; `None` if no cause is fixed."""
        return latest_end(self.causes)

    def seen(self, now: datetime, warn: timedelta) -> tuple[StopCause, ...]:
        """Return the other causes to show: ordered, in a countdown already, or within a warning's time."""
        return tuple(each for each in self.others if each.cause in ORDERED or each.shown or each.at - now <= warn)

    def after_keep(self, until: datetime) -> datetime:
        """Return the end if *Keep* postponed the causes that it withdraws until this time."""
        return min(max(each.at, until) if each.withdrawn_by is Withdrawal.KEEP else each.at for each in self.causes)


def by_admin(at: datetime, words: str) -> StopCause:
    """Return an administrator's order. `words` are the administrator's own; may be empty."""
    code, params = ("stopped-by-admin-why", {"why": words}) if words else ("stopped-by-admin", {})
    return StopCause(Cause.ADMIN, at, True, code, params, stands=True)


def by_hub(at: datetime, cause: str) -> StopCause:
    """Return the hub's order after a sign-out or a lost right. `cause` is the hub's code of it."""
    return StopCause(Cause.SIGNED_OUT, at, True, WHY.get(cause, UNKNOWN_WHY), stands=True)


def reclaim(at: datetime, warn: timedelta, now: datetime) -> StopCause:
    """Return the line's order to take a borrowed GPU back, after its own warning of `warn` at the earliest."""
    return StopCause(Cause.RECLAIMED, max(at, now + warn), True, "reclaimed", stands=True)


def give_back(orders: Iterable[StopCause], now: datetime, *, on_gpu: bool, cpu: bool) -> StopCause | Reason:
    """Return the order of a user who gives the GPU back now. With `cpu` the server comes back without one.

    A reason instead if the server holds no GPU, or if another order stops it anyway. The caller checks whether its stop
    has begun already (`StopRecord.begun`).
    """
    if not on_gpu:
        return explain("give-back-no-gpu")
    if any(each.cause in (Cause.SIGNED_OUT, Cause.GIVEN_BACK) or each.at <= now for each in orders):
        return explain("keep-stopping")
    return StopCause(Cause.GIVEN_BACK, now, True, GIVEN_BACK_FOR_CPU if cpu else GIVEN_BACK, stands=True)


def added(causes: tuple[StopCause, ...], new: StopCause) -> tuple[StopCause, ...]:
    """Return these causes with a new order; the same tuple if it changes nothing.

    The first order of a kind stands, because its countdown was shown, unless the new one comes sooner: a right that is
    lost after a sign-out, or an administrator who wants the stop earlier. The same sign-out, repeated after an outage,
    moves nothing. An administrator's order for a later time than another order is ignored.
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
    """Return these causes without the orders that this action withdraws; the same tuple if it contains none of them."""
    left = tuple(each for each in causes if not (each.stands and each.withdrawn_by is by))
    return causes if len(left) == len(causes) else left


def earliest(orders: Iterable[StopCause]) -> StopCause | None:
    """Return the order that comes first; `None` without an order."""
    return min(orders, key=lambda each: each.at, default=None)


def stop_of(causes: Iterable[StopCause], now: datetime, use_known: bool = True) -> Stop | None:
    """Return the end that follows from these causes; `None` without a cause.

    The earliest cause counts; of two at the same time, the one that *Keep* does not move. An idle end that is due while
    the use is unknown does not delay another end that is due.
    """
    found = sorted(causes, key=lambda each: (each.at, each.cause is Cause.IDLE))
    if not found:
        return None
    sure = (each for each in found if each.at <= now and (use_known or each.cause is not Cause.IDLE))
    first = next(sure, found[0])
    return Stop(first, tuple(each for each in found if each is not first))


def latest_end(causes: Iterable[StopCause]) -> datetime | None:
    """Return the earliest end that the server's user cannot move; `None` if no cause is fixed."""
    return min((each.at for each in causes if each.cause in FIXED), default=None)
