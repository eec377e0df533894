"""Small pictures of bars, drawn here as SVG: where each bar stands and how high it is. No script draws anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

HEIGHT = 40
STEP = 10
"""From one bar's left side to the next one's."""
THICK = 8


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar, in the picture's own units."""

    x: float
    y: float
    width: float
    height: float


def bars(values: Sequence[float | None], highest: float) -> tuple[Bar, ...]:
    """A bar for each value, the highest as high as the picture; none for what is not known, a line for what is little.

    Args:
        highest: what the full height stands for: pictures side by side have the same.
    """
    found = []
    for number, value in enumerate(values):
        if value is None or value <= 0 or highest <= 0:
            continue
        height = max(1.0, round(HEIGHT * min(1.0, value / highest), 1))
        found.append(Bar(STEP * number, HEIGHT - height, THICK, height))
    return tuple(found)


def width(values: Sequence[object]) -> int:
    """Of the whole picture."""
    return STEP * max(1, len(values)) - (STEP - THICK)
