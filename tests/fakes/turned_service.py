"""The service with its running clock turned: what runs against a user comes six times as soon.

    python -m tests.fakes.turned_service --config FILE

Only that clock runs faster. What comes from other processes comes at their pace: samples, reports and lists of the hub
get old no sooner than elsewhere, a notebook has as long to be saved, a process as long to end. A page counts down in
its reader's time, so `wall` says when a deadline really comes.
"""

from __future__ import annotations

import sys
import time
from datetime import datetime

from hub_extensions.core.stops import drain
from hub_extensions.hub_service.engine import engine
from hub_extensions.hub_service.engine.line import reconcile, rights
from hub_extensions.hub_service.engine.state import inventory, state
from hub_extensions.hub_service.engine.state.clock import RunningClock
from hub_extensions.hub_service.engine.stops import runner, server_evidence
from hub_extensions.hub_service.engine.uses import notifier

RATE = 6


class TurnedClock(RunningClock):
    """Six seconds of running time a second."""

    def __init__(self, at: datetime | None = None) -> None:
        super().__init__(at, monotonic=lambda: time.monotonic() * RATE)

    def elapsed(self) -> float:
        """The machine's: what is asked of it is no deadline of a user."""
        return super().elapsed() / RATE

    def wall(self, running: datetime) -> datetime:
        return self.utc_now() + (running - self.now()) / RATE

    def running(self, wall: datetime) -> datetime:
        return self.now() - (self.utc_now() - wall) * RATE


LOOKS = ((runner, "EVERY"), (engine, "ASK_EVERY"), (notifier, "EVERY"), (reconcile, "EVERY"))
"""Pauses of the machine's time between two looks at what the running clock decides."""
AGES = (
    (server_evidence, "SAMPLES_LAST"), (server_evidence, "REPORTS_LAST"), (runner, "REPORTS_LAST"),
    (drain, "SAVING"), (drain, "HEARD"), (drain, "OTHER_PAGES"),
    (inventory, "INVENTORY_GOES_STALE"), (rights, "LAST"), (reconcile, "MISSING"),
)  # fmt: skip
"""Lengths of running time that stand for a length of the machine's."""


def turn() -> None:
    """From now on this process is the turned service."""
    state.RunningClock = TurnedClock  # type: ignore[misc]
    for module, name in LOOKS:
        setattr(module, name, getattr(module, name) / RATE)
    for module, name in AGES:
        setattr(module, name, getattr(module, name) * RATE)


if __name__ == "__main__":
    from hub_extensions.hub_service.__main__ import main

    turn()
    sys.exit(main())
