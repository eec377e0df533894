"""The id of an offer (a line of the spawn form): how it is written and parsed.

The REST API, links, messages and the database use its text, such as ``mig-1g.5gb``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.gpu.mig import MigProfile, MigProfileError
from hub_extensions.core.text.reasons import explain

GPU = "gpu"
"""The pool of whole GPUs, and the offer of one whole GPU."""

GPU_SHARED = "gpu.shared"
"""The pool of GPUs that a cluster's device plugin shares between pods (time-slicing, MPS)."""

_CPU = "cpu"
_SHARED = re.compile(r"(?P<pool>.+)-(?P<share>[0-9]+(?:\.[0-9]*)?)")
_MEMORY = re.compile(r"(?P<pool>.+)-(?P<gib>[1-9][0-9]{0,3})gib")
_ONE_OF_SEVERAL = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,61}[a-z0-9])?")


class OfferIdError(ValueError):
    """A text that is not an offer's id.

    Attributes:
        reason: what the correct form would be, as a code with its English text.
    """

    def __init__(self, code: str, text: str, right: str = "") -> None:
        self.reason = explain(code, text=repr(text[:60]), **({"right": right} if right else {}))
        super().__init__(self.reason.message.removesuffix("."))


class OfferId(str):
    """An offer's id: a text, and the pool and share that it stands for.

    ``OfferId(text)`` is the only place where an id is parsed. An `OfferId` can be used wherever a text is expected.

    Attributes:
        pool: name of the pool (all devices of one kind) that serves the offer; empty for CPU only. On a cluster with
            several kinds of cards, the text after ``@`` names the card: ``gpu@a100-sxm4-40gb``.
        base: the pool without ``@`` and the card.
        share: thousandths of a device. 0 for CPU only, and for a part by memory, whose share depends on the card.
        gib: GiB of a device's memory for a part by memory, otherwise 0.
    """

    __slots__ = ("base", "gib", "pool", "share")
    pool: str
    base: str
    share: int
    gib: int

    def __new__(cls, text: str) -> OfferId:
        """Parse ``cpu``, ``gpu-0.5``, ``gpu-8gib``, ``mig-1g.10gb.me``, ``mig-3g.20gb-0.5``, ``gpu-0.5@tesla-t4``.

        Raises:
            OfferIdError: the text matches none of these forms, or spells an id in another way, such as ``gpu-0.50``.
        """
        return text if isinstance(text, OfferId) else _read(text)

    def part(self, share: int, gib: int = 0) -> OfferId:
        """Return the id of a part of this device.

        Args:
            share: thousandths of the device; 1000 (the whole device) returns this id unchanged.
            gib: size of a part by memory, in GiB. The id then has this size instead of the share. 0 for a part by
                share.
        """
        if share == WHOLE:
            return self
        size = f"{gib}gib" if gib else share_text(share)
        return OfferId(f"{self.base}-{size}{self[len(self.base) :]}")

    @property
    def is_device(self) -> bool:
        """Whether the offer is a whole device, so that its id is also the name of its pool."""
        return self.share == WHOLE

    @property
    def kind(self) -> OfferId:
        """The offer's id without ``@`` and the card's name, so that offers with different cards have the same kind."""
        return OfferId(self.removesuffix(self.pool[len(self.base) :]))

    @property
    def mig(self) -> MigProfile | None:
        """The MIG profile of the offer's devices; None without MIG. Parts of a MIG device have the device's profile."""
        device = self.base.removesuffix(".shared")
        return None if device in ("", GPU) else MigProfile.parse(device)

    def __reduce__(self) -> tuple[type[OfferId], tuple[str]]:
        return OfferId, (str(self),)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: Callable[[type], Any]) -> dict[str, Any]:
        """Return pydantic's schema: a text that is parsed as an id."""
        return {"type": "function-after", "function": {"type": "no-info", "function": cls}, "schema": handler(str)}


@lru_cache(maxsize=4096)
def _read(text: str) -> OfferId:
    """Parse an id.

    Equal texts give the same object. So an id is found in a mapping as fast as a plain text.
    """
    if text == _CPU:
        return _make(text, "", "", 0)
    front, at, which = text.partition("@")
    if at and not _ONE_OF_SEVERAL.fullmatch(which):
        raise OfferIdError("id-after-at", text)
    memory = _MEMORY.fullmatch(front)
    if memory is not None:
        if memory["pool"] != GPU:
            raise OfferIdError("id-by-memory", text, f"gpu-{memory['gib']}gib")
        return _make(text, GPU + at + which, GPU, 0, int(memory["gib"]))
    shared = _SHARED.fullmatch(front)
    if shared is None:
        return _make(text, text, _pool(front), WHOLE)
    base = _pool(shared["pool"])
    share = round(float(shared["share"]) * WHOLE) if len(shared["share"]) <= 12 else WHOLE + 1
    if not 0 < share <= WHOLE:
        raise OfferIdError("id-share", text)
    right = base + at + which if share == WHOLE else f"{base}-{share_text(share)}{at}{which}"
    if right != text:
        raise OfferIdError("id-written-so", text, right)
    return _make(text, base + at + which, base, share)


def _make(text: str, pool: str, base: str, share: int, gib: int = 0) -> OfferId:
    found = str.__new__(OfferId, text)
    found.pool, found.base, found.share, found.gib = pool, base, share, gib
    return found


def _pool(text: str) -> str:
    if text in (GPU, GPU_SHARED):
        return text
    try:
        pool = MigProfile.parse(text).resource
    except MigProfileError:
        raise OfferIdError("id-of-nothing", text) from None
    if pool != text:
        raise OfferIdError("id-written-so", text, pool)
    return pool


def share_text(share: int) -> str:
    """Return thousandths as a decimal: 500 -> ``0.5``."""
    return f"{share / WHOLE:.3f}".rstrip("0").rstrip(".")


CPU = OfferId(_CPU)
"""The offer without a GPU."""
