"""The results of the wait forecast: values, their accuracy, and a likely wait combined with its upper bound.

A busy episode is the time from the first ticket (a user's place in line) that waits until the line is empty. This
module uses the standard library only, because pages and the database layer import it.
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
"""Minimum number of finished uses (servers' times with a GPU) of a pool until a likely wait is shown."""
PEOPLE = 3
"""Minimum number of users who have such a GPU now for a sentence about when they usually stop: with fewer, it would
reveal one person's habits."""
SOON_END = 3600.0
"""Seconds within which a server has to end to count as one that ends soon."""
VALID = timedelta(minutes=2)
"""Age from which a forecast is not shown any more."""
LAST = 2000
"""Number of forecasts with a known outcome that are kept in memory for each pool."""
COVERED = (0.80, 0.97)
"""Share of waits below P90 that is good enough. Outside of this range forecasts are marked as rough; the upper end
applies only if `EPISODES` busy episodes are known."""
FEW_DATA, ROUGH = "few-data", "rough"
"""Notes on a forecast: too few finished uses to compute it; computed, but earlier forecasts missed often."""
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
"""Codes of reasons for an unknown wait that more data would not make known."""
UNLIMITED = frozenset({"no-limit", "one-without-limit"})
"""Codes of reasons that explain only why an upper bound is missing."""


@dataclass(frozen=True, slots=True)
class Likely:
    """The likely wait of a ticket, or of a user who joins an offer's line, in seconds from the time of the computation.

    Attributes:
        played: the interval as it was simulated.
        shown: the interval as users see it, corrected by the errors of earlier forecasts.
        limit_is_p90: whether the upper bound of the wait, if there is one, is shown as P90.
    """

    played: Interval
    shown: Interval
    limit_is_p90: bool = False


@dataclass(frozen=True, slots=True)
class Stay:
    """The time for which a user held a GPU: the part of a usage record from which the forecast learns.

    Attributes:
        key: key of the usage record.
        user: name of the user.
        pool: the devices of one kind that its device belongs to.
        devices: number of devices.
        share: thousandths of each device.
        asked: when the user asked for the server, in seconds of the wall clock.
        lasted: seconds for which the server held its devices.
        at_limit: whether its time limit ended it, so that it would have lasted longer.
        starting: seconds from admission to ready. None if not known.
        limit: time limit in seconds that the user asked for. None if users do not ask for one, which is so on this hub.
            Records imported from a batch system can have one.
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
    """When a server will end, if that is known from a countdown to its stop or from a progress report of its program.

    Attributes:
        seconds: time from now to the end.
        spread: relative standard deviation of that time; 0 if it is exact.
    """

    seconds: float
    spread: float = 0.0


@dataclass(frozen=True, slots=True)
class PoolView:
    """Numbers about one pool, for the sentence about when its servers usually end.

    Attributes:
        finished: number of finished uses that the forecast has learned from.
        held: number of leases (servers that have a device now).
        people: number of users who have a lease; 0 if the leases have different sizes.
        ending: number of leases that will probably end within 1 h (`SOON_END`).
    """

    finished: int
    held: int
    people: int
    ending: int


@dataclass(frozen=True, slots=True)
class LikelyWaits:
    """All likely waits that one computation found.

    Attributes:
        at: when they were computed, on the running clock (which stops while hub or service is down).
        elapsed: the machine's monotonic clock at that time, in seconds.
        tickets: ticket -> its likely wait.
        offers: offer -> likely wait of a user who joins its line.
        pools: pool -> how many servers have a device now and probably end soon, for a sentence to users.
        took: processor seconds of the computation.
    """

    at: datetime
    elapsed: float
    tickets: Mapping[str, Likely] = field(default_factory=dict)
    offers: Mapping[OfferId, Likely] = field(default_factory=dict)
    pools: Mapping[str, PoolView] = field(default_factory=dict)
    took: float = 0.0


@dataclass(frozen=True, slots=True)
class Given:
    """A forecast that was shown to a waiting user, and its outcome, from which accuracy and corrections follow.

    Attributes:
        hour: full hours that the ticket had waited when this forecast was shown; 0 for the forecast when it joined.
        at: wall-clock time of the forecast.
        running: time of the forecast on the running clock (which stops while hub or service is down).
        ahead: number of tickets that were ahead.
        played, shown: the interval as simulated, and as the user saw it.
        at_most: the upper bound of the wait in seconds. None without an upper bound.
        rough: whether the user saw it marked as rough, because earlier forecasts for the pool were few or inaccurate.
        end: ``started``; ``left`` or ``changed`` if the outcome cannot be known; "" while the ticket waits.
        waited: seconds from the forecast to the start. None if the server has not started.
        over: when the wait ended. None while the ticket waits.
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
    """Everything from which the likely waits are computed.

    Attributes:
        snapshot: the queue, as admission sees it.
        now: the time on the running clock (which stops while hub or service is down).
        asked: id of a waiting ticket or of a lease -> when the user asked for the server, in seconds of the wall clock.
            Tickets that are not waiting are missing.
        ends: id of a lease -> its end, if that is known from a countdown or a progress report. Others are missing.
    """

    snapshot: QueueSnapshot
    now: datetime
    asked: Mapping[str, float] = field(default_factory=dict)
    ends: Mapping[str, KnownEnd] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WaitForecasts:
    """The likely waits for one snapshot of the queue. A ticket, offer or pool is missing if no wait is known for it.

    Attributes:
        tickets: ticket -> its likely wait.
        offers: offer -> likely wait of a user who joins its line.
        pools: pool -> how many servers have a device now and probably end soon, for a sentence to users.
        sizes: pool -> number of its devices, if that is known.
    """

    tickets: dict[str, Likely]
    offers: dict[OfferId, Likely]
    pools: dict[str, PoolView]
    sizes: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The accuracy of the forecasts for one pool. None means not known.

    Only the last busy episodes are judged. Each counts once, however many tickets it had.

    Attributes:
        matured: number of forecasts that are judged, because their servers have started.
        episodes: number of busy episodes that they belong to.
        coverage_90: share of the waits that were shorter than P90; 0.9 is right.
        coverage_80: share of the waits between P10 and P90; 0.8 is right.
        median_error: median difference between P50 and the real wait, in seconds.
        worse_than_plain: whether the median of earlier waits would have been a better forecast.
        rough: whether users see the forecasts marked as rough, because too few are judged or they are inaccurate.
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
    """Judge the forecasts of the last busy episodes (times in which somebody waited).

    Args:
        given: the forecasts of the pool, in the order in which the waits ended.
    """
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
    """Group forecasts by busy episode (the time until the line is empty), and return the last `EPISODES` groups.

    Args:
        given: forecasts with a known wait, in the order in which the waits ended.
    """
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
    """Return whether the median of all waits known when a ticket joined would have been a better forecast.

    False if too few busy episodes are known.

    Args:
        episodes: for each busy episode (a time in which somebody waits), its forecasts with their outcomes.
    """
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
    """Return the median of (value, weight) pairs whose weights add up to 1."""
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
    """Combine the upper bound of a wait with its likely wait, as users see both. No quantile exceeds the bound.

    Args:
        bound: the wait with its upper bound, if there is one.
        likely: the likely wait. None if none was computed.
        view: numbers about the pool. None if nothing was computed for it; `bound` is then returned unchanged.
        title: title of the offer, for the reason.
        rough: whether the likely wait is marked as rough.
        age: time since `likely` was computed.
        as_of: wall-clock time at which it was computed. None if `likely` is None.
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
    """Return P10, P50 and P90 of the wait that is left, if the likely wait was computed `age` ago.

    Args:
        at_most: the upper bound; None without an upper bound.
    """
    shown = likely.shown
    p10, p50, p90 = (max(0.0, each - age.total_seconds()) for each in (shown.p10, shown.p50, shown.p90))
    most = None if at_most is None else at_most.total_seconds()
    found = limited(replace(shown, p10=p10, p50=p50, p90=p90), most, likely.limit_is_p90)
    return [timedelta(seconds=each) for each in (found.p10, found.p50, found.p90)]


def _reason(bound: WaitForecast, view: PoolView, title: str) -> Reason | None:
    """Return the reason to show with a likely wait; None if there is nothing to explain.

    The reason describes when the servers that have such a GPU usually end. If there are too few users to show that, the
    reason of the upper bound is returned. The reason of the upper bound is also returned if the user's place in line
    ends before the wait.

    Args:
        bound: the wait with its upper bound, and the reason of that bound.
        view: numbers about the pool.
        title: title of the offer.
    """
    if bound.reason is not None and bound.reason.reason == "place-ends-first":
        return bound.reason
    found = usual_ends(view, title)
    if found is not None:
        return found
    return bound.reason if bound.at_most is not None else None


def usual_ends(view: PoolView, title: str, ahead: int | None = None) -> Reason | None:
    """Return a sentence about when the servers that have such a GPU usually end.

    None if there are so few users that the sentence would reveal one person's habits.

    Args:
        view: numbers about the pool.
        title: title of the offer.
        ahead: number of tickets ahead of the reader, which the sentence then includes. None for a text about the offer.
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
