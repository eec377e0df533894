"""Find smaller offers that are free now, to suggest them instead of a wait."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from hub_extensions.core.offers.model import GpuOffer, OfferKind, Sized, named_size, size_of
from hub_extensions.core.offers.offer_id import CPU
from hub_extensions.core.queue.model import Availability

Offer = TypeVar("Offer", bound=Sized)


def smaller_free(wanted: GpuOffer, availabilities: Iterable[Availability]) -> tuple[GpuOffer, ...]:
    """Return the offers with a GPU that are smaller than `wanted` and would start now, the largest first.

    An offer is smaller if it has less memory, or as much memory and fewer SMs (streaming multiprocessors). Of the same
    pool, the smaller share is smaller. If a size is not known, the names of the MIG profiles are compared. An offer
    that cannot be compared is left out.

    Args:
        wanted: the offer that the user wants.
        availabilities: the offers that the user may choose.
    """
    return smaller(wanted, (item.offer for item in availabilities if item.free and item.wait.now))


def smaller(wanted: Sized, offers: Iterable[Offer]) -> tuple[Offer, ...]:
    """Return those of the offers that have a GPU and are smaller than `wanted`, the largest first.

    `smaller_free` describes when an offer is smaller. Whether an offer is free makes no difference here.
    """
    found = [offer for offer in offers if offer.id != CPU and _is_smaller(offer, wanted)]
    return tuple(sorted(found, key=size_of, reverse=True))


def _is_smaller(offer: Sized, wanted: Sized) -> bool:
    if offer.id.pool == wanted.id.pool and not (offer.id.gib or wanted.id.gib):
        return offer.id.share < wanted.id.share
    if offer.memory_bytes is not None and wanted.memory_bytes is not None:
        if offer.memory_bytes != wanted.memory_bytes:
            return offer.memory_bytes < wanted.memory_bytes
        return offer.sm_count is not None and wanted.sm_count is not None and offer.sm_count < wanted.sm_count
    if offer.kind == OfferKind.MIG and wanted.kind == OfferKind.MIG:
        ours, theirs = named_size(offer.id), named_size(wanted.id)
        return ours != theirs and ours[0] <= theirs[0] and ours[1] <= theirs[1]
    return False
