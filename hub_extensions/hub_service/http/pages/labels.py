"""Texts on the pages: the button *Keep*, states of leases (servers' rights to GPUs), and values for administrators.

Unknown values are "not known", never zero.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime

from hub_extensions.core.culling.sources import WHO
from hub_extensions.core.forecast.episodes import FEWEST_EPISODES
from hub_extensions.core.forecast.results import FEW
from hub_extensions.core.messages import ForecastRecord, Health, Keep, OfferEvidence
from hub_extensions.core.text.translation import ENGLISH, Catalogue
from hub_extensions.core.text.wording import about

MOMENT = re.compile(r"\b(\d{4}-\d\d-\d\d)(?:T| (?=[\d:]+ UTC))(\d\d:\d\d)(:\d\d)?(?:\.\d+)?(?:\+00:00|Z| UTC)")
"""A time in a sentence of the journal, as programs write it."""


def with_moments(text: str) -> list[str | datetime]:
    """Split a sentence of the journal (the service's log of decisions) into texts and times.

    The page shows the times in the reader's time zone.
    """
    pieces: list[str | datetime] = []
    behind = 0
    for found in MOMENT.finditer(text):
        try:
            at = datetime.fromisoformat(f"{found[1]}T{found[2]}{found[3] or ':00'}+00:00")
        except ValueError:  # no such day or hour
            continue
        pieces += [text[behind : found.start()], at]
        behind = found.end()
    return [*pieces, text[behind:]]


STATES: Mapping[str, str] = {
    "store": "ok",
    "hub": "answers",
    "port": "the service's own",
    "prometheus": "not asked: no leased GPU needs it",
    "stop": "The hub is still stopping it.",
    "cluster": "The cluster has not been read yet.",
}
"""The states of the service's parts while nothing is wrong."""


def is_raw(text: str, t: Catalogue = ENGLISH) -> bool:
    """Return whether a text is not in the page's language, because it is a name or comes from another program.

    The page then marks it as English (``lang="en"``). Always False on an English page.
    """
    ours = (t("yes"), t("no"), t("not known"))
    return t is not ENGLISH and t.known(text) is None and text not in ours


def keep(budget: Keep, t: Catalogue = ENGLISH) -> str:
    """Return the label of the button *Keep*, which protects a server from the next stop for a while.

    Args:
        budget: what the button would add now; the label has its number of minutes.
        t: translates into the reader's language.
    """
    return t("Keep %1", about(60 * budget.minutes, t))


def keep_left(budget: Keep, t: Catalogue = ENGLISH) -> str:
    """Return as text how often the user may still press *Keep*, which protects a server from the next stop.

    Args:
        budget: how often the user may press *Keep*, and how often is left.
        t: translates into the reader's language.
    """
    if budget.of_server:
        return t("Keep: %1 of %2 left", budget.left, budget.of)
    return t("Keep: %1 of %2 left in 24\u00a0h", budget.left, budget.of)


def lease_state(state: str, t: Catalogue = ENGLISH) -> str:
    """Return the state of a lease (a server's right to its GPU) as text. An unknown state is returned unchanged."""
    return {
        "starting": t("starting"),
        "running": t("running"),
        "ending": t("ending: waits for left-over processes"),
        "lost": t("lost: its device is gone"),
        "none": t("running"),
    }.get(state, state)


def count(value: int | None, t: Catalogue = ENGLISH) -> str:
    """Return a number as text. `None` is shown as "not known"; 0 is a known value."""
    return t("not known") if value is None else str(value)


def share(value: float | None, t: Catalogue = ENGLISH) -> str:
    """Return a share between 0 and 1 as percent, such as ``91 %``. `None` is shown as "not known"."""
    return t("not known") if value is None else t("%1 %", f"{100 * value:.0f}")


def length(seconds: float | None, t: Catalogue = ENGLISH) -> str:
    """Return a duration as text. `None` is shown as "not known"."""
    return t("not known") if seconds is None else about(seconds, t)


def judged(record: ForecastRecord, t: Catalogue = ENGLISH) -> str:
    """Return as text how users see the wait forecasts of a pool (devices of one kind): as they are, or marked as rough.

    If they are marked as rough, or if there is not enough data for a forecast, the text has the reason.

    Args:
        record: how accurate the pool's latest forecasts were.
        t: translates into the reader's language.
    """
    if record.finished_uses < FEW:
        return t("not enough data yet: %1 of %2 finished uses", record.finished_uses, FEW)
    if record.busy_periods < FEWEST_EPISODES:
        return t("marked as rough: %1 of %2 busy times", record.busy_periods, FEWEST_EPISODES)
    if record.worse_than_baseline:
        return t("marked as rough: the median of earlier waits was closer")
    return t("marked as rough: P90 covers too few or too many") if record.rough else t("shown as it is")


def measurer(source: str, t: Catalogue = ENGLISH) -> str:
    """Return as text what measures how busy an offer's GPUs are.

    Args:
        source: code of the source, such as ``nvml`` or ``dcgm``.
        t: translates into the reader's language.
    """
    return t(WHO.get(source, source))


def measured(each: OfferEvidence, t: Catalogue = ENGLISH) -> str:
    """Return as text for how many servers with an offer it is known how busy their GPUs are.

    The text also has the age of these figures, if that is known.

    Args:
        each: what measures the GPUs of the offer, and for how many servers.
        t: translates into the reader's language.
    """
    if not each.leases:
        return t("no server has one")
    known = t("%1 of %2 servers", each.measured, each.leases)
    return known if each.age_seconds is None else t("%1, figures at most %2 old", known, about(each.age_seconds, t))


def health_rows(health: Health, t: Catalogue = ENGLISH) -> list[tuple[str, str]]:
    """Return the service's health as (name, value) rows, without what other parts of the administrators' pages show."""
    unknown = t("not known")
    return [
        (t("Ready"), t("yes") if health.ready else t("no")),
        (t("Store"), health.store or unknown),
        (t("Hub"), health.hub or unknown),
        *([] if health.prometheus is None else [("Prometheus", health.prometheus)]),
        *((t("Notices by %1", channel), last) for channel, last in (health.notices or {}).items()),
        *([(t("The policy file of culling"), health.policy_file or "")] if health.policy_file_valid else []),
        (t("Port"), health.port or unknown),
        (t("Version"), health.version or unknown),
    ]
