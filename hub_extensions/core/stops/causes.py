"""The causes of one server's stop, who ordered each, what withdraws it, and the end that follows from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from hub_extensions.core.text.reasons import Reason, explain


class Cause(Enum):
    """Why a server will be stopped; also the metric's `reason`."""

    IDLE = "idle"
    LIFETIME = "lifetime"
    UNOPENED = "unopened"
    CPU_IDLE = "cpu-idle"
    SIGNED_OUT = "signed-out"
    GIVEN_BACK = "given-back"
    ADMIN = "admin"
    """An admin has ordered it."""


class Withdrawal(Enum):
    """What may withdraw a cause."""

    KEEP = "keep"
    """The server's user presses *Keep*."""
    UNDO = "undo"
    """An administrator takes the own order back."""


class Orderer(Enum):
    """Who wants a server to stop."""

    RULES = "rules"
    """The limits of culling."""
    USER = "user"
    ADMIN = "administrator"
    HUB = "hub"
    """Its user was signed out, or may not use the hub any more."""


ORDERED = frozenset({Cause.SIGNED_OUT, Cause.GIVEN_BACK, Cause.ADMIN})
"""Ends that somebody ordered: they wait for no warning to be heard."""
FIXED = frozenset({Cause.LIFETIME, *ORDERED})
"""Ends that nothing which the server's user does there withdraws: the server ends by then at the latest."""
INTERRUPTED = frozenset(each.value for each in FIXED)
"""The causes for which a server interrupts its kernels; for another one a cell that begins late keeps the server."""
_ORDERED_BY: Mapping[Cause, Orderer] = {
    Cause.SIGNED_OUT: Orderer.HUB,
    Cause.GIVEN_BACK: Orderer.USER,
    Cause.ADMIN: Orderer.ADMIN,
}
_WITHDRAWN_BY: Mapping[Cause, Withdrawal] = {
    Cause.IDLE: Withdrawal.KEEP,
    Cause.UNOPENED: Withdrawal.KEEP,
    Cause.ADMIN: Withdrawal.UNDO,
}


@dataclass(frozen=True, slots=True)
class StopCause:
    """One cause, with its own time.

    Attributes:
        at: when it stops the server, its warning included. shown: its countdown is shown already.
        code, params: of the reason that the server's user reads. warned: its warning counts since then.
    """

    cause: Cause
    at: datetime
    shown: bool
    code: str
    params: Mapping[str, Any] = field(default_factory=dict)
    warned: datetime | None = None

    @property
    def reason(self) -> Reason:
        """Written only of the causes that somebody is shown."""
        return explain(self.code, **self.params)

    @property
    def ordered_by(self) -> Orderer:
        """Who wants it."""
        return _ORDERED_BY.get(self.cause, Orderer.RULES)

    @property
    def withdrawn_by(self) -> Withdrawal | None:
        """What withdraws it; `None` if nothing does (a lifetime is moved by an extension, not withdrawn)."""
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
        """All of them."""
        return (self.first, *self.others)

    @property
    def at(self) -> datetime:
        """The end."""
        return self.first.at

    @property
    def latest(self) -> datetime | None:
        """The end that nothing moves which the server's user does; `None` if there is no such end."""
        return latest_end(self.causes)

    def seen(self, now: datetime, warn: timedelta) -> tuple[StopCause, ...]:
        """The others that are said beside the first: ordered, counted down already, or within a warning's time."""
        return tuple(each for each in self.others if each.cause in ORDERED or each.shown or each.at - now <= warn)

    def after_keep(self, until: datetime) -> datetime:
        """The end if *Keep* put off what it withdraws until then."""
        return min(max(each.at, until) if each.withdrawn_by is Withdrawal.KEEP else each.at for each in self.causes)


def stop_of(causes: Iterable[StopCause], now: datetime, use_known: bool = True) -> Stop | None:
    """The end that follows from these causes; `None` if there are none.

    The earliest counts; of two at the same time the one that no *Keep* moves. An idle end that is due while nobody can
    tell the use holds up no other end that is due.
    """
    found = sorted(causes, key=lambda each: (each.at, each.cause is Cause.IDLE))
    if not found:
        return None
    sure = (each for each in found if each.at <= now and (use_known or each.cause is not Cause.IDLE))
    first = next(sure, found[0])
    return Stop(first, tuple(each for each in found if each is not first))


def latest_end(causes: Iterable[StopCause]) -> datetime | None:
    """The earliest of the ends that nothing moves which the server's user does; `None` if there is no such end."""
    return min((each.at for each in causes if each.cause in FIXED), default=None)
