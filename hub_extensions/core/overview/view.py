"""The content of the administrators' page, and the part of it that a request asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, TypeVar

from hub_extensions.core.messages import FailedStarts, LeaseInfo, OfferState, TicketInfo
from hub_extensions.core.overview.cards import HELD, Card, Emptying, PieceState
from hub_extensions.core.overview.health import HealthVerdict
from hub_extensions.core.overview.totals import Totals
from hub_extensions.core.queue.cordons import Cordon
from hub_extensions.core.text.reasons import Reason

CARDS_A_PAGE = 20
PEOPLE_A_PAGE = 25
T = TypeVar("T")

SHOWN: Mapping[str, Callable[[Card], bool]] = {
    "": lambda card: True,
    "held": lambda card: any(piece.state in HELD for piece in card.pieces),
    "idle": lambda card: any(piece.state is PieceState.IDLE for piece in card.pieces),
    "unknown": lambda card: any(piece.state is PieceState.USE_UNKNOWN for piece in card.pieces),
    "free": lambda card: any(piece.state is PieceState.FREE for piece in card.pieces),
    "drained": lambda card: card.cordon is not None or bool(card.barred),
}
"""The value of ``show`` in the page's address -> whether the page shows a card."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The part of the administrators' page that a request asks for.

    Attributes:
        search: part of the name of a user, node, card or product; "" for all cards.
        show: which cards are shown, a key of `SHOWN`: "" for all, ``held`` for those with a lease, ``idle`` or
            ``unknown`` for those with a server whose GPU use is low or unknown, ``free`` for those with a free piece,
            ``drained`` for those to which no new servers come.
        cards: which page of the list of cards to show, counted from 1.
        people: which page of the list of users in line to show, counted from 1.
    """

    search: str = ""
    show: str = ""
    cards: int = 1
    people: int = 1


@dataclass(frozen=True, slots=True)
class PageRows(Generic[T]):
    """The rows on one page of a long list.

    Attributes:
        shown: the rows of this page.
        found: the number of rows in the whole list.
        page: which page this is, counted from 1.
        pages: the number of pages, at least 1.
    """

    shown: tuple[T, ...]
    found: int
    page: int
    pages: int


def paged(rows: Sequence[T], page: int, size: int) -> PageRows[T]:
    """Return the rows of one page; the last page if the list has fewer pages.

    Args:
        page: which page, counted from 1.
        size: number of rows per page.
    """
    pages = max(1, -(-len(rows) // size))
    page = min(max(1, page), pages)
    return PageRows(tuple(rows[(page - 1) * size : page * size]), len(rows), page, pages)


def chosen(cards: Iterable[Card], asked: Asked) -> list[Card]:
    """Return the cards that match the request's filter and search."""
    words, wanted = asked.search.casefold().strip(), SHOWN.get(asked.show, SHOWN[""])
    return [card for card in cards if wanted(card) and (not words or _has(card, words))]


def _has(card: Card, words: str) -> bool:
    users, pieces = (holder.user for holder in card.holders), (piece.uuid for piece in card.pieces)
    return any(words in name.casefold() for name in (card.node, card.uuid, card.product, *users, *pieces))


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything on the administrators' page.

    Attributes:
        at: when the figures were made.
        read: when the GPUs were read last; `None` before the first reading.
        cards: the cards on this page.
        leases: id -> lease, for the cards on this page.
        emptying: `Card.place` of each card on this page -> when its last lease ends.
        people: the tickets (places of users in the line) on this page.
        longest_seconds: the longest time that a user now in line has waited; `None` if nobody waits.
        failed: the number of starts of servers that failed in the last day, and the latest of them.
        cordons: orders of administrators to drain a card, node or the machine.
        machine: when the last lease on the whole machine ends.
        on_cluster: whether a scheduler places the servers.
        may_drain: whether administrators may drain a card or node here.
        simulated: whether some of the cards are simulated.
        titles: id of an offer -> title.
        unproved: id of a lease that seems to have ended -> what is missing to prove it. An administrator may release
            the lease.
        contradicted: id of a lease whose server reports work while its GPU is measured as idle -> (reported use,
            measured use), in percent.
    """

    at: datetime
    read: datetime | None
    totals: Totals
    health: HealthVerdict
    cards: PageRows[Card]
    leases: Mapping[str, LeaseInfo]
    emptying: Mapping[str, Emptying]
    people: PageRows[TicketInfo]
    longest_seconds: float | None
    failed: FailedStarts
    cordons: tuple[Cordon, ...] = ()
    machine: Emptying = field(default_factory=lambda: Emptying(0, None))
    on_cluster: bool = False
    may_drain: bool = True
    simulated: bool = False
    titles: Mapping[str, str] = field(default_factory=dict)
    unproved: Mapping[str, Reason] = field(default_factory=dict)
    contradicted: Mapping[str, tuple[float, float]] = field(default_factory=dict)


def titles_of(offers: Iterable[OfferState]) -> dict[str, str]:
    return {offer.id: offer.title for offer in offers}
