"""Sends the state of this server's GPU to the open GPU panels in JupyterLab, each of which is a `Listener`.

A panel receives everything when it connects, then the numbers of each new reading (measurement of the GPU), and the
rest whenever it changes. The connections are one-way (see ``routes.py``), so that an open panel does not count as
activity. At most one message to a listener is unsent; a listener that does not read is disconnected. Each message is
encoded once for all listeners. An error while building a message closes no connection, because a panel that reconnects
would only cause it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from time import monotonic
from typing import Protocol

from hub_extensions.core.messages import GpuReading, History, Holder, Numbers, Push, Snapshot
from hub_extensions.server_extension.codec import PROTOCOL_VERSION, encode
from hub_extensions.server_extension.sampler import Sampled, Sampler
from hub_extensions.server_extension.service_client import ServiceLink
from hub_extensions.server_extension.trainings import Trainings

TICK_SECONDS = 1.0
QUIET_SECONDS = 10.0
"""A listener that received nothing for this long gets an empty message, so that it knows the connection is alive."""
UNREAD_SECONDS = 30.0
MAX_LISTENERS = 50
JUMP = timedelta(seconds=1)
"""If wall clock and monotonic clock differ by this much about the age of a reading, the wall clock has jumped."""
MOVED = 0.02  # a holder's memory counts as changed if it moves by more than this part
LONG_AGO = datetime(1970, 1, 1, tzinfo=timezone.utc)

log = logging.getLogger(__name__)


class Listener(Protocol):
    """The connection of one open GPU panel, to which `Broadcast` sends messages.

    Attributes:
        every_seconds: the interval at which the panel wants new numbers.
    """

    every_seconds: float

    def push(self, text: str) -> asyncio.Future[None] | None:
        """Send a text to the panel.

        Returns:
            A future that is done when the text has left this process; `None` if the connection is closed.
        """
        ...

    def drop(self, code: int, reason: str) -> None:
        """Close the panel's connection with a close code of RFC 6455 and a reason."""
        ...


@dataclass
class _Last:
    """Record of the messages that a listener has received last. Times are of the monotonic clock.

    Attributes:
        at: when the last message was sent.
        change: number of the last snapshot (the state apart from its numbers) that was sent.
        reading: number of the last reading whose numbers were sent.
        numbers_at: when those numbers were sent.
        lines: uuid of a device -> whether the history that was sent shows this server's own memory rather than the
            device's; `None` before the first history. If that changes for a device, the history is sent again.
        under_way: the last message, which may not be delivered yet; `None` before the first one.
    """

    at: float
    change: int = 0
    reading: int = -1
    numbers_at: float = 0.0
    lines: dict[str, bool] | None = None
    under_way: asyncio.Future[None] | None = None


