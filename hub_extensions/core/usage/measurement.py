"""Measurements of one use (one server's time with a GPU): single ones, one row per minute, and sums over the whole use.

A measurement counts for the time since the previous one, but for at most `LASTS` seconds. Time in which nothing was
measured is left out and never counts as an idle GPU.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

LASTS = 30.0  # maximum seconds that a figure counts for; a longer gap is unmeasured


@dataclass(frozen=True, slots=True)
class Figure:
    """One measurement of a server's GPU.

    Attributes:
        used_percent: GPU use. `None` if the source does not measure it.
        memory_bytes: GPU memory in use. `None` if the source does not measure it.
        source: what measured the GPU use: ``nvml``, ``gpm``, ``dcgm``, ``simulated``, ``report`` (the server's own
            extension) or ``none``.
    """

    used_percent: float | None
    memory_bytes: int | None
    source: str


@dataclass(frozen=True, slots=True)
class Minute:
    """The measurements of one use (one server's time with a GPU) within one minute: a row of the database.

    Attributes:
        key: key of the use, as in `UsageRecord`.
        at: the beginning of the minute, UTC.
        device: UUID of the device; "" if unknown.
        source: what measured the GPU use; ``none`` if nothing did.
        used_percent, highest_percent: mean and highest GPU use; `None` if it was not measured in this minute.
        memory_bytes: most memory in use; `None` if it was not measured in this minute.
        measured_seconds: for how many seconds GPU use was measured.
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
    """Measurements of one server's GPU, added up over a minute or a whole use.

    Attributes:
        weight: sum of GPU use in percent times the seconds for which it counts.
        use_seconds: for how many seconds GPU use was measured.
        highest: highest GPU use in percent; `None` if it was never measured.
        memory_seconds: for how many seconds memory was measured.
        memory: most memory in use, in bytes; `None` if it was never measured.
    """

    weight: float = 0.0
    use_seconds: float = 0.0
    highest: float | None = None
    memory_seconds: float = 0.0
    memory: int | None = None

    @property
    def mean(self) -> float | None:
        """Mean GPU use in percent over the summed measurements. `None` if nothing was measured."""
        return self.weight / self.use_seconds if self.use_seconds > 0 else None


def with_figure(sums: Sums, figure: Figure, seconds: float) -> Sums:
    """Add a measurement of a server's GPU to the sums. It counts for the last `seconds`, but for at most `LASTS`."""
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
    """Return the row of a minute that has ended, for the database.

    Args:
        key: key of the use.
        device: UUID of the device; "" if unknown.
        at: a time within the minute, UTC.
        sums: the measurements within the minute.
        source: what measured the GPU use.
    """
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
