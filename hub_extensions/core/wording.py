"""Lengths of time, memory, places and offers as people say them: once, for every page, reason and log. Pure."""

from __future__ import annotations

from datetime import timedelta

from hub_extensions.core.gpu.mig import MigProfile
from hub_extensions.core.messages import OfferState
from hub_extensions.core.offers.offer_id import CPU, GPU, GPU_SHARED, OfferId

GIB = 1024**3


def duration(length: timedelta) -> str:
    """A length that is set, to the second: ``45 s``, ``1 min 30 s``, ``30 min``, ``2 h 10 min``, ``12 h``."""
    seconds = max(0, int(length.total_seconds()))
    hours, minutes, seconds = seconds // 3600, seconds // 60 % 60, seconds % 60
    parts = [f"{hours} h"] if hours else []
    if minutes:
        parts.append(f"{minutes} min")
    if not parts or (seconds and not hours):
        parts.append(f"{seconds} s")
    return " ".join(parts)


def about(seconds: float) -> str:
    """A length that is estimated, rounded: ``40 s``, ``25 min``, ``2 h 10 min``, ``3 d 4 h``."""
    if round(seconds) < 60:
        return f"{max(0, round(seconds))} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {rest} min" if rest else f"{hours} h"
    days, rest = divmod(hours, 24)
    return f"{days} d {rest} h" if rest else f"{days} d"


def ordinal(number: int) -> str:
    """1 -> ``1st``, 12 -> ``12th``, 111 -> ``111th``."""
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


def gib(count: int) -> str:
    """Bytes as GiB, at most two places: ``4.75 GiB``."""
    return f"{count / GIB:.2f}".rstrip("0").rstrip(".") + " GiB"


def offer_words(offer: OfferId) -> str:
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


def free_words(offer: OfferState, ahead: int) -> tuple[str, str]:
    """The sign and the words for how many are free: ``("●", "2 of 5 free")``. The sign never stands alone.

    Args:
        ahead: how many would get it before its reader. What is free is theirs first: ``2 of 5 free, 1 ahead``.
    """
    if offer.id == CPU:
        return "●", "always"
    if offer.free is None:
        return "?", "not known"
    words = f"{offer.free} free" if offer.total is None else f"{offer.free} of {offer.total} free"
    if not offer.free:
        return "○", words
    return "●", words + (f", {ahead} ahead" if ahead and not offer.wait.now else "")
