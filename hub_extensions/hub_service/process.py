"""When this process starts to serve and when it ends: parent, signals, locks and port.

A service that outlives its hub keeps the port with an old token, and its successor dies of "Address already in use"
(T14); one started from a script inherits SIGINT as ignored and holds up the hub's stop (T16). So: it ends itself when
its parent does, has its own signal handlers, and waits for a predecessor's locks and port instead of dying. One that
stands apart from the hub has no parent to watch: signals end it, and what it finds at hub and database.
Not here: what is served.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType

from tornado.netutil import bind_sockets

from hub_extensions.adapters.linux.listeners import accounts_at
from hub_extensions.adapters.linux.port_holder import handed_over
from hub_extensions.adapters.linux.timeouts import with_timeout
from hub_extensions.adapters.store import DatabaseLock

log = logging.getLogger("hub_extensions.hub_service.process")

PARENT_SECONDS = 1.0
STOP_SECONDS = 2.5
"""An orderly stop that takes longer than this is cut off: the hub waits, and after a `kill -9` nobody may find us."""
TRY_AGAIN_SECONDS = 0.2
BACKLOG = 1024
"""Connections that the system keeps until we take them: in a flood it throws away what is more, the hub's too."""
DATABASE_SECONDS = 1.0
"""Seconds between two attempts at the database's lock, and between two checks that it is still ours."""
JOIN_SECONDS = 1.0
"""Seconds between two looks whether the hub has our port, while another one stands in for it."""
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Lifetime:
    """Says when to stop: a signal, or the parent is gone, sets `stopping`; a hard end follows STOP_SECONDS later.

    Made in the event loop's thread. `parent` is the process id of the parent as it was at the very start; None: there
    is none whose end means anything.

    Attributes:
        status: the exit status that the stop asks for.
    """

    def __init__(self, parent: int | None) -> None:
        self.stopping = asyncio.Event()
        self.why = ""
        self.status = 0
        self._parent = parent
        self._loop = asyncio.get_running_loop()
        self._done = threading.Event()

    def __enter__(self) -> Lifetime:
        for number in STOP_SIGNALS:
            self._loop.add_signal_handler(number, self.stop, signal.Signals(number).name)
        if self._parent is not None:
            threading.Thread(target=self._watch_parent, name="parent-watch", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()

    def stop(self, why: str, status: int = 0) -> None:
        """Begin the orderly stop. Said twice, it is the same stop."""
        if self.stopping.is_set():
            return
        self.why = why
        self.status = status
        log.info("stopping: %s", why)
        self.stopping.set()
        threading.Thread(target=self._cut_off, name="cut-off", daemon=True).start()

    def _watch_parent(self) -> None:
        """In a thread of its own: a blocked event loop must not keep an orphan alive."""
        while not self._done.wait(PARENT_SECONDS):
            if os.getppid() == self._parent:
                continue
            self._loop.call_soon_threadsafe(self.stop, "the parent process is gone")
            self._cut_off()
            return

    def _cut_off(self) -> None:
        if not self._done.wait(STOP_SECONDS):
            log.error("the orderly stop took longer than %s s: ending now", STOP_SECONDS)
            os._exit(1)


class StoreLock:
    """One service a store: an advisory lock on a file beside it, which the kernel frees when its holder dies."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def take(self) -> bool:
        """Try once; False: another process has it."""
        number = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(number)
            return False
        with contextlib.suppress(OSError):  # for the log of others; a full disk does not take it
            os.ftruncate(number, 0)
            os.write(number, f"{os.getpid()}\n".encode())
        self._file = number
        return True

    def holder(self) -> str:
        """For the log: whose process id is in the file."""
        try:
            return self._path.read_text().strip() or "not known"
        except OSError:
            return "not known"

    def free(self) -> None:
        """Give it back. Can be called twice."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


async def wait_for_lock(path: Path, lifetime: Lifetime) -> StoreLock | None:
    """The lock, as soon as nobody else has it; None: we were told to stop before."""
    lock = StoreLock(path)

    def waiting() -> str:
        return f"waiting for the lock {path}: process {lock.holder()} has it"

    return lock if await _until(lock.take, waiting, lifetime) else None


async def wait_for_database(lock: DatabaseLock, lifetime: Lifetime) -> bool:
    """Take the lock in the database, as soon as no other service has it; False: we were told to stop before.

    Raises:
        StoreUnavailable: the database does not answer.
    """

    def waiting() -> str:
        return f"waiting for {lock.where}: another GPU service has it"

    return await _until(lock.take, waiting, lifetime, DATABASE_SECONDS)


async def watch_database(lock: DatabaseLock, lifetime: Lifetime, status: int) -> None:
    """Stop with `status` when the lock in the database is lost: from then on another service may have the store."""
    while not lifetime.stopping.is_set() and await lock.held():
        with contextlib.suppress(asyncio.TimeoutError):
            await with_timeout(DATABASE_SECONDS, lifetime.stopping.wait())
    if lifetime.stopping.is_set():
        return
    log.critical("the lock on %s is lost, so another GPU service may have it", lock.where)
    lifetime.stop("the lock in the database is lost", status)


async def wait_for_port(folder: Path, host: str, port: int, lifetime: Lifetime) -> list[socket.socket] | None:
    """Listening sockets: those that the hub holds for us, else our own, as soon as the port is free.

    None: we were told to stop before. The hub's may be of another port, which stands in for ours.

    Raises:
        OSError: the address cannot be used at all (not of this machine, not allowed).
    """
    sockets: list[socket.socket] = []

    def take() -> bool:
        given = handed_over(folder)
        if given is not None:
            sockets.extend(given[0])
            return bool(sockets)
        try:
            sockets.extend(bind_sockets(port, host, backlog=BACKLOG))
        except OSError as problem:
            if problem.errno != errno.EADDRINUSE:
                raise
            return False
        return True

    def waiting() -> str:
        return f"waiting for port {port} of {host}: {_holder(host, port)} listens there"

    return sockets if await _until(take, waiting, lifetime) else None


async def join_port(folder: Path, host: str, port: int, lifetime: Lifetime) -> list[socket.socket]:
    """The sockets of our own port, as soon as the hub has it, after another one stood in; empty: we stop before."""
    found: list[socket.socket] = []

    async def try_once() -> bool:
        given = await asyncio.to_thread(handed_over, folder)
        for each in given[0] if given is not None else ():
            if each.getsockname()[1] == port:
                found.append(each)
            else:
                each.close()
        return bool(found)

    def waiting() -> str:
        return f"port {port} of {host}: {_holder(host, port)} listens there; it is taken as soon as it is free"

    await _until(try_once, waiting, lifetime, JOIN_SECONDS)
    return found


def _holder(host: str, port: int) -> str:
    """Who listens there, for the log; nobody of us tells him anything."""
    others = sorted((accounts_at(host, port) or frozenset()) - {os.geteuid()})
    return f"another account (uid {others[0]})" if others else "another process"


async def _until(
    attempt: Callable[[], bool | Awaitable[bool]],
    waiting: Callable[[], str],
    lifetime: Lifetime,
    pause: float = TRY_AGAIN_SECONDS,
) -> bool:
    """Try until it works (True) or we are told to stop (False); one log line at the start of a wait, one at its end."""
    began: float | None = None
    while not lifetime.stopping.is_set():
        done = attempt()
        if done if isinstance(done, bool) else await done:
            if began is not None:
                log.info("waited %.1f s", time.monotonic() - began)
            return True
        if began is None:
            began = time.monotonic()
            log.warning("%s", waiting())
        try:
            await with_timeout(pause, lifetime.stopping.wait())
        except asyncio.TimeoutError:
            # not told to stop: try again
            continue
    return False
