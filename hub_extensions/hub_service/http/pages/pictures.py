"""Computes the bars of small SVG charts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

HEIGHT = 40
STEP = 10  # distance between the left sides of two bars
THICK = 8


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of an SVG chart: a rectangle in the units of the chart's view box."""

    x: float
    y: float
    width: float
    height: float


def bars(values: Sequence[float | None], highest: float) -> tuple[Bar, ...]:
    """Return the bars of a chart, scaled to its height. A small value is drawn as a line.

    Args:
        values: the value at each place of a bar. A value that is zero or not known (`None`) gets no bar.
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
    """Return the width of a chart with one place for a bar for each of these values, in units of its view box."""
    return STEP * max(1, len(values)) - (STEP - THICK)
