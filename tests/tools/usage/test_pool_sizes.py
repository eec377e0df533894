"""The sizes of pools beside an export: as the service saw them, else what was held at once."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from weakref import WeakSet

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_extensions.tools.usage.pool_sizes import PoolSizes, UseRow
from tests.examples import many

DAY = datetime(2026, 11, 20, tzinfo=timezone.utc)


class Text(str):
    """A text of which can be seen that it is still in memory."""


def at(minute: int) -> str:
    return Text((DAY + timedelta(minutes=minute)).isoformat(timespec="microseconds"))


def use(
    begin: int, end: int, *, share: int = 1000, devices: int = 1, asked: int | None = None, pool: str = "p"
) -> UseRow:
    """Asked at its begin where nothing else is said."""
    return (pool, devices, share, at(begin if asked is None else asked), at(begin), None, at(end))


@pytest.mark.parametrize(
    ("uses", "size"),
    [
        ([use(0, 10), use(5, 15), use(9, 20)], 3),
        ([use(0, 10), use(10, 20)], 1),  # who ends makes room for who begins
        ([use(0, 10, share=286), use(1, 9, share=286)], 1),
        ([use(0, 10, share=500), use(1, 9, share=500), use(2, 8, share=1)], 2),
        ([use(0, 10, devices=4), use(1, 9, devices=2)], 6),
        ([use(30, 40, asked=0), use(1, 20), use(35, 45, asked=2)], 2),  # in line they hold nothing
        ([("p", 1, 1000, None, None, at(3), at(9)), ("p", 1, 1000, None, None, None, at(9))], 1),
        ([use(0, 0)], 1),
    ],
)  # fmt: skip
def test_a_pool_that_the_service_never_saw_has_what_was_held_at_once(uses: list[UseRow], size: int) -> None:
    at_once, one_by_one = PoolSizes({}), PoolSizes({})
    at_once.add(uses)
    for each in uses:
        one_by_one.add([each])
    assert at_once.sizes() == one_by_one.sizes() == {"p": size}


def test_a_pool_that_the_service_saw_has_that_size_and_one_without_devices_none() -> None:
    pools = PoolSizes({"seen": 7, "unused": 3})
    pools.add([use(0, 9, pool="seen"), use(0, 9, pool="cpu", devices=0), use(0, 9, pool="imported")])
    assert pools.sizes() == {"imported": 1, "seen": 7}


uses_of_any_kind = st.lists(
    st.builds(
        lambda asked, wait, length, share, pool: use(
            asked + wait, asked + wait + length, share=share, asked=asked, pool=pool
        ),
        st.integers(0, 50), st.integers(0, 30), st.integers(0, 30), st.sampled_from([143, 500, 1000]),
        st.sampled_from(["p", "q"]),
    ),
    max_size=30,
)  # fmt: skip


@many(60)
@given(uses_of_any_kind, st.integers(1, 9))
def test_pieces_say_the_same_as_every_moment_counted_by_itself(uses: list[UseRow], piece: int) -> None:
    in_order = sorted(uses, key=lambda each: str(each[3]))
    pools = PoolSizes({})
    for begin in range(0, len(in_order), piece):
        pools.add(in_order[begin : begin + piece])
    expected = {}
    for pool in {each[0] for each in uses}:
        own = [(str(begin), end, share) for name, _, share, _, begin, _, end in uses if name == pool]
        held = [sum(share for begin, end, share in own if begin <= moment < end) for moment, _, _ in own]
        expected[pool] = max(1, -(-max(held) // 1000))
    assert pools.sizes() == expected


def test_uses_that_are_over_are_not_kept_however_many_there_were() -> None:
    alive: WeakSet[str] = WeakSet()
    pools, most = PoolSizes({}), 0
    for begin in range(0, 2000, 20):
        piece = [use(minute, minute + 15) for minute in range(begin, begin + 20)]
        for each in piece:
            alive.update(text for text in each if isinstance(text, Text))
        pools.add(piece)
        del piece, each
        most = max(most, len(alive))
    assert most <= 2 * 15 + 1, "only the moments of those that are not over when the last one begins"
    assert pools.sizes() == {"p": 15}
