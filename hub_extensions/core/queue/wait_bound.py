"""The wait as a value, and its upper bound, which users see as "at most ...".

The bound follows from limits that are enforced: the maximum lifetime of a server and the maximum duration of a start.
The quantiles of the wait, which users see as "likely 25-50 min", come from past uses of the GPUs (``core/forecast``).
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
"""Maximum duration of a start, unless the administrator's timeouts are longer. The lifetime begins when it is over."""

RELEASE_ALLOWANCE = timedelta(minutes=1)
"""Maximum time from the end of a lifetime until the device is free: for saving notebooks, stopping the server and
ending left-over processes (SIGTERM, 10 s, SIGKILL)."""


@dataclass(frozen=True, slots=True)
class WaitForecast:
    """The wait from now until a server gets its device.

    Attributes:
        now: whether the server starts without a wait; the quantiles are zero then.
        p10, p50, p90: quantiles: the wait is shorter than this with a probability of 10, 50 and 90 %. None if not
            known.
        at_most: the longest wait that enforced limits allow. None without such a limit.
        reason: why the wait is this long, or why it is not known. None if there is nothing to explain.
        soon: the probability to start within 15 min, 1 h and 4 h; empty if it is not known.
        as_of: wall-clock time at which the quantiles were computed. None if they are not known.
        note: ``few-data`` if too few uses of GPUs have ended to know the quantiles. ``rough`` if too few earlier
            forecasts can be judged, or if they were inaccurate. "" otherwise.
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
    """The start brake: the limit of simultaneous starts. Servers without a GPU count too.

    Attributes:
        most: how many servers may be starting at the same time.
        takes: the longest time that one start takes.
    """

    most: int
    takes: timedelta

    def wait(self, before: int) -> timedelta:
        """Return the longest time for which the start brake can hold back a ticket whose GPU is free.

        In the worst case, later tickets for which a GPU was free have just taken all of the starts. From then on
        tickets start in the order of their places, and at least `most` starts end in each period of length `takes`.

        Args:
            before: number of waiting tickets, of all lines, with an earlier place.
        """
        return (1 + before // self.most) * self.takes


@dataclass(frozen=True, slots=True)
class Holding:
    """A share of a device that is taken by a lease.

    Attributes:
        device: identity of the device.
        share: thousandths of the device.
        ends_at: when a limit ends it at the latest; None if no limit enforces an end.
    """

    device: str
    share: int
    ends_at: datetime | None


def starts_now(reason: Reason) -> WaitForecast:
    """Return the forecast of a wait of zero, with this reason."""
    zero = timedelta(0)
    return WaitForecast(True, zero, zero, zero, zero, reason)


def unknown(reason: Reason) -> WaitForecast:
    """Return the forecast of a wait that is neither known nor bounded, with this reason."""
    return WaitForecast(False, None, None, None, None, reason)


QueueForecast = Callable[[int, int], WaitForecast]
"""The waits of one line. A function, because most places of a long line are never read.

Its arguments are the place in this line, from 0, and the number of tickets of all lines with an earlier place.
"""


def silent(reason: Reason) -> QueueForecast:
    """Return the forecasts of a line in which no wait has a bound, all with this reason."""
    nothing = unknown(reason)
    return lambda place, before: nothing


def after_other_starts(brake: StartBrake, before: int) -> WaitForecast:
    """Return the wait of a ticket whose GPU is free, and which waits only because too many servers are starting.

    Args:
        brake: the limit of simultaneous starts.
        before: number of waiting tickets, of all lines, with an earlier place.
    """
    return _at_most(brake.wait(before), explain("others-start"))


def best_of(forecasts: Sequence[WaitForecast]) -> WaitForecast:
    """Combine the waits of one ticket in several lines, any of which may serve it first.

    The result has the lowest upper bound, and the quantiles of the wait with the lowest P90. If no wait has a bound, it
    has the reason of the first wait.
    """
    bound = min(forecasts, key=lambda each: timedelta.max if each.at_most is None else each.at_most)
    likely = min(forecasts, key=lambda each: timedelta.max if each.p90 is None else each.p90)
    return replace(bound, p10=likely.p10, p50=likely.p50, p90=likely.p90)


def within_max_wait(forecast: WaitForecast, left: timedelta, max_wait: timedelta) -> WaitForecast:
    """Remove the upper bound of a wait if it is longer than the user may stay in line, because the place ends first.

    Args:
        left: time until the place in line ends.
        max_wait: how long a user may stay in line, for the reason.
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
    """Return the longest wait of each place in the line of one pool (all devices of one kind).

    The worst case is computed: all servers use their full lifetime and every start is as late as possible. A device is
    released when limits end its present servers at the latest. Then the next ticket in line gets it for `lifetime`, and
    so on.

    Args:
        devices: identities of the devices of the pool that this hub may give.
        holdings: shares of these devices that are taken now.
        shares: the shares of a device (thousandths) that tickets in line ask for.
        places: number of places whose bound will be read.
        lifetime: maximum time for which a new holder keeps a device. None without a limit.
        brake: the limit of simultaneous starts.
        by_others_too: whether pods that this hub did not start may take devices of the pool before the line does. The
            reason then adds that the bound does not include them.
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
"""A function from a place in line to the latest time at which it gets a device.

It returns None if no limit ensures that the place, or any place behind it, ever gets one.
"""


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
    """Return a function that gives the latest start of each place in line, if the shares have different sizes.

    With different sizes, servers that end sooner can make others start later, because the shares are packed worse
    (Graham 1966). So the times at which single devices become free give no bound. But there is a latest time at which
    all current servers have ended. In each turn after that time, at least as many servers start as there are devices.
    Otherwise a device would be empty, and the first ticket in line would get it. Devices that are held without an
    enforced end do not count. If no other device is left, the function returns None for each place.

    Args:
        devices: identities of the devices of the pool.
        held: the shares of these devices that are taken now.
        turn: the longest time from one start to the next on the same device.
        now: the present time.
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
    """Return a function that gives the latest start of each place in line, if all shares of devices are equal.

    With equal shares, no server starts later because another one ends sooner. A slot is the room for one share on a
    device. Each ticket in line takes the slot that is free next, for one turn (the longest time from one start to the
    next). Once all slots become free within one turn, their order repeats.

    Args:
        devices: identities of the devices.
        held: the shares of these devices that are taken now.
        share: thousandths of a device that each ticket asks for.
        places: number of places whose latest start will be read.
        turn: the longest time from one start to the next on the same device.
        now: the present time.
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
    """Return when each slot (room for one share on a device) becomes free at the latest.

    Slots that are held without an enforced end are left out. If more shares are held on a device than fit, the servers
    that end first free no slot.

    Args:
        devices: identities of the devices.
        held: the shares of these devices that are taken now.
        on_one: number of slots of one device.
    """
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
