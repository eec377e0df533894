"""The results of the wait forecast: values, their accuracy, and the combination of a likely wait with its upper bound.

Standard library only, because pages and stores import it.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from statistics import fmean

from hub_extensions.core.forecast.episodes import EPISODES, FEWEST_EPISODES, is_new_episode
from hub_extensions.core.forecast.interval import Interval, limited, log_time
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.model import QueueSnapshot
from hub_extensions.core.queue.wait_bound import WaitForecast
from hub_extensions.core.text.reasons import Reason, explain

FEW = 20
"""Minimum number of finished uses of a pool for a likely wait."""
PEOPLE = 3
"""Minimum number of holders for a reason about usual durations: with fewer it would describe one person."""
SOON_END = 3600.0
"""Seconds within which an end counts as soon."""
VALID = timedelta(minutes=2)
"""Older forecasts are not shown."""
LAST = 2000
"""Number of finished forecasts per pool that are kept in memory; those of the last `EPISODES` episodes count."""
COVERED = (0.80, 0.97)
"""Range of coverage outside which P90 is rough; the upper end applies once `EPISODES` busy episodes are known."""
FEW_DATA, ROUGH = "few-data", "rough"
UNKNOWN_ELSEWHERE = frozenset(
    {
        "line-elsewhere",
        "cut-as-asked",
        "parts-differ",
        "not-known-which-free",
        "free-one-taken-outside",
        "free-one-silent",
        "after-own-server",
    }
)
"""Reasons for which more data would not help."""
UNLIMITED = frozenset({"no-limit", "one-without-limit"})
"""Reasons that only explain a missing upper bound."""


@dataclass(frozen=True, slots=True)
class Likely:
    """The simulated interval of a ticket or offer and the one that is shown, in seconds from the computation.

    Attributes:
        limit_is_p90: whether the upper bound, if there is one, is shown as P90.
    """

    played: Interval
    shown: Interval
    limit_is_p90: bool = False


@dataclass(frozen=True, slots=True)
class Stay:
    """The part of a usage record that the forecast learns from.

    Attributes:
        key: of the record.
        share: thousandths of each device.
        asked: when it was asked for, seconds by the wall clock.
        lasted: seconds for which it held its devices.
        at_limit: whether its time limit ended it.
        starting: seconds from admission to ready. None if not known.
        limit: the seconds that the user asked for. None if users do not ask for a time (only some schedulers do).
    """

    key: str
    user: str
    pool: str
    devices: int
    share: int
    asked: float
    lasted: float
    at_limit: bool = False
    starting: float | None = None
    limit: float | None = None


@dataclass(frozen=True, slots=True)
class KnownEnd:
    """The announced end of a server (countdown or progress report): seconds from now, and its relative deviation."""

    seconds: float
    spread: float = 0.0


@dataclass(frozen=True, slots=True)
class PoolView:
    """Counts of one pool.

    Attributes:
        finished: finished uses.
        held: leases.
        people: users who hold a lease; 0 if the leases have different sizes.
        ending: leases that are likely to end within `SOON_END`.
    """

    finished: int
    held: int
    people: int
    ending: int


@dataclass(frozen=True, slots=True)
class LikelyWaits:
    """The result of one computation.

    Attributes:
        at: the running time that it is for.
        elapsed: seconds of the machine's clock at that time.
        took: processor seconds.
    """

    at: datetime
    elapsed: float
    tickets: Mapping[str, Likely] = field(default_factory=dict)
    offers: Mapping[OfferId, Likely] = field(default_factory=dict)
    pools: Mapping[str, PoolView] = field(default_factory=dict)
    took: float = 0.0


@dataclass(frozen=True, slots=True)
class Given:
    """A forecast that was given to a waiting ticket, and its outcome.

    Attributes:
        hour: full hours that the ticket had waited then.
        at, running: time of the forecast by the wall clock and in running time.
        ahead: number of tickets ahead.
        rough: whether it was shown as rough.
        end: ``started``; ``left`` or ``changed`` if the outcome cannot be known; "" while the ticket waits.
        waited: seconds from the forecast to the start. None if it has not started.
    """

    id: str
    ticket: str
    pool: str
    offer: OfferId
    hour: int
    at: datetime
    running: datetime
    ahead: int
    played: Interval
    shown: Interval
    at_most: float | None = None
    rough: bool = False
    end: str = ""
    waited: float | None = None
    over: datetime | None = None


@dataclass(frozen=True, slots=True)
class ForecastInputs:
    """The inputs of a forecast.

    Attributes:
        asked: ticket or lease -> when it was asked for, seconds by the wall clock.
        ends: lease -> its announced end. A lease without one is missing.
    """

    snapshot: QueueSnapshot
    now: datetime
    asked: Mapping[str, float] = field(default_factory=dict)
    ends: Mapping[str, KnownEnd] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WaitForecasts:
    """The forecasts for a snapshot. Tickets, offers and pools without a forecast are missing.

    Attributes:
        sizes: pool -> number of its devices, for each pool where it is known.
    """

    tickets: dict[str, Likely]
    offers: dict[OfferId, Likely]
    pools: dict[str, PoolView]
    sizes: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The accuracy of one pool's forecasts over the last busy episodes, each of which counts once. None if not known.

    Attributes:
        matured: number of forecasts whose ticket started.
        episodes: number of busy episodes that they belong to.
        coverage_90: share that started before P90.
        coverage_80: share that started between P10 and P90.
        median_error: median of the seconds between P50 and the real wait.
        worse_than_plain: whether the median of the waits known at the join would have been the better forecast.
        rough: whether forecasts are marked as rough.
    """

    pool: str
    matured: int = 0
    episodes: int = 0
    coverage_90: float | None = None
    coverage_80: float | None = None
    median_error: float | None = None
    worse_than_plain: bool = False
    rough: bool = True


