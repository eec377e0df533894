"""Offers as people say them: what one is called, what it gives, and how many are free. Pure."""

from __future__ import annotations

from hub_extensions.core.gpu.mig import MigProfile
from hub_extensions.core.messages import OfferState
from hub_extensions.core.offers.offer_id import CPU, GPU, GPU_SHARED, OfferId
from hub_extensions.core.wording import gib


def default_title(offer: OfferId) -> str:
    """An offer's name made from its id, for where its title is not known."""
    if offer == CPU:
        return "CPU only"
    if offer.base == GPU_SHARED:
        return "a shared GPU"
    whole = offer.base == GPU
    name = "a whole GPU" if whole else f"MIG {MigProfile.parse(offer.base).name}"
    if offer.is_device:
        return name
    part = f"{offer.gib} GiB" if offer.gib else f"{offer.share / 10:g} %"
    return f"{part} of {'a GPU' if whole else name}"


def gives(offer: OfferState) -> str:
    """What one offer really gives: ``4.75 GiB · 14 of 98 SMs``; unknown parts are left out."""
    if offer.id == CPU:
        return "no GPU"
    parts = []
    if offer.memory_bytes is not None:
        size = gib(offer.memory_bytes)
        parts.append(size if offer.memory_enforced else f"about {size}, shared")
    if offer.sm_count is not None:
        parts.append(f"{offer.sm_count} of {offer.sm_total} SMs" if offer.sm_total else f"{offer.sm_count} SMs")
    return " · ".join(parts) or "size not known"


def free_text(offer: OfferState, ahead: int) -> tuple[str, str]:
    """The sign and the text for how many are free: ``("●", "2 of 5 free")``. The sign never stands alone.

    Args:
        ahead: how many would get it before its reader. What is free is theirs first: ``2 of 5 free, 1 ahead``.
    """
    if offer.id == CPU:
        return "●", "always"
    if offer.free is None:
        return "?", "not known"
    text = f"{offer.free} free" if offer.total is None else f"{offer.free} of {offer.total} free"
    if not offer.free:
        return "○", text
    return "●", text + (f", {ahead} ahead" if ahead and not offer.wait.now else "")
