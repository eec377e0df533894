"""Events about the coming stop of this server, sent to all its pages on Jupyter Server's own event stream.

JupyterLab keeps that stream (``api/events/subscribe``) open also while its page is hidden. So a hidden page learns of
the stop without a connection of this extension.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from time import monotonic
from typing import Any

from hub_extensions.core.messages import Countdown, EndEvent, Keep, ServerState
from hub_extensions.server_extension.codec import PROTOCOL_VERSION, encode
from hub_extensions.server_extension.recheck import open_websockets

END_EVENT_SCHEMA = "https://jupyterhub-gpu.invalid/events/server-end/v1"
"""The id of the schema. The name ends in .invalid because nothing can be fetched from there."""
SCHEMA_FILE = Path(__file__).parent / "event_schemas" / "server-end" / "v1.yaml"
REPEAT_SECONDS = 60.0
QUIET_SECONDS = 30.0
"""If no event was sent for this long, the next check sends the event ``quiet``, which only keeps the stream open.
Proxies close a stream that is silent for a minute (nginx: ``proxy_read_timeout``, 60 s), and JupyterLab does not reopen
it while its page is hidden. Checks come every 10 s, or every 20 s if neither the kernels nor the service answer.
"""


class EndWatch:
    """Compares successive states of the service and decides which events about the stop of this server are due.

    Events are due when the stop comes near, moves, or is withdrawn. A warning is repeated each minute, because a page
    may have missed it; pages recognise a repeat by cause and time. `EndEvents` sends the events.

    Args:
        repeat_seconds: interval at which a warning is repeated.
        quiet_seconds: after this time without an event, the event ``quiet`` is due, which keeps the stream open.
    """

    def __init__(self, repeat_seconds: float = REPEAT_SECONDS, quiet_seconds: float = QUIET_SECONDS) -> None:
        self._repeat_seconds = repeat_seconds
        self._quiet_seconds = quiet_seconds
        self._warned: Countdown | None = None
        self._saving = False
        self._last = False
        self._announced_at = 0.0
        self._sent_at: float | None = None

    def due(self, state: ServerState, clock: float, wall: datetime | None = None) -> tuple[str, ...]:
        """Return the kinds of the events that have to be sent after an answer of the service.

        ``warn`` announces the stop, ``over`` withdraws it, and ``save`` asks the pages to save the open notebooks.

        Args:
            state: the answer.
            clock: the monotonic clock, in seconds.
            wall: the current wall-clock time. With it, the last warning before the stop is also sent as an event,
                because a hidden page's own timers run late. `None` leaves it out.
        """
        kinds = []
        before, last = self._warned, self._last
        self._last = _is_last(state, wall)
        countdown = state.countdown if state.countdown is not None and state.countdown.warn else None
        again = clock - self._announced_at >= self._repeat_seconds
        if countdown is None and before is not None:
            kinds.append("over")
        waked = self._last and not last
        if countdown is not None and (again or waked or before is None or _of(before) != _of(countdown)):
            kinds.append("warn")
        if state.save and (again or not self._saving):
            kinds.append("save")
        self._warned, self._saving = countdown, state.save
        if kinds:
            self._announced_at = self._sent_at = clock
        return tuple(kinds)

    def quiet(self, clock: float) -> bool:
        """Return whether the event ``quiet`` has to be sent now, because no event was sent for `QUIET_SECONDS`.

        The event has no content. It keeps the stream open, because a proxy closes a stream that is silent for a minute.
        """
        first = self._sent_at is None
        if self._sent_at is None or clock - self._sent_at >= self._quiet_seconds:
            self._sent_at = clock
            return not first
        return False


class EndEvents:
    """Sends the events that `EndWatch` decides on to the pages, by Jupyter Server's event stream.

    Args:
        emit: Jupyter Server's ``event_logger.emit``, called with `schema_id` and `data`.
        clock: returns the monotonic clock in seconds.
    """

    def __init__(
        self, emit: Callable[..., Any], watch: EndWatch | None = None, *, clock: Callable[[], float] = monotonic
    ) -> None:
        self._emit = emit
        self._watch = watch or EndWatch()
        self._clock = clock

    def take(self, state: ServerState) -> None:
        """Send pages the events about the stop of this server that follow from a new state of the service."""
        for kind in self._watch.due(state, self._clock(), datetime.now(timezone.utc)):
            self._send(kind, state.countdown, state.keep)

    def keep_alive(self) -> None:
        """Send the event ``quiet``, which keeps the stream open, if no other event was sent for `QUIET_SECONDS`.

        Called after each request to the service, answered or not.
        """
        if self._watch.quiet(self._clock()):
            self._send("quiet", None, None)

    def _send(self, kind: str, countdown: Countdown | None, keep: Keep | None) -> None:
        event = EndEvent(PROTOCOL_VERSION, datetime.now(timezone.utc), kind, countdown, keep)
        self._emit(schema_id=END_EVENT_SCHEMA, data=json.loads(encode(event)))


def is_followed() -> bool:
    """Return whether a page, seen or hidden, has the event stream open and can therefore be asked to save."""
    from jupyter_server.services.events.handlers import SubscribeWebsocket  # loaded with Jupyter Server's routes

    return any(isinstance(each, SubscribeWebsocket) for each in open_websockets())


def _is_last(state: ServerState, wall: datetime | None) -> bool:
    """Return whether it is time for the last warning before the stop.

    False if no stop is coming, or if `wall` is `None`.
    """
    last = state.countdown.last_warning if state.countdown is not None else None
    return last is not None and wall is not None and wall >= last


def _of(countdown: Countdown) -> tuple[str, datetime]:
    return countdown.cause, countdown.stops_at
