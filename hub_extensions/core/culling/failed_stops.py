"""When a stop has failed, so that an admin has to know: it is not over by its deadline.

It is tried again all the same. Pure. Not here: when a stop begins (``stops.py``), and what its process or pod does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum


class StopFault(Enum):
    """Why a stop is not over; also the metric's `reason`."""

    REFUSED = "refused"
    """The hub says no to it, or does not hear it, again and again."""
    HANGS = "hangs"
    """The hub is at it still."""
    ALIVE = "alive"
    """The hub calls it done, and its process or pod is there."""


TO_DO: Mapping[StopFault, str] = {
    StopFault.REFUSED: "See the hub's log for why. The GPU service's role needs delete:servers.",
    StopFault.HANGS: "See the hub's log for what its spawner waits for. The GPU stays held until the hub is done.",
    StopFault.ALIVE: "End it by hand if it stays: a process that no signal ends waits for its disk or driver, a pod "
    "for its node or a finalizer. The GPU is given to nobody until it is gone.",
}
"""What an admin does about it."""


@dataclass(frozen=True, slots=True)
class OpenStop:
    """A stop that was begun and is not over.

    Attributes:
        since: of its first try. released: the hub was asked, and its lease waits for the proof of its end.
        listed: the hub has this very run of the server still; None: what the hub has is not known now.
    """

    since: datetime
    released: bool
    listed: bool | None


def fault_of(stop: OpenStop, deadline: timedelta, now: datetime) -> StopFault | None:
    """What is wrong with it; None: its time is not over, or nobody can tell."""
    if now - stop.since < deadline:
        return None
    if not stop.released:
        return StopFault.REFUSED
    if stop.listed is None:
        return None
    return StopFault.HANGS if stop.listed else StopFault.ALIVE
