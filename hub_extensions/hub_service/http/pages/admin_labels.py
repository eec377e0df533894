"""The words of the admin's pages for what the engine says in codes. Unknown is "not known", never zero."""

from __future__ import annotations

from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.overview.cards import Card, Piece, PieceState
from hub_extensions.core.overview.days import Span
from hub_extensions.core.translation import Catalogue
from hub_extensions.core.wording import about

PARTS = 8
"""A bar is so many equal parts wide, and a piece is one at least."""


def width(piece: Piece) -> int:
    """How many parts of its card's bar a piece takes."""
    return min(PARTS, max(1, round(PARTS * piece.width / WHOLE)))


def state(piece: Piece, t: Catalogue) -> str:
    """What a piece is doing, in a word that stands beside its colour."""
    holder = piece.holder
    if holder is not None and holder.use_percent is not None:
        if piece.state is PieceState.IDLE:
            return t("idle")
        if piece.state is PieceState.BUSY:
            return t("%1 %", f"{holder.use_percent:.0f}")
    return {
        PieceState.USE_UNKNOWN: t("use not known"),
        PieceState.STARTING: t("starting"),
        PieceState.ENDING: t("ending"),
        PieceState.LOST: t("lost: its device is gone"),
        PieceState.OTHERS: t("used by other programs"),
        PieceState.CLOSED: t("no new servers"),
        PieceState.UNUSABLE: t("cannot be used"),
        PieceState.NOT_KNOWN: t("not known"),
        PieceState.FREE: t("free"),
    }.get(piece.state, piece.state.value)


def name(card: Card, number: int, t: Catalogue) -> str:
    """What a card is called: its product, and where it is."""
    what = card.product or t("GPUs")
    return f"{card.node} · {what}" if card.node else t("Card %1 · %2", number, what)


def of_cards(count: int, t: Catalogue) -> str:
    """What stands behind the number of cards in use: of how many."""
    return t.plural("of 1 card in use", "of %1 cards in use", count)


def uuids(card: Card) -> tuple[str, ...]:
    """Of the card and of what was cut from it, each once."""
    return tuple(dict.fromkeys(each for each in (card.uuid, *(piece.uuid for piece in card.pieces)) if each))


def shown(code: str, t: Catalogue) -> str:
    """What of the cards is shown."""
    return {
        "held": t("in use"),
        "idle": t("held but idle"),
        "unknown": t("use not known"),
        "free": t("with something free"),
        "drained": t("drained"),
    }.get(code, code)


def span(each: Span, t: Catalogue) -> str:
    """A span, as one chooses it."""
    return {Span.DAY: t("24 hours"), Span.WEEK: t("7 days"), Span.MONTH: t("30 days")}[each]


def end(code: str, t: Catalogue) -> str:
    """How a use ended."""
    return {
        "user": t("stopped by its user"),
        "idle": t("stopped as idle"),
        "unopened": t("stopped: nobody opened it"),
        "lifetime": t("stopped: its time was over"),
        "failed": t("broke down"),
        "left": t("given up before it was ready"),
        "lost": t("its device was gone"),
        "node-lost": t("its machine was gone"),
        "admin": t("stopped by an administrator"),
        "hub-stopped": t("ended while the hub was away"),
        "reclaimed": t("taken back"),
        "signed-out": t("stopped after a sign-out"),
    }.get(code, t("not known how"))


def wait(seconds: float | None, t: Catalogue) -> str:
    """A length of time; nobody waited where there is none."""
    return t("nobody") if seconds is None else about(seconds, t)


def hours(value: float, t: Catalogue) -> str:
    """Hours held: whole ones from ten on."""
    return t("%1 h", f"{value:.0f}" if value >= 10 else f"{value:.1f}".removesuffix(".0"))
