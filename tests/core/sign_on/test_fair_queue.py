"""The order of unknown tokens in the queue, and which of them leaves if the queue is full."""

from __future__ import annotations

import pytest

from hub_extensions.core.sign_on.fair_queue import FairQueue, address_group


def filled(*waiting: tuple[str, str]) -> FairQueue[str]:
    queue: FairQueue[str] = FairQueue()
    for number, (address, token) in enumerate(waiting):
        queue.put(f"{number}", address, token)
    return queue


def order(queue: FairQueue[str]) -> list[str | None]:
    return [queue.take() for _ in range(len(queue))]


FLOOD = [("10.0.0.1", f"made-up-{number}") for number in range(8)]


def test_an_address_waits_for_one_of_each_other_and_not_for_all_of_a_flood() -> None:
    assert order(filled(*FLOOD, ("10.0.0.2", "a" * 32))).index("8") == 1


def test_a_token_waits_for_one_of_each_other_prefix_of_its_own_address() -> None:
    assert order(filled(*FLOOD, ("10.0.0.1", "a" * 32))).index("8") == 1


def test_the_same_kind_comes_in_the_order_of_coming_and_nobody_is_lost() -> None:
    queue = filled(*FLOOD)
    assert order(queue) == [str(number) for number in range(8)]
    assert (len(queue), queue.take()) == (0, None)


def test_where_it_is_full_the_newest_of_the_largest_group_leaves() -> None:
    assert filled(*FLOOD).put("new", "10.0.0.2", "b" * 32, is_full=True) == "7"
    assert filled(*FLOOD).put("new", "10.0.0.1", "b" * 32, is_full=True) == "7", "another prefix of the same address"
    assert filled(*FLOOD).put("new", "10.0.0.1", "made-up-9", is_full=True) == "new"
    assert filled().put("new", "10.0.0.1", "made-up-9", is_full=True) == "new"
    many = [("10.0.0.1", f"{number:08x}") for number in range(8)]
    assert filled(*many).put("new", "10.0.0.2", "b" * 32, is_full=True) in {str(number) for number in range(8)}


def test_one_that_is_gone_takes_no_turn() -> None:
    queue = filled(*FLOOD[:3])
    queue.remove("0")
    queue.remove("0")
    assert order(queue) == ["1", "2"]


@pytest.mark.parametrize(
    ("address", "group"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("2001:db8::ffff:1", "2001:db8::/64"),
        ("unknown", "unknown"),
        ("", ""),
    ],
)
def test_an_ipv6_network_is_one_address(address: str, group: str) -> None:
    assert address_group(address) == group
