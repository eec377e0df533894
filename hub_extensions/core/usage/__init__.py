"""Usage records: who had which GPU, for how long, and how busy it was.

A use is one server's time with one offer, from its admission to its end. It is open until the server and its lease are
gone, and is then kept as a record.
"""

from hub_extensions.core.usage.course import (
    Moment,
    Use,
    admitted,
    adopted,
    count_keeps_and_warnings,
    ended,
    ending,
    measured,
    ready,
    record_of,
    resumed,
    sized,
)
from hub_extensions.core.usage.ends import UseEnd, end_of_cull, end_of_stop, end_of_ticket
from hub_extensions.core.usage.measurement import Figure, Minute

__all__ = [
    "Figure",
    "Minute",
    "Moment",
    "Use",
    "UseEnd",
    "admitted",
    "adopted",
    "count_keeps_and_warnings",
    "end_of_cull",
    "end_of_stop",
    "end_of_ticket",
    "ended",
    "ending",
    "measured",
    "ready",
    "record_of",
    "resumed",
    "sized",
]
