"""The life of the service's process: parent, signals, locks and port.

A service that outlives its hub keeps the port with an old token, and its successor fails with "Address already in
use" (T14 in ``docs/upstream.md``). A service started from a script inherits SIGINT as ignored and delays the hub's
stop (T16). Therefore the service ends when its parent does, installs its own signal handlers, and waits until a
predecessor has released its locks and the port. A service that the hub does not start ends by a signal, when it loses
the lock in the database, or when the hub has other settings or refuses its token.
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
"""Time limit of an orderly stop: the hub waits for it, and after a `kill -9` of the hub no service may be left."""
TRY_AGAIN_SECONDS = 0.2
BACKLOG = 1024
"""Connections that the system queues until they are accepted; in a flood it drops further ones, the hub's too."""
DATABASE_SECONDS = 1.0
"""Seconds between two attempts to take the database's lock, and between two checks that it is still held."""
JOIN_SECONDS = 1.0  # seconds between two checks whether the hub has our port, while another port stands in for it
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Lifetime:
    """Decides when the service stops: a signal, or the end of the parent process, sets `stopping`.

    If the orderly stop takes longer than `STOP_SECONDS`, the process is killed. An instance has to be created in the
    event loop's thread, and is used as a context manager.

    Args:
        parent: process id of the small parent process that started this one, read at the very start; `None` if no
            parent is watched.

    Attributes:
        stopping: is set when the service has to stop.
        why: the reason of the stop, for the log; "" until then.
        status: the exit status with which the process has to end.
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
        """Begin the orderly stop. Further calls change nothing.

        Args:
            why: the reason, for the log.
            status: the exit status with which the process has to end.
        """
        if self.stopping.is_set():
            return
        self.why = why
        self.status = status
        log.info("stopping: %s", why)
        self.stopping.set()
        threading.Thread(target=self._cut_off, name="cut-off", daemon=True).start()

    def _watch_parent(self) -> None:
        """Stop the service when its parent process has ended.

        The check runs in a thread of its own, because a blocked event loop must not keep the service alive without a
        parent.
        """
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
    """A lock on a file beside the store, so that only one service uses the store.

    The kernel releases it when the process that holds it dies.

    Args:
        path: the lock file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def take(self) -> bool:
        """Try once to take the lock on the store, and return whether that succeeded.

        The attempt fails while another process holds the lock.
        """
        number = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(number)
            return False
        with contextlib.suppress(OSError):  # for the log of other processes; fails on a full disk
            os.ftruncate(number, 0)
            os.write(number, f"{os.getpid()}\n".encode())
        self._file = number
        return True

    def holder(self) -> str:
        """Return the id of the process that holds the lock on the store, for the log; "not known" if unknown."""
        try:
            return self._path.read_text().strip() or "not known"
        except OSError:
            return "not known"

    def free(self) -> None:
        """Release the lock on the store. Can be called twice."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


async def wait_for_lock(path: Path, lifetime: Lifetime) -> StoreLock | None:
    """Wait until no other process holds the lock file at `path`, and take the lock.

    Args:
        path: the lock file.
        lifetime: ends the wait if the service has to stop.

    Returns:
        The lock; `None` if the service has to stop before.
    """
    lock = StoreLock(path)

    def waiting() -> str:
        return f"waiting for the lock {path}: process {lock.holder()} has it"

    return lock if await _until(lock.take, waiting, lifetime) else None


async def wait_for_database(lock: DatabaseLock, lifetime: Lifetime) -> bool:
    """Wait until no other GPU service holds the lock in the database, and take it.

    Args:
        lock: this service's access to the lock.
        lifetime: ends the wait if the service has to stop.

    Returns:
        False if the service has to stop before.

    Raises:
        StoreUnavailable: the database does not answer.
    """

    def waiting() -> str:
        return f"waiting for {lock.where}: another GPU service has it"

    return await _until(lock.take, waiting, lifetime, DATABASE_SECONDS)


async def watch_database(lock: DatabaseLock, lifetime: Lifetime, status: int) -> None:
    """Stop the service when the lock in the database is lost, because another service may then use the store.

    Args:
        lock: the lock, which this service has taken.
        lifetime: ends the service.
        status: the exit status with which the process then ends.
    """
    while not lifetime.stopping.is_set() and await lock.held():
        with contextlib.suppress(asyncio.TimeoutError):
            await with_timeout(DATABASE_SECONDS, lifetime.stopping.wait())
    if lifetime.stopping.is_set():
        return
    log.critical("the lock on %s is lost, so another GPU service may have it", lock.where)
    lifetime.stop("the lock in the database is lost", status)


async def wait_for_port(folder: Path, host: str, port: int, lifetime: Lifetime) -> list[socket.socket] | None:
    """Return listening sockets: those that the hub holds for the service, or its own as soon as the port is free.

    The hub's sockets may have another port, which is used while another program has the configured one.

    Args:
        folder: the service's own folder, through which the hub passes its sockets.
        host: the address to listen on.
        port: the configured port.
        lifetime: ends the wait if the service has to stop.

    Returns:
        `None` if the service has to stop before.

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
    """Wait until the hub has bound the configured port, which another program held, and return the sockets for it.

    The service listens on another port meanwhile.

    Args:
        folder: the service's own folder, through which the hub passes its sockets.
        host: the address to listen on.
        port: the configured port.
        lifetime: ends the wait if the service has to stop.

    Returns:
        An empty list if the service has to stop before.
    """
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
    """Describe for the log which account listens at the port, as the system reports it. Nothing is sent there."""
    others = sorted((accounts_at(host, port) or frozenset()) - {os.geteuid()})
    return f"another account (uid {others[0]})" if others else "another process"


async def _until(
    attempt: Callable[[], bool | Awaitable[bool]],
    waiting: Callable[[], str],
    lifetime: Lifetime,
    pause: float = TRY_AGAIN_SECONDS,
) -> bool:
    """Retry an attempt until it succeeds (True) or the service has to stop (False).

    The start and the end of the wait are logged.

    Args:
        attempt: returns whether it succeeded.
        waiting: returns the sentence for the log when the wait starts.
        lifetime: ends the wait if the service has to stop.
        pause: seconds between two attempts.
    """
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
            # no stop was requested: try again
            continue
    return False
