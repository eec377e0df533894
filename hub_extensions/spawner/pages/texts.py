"""What the spawner says about a place in line, as text. Pure: values in, text out.

Not here: why somebody waits (the service says that), and the HTML around the text (``templates/``).
"""

from __future__ import annotations

from datetime import datetime, timezone

from hub_extensions.core.messages import OfferState
from hub_extensions.core.messages.offer_texts import figures
from hub_extensions.core.offers.offer_id import CPU
from hub_extensions.core.text.reasons import translated
from hub_extensions.core.text.translation import ENGLISH, Catalogue
from hub_extensions.core.text.wording import ordinal


def utc(moment: datetime) -> str:
    """The ISO form that goes into ``<time datetime>``; the browser writes it in the reader's time."""
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def clock(moment: datetime) -> str:
    """A clock time for where no browser rewrites it: ``14:02 UTC``."""
    return moment.astimezone(timezone.utc).strftime("%H:%M UTC")


def isolation_text(offer: OfferState, t: Catalogue = ENGLISH) -> str:
    """How an offer is separated from its neighbours, in words a student knows."""
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
    """When servers stop, naming which: ``A server with a GPU stops when …``; empty for an empty sentence."""
    if not sentence:
        return ""
    if t is ENGLISH and sentence.startswith("Stops "):
        return f"A server with a GPU stops {sentence.removeprefix('Stops ')}"
    return t("Servers with a GPU: %1", sentence)


def wait_text(offer: OfferState, t: Catalogue = ENGLISH) -> str:
    """The wait of one offer: ``if you joined now: 2nd in line``, or why it is not known; "" where *free* says it."""
    if offer.wait.now:
        return "" if offer.free or offer.id == CPU else t("starts now")
    if offer.closed is not None and offer.closed.all:
        return t("You can join the line: it goes on once an administrator opens it again.")
    if offer.free is None or offer.queue:  # of another's line no place is known
        return translated(offer.wait.reason, t) if offer.wait.reason else t("wait not known")
    if offer.total == 0:
        return t("no machine has one now")
    return ", ".join((t("if you joined now: %1 in line", ordinal(offer.waiting + 1, t)), *figures(offer.wait, t)))
