"""One line of figures: what is in use, busy, held but idle, free. Each thing is counted once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from hub_extensions.core.overview.cards import HELD, Card, PieceState


@dataclass(frozen=True, slots=True)
class Totals:
    """What is going on.

    Attributes:
        pieces: what servers can be given, in all. cards: on so many cards; on a cluster on so many nodes.
        cards_held: those of which servers of ours have something.
        held: by servers of ours; busy, idle, use_unknown and changing (starting, ending, lost) add up to it.
        free, closed, others, unusable: the rest. unknown: of which nobody can tell.
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
