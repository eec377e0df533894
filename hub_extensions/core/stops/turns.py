"""Decide which stops begin now if many are due: a limited number at once and per minute, the most wanted GPU first.

A stop that has failed is tried again after a pause, which grows with each failure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

MINUTES_COUNTED = 2
COUNTED = timedelta(minutes=MINUTES_COUNTED)
"""Time over which `CullPolicy.stops_per_minute` is averaged, so that after a quiet minute twice as many may begin."""
PAUSES = tuple(timedelta(seconds=each) for each in (5, 10, 20, 40, 80, 160, 300))
"""Pauses after the first, second and further failed tries to stop a server; the last pause repeats."""
LONGEST_WISH = timedelta(hours=1)
"""The longest pause that a hub can ask for by ``Retry-After``."""


@dataclass(frozen=True, slots=True)
class DueStop:
    """A server whose stop is due.

    Attributes:
        server: (user, name of the server).
        since: when its stop was due.
        share: thousandths of a device that it holds; 0 for CPU only.
        waiting: how many users wait in line for the offer with which it runs.
    """

    server: tuple[str, str]
    since: datetime
    share: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class StopPause:
    """The pause before the next try to stop a server.

    Attributes:
        failures: number of tries in a row that did not stop it.
        until: when the next try may begin.
        since: when the first of these tries failed; `None` if that is not known.
        why: the hub's answer. "" if the hub was not asked, because the server did not have to be stopped any more.
    """

    failures: int
    until: datetime
    since: datetime | None = None
    why: str = ""


def pause_after(
    before: StopPause | None, now: datetime, retry_after: timedelta | None = None, why: str = ""
) -> StopPause:
    """Return the pause after one more failed try to stop a server.

    Args:
        before: the pause before that try; `None` if it was the first.
        retry_after: the pause that the hub asked for; `None` if it asked for none.
        why: the hub's answer; "" if the hub was not asked.
    """
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
    """Return the servers whose stops begin now, in this order. The other stops that are due begin later.

    Args:
        due: the servers whose stops are due.
        under_way: number of stops that are not over yet.
        begun: times at which the last stops began, by the clock of `now`.
        pauses: server -> pause before its next try, if its last one failed.
        at_once: maximum number of stops that are under way at the same time (`CullPolicy.concurrent_stop_limit`).
        per_minute: maximum number of stops that begin per minute, as a mean of two minutes
            (`CullPolicy.stops_per_minute`).
    """
    lately = sum(1 for at in begun if now - at < COUNTED)
    most = MINUTES_COUNTED * per_minute
    room = max(0, min(at_once - under_way, most - lately))
    ready = [each for each in due if each.server not in pauses or pauses[each.server].until <= now]
    ready.sort(key=lambda each: (-each.waiting, -each.share, each.since, each.server))
    return tuple(each.server for each in ready[:room])
