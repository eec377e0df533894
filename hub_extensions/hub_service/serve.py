"""Opens the parts of the service in order, from settings to open port, and closes them in reverse."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from jupyterhub.utils import make_ssl_context

from hub_extensions.adapters.files.json_log import log_json
from hub_extensions.adapters.files.mig_tables import packed_tables
from hub_extensions.adapters.files.policy_file import PolicyFileError, read_policy_file
from hub_extensions.adapters.hub.jupyterhub_api import HubApi
from hub_extensions.adapters.linux.procfs import marked
from hub_extensions.adapters.linux.timeouts import with_timeout
from hub_extensions.adapters.nvml.reader import Nvml
from hub_extensions.adapters.simulated.gpus import SimulatedGpus, of_service
from hub_extensions.adapters.simulated.layouts import LayoutError, load_layout
from hub_extensions.adapters.store import DatabaseLock, Store, StoreUnavailable
from hub_extensions.adapters.store.copies import empty_beside_older, has_no_room, sqlite_file
from hub_extensions.hub_service.engine.engine import Engine
from hub_extensions.hub_service.engine.line.local_leases import Gpus
from hub_extensions.hub_service.http.api.base import Parts
from hub_extensions.hub_service.http.app import make_oauth, make_server
from hub_extensions.hub_service.http.auth import Auth
from hub_extensions.hub_service.http.limits import BoundedServer, Connections, raise_file_limit, room_within
from hub_extensions.hub_service.http.pages.not_ready import RETRY_SECONDS, NotReadyPage
from hub_extensions.hub_service.process import (
    Lifetime,
    join_port,
    wait_for_database,
    wait_for_lock,
    wait_for_port,
    watch_database,
)
from hub_extensions.hub_service.setup.notice_texts import NoticeTexts, TemplateProblem
from hub_extensions.hub_service.setup.service_info import BY_ENVIRONMENT, ServiceEnvironment
from hub_extensions.hub_service.setup.settings import SERVICE_NAME, Settings, SettingsError
from hub_extensions.hub_service.setup.settings_client import RemoteSettings
from hub_extensions.hub_service.setup.state_dir import LOCK_FILE, SETTINGS_FILE

if TYPE_CHECKING:
    from hub_extensions.adapters.kubernetes.watch import ClusterWatch

log = logging.getLogger("hub_extensions.hub_service")

SHORTEST_HIDDEN = 5
"""Shorter passwords are not masked in log lines, because they occur in ordinary words. No log line has one on purpose.
"""
EXIT_UNAVAILABLE = 69  # as in sysexits.h: something the service needs cannot be used now; the hub starts it again


async def serve(settings: Settings, parent: int) -> int:
    """Run a service that the hub starts, until its parent process ends or a signal comes; return the exit status.

    Args:
        settings: the service's settings.
        parent: process id of the small parent process that started this one. The service stops when the parent has
            ended.
    """
    log_json(_hidden(str(getattr(settings, each.name)) for each in fields(settings) if not each.repr))
    with Lifetime(parent) as lifetime:
        return await _served(settings, lifetime)


async def serve_apart(own: ServiceEnvironment, parent: int) -> int:
    """Run a service that the hub does not start, with the settings that the hub sends; return the exit status.

    The service runs until its parent process ends, a signal comes, or the hub has other settings or refuses the
    service's token. Its supervisor (systemd, Kubernetes) then starts it again.

    Args:
        own: what the service knows without the hub: addresses, token and secrets.
        parent: process id of the small parent process that started this one. The service stops when the parent has
            ended.
    """
    log_json(_hidden((own.api_token, own.hub_secret, *own.secrets.values())))
    with Lifetime(parent) as lifetime, closing(RemoteSettings(own, lifetime)) as remote:
        settings = await remote.wait_for_settings()
        if settings is None:
            return lifetime.status
        # for `jupyterhub-gpu offers --state-dir`, which needs none of these secrets
        unneeded: dict[str, Any] = dict.fromkeys(BY_ENVIRONMENT, "")
        replace(settings, **unneeded).dump(settings.folder / SETTINGS_FILE)
        return await _served(settings, lifetime, remote)


async def _served(settings: Settings, lifetime: Lifetime, remote: RemoteSettings | None = None) -> int:
    try:
        NoticeTexts.of(settings)
    except TemplateProblem as problem:
        raise SettingsError(str(problem)) from problem
    not_ready, sockets, read_only = NotReadyPage(), list[socket.socket](), ""
    shown = ""
    try:
        if settings.culling.policy_file:  # checked before any wait
            read_policy_file(settings.culling.policy_file, settings.culling)
        while not lifetime.stopping.is_set():
            try:
                async with _answering(settings, lifetime, remote, not_ready, sockets, read_only) as started:
                    if started:
                        log.info("answering at %s", settings.url)
                        await (_wait_for_room(settings, lifetime) if read_only else lifetime.stopping.wait())
                read_only = ""
            except (StoreUnavailable, LayoutError, CannotServe) as problem:
                full = isinstance(problem, StoreUnavailable) and await asyncio.to_thread(_has_no_room, settings)
                if full and not read_only:
                    read_only = f"The disk is full, so nothing can be changed. {problem}"
                    if read_only != shown:
                        log.critical("%s What is there is shown until there is room.", read_only)
                    shown = read_only
                    continue
                read_only = ""
                if str(problem) != not_ready.reason:
                    log.critical("%s", problem)
                not_ready.answer(sockets, str(problem))
                with contextlib.suppress(asyncio.TimeoutError):
                    await with_timeout(RETRY_SECONDS, lifetime.stopping.wait())
    except PolicyFileError as problem:
        raise SettingsError(f"c.GpuCulling.policy_file: {problem}") from problem
    except OSError as problem:
        log.critical("cannot listen at %s port %d: %s", settings.host, settings.port, problem.strerror or problem)
        return EXIT_UNAVAILABLE
    finally:
        await not_ready.close()
        for each in sockets:
            each.close()
    log.info("stopped")
    return lifetime.status


@asynccontextmanager
async def _answering(
    settings: Settings,
    lifetime: Lifetime,
    remote: RemoteSettings | None,
    not_ready: NotReadyPage,
    sockets: list[socket.socket],
    read_only: str = "",
) -> AsyncIterator[bool]:
    """Open locks, port, store, hub client, engine and HTTP server, and close them in reverse order at the end.

    Args:
        settings: the service's settings.
        lifetime: decides when the service stops.
        remote: detects other settings of the hub. `None` if the hub starts the service.
        not_ready: answers requests with "not ready" until the service can.
        sockets: the listening sockets of an earlier attempt; this attempt adds its own.
        read_only: why the store is opened read-only; "" if it is opened for writing.

    Yields:
        True once requests are answered, False if the service had to stop while it waited for a lock or the port.
    """
    # a full collection blocks the loop for 70 ms while modules load and a cluster is read, so make them rarer
    gc.set_threshold(20_000, 20, 50)
    async with AsyncExitStack() as opened:
        lock = await wait_for_lock(settings.folder / LOCK_FILE, lifetime)
        if lock is None:
            yield False
            return
        opened.callback(lock.free)
        in_database = DatabaseLock(settings.store_url) if DatabaseLock.needed(settings.store_url) else None
        if in_database is not None:
            opened.callback(in_database.close)
            if not await wait_for_database(in_database, lifetime):
                yield False
                return
        if not sockets:
            found = await wait_for_port(settings.folder, settings.host, settings.port, lifetime)
            if found is None:
                yield False
                return
            sockets += found
        file = sqlite_file(settings.store_url)
        if file is not None and (lost := empty_beside_older(file, settings.folder)):
            log.warning("%s", lost)
        if read_only:
            store = await asyncio.to_thread(Store.open_read_only, settings.store_url, read_only)
        else:
            store = await asyncio.to_thread(Store.open, settings.store_url)
        opened.callback(store.close)
        if in_database is not None:
            store.guard = in_database.guard
            watch = asyncio.ensure_future(watch_database(in_database, lifetime, EXIT_UNAVAILABLE))
            opened.callback(watch.cancel)
        hub = HubApi(
            _hub_api_url(settings), settings.api_token, tls=_hub_tls(os.environ), account=_hubs_account(settings)
        )
        opened.callback(hub.close)
        engine = await Engine.open(settings, store, hub, await _open_machine(settings, opened), remote)
        engine.start()
        gc.collect()
        gc.freeze()  # objects loaded so far stay, so full collections can skip them
        opened.push_async_callback(engine.stop)
        parts = make_parts(settings, engine, hub)
        parts.connections = Connections(room_within(raise_file_limit()))
        server = make_server(parts)
        await not_ready.close()
        server.add_sockets([each.dup() for each in sockets])
        if settings.port not in {each.getsockname()[1] for each in sockets}:
            opened.callback(asyncio.ensure_future(_rejoin_port(settings, engine, server, lifetime)).cancel)
        opened.push_async_callback(server.close_all_connections)
        opened.callback(server.stop)
        opened.callback(parts.closing.set)
        yield True


def _has_no_room(settings: Settings) -> bool:
    file = sqlite_file(settings.store_url)
    return file is not None and has_no_room(file)


async def _wait_for_room(settings: Settings, lifetime: Lifetime) -> None:
    """Wait until the disk has room for the store again, or the service has to stop."""
    while not lifetime.stopping.is_set() and await asyncio.to_thread(_has_no_room, settings):
        with contextlib.suppress(asyncio.TimeoutError):
            await with_timeout(RETRY_SECONDS, lifetime.stopping.wait())


async def _rejoin_port(settings: Settings, engine: Engine, server: BoundedServer, lifetime: Lifetime) -> None:
    """Report in health that another program has the configured port, and listen there too as soon as it is free.

    Args:
        settings: the service's settings, with the configured port.
        engine: reports the problem in health.
        server: the HTTP server, which gets the sockets of that port.
        lifetime: ends the wait if the service has to stop.
    """
    engine.note_port_problem(
        f"{settings.port} is held by another program, which is told nothing; reached at {settings.origin} meanwhile"
    )
    if found := await join_port(settings.folder, settings.host, settings.port, lifetime):
        server.add_sockets(found)
        engine.note_port_problem("")
        log.info("listening at port %d again", settings.port)


def _hidden(secrets: Iterable[str]) -> Iterator[str]:
    """Yield the strings that are masked in log lines: each secret, and the password in a secret that is a URL.

    Args:
        secrets: the secrets, such as tokens and the database's URL.
    """
    for value in secrets:
        yield value
        try:
            password = urlsplit(value).password or ""
        except ValueError:
            continue
        if len(password) >= SHORTEST_HIDDEN:
            yield password
            yield unquote(password)


async def _open_machine(settings: Settings, opened: AsyncExitStack) -> Gpus | ClusterWatch:
    """Open what the GPUs are read from: the watch of a cluster, or the driver of this machine.

    Args:
        settings: the service's settings.
        opened: closes it when the service ends.

    Raises:
        CannotServe: the cluster cannot be read.
    """
    if settings.cluster is None:
        gpus = open_gpus(settings)
        opened.callback(gpus.close)
        return gpus
    from hub_extensions.adapters.kubernetes.api import ClusterError
    from hub_extensions.adapters.kubernetes.watch import ClusterWatch

    await asyncio.to_thread(packed_tables)  # cached here, so that the first reading does not block on it
    watch = ClusterWatch(settings.cluster)
    opened.push_async_callback(watch.close)
    try:
        await watch.start()
    except ClusterError as problem:
        raise CannotServe(f"The cluster cannot be read: {problem.message}") from problem
    return watch


class CannotServe(Exception):
    """Something that the service needs cannot be used now, so the start is tried again.

    The text is for an administrator.
    """


def make_parts(settings: Settings, engine: Engine, hub: HubApi) -> Parts:
    """Create the objects that the HTTP routes share: authentication, engine, the hub's API, and URL prefixes.

    The URL prefix comes from the environment if the hub starts the service, otherwise from the settings.
    """
    prefix = os.environ.get("JUPYTERHUB_SERVICE_PREFIX") or settings.prefix
    oauth = make_oauth(
        prefix=prefix, api_url=_hub_api_url(settings), token=settings.api_token, account=_hubs_account(settings)
    )
    auth = Auth(hub, oauth, settings.hub_secret, settings.metrics_token)
    return Parts(
        engine, hub, auth, prefix, prefix.removesuffix(f"services/{SERVICE_NAME}/"), help_url=settings.help_url
    )


def open_gpus(settings: Settings) -> Gpus:
    """Return a reader of this machine's GPUs; of simulated ones if a layout of simulated GPUs is configured.

    Raises:
        LayoutError: the layout is missing or wrong.
    """
    layout = settings.offers.simulate
    if layout is None:
        return Nvml()
    return SimulatedGpus(load_layout(layout), of_service(settings.url, marked))


def _hub_tls(environ: Mapping[str, str]) -> ssl.SSLContext | None:
    """Return the TLS context for requests to a hub with ``c.JupyterHub.internal_ssl``; `None` without that setting.

    Such a hub requires a client certificate of its own authority.

    Args:
        environ: the environment variables, in which the hub names the files of key, certificate and authority.
    """
    files = [environ.get(f"JUPYTERHUB_SSL_{name}", "") for name in ("KEYFILE", "CERTFILE", "CLIENT_CA")]
    return make_ssl_context(files[0], files[1], cafile=files[2]) if all(files) else None


def _hubs_account(settings: Settings) -> int | None:
    """Return the uid under which the hub has to listen, so that no other account's program gets the service's token.

    `None` if that cannot be checked, because the hub is in a pod or on another machine.
    """
    here = settings.started_by_hub and settings.cluster is None and sys.platform == "linux"
    return os.geteuid() if here else None


def _hub_api_url(settings: Settings) -> str:
    at_hub = f"http://127.0.0.1:8081{settings.base_url}hub/api"
    return settings.hub_api_url or os.environ.get("JUPYTERHUB_API_URL") or at_hub
