"""What is sure to be had where each start may use some nodes only, wherever the scheduler puts the others.

The scheduler places whoever it likes first, where it likes, so one more start is sure of a device only where those
ahead of it cannot fill all of its nodes, and it fills none of theirs. Pure. Not here: who is ahead (``admission.py``),
and which nodes a start may use (``cluster/placement.py``).
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
        """How many such wishes are sure of a device, wherever those ahead are placed."""
        slots = self._slots_of(wish.share)
        mine = {node: slots[node] for node in wish.nodes if slots.get(node)}
        wanted = Counter[frozenset[str]]()
        for other, count in ahead.items():
            # a device loses at most so many slots of one size to a share of another
            wanted[self._open_to(other).intersection(mine)] += count * -(-other.share // wish.share)
        return sum(mine.values()) - most_placed(wanted, mine)

    def fits(self, wish: NodeWish, ahead: Mapping[NodeWish, int]) -> bool:
        """It is sure of a device, and takes none away that somebody ahead needs."""
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
        """Those of its nodes that have a device free for it."""
        slots = self._slots_of(wish.share)
        return frozenset(node for node in wish.nodes if slots.get(node))

    def _slots_of(self, share: int) -> dict[str, int]:
        """Node -> how many of this share it has room for; nodes without any are left out."""
        if share not in self._slots:
            counted = (
                (node, sum(room // share * count for room, count in each.room.items()))
                for node, each in self.rooms.items()
            )
            self._slots[share] = {node: count for node, count in counted if count > 0}
        return self._slots[share]


def most_placed(wanted: Mapping[frozenset[str], int], slots: Mapping[str, int]) -> int:
    """How many can be placed at most: set of nodes -> how many want one of them; node -> how many it takes.

    A maximum flow by augmenting paths. Nodes that the same sets have are one.
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
    """Wishes (by number) placed in groups of nodes, a group being the numbers of the wishes that may use it."""

    def __init__(self, counts: list[int], room: Mapping[tuple[int, ...], int]) -> None:
        self._counts = counts
        self._left = dict(room)
        self._placed: dict[tuple[int, ...], Counter[int]] = {group: Counter() for group in room}

    def place(self, number: int) -> int:
        """Place as many of this wish as go, moving others where they may go as well."""
        placed = 0
        while placed < self._counts[number] and (moved := self._move(number, self._counts[number] - placed, set())):
            placed += moved
        return placed

    def _move(self, number: int, count: int, seen: set[tuple[int, ...]]) -> int:
        """Find room for up to `count` of this wish; how many found it."""
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
    """Of a pool's nodes those that a start may use; `allowed` None: those that all may."""
    if allowed is None:
        return frozenset(node for node, room in rooms.items() if not room.barred)
    return frozenset(node for node in rooms if node in allowed or node == NO_NODE)