def accuracy_of(pool: str, given: Iterable[Given]) -> Accuracy:
    """Judge the forecasts of the last busy episodes; `given` in the order in which they came true."""
    episodes = busy_episodes([each for each in given if each.end == "started" and each.waited is not None])
    if not episodes:
        return Accuracy(pool)
    real = [
        (each.shown, each.waited or 0.0, 1 / len(episode) / len(episodes)) for episode in episodes for each in episode
    ]
    before_90 = sum(weight for shown, waited, weight in real if waited <= shown.p90)
    within = sum(weight for shown, waited, weight in real if shown.p10 <= waited <= shown.p90)
    middle = _median([(abs(waited - shown.p50), weight) for shown, waited, weight in real])
    plain = _worse_than_plain(episodes)
    low, high = COVERED
    covers = before_90 >= low - 1e-9 and (before_90 <= high or len(episodes) < EPISODES)
    rough = len(episodes) < FEWEST_EPISODES or plain or not covers
    return Accuracy(pool, len(real), len(episodes), min(before_90, 1.0), min(within, 1.0), middle, plain, rough)


def busy_episodes(given: Iterable[Given]) -> list[list[Given]]:
    """Group forecasts by busy episode and return the last `EPISODES`; `given` in the order in which they came true."""
    found: deque[list[Given]] = deque(maxlen=EPISODES)
    until = -math.inf
    for each in given:
        joined = each.running.timestamp()
        if is_new_episode(joined, until, found[-1][0].running.timestamp() if found else -math.inf):
            found.append([])
        found[-1].append(each)
        until = max(until, joined + (each.waited or 0.0))
    return list(found)


