"""Capacity of a pool in which each server may use some nodes only.

The scheduler places pods in any order on any allowed node. One more start is therefore sure of a device only if the
tickets ahead cannot fill all of its nodes, and it does not take a device that one of them needs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from hub_extensions.core.cluster.dra import NO_NODE
from hub_extensions.core.cluster.pools import NodeRoom


@dataclass(frozen=True, slots=True)
class NodeWish:
    """A share (thousandths) of one device, on one of these nodes."""

    nodes: frozenset[str]
    share: int


class NodeRooms:
    """The free devices of one pool, node by node."""

    def __init__(self, rooms: Mapping[str, NodeRoom]) -> None:
        self.rooms = rooms
        self._slots: dict[int, dict[str, int]] = {}

    def free(self, wish: NodeWish, ahead: Mapping[NodeWish, int]) -> int:
        """Return how many servers with this wish are sure of a device, wherever the scheduler places the wishes
        ahead.
        """
        slots = self._slots_of(wish.share)
        mine = {node: slots[node] for node in wish.nodes if slots.get(node)}
        wanted = Counter[frozenset[str]]()
        for other, count in ahead.items():
            # the number of slots that a share of another size costs at most
            wanted[self._open_to(other).intersection(mine)] += count * -(-other.share // wish.share)
        return sum(mine.values()) - most_placed(wanted, mine)

    def fits(self, wish: NodeWish, ahead: Mapping[NodeWish, int]) -> bool:
        """Whether the wish is sure of a device, and takes none that a wish ahead needs."""
        if self.free(wish, ahead) < 1:
            return False
        return not any(other != wish and self._hinders(wish, other, ahead) for other in ahead)

    def _hinders(self, wish: NodeWish, other: NodeWish, ahead: Mapping[NodeWish, int]) -> bool:
        if not self._open_to(other) & self._open_to(wish):
            return False
        rest = Counter(ahead)
        rest[other] -= 1
        rest[wish] += 1
        return self.free(other, +rest) < 1

    def _open_to(self, wish: NodeWish) -> frozenset[str]:
        """Return the nodes of the wish that have room for it."""
        slots = self._slots_of(wish.share)
        return frozenset(node for node in wish.nodes if slots.get(node))

    def _slots_of(self, share: int) -> dict[str, int]:
        """Return node -> number of this share that fit; nodes without room are left out."""
        if share not in self._slots:
            counted = (
                (node, sum(room // share * count for room, count in each.room.items()))
                for node, each in self.rooms.items()
            )
            self._slots[share] = {node: count for node, count in counted if count > 0}
        return self._slots[share]


def most_placed(wanted: Mapping[frozenset[str], int], slots: Mapping[str, int]) -> int:
    """Return how many can be placed at most, as a maximum flow by augmenting paths.

    Args:
        wanted: set of nodes -> number of wishes for one of them.
        slots: node -> number of free slots. Nodes that belong to the same sets are treated as one.
    """
    wishes = [(nodes, count) for nodes, count in wanted.items() if nodes and count > 0]
    if len(wishes) < 2:
        return sum(min(count, sum(slots[node] for node in nodes)) for nodes, count in wishes)
    alike: Counter[tuple[int, ...]] = Counter()
    for node, count in slots.items():
        alike[tuple(number for number, (nodes, _) in enumerate(wishes) if node in nodes)] += count
    flow = _Flow([count for _, count in wishes], alike)
    return sum(flow.place(number) for number in range(len(wishes)))


class _Flow:
    """Wishes that are placed in groups of nodes. A group is the set of numbers of the wishes that may use its nodes."""

    def __init__(self, counts: list[int], room: Mapping[tuple[int, ...], int]) -> None:
        self._counts = counts
        self._left = dict(room)
        self._placed: dict[tuple[int, ...], Counter[int]] = {group: Counter() for group in room}

    def place(self, number: int) -> int:
        """Place as many servers with this wish as possible; other wishes are moved if necessary."""
        placed = 0
        while placed < self._counts[number] and (moved := self._move(number, self._counts[number] - placed, set())):
            placed += moved
        return placed

    def _move(self, number: int, count: int, seen: set[tuple[int, ...]]) -> int:
        """Find room for up to `count` of this wish and return for how many it was found."""
        groups = [group for group in self._placed if number in group and group not in seen]
        for group in groups:
            if found := min(count, self._left[group]):
                self._left[group] -= found
                self._placed[group][number] += found
                return found
        for group in groups:
            seen.add(group)
            for other, there in list(self._placed[group].items()):
                if other != number and there and (found := self._move(other, min(count, there), seen)):
                    self._placed[group][other] -= found
                    self._placed[group][number] += found
                    return found
        return 0


def nodes_of(rooms: Mapping[str, NodeRoom], allowed: frozenset[str] | None) -> frozenset[str]:
    """Return the nodes of a pool that a server may use. `allowed` is None for the nodes that all may use."""
    if allowed is None:
        return frozenset(node for node, room in rooms.items() if not room.barred)
    return frozenset(node for node in rooms if node in allowed or node == NO_NODE)
