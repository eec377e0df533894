"""A start that failed: the sentence about it, and whether its user keeps the place in line. Pure.

Whoever had no fault in it keeps the place once: asked for again soon, the same server takes it up.
Not here: that a start has failed (the hub says so), and where this is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from hub_extensions.core.messages.forms import FailedStart
from hub_extensions.core.messages.hub import Ended
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.queue.model import WantedOffer
from hub_extensions.core.text.reasons import Reason, as_text, explain
from hub_extensions.core.text.sentence_pieces import Pieces, SentencePiece, in_pieces
from hub_extensions.core.text.translation import ENGLISH, Catalogue

KEPT_FOR = timedelta(minutes=15)
"""So long a place waits for its user to start again, in running time."""
SHOWN_FOR = timedelta(days=2)
"""So long a user reads why the last start failed."""
MOST = 200
"""So many are kept: what came before is in the journal."""
LOG_LENGTH = 2000
TOO_SLOW, NO_ANSWER, CRASHED = "too-slow", "no-answer", "crashed"
OWN_FAULT = frozenset({"image", CRASHED, "out-of-memory", "misconfigured"})
"""Causes that the user's own choice or files can have: started again, it would fail again, and hold others up."""


@dataclass(frozen=True, slots=True)
class KeptFailure:
    """A failed start as it is kept.

    Attributes:
        places: kept for the next start of this server; none: it keeps none, or it has taken them up.
        until: when they are given up, in running time.
        past: its user reads of it no more: a later start of this server was ready, or failed too.
    """

    start: FailedStart
    places: tuple[WantedOffer, ...] = ()
    until: datetime | None = None
    past: bool = False


def failure(cause: str, message: str, seconds: float = 0.0) -> Reason:
    """Why a start failed.

    Args:
        cause: the metric's word. message: what the hub says of it. seconds: the limit that was passed; 0: not known.
    """
    log_message = f"start failed: {message or cause}"
    if cause == TOO_SLOW and seconds:
        return explain("start-too-slow", seconds=seconds, log_message=log_message)
    if cause == NO_ANSWER and seconds:
        return explain("start-no-answer", seconds=seconds, log_message=log_message)
    if message:
        return explain("start-failed-why", why=message, log_message=log_message)
    if cause == CRASHED:
        return explain("start-crashed", log_message=log_message)
    return explain("start-failed", log_message=log_message)


def reasons_of(report: Ended) -> tuple[Reason, ...]:
    """Why a start failed, as its hub reports it; what the log says of it is with the first."""
    if not report.reasons:
        return (failure(report.reason, report.message, report.seconds),)
    first, *more = report.reasons
    return (replace(first, log_message=f"start failed: {as_text(report.reasons)}"), *more)


def sentence(reasons: Iterable[Reason], offer: OfferId, t: Catalogue = ENGLISH) -> Pieces:
    """What its user reads, live, after a reload and a day later: what, why, and that the GPU was given back."""
    why = in_pieces(reasons, t)
    return why if offer == CPU else (*why, SentencePiece(" "), SentencePiece(t("Your GPU was given back.")))


def with_failure(
    kept: Sequence[KeptFailure], start: FailedStart, places: tuple[WantedOffer, ...], until: datetime
) -> tuple[KeptFailure, ...]:
    """The failures with another one, the oldest first. Its place is kept where it is the first in a row.

    Args:
        places: that its ticket had. until: when they are given up, in running time.
    """
    last = next((each for each in reversed(kept) if not each.past and _is_of(each, start.user, start.server)), None)
    before = 0 if last is None else last.start.before + 1
    keeps = not before and start.cause not in OWN_FAULT and start.offer != CPU
    fresh = KeptFailure(replace(start, before=before), places if keeps else (), until if keeps else None)
    found = (*after_ready(kept, start.user, start.server), fresh)
    # where there are too many, those go first that are told to nobody: a whole class may fail, and keep its places
    most = [*(each for each in found if each.past), *(each for each in found if not each.past)][-MOST:]
    return tuple(sorted(most, key=lambda each: each.start.at))


def after_ready(kept: Iterable[KeptFailure], user: str | None, server: str) -> tuple[KeptFailure, ...]:
    """A later start was ready, or failed too: what was before is told to nobody, and keeps no place."""
    return tuple(KeptFailure(each.start, past=True) if _is_of(each, user, server) else each for each in kept)


def taken_up(kept: Iterable[KeptFailure], user: str, server: str, offers: Iterable[OfferId]) -> tuple[KeptFailure, ...]:
    """A start of this server has begun that wants these: a place that it took up is no later one's."""
    wanted = set(offers)
    return tuple(
        replace(each, places=(), until=None)
        if _is_of(each, user, server) and any(place.offer in wanted for place in each.places)
        else each
        for each in kept
    )


def places_of(kept: Iterable[KeptFailure], user: str, server: str, now: datetime) -> tuple[WantedOffer, ...]:
    """The places that the next start of this server takes up. `now`: running time."""
    mine = (each for each in kept if _is_of(each, user, server) and each.until is not None and now < each.until)
    return next((each.places for each in mine), ())


def shown_to(kept: Iterable[KeptFailure], user: str, at: datetime) -> tuple[KeptFailure, ...]:
    """What this user is told at a moment of the wall clock."""
    return tuple(each for each in kept if not each.past and each.start.user == user and at - each.start.at < SHOWN_FOR)


def _is_of(each: KeptFailure, user: str | None, server: str) -> bool:
    return (each.start.user, each.start.server) == (user, server)
