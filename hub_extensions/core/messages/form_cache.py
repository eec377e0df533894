"""Chooses which cached offers to show in the form while the service does not answer.

An offer is for everybody or for certain groups. Whatever members of some groups were shown is therefore valid for
every member of all of these groups. Figures, notices and servers are dropped, because they belong to another time or
another user.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from hub_extensions.core.messages import FormState, OfferState

Groups = frozenset[str]


def form_for(groups: Iterable[str], kept: Mapping[Groups, FormState]) -> FormState | None:
    """Return the form for a member of these groups, or `None` if no cached form is valid for them.

    Args:
        kept: the last form of each set of groups, in the order in which they were shown.
    """
    mine = frozenset(groups)
    seen = [kept[theirs] for theirs in kept if theirs <= mine]
    if not seen:
        return None
    latest = seen[-1]
    offers: dict[str, OfferState] = {}
    for form in (kept.get(mine), *reversed(seen)):
        for offer in form.offers if form is not None else ():
            offers.setdefault(offer.id, offer)
    return replace(
        latest,
        offers=tuple(offers.values()),
        gpu_servers=(),
        notices=(),
        last_offers=(),
        in_line=(),
        peak_memory_bytes=None,
        failed=(),
    )
