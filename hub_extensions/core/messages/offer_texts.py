"""Texts about an offer: its name, what it provides, how many are free, and how long the wait is."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from hub_extensions.core.gpu.mig import MigProfile
from hub_extensions.core.messages import OfferState, TicketInfo, Wait
from hub_extensions.core.offers.offer_id import CPU, GPU, GPU_SHARED, OfferId
from hub_extensions.core.text.translation import ENGLISH, Catalogue
from hub_extensions.core.text.wording import MINUTE, about, at_most, gib, likely, ordinal

AGE_STEP_SECONDS = 300
MIG = "MIG "  # prefix of the technical name of a MIG offer
UNUSED_BYTES = 50 << 20  # a use with a lower peak did not use the GPU, so it does not show how much memory is enough
ROOM = 1.1  # factor on the peak of earlier uses, because the next use may need a little more memory
FEW_DATA = "few-data"
ROUGH = "rough"  # values of `Wait.note`


def default_title(offer: OfferId) -> str:
    """Return a name made from the offer's id, for an offer whose title is not known."""
    if offer == CPU:
        return "CPU only"
    if offer.base == GPU_SHARED:
        return "a shared GPU"
    whole = offer.base == GPU
    name = "a whole GPU" if whole else f"MIG {MigProfile.parse(offer.base).name}"
    if offer.is_device:
        return name
    part = f"{offer.gib} GiB" if offer.gib else f"{offer.share / 10:g} %"
    return f"{part} of {'a GPU' if whole else name}"


def plain_name(offer: OfferState, t: Catalogue = ENGLISH) -> str:
    """Return the offer's name for users who do not know MIG, such as ``Small GPU``, in the reader's language.

    A title that an administrator has chosen for an offer is not translated.
    """
    return t(offer.plain_name)


def card_share(offer: OfferState) -> Fraction | None:
    """Return which part of a whole card a server with this offer gets; `None` if it is not known, or for CPU only.

    `OfferState.share` refers to a device, which may itself be a part of a card. For a MIG device the part is computed
    from its SMs (streaming multiprocessors).
    """
    if not 0 < offer.share <= 1:
        return None
    if offer.pool.startswith(GPU):
        return Fraction(offer.share).limit_denominator(100)
    if offer.kind == "mig" and offer.sm_count and offer.sm_total:
        return Fraction(offer.sm_count, offer.sm_total).limit_denominator(8)
    return None


def size(offer: OfferState, t: Catalogue = ENGLISH) -> str:
    """Return the memory that a server gets, such as ``4.75 GiB``; "" if it is not known or for CPU only."""
    if offer.id == CPU or offer.memory_bytes is None:
        return ""
    text = gib(offer.memory_bytes)
    return text if offer.memory_enforced else t("about %1, shared", text)


def technical_text(offer: OfferState, t: Catalogue = ENGLISH) -> str:
    """Return the technical description of the offer's device: ``MIG 1g.5gb, 1/7 of a card (A100), 14 SMs``.

    "" for CPU only.
    """
    if offer.id == CPU:
        return ""
    parts = [t("MIG %1", offer.pool.removeprefix("mig-"))] if offer.kind == "mig" else []
    card = offer.product
    part = card_share(offer)
    if part is not None and part < 1:
        parts.append(t("%1 of a card (%2)", part, card) if card else t("%1 of a card", part))
    elif card:
        parts.append(card)
    if offer.sm_count is not None:
        parts.append(t("%1 SMs", offer.sm_count))
    return ", ".join(parts)


def enough_text(offer: OfferState, offers: Sequence[OfferState], peak_bytes: int | None, t: Catalogue = ENGLISH) -> str:
    """Return a text about whether the user's last programs would have fitted into the memory of this offer.

    Every offer that is too small gets such a text, and so does the smallest offer that is large enough. For all other
    offers the result is "".

    Args:
        offers: all offers of the form.
        peak_bytes: the highest GPU memory in any of the user's last three uses; `None` if not known, so that no offer
            gets a text.
    """
    if peak_bytes is None or peak_bytes < UNUSED_BYTES or offer.id == CPU or offer.memory_bytes is None:
        return ""
    if offer.memory_bytes < peak_bytes:
        return t("less than your last sessions held at most (%1)", gib(peak_bytes))
    fitting = [each.memory_bytes for each in offers if (each.memory_bytes or 0) >= ROOM * peak_bytes]
    if not fitting or offer.memory_bytes != min(filter(None, fitting)):
        return ""
    return t("enough for your last sessions (%1 at most)", gib(peak_bytes))


def gives(offer: OfferState, t: Catalogue = ENGLISH) -> str:
    """Return what a server with this offer gets, such as ``4.75 GiB · 14 SMs``; unknown parts are left out."""
    if offer.id == CPU:
        return t("no GPU")
    parts = []
    if offer.memory_bytes is not None:
        size = gib(offer.memory_bytes)
        parts.append(size if offer.memory_enforced else t("about %1, shared", size))
    if offer.sm_count is not None:
        parts.append(t("%1 SMs", offer.sm_count))
    return " · ".join(parts) or t("size not known")


