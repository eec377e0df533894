"""Failed starts: the text that the user reads, and whether the user's place in line is kept.

If the failure was not the user's fault, the place is kept once. When the same server is started again soon, its new
ticket gets that place instead of one at the end of the line.
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
"""Running time for which a place is kept for the next start."""
SHOWN_FOR = timedelta(days=2)
"""Time for which the user is shown why the last start failed."""
MOST = 200
"""Maximum number of failed starts kept. Older ones are in the journal only."""
LOG_LENGTH = 2000
TOO_SLOW, NO_ANSWER, CRASHED = "too-slow", "no-answer", "crashed"
OWN_FAULT = frozenset({"image", CRASHED, "out-of-memory", "misconfigured"})
"""Causes that may lie in the user's own choice or files. The next start would probably fail and hold up others."""


@dataclass(frozen=True, slots=True)
class KeptFailure:
    """A failed start that the service remembers, to show it to the user and to keep the user's place in line.

    Attributes:
        start: the failed start, as it is shown.
        places: places in line for the next start of this server. Empty if none are kept, or the next start took them.
        until: when the places are given up, on the running clock (which stops while hub or service is down); None if
            none are kept.
        past: True if it is no longer shown to the user, because a later start of this server was ready or failed.
    """

    start: FailedStart
    places: tuple[WantedOffer, ...] = ()
    until: datetime | None = None
    past: bool = False


def failure(cause: str, message: str, seconds: float = 0.0) -> Reason:
    """Return the reason of a failed start for which the hub reported no reasons of its own.

    Args:
        cause: the cause, as the metric of failed starts labels it.
        message: the hub's message; "" if it gave none.
        seconds: the time limit that was exceeded. 0 without such a limit, or if it is not known.
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
    """Return the reasons of a failed start as the hub reported them. The first one carries the message for the log.

    If the hub reported no reasons, there is one, made from its cause and message (`failure`).
    """
    if not report.reasons:
        return (failure(report.reason, report.message, report.seconds),)
    first, *more = report.reasons
    return (replace(first, log_message=f"start failed: {as_text(report.reasons)}"), *more)


def sentence(reasons: Iterable[Reason], offer: OfferId, t: Catalogue = ENGLISH) -> Pieces:
    """Return the text for the user about a failed start.

    It consists of the reasons and, unless the offer is CPU only, a sentence that the GPU was given back.

    Args:
        reasons: why the start failed.
        offer: the offer that the server was to get.
        t: the translations for the user's language.
    """
    why = in_pieces(reasons, t)
    return why if offer == CPU else (*why, SentencePiece(" "), SentencePiece(t("Your GPU was given back.")))


def with_failure(
    kept: Sequence[KeptFailure], start: FailedStart, places: tuple[WantedOffer, ...], until: datetime
) -> tuple[KeptFailure, ...]:
    """Add a failed start to the remembered ones, and return all, the oldest first.

    Its places in line are kept only if the previous start of the server did not fail too, and if the cause is not one
    of `OWN_FAULT`.

    Args:
        kept: the failed starts that are remembered so far.
        start: the new failed start.
        places: the places in line that its ticket had.
        until: when these places are given up, on the running clock, which stands still while hub or service is down.
    """
    last = next((each for each in reversed(kept) if not each.past and _is_of(each, start.user, start.server)), None)
    before = 0 if last is None else last.start.before + 1
    keeps = not before and start.cause not in OWN_FAULT and start.offer != CPU
    fresh = KeptFailure(replace(start, before=before), places if keeps else (), until if keeps else None)
    found = (*after_ready(kept, start.user, start.server), fresh)
    # drop failures that are no longer shown first: if a whole class fails, all of its places are kept
    most = [*(each for each in found if each.past), *(each for each in found if not each.past)][-MOST:]
    return tuple(sorted(most, key=lambda each: each.start.at))


def after_ready(kept: Iterable[KeptFailure], user: str | None, server: str) -> tuple[KeptFailure, ...]:
    """Mark earlier failures of a server as past and give up their places, because a later start was ready or failed.

    Args:
        kept: the failed starts that are remembered.
        user: name of the server's owner. None if the failed start does not name the owner (`FailedStart.user`).
        server: name of the server.
    """
    return tuple(KeptFailure(each.start, past=True) if _is_of(each, user, server) else each for each in kept)


def taken_up(kept: Iterable[KeptFailure], user: str, server: str, offers: Iterable[OfferId]) -> tuple[KeptFailure, ...]:
    """Remove the places in line that a failed start left to a server, if the server's new start has taken them.

    The new start has taken them if it accepts at least one of the offers for which the places are kept.

    Args:
        kept: the failed starts that are remembered, with the places.
        user, server: name of the user and of the server.
        offers: the offers that the new start accepts.
    """
    wanted = set(offers)
    return tuple(
        replace(each, places=(), until=None)
        if _is_of(each, user, server) and any(place.offer in wanted for place in each.places)
        else each
        for each in kept
    )


def places_of(kept: Iterable[KeptFailure], user: str, server: str, now: datetime) -> tuple[WantedOffer, ...]:
    """Return the places in line that are kept for the next start of this server; empty if none are kept.

    Args:
        now: the time of the running clock, which stops while hub or service is down.
    """
    mine = (each for each in kept if _is_of(each, user, server) and each.until is not None and now < each.until)
    return next((each.places for each in mine), ())


def shown_to(kept: Iterable[KeptFailure], user: str, at: datetime) -> tuple[KeptFailure, ...]:
    """Return the failed starts that this user is shown at the wall-clock time `at`.

    They are less than `SHOWN_FOR` ago, and no later start of the same server was ready or failed.
    """
    return tuple(each for each in kept if not each.past and each.start.user == user and at - each.start.at < SHOWN_FOR)


def _is_of(each: KeptFailure, user: str | None, server: str) -> bool:
    return (each.start.user, each.start.server) == (user, server)
