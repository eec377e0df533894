"""Offers that are held back because the cluster refused a pod: the quota of the hub's namespace is used up.

Nobody can see from here how much of a quota is left, so it is tried: by one start each minute, and by one as soon as a
server ends. Until one is taken, nobody else is let in to that offer. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.queue.model import Ticket, TicketState
from hub_extensions.core.text.reasons import Reason, explain

QUOTA = "quota"
"""The cause of such a failed start (``spawner/pods/api_rejections.py``)."""
TRY_AGAIN = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class QuotaHold:
    """One offer that is held back.

    Attributes:
        why: what is used up, in the hub's words. since: of the first refusal in a row, at: of the last.
        freed: a server has ended since.
    """

    why: Reason
    since: datetime
    at: datetime
    freed: bool = False


Holds = Mapping[OfferId, QuotaHold]


def refused(holds: Holds, offer: OfferId, cause: str, reasons: Iterable[Reason], now: datetime) -> Holds:
    """After a start of this offer that failed. CPU only is nobody's line."""
    if cause != QUOTA or offer == CPU:
        return holds
    said = next((reason for reason in reasons if reason.reason == "quota-used-up-of"), None)
    named = {name: str(value) for name, value in said.params.items()} if said is not None else {}
    why = explain("over-quota-of", **named) if named else explain("over-quota")
    before = holds.get(offer)
    return {**holds, offer: QuotaHold(why, now if before is None else before.since, now)}


def server_ended(holds: Holds) -> Holds:
    """There may be room again."""
    return {offer: replace(hold, freed=True) for offer, hold in holds.items()}


def accepted(holds: Holds, offer: OfferId, admitted: datetime) -> Holds:
    """The cluster took a pod of this offer whose start was admitted then: after the last refusal it lifts the hold."""
    hold = holds.get(offer)
    if hold is None or admitted < hold.at:
        return holds
    return {each: held for each, held in holds.items() if each != offer}


def to_try(holds: Holds, tickets: Iterable[Ticket], now: datetime) -> frozenset[OfferId]:
    """Of the offers that are held back those of which one start may try now; none does while one is on its way."""
    due = {offer for offer, hold in holds.items() if hold.freed or now - hold.at >= TRY_AGAIN}
    if not due:
        return frozenset()
    return frozenset(due - {each.admitted_offer for each in tickets if each.state is TicketState.ADMITTED})
