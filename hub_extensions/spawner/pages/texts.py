"""Texts about an offer and its line, and forms of times, for the hub's pages."""

from __future__ import annotations

from datetime import datetime, timezone

from hub_extensions.core.messages import OfferState
from hub_extensions.core.messages.offer_texts import figures
from hub_extensions.core.offers.offer_id import CPU
from hub_extensions.core.text.reasons import translated
from hub_extensions.core.text.translation import ENGLISH, Catalogue
from hub_extensions.core.text.wording import ordinal


def utc(moment: datetime) -> str:
    """Return a time in ISO form for ``<time datetime>``, which a script shows in the browser's time zone."""
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def clock(moment: datetime) -> str:
    """Return the clock time with its zone, such as ``14:02 UTC``, for texts that no script changes."""
    return moment.astimezone(timezone.utc).strftime("%H:%M UTC")


def isolation_text(offer: OfferState, t: Catalogue = ENGLISH) -> str:
    """Describe how an offer is kept apart from other users of the same card, in words that a student knows."""
    if offer.id == CPU:
        return t("For editing, small data and waiting.")
    memory, fault, compute = (offer.isolation.get(key, "none") for key in ("memory", "fault", "compute"))
    if memory == "unknown":
        return t("Not known: others may use the same card at the same time.")
    if memory == "none" or fault == "none":
        return t("Shared memory and faults: a neighbour can slow you down or crash you.")
    if offer.kind == "whole":
        return t("A GPU of your own.")
    if compute == "hardware":
        return t("Your own memory and cores; nobody else can slow you down or crash you.")
    return t("Your own memory; a neighbour can slow you down.")


def culling_text(sentence: str, t: Catalogue = ENGLISH) -> str:
    """Return the sentence about when idle servers stop, such as ``A server with a GPU stops when …``.

    Args:
        sentence: the GPU service's text, such as ``Stops when …``; "" without such a text; then "" is returned.
    """
    if not sentence:
        return ""
    if t is ENGLISH and sentence.startswith("Stops "):
        return f"A server with a GPU stops {sentence.removeprefix('Stops ')}"
    return t("Servers with a GPU: %1", sentence)


def wait_text(offer: OfferState, t: Catalogue = ENGLISH) -> str:
    """Return what the form shows about the wait for an offer, such as ``if you joined now: 2nd in line``.

    If the wait is not known, the text is the reason. "" if the offer is free.
    """
    if offer.wait.now:
        return "" if offer.free or offer.id == CPU else t("starts now")
    if offer.closed is not None and offer.closed.all:
        return t("You can join the line: it goes on once an administrator opens it again.")
    if offer.free is None or offer.queue:  # places in Kueue's or KAI's line are not known
        return translated(offer.wait.reason, t) if offer.wait.reason else t("wait not known")
    if offer.total == 0:
        return t("no machine has one now")
    return ", ".join((t("if you joined now: %1 in line", ordinal(offer.waiting + 1, t)), *figures(offer.wait, t)))
