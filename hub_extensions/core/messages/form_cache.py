"""What of the forms that others were shown may be shown to somebody new, while the service does not answer. Pure.

An offer is for everybody or for some groups. So what members of some groups saw is there for whoever is in all of
these. Figures, notices and servers are left out: they are of another moment, or of another person.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from hub_extensions.core.messages import FormState, OfferState

Groups = frozenset[str]


def form_for(groups: Iterable[str], kept: Mapping[Groups, FormState]) -> FormState | None:
    """The offers for a member of these groups; None: nothing that was shown is known to be for them.

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
