"""How long a wait will be: an interval and an upper limit, or an honest "unknown".

This first version states only what enforced limits prove ("at most"). The quantiles are in the interface already and
stay None until durations are learned from usage records.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import overload

from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.reasons import Reason, explain

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
    """

    now: bool
    p10: timedelta | None
    p50: timedelta | None
    p90: timedelta | None
    at_most: timedelta | None
    reason: Reason | None


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


class LineForecast(Sequence[WaitForecast]):
    """The wait of each place of a line, first to last, found when it is looked at: most of a long line nobody asks."""

    def __init__(self, places: int, of: Callable[[int], WaitForecast]) -> None:
        self._places = range(places)
        self._of = of

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, place: int) -> WaitForecast: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[WaitForecast]: ...

    def __getitem__(self, place: int | slice) -> WaitForecast | Sequence[WaitForecast]:
        if isinstance(place, slice):
            return [self._of(each) for each in self._places[place]]
        return self._of(self._places[place])


def forecast_line(
    *,
    devices: Sequence[str],
    holdings: Sequence[Holding],
    shares: Sequence[int],
    lifetime: timedelta | None,
    start_allowance: timedelta = START_ALLOWANCE,
    now: datetime,
    max_starting: int,
    held_back: bool,
    by_others_too: bool = False,
) -> LineForecast:
    """The wait of each place in one pool's line, first to last.

    The line is played forward with everybody using his time to the full: each device is given back when its last
    enforced end has come, the next in line takes it for `lifetime`, and so on. What really happens can only be sooner.

    Args:
        devices: identities of the devices of the pool that are ours to give.
        holdings: shares of them that are taken now.
        shares: the shares that the places in line ask for, in any order: where they differ, what is said is the same.
        lifetime: what a new holder may keep it at most; None: nothing is promised.
        start_allowance: a start takes at most this long, or it is ended.
        max_starting: the start brake; every `max_starting` places cost one start.
        held_back: the brake holds everybody back now.
        by_others_too: others than this hub's servers may take devices of the pool before the line does.
    """
    if lifetime is None:
        no_limit = unknown(explain("no-limit"))
        return LineForecast(len(shares), lambda place: no_limit)
    latest = _latest_starts(devices, holdings, shares, start_allowance + lifetime + RELEASE_ALLOWANCE, now)
    bounded = explain("limits-ahead-unless-outside" if by_others_too else "limits-ahead")
    boundless = unknown(explain("one-without-limit"))

    def wait(place: int) -> WaitForecast:
        at = latest(place)
        if at is None:
            return boundless
        brake = place // max_starting + (1 if held_back else 0)
        return _at_most(max(at - now, timedelta(0)) + brake * start_allowance, bounded)

    return LineForecast(len(shares), wait)


def _at_most(bound: timedelta, reason: Reason) -> WaitForecast:
    return WaitForecast(False, None, None, None, bound, reason)


Latest = Callable[[int], "datetime | None"]
"""When a place is given a device at the latest; None (and for all behind): nothing enforces it."""


def _latest_starts(
    devices: Sequence[str],
    holdings: Sequence[Holding],
    shares: Sequence[int],
    turn: timedelta,
    now: datetime,
) -> Latest:
    ours = set(devices)
    held = [holding for holding in holdings if holding.device in ours]
    different = {*shares, *(holding.share for holding in held)}
    if len(different) > 1:
        return _latest_starts_of_mixed_shares(held, turn, now) if ours else _never
    return _latest_starts_of_equal_shares(devices, held, min(different, default=WHOLE), len(shares), turn, now)


def _never(place: int) -> None:
    return None


def _latest_starts_of_mixed_shares(held: Sequence[Holding], turn: timedelta, now: datetime) -> Latest:
    """A bound that packing cannot break: shorter use ahead may pack shares less well (Graham's anomalies, 1966).

    Once the one ahead has started, everything held ends within one turn, and then every device is empty.
    """
    if any(holding.ends_at is None for holding in held):
        return _never
    empty = max((max(h.ends_at, now) + RELEASE_ALLOWANCE for h in held if h.ends_at is not None), default=now)
    return lambda place: empty + place * turn


def _latest_starts_of_equal_shares(
    devices: Sequence[str], held: Sequence[Holding], share: int, places: int, turn: timedelta, now: datetime
) -> Latest:
    """Equal shares are equal slots: first come, first served on them only gets sooner when somebody ends sooner.

    The k-th to come takes the slot that is free next, for a turn. From where all slots lie within one turn on, they
    take turns in one order.
    """
    slots = _slots(devices, held, WHOLE // share, now)
    if not slots:
        return _never
    heapq.heapify(slots)
    last, before = max(slots), list[datetime]()
    while last - slots[0] > turn and len(before) < places:
        before.append(slots[0])
        heapq.heapreplace(slots, slots[0] + turn)
    order = sorted(slots)

    def latest(place: int) -> datetime:
        if place < len(before):
            return before[place]
        turns, at = divmod(place - len(before), len(order))
        return order[at] + turns * turn

    return latest


def _slots(devices: Sequence[str], held: Sequence[Holding], on_one: int, now: datetime) -> list[datetime]:
    """When each place for one share is free; one that nothing frees is none. Of too many on a device the first wait."""
    ends: dict[str, list[datetime | None]] = {device: [] for device in devices}
    for holding in held:
        end = holding.ends_at
        ends[holding.device].append(None if end is None else max(end, now) + RELEASE_ALLOWANCE)
    slots: list[datetime] = []
    for on_device in ends.values():
        known = sorted(end for end in on_device if end is not None)
        too_many = max(0, len(on_device) - on_one)
        slots += [now] * (on_one - len(on_device)) + known[too_many:]
    return slots