class Broadcast:
    """Sends the state of this server's GPU to all connected panels. The extension makes one per server.

    Args:
        sampler: measures the GPU; its last reading is sent.
        tick_seconds: interval at which it is checked whether something has to be sent.
        unread_seconds: a panel that has not read its last message for this long is disconnected.
        quiet_seconds: a panel that got nothing for this long gets an empty message, so that it knows the connection
            is alive.
        wall: returns the wall-clock time.

    Attributes:
        opened: at least one panel has connected since the server started, so its user has opened the server.
    """

    def __init__(
        self,
        sampler: Sampler,
        *,
        tick_seconds: float = TICK_SECONDS,
        unread_seconds: float = UNREAD_SECONDS,
        quiet_seconds: float = QUIET_SECONDS,
        wall: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        self._sampler = sampler
        self._tick_seconds = tick_seconds
        self._unread_seconds = unread_seconds
        self._quiet_seconds = quiet_seconds
        self._wall = wall
        self._link: ServiceLink | None = None
        self._trainings: Trainings | None = None
        self._listeners: dict[Listener, _Last] = {}
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news = asyncio.Event()
        self._last: Snapshot | None = None
        self._change = 0
        self._first: tuple[tuple[int, int, float], float, str] | None = None
        self._fault = ""
        self._broken: set[str] = set()
        self.opened = False

    @property
    def watched(self) -> bool:
        """Return whether a GPU panel is connected to this server."""
        return bool(self._listeners)

    def use(self, link: ServiceLink, trainings: Trainings | None = None) -> None:
        """Set what the panels show beside the GPU: the last state of the GPU service, and the training runs."""
        self._link, self._trainings = link, trainings

    def wake(self) -> None:
        """Look as soon as possible for changes to send to the open panels; may be called from any thread."""
        loop = self._loop
        if loop is None or not self._listeners:
            return
        try:
            loop.call_soon_threadsafe(self._news.set)
        except RuntimeError:
            self._loop = None  # the server has ended

    def snapshot(self) -> Snapshot:
        """Return everything that a panel shows: the last reading of the GPU and the service's last state."""
        return self._snapshot(self._sampler.latest())

    def history(self) -> History:
        return History(PROTOCOL_VERSION, self._wall(), self._sampler.history())

    def join(self, listener: Listener) -> None:
        """Add an open GPU panel, and send it the present state and the history of the last ten minutes.

        If `MAX_LISTENERS` are connected, close its connection with a reason.
        """
        if len(self._listeners) >= MAX_LISTENERS:
            listener.drop(1013, "too many open panels")
            return
        self.opened = True
        if self._link is not None:
            self._link.soon()
        self._loop = asyncio.get_running_loop()
        self._sampler.watch(listener, listener.every_seconds)
        last = self._listeners[listener] = _Last(monotonic())
        self._guarded(lambda: self._greet(listener, last))
        if self._listeners and (self._task is None or self._task.done()):
            self._task = self._loop.create_task(self._run())

    def leave(self, listener: Listener) -> None:
        if self._listeners.pop(listener, None) is not None:
            self._sampler.unwatch(listener)

    def stop(self) -> None:
        """Close the connections of all panels at the end of the server."""
        if self._task is not None:
            self._task.cancel()
        for listener in tuple(self._listeners):
            self.leave(listener)
            listener.drop(1001, "the server stops")

    async def _run(self) -> None:
        while self._listeners:
            # after the time-out, too: the service or a hung driver may have changed state without a wake-up
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._news.wait(), self._tick_seconds)
            self._news.clear()
            self._guarded(self._tick)

    def _guarded(self, send: Callable[[], None]) -> None:
        """Call `send`, and log an error that it raises. The connections stay open for the next change.

        Of consecutive errors of the same type, only the first is logged.
        """
        try:
            send()
            self._fault = ""
        except Exception as error:
            if self._fault != type(error).__name__:
                log.exception("The panels cannot be told anything now.")
            self._fault = type(error).__name__

    def _greet(self, listener: Listener, last: _Last) -> None:
        sampled = self._sampler.latest()
        snapshot, now = self._noted(sampled), monotonic()
        if self._send(listener, last, self._greeting(snapshot, sampled, listener.every_seconds), now):
            last.reading, last.numbers_at, last.lines = sampled.number, now, _lines(snapshot)

    def _tick(self) -> None:
        sampled = self._sampler.latest()
        snapshot, now = self._noted(sampled), monotonic()
        numbers, lines = tuple(_numbers(gpu) for gpu in snapshot.gpus), _lines(snapshot)
        texts: dict[tuple[bool, bool, bool, float], str] = {}
        for listener, last in tuple(self._listeners.items()):
            if not self._takes(listener, last, now):
                continue
            changed, anew = last.change != self._change, _changed_kinds(last.lines, lines)
            read = last.reading != sampled.number and (changed or self._due(listener, last, sampled, now))
            if not changed and not read and now - last.at < self._quiet_seconds:
                continue
            key = (changed, anew, read, listener.every_seconds if changed else 0.0)
            if key not in texts:
                paced = self._paced(snapshot, listener.every_seconds) if changed else None
                history = self._sampler.history() if anew else None
                texts[key] = encode(Push(PROTOCOL_VERSION, snapshot.at, paced, history, numbers if read else ()))
            if not self._send(listener, last, texts[key], now):
                continue
            last.lines = {**(last.lines or {}), **lines}
            if read:
                last.reading, last.numbers_at = sampled.number, now

    def _send(self, listener: Listener, last: _Last, text: str, now: float) -> bool:
        """Send a text and return whether that was possible. Remove a listener whose connection is closed or broken.

        Args:
            listener: the connection of one open panel.
            last: what that panel has received last.
            text: the text.
            now: the monotonic clock in seconds.
        """
        try:
            future = listener.push(text)
        except Exception as error:
            if type(error).__name__ not in self._broken:
                log.exception("A panel's connection has a fault and is closed.")
            self._broken.add(type(error).__name__)
            listener.drop(1011, "a fault of the server")
            future = None
        if future is None:
            self.leave(listener)
            return False
        last.change, last.at, last.under_way = self._change, now, future
        return True

    def _takes(self, listener: Listener, last: _Last, now: float) -> bool:
        """Return whether a listener can receive a message now.

        It cannot while its last message is unsent; it then gets the newest state later. If that lasts too long, the
        listener is disconnected.
        """
        if last.under_way is None:
            return True
        if last.under_way.done():
            if last.under_way.cancelled() or last.under_way.exception() is None:
                return True
            self.leave(listener)
            return False
        if now - last.at >= self._unread_seconds:
            log.info("A panel has not read for %d s and is dropped.", self._unread_seconds)
            self.leave(listener)
            listener.drop(1008, "not reading")
        return False

    def _due(self, listener: Listener, last: _Last, sampled: Sampled, now: float) -> bool:
        """Return whether a listener's interval since its last numbers is over.

        A message may be early by half a sampling period, because readings do not come exactly on time.
        """
        return now - last.numbers_at >= listener.every_seconds - sampled.period_seconds / 2

    def _greeting(self, snapshot: Snapshot, sampled: Sampled, every_seconds: float) -> str:
        """Return the first message for a new listener: the snapshot and the history of the last ten minutes.

        Listeners that connect within one second get the same text.

        Args:
            snapshot: what the GPU panel shows now.
            sampled: the last readings of the GPUs.
            every_seconds: interval at which the listener wants new values.
        """
        key, now = (self._change, sampled.number, every_seconds), monotonic()
        if self._first is not None and self._first[0] == key and now - self._first[1] < 1.0:
            return self._first[2]
        paced = self._paced(snapshot, every_seconds)
        text = encode(Push(PROTOCOL_VERSION, snapshot.at, paced, self._sampler.history(), ()))
        self._first = (key, now, text)
        return text

    def _noted(self, sampled: Sampled) -> Snapshot:
        """Return the snapshot (what the GPU panel shows) that follows from the last readings of the GPUs.

        If more than numbers differ from the last snapshot, the change number is increased, so that all listeners get
        the whole snapshot.

        Args:
            sampled: the last values of the GPUs, and whether the driver answers.
        """
        snapshot = self._snapshot(sampled)
        if self._last is None or _differs(self._last, snapshot):
            self._last, self._change = snapshot, self._change + 1
        return snapshot

    def _snapshot(self, sampled: Sampled) -> Snapshot:
        now = self._wall()
        # the age comes from the running clock, so a jump of the wall clock does not change it
        age = 0.0 if sampled.read_at is None else max(0.0, monotonic() - sampled.read_at)
        read_at = now - timedelta(seconds=age)
        return Snapshot(
            version=PROTOCOL_VERSION,
            at=now,
            state=sampled.state,
            reason=sampled.reason,
            gpus=tuple(gpu if abs(gpu.at - read_at) < JUMP else replace(gpu, at=read_at) for gpu in sampled.gpus),
            server=None if self._link is None else self._link.state,
            service_note=None if self._link is None else self._link.note,
            period_seconds=sampled.period_seconds,
            trainings=() if self._trainings is None else self._trainings.shown(),
        )

    def _paced(self, snapshot: Snapshot, every_seconds: float) -> Snapshot:
        return replace(snapshot, period_seconds=max(snapshot.period_seconds, every_seconds))


