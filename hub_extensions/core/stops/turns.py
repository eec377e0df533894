"""When stops begin: a few at once and so many a minute, the most wanted GPU first; after a failed one comes a pause.

Pure. Not here: which server is to be stopped (``decision.py``), and who asks the hub for it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

MINUTES_COUNTED = 2
COUNTED = timedelta(minutes=MINUTES_COUNTED)
"""`CullPolicy.stops_per_minute` is a mean of so long: what a quiet minute left over may follow at once."""
PAUSES = tuple(timedelta(seconds=each) for each in (5, 10, 20, 40, 80, 160, 300))
"""After each stop of a server that failed in a row; after the last pause it is always that."""
LONGEST_WISH = timedelta(hours=1)
"""A hub may ask for a longer pause by ``Retry-After``, but not for one beyond this."""


@dataclass(frozen=True, slots=True)
class DueStop:
    """A server that is to be stopped now.

    Attributes:
        server: user and name.
        since: its end has come then.
        share: of a device, in thousandths; 0 for CPU only.
        waiting: how many wait for what it has.
    """

    server: tuple[str, str]
    since: datetime
    share: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class StopPause:
    """After a stop that failed, so many times in a row: the next try is not before `until`.

    Attributes:
        since: of the first of them. why: in words; "": it was put off, and nothing is wrong.
    """

    failures: int
    until: datetime
    since: datetime | None = None
    why: str = ""


def pause_after(
    before: StopPause | None, now: datetime, retry_after: timedelta | None = None, why: str = ""
) -> StopPause:
    """One more stop of a server has failed. `retry_after`: what the hub asked for; None: nothing."""
    failures = 1 if before is None else before.failures + 1
    own = PAUSES[min(failures, len(PAUSES)) - 1]
    wished = own if retry_after is None else min(max(retry_after, PAUSES[0]), LONGEST_WISH)
    first = before.since if before is not None and before.why else None
    return StopPause(failures, now + wished, first or now, why)


def stops_to_begin(
    due: Collection[DueStop],
    under_way: int,
    begun: Sequence[datetime],
    pauses: Mapping[tuple[str, str], StopPause],
    at_once: int,
    per_minute: int,
    now: datetime,
) -> tuple[tuple[str, str], ...]:
    """Which stops begin now, in this order; the others have their turn later.

    Args:
        under_way: stops that are not over yet. begun: when the last ones began.
        at_once, per_minute: `CullPolicy.stops_at_once`, `CullPolicy.stops_per_minute`.
    """
    lately = sum(1 for at in begun if now - at < COUNTED)
    most = MINUTES_COUNTED * per_minute
    room = max(0, min(at_once - under_way, most - lately))
    ready = [each for each in due if each.server not in pauses or pauses[each.server].until <= now]
    ready.sort(key=lambda each: (-each.waiting, -each.share, each.since, each.server))
    return tuple(each.server for each in ready[:room])
