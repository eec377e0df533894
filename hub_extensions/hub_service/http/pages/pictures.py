"""Computes the bars of small SVG charts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

HEIGHT = 40
STEP = 10  # distance between the left sides of two bars
THICK = 8


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar, in the chart's own units."""

    x: float
    y: float
    width: float
    height: float


def bars(values: Sequence[float | None], highest: float) -> tuple[Bar, ...]:
    """Return a bar for each value, scaled to the height of the chart. A value that is `None` or zero gets no bar. A
    small value is drawn as a line.

    Args:
        values: the value of each bar; `None` if it is not known.
        highest: the value of a full-height bar, the same for charts side by side.
    """
    found = []
    for number, value in enumerate(values):
        if value is None or value <= 0 or highest <= 0:
            continue
        height = max(1.0, round(HEIGHT * min(1.0, value / highest), 1))
        found.append(Bar(STEP * number, HEIGHT - height, THICK, height))
    return tuple(found)


def width(values: Sequence[object]) -> int:
    """Return the width of a chart with one bar for each value."""
    return STEP * max(1, len(values)) - (STEP - THICK)
