"""Free devices of a pool of which each server may use only some nodes, because of the requirements of its pod.

A wish is a share of one device on one of several nodes. A ticket (a server's place in line) has a wish, and so has an
admitted server whose pod is not placed yet. The scheduler of the cluster places pods in any order on any allowed node.
So the next server is certain to get a device only if the wishes ahead of it cannot fill all of its nodes. It may be
admitted only if, in addition, it takes no device that a wish ahead of it needs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from hub_extensions.core.cluster.dra import NO_NODE
from hub_extensions.core.cluster.pools import NodeRoom


@dataclass(frozen=True, slots=True)
class NodeWish:
    """The wish of one server in a pool: a share (thousandths) of one device, on one of these nodes."""

    nodes: frozenset[str]
    share: int


class NodeRooms:
    """The free devices of one pool, node by node. Its methods find out whether a server is certain to get a device.

    Attributes:
        rooms: node -> devices of the pool there.
    """

    def __init__(self, rooms: Mapping[str, NodeRoom]) -> None:
        self.rooms = rooms
        self._slots: dict[int, dict[str, int]] = {}

    def free(self, wish: NodeWish, ahead: Mapping[NodeWish, int]) -> int:
        """Return how many servers that need the nodes and share of a wish are certain to get a device.

        They are certain to get one wherever the scheduler places the servers that come first.

        Args:
            wish: the nodes that such a server may use, and the share of a device that it needs.
            ahead: wish -> number of servers with that wish that come first.
        """
        slots = self._slots_of(wish.share)
        mine = {node: slots[node] for node in wish.nodes if slots.get(node)}
        wanted = Counter[frozenset[str]]()
        for other, count in ahead.items():
            # the number of slots that a share of another size costs at most
            wanted[self._open_to(other).intersection(mine)] += count * -(-other.share // wish.share)
        return sum(mine.values()) - most_placed(wanted, mine)

    def fits(self, wish: NodeWish, ahead: Mapping[NodeWish, int]) -> bool:
        """Return whether a server is certain to get a device, and takes none that a server ahead of it needs.

        Args:
            wish: the nodes that the server may use, and the share of a device that it needs.
            ahead: wish -> number of servers with that wish that come first.
        """
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
        """Return those of the wish's nodes that have enough of a device free for the share that the wish asks for."""
        slots = self._slots_of(wish.share)
        return frozenset(node for node in wish.nodes if slots.get(node))

    def _slots_of(self, share: int) -> dict[str, int]:
        """Return node -> number of servers that still fit there if each gets this share (thousandths of a device).

        Nodes on which none fits are left out.
        """
        if share not in self._slots:
            counted = (
                (node, sum(room // share * count for room, count in each.room.items()))
                for node, each in self.rooms.items()
            )
            self._slots[share] = {node: count for node, count in counted if count > 0}
        return self._slots[share]


def most_placed(wanted: Mapping[frozenset[str], int], slots: Mapping[str, int]) -> int:
    """Return the largest number of these servers that can be placed at the same time.

    This is a maximum flow, found by augmenting paths.

    Args:
        wanted: set of nodes -> number of servers that need a slot on one of them.
        slots: node -> number of free slots, each for one server.
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
    """The state of the search in `most_placed`: how many servers of each `NodeWish` are placed on which nodes so far.

    Nodes that the same wishes may use form a group and are treated as one node. Wishes are numbered. The key of a group
    is the tuple of the numbers of the wishes that may use it.
    """

    def __init__(self, counts: list[int], room: Mapping[tuple[int, ...], int]) -> None:
        self._counts = counts
        self._left = dict(room)
        self._placed: dict[tuple[int, ...], Counter[int]] = {group: Counter() for group in room}

    def place(self, number: int) -> int:
        """Place as many servers with one wish as possible, and return how many were placed.

        Servers with other wishes are moved to other nodes if that makes room.

        Args:
            number: number of the wish (the nodes that a server may use, and the share that it needs).
        """
        placed = 0
        while placed < self._counts[number] and (moved := self._move(number, self._counts[number] - placed, set())):
            placed += moved
        return placed

    def _move(self, number: int, count: int, seen: set[tuple[int, ...]]) -> int:
        """Place up to `count` servers with one wish, moving others if necessary, and return how many were placed.

        Args:
            number: number of the wish (the nodes that a server may use, and the share that it needs).
            count: largest number of servers to place.
            seen: groups of nodes that were tried already.
        """
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
    """Return the nodes of a pool that a server may use.

    Args:
        rooms: node -> devices of the pool.
        allowed: nodes that meet the requirements of the server's pod. None for a server without requirements, which may
            use every node that is open to all servers.
    """
    if allowed is None:
        return frozenset(node for node, room in rooms.items() if not room.barred)
    return frozenset(node for node in rooms if node in allowed or node == NO_NODE)
