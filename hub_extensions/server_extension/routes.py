"""The four routes of the panel. Every one asks who it is, and none counts as activity.

The websocket only pushes, sends no pings and takes no messages: a proxy counts every byte from the browser as use of
the server, a pong too. What changes something is a POST with XSRF protection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from jupyter_server.auth.decorator import authorized, ws_authenticated
from jupyter_server.base.handlers import APIHandler, JupyterHandler
from tornado import web
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from hub_extensions.server_extension.live import Live
from hub_extensions.server_extension.service import Refused, ServiceLink, json_body
from hub_extensions.server_extension.wire import encode

RESOURCE = "gpu"


class SnapshotHandler(APIHandler):
    """GET gpu/snapshot: what the panel shows, once."""

    auth_resource = RESOURCE
    _track_activity = False

    def initialize(self, live: Live) -> None:
        """What it speaks for."""
        self._live = live

    @web.authenticated
    @authorized
    def get(self) -> None:
        """See the class."""
        self.set_header("Cache-Control", "no-store")
        self.finish(encode(self._live.snapshot()))


class KeepHandler(APIHandler):
    """POST gpu/keep: ask the service to keep this server; its answer, or its refusal in its words."""

    auth_resource = RESOURCE
    _track_activity = False

    def initialize(self, link: ServiceLink) -> None:
        """What it speaks for."""
        self._link = link

    @web.authenticated
    @authorized
    async def post(self) -> None:
        """See the class."""
        try:
            state = await self._link.keep()
        except Refused as refused:
            self.set_status(refused.status)
            self.finish(json_body(refused.problem))
            return
        self.finish(encode(state))


class SavedHandler(APIHandler):
    """POST gpu/saved: the panel has saved the open notebooks."""

    auth_resource = RESOURCE
    _track_activity = False

    def initialize(self, link: ServiceLink) -> None:
        """What it speaks for."""
        self._link = link

    @web.authenticated
    @authorized
    async def post(self) -> None:
        """See the class."""
        try:
            await self._link.saved()
        except Refused as refused:
            self.set_status(refused.status)
            self.finish(json_body(refused.problem))
            return
        self.set_status(204)
        self.finish()


class LiveHandler(WebSocketHandler, JupyterHandler):
    """GET gpu/live, a websocket: snapshots as they change. ``?watching=0`` for a page that nobody sees."""

    auth_resource = RESOURCE
    _track_activity = False

    watching = True

    def initialize(self, live: Live) -> None:
        """What it speaks for."""
        self._live = live

    @property
    def ping_interval(self) -> float | None:
        """None, ever: a pong would count as use of the server."""
        return 0

    @property
    def max_message_size(self) -> int:
        """Nothing is expected from the browser."""
        return 1024

    def check_origin(self, origin: str = "") -> bool:
        """Jupyter Server's own rule, not tornado's."""
        return JupyterHandler.check_origin(self, origin)

    @ws_authenticated
    @authorized
    async def get(self, *args: Any, **kwargs: Any) -> None:
        """See the class."""
        await super().get(*args, **kwargs)

    def open(self, *args: str, **kwargs: str) -> Awaitable[None] | None:
        """A panel listens from now on."""
        self.watching = self.get_query_argument("watching", "1") != "0"
        self._live.join(self)
        return None

    def on_message(self, message: str | bytes) -> Awaitable[None] | None:
        """Nothing is taken over this connection."""
        self.close(1003, "this connection only tells")
        return None

    def on_close(self) -> None:
        """The panel is gone."""
        self._live.leave(self)

    def push(self, text: str) -> asyncio.Future[None] | None:
        """See ``live.Listener``."""
        try:
            future = self.write_message(text)
        except WebSocketClosedError:
            return None
        future.add_done_callback(_heard)
        return future

    def drop(self, code: int, reason: str) -> None:
        """See ``live.Listener``."""
        self.close(code, reason)


def _heard(future: asyncio.Future[None]) -> None:
    """A panel that went away while it was told something is no fault to log."""
    if not future.cancelled():
        future.exception()


def handlers(live: Live, link: ServiceLink) -> list[tuple[str, type[JupyterHandler], dict[str, Any]]]:
    """The routes, to be put under the server's base URL."""
    return [
        (r"/gpu/snapshot", SnapshotHandler, {"live": live}),
        (r"/gpu/live", LiveHandler, {"live": live}),
        (r"/gpu/keep", KeepHandler, {"link": link}),
        (r"/gpu/saved", SavedHandler, {"link": link}),
    ]