def _lines(snapshot: Snapshot) -> dict[str, bool]:
    """Return for each device (by uuid) whether its history shows this server's own memory rather than the whole
    device's.
    """
    return {gpu.uuid: gpu.shared for gpu in snapshot.gpus}


def _changed_kinds(before: dict[str, bool] | None, now: dict[str, bool]) -> bool:
    """Return whether the history has to be sent again, because a device's history now shows another kind of memory.

    Args:
        before: result of `_lines` when the history was last sent; `None` if it was never sent, so that it has to be.
        now: the current result of `_lines`.
    """
    return before is None or any(before.get(uuid, shared) != shared for uuid, shared in now.items())


def _numbers(gpu: GpuReading) -> Numbers:
    used = None if gpu.used_percent is None else round(gpu.used_percent, 1)
    return Numbers(gpu.uuid, gpu.at, gpu.memory_used_bytes, gpu.own_memory_bytes, used, gpu.counters)


def _differs(before: Snapshot, after: Snapshot) -> bool:
    """Return whether two snapshots differ in more than the numbers that change with each reading.

    If so, the whole snapshot has to be sent to the panels.
    """
    if _without_numbers(before) != _without_numbers(after):
        return True
    pairs = zip(before.gpus, after.gpus, strict=True)
    return any(_moved(one, other) for was, gpu in pairs for one, other in zip(_held(was), _held(gpu), strict=True))


def _without_numbers(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot without the numbers that each reading changes, for a comparison.

    Figures that Prometheus or another source measured stay in it, because they change seldom.
    """
    gpus = tuple(_without_numbers_of(gpu) for gpu in snapshot.gpus)
    return replace(snapshot, at=LONG_AGO, gpus=gpus)


def _without_numbers_of(gpu: GpuReading) -> GpuReading:
    holders = gpu.holders
    if holders is not None:
        holders = tuple(replace(holder, memory_bytes=None) for holder in holders)
    return replace(
        gpu,
        at=LONG_AGO,
        memory_used_bytes=None,
        own_memory_bytes=None,
        used_percent=None,
        counters=None,
        holders=holders,
    )


def _held(gpu: GpuReading) -> tuple[Holder, ...]:
    return gpu.holders or ()


def _moved(before: Holder, after: Holder) -> bool:
    one, other = before.memory_bytes, after.memory_bytes
    if one is None or other is None:
        return one is not other
    return abs(one - other) > MOVED * one
