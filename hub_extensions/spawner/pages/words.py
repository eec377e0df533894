"""What the spawner says about a place in line, in plain words. Pure: values in, text out.

Not here: why somebody waits (the service says that), and the HTML around the text (``templates/``).
"""

from __future__ import annotations

import re
from datetime import datetime, timezone

from hub_extensions.core.messages import OfferState, Wait
from hub_extensions.core.wording import about, gib, ordinal

_FRACTION = re.compile(r"-(0\.\d+)\Z")


def utc(moment: datetime) -> str:
    """The ISO form that goes into ``<time datetime>``; the browser writes it in the reader's time."""
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def clock(moment: datetime) -> str:
    """A clock time for where no browser rewrites it: ``14:02 UTC``."""
    return moment.astimezone(timezone.utc).strftime("%H:%M UTC")


def offer_words(offer: str) -> str:
    """An offer's name made from its id, for where the service did not tell its title."""
    if offer == "cpu":
        return "CPU only"
    fraction = _FRACTION.search(offer)
    device = offer[: fraction.start()] if fraction else offer
    whole = device.partition("@")[0] == "gpu"
    name = "a whole GPU" if whole else "MIG " + device.removeprefix("mig-").replace(".me", "+me")
    if not fraction:
        return name
    percent = f"{float(fraction.group(1)) * 100:g} %"
    return f"{percent} of a GPU" if whole else f"{percent} of {name}"


def gives(offer: OfferState) -> str:
    """What one offer really gives: ``4.75 GiB · 14 of 98 SMs``; unknown parts are left out."""
    if offer.kind == "cpu":
        return "no GPU"
    parts = []
    if offer.memory_bytes is not None:
        size = gib(offer.memory_bytes)
        parts.append(size if offer.memory_enforced else f"about {size}, shared")
    if offer.sm_count is not None:
        parts.append(f"{offer.sm_count} of {offer.sm_total} SMs" if offer.sm_total else f"{offer.sm_count} SMs")
    return " · ".join(parts) or "size not known"


def isolation_words(offer: OfferState) -> str:
    """How an offer is separated from its neighbours, in words a student knows."""
    if offer.kind == "cpu":
        return "For editing, small data and waiting."
    memory, fault, compute = (offer.isolation.get(key, "none") for key in ("memory", "fault", "compute"))
    if memory == "none" or fault == "none":
        return "Shared memory and faults: a neighbour can slow you down or crash you."
    if offer.kind == "whole":
        return "A GPU of your own."
    if compute == "hardware":
        return "Your own memory and cores; nobody else can slow you down or crash you."
    return "Your own memory; a neighbour can slow you down."


def free_words(offer: OfferState) -> tuple[str, str]:
    """The sign and the words for how many are free: ``("●", "2 of 5 free")``. The sign never stands alone.

    What is free while others wait for it is theirs first, and said so: ``2 of 5 free, 1 ahead``.
    """
    if offer.kind == "cpu":
        return "●", "always"
    if offer.free is None:
        return "?", "not known"
    words = f"{offer.free} free" if offer.total is None else f"{offer.free} of {offer.total} free"
    if not offer.free:
        return "○", words
    ahead = f", {offer.waiting} ahead" if offer.waiting and not offer.wait.now else ""
    return "●", words + ahead


def culling_words(sentence: str) -> str:
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


def wait_words(offer: OfferState) -> str:
    """The wait of one offer: ``starts now``, ``you would be 2nd in line, likely 25–70 min``, or why it is unknown."""
    if offer.wait.now:
        return "starts now"
    if offer.free is None or offer.queue:  # of another's line no place is known
        return offer.wait.reason or "wait not known"
    parts = [f"you would be {ordinal(offer.waiting + 1)} in line"]
    guess = likely(offer.wait)
    if guess:
        parts.append(guess)
    if offer.wait.at_most_seconds is not None:
        parts.append(f"at most {about(offer.wait.at_most_seconds)}")
    if len(parts) == 1:
        parts.append("wait not known")
    return ", ".join(parts)