def free_text(offer: OfferState, ahead: int, t: Catalogue = ENGLISH) -> tuple[str, str]:
    """Return a symbol and a text for the number of free devices, such as ``("●", "2 of 5 free")``.

    The symbol is never shown without the text. An offer that an administrator has closed is shown as closed.

    Args:
        ahead: how many users in line would be served before the reader. Free devices go to them first, so the text adds
            their number: ``2 of 5 free, 1 ahead``.
    """
    if offer.id == CPU:
        return "●", t("always")
    if offer.closed is not None and offer.closed.all:
        return "○", t("closed by an administrator")
    if offer.free is None:
        return "?", t("not known")
    text = t("%1 free", offer.free) if offer.total is None else t("%1 of %2 free", offer.free, offer.total)
    if not offer.free:
        return "○", t("none there now") if offer.total == 0 else t("full")
    return "●", t("%1, %2 ahead", text, ahead) if ahead and not offer.wait.now else text


def pill_text(offer: OfferState, ahead: int, t: Catalogue = ENGLISH) -> tuple[str, str]:
    """Return a symbol and a text for the number of free devices as `free_text`; if the offer is full, with its wait.

    The text is then ``full · about 12 min`` or ``full, wait not known``.

    Args:
        ahead: how many users in line would be served before the reader.
    """
    sign, text = free_text(offer, ahead, t)
    wait, closed = offer.wait, offer.closed is not None and offer.closed.all
    if offer.free != 0 or offer.total == 0 or wait.now or closed:
        return sign, text
    if likely_text(wait) and wait.p50_seconds is not None:
        return sign, t("full · about %1", about(max(wait.p50_seconds, MINUTE), t))
    if wait.at_most_seconds is not None:
        return sign, t("full · at most %1", at_most(wait.at_most_seconds, t))
    return sign, t("full, wait not known")


def likely_text(wait: Wait, t: Catalogue = ENGLISH) -> str:
    """Return the likely range, such as ``likely 25 min to 1 h 10 min (rough)``; "" if it is not known.

    A wide range already contains "roughly", so "(rough)" is not added to it.
    """
    if wait.p10_seconds is None or wait.p90_seconds is None:
        return ""
    text = likely(wait.p10_seconds, wait.p90_seconds, t, wide=wait.wide)
    return t("%1 (rough)", text) if wait.note == ROUGH and not wait.wide else text


def at_most_text(wait: Wait, t: Catalogue = ENGLISH) -> str:
    """Return ``wait at most 2 h 10 min``; "" if nothing enforces a limit."""
    return "" if wait.at_most_seconds is None else t("wait at most %1", at_most(wait.at_most_seconds, t))


def unknown_wait_text(wait: Wait, t: Catalogue = ENGLISH) -> str:
    """Return the text for a wait of which neither a likely range nor an enforced limit is known."""
    reason = wait.reason
    if reason is not None and reason.reason == "place-ends-first":
        return t("your place ends after %1 h", f"{float(reason.params['hours']):g}")
    return t("not enough data yet") if wait.note == FEW_DATA else t("wait not known")


def range_text(wait: Wait, t: Catalogue = ENGLISH) -> str:
    """Return the likely range of a wait, or that there is too little data for one.

    If neither range nor limit is known, return the text of `unknown_wait_text`. If only the limit is known, and data
    are not the cause, return "".
    """
    guess = likely_text(wait, t)
    if guess or wait.at_most_seconds is not None:
        return guess or (t("not enough data yet") if wait.note == FEW_DATA else "")
    return unknown_wait_text(wait, t)


def figures(wait: Wait, t: Catalogue = ENGLISH) -> tuple[str, ...]:
    """Return the texts about the length of a wait: the likely range, and the limit "wait at most …" if there is one."""
    return tuple(text for text in (range_text(wait, t), at_most_text(wait, t)) if text)


def age_step(wait: Wait) -> int | None:
    """Return the five-minute step of the clock in which the forecast was computed; `None` if nothing was computed.

    A page announces the forecast's age to screen readers only when this number changes.
    """
    return None if wait.as_of is None else int(wait.as_of.timestamp() // AGE_STEP_SECONDS)


def when_text(wait: Wait, t: Catalogue = ENGLISH) -> str:
    """Return when a server with this wait would start: ``starts now`` or ``likely 5–10 min``; "" if not known."""
    return t("starts now") if wait.now else likely_text(wait, t)


def ahead(offer: OfferState, own: Sequence[TicketInfo]) -> int:
    """Return how many users would get this offer before the reader.

    If the reader is in line, they are the users ahead of the reader's place; otherwise all who wait for the offer.

    Args:
        own: the reader's tickets (places in the line).
    """
    places = [ticket.position for ticket in own if offer.id in ticket.offers and ticket.position > 0]
    return min(places) - 1 if places else offer.waiting


def wait_text(wait: Wait, t: Catalogue = ENGLISH) -> str:
    """Return the wait as text: that the server starts now, the likely range and limit, or that it is not known."""
    return t("starts now") if wait.now else ", ".join(figures(wait, t))


def place_text(state: str, position: int, t: Catalogue = ENGLISH) -> str:
    """Return the state of a ticket as text: its place in line, or ``starting``.

    Args:
        state: the ticket's state, such as ``waiting`` or ``admitted``.
        position: its position, 1 for the next in line; 0 if it is not known.
    """
    if state == "waiting":
        return t("%1 in line", ordinal(position, t)) if position > 0 else t("in line")
    return t("starting") if state == "admitted" else state
