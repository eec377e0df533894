"""How long a wait will be: an interval and an upper limit, or an honest "unknown".

This first version states only what enforced limits prove ("at most"). The quantiles are in the interface already and
stay None until durations are learned from usage records.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class WaitForecast:
    """The wait from now until a device is given.

    Attributes:
        now: it starts without a wait; the quantiles are zero then.
        p10, p50, p90: the wait is shorter than this with that probability; None is not known.
        at_most: proved by limits that are enforced; None where nothing enforces one.
        reason: one sentence a user can read: why this long, or why it is not known.
    """

    now: bool
    p10: timedelta | None
    p50: timedelta | None
    p90: timedelta | None
    at_most: timedelta | None
    reason: str
