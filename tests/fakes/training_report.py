"""What the progress file of a training holds after some steps, as a `TrainingRun`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone

from hub_extensions.core.forecast.training import TrainingRun

STARTED = datetime(2026, 11, 29, 12, tzinfo=timezone.utc)


def reported(steps: Sequence[float], total: int | None = None, **fields: object) -> TrainingRun:
    """What the progress file holds after these steps, given by their durations in seconds.

    The durations are grouped as the writer does it: at most 64 groups; when they are full, neighbours are added up.
    """
    group, groups, rest = 1, list[float](), list[float]()
    for seconds in steps[1:]:
        rest.append(seconds)
        if len(rest) == group:
            groups.append(sum(rest))
            rest = []
        if len(groups) == 64:
            groups, group = [groups[at] + groups[at + 1] for at in range(0, 64, 2)], 2 * group
    return replace(
        TrainingRun(
            "0123456789abcdef", "mnist", "loop", "running", STARTED, STARTED + timedelta(seconds=min(sum(steps), 1e9)),
            len(steps), 0, total, None, None, steps[0] if steps else None, group, tuple(groups), len(rest), sum(rest),
        ),
        **fields,
    )  # fmt: skip
