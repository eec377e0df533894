"""How long a wait will be: an interval and an upper limit, or an honest "unknown".

This module has the upper bound ("at most") that follows from enforced limits. The quantiles are learned from finished
uses in ``core/forecast``.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.queue.discipline import slots
from hub_extensions.core.text.reasons import Reason, explain

START_ALLOWANCE = timedelta(minutes=3)
"""A start that takes longer is ended, where the admin's time-outs are not longer: the lifetime runs from ready on."""

RELEASE_ALLOWANCE = timedelta(minutes=1)
"""Saving notebooks, stopping the server and ending left-overs (SIGTERM, 10 s, SIGKILL) take less."""


@dataclass(frozen=True, slots=True)
class WaitForecast:
    """The wait from now until a device is given.

    Attributes:
        now: it starts without a wait; the quantiles are zero then.
        p10, p50, p90: the wait is shorter than this with that probability; None is not known.
        at_most: proved by limits that are enforced; None where nothing enforces one.
        reason: why this long, or why it is not known; None: nothing is to be said.
        soon: the probability to start within 15 min, 1 h and 4 h; empty: not known.
        as_of: when the quantiles were computed, by the wall clock; None: they are not known, or follow from now.
        note: ``few-data``: too few uses have ended to know the quantiles; ``rough``: there were few busy times yet, or
            they missed often of late.
    """

    now: bool
    p10: timedelta | None
    p50: timedelta | None
    p90: timedelta | None
    at_most: timedelta | None
    reason: Reason | None
    soon: tuple[float, ...] = ()
    as_of: datetime | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class StartBrake:
    """So many servers start at once at most, CPU only included, and a start takes so long at most, or it is ended."""

    most: int
    takes: timedelta

    def wait(self, before: int) -> timedelta:
        """How long it may hold somebody back whose GPU is free.

        All starts may have been taken a moment before, by servers that came later and could have theirs at once. From
        then on whoever came first starts first: where `most` starts last `takes` each, as many end in that time.

        Args:
            before: how many wait who came before, in whatever line.
        """
        return (1 + before // self.most) * self.takes


@dataclass(frozen=True, slots=True)
class Holding:
    """A share of a device that is taken; `ends_at` None: nothing enforces an end."""

    device: str
    share: int
    ends_at: datetime | None


def starts_now(reason: Reason) -> WaitForecast:
    """No wait at all."""
    zero = timedelta(0)
    return WaitForecast(True, zero, zero, zero, zero, reason)


def unknown(reason: Reason) -> WaitForecast:
    """Nothing can be said of the wait."""
    return WaitForecast(False, None, None, None, None, reason)


QueueForecast = Callable[[int, int], WaitForecast]
"""The wait by place in one line, the first is 0, and how many wait in all lines who came before. Found when it is asked
for: of a long line most of it nobody asks."""


def silent(reason: Reason) -> QueueForecast:
    """A line of which nothing can be said."""
    nothing = unknown(reason)
    return lambda place, before: nothing


def after_other_starts(brake: StartBrake, before: int) -> WaitForecast:
    """Nothing is missing but a start: the start brake holds it back."""
    return _at_most(brake.wait(before), explain("others-start"))


def best_of(forecasts: Sequence[WaitForecast]) -> WaitForecast:
    """Of several lines, any of which may be the first to serve: the best limit, and the best interval.

    Of nothing that is known the first says why.
    """
    bound = min(forecasts, key=lambda each: timedelta.max if each.at_most is None else each.at_most)
    likely = min(forecasts, key=lambda each: timedelta.max if each.p90 is None else each.p90)
    return replace(bound, p10=likely.p10, p50=likely.p50, p90=likely.p90)


def within_max_wait(forecast: WaitForecast, left: timedelta, max_wait: timedelta) -> WaitForecast:
    """No limit beyond the end of the place is said, for then its turn does not come any more.

    Args:
        left: how long the place lasts from now on. max_wait: how long a place lasts.
    """
    if forecast.at_most is None or forecast.at_most <= left:
        return forecast
    hours = max_wait.total_seconds() / 3600
    return replace(forecast, at_most=None, reason=explain("place-ends-first", hours=hours))


def forecast_queue(
    *,
    devices: Sequence[str],
    holdings: Sequence[Holding],
    shares: Collection[int],
    places: int,
    lifetime: timedelta | None,
    brake: StartBrake,
    now: datetime,
    by_others_too: bool = False,
) -> QueueForecast:
    """The wait of each place in one pool's line.

    The line is played forward with everybody using his time to the full, and every start as late as it can be: each
    device is given back when its last enforced end has come, the next in line takes it for `lifetime`, and so on. What
    really happens can only be sooner.

    Args:
        devices: identities of the devices of the pool that are ours to give.
        holdings: shares of them that are taken now.
        shares: all that anybody in line may be given of a device, in any order.
        places: how many places of the line will be asked for.
        lifetime: what a new holder may keep it at most; None: nothing is promised.
        by_others_too: others than this hub's servers may take devices of the pool before the line does.
    """
    if lifetime is None:
        return silent(explain("no-limit"))
    # from one start to the next on the same device: it may be held back, start late, and use its time to the full
    turn = brake.takes + brake.takes + lifetime + RELEASE_ALLOWANCE
    latest = _latest_starts(devices, holdings, shares, places, turn, now)
    bounded = explain("limits-ahead-unless-outside" if by_others_too else "limits-ahead")
    boundless = unknown(explain("one-without-limit"))

    def wait(place: int, before: int) -> WaitForecast:
        at = latest(place)
        return boundless if at is None else _at_most(max(at - now, timedelta(0)) + brake.wait(before), bounded)

    return wait


def _at_most(bound: timedelta, reason: Reason) -> WaitForecast:
    return WaitForecast(False, None, None, None, bound, reason)


Latest = Callable[[int], "datetime | None"]
"""When a place is given a device at the latest; None (and for all behind): nothing enforces it."""


def _latest_starts(
    devices: Sequence[str],
    holdings: Sequence[Holding],
    shares: Collection[int],
    places: int,
    turn: timedelta,
    now: datetime,
) -> Latest:
    ours = set(devices)
    held = [holding for holding in holdings if holding.device in ours]
    different = {*shares, *(holding.share for holding in held)}
    if len(different) > 1:
        return _latest_starts_of_mixed_shares(ours, held, turn, now)
    return _latest_starts_of_equal_shares(devices, held, min(different, default=WHOLE), places, turn, now)


def _never(place: int) -> None:
    return None


def _latest_starts_of_mixed_shares(
    devices: Collection[str], held: Sequence[Holding], turn: timedelta, now: datetime
) -> Latest:
    """A bound that packing cannot break: shorter use ahead may pack shares less well (Graham's anomalies, 1966).

    In each turn after the last of today's ends at least as many start as there are cards: else one of them is empty,
    and the first in line fits on it. A card that somebody holds without an end is none of them.
    """
    endless = {holding.device for holding in held if holding.ends_at is None}
    cards = len(set(devices) - endless)
    if not cards:
        return _never
    ends = (h.ends_at for h in held if h.device not in endless and h.ends_at is not None)
    empty = max((max(end, now) + RELEASE_ALLOWANCE for end in ends), default=now)
    return lambda place: empty + place // cards * turn


def _latest_starts_of_equal_shares(
    devices: Sequence[str], held: Sequence[Holding], share: int, places: int, turn: timedelta, now: datetime
) -> Latest:
    """Equal shares are equal slots: first come, first served on them only gets sooner when somebody ends sooner.

    The k-th to come takes the slot that is free next, for a turn. From where all slots lie within one turn on, they
    take turns in one order.
    """
    free_at = _free_at(devices, held, slots(WHOLE, share), now)
    if not free_at:
        return _never
    heapq.heapify(free_at)
    last, before = max(free_at), list[datetime]()
    while last - free_at[0] > turn and len(before) < places:
        before.append(free_at[0])
        heapq.heapreplace(free_at, free_at[0] + turn)
    order = sorted(free_at)

    def latest(place: int) -> datetime:
        if place < len(before):
            return before[place]
        turns, at = divmod(place - len(before), len(order))
        return order[at] + turns * turn

    return latest


def _free_at(devices: Sequence[str], held: Sequence[Holding], on_one: int, now: datetime) -> list[datetime]:
    """When each place for one share is free; one that nothing frees is none. Of too many on a device the first wait."""
    ends: dict[str, list[datetime | None]] = {device: [] for device in devices}
    for holding in held:
        end = holding.ends_at
        ends[holding.device].append(None if end is None else max(end, now) + RELEASE_ALLOWANCE)
    found: list[datetime] = []
    for on_device in ends.values():
        known = sorted(end for end in on_device if end is not None)
        too_many = max(0, len(on_device) - on_one)
        found += [now] * (on_one - len(on_device)) + known[too_many:]
    return found