def _worse_than_plain(episodes: Sequence[Sequence[Given]]) -> bool:
    """Whether the median of the waits known at the join missed by less than what was shown, in log time."""
    joins = [
        (each.running.timestamp(), number, each)
        for number, some in enumerate(episodes)
        for each in some
        if not each.hour
    ]
    joins.sort(key=lambda join: join[0])
    over = deque(sorted((joined + (each.waited or 0.0), each.waited or 0.0) for joined, _, each in joins))
    known: list[float] = []
    gains: dict[int, list[float]] = {}
    for joined, number, each in joins:
        while over and over[0][0] <= joined:
            insort(known, over.popleft()[1])
        if known:
            plain = (known[(len(known) - 1) // 2] + known[len(known) // 2]) / 2
            waited = log_time(each.waited or 0.0)
            gain = abs(log_time(plain) - waited) - abs(log_time(each.shown.p50) - waited)
            gains.setdefault(number, []).append(gain)
    return len(gains) >= FEWEST_EPISODES and fmean(map(fmean, gains.values())) < 0


def _median(weighted: Sequence[tuple[float, float]]) -> float:
    """Return the weighted median, the mean of two where it lies between them; the weights add up to 1."""
    ordered, left = sorted(weighted), 0.5
    for at, (value, weight) in enumerate(ordered):
        left -= weight
        if abs(left) <= 1e-9 and at + 1 < len(ordered):
            return (value + ordered[at + 1][0]) / 2
        if left <= 0:
            return value
    return ordered[-1][0]


def with_likely(
    bound: WaitForecast,
    likely: Likely | None,
    view: PoolView | None,
    *,
    title: str = "",
    rough: bool = False,
    age: timedelta = timedelta(0),
    as_of: datetime | None = None,
) -> WaitForecast:
    """Return the forecast that is shown: the quantiles, none of them beyond the upper bound.

    Args:
        view: counts of the pool. None if nothing was computed for it.
        age: time since `likely` was computed.
        as_of: when it was computed, by the wall clock.
    """
    if bound.now or view is None:
        return bound
    why = bound.reason.reason if bound.reason is not None else ""
    if view.finished < FEW:
        if why in UNKNOWN_ELSEWHERE:
            return bound
        reason = explain(FEW_DATA) if why in UNLIMITED else bound.reason
        return replace(bound, note=FEW_DATA, reason=reason)
    if likely is None:
        return bound
    p10, p50, p90 = _passed(likely, age, bound.at_most)
    return replace(
        bound,
        p10=p10,
        p50=p50,
        p90=p90,
        soon=tuple(likely.shown.within),
        as_of=as_of,
        note=ROUGH if rough else "",
        reason=_reason(bound, view, title),
    )


def _passed(likely: Likely, age: timedelta, at_most: timedelta | None) -> Sequence[timedelta]:
    """Return the quantiles as they are now, `age` after the computation."""
    shown = likely.shown
    p10, p50, p90 = (max(0.0, each - age.total_seconds()) for each in (shown.p10, shown.p50, shown.p90))
    most = None if at_most is None else at_most.total_seconds()
    found = limited(replace(shown, p10=p10, p50=p50, p90=p90), most, likely.limit_is_p90)
    return [timedelta(seconds=each) for each in (found.p10, found.p50, found.p90)]


def _reason(bound: WaitForecast, view: PoolView, title: str) -> Reason | None:
    """Return why the wait is this long: how soon holders usually end, unless that describes one person."""
    if bound.reason is not None and bound.reason.reason == "place-ends-first":
        return bound.reason
    found = usual_ends(view, title)
    if found is not None:
        return found
    return bound.reason if bound.at_most is not None else None


def usual_ends(view: PoolView, title: str, ahead: int | None = None) -> Reason | None:
    """Return how soon holders usually end, or None if that would describe one person.

    Args:
        ahead: number of tickets ahead, for the wording of a place in line. None for an offer.
    """
    if view.people < PEOPLE or view.held < 2:
        return None
    if ahead is None and view.ending:
        return explain("usually-end", ending=view.ending, total=view.held, title=title)
    if ahead is None:
        return explain("usually-longer", title=title)
    if view.ending:
        return explain("in-use-usually-end", ending=view.ending, total=view.held, title=title, ahead=ahead)
    return explain("in-use-usually-longer", title=title, ahead=ahead)
