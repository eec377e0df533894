"""What the wait forecast says and keeps of itself: values, and how a likely wait is told beside what limits prove.

Standard library only: pages, admission and the records read these. Not here: how a line is played (``play.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.forecast import WaitForecast
from hub_extensions.core.queue.interval import PLAY_ALONE, Interval, Trust, limited
from hub_extensions.core.reasons import Reason, explain

FEW = 20
"""Below so many finished uses of a pool nothing is said of how long people usually stay."""
PEOPLE = 3
"""Where fewer hold or wait, no reason is given by how long they usually stay: it would be about one of them."""
SOON_END = 3600.0
"""Seconds: who ends within the hour ends soon."""
VALID = timedelta(minutes=2)
"""An older one is not shown."""
LAST = 200
"""Forecasts that came true by which the forecast is judged."""
FEWEST_JUDGED = 50
"""With fewer it is not judged."""
COVERED = (0.80, 0.97)
"""A P90 that covers less or more of them is rough: 0.9 is meant."""
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
    """What was played for one ticket or offer, and what is told of it. Seconds from when it was computed.

    `trust`: as `Correction.trust` says, for a limit that is known later.
    """

    played: Interval
    shown: Interval
    trust: Trust = PLAY_ALONE


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
class Accuracy:
    """How good the forecasts of one pool were. None is not known.

    Attributes:
        matured: how many came true. coverage_90: the share that started before P90; coverage_80: from P10 to P90.
        median_error: seconds between the median and the real wait.
        rough: they are not to be relied on.
    """

    pool: str
    matured: int = 0
    coverage_90: float | None = None
    coverage_80: float | None = None
    median_error: float | None = None
    rough: bool = False


def accuracy_of(pool: str, given: Iterable[Given]) -> Accuracy:
    """By the last that came true; `given` in the order in which they did."""
    real = [(each.shown, each.waited) for each in given if each.end == "started" and each.waited is not None][-LAST:]
    if not real:
        return Accuracy(pool)
    before_90 = sum(waited <= shown.p90 for shown, waited in real) / len(real)
    within = sum(shown.p10 <= waited <= shown.p90 for shown, waited in real) / len(real)
    errors = sorted(abs(waited - shown.p50) for shown, waited in real)
    middle = (errors[(len(errors) - 1) // 2] + errors[len(errors) // 2]) / 2
    rough = len(real) >= FEWEST_JUDGED and not COVERED[0] <= before_90 <= COVERED[1]
    return Accuracy(pool, len(real), before_90, within, middle, rough)


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
    found = limited(replace(shown, p10=p10, p50=p50, p90=p90), most, likely.trust)
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
