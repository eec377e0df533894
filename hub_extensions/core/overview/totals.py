"""The number of pieces in each state, for the top of the administrators' page.

A piece is what one server can be given (``cards.py``). Each piece is counted once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from hub_extensions.core.overview.cards import HELD, Card, PieceState


@dataclass(frozen=True, slots=True)
class Totals:
    """Numbers of cards and pieces (what one server can be given). The states are those of `PieceState`.

    Attributes:
        cards: the number of cards, or of nodes on a cluster.
        cards_held: the number of cards with at least one lease.
        pieces: the number of all pieces.
        held: pieces with a lease; the sum of busy, idle, use_unknown and changing.
        busy, idle, use_unknown: pieces whose server runs, by the measured use of the GPU.
        changing: pieces whose lease is starting, ending or lost.
        free: pieces that are free.
        closed: pieces without a lease that are not given to servers, such as those that administrators have closed.
        others: pieces that programs use which this hub did not start.
        unusable: pieces without a lease that cannot be used.
        unknown: pieces without a lease of which it is not known whether they are free.
    """

    cards: int
    cards_held: int
    pieces: int
    held: int
    busy: int
    idle: int
    use_unknown: int
    changing: int
    free: int
    closed: int
    others: int
    unusable: int
    unknown: int


def totals_of(cards: Iterable[Card]) -> Totals:
    """Count the pieces of all cards."""
    found = tuple(cards)
    states = Counter(piece.state for card in found for piece in card.pieces)
    held = sum(states[state] for state in HELD)
    known = (PieceState.BUSY, PieceState.IDLE, PieceState.USE_UNKNOWN)
    return Totals(
        cards=len({card.place for card in found}),
        cards_held=len({card.place for card in found if any(piece.state in HELD for piece in card.pieces)}),
        pieces=sum(states.values()),
        held=held,
        busy=states[PieceState.BUSY],
        idle=states[PieceState.IDLE],
        use_unknown=states[PieceState.USE_UNKNOWN],
        changing=held - sum(states[state] for state in known),
        free=states[PieceState.FREE],
        closed=states[PieceState.CLOSED],
        others=states[PieceState.OTHERS],
        unusable=states[PieceState.UNUSABLE],
        unknown=states[PieceState.NOT_KNOWN],
    )
