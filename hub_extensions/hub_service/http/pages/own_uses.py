"""The user's last uses of GPUs for the page "Your GPU": when, how long, how busy, and how each ended.

A use is one server's time with a GPU, or without one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from hub_extensions.core.messages import OfferState, UsageRecord
from hub_extensions.core.messages.offer_texts import default_title
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.text.reasons import Reason
from hub_extensions.core.text.translation import ENGLISH, Catalogue
from hub_extensions.core.text.wording import about
from hub_extensions.core.usage.right_size import advice_text

SHOWN = 10
LATELY = timedelta(hours=24)  # without a running server, the page shows for this long how the last one ended
STARTS_ANEW = frozenset({"idle", "unopened", "lifetime", "failed", "lost", "node-lost", "hub-stopped", "signed-out"})
"""Ends of a server that its user did not ask for."""


@dataclass(frozen=True, slots=True)
class OwnUse:
    """One row of the page: a use (one server's time with a GPU, or without one), as text in the reader's language.

    Attributes:
        began: when the server was ready; for a start that failed, when the GPU was given, or when the start ended.
        ended: when the use ended.
        server: name of the server; "" is the default server.
        offer: id of the offer with which it ran.
        title: title of that offer.
        length: how long the use lasted.
        busy: how busy the GPU was.
        end: how the use ended.
        unasked: whether the server ended although its user did not ask for that.
        never_ran: whether this is a start that failed.
        size: sentences about the size of its GPU; empty if there is nothing to say.
    """

    began: datetime
    ended: datetime
    server: str
    offer: OfferId
    title: str
    length: str
    busy: str
    end: str
    unasked: bool
    never_ran: bool
    size: tuple[Reason, ...] = ()


def own_uses(records: Iterable[UsageRecord], offers: Sequence[OfferState], t: Catalogue) -> tuple[OwnUse, ...]:
    """Return the rows of the page for a user's last usage records, at most ten.

    Args:
        records: the user's usage records (one server's time with a GPU each), the most recently ended first.
        offers: the offers that the user may see.
        t: translates into the reader's language.
    """
    titles = {offer.id: offer.plain_name for offer in offers}
    return tuple(replace(_own_use(each, titles, t), size=advice_text(each, offers)) for each in [*records][:SHOWN])


def ended_recently(uses: Sequence[OwnUse], now: datetime) -> OwnUse | None:
    """Return the row of the user's last server, if it ended within a day without its user asking for that.

    The page shows how that server ended, as long as the user has no other server and is not in line.

    Args:
        uses: the rows of the page, the most recently ended first.
        now: by the wall clock.

    Returns:
        `None` if the last server ended earlier or as its user asked, or if `uses` is empty.
    """
    last = next(iter(uses), None)
    return last if last is not None and last.unasked and now - last.ended < LATELY else None


def _own_use(record: UsageRecord, titles: Mapping[OfferId, str], t: Catalogue) -> OwnUse:
    seconds = record.held_seconds if record.ran_seconds is None else record.ran_seconds
    return OwnUse(
        began=record.ready or record.admitted or record.ended,
        ended=record.ended,
        server=record.server,
        offer=record.offer,
        title=t(titles.get(record.offer) or default_title(record.offer)),
        length=t("not known") if seconds is None else about(seconds, t),
        busy=busy_text(record, t),
        end=end_text(record, t),
        unasked=record.end in STARTS_ANEW,
        never_ran=_never_ran(record),
    )


def _never_ran(record: UsageRecord) -> bool:
    return record.end == "failed" and record.ready is None


def busy_text(record: UsageRecord, t: Catalogue = ENGLISH) -> str:
    """Return as text how busy the GPU of a usage record was, as far as that was measured."""
    if record.offer == CPU:
        return t("no GPU")
    if record.ready is None or record.mean_use_percent is None:
        return t("use not known")
    mean = f"{record.mean_use_percent:.0f}"
    if record.use_measured is not None and record.use_measured < 0.9:
        return t(
            "%1 % busy on average, in the %2 % of the time that was measured", mean, f"{100 * record.use_measured:.0f}"
        )
    return t("%1 % busy on average", mean)


def end_text(record: UsageRecord, t: Catalogue = ENGLISH) -> str:
    """Return as text how the server of a usage record ended."""
    if _never_ran(record):
        return t("the start failed")
    return {
        "user": t("stopped by hand"),
        "idle": t("stopped: its GPU was idle") if record.offer != CPU else t("stopped: nobody used it"),
        "unopened": t("stopped: nobody opened it"),
        "lifetime": t("stopped: its time was over"),
        "failed": t("the server broke down"),
        "left": t("given up before it was ready"),
        "lost": t("its GPU was gone"),
        "node-lost": t("its machine was gone"),
        "admin": t("ended by an admin"),
        "hub-stopped": t("ended while the hub or the GPU service was away"),
        "reclaimed": t("its GPU was taken back"),
        "signed-out": t("stopped: you were signed out"),
    }.get(record.end, t("not known how it ended"))
