"""Gradient boosting of small trees on the state of a line: what the field tries first. A baseline, nothing else."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

TREES = 60
STEP = 0.15
LEAST = 10
BINS = 16
DEPTH = 3
ROWS = 1500

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
    """Trees that were fitted one after another to what was left over."""

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
