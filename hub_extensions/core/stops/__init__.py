"""When one server stops and for what: a set of causes, each with its own time; the earliest counts. Pure.

Every view of a server's end (panel, *Your GPU*, the administrators' pages, audit, forecast, API) reads one `Stop`.
Not here: which limits make a cause (``core/culling``), and who carries a stop out (``engine/stops/culler.py``).
"""

from hub_extensions.core.stops.causes import (
    FIXED,
    ORDERED,
    Cause,
    Orderer,
    Stop,
    StopCause,
    Withdrawal,
    latest_end,
    stop_of,
)
from hub_extensions.core.stops.orders import (
    BY_ADMIN,
    GIVEN_BACK,
    GIVEN_BACK_FOR_CPU,
    UNKNOWN_WHY,
    WHY,
    Order,
    added,
    earliest,
    without,
)

__all__ = [
    "BY_ADMIN",
    "FIXED",
    "GIVEN_BACK",
    "GIVEN_BACK_FOR_CPU",
    "ORDERED",
    "UNKNOWN_WHY",
    "WHY",
    "Cause",
    "Order",
    "Orderer",
    "Stop",
    "StopCause",
    "Withdrawal",
    "added",
    "earliest",
    "latest_end",
    "stop_of",
    "without",
]
