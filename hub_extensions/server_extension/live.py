"""The snapshot the panel shows, pushed on change (once a second at most) and every 10 s.

Nothing is read here: the sampler's and the service's last words are put together. The listeners' connections are
one-way (see ``routes.py``), so that an open panel is no activity. A listener that does not read is dropped.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from datetime import datetime, timezone
from time import monotonic
from typing import Protocol

from hub_extensions.core.messages import Snapshot
from hub_extensions.server_extension.sampler import Sampler
from hub_extensions.server_extension.service import ServiceLink
from hub_extensions.server_extension.wire import encode

WIRE_VERSION = 2
TICK_SECONDS = 1.0
AT_LEAST_EVERY_SECONDS = 10.0
UNREAD_SECONDS = 30.0
MOST_LISTENERS = 50
LONG_AGO = datetime(1970, 1, 1, tzinfo=timezone.utc)

log = logging.getLogger(__name__)


class Listener(Protocol):
    """One connection of a panel.

    Attributes:
        watching: somebody sees the page; False is told changes of the server's state, and numbers every 10 s.
    """

    watching: bool

    def push(self, text: str) -> asyncio.Future[None] | None:
        """Send; the future ends when the text has left this process. None: the connection is closed."""
        ...

    def drop(self, code: int, reason: str) -> None:
        """Close it, with a code of RFC 6455."""
        ...


class Live:
    """Makes snapshots and pushes them.

    Attributes:
        opened: a panel has been connected since the server started.
    """

    def __init__(
        self, sampler: Sampler, *, tick_seconds: float = TICK_SECONDS, unread_seconds: float = UNREAD_SECONDS
    ) -> None:
        self._sampler = sampler
        self._unread_seconds = unread_seconds
        self._tick_seconds = tick_seconds
        self._link: ServiceLink | None = None
        self._listeners: dict[Listener, tuple[asyncio.Future[None], float] | None] = {}
        self._task: asyncio.Task[None] | None = None
        self._last: Snapshot | None = None
        self._sent_at = 0.0
        self.opened = False

    def use(self, link: ServiceLink) -> None:
        """Where the service's words come from."""
        self._link = link

    def snapshot(self) -> Snapshot:
        """The last words of sampler and service, together."""
        sampled = self._sampler.latest()
        return Snapshot(
            version=WIRE_VERSION,
            at=datetime.now(timezone.utc),
            state=sampled.state,
            sentence=sampled.sentence,
            gpus=sampled.gpus,
            server=None if self._link is None else self._link.state,
            service_note="" if self._link is None else self._link.note,
        )

    def join(self, listener: Listener) -> None:
        """A panel connects: it gets a snapshot at once. One too many is told so and closed."""
        if len(self._listeners) >= MOST_LISTENERS:
            listener.drop(1013, "too many open panels")
            return
        self.opened = True
        if self._link is not None:
            self._link.soon()
        self._listeners[listener] = None
        if listener.watching:
            self._sampler.watch()
        self._send(listener, encode(self.snapshot()))
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    def leave(self, listener: Listener) -> None:
        """A panel is gone."""
        if listener not in self._listeners:
            return
        del self._listeners[listener]
        if listener.watching:
            self._sampler.unwatch()

    def stop(self) -> None:
        """The server ends: close what is open."""
        if self._task is not None:
            self._task.cancel()
        for listener in tuple(self._listeners):
            self.leave(listener)
            listener.drop(1001, "the server stops")

    async def _run(self) -> None:
        while self._listeners:
            await asyncio.sleep(self._tick_seconds)
            self._tick()

    def _tick(self) -> None:
        self._drop_the_deaf()
        snapshot, before = self.snapshot(), self._last
        due = before is None or monotonic() - self._sent_at >= AT_LEAST_EVERY_SECONDS
        if before is not None and not due and _without_times(snapshot) == _without_times(before):
            return
        everybody = due or before is None or _without_numbers(snapshot) != _without_numbers(before)
        self._last = snapshot
        if everybody:
            self._sent_at = monotonic()
        text = encode(snapshot)
        for listener in tuple(self._listeners):
            if everybody or listener.watching:
                self._send(listener, text)

    def _send(self, listener: Listener, text: str) -> None:
        waiting = self._listeners[listener]
        if waiting is not None and not waiting[0].done():
            return  # it has not taken the one before; it gets the newest later
        if waiting is not None and not waiting[0].cancelled() and waiting[0].exception() is not None:
            self.leave(listener)
            return
        future = listener.push(text)
        if future is None:
            self.leave(listener)
            return
        self._listeners[listener] = (future, monotonic())

    def _drop_the_deaf(self) -> None:
        for listener, waiting in tuple(self._listeners.items()):
            if waiting is None or waiting[0].done() or monotonic() - waiting[1] < self._unread_seconds:
                continue
            log.info("A panel has not read for %d s and is dropped.", self._unread_seconds)
            self.leave(listener)
            listener.drop(1008, "not reading")


def _without_times(snapshot: Snapshot) -> Snapshot:
    gpus = tuple(replace(gpu, at=LONG_AGO) for gpu in snapshot.gpus)
    return replace(snapshot, at=LONG_AGO, gpus=gpus)


def _without_numbers(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, at=LONG_AGO, gpus=())
