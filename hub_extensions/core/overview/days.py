"""Figures of the last day, week or month for administrators, as bars of equal length.

A use is one server's time with one offer, from its admission to its end. The figures are GPU hours by offer and by
group, waits, how the uses ended, and failed starts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from hub_extensions.core.offers.offer_id import OfferId

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


class Span(Enum):
    """The period that the figures cover, which ends now. The value appears in the page's address."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"

    @property
    def bucket(self) -> timedelta:
        """The length of time that one bar of the statistics covers: an hour for a day, otherwise a day."""
        return HOUR if self is Span.DAY else DAY

    @property
    def buckets(self) -> int:
        return {Span.DAY: 24, Span.WEEK: 7, Span.MONTH: 30}[self]

    @property
    def length(self) -> timedelta:
        """The whole time that the statistics cover: all bars together."""
        return self.bucket * self.buckets


@dataclass(frozen=True, slots=True)
class CountedUse:
    """The facts of one use (one server's time with one offer) that are counted. Times are UTC.

    Attributes:
        groups: the user's groups when the user asked for the server.
        began: when the server was admitted.
        ended: when the use ended; `None` while it goes on.
        end: how it ended, a value of ``core.usage.UseEnd``; "" while it goes on.
        ready: whether its server ever became ready. If it did, `end` is counted. If not, only ``failed`` is counted, as
            a failed start.
        devices: the number of devices; a part of a device counts as a fraction.
        waited_seconds: time in line before the admission; `None` if it is not known.
    """

    offer: OfferId
    groups: tuple[str, ...]
    began: datetime
    ended: datetime | None
    end: str
    ready: bool
    devices: float
    waited_seconds: float | None


@dataclass(frozen=True, slots=True)
class Course:
    """Device hours of one offer or one group over the period, with one value for each bar.

    Device hours are hours times the number of devices.

    Attributes:
        name: id of the offer, or name of the group; "" for users without a group.
        hours: device hours in each bar.
    """

    name: str
    hours: tuple[float, ...]

    @property
    def total(self) -> float:
        """The device hours of this offer or group in all bars of the statistics together."""
        return sum(self.hours)


@dataclass(frozen=True, slots=True)
class WaitFigures:
    """Waits of the users who were admitted within one bar.

    Attributes:
        count: number of these users.
        median_seconds, longest_seconds: their median and longest wait; `None` if nobody was admitted.
    """

    count: int
    median_seconds: float | None
    longest_seconds: float | None


@dataclass(frozen=True, slots=True)
class Days:
    """All figures of the page about the last day, week or month.

    Attributes:
        at: when the figures were counted.
        bounds: the beginning of each bar, and after these the end of the last bar.
        by_offer, by_group: hours of each offer and group, the most hours first. A user in two groups counts in both.
        waits: the waits in each bar.
        all_waits: the waits of all bars together.
        ends: (`UseEnd`, number of uses that ended so within the period), the most frequent first.
        failed: the number of failed starts in each bar.
    """

    at: datetime
    span: Span
    bounds: tuple[datetime, ...]
    by_offer: tuple[Course, ...]
    by_group: tuple[Course, ...]
    waits: tuple[WaitFigures, ...]
    all_waits: WaitFigures
    ends: tuple[tuple[str, int], ...]
    failed: tuple[int, ...]


def days_of(uses: Iterable[CountedUse], span: Span, now: datetime) -> Days:
    """Compute the figures of the period that ends now: device hours, waits and failed starts of each bar, and how the
    uses ended.

    A bar covers an hour if the period is a day, and a day if the period is a week or a month. The device hours of a use
    are spread over the bars in which its server had its devices. Device hours before the first bar are left out.

    Args:
        uses: the uses (one server's time with one offer each).
        span: the period.
        now: the present time, at which the period ends.
    """
    first = now - span.length
    bounds = tuple(first + number * span.bucket for number in range(span.buckets + 1))
    offers, groups = dict[str, list[float]](), dict[str, list[float]]()
    waited: list[list[float]] = [[] for _ in range(span.buckets)]
    ends, failed = Counter[str](), [0] * span.buckets
    for use in uses:
        if use.ended is not None and first <= use.ended <= now:
            ended = _bar(use.ended, first, span)
            if use.ready:
                ends[use.end] += 1
            elif use.end == "failed":
                failed[ended] += 1
        if use.waited_seconds is not None and first <= use.began <= now:
            waited[_bar(use.began, first, span)].append(use.waited_seconds)
        for bar, hours in _hours(use, bounds, now):
            for name, table in ((str(use.offer), offers), *((group, groups) for group in use.groups or ("",))):
                table.setdefault(name, [0.0] * span.buckets)[bar] += hours
    return Days(
        at=now,
        span=span,
        bounds=bounds,
        by_offer=_courses(offers),
        by_group=_courses(groups),
        waits=tuple(map(_waits, waited)),
        all_waits=_waits([each for bar in waited for each in bar]),
        ends=tuple(ends.most_common()),
        failed=tuple(failed),
    )


def _bar(at: datetime, first: datetime, span: Span) -> int:
    return min(span.buckets - 1, (at - first) // span.bucket)


def _hours(use: CountedUse, bounds: Sequence[datetime], now: datetime) -> Iterator[tuple[int, float]]:
    """Yield (index of the bar, device hours in it) for each bar of the statistics in which a server had its devices.

    Args:
        use: the server's time with its devices.
        bounds: the beginning of each bar, and after these the end of the last bar.
        now: the present time, which ends a use that still goes on.
    """
    began, ended = max(use.began, bounds[0]), min(use.ended or now, now)
    if ended <= began:
        return
    step = bounds[1] - bounds[0]
    for bar in range((began - bounds[0]) // step, len(bounds) - 1):
        if bounds[bar] >= ended:
            return
        yield bar, (min(ended, bounds[bar + 1]) - max(began, bounds[bar])) / HOUR * use.devices


def _courses(table: dict[str, list[float]]) -> tuple[Course, ...]:
    found = [Course(name, tuple(hours)) for name, hours in table.items()]
    return tuple(sorted(found, key=lambda course: (-course.total, course.name)))


def _waits(seconds: Sequence[float]) -> WaitFigures:
    if not seconds:
        return WaitFigures(0, None, None)
    found = sorted(seconds)
    return WaitFigures(len(found), found[(len(found) - 1) // 2], found[-1])
