"""What is measured of one use: figures of a moment, gathered by the minute, and over all of it.

A figure counts for the time since the one before, and for a little while at most: what nobody measured is no zero.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

LASTS = 30.0
"""So many seconds at most a figure stands for: after a longer gap nothing was measured."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One reading. None is not known. `source`: who measured the use, as in `core.gpu.samples.DeviceSample`."""

    used_percent: float | None
    memory_bytes: int | None
    source: str


@dataclass(frozen=True, slots=True)
class Minute:
    """What was measured of one use within one minute.

    Attributes:
        key: of the use. at: the minute's begin, UTC. device: its UUID; "" where it is not known.
        used_percent: the mean of what was measured; highest_percent: the highest of it. memory_bytes: the highest.
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
    """What was measured so far, of a minute or of a whole use. `weight`: percent times seconds."""

    weight: float = 0.0
    use_seconds: float = 0.0
    highest: float | None = None
    memory_seconds: float = 0.0
    memory: int | None = None

    @property
    def mean(self) -> float | None:
        """Percent; None: nothing was measured."""
        return self.weight / self.use_seconds if self.use_seconds > 0 else None


def with_figure(sums: Sums, figure: Figure, seconds: float) -> Sums:
    """With a figure that stands for the last `seconds`."""
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
    """The row of a minute that is over."""
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
