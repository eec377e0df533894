"""Figures as the pages say them: memory, spans of time, what is free, how long the wait is.

Unknown is "not known", never zero. Not here: reasons, which come with the answers themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

from hub_extensions.core.messages import Health, Keep, OfferState, TicketInfo, Wait
from hub_extensions.core.offers.offer_id import CPU
from hub_extensions.core.wording import about, gib, ordinal

NOT_KNOWN = "not known"


def memory(count: int | None) -> str:
    """Bytes as GiB."""
    return "memory not known" if count is None else gib(count)


def gives(offer: OfferState) -> str:
    """What an offer gives: memory, multiprocessors, and that a fraction's memory is no wall."""
    if offer.id == CPU:
        return "no GPU"
    parts = [memory(offer.memory_bytes) + ("" if offer.memory_enforced else ", shared")]
    if offer.sm_count is not None:
        parts.append(f"{offer.sm_count} of {offer.sm_total} SMs" if offer.sm_total else f"{offer.sm_count} SMs")
    return " · ".join(parts)


def mark(offer: OfferState) -> str:
    """A sign that is not a colour: ● free, ○ full, ? not known."""
    if offer.id == CPU:
        return "●"
    return "?" if offer.free is None else "●" if offer.free > 0 else "○"


def ahead(offer: OfferState, own: Sequence[TicketInfo]) -> int:
    """How many would get this offer before its reader: all in line, or those before one's own place in it."""
    places = [ticket.position for ticket in own if offer.id in ticket.offers and ticket.position > 0]
    return min(places) - 1 if places else offer.waiting


def free(offer: OfferState, ahead: int = 0) -> str:
    """How many are free of how many; those that are free while others wait are not free for the reader."""
    if offer.id == CPU:
        return "always"
    if offer.free is None or offer.total is None:
        return NOT_KNOWN
    theirs_first = offer.free > 0 and ahead > 0 and not offer.wait.now
    return f"{offer.free} of {offer.total} free" + (f", {ahead} ahead" if theirs_first else "")


def wait(wait: Wait) -> str:
    """The wait in words: an interval, an upper limit that is enforced, or that it is not known."""
    if wait.now:
        return "starts now"
    parts = []
    if wait.p10_seconds is not None and wait.p90_seconds is not None:
        parts.append(f"likely {about(wait.p10_seconds)} to {about(wait.p90_seconds)}")
    if wait.at_most_seconds is not None:
        parts.append(f"at most {about(wait.at_most_seconds)}")
    return ", ".join(parts) or "wait not known"


def keep(budget: Keep) -> str:
    """The words on the *keep* button."""
    return f"Keep {about(60 * budget.minutes)}"


def keep_left(budget: Keep) -> str:
    """How often *keep* can still be pressed."""
    return f"{budget.left} of {budget.of} left in 24\u00a0h"


def place(state: str, position: int) -> str:
    """Where a ticket is: its place in line, or what happens to it."""
    if state == "waiting":
        return f"{ordinal(position)} in line" if position > 0 else "in line"
    return {"admitted": "starting"}.get(state, state)


def lease_state(state: str) -> str:
    """A lease's state as an admin reads it."""
    return {
        "starting": "starting",
        "running": "running",
        "ending": "ending: waits for left-over processes",
        "lost": "lost: its device is gone",
        "none": "running",
    }.get(state, state)


def measured_by(source: str) -> str:
    """Who measured a use, where it was not this machine's driver."""
    return {"dcgm": ", measured by DCGM", "report": ", as its own server says"}.get(source, "")


def health_rows(health: Health) -> list[tuple[str, str]]:
    """The service's health, one line each."""
    age = health.inventory_age_seconds
    return [
        ("Ready", "yes" if health.ready else "no"),
        ("Store", health.store or NOT_KNOWN),
        ("Hub", health.hub or NOT_KNOWN),
        ("GPUs were read", NOT_KNOWN if age is None else f"{about(age)} ago"),
        *([] if health.prometheus is None else [("Prometheus", health.prometheus)]),
        ("Version", health.version or NOT_KNOWN),
    ]
