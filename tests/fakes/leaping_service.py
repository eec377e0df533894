"""The service, for which an hour passes at the moment in which the file `LATER` appears beside its configuration.

    python -m tests.fakes.leaping_service --config FILE

Only the running clock leaps, by which limits are counted. What others say, and how often they are asked, keeps the
machine's time; what is remembered of before the leap is an hour old.
"""

from __future__ import annotations

import sys
import time
from datetime import datetime
from pathlib import Path

from hub_extensions.hub_service.engine.state import state
from hub_extensions.hub_service.engine.state.clock import RunningClock

HOUR = 3600.0
LATER = "an-hour-later"


class LeapingClock(RunningClock):
    """The machine's time, and the hour that was leapt over."""

    def __init__(self, at: datetime | None = None) -> None:
        later = Path(sys.argv[sys.argv.index("--config") + 1]).with_name(LATER)
        super().__init__(at, monotonic=lambda: time.monotonic() + (HOUR if later.exists() else 0.0))

    def elapsed(self) -> float:
        """The machine's: what is asked of it is no deadline of a user."""
        return time.monotonic()


if __name__ == "__main__":
    from hub_extensions.hub_service.__main__ import main

    state.RunningClock = LeapingClock  # type: ignore[misc]
    sys.exit(main())
