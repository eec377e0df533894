"""No wait exceeds its "at most", whatever others do. ``benchmarks/forecast_bound.py`` tries 20,000 lines."""

from __future__ import annotations

import pytest

from tests.core.queue.random_play import random_play


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=pytest.mark.slow) for first in range(50, 300, 50))])
def test_nobody_waits_longer_than_was_told(first: int) -> None:
    found = {seed: random_play(seed) for seed in range(first, first + 50)}
    assert {seed: each.late for seed, each in found.items() if each.late} == {}
    assert sum(each.shown for each in found.values()) > 500
    assert max(max(each.used, default=0.0) for each in found.values()) > 0.9, "some wait nearly as long"
