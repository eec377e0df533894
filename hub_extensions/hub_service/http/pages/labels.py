"""Figures as the pages say them: keeps, what a lease does, and what admins read.

Unknown is "not known", never zero. What users read is in their language; what only admins read is English. Not here:
offers, waits and places in line (``core/offer_texts.py``), and reasons, which come with the answers themselves.
"""

from __future__ import annotations

from hub_extensions.core.culling.sources import WHO
from hub_extensions.core.messages import ForecastRecord, Health, Keep, OfferEvidence
from hub_extensions.core.queue.outlook import FEWEST_JUDGED
from hub_extensions.core.translation import ENGLISH, Catalogue
from hub_extensions.core.wording import about

NOT_KNOWN = "not known"


def keep(budget: Keep, t: Catalogue = ENGLISH) -> str:
    """The words on the *keep* button."""
    return t("Keep %1", about(60 * budget.minutes, t))


def keep_left(budget: Keep, t: Catalogue = ENGLISH) -> str:
    """How often *keep* can still be pressed."""
    if budget.of_server:
        return t("Keep: %1 of %2 left", budget.left, budget.of)
    return t("Keep: %1 of %2 left in 24\u00a0h", budget.left, budget.of)


def lease_state(state: str, t: Catalogue = ENGLISH) -> str:
    """A lease's state as people read it."""
    return {
        "starting": t("starting"),
        "running": t("running"),
        "ending": t("ending: waits for left-over processes"),
        "lost": t("lost: its device is gone"),
        "none": t("running"),
    }.get(state, state)


def share(value: float | None) -> str:
    """A share as an admin reads it: ``91 %``."""
    return NOT_KNOWN if value is None else f"{100 * value:.0f} %"


def length(seconds: float | None) -> str:
    """A length as an admin reads it."""
    return NOT_KNOWN if seconds is None else about(seconds)


def judged(record: ForecastRecord) -> str:
    """Whether a pool's forecast is told as it is."""
    if record.matured < FEWEST_JUDGED:
        return f"few yet: {record.matured} of {FEWEST_JUDGED}"
    return "told as rough" if record.rough else "told as it is"


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
        *([] if health.policy_file is None else [("Policy file of culling", health.policy_file)]),
        *([("Stops that have failed", f"{health.stops_failed}, listed above")] if health.stops_failed else []),
        ("Port", health.port or NOT_KNOWN),
        ("Version", health.version or NOT_KNOWN),
    ]
