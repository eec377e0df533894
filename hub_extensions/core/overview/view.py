"""The admin's page as values: what is asked of it, and what is on it. A page of rows is counted, never all are made."""

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
"""What of the cards may be asked for, by a word of the address."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked for.

    Attributes:
        search: part of a user's, node's, card's or product's name. show: a word of `SHOWN`.
        cards, people: which page of each, from 1 on.
    """

    search: str = ""
    show: str = ""
    cards: int = 1
    people: int = 1


@dataclass(frozen=True, slots=True)
class PageRows(Generic[T]):
    """One page of many rows.

    Attributes:
        shown: those of this page. found: how many there are on all. page: which this is. pages: how many there are.
    """

    shown: tuple[T, ...]
    found: int
    page: int
    pages: int


def paged(rows: Sequence[T], page: int, size: int) -> PageRows[T]:
    """The rows of a page; the last one where there are not so many."""
    pages = max(1, -(-len(rows) // size))
    page = min(max(1, page), pages)
    return PageRows(tuple(rows[(page - 1) * size : page * size]), len(rows), page, pages)


def chosen(cards: Iterable[Card], asked: Asked) -> list[Card]:
    """The cards that are asked for."""
    words, wanted = asked.search.casefold().strip(), SHOWN.get(asked.show, SHOWN[""])
    return [card for card in cards if wanted(card) and (not words or _has(card, words))]


def _has(card: Card, words: str) -> bool:
    users, pieces = (holder.user for holder in card.holders), (piece.uuid for piece in card.pieces)
    return any(words in name.casefold() for name in (card.node, card.uuid, card.product, *users, *pieces))


@dataclass(frozen=True, slots=True)
class Overview:
    """All that stands on the page.

    Attributes:
        at: when it was put together. read: when the GPUs were read last; None: not yet.
        leases: of those on the cards that are shown, by id. emptying: of each of these cards, by its place.
        people: who waits. longest_seconds: who waits longest; None: nobody.
        failed: starts that failed.
        on_cluster: a scheduler places the servers. simulated: some of the cards do not exist.
        may_drain: an admin can drain a card, or a node, here.
        unproved: leases that seem to be over, by id, and why nothing proves it: an admin may release them.
        contradicted: leases whose servers report work while their GPUs are measured idle: both figures in percent.
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
    """The title of each offer."""
    return {offer.id: offer.title for offer in offers}
