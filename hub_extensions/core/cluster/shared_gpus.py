"""Count the free parts of cards that KAI-Scheduler or HAMi share between pods, in thousandths.

With KAI-Scheduler v0.17, a reservation pod holds the card from the device plugin. The pods that share the card have
labels and annotations with its group and their part. With HAMi v2.10, annotations list the cards of a node and the
parts that a pod was given; the node's count of ``nvidia.com/gpu`` is not meaningful.
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
"""Namespace of KAI's reservation pods (KAI-Scheduler v0.17)."""


def kai_room(pods: Sequence[PodFacts], memory_bytes: int | None) -> Mapping[int, int]:
    """Return free thousandths -> number of the node's cards that KAI-Scheduler shares between pods.

    If the part that a pod has cannot be parsed, its card counts as full. The reservation pod of a card does not use any
    part of it.

    Args:
        pods: the pods on the node.
        memory_bytes: memory of a whole card, to convert parts in MiB; None if not known.
    """
    left: dict[str, int] = {}
    for pod in pods:
        if pod.namespace == KAI_RESERVATIONS:
            continue
        for group in filter(None, pod.gpu_group.split(",")):
            left[group] = left.get(group, WHOLE) - _kai_part(pod, memory_bytes)
    return Counter(rest for rest in left.values() if rest > 0)


def kai_share(memory_mib: int, card_bytes: int) -> int:
    """Return an amount of memory as a share of a card, in thousandths, rounded up.

    The card's memory is first rounded down to hundreds of MiB, as KAI-Scheduler does.

    Args:
        memory_mib: the amount in MiB.
        card_bytes: memory of the card in bytes.
    """
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
    """A card under HAMi.

    Attributes:
        memory: memory in MiB.
        cores: percent of its cores that pods can be given.
        places: maximum number of pods.
    """

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
    """Count the cards of a node under HAMi.

    A card that is not healthy, or has another mode than ``hami-core``, does not count. A card whose cores are all used,
    or that has its maximum number of pods, is full even if it has memory left.

    Args:
        pods: the pods on the node.
        ours: uids of the pods that are servers of this hub.

    Returns:
        Number of cards, free thousandths of memory -> number of cards, and number of cards used by pods that this hub
        did not start. None if the node's list of cards cannot be parsed.
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
    """Return (UUID of the card, MiB, percent of its cores) of each part in an annotation ``UUID,NVIDIA,MiB,cores:;``.

    Devices of a container end with a colon, containers with a semicolon.
    """
    parts = []
    for device in text.replace(";", ":").split(":"):
        fields = device.split(",")
        if len(fields) >= 3 and fields[2].isdecimal():
            cores = int(fields[3]) if len(fields) > 3 and fields[3].isdecimal() else 0
            parts.append((fields[0], int(fields[2]), cores))
    return parts
