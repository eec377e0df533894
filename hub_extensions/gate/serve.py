"""Starts the gate from its settings, runs it until it is stopped, and shuts it down."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
from datetime import datetime, timezone

from tornado.netutil import bind_sockets

from hub_extensions.adapters.files.json_log import log_json
from hub_extensions.adapters.hub.hub_sign_in import HubAddresses, HubSignIn
from hub_extensions.adapters.linux.timeouts import with_timeout
from hub_extensions.adapters.provider.assertions import AssertionSigner
from hub_extensions.adapters.store.errors import StoreUnavailable
from hub_extensions.adapters.store.gate import GateStore
from hub_extensions.gate.background import background_of
from hub_extensions.gate.gate import Gate, session_limits
from hub_extensions.gate.keys import keys_of
from hub_extensions.gate.server import make_server
from hub_extensions.gate.sessions import GateSessions
from hub_extensions.gate.settings import GateSettings

log = logging.getLogger("hub_extensions.gate")

TIDY_SECONDS = 60.0
TRY_AGAIN_SECONDS = 0.5
UNUSABLE = 69
"""EX_UNAVAILABLE of sysexits.h: a required resource is unavailable now; a restart may help."""


def open_gate(settings: GateSettings) -> Gate:
    """Return a gate with its opened database, its keys and its client of the hub. Raises StoreUnavailable, OSError."""
    settings.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    store = GateStore.open(settings.store_url)
    addresses = HubAddresses(settings.hub_api_url, settings.hub_url)
    hub = HubSignIn(addresses, settings.client_id, settings.client_secret, settings.callback_url)
    signer = AssertionSigner(keys_of(settings, store), settings.origin, settings.assertion)
    return Gate(settings, GateSessions(store, session_limits(settings), _now), hub, signer, _now)


async def serve(settings: GateSettings, parent: int | None = None) -> int:
    """Run the gate's server until SIGINT or SIGTERM arrives or the parent process has exited; return the exit status.

    Args:
        settings: the settings of the gate.
        parent: process id of the parent process; `None` to run independently of it.
    """
    log_json(secret for secret in (settings.client_secret, settings.proxy_secret, settings.ended_secret) if secret)
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    try:
        gate = open_gate(settings)
    except (StoreUnavailable, OSError, ValueError) as problem:
        log.critical("the gate cannot start: %s", problem)
        return UNUSABLE
    sockets = await _sockets(settings, stopping, parent)
    background = background_of(gate)
    server = make_server(gate, background.portal)
    server.add_sockets(sockets)
    tasks = [asyncio.ensure_future(work) for work in background.work]
    for task in tasks:
        task.add_done_callback(log_end)
    if sockets:
        log.info("the gate answers at %s port %d, for %d apps", settings.host, settings.port, len(gate.apps))
    while not await _wait(TIDY_SECONDS, stopping, parent):
        await tidy(gate)
    server.stop()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await server.close_all_connections()
    await tidy(gate)
    gate.hub.close()
    gate.sessions.close()
    return 0


def log_end(task: asyncio.Future[None]) -> None:
    """Log the exception with which a background task has ended; nothing if it was cancelled or ended without one."""
    problem = None if task.cancelled() else task.exception()
    if problem is not None:
        log.error("a part of the gate has stopped until the next start: %s", type(problem).__name__)


async def tidy(gate: Gate) -> None:
    """Do the work of each minute.

    The function stores when sessions were last used, ends sessions that have passed a limit, and reads the keys again.
    An error, such as a database that cannot be reached, is logged, and the gate keeps answering.
    """
    try:
        await gate.sessions.tidy()
        await asyncio.to_thread(gate.refresh_keys)
    except Exception as problem:  # noqa: BLE001  # it is tried again after a minute
        log.warning("the gate's store or keys cannot be used now: %s", type(problem).__name__)


async def _sockets(settings: GateSettings, stopping: asyncio.Event, parent: int | None) -> list[socket.socket]:
    """Return the sockets that listen on the gate's port. While an earlier gate still has the port, wait for it.

    Args:
        stopping: set when a signal has requested a stop, which ends the wait.
        parent: process id of the parent process, whose end also ends the wait; `None` to ignore it.

    Returns:
        Empty if the wait was ended.
    """
    logged = False
    while True:
        try:
            return bind_sockets(settings.port, settings.host)
        except OSError as problem:
            if problem.errno != errno.EADDRINUSE:
                raise
        if not logged:
            log.warning("port %d of %s is taken: waiting for it", settings.port, settings.host)
            logged = True
        if await _wait(TRY_AGAIN_SECONDS, stopping, parent):
            return []


async def _wait(seconds: float, stopping: asyncio.Event, parent: int | None) -> bool:
    """Wait for `seconds`. Return True as soon as the gate has to stop, otherwise False after the wait.

    Args:
        stopping: set when a signal has requested a stop.
        parent: process id of the parent process, after whose end the gate has to stop too; `None` to ignore it.
    """
    rest = seconds
    while rest > 0 and not stopping.is_set():
        if parent is not None and os.getppid() != parent:
            log.info("the hub that started the gate is gone")
            return True
        step = min(rest, 1.0)
        rest -= step
        try:
            await with_timeout(step, stopping.wait())
        except asyncio.TimeoutError:
            continue
    return stopping.is_set()


def _now() -> datetime:
    return datetime.now(timezone.utc)
