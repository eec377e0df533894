"""Lengths of time, memory, places and foreign text as people read them: once, for every page, reason and log. Pure.

Not here: offers (``offer_texts.py``), and the sentences of reasons (``reasons.py``).
"""

from __future__ import annotations

import math
from datetime import timedelta

GIB = 1024**3


def duration(length: timedelta) -> str:
    """A length that is set, to the second: ``45 s``, ``1 min 30 s``, ``30 min``, ``2 h 10 min``, ``12 h``."""
    seconds = max(0, int(length.total_seconds()))
    hours, minutes, seconds = seconds // 3600, seconds // 60 % 60, seconds % 60
    parts = [f"{hours} h"] if hours else []
    if minutes:
        parts.append(f"{minutes} min")
    if not parts or (seconds and not hours):
        parts.append(f"{seconds} s")
    return " ".join(parts)


def about(seconds: float) -> str:
    """A length that is estimated, rounded: ``40 s``, ``25 min``, ``2 h 10 min``, ``3 d 4 h``."""
    if round(seconds) < 60:
        return f"{max(0, round(seconds))} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {rest} min" if rest else f"{hours} h"
    days, rest = divmod(hours, 24)
    return f"{days} d {rest} h" if rest else f"{days} d"


def at_most(seconds: float) -> str:
    """A length that is a limit, rounded up so that it stays one: ``40 s``, ``2 h 11 min``, ``3 d 5 h``."""
    if seconds <= 59:
        return f"{max(0, math.ceil(seconds))} s"
    minutes = math.ceil(seconds / 60)
    return about(60 * minutes if minutes < 48 * 60 else 3600 * math.ceil(minutes / 60))


STEPS = ((30, 1), (120, 5), (600, 15))
"""Below so many minutes a likely wait is told in steps of so many; from there on in hours."""


def stepped(seconds: float, *, up: bool | None = None) -> float:
    """A likely wait as it may be told, seconds of whole steps: nobody can count on a minute of one in hours.

    Args:
        up: False: the step below; True: the step above; None: the nearest.
    """
    minutes = max(0.0, seconds) / 60
    step = next((step for below, step in STEPS if minutes < below), 60)
    steps = minutes / step
    whole = math.floor(steps + 0.5) if up is None else math.ceil(steps) if up else math.floor(steps)
    return float(60 * step * whole)


def ordinal(number: int) -> str:
    """1 -> ``1st``, 12 -> ``12th``, 111 -> ``111th``."""
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"


def gib(count: int) -> str:
    """Bytes as GiB, at most two places: ``4.75 GiB``."""
    return f"{count / GIB:.2f}".rstrip("0").rstrip(".") + " GiB"


def foreign(text: object, most: int = 60) -> str:
    """What a stranger wrote, for a log line or a message: shortened, nothing in it breaks a line or cannot be sent."""
    return repr(str(text)[:most])[1:-1]
