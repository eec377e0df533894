"""Offers that are held back because the cluster refused a pod: the resource quota of the hub's namespace is used up.

The hub cannot read how much of a quota is left. So one start tries again every minute, and whenever a server has ended.
Until the cluster accepts a pod, no other ticket is admitted to that offer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.queue.model import Ticket, TicketState
from hub_extensions.core.text.reasons import Reason, explain

QUOTA = "quota"
"""Cause of a failed start whose pod was refused because of a quota (``spawner/pods/api_rejections.py``)."""
TRY_AGAIN = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class QuotaHold:
    """Why and since when an offer is held back: the cluster refused a pod because a Kubernetes quota is used up.

    Attributes:
        why: which quota is used up.
        since: time of the first refusal since the cluster last accepted a pod of the offer.
        at: time of the last refusal.
        freed: whether a server has ended since the last refusal, so that the quota may have room again.
    """

    why: Reason
    since: datetime
    at: datetime
    freed: bool = False


Holds = Mapping[OfferId, QuotaHold]


def refused(holds: Holds, offer: OfferId, cause: str, reasons: Iterable[Reason], now: datetime) -> Holds:
    """Return the holds (offers held back) after a start of this offer has failed.

    The offer is held back if the cause of the failure is a quota. CPU only is never held back.

    Args:
        cause: cause of the failed start.
        reasons: its reasons, one of which may name the quota.
    """
    if cause != QUOTA or offer == CPU:
        return holds
    quota_reason = next((reason for reason in reasons if reason.reason == "quota-used-up-of"), None)
    named = {name: str(value) for name, value in quota_reason.params.items()} if quota_reason is not None else {}
    why = explain("over-quota-of", **named) if named else explain("over-quota")
    before = holds.get(offer)
    return {**holds, offer: QuotaHold(why, now if before is None else before.since, now)}


def server_ended(holds: Holds) -> Holds:
    """Return the holds (offers held back) after any server has ended.

    The quota may have room again. So for each offer that is held back, one start may now be tried.
    """
    return {offer: replace(hold, freed=True) for offer, hold in holds.items()}


def accepted(holds: Holds, offer: OfferId, admitted: datetime) -> Holds:
    """Return the holds (offers held back) after the cluster has accepted a pod of this offer.

    The offer's hold is lifted if that pod was admitted after the last refusal.

    Args:
        admitted: when the pod's ticket was admitted.
    """
    hold = holds.get(offer)
    if hold is None or admitted < hold.at:
        return holds
    return {each: held for each, held in holds.items() if each != offer}


def to_try(holds: Holds, tickets: Iterable[Ticket], now: datetime) -> frozenset[OfferId]:
    """Return the held-back offers for which one ticket may be admitted now, to try whether the quota has room again.

    That is so if a server has ended since the last refusal, or if the last refusal was at least `TRY_AGAIN` ago. An
    offer of which a start is under way is not returned.

    Args:
        holds: the offers that are held back.
        tickets: all tickets that have not ended.
    """
    due = {offer for offer, hold in holds.items() if hold.freed or now - hold.at >= TRY_AGAIN}
    if not due:
        return frozenset()
    return frozenset(due - {each.admitted_offer for each in tickets if each.state is TicketState.ADMITTED})
