"""From settings to a service that answers, and back to nothing: opens the parts in order and closes them in reverse.

Not here: when to stop (``lifetime.py``) and what the parts do.
"""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from tornado.httpserver import HTTPServer

from hub_extensions.adapters.hub_api import HubApi
from hub_extensions.adapters.nvml import Nvml
from hub_extensions.adapters.processes import marked
from hub_extensions.adapters.simulated import LayoutError, SimulatedGpus, load_layout, of_service
from hub_extensions.adapters.store import Store, StoreUnavailable
from hub_extensions.hub_service.api.base import Parts
from hub_extensions.hub_service.app import MAX_BODY_BYTES, make_app, make_oauth
from hub_extensions.hub_service.auth import Auth
from hub_extensions.hub_service.desk import Desk
from hub_extensions.hub_service.lifetime import Lifetime, wait_for_lock, wait_for_port
from hub_extensions.hub_service.logs import log_json
from hub_extensions.hub_service.releases import Gpus
from hub_extensions.hub_service.settings import SERVICE_NAME, Settings

log = logging.getLogger("hub_extensions.hub_service")

LOCK_FILE = "service.lock"
EXIT_UNAVAILABLE = 69
"""As in sysexits.h: something this needs cannot be used now; the hub starts it again."""


async def serve(settings: Settings, parent: int) -> int:
    """Serve until the parent is gone or a signal comes; returns the exit status."""
    tokens = (settings.api_token, settings.metrics_token or "", settings.prometheus_token)
    log_json((settings.hub_secret, *tokens, settings.database_url))
    with Lifetime(parent) as lifetime:
        try:
            async with _answering(settings, lifetime) as started:
                if started:
                    log.info("answering at %s", settings.url)
                    await lifetime.stopping.wait()
        except (StoreUnavailable, LayoutError) as problem:
            log.critical("%s", problem)
            return EXIT_UNAVAILABLE
        except OSError as problem:
            log.critical("cannot listen at %s port %d: %s", settings.host, settings.port, problem.strerror or problem)
            return EXIT_UNAVAILABLE
    log.info("stopped")
    return 0


@asynccontextmanager
async def _answering(settings: Settings, lifetime: Lifetime) -> AsyncIterator[bool]:
    """Everything open; False: told to stop while waiting for lock or port."""
    async with AsyncExitStack() as opened:
        lock = await wait_for_lock(settings.state_dir / LOCK_FILE, lifetime)
        if lock is None:
            yield False
            return
        opened.callback(lock.free)
        sockets = await wait_for_port(settings.host, settings.port, lifetime)
        if sockets is None:
            yield False
            return
        for socket in sockets:
            opened.callback(socket.close)
        store = Store.open(settings.store_url)
        opened.callback(store.close)
        hub = HubApi(_hub_api_url(settings), settings.api_token)
        opened.callback(hub.close)
        gpus = open_gpus(settings)
        opened.callback(gpus.close)
        desk = await Desk.open(settings, store, hub, gpus)
        desk.start()
        gc.freeze()  # what is loaded now stays: a full collection would stop the loop for nothing
        gc.set_threshold(20_000, 20, 50)
        opened.push_async_callback(desk.stop)
        parts = make_parts(settings, desk, hub)
        server = HTTPServer(make_app(parts), max_body_size=MAX_BODY_BYTES, xheaders=True)
        server.add_sockets(sockets)
        opened.push_async_callback(server.close_all_connections)
        opened.callback(server.stop)
        opened.callback(parts.closing.set)
        yield True


def make_parts(settings: Settings, desk: Desk, hub: HubApi) -> Parts:
    """What the routes work with. A hub-managed service is told its prefix, another knows it by its settings."""
    prefix = os.environ.get("JUPYTERHUB_SERVICE_PREFIX") or settings.prefix
    oauth = make_oauth(prefix=prefix, api_url=_hub_api_url(settings), token=settings.api_token)
    auth = Auth(hub, oauth, settings.hub_secret, settings.metrics_token)
    return Parts(desk, hub, auth, prefix, prefix.removesuffix(f"services/{SERVICE_NAME}/"))


def open_gpus(settings: Settings) -> Gpus:
    """The machine's GPUs, or simulated ones.

    Raises:
        LayoutError: the layout to simulate is missing or wrong.
    """
    if settings.simulate is None:
        return Nvml()
    return SimulatedGpus(load_layout(settings.simulate), of_service(settings.url, marked))


def _hub_api_url(settings: Settings) -> str:
    at_hub = f"http://127.0.0.1:8081{settings.base_url}hub/api"
    return settings.hub_api_url or os.environ.get("JUPYTERHUB_API_URL") or at_hub


__all__ = ["serve"]
