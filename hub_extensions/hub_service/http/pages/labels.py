"""Figures as the pages say them: how long the wait is, places in line, what a lease does.

Unknown is "not known", never zero. Not here: what an offer gives and what is free (``core/wording.py``), and reasons,
which come with the answers themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

from hub_extensions.core.culling.sources import WHO
from hub_extensions.core.messages import Health, Keep, OfferEvidence, OfferState, TicketInfo, Wait
from hub_extensions.core.wording import about, ordinal

NOT_KNOWN = "not known"


def ahead(offer: OfferState, own: Sequence[TicketInfo]) -> int:
    """How many would get this offer before its reader: all in line, or those before one's own place in it."""
    places = [ticket.position for ticket in own if offer.id in ticket.offers and ticket.position > 0]
    return min(places) - 1 if places else offer.waiting


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


def evidence_row(each: OfferEvidence) -> tuple[str, str]:
    """Who measures an offer's GPUs, for how many servers, and how old the figures are."""
    servers = f"{each.measured} of {each.leases} servers" if each.leases else "no server has one"
    old = "" if each.age_seconds is None else f", figures at most {about(each.age_seconds)} old"
    return WHO.get(each.source, each.source), f"{servers}{old}"


def health_rows(health: Health) -> list[tuple[str, str]]:
    """The service's health, one line each."""
    age = health.inventory_age_seconds
    return [
        ("Ready", "yes" if health.ready else "no"),
        ("Store", health.store or NOT_KNOWN),
        ("Hub", health.hub or NOT_KNOWN),
        ("GPUs were read", NOT_KNOWN if age is None else f"{about(age)} ago"),
        *([] if health.prometheus is None else [("Prometheus", health.prometheus)]),
        *((f"Notices by {channel}", last) for channel, last in (health.notices or {}).items()),
        ("Port", health.port or NOT_KNOWN),
        ("Version", health.version or NOT_KNOWN),
    ]
