"""What the spawner says about a place in line, as text. Pure: values in, text out.

Not here: why somebody waits (the service says that), and the HTML around the text (``templates/``).
"""

from __future__ import annotations

from datetime import datetime, timezone

from hub_extensions.core.messages import OfferState, Wait
from hub_extensions.core.offers.offer_id import CPU
from hub_extensions.core.wording import about, ordinal


def utc(moment: datetime) -> str:
    """The ISO form that goes into ``<time datetime>``; the browser writes it in the reader's time."""
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def clock(moment: datetime) -> str:
    """A clock time for where no browser rewrites it: ``14:02 UTC``."""
    return moment.astimezone(timezone.utc).strftime("%H:%M UTC")


def isolation_text(offer: OfferState) -> str:
    """How an offer is separated from its neighbours, in words a student knows."""
    if offer.id == CPU:
        return "For editing, small data and waiting."
    memory, fault, compute = (offer.isolation.get(key, "none") for key in ("memory", "fault", "compute"))
    if memory == "none" or fault == "none":
        return "Shared memory and faults: a neighbour can slow you down or crash you."
    if offer.kind == "whole":
        return "A GPU of your own."
    if compute == "hardware":
        return "Your own memory and cores; nobody else can slow you down or crash you."
    return "Your own memory; a neighbour can slow you down."


def culling_text(sentence: str) -> str:
    """When servers stop, naming which: ``A server with a GPU stops when …``; empty for an empty sentence."""
    if not sentence:
        return ""
    if sentence.startswith("Stops "):
        return f"A server with a GPU stops {sentence.removeprefix('Stops ')}"
    return f"Servers with a GPU: {sentence}"


def likely(wait: Wait) -> str:
    """``likely 25–70 min``; empty where it is not known."""
    if wait.p10_seconds is None or wait.p90_seconds is None:
        return ""
    low, high = about(wait.p10_seconds), about(wait.p90_seconds)
    if low.endswith(" min") and high.endswith(" min") and " h " not in low + high:
        low = low.removesuffix(" min")
    return f"likely {high}" if low == high else f"likely {low}–{high}"


def no_figure(wait: Wait) -> str:
    """What is said of a wait of which no figure is known."""
    reason = wait.reason
    if reason is not None and reason.reason == "place-ends-first":
        return f"your place ends after {float(reason.params['hours']):g} h"
    return "wait not known"


def wait_text(offer: OfferState) -> str:
    """The wait of one offer: ``starts now``, ``you would be 2nd in line, likely 25–70 min``, or why it is unknown."""
    if offer.wait.now:
        return "starts now"
    if offer.free is None or offer.queue:  # of another's line no place is known
        return offer.wait.reason.message if offer.wait.reason else "wait not known"
    parts = [f"you would be {ordinal(offer.waiting + 1)} in line"]
    guess = likely(offer.wait)
    if guess:
        parts.append(guess)
    if offer.wait.at_most_seconds is not None:
        parts.append(f"at most {about(offer.wait.at_most_seconds)}")
    if len(parts) == 1:
        parts.append(no_figure(offer.wait))
    return ", ".join(parts)
