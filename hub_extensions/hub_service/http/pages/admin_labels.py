"""Texts on the administrators' pages for codes and values of the engine. Unknown values are "not known", never zero."""

from __future__ import annotations

from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.overview.cards import Card, Piece, PieceState
from hub_extensions.core.overview.days import Span
from hub_extensions.core.text.translation import Catalogue
from hub_extensions.core.text.wording import about

SLICES, FINE = 7, 56
"""A bar has this many equal parts: a card's compute slices, or eighths of them if a piece is not a whole slice."""


def parts(card: Card) -> int:
    """Return how many equal parts the bar of a card has, so that its pieces (MIG instances or shares) are to scale."""
    sizes = (SLICES * piece.width / WHOLE for piece in card.pieces)
    return SLICES if all(abs(size - round(size)) < 0.05 for size in sizes) else FINE


def width(piece: Piece, parts: int = SLICES) -> int:
    """Return how many parts of a card's bar one of its pieces (a MIG instance or share) covers, at least one.

    Args:
        piece: the piece.
        parts: number of parts of the whole bar.
    """
    return min(parts, max(1, int(parts * piece.width / WHOLE + 0.1)))


def state(piece: Piece, t: Catalogue) -> str:
    """Return the state of a piece of a card (a MIG instance or share) as text, which is shown beside its colour."""
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
    """Return the name of a card for the page: its product, with its node or its number.

    Args:
        card: the card.
        number: number of the card on the machine, beginning with 1. It is not used if the card has a node.
        t: translates into the reader's language.
    """
    what = card.product or t("GPUs")
    return f"{card.node} · {what}" if card.node else t("Card %1 · %2", number, what)


def of_cards(count: int, t: Catalogue) -> str:
    """Return the text that follows the number of cards in use, such as "of 8 cards in use".

    Args:
        count: number of all cards.
        t: translates into the reader's language.
    """
    return t.plural("of 1 card in use", "of %1 cards in use", count)


def uuids(card: Card) -> tuple[str, ...]:
    """Return the UUIDs of a card and its pieces (MIG instances), each once. Unknown ones are left out."""
    return tuple(dict.fromkeys(each for each in (card.uuid, *(piece.uuid for piece in card.pieces)) if each))


def shown(code: str, t: Catalogue) -> str:
    """Return the label of a filter for the list of cards.

    Args:
        code: the filter's name in the query, such as ``idle``.
        t: translates into the reader's language.
    """
    return {
        "held": t("in use"),
        "idle": t("held but idle"),
        "unknown": t("use not known"),
        "free": t("with something free"),
        "drained": t("drained"),
    }.get(code, code)


def span(each: Span, t: Catalogue) -> str:
    """Return the label of a time span for which statistics are shown, such as "7 days"."""
    return {Span.DAY: t("24 hours"), Span.WEEK: t("7 days"), Span.MONTH: t("30 days")}[each]


def end(code: str, t: Catalogue) -> str:
    """Return as text how a server's time with its GPU ended.

    Args:
        code: the `end` of its usage record, such as ``idle``.
        t: translates into the reader's language.
    """
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
    """Return a wait as text: a duration, or "nobody" if nobody waited (`None`)."""
    return t("nobody") if seconds is None else about(seconds, t)


def hours(value: float, t: Catalogue) -> str:
    """Return as text for how many hours devices were held, without decimals from 10 hours on."""
    return t("%1 h", f"{value:.0f}" if value >= 10 else f"{value:.1f}".removesuffix(".0"))


def receipt(order: str, whose: str, why: str, t: Catalogue, number: int = 0) -> tuple[str, str]:
    """Return two sentences about an administrator's order (such as to stop a server): its effect, and who is notified.

    Args:
        order: which order it is: the last part of its address in `ADMIN_PAGES`, such as ``drain``.
        whose: the user, device or node that the order concerns, as the page calls it.
        why: the administrator's reason.
        t: translates into the administrator's language.
        number: number of hours, or of servers that received a message; 0 if the order has neither.
    """
    if order == "drain":
        notified = t(
            "Who is on it stays, and is told nothing. The form says that an administrator closed it: “%1”", why
        )
        return t("Nothing new starts on %1.", whose), notified
    if order == "undrain":
        notified = t("Nobody is told. The form offers it again, and who waits for it is served.")
        return t("Servers start on %1 again.", whose), notified
    if order == "stop":
        notified = t(
            "The user reads in JupyterLab, also with the panel closed, on the next page, and by mail where a mail "
            "server is set: “%1”",
            why,
        )
        return t("The server of %1 stops.", whose), notified
    if order == "undo-stop":
        notified = t("The countdown goes away, and the user reads it on the next page.")
        return t("The order to stop the server of %1 is taken back.", whose), notified
    if order == "keep":
        notified = t(
            "The user is told nothing; a countdown goes away. It is a promise: only a stop ends the server sooner."
        )
        return t("The server of %1 is kept for %2.", whose, about(3600 * number, t)), notified
    if order == "letter":
        notified = t(
            "The user reads in JupyterLab until it is closed, also with the panel closed, on the next page, and by "
            "mail and webhook where notices are set: “%1” It cannot be taken back.",
            why,
        )
        done = t.plural("The message went to 1 server on %2.", "The message went to %1 servers on %2.", number, whose)
        return done, notified
    if order == "take-out":
        notified = t(
            "The user reads on the waiting page, and on the next one: “%1” The place cannot be given back.", why
        )
        return t("%1 is out of the line.", whose), notified
    notified = t("It goes to the next in line as soon as its machine has one. It cannot be taken back.")
    return t("The GPU of %1 is given up.", whose), notified
