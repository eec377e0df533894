"""The return of a server: it is started again without a GPU after its GPU was taken back.

| situation                                                        | step       |
| ---------------------------------------------------------------- | ---------- |
| it has come back, and that run has ended                         | forgotten  |
| its user has asked for a server meanwhile                        | forgotten  |
| its stop is under way, or the hub does not list it any more      | waited for |
| its stop was not carried out: it runs on                         | forgotten  |
| its GPU is not free yet, which is the proof of the stop          | waited for |
| the hub still stops it                                           | waited for |
| … either of them for `LONGEST_STOP`                              | given up   |
| it is not there                                                  | started    |
| it was asked for, and runs                                       | back       |
| it was asked for, and starts                                     | waited for |
| it was asked for, and is not there after `ANSWER`                | started    |
| … for the last time                                              | given up   |

Times are on the running clock, which stands still while hub or service is down.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum

from hub_extensions.core.offers.offer_id import CPU
from hub_extensions.core.offers.user_options import others_of
from hub_extensions.core.stops.causes import GIVEN_BACK_FOR_CPU, Cause, StopCause

LONGEST_STOP = timedelta(minutes=10)
"""A return is given up if the stop before it takes longer than this."""
ANSWER = timedelta(seconds=30)
"""Time after the request for a start in which the hub may not list the server yet, or not any more."""
MOST_TRIES = 2
"""Number of requests to start the server after which the return is given up."""


class ReturnStep(Enum):
    """The next step for a server that is to be started again without a GPU.

    The table in the module's docstring shows when each step is taken.
    """

    WAIT = "wait"
    START = "start"
    BACK = "back"
    GIVE_UP = "give up"
    FORGET = "forget"


@dataclass(frozen=True)
class ServerReturn:
    """A server that is to be started again without a GPU, or has been started so.

    Attributes:
        user, server: name of the user and of the server.
        options: the hub's user options of the run that was stopped, changed to CPU only.
        stopped: when the hub was asked to stop it. `None` before.
        asked: when the hub was last asked to start the server. `None` before.
        tries: how often the hub was asked to start it.
        run: when the server was ready without a GPU (`ServerFacts.started`). `None` before.
        ended: when the run that is stopped was ready (`ServerFacts.started`), which distinguishes it from later runs.
            `None` if that is not known.
    """

    user: str
    server: str
    options: Mapping[str, object] = field(default_factory=dict)
    stopped: datetime | None = None
    asked: datetime | None = None
    tries: int = 0
    run: datetime | None = None
    ended: datetime | None = None


def comes_back(orders: Collection[StopCause], cause: Cause | None, *, soft: bool, on_gpu: bool) -> bool:
    """Return whether a server that is stopped is started again without a GPU.

    If somebody ordered the stop, the server comes back only if its user gave the GPU back and chose to go on without a
    GPU. For other causes, and if a borrowed GPU is taken back, the settings decide. No server comes back after a
    sign-out, or if it holds no GPU.

    Args:
        orders: the orders to stop the server.
        cause: the cause for which it is stopped; `None` if it is not known.
        soft: whether the settings let servers come back without a GPU (`CullPolicy.restart_on_cpu`).
        on_gpu: whether the server holds a GPU.
    """
    codes = {each.code for each in orders if each.cause is not Cause.RECLAIMED}
    causes = {each.cause for each in orders}
    if codes:
        return GIVEN_BACK_FOR_CPU in codes and Cause.SIGNED_OUT not in causes and on_gpu
    return soft and on_gpu and cause is not Cause.SIGNED_OUT


def cpu_options(options: Mapping[str, object]) -> Mapping[str, object]:
    """Return a server's user options with the offer changed to CPU only."""
    return {**others_of(options), "offer": CPU}


def next_step(
    back: ServerReturn,
    now: datetime,
    *,
    holds_gpu: bool,
    has_ticket: bool,
    listed: bool,
    run: datetime | None,
    on_gpu: bool = False,
    stopping: bool = False,
) -> ReturnStep:
    """Return what to do next about a server that is to come back, by the table in the module's docstring.

    Args:
        back: the return so far.
        now: the present time of the running clock, which stands still while hub or service is down.
        holds_gpu: whether one of the server's leases (rights to a device) has not ended.
        has_ticket: whether the user has asked for the server again meanwhile, so that it waits in line or is starting.
        listed: whether the hub lists the server, as running or pending.
        run: when the server's present run was ready (`ServerFacts.started`); `None` if no run is ready.
        on_gpu: whether the present run has a GPU.
        stopping: whether this service or the hub is stopping the server.
    """
    if back.run is not None:
        return ReturnStep.WAIT if run == back.run else ReturnStep.FORGET
    if back.asked is not None:
        if run is not None:
            return ReturnStep.FORGET if on_gpu else ReturnStep.BACK
        if has_ticket or listed or now - back.asked < ANSWER:
            return ReturnStep.WAIT
        return ReturnStep.START if back.tries < MOST_TRIES else ReturnStep.GIVE_UP
    if has_ticket:
        return ReturnStep.FORGET
    if run is not None:
        return ReturnStep.FORGET if run != back.ended or (listed and not stopping) else ReturnStep.WAIT
    if holds_gpu or stopping:
        late = back.stopped is not None and now - back.stopped > LONGEST_STOP
        return ReturnStep.GIVE_UP if late else ReturnStep.WAIT
    return ReturnStep.FORGET if listed else ReturnStep.START
