"""The upper bound of a wait ("at most …") that the service would show to a user who joins the line.

The bound holds because every session has a time limit; the longest one of the log is used. A session with several
devices counts as that many users in line, for which the bound is not proven.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.queue.model import QueueLimits
from hub_extensions.core.queue.wait_bound import START_ALLOWANCE, Holding, StartBrake, forecast_queue
from hub_extensions.tools.backtest.world import LogSession, World

BEGIN = datetime(2000, 1, 1, tzinfo=timezone.utc)
BRAKE = StartBrake(QueueLimits().max_starting, START_ALLOWANCE)


def bound_of(world: World, longest: float, now: float) -> float | None:
    """Return the upper bound of the wait of the last session in line, in seconds; None if no limit is enforced.

    Args:
        world: the pool with its running and waiting sessions.
        longest: the longest time limit of a session in this log, in seconds.
        now: the current time of the replay.
    """
    at = _at(now)
    holdings = tuple(
        Holding(str(place), _share(running.session, world.slices), _end(running.session, running.since))
        for running in world.running.values()
        for place in running.places
    )
    places = sum(session.devices for session in world.waiting)
    latest = forecast_queue(
        devices=[str(place) for place in range(len(world.free))],
        holdings=holdings,
        shares={_share(session, world.slices) for session in world.waiting},
        places=places,
        lifetime=timedelta(seconds=longest),
        brake=BRAKE,
        now=at,
    )
    found = latest(places - 1, len(world.waiting) - 1).at_most
    return None if found is None else found.total_seconds()


def _at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def _end(session: LogSession, since: float) -> datetime | None:
    return None if session.limit is None else _at(since + session.limit)


def _share(session: LogSession, slices: int) -> int:
    """Return which part of each of its GPUs a session takes, in thousandths, the unit of shares in the hub's offers.

    Args:
        slices: number of slices of a GPU.
    """
    return WHOLE if session.slices == slices else WHOLE * session.slices // slices
