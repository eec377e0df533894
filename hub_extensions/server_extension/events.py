"""What every page of this server is told about its end, seen or hidden: events of Jupyter Server's own stream.

JupyterLab keeps that stream (``api/events/subscribe``) open by itself, so a hidden page needs no connection of ours.
Not here: what the panel shows (``broadcast.py``), and when a server ends; that is the service's business.
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
"""The schema's id. The name ends in .invalid because nothing is to be fetched from there."""
SCHEMA_FILE = Path(__file__).parent / "event_schemas" / "server-end" / "v1.yaml"
REPEAT_SECONDS = 60.0
QUIET_SECONDS = 30.0
"""Silence after which the next look says ``quiet``: proxies cut a stream that is silent for a minute (nginx:
``proxy_read_timeout``, 60 s), and JupyterLab does not mend it while its page is hidden. Looks come each 10 s, and 10 s
later where neither the kernels nor the service answer."""


class EndWatch:
    """Turns the service's successive kinds into events: when the end comes near, when it moves, when it is off.

    Nothing is sent here; `clock` runs in seconds. While it warns it says so again each minute: a page may have
    missed it, and knows by cause and time that it is the same.
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
        """The kinds to say now that the service has answered: of ``warn``, ``over``, ``save``, none or more.

        `wall`: the time now. A hidden page's own timers are late: it is waked for the last warning.
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
        """Has nothing been said for so long that ``quiet`` is to be? Whether the service answers does not matter."""
        first = self._sent_at is None
        if self._sent_at is None or clock - self._sent_at >= self._quiet_seconds:
            self._sent_at = clock
            return not first
        return False


class EndEvents:
    """Says the kinds of `EndWatch` on the stream.

    Args:
        emit: Jupyter Server's ``event_logger.emit``, by keyword `schema_id` and `data`.
        clock: runs in seconds.
    """

    def __init__(
        self, emit: Callable[..., Any], watch: EndWatch | None = None, *, clock: Callable[[], float] = monotonic
    ) -> None:
        self._emit = emit
        self._watch = watch or EndWatch()
        self._clock = clock

    def take(self, state: ServerState) -> None:
        """The service has said something: pass on what the pages need to know of it."""
        for kind in self._watch.due(state, self._clock(), datetime.now(timezone.utc)):
            self._send(kind, state.countdown, state.keep)

    def keep_alive(self) -> None:
        """The service was asked, whether it answered or not: no stream is to be silent for long."""
        if self._watch.quiet(self._clock()):
            self._send("quiet", None, None)

    def _send(self, kind: str, countdown: Countdown | None, keep: Keep | None) -> None:
        event = EndEvent(PROTOCOL_VERSION, datetime.now(timezone.utc), kind, countdown, keep)
        self._emit(schema_id=END_EVENT_SCHEMA, data=json.loads(encode(event)))


def is_followed() -> bool:
    """A page, seen or hidden, has the stream open: it can be asked to save."""
    from jupyter_server.services.events.handlers import SubscribeWebsocket  # loaded with Jupyter Server's routes

    return any(isinstance(each, SubscribeWebsocket) for each in open_websockets())


def _is_last(state: ServerState, wall: datetime | None) -> bool:
    """The time of the last warning has come."""
    last = state.countdown.last_warning if state.countdown is not None else None
    return last is not None and wall is not None and wall >= last


def _of(countdown: Countdown) -> tuple[str, datetime]:
    return countdown.cause, countdown.stops_at
