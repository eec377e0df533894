"""Offers as people say them: what one is called, what it gives, how many are free, and how long the wait is. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from hub_extensions.core.gpu.mig import MigProfile
from hub_extensions.core.messages import OfferState, TicketInfo, Wait
from hub_extensions.core.offers.offer_id import CPU, GPU, GPU_SHARED, OfferId
from hub_extensions.core.text.translation import ENGLISH, Catalogue
from hub_extensions.core.text.wording import MINUTE, about, at_most, gib, likely, ordinal

AGE_STEP_SECONDS = 300
MIG = "MIG "
"""What a part of a card is called by whoever knows begins with."""
UNUSED_BYTES = 50 << 20
"""Who held less did not use the GPU: such a peak says nothing of what is enough."""
ROOM = 1.1
"""Whoever needed so much may need a little more."""
FEW_DATA = "few-data"
ROUGH = "rough"
"""What is said of a forecast beside its figures (`Wait.note`)."""


def default_title(offer: OfferId) -> str:
    """An offer's name made from its id, for where its title is not known."""
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
    """What somebody calls an offer who does not know MIG: ``Small GPU``; an admin's title stays as it is."""
    return t(offer.plain_name)


def card_share(offer: OfferState) -> Fraction | None:
    """How much of a whole card it is; None: not known, or nothing of a card.

    `share` is of a device, which may be a part: a MIG device is told by its SMs of those that the parts are cut from.
    """
    if not 0 < offer.share <= 1:
        return None
    if offer.pool.startswith(GPU):
        return Fraction(offer.share).limit_denominator(100)
    if offer.kind == "mig" and offer.sm_count and offer.sm_total:
        return Fraction(offer.sm_count, offer.sm_total).limit_denominator(8)
    return None


def size(offer: OfferState, t: Catalogue = ENGLISH) -> str:
    """How much memory an offer gives: ``4.75 GiB``; "" where it is not known, or there is no GPU."""
    if offer.id == CPU or offer.memory_bytes is None:
        return ""
    text = gib(offer.memory_bytes)
    return text if offer.memory_enforced else t("about %1, shared", text)


def what_it_is(offer: OfferState, t: Catalogue = ENGLISH) -> str:
    """What an offer is for whoever knows: ``MIG 1g.5gb, 1/7 of a card (A100), 14 SMs``.

    Not of how many: a card that is cut hands out fewer than it has.
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
    """Whether one's last uses had fitted: said of the smallest that is enough, and of those that are not."""
    if peak_bytes is None or peak_bytes < UNUSED_BYTES or offer.id == CPU or offer.memory_bytes is None:
        return ""
    if offer.memory_bytes < peak_bytes:
        return t("less than your last sessions held at most (%1)", gib(peak_bytes))
    fitting = [each.memory_bytes for each in offers if (each.memory_bytes or 0) >= ROOM * peak_bytes]
    if not fitting or offer.memory_bytes != min(filter(None, fitting)):
        return ""
    return t("enough for your last sessions (%1 at most)", gib(peak_bytes))


def gives(offer: OfferState, t: Catalogue = ENGLISH) -> str:
    """What one offer really gives: ``4.75 GiB · 14 SMs``; unknown parts are left out."""
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
    """The sign and the text for how many are free: ``("●", "2 of 5 free")``, or ``full``. The sign never stands alone.

    What an administrator has closed is called so.

    Args:
        ahead: how many would get it before its reader. What is free is theirs first: ``2 of 5 free, 1 ahead``.
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
    """As `free_text`; what is full has its wait beside it: ``full · about 12 min``, ``full, wait not known``."""
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
    """``likely 25 min to 1 h 10 min (rough)``, ``likely roughly 15 min to 2 h``; empty where it is not known."""
    if wait.p10_seconds is None or wait.p90_seconds is None:
        return ""
    text = likely(wait.p10_seconds, wait.p90_seconds, t, wide=wait.wide)
    return t("%1 (rough)", text) if wait.note == ROUGH else text


def at_most_text(wait: Wait, t: Catalogue = ENGLISH) -> str:
    """``wait at most 2 h 10 min``; empty where nothing enforces it."""
    return "" if wait.at_most_seconds is None else t("wait at most %1", at_most(wait.at_most_seconds, t))


def no_figure(wait: Wait, t: Catalogue = ENGLISH) -> str:
    """What is said of a wait of which no figure is known."""
    reason = wait.reason
    if reason is not None and reason.reason == "place-ends-first":
        return t("your place ends after %1 h", f"{float(reason.params['hours']):g}")
    return t("not enough data yet") if wait.note == FEW_DATA else t("wait not known")


def range_text(wait: Wait, t: Catalogue = ENGLISH) -> str:
    """The likely range, or that there is not enough data yet; without a limit, what is shown instead of a figure."""
    guess = likely_text(wait, t)
    if guess or wait.at_most_seconds is not None:
        return guess or (t("not enough data yet") if wait.note == FEW_DATA else "")
    return no_figure(wait, t)


def figures(wait: Wait, t: Catalogue = ENGLISH) -> tuple[str, ...]:
    """All that is said of how long: the likely range, then the limit."""
    return tuple(text for text in (range_text(wait, t), at_most_text(wait, t)) if text)


def age_step(wait: Wait) -> int | None:
    """In which five minutes a likely wait was worked out: its time is told anew so often, if nothing else changes."""
    return None if wait.as_of is None else int(wait.as_of.timestamp() // AGE_STEP_SECONDS)


def when_text(wait: Wait, t: Catalogue = ENGLISH) -> str:
    """When another offer would start, in few words: ``starts now``, ``likely 5–10 min``; empty: that is not known."""
    return t("starts now") if wait.now else likely_text(wait, t)


def ahead(offer: OfferState, own: Sequence[TicketInfo]) -> int:
    """How many would get this offer before its reader: all in line, or those before one's own place in it."""
    places = [ticket.position for ticket in own if offer.id in ticket.offers and ticket.position > 0]
    return min(places) - 1 if places else offer.waiting


def wait_text(wait: Wait, t: Catalogue = ENGLISH) -> str:
    """The wait in words: an interval, an upper limit that is enforced, or that it is not known."""
    return t("starts now") if wait.now else ", ".join(figures(wait, t))


def place_text(state: str, position: int, t: Catalogue = ENGLISH) -> str:
    """Where a ticket is: its place in line, or what happens to it."""
    if state == "waiting":
        return t("%1 in line", ordinal(position, t)) if position > 0 else t("in line")
    return t("starting") if state == "admitted" else state
