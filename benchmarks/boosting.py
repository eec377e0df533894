"""Gradient boosting of small trees on the state of a line: the method that the field tries first, as a baseline."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from hub_extensions.tools.backtest.baselines import Baselines
from hub_extensions.tools.backtest.log import Log
from hub_extensions.tools.backtest.recorder import RecordedWait
from hub_extensions.tools.backtest.world import LogSession, World

TREES = 60
STEP = 0.15
LEAST = 10
BINS = 16
DEPTH = 3
ROWS = 1500
FEWEST_ROWS = 50
"""Minimum number of waits that boosting learns from."""
BOOSTING = "boosting on the state"

Row = Sequence[float]


@dataclass(frozen=True, slots=True)
class Node:
    """Below `cut` the left one, else the right one; a leaf has a `value` alone."""

    value: float
    feature: int = -1
    cut: float = 0.0
    left: Node | None = None
    right: Node | None = None

    def of(self, row: Row) -> float:
        node = self
        while node.left is not None and node.right is not None:
            node = node.left if row[node.feature] <= node.cut else node.right
        return node.value


class Boosted:
    """Trees, each fitted to the residuals of the trees before it."""

    def __init__(self, rows: Sequence[Row], targets: Sequence[float]) -> None:
        step = max(1, len(rows) // ROWS)
        rows, targets = rows[::step], targets[::step]
        self._base = sum(targets) / len(targets)
        self._trees: list[Node] = []
        cuts = [_cuts([row[f] for row in rows]) for f in range(len(rows[0]))]
        binned = [[bisect_left(cuts[f], value) for f, value in enumerate(row)] for row in rows]
        left = [target - self._base for target in targets]
        for _ in range(TREES):
            tree = _grow(binned, left, cuts, list(range(len(rows))), DEPTH)
            self._trees.append(tree)
            left = [rest - STEP * tree.of(row) for rest, row in zip(left, rows, strict=True)]

    def of(self, row: Row) -> float:
        return self._base + STEP * sum(tree.of(row) for tree in self._trees)


def _cuts(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    return sorted({ordered[len(ordered) * k // BINS] for k in range(1, BINS)})


def _grow(binned: list[list[int]], left: list[float], cuts: list[list[float]], rows: list[int], depth: int) -> Node:
    total = sum(left[row] for row in rows)
    leaf = Node(total / max(1, len(rows)))
    if depth == 0 or len(rows) < 2 * LEAST:
        return leaf
    best, chosen = total * total / len(rows) + 1e-9, None
    for feature in range(len(cuts)):
        sums, counts = [0.0] * (BINS + 1), [0] * (BINS + 1)
        for row in rows:
            at = binned[row][feature]
            sums[at] += left[row]
            counts[at] += 1
        below, count = 0.0, 0
        for at in range(len(cuts[feature])):
            below, count = below + sums[at], count + counts[at]
            if LEAST <= count <= len(rows) - LEAST:
                gain = below * below / count + (total - below) ** 2 / (len(rows) - count)
                if gain > best:
                    best, chosen = gain, (feature, at)
    if chosen is None:
        return leaf
    feature, at = chosen
    low = [row for row in rows if binned[row][feature] <= at]
    high = [row for row in rows if binned[row][feature] > at]
    return Node(
        leaf.value,
        feature,
        cuts[feature][at],
        _grow(binned, left, cuts, low, depth - 1),
        _grow(binned, left, cuts, high, depth - 1),
    )


def line_state(baselines: Baselines, world: World, session: LogSession, now: float) -> list[float]:
    """Return the state of the line at a join, the row that boosting learns from."""
    asked = sum(each.devices * each.slices for each in world.waiting)
    head = now - world.waiting[0].submit if world.waiting else 0.0
    return [
        len(world.waiting),
        asked,
        len(world.running),
        sum(world.free),
        session.devices * session.slices,
        now % 86400,
        head,
        baselines.waits[-1] if baselines.waits else 0.0,
        sorted(baselines.waits)[len(baselines.waits) // 2] if baselines.waits else 0.0,
    ]


def boosting_points(log: Log, waits: Sequence[RecordedWait], first: int, since: int) -> dict[int, dict[str, float]]:
    """Return the forecast of each wait, by its number and the method's name; empty if there is too little to learn.

    Boosting learns once, from the waits that were over before forecasts count.

    Args:
        first: number of the first session whose forecast counts.
        since: number of the first session for which a forecast is made.
    """
    if not 0 < first < len(log.sessions):
        return {}
    moment = log.sessions[first].submit
    rows = [each for each in waits if each.number < since and each.started <= moment]
    if len(rows) < FEWEST_ROWS:
        return {}
    boosted = Boosted([each.state for each in rows], [math.log1p(each.real / 60) for each in rows])
    return {each.number: {BOOSTING: math.expm1(max(0.0, boosted.of(each.state))) * 60} for each in waits}
