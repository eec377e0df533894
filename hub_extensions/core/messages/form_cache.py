"""Choose which cached offers the spawn form shows while the service does not answer.

The hub keeps the last form for each set of groups that its users have. An offer is for everybody or for certain groups
of users. So a form that was made for some groups may be shown to every user who is in all of these groups. Data of one
user, such as notices and servers, are removed from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from hub_extensions.core.messages import FormState, OfferState

Groups = frozenset[str]


def form_for(groups: Iterable[str], kept: Mapping[Groups, FormState]) -> FormState | None:
    """Return the cached form for a user with these groups, or `None` if no cached form may be shown to the user.

    Args:
        groups: the user's groups.
        kept: set of groups -> the last form that was made for users with these groups, the most recent form last.
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
