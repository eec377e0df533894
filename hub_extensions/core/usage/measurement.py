"""Measurements of one use: single figures, minutes, and sums over the whole use.

A figure counts for the time since the figure before, but at most for `LASTS`. Time that nobody measured is not zero
use.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

LASTS = 30.0  # maximum seconds that a figure counts for; a longer gap is unmeasured


@dataclass(frozen=True, slots=True)
class Figure:
    """One reading.

    Attributes:
        used_percent, memory_bytes: `None` if unknown.
        source: what measured the use, as in `core.gpu.samples.DeviceSample`.
    """

    used_percent: float | None
    memory_bytes: int | None
    source: str


@dataclass(frozen=True, slots=True)
class Minute:
    """The measurements of one use within one minute.

    Attributes:
        key: of the use.
        at: the beginning of the minute, UTC.
        device: its UUID; "" if unknown.
        used_percent, highest_percent: mean and maximum; `None` if the use was not measured.
        memory_bytes: the maximum; `None` if it was not measured.
        measured_seconds: for how long the use was measured.
    """

    key: str
    at: datetime
    device: str
    source: str
    used_percent: float | None
    highest_percent: float | None
    memory_bytes: int | None
    measured_seconds: float


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums over a minute or a whole use.

    Attributes:
        weight: percent times seconds.
        use_seconds, memory_seconds: for how long use and memory were measured.
        highest, memory: the maximum; `None` if nothing was measured.
    """

    weight: float = 0.0
    use_seconds: float = 0.0
    highest: float | None = None
    memory_seconds: float = 0.0
    memory: int | None = None

    @property
    def mean(self) -> float | None:
        """The mean use in percent; `None` if nothing was measured."""
        return self.weight / self.use_seconds if self.use_seconds > 0 else None


def with_figure(sums: Sums, figure: Figure, seconds: float) -> Sums:
    """Add a figure that counts for the last `seconds`."""
    seconds = min(max(seconds, 0.0), LASTS)
    used, memory = figure.used_percent, figure.memory_bytes
    if used is not None and seconds:
        sums = replace(
            sums,
            weight=sums.weight + used * seconds,
            use_seconds=sums.use_seconds + seconds,
            highest=used if sums.highest is None else max(sums.highest, used),
        )
    if memory is not None and seconds:
        sums = replace(
            sums,
            memory_seconds=sums.memory_seconds + seconds,
            memory=memory if sums.memory is None else max(sums.memory, memory),
        )
    return sums


def minute_of(key: str, device: str, at: datetime, sums: Sums, source: str) -> Minute:
    """Return the row of a minute that has ended."""
    return Minute(
        key=key,
        at=at.replace(second=0, microsecond=0),
        device=device,
        source=source if sums.use_seconds else "none",
        used_percent=sums.mean,
        highest_percent=sums.highest,
        memory_bytes=sums.memory,
        measured_seconds=sums.use_seconds,
    )
