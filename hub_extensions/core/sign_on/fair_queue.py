"""The queue of unknown tokens that the gate has to check at the hub, in which no client can delay the others.

Client addresses take turns. Within one address, groups of tokens with the same prefix take turns.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")

PREFIX_LETTERS = 8
"""Length of the prefix by which tokens are grouped. Invented tokens of one program often share it; real ones do not."""


def address_group(address: str) -> str:
    """Return what counts as one client: an IPv4 address itself, or the /64 network of an IPv6 address."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        mapped = found.ipv4_mapped
        return str(mapped) if mapped is not None else str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)


class FairQueue(Generic[T]):
    """A queue of items that wait, grouped by client address and token prefix; the groups take turns."""

    def __init__(self) -> None:
        self._by_address: OrderedDict[str, OrderedDict[str, deque[T]]] = OrderedDict()

    def __len__(self) -> int:
        return sum(len(each) for groups in self._by_address.values() for each in groups.values())

    def put(self, waiter: T, address: str, token: str, *, is_full: bool = False) -> T | None:
        """Add an item.

        Args:
            waiter: the item.
            address, token: client and token, by which items take turns.
            is_full: whether an item has to leave the queue to make room for this one.

        Returns:
            The item that leaves; `None` if `is_full` is False. The newest item in the largest token group of the
            address with the most items leaves. If several addresses or groups have the most items and the new item is
            in one of them, the new item leaves.
        """
        address, prefix = address_group(address), token[:PREFIX_LETTERS]
        group = self._by_address.setdefault(address, OrderedDict()).setdefault(prefix, deque())
        group.append(waiter)
        if not is_full:
            return None
        own = self._by_address[address]
        most = max(self._by_address.values(), key=_size)
        if _size(most) == _size(own):
            most = own
        largest = max(most.values(), key=len)
        if most is own and len(largest) == len(group):
            largest = group
        victim = largest.pop()
        self._drop_empty()
        return victim

    def take(self) -> T | None:
        """Remove and return the item whose turn it is; `None` if the queue is empty."""
        if not self._by_address:
            return None
        address, groups = next(iter(self._by_address.items()))
        prefix, group = next(iter(groups.items()))
        waiter = group.popleft()
        groups.move_to_end(prefix)
        self._by_address.move_to_end(address)
        self._drop_empty()
        return waiter

    def remove(self, waiter: T) -> None:
        """Remove an item. Do nothing if it is not in the queue."""
        for groups in self._by_address.values():
            for group in groups.values():
                if waiter in group:
                    group.remove(waiter)
                    self._drop_empty()
                    return

    def _drop_empty(self) -> None:
        for address, groups in list(self._by_address.items()):
            for prefix in [each for each, group in groups.items() if not group]:
                del groups[prefix]
            if not groups:
                del self._by_address[address]


def _size(groups: OrderedDict[str, deque[T]]) -> int:
    return sum(map(len, groups.values()))
