"""What the wait forecast says and keeps of itself: values, and how a likely wait is told beside what limits prove.

Standard library only: pages, admission and the records read these. Not here: how a line is played (``simulate.py``).
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
"""Below so many finished uses of a pool nothing is said of how long people usually stay."""
PEOPLE = 3
"""Where fewer hold or wait, no reason is given by how long they usually stay: it would be about one of them."""
SOON_END = 3600.0
"""Seconds: who ends within the hour ends soon."""
VALID = timedelta(minutes=2)
"""An older one is not shown."""
LAST = 2000
"""Forecasts of a pool that came true and are kept at hand, the last ones; those of `EPISODES` busy episodes count."""
COVERED = (0.80, 0.97)
"""A P90 that covers less is rough, 0.9 is meant; one that covers more is, once `EPISODES` busy episodes are known."""
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
"""Reasons that only say why there is no upper limit."""


@dataclass(frozen=True, slots=True)
class Likely:
    """What was simulated for one ticket or offer, and what is shown of it. Seconds from when it was computed.

    `limit_is_p90`: where a limit is known later, it is the P90.
    """

    played: Interval
    shown: Interval
    limit_is_p90: bool = False


@dataclass(frozen=True, slots=True)
class Stay:
    """What one usage record teaches.

    Attributes:
        key: of the record. share: thousandths of each device. asked: when it was asked for, seconds by the wall clock.
        lasted: seconds it held its devices. at_limit: its time limit ended it.
        starting: seconds from admission to ready; None: not known.
        limit: the seconds it asked for, where users ask for some (a scheduler's log); None: they do not.
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
    """What is known of a server's end: a countdown, a progress report. Seconds from now; `spread` as a share of it."""

    seconds: float
    spread: float = 0.0


@dataclass(frozen=True, slots=True)
class PoolView:
    """What is known of one pool.

    Attributes:
        finished: uses that ended. held: leases. ending: of these, those that are likely to end within `SOON_END`.
        people: users who hold one; 0 where what they hold has no one name.
    """

    finished: int
    held: int
    people: int
    ending: int


@dataclass(frozen=True, slots=True)
class LikelyWaits:
    """One computation's answer.

    Attributes:
        at: the running time that it is for. elapsed: the machine's seconds then. took: seconds of a processor.
    """

    at: datetime
    elapsed: float
    tickets: Mapping[str, Likely] = field(default_factory=dict)
    offers: Mapping[OfferId, Likely] = field(default_factory=dict)
    pools: Mapping[str, PoolView] = field(default_factory=dict)
    took: float = 0.0


@dataclass(frozen=True, slots=True)
class Given:
    """A forecast that somebody in line was given, and what came true of it.

    Attributes:
        hour: full hours that it had waited then. at, running: when, by the wall clock and in running time.
        ahead: how many were ahead. rough: it was told as rough.
        end: ``started``, or why it is not known what would have come true: ``left``, ``changed``; "" while it waits.
        waited: seconds from the forecast to the start.
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
    """What a forecast depends on.

    Attributes:
        asked: ticket or lease -> when it was asked for, seconds by the wall clock.
        ends: lease -> what is known of its end. A lease that is missing has no known end.
    """

    snapshot: QueueSnapshot
    now: datetime
    asked: Mapping[str, float] = field(default_factory=dict)
    ends: Mapping[str, KnownEnd] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Forecasts:
    """The forecasts for a snapshot. A ticket, offer or pool that nothing can be forecast for is missing.

    Attributes:
        sizes: pool -> number of its devices, for each pool where it is known.
    """

    tickets: dict[str, Likely]
    offers: dict[OfferId, Likely]
    pools: dict[str, PoolView]
    sizes: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How good the forecasts of one pool were over the last busy episodes, each of which counts once. None: not known.

    Attributes:
        matured: how many forecasts came true. episodes: the busy episodes that they were of.
        coverage_90: the share that started before P90. coverage_80: the share from P10 to P90.
        median_error: seconds between the median and the real wait.
        worse_than_plain: the median of the waits that were known at the join would have been the better guess.
        rough: what is shown is marked as rough.
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
    """The forecast that is told: the quantiles beside the upper limit, and never beyond it.

    Args:
        view: of the pool that it waits for; None: nothing was computed of it.
        age: how long ago `likely` was computed; as_of: when, by the wall clock.
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
    """Each as it is now, `age` later; the limit is of now."""
    shown = likely.shown
    p10, p50, p90 = (max(0.0, each - age.total_seconds()) for each in (shown.p10, shown.p50, shown.p90))
    most = None if at_most is None else at_most.total_seconds()
    found = limited(replace(shown, p10=p10, p50=p50, p90=p90), most, likely.limit_is_p90)
    return [timedelta(seconds=each) for each in (found.p10, found.p50, found.p90)]


def _reason(bound: WaitForecast, view: PoolView, title: str) -> Reason | None:
    """Why so long: how soon those who hold one usually end, where that is about nobody in particular."""
    if bound.reason is not None and bound.reason.reason == "place-ends-first":
        return bound.reason
    found = usual_ends(view, title)
    if found is not None:
        return found
    return bound.reason if bound.at_most is not None else None


def usual_ends(view: PoolView, title: str, ahead: int | None = None) -> Reason | None:
    """How soon those who hold one usually end; with `ahead` as a place in line says it. None: it would be of one."""
    if view.people < PEOPLE or view.held < 2:
        return None
    if ahead is None and view.ending:
        return explain("usually-end", ending=view.ending, total=view.held, title=title)
    if ahead is None:
        return explain("usually-longer", title=title)
    if view.ending:
        return explain("in-use-usually-end", ending=view.ending, total=view.held, title=title, ahead=ahead)
    return explain("in-use-usually-longer", title=title, ahead=ahead)
