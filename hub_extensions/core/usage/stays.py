"""Turn a usage record into a `Stay` (how long a user held a GPU), from which the forecast of waits learns."""

from __future__ import annotations

from hub_extensions.core.forecast.results import Stay
from hub_extensions.core.messages.usage import OWN, UsageRecord
from hub_extensions.core.usage.ends import UseEnd

# ends that do not show how long the user would have stayed
NO_STAY = frozenset({UseEnd.LEFT.value, UseEnd.LOST.value, UseEnd.NODE_LOST.value})


def stay_of(record: UsageRecord) -> Stay | None:
    """Return how long the user of a record held a GPU.

    Returns:
        `None` if the record teaches nothing about that: the server had no GPU, never became ready or lost its device,
        or its duration is not known.
    """
    if not record.devices or not record.share or record.end in NO_STAY:
        return None
    if record.source == OWN and not record.adopted and record.ready is None:
        return None
    lasted = record.held_seconds
    if lasted is None:
        began = record.admitted or record.ready or record.asked
        lasted = None if began is None else (record.ended - began).total_seconds()
    if lasted is None or lasted < 0:
        return None
    limit = record.lifetime_seconds
    return Stay(
        record.key,
        record.user,
        record.pool,
        record.devices,
        record.share,
        record.began.timestamp(),
        lasted,
        record.end == UseEnd.LIFETIME.value or (limit is not None and lasted >= limit),
        _starting(record),
    )


def _starting(record: UsageRecord) -> float | None:
    if record.ready is None or record.admitted is None or record.adopted:
        return None
    return max(0.0, (record.ready - record.admitted).total_seconds())
