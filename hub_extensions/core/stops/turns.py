"""The order in which stops begin: a limited number at once and per minute, the most wanted GPU first. Pure.

A stop that has failed is tried again after a pause that grows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

MINUTES_COUNTED = 2
COUNTED = timedelta(minutes=MINUTES_COUNTED)
"""`CullPolicy.stops_per_minute` is a mean over this time: stops that a quiet minute left over may follow at once."""
PAUSES = tuple(timedelta(seconds=each) for each in (5, 10, 20, 40, 80, 160, 300))
"""Pauses after the first, second, … failed stop of a server in a row; the last pause repeats."""
LONGEST_WISH = timedelta(hours=1)
"""The longest pause that a hub can ask for by ``Retry-After``."""


@dataclass(frozen=True, slots=True)
class DueStop:
    """A server that is to be stopped now.

    Attributes:
        server: user and name.
        since: when its end has come.
        share: of a device, in thousandths; 0 for CPU only.
        waiting: how many tickets wait for such an offer.
    """

    server: tuple[str, str]
    since: datetime
    share: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class StopPause:
    """The pause after a stop that failed this many times in a row: the next try is not before `until`.

    Attributes:
        since: when the first of them failed.
        why: the hub's answer; "" if the stop was only put off.
    """

    failures: int
    until: datetime
    since: datetime | None = None
    why: str = ""


def pause_after(
    before: StopPause | None, now: datetime, retry_after: timedelta | None = None, why: str = ""
) -> StopPause:
    """Return the pause after one more failed stop. `retry_after` is the hub's wish; `None` without one."""
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
    """Return the servers whose stops begin now, in this order; the others have their turn later.

    Args:
        under_way: stops that are not over yet. begun: when the last ones began.
        at_once, per_minute: `CullPolicy.concurrent_stop_limit`, `CullPolicy.stops_per_minute`.
    """
    lately = sum(1 for at in begun if now - at < COUNTED)
    most = MINUTES_COUNTED * per_minute
    room = max(0, min(at_once - under_way, most - lately))
    ready = [each for each in due if each.server not in pauses or pauses[each.server].until <= now]
    ready.sort(key=lambda each: (-each.waiting, -each.share, each.since, each.server))
    return tuple(each.server for each in ready[:room])
