"""Cards that a second scheduler shares out: what is left of each, in thousandths.

KAI-Scheduler v0.17: one reservation pod holds the card for the device plugin, those who share it carry its group and
their part. HAMi v2.10: a node's annotation lists its cards, a pod's annotation what it was given of them; the node's
count of ``nvidia.com/gpu`` says nothing. Not here: everything the device plugin counts (``nodes.py``).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import ceil

from hub_extensions.core.cluster.model import NodeFacts, PodFacts
from hub_extensions.core.gpu.devices import WHOLE

MIB = 2**20
KAI_RESERVATIONS = "kai-resource-reservation"
"""KAI's namespace of pods that hold a card for those who share it (KAI-Scheduler v0.17)."""


def kai_room(pods: Sequence[PodFacts], memory_bytes: int | None) -> Mapping[int, int]:
    """What is left of the cards of one node that are shared: thousandths left -> cards.

    A part that cannot be read takes the whole rest of its card. The pod that holds the card for its sharers carries
    their group too, and takes nothing of it.

    Args:
        memory_bytes: of a whole card, for parts asked for in MiB; None is not known.
    """
    left: dict[str, int] = {}
    for pod in pods:
        if pod.namespace == KAI_RESERVATIONS:
            continue
        for group in filter(None, pod.gpu_group.split(",")):
            left[group] = left.get(group, WHOLE) - _kai_part(pod, memory_bytes)
    return Counter(rest for rest in left.values() if rest > 0)


def kai_share(memory_mib: int, card_bytes: int) -> int:
    """Thousandths of a card that so much of its memory is, rounded up. KAI counts a card in full hundreds of MiB."""
    counted = card_bytes // MIB // 100 * 100
    return ceil(Decimal(memory_mib) * WHOLE / counted) if counted else WHOLE


def _kai_part(pod: PodFacts, memory_bytes: int | None) -> int:
    part = WHOLE
    try:
        if pod.fraction:
            part = ceil(Decimal(pod.fraction) * WHOLE)
        elif pod.memory_mib and memory_bytes:
            part = kai_share(int(pod.memory_mib), memory_bytes)
    except (ValueError, ArithmeticError):
        return WHOLE
    return part if part > 0 else WHOLE


@dataclass(frozen=True, slots=True)
class _Card:
    """A card under HAMi: memory in MiB, percents of its cores, and how many may use it."""

    memory: int
    cores: int
    places: int


@dataclass(slots=True)
class _Use:
    memory: int = 0
    cores: int = 0
    places: int = 0


def hami_cards(
    node: NodeFacts, pods: Sequence[PodFacts], ours: Collection[str]
) -> tuple[int, Mapping[int, int], int] | None:
    """(cards, thousandths of memory left -> cards, cards that others use) of one node; None: its list is unreadable.

    A card that is not healthy, or in another mode than ``hami-core``, does not count. One whose cores are all taken,
    or that is used by as many as it may be, has no room, however much memory it has left.

    Args:
        ours: uids of the pods that are servers of this hub.
    """
    cards = _hami_cards(node.hami)
    if cards is None:
        return None
    used: dict[str, _Use] = {}
    others: set[str] = set()
    for pod in pods:
        for uuid, mib, cores in _hami_parts(pod.hami):
            use = used.setdefault(uuid, _Use())
            use.memory, use.cores, use.places = use.memory + mib, use.cores + cores, use.places + 1
            if pod.uid not in ours:
                others.add(uuid)
    room = Counter(_hami_left(card, used.get(uuid, _Use())) for uuid, card in cards.items())
    room.pop(0, None)
    return len(cards), room, len(others & set(cards))


def _hami_left(card: _Card, use: _Use) -> int:
    if use.places >= card.places or (use.places and use.cores >= card.cores):
        return 0
    return max(0, (card.memory - use.memory) * WHOLE // card.memory)


def _hami_cards(text: str) -> dict[str, _Card] | None:
    try:
        cards = json.loads(text)
        return {
            str(card["id"]): _Card(int(card["devmem"]), int(card.get("devcore", 100)), int(card.get("count", 1)))
            for card in cards
            if card.get("health", True) and card.get("mode", "hami-core") in ("", "hami-core") and int(card["devmem"])
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _hami_parts(text: str) -> list[tuple[str, int, int]]:
    """(card, MiB, percents of its cores) of each part of ``UUID,NVIDIA,MiB,cores:;``.

    Devices of a container end in a colon, containers in a semicolon.
    """
    parts = []
    for device in text.replace(";", ":").split(":"):
        fields = device.split(",")
        if len(fields) >= 3 and fields[2].isdecimal():
            cores = int(fields[3]) if len(fields) > 3 and fields[3].isdecimal() else 0
            parts.append((fields[0], int(fields[2]), cores))
    return parts
