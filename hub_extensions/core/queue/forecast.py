"""How long a wait will be: an interval and an upper limit, or an honest "unknown".

This first version states only what enforced limits prove ("at most"). The quantiles are in the interface already and
stay None until durations are learned from usage records.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

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
) -> tuple[WaitForecast, ...]:
    """The wait of each place in one pool's line, first to last.

    The line is played forward with everybody using his time to the full: each device is given back when its last
    enforced end has come, the next in line takes it for `lifetime`, and so on. What really happens can only be sooner.

    Args:
        devices: identities of the devices of the pool that are ours to give.
        holdings: shares of them that are taken now.
        shares: the share each place in line asks for, in order.
        lifetime: what a new holder may keep it at most; None: nothing is promised.
        start_allowance: a start takes at most this long, or it is ended.
        max_starting: the start brake; every `max_starting` places cost one start.
        held_back: the brake holds everybody back now.
        by_others_too: others than this hub's servers may take devices of the pool before the line does.
    """
    if lifetime is None:
        return tuple(unknown(explain("no-limit")) for _ in shares)
    turn = start_allowance + lifetime + RELEASE_ALLOWANCE
    times = _latest_starts(devices, holdings, shares, turn, now)
    brakes = (position // max_starting + (1 if held_back else 0) for position in range(len(times)))
    bounded = explain("limits-ahead-unless-outside" if by_others_too else "limits-ahead")
    boundless = unknown(explain("one-without-limit"))
    return tuple(
        boundless if at is None else _at_most(max(at - now, timedelta(0)) + brake * start_allowance, bounded)
        for at, brake in zip(times, brakes, strict=True)
    )


def _at_most(bound: timedelta, reason: Reason) -> WaitForecast:
    return WaitForecast(False, None, None, None, bound, reason)


def _latest_starts(
    devices: Sequence[str],
    holdings: Sequence[Holding],
    shares: Sequence[int],
    turn: timedelta,
    now: datetime,
) -> list[datetime | None]:
    """When each place is given a device at the latest; None (and for all behind): nothing enforces it."""
    ours = set(devices)
    held = [holding for holding in holdings if holding.device in ours]
    if len({*shares, *(holding.share for holding in held)}) > 1:
        return _latest_starts_of_mixed_shares(held, len(shares), turn, now) if ours else [None] * len(shares)
    return _latest_starts_of_equal_shares(devices, held, shares, turn, now)


def _latest_starts_of_mixed_shares(
    held: Sequence[Holding], places: int, turn: timedelta, now: datetime
) -> list[datetime | None]:
    """A bound that packing cannot break: shorter use ahead may pack shares less well (Graham's anomalies, 1966).

    Once the one ahead has started, everything held ends within one turn, and then every device is empty.
    """
    if any(holding.ends_at is None for holding in held):
        return [None] * places
    empty = max((max(h.ends_at, now) + RELEASE_ALLOWANCE for h in held if h.ends_at is not None), default=now)
    return [empty + place * turn for place in range(places)]


def _latest_starts_of_equal_shares(
    devices: Sequence[str],
    holdings: Sequence[Holding],
    shares: Sequence[int],
    turn: timedelta,
    now: datetime,
) -> list[datetime | None]:
    """Equal shares are equal slots: first come, first served on them only gets sooner when somebody ends sooner."""
    free = dict.fromkeys(devices, WHOLE)
    ends: list[tuple[datetime, str, int]] = []
    for holding in holdings:
        free[holding.device] -= holding.share
        if holding.ends_at is not None:
            ends.append((max(holding.ends_at, now) + RELEASE_ALLOWANCE, holding.device, holding.share))
    heapq.heapify(ends)
    # candidates: the devices that might fit, so that a long line over many devices is not a scan of all for each place
    roomy = [(-room, device) for device, room in free.items() if room > 0]
    heapq.heapify(roomy)
    at = now
    starts: list[datetime | None] = []
    for share in shares:
        device = _roomiest(roomy, free, share)
        while device is None and ends:
            at, freed, amount = heapq.heappop(ends)
            free[freed] += amount
            heapq.heappush(roomy, (-free[freed], freed))
            device = _roomiest(roomy, free, share)
        if device is None:
            return starts + [None] * (len(shares) - len(starts))
        free[device] -= share
        if free[device] > 0:
            heapq.heappush(roomy, (-free[device], device))
        heapq.heappush(ends, (at + turn, device, share))
        starts.append(at)
    return starts


def _roomiest(roomy: list[tuple[int, str]], free: dict[str, int], share: int) -> str | None:
    """The device with the most room, if the share fits; stale entries are dropped on the way."""
    while roomy:
        room, device = roomy[0]
        if free[device] != -room:
            heapq.heappop(roomy)
            continue
        if -room < share:
            return None
        heapq.heappop(roomy)
        return device
    return None
