"""A queue in which nobody's requests delay everybody else's: addresses take turns, and token prefixes within each.

Not here: what waits, and for what (``gate/hub_answers.py``).
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")

PREFIX_LETTERS = 8
"""Made-up tokens of one program often begin alike; two tokens of the hub practically never do."""


def address_group(address: str) -> str:
    """Return the address whose turns it takes: an IPv4 address itself, of an IPv6 address its /64 network."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address):
        mapped = found.ipv4_mapped
        return str(mapped) if mapped is not None else str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)


class FairQueue(Generic[T]):
    """Who waits, by address and token prefix."""

    def __init__(self) -> None:
        self._by_address: OrderedDict[str, OrderedDict[str, deque[T]]] = OrderedDict()

    def __len__(self) -> int:
        return sum(len(each) for groups in self._by_address.values() for each in groups.values())

    def put(self, waiter: T, address: str, token: str, *, is_full: bool = False) -> T | None:
        """Add one that waits.

        Args:
            is_full: there is no place for one more.

        Returns:
            The one that has to leave: the newest of the largest group of the address with the most that wait. It is
            the new one where its own group is as large as any.
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
        """Remove and return the next one; None: nobody waits."""
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
        """Remove one that does not wait any more, if it is there."""
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
