"""Durations, memory sizes, positions and foreign text as people read them, for every page, reason and log."""

from __future__ import annotations

import math
from datetime import timedelta

from hub_extensions.core.text.translation import ENGLISH, Catalogue

GIB = 1024**3
MINUTE, HOUR = 60, 3600
PLACE = "number %1 in a line"  # The key of a position in a catalogue; in English it is an ordinal


def duration(length: timedelta, t: Catalogue = ENGLISH) -> str:
    """Format a configured duration to the second: ``45 s``, ``1 min 30 s``, ``30 min``, ``2 h 10 min``, ``12 h``."""
    seconds = max(0, int(length.total_seconds()))
    hours, minutes, seconds = seconds // 3600, seconds // 60 % 60, seconds % 60
    parts = [t("%1 h", hours)] if hours else []
    if minutes:
        parts.append(t("%1 min", minutes))
    if not parts or (seconds and not hours):
        parts.append(t("%1 s", seconds))
    return " ".join(parts)


def about(seconds: float, t: Catalogue = ENGLISH) -> str:
    """Format an estimated duration, rounded: ``40 s``, ``25 min``, ``2 h 10 min``, ``3 d 4 h``."""
    if round(seconds) < MINUTE:
        return t("%1 s", max(0, round(seconds)))
    minutes = round(seconds / MINUTE)
    if minutes < 60:
        return t("%1 min", minutes)
    hours, rest = divmod(minutes, 60)
    if hours < 48:
        return _two(t("%1 h", hours), t("%1 min", rest) if rest else "")
    days, rest = divmod(hours, 24)
    return _two(t("%1 d", days), t("%1 h", rest) if rest else "")


def at_most(seconds: float, t: Catalogue = ENGLISH) -> str:
    """Format an upper limit in seconds, rounded up so that it stays a limit: ``40 s``, ``2 h 11 min``, ``3 d 5 h``."""
    if seconds <= 59:
        return t("%1 s", max(0, math.ceil(seconds)))
    minutes = math.ceil(seconds / MINUTE)
    return about(MINUTE * minutes if minutes < 48 * 60 else HOUR * math.ceil(minutes / 60), t)


STEPS = ((30, 1), (120, 5), (600, 15))
"""(limit, step) in minutes: a likely wait below the limit is rounded to this step; longer waits to hours."""


def stepped(seconds: float, *, up: bool | None = None) -> float:
    """Round a likely wait to a step that grows with the wait (`STEPS`). Parameter and result are in seconds.

    Args:
        up: True rounds up, False rounds down, `None` rounds to the nearest step.
    """
    minutes = max(0.0, seconds) / 60
    step = next((step for below, step in STEPS if minutes < below), 60)
    steps = minutes / step
    whole = math.floor(steps + 0.5) if up is None else math.ceil(steps) if up else math.floor(steps)
    return float(60 * step * whole)


WIDE = 3  # an interval is wide if its upper end is more than this many times the lower one
COARSE_MINUTES = (5, 10, 15, 30, 45, 60, 90, 120, 180, 240, 360, 480, 720, 1440)
"""The values to which the two ends of a wide interval are rounded; beyond a day, to whole days."""


def coarse(seconds: float, *, up: bool) -> float:
    """Round one end of a wide interval of likely waits to a value of `COARSE_MINUTES`.

    Args:
        seconds: the wait. The result is in seconds too.
        up: True rounds up (for the upper end), False rounds down (for the lower end).
    """
    minutes = max(0.0, seconds) / 60
    if minutes > COARSE_MINUTES[-1]:
        days = minutes / COARSE_MINUTES[-1]
        return 86400.0 * (math.ceil(days) if up else math.floor(days))
    if up:
        return 60.0 * next(step for step in COARSE_MINUTES if step >= minutes)
    return 60.0 * max((step for step in COARSE_MINUTES if step <= minutes), default=0)


def likely(low: float, high: float, t: Catalogue = ENGLISH, *, wide: bool = False) -> str:
    """Format the 10th and 90th percentile of a wait in seconds, such as ``likely 25–50 min`` or ``likely about 5 min``.

    Args:
        wide: whether the ends are so far apart that the text is ``likely roughly 15 min to 2 h``.
    """
    if wide:
        if low <= 0:
            return t("likely within %1", t("roughly %1", about(max(high, MINUTE), t)))
        return t("likely %1 to %2", t("roughly %1", about(low, t)), about(high, t))
    if low <= 0:
        return t("likely within %1", about(max(high, MINUTE), t))
    if about(low) == about(high):
        return t("likely about %1", about(high, t))
    if high < HOUR:
        return t("likely %1–%2 min", round(low / MINUTE), round(high / MINUTE))
    return t("likely %1 to %2", about(low, t), about(high, t))


def ordinal(number: int, t: Catalogue = ENGLISH) -> str:
    """Format a position: ``1st``, ``12th``, ``111th``; in other languages as the catalogue has it."""
    if t.known(PLACE) is not None:
        return t(PLACE, number)
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


def _two(larger: str, smaller: str) -> str:
    return f"{larger} {smaller}" if smaller else larger


def gib(count: int) -> str:
    """Format bytes as GiB with at most two decimals: ``4.75 GiB``."""
    return f"{count / GIB:.2f}".rstrip("0").rstrip(".") + " GiB"


def foreign(text: object, most: int = 60) -> str:
    """Escape and shorten text that somebody else wrote, so that it cannot break a line of the log or its encoding.

    Args:
        text: the text.
        most: largest number of characters of the result.
    """
    return repr(str(text)[:most])[1:-1]
