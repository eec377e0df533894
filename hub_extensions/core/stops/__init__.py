"""The end of one server, its causes, and the course of its stop. Pure.

`Stop` is the end that follows from a set of causes: every view of a server's end reads it (panel, *Your GPU*, the
administrators' pages, audit, forecast, API). `StopRecord` is a stop that has begun. ``core/culling`` finds the causes,
``hub_service/engine/stops`` carries a stop out.
"""

from hub_extensions.core.stops.causes import (
    FIXED,
    INTERRUPTED,
    ORDERED,
    Cause,
    Orderer,
    Stop,
    StopCause,
    Withdrawal,
    latest_end,
    stop_of,
)
from hub_extensions.core.stops.drain import (
    DrainSeen,
    PagesHeard,
    awaits_sample,
    begins_before,
    is_after_hook,
    may_be_work,
    may_stop_now,
)
from hub_extensions.core.stops.lifecycle import (
    TO_DO,
    StopFault,
    StopKey,
    StopRecord,
    StopState,
    fault_of,
    refuse_withdrawal,
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
from hub_extensions.core.stops.returns import (
    ReturnSeen,
    ReturnStep,
    ServerReturn,
    comes_back,
    cpu_options,
    next_step,
)
from hub_extensions.core.stops.turns import COUNTED, DueStop, StopPause, pause_after, stops_to_begin

__all__ = [
    "BY_ADMIN",
    "COUNTED",
    "FIXED",
    "GIVEN_BACK",
    "GIVEN_BACK_FOR_CPU",
    "INTERRUPTED",
    "ORDERED",
    "TO_DO",
    "UNKNOWN_WHY",
    "WHY",
    "Cause",
    "DrainSeen",
    "DueStop",
    "Order",
    "Orderer",
    "PagesHeard",
    "ReturnSeen",
    "ReturnStep",
    "ServerReturn",
    "Stop",
    "StopCause",
    "StopFault",
    "StopKey",
    "StopPause",
    "StopRecord",
    "StopState",
    "Withdrawal",
    "added",
    "awaits_sample",
    "begins_before",
    "comes_back",
    "cpu_options",
    "earliest",
    "fault_of",
    "is_after_hook",
    "latest_end",
    "may_be_work",
    "may_stop_now",
    "next_step",
    "pause_after",
    "refuse_withdrawal",
    "stop_of",
    "stops_to_begin",
    "without",
]
