"""The routes of the GPU panel in JupyterLab. Each one requires a login, and none counts as activity of the user.

The WebSocket only sends. It neither pings nor accepts messages, because JupyterHub's proxy counts every byte from the
browser, even a pong, as activity. Every change is a POST with XSRF protection.
"""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import Awaitable
from importlib.resources import files
from typing import Any, NamedTuple

from jupyter_server.auth.decorator import authorized, ws_authenticated
from jupyter_server.base.handlers import APIHandler, JupyterHandler
from tornado import web
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from hub_extensions.adapters.bounded_body import BoundedBody
from hub_extensions.core.messages import Problem, ServerState
from hub_extensions.server_extension.broadcast import Broadcast
from hub_extensions.server_extension.codec import encode
from hub_extensions.server_extension.sampler import LONGEST_SECONDS, SHORTEST_SECONDS
from hub_extensions.server_extension.service_client import RequestRefused, ServiceLink
from hub_extensions.server_extension.trainings import Trainings

RESOURCE = "gpu"
EXAMPLES = frozenset({"loop", "tqdm", "keras", "lightning", "transformers", "fastai", "test-my-gpu"})  # our notebooks
SEND_BUFFER_BYTES = 64 * 1024
UNHEARD_MILLISECONDS = 60_000


class PanelHandler(BoundedBody, APIHandler):  # type: ignore[misc]  # its `prepare` has an option of its own
    """Base class of the routes that take no body.

    The caller is checked before any byte of a body is read, and a body that comes anyway is limited. Jupyter Server
    itself would read up to half a GiB from anybody, without a time limit.
    """

    auth_resource = RESOURCE
    _track_activity = False

    def take_body(self) -> None:
        if not self.current_user:
            raise web.HTTPError(403)
        super().take_body()


class SnapshotHandler(PanelHandler):
    """GET gpu/snapshot: everything that the GPU panel shows now, as one message."""

    def initialize(self, live: Broadcast) -> None:
        self._live = live

    @web.authenticated
    @authorized
    def get(self) -> None:
        self.set_header("Cache-Control", "no-store")
        self.finish(encode(self._live.snapshot()))


class HistoryHandler(PanelHandler):
    """GET gpu/history: the measurements of the last ten minutes of every device of this server."""

    def initialize(self, live: Broadcast) -> None:
        self._live = live

    @web.authenticated
    @authorized
    def get(self) -> None:
        self.set_header("Cache-Control", "no-store")
        self.finish(encode(self._live.history()))


class LinkHandler(PanelHandler):
    """Base class of the routes that pass a user's request on to the GPU service."""

    def initialize(self, link: ServiceLink) -> None:
        self._link = link

    async def pass_on(self, wanted: Awaitable[ServerState]) -> None:
        """Await a request to the service, and send its answer or its refusal to the browser.

        Args:
            wanted: the request, such as `ServiceLink.keep`.
        """
        try:
            state = await wanted
        except RequestRefused as refused:
            self.set_status(refused.status)
            self.finish(encode(refused.problem))
            return
        self.finish(encode(state))


class KeepHandler(LinkHandler):
    """POST gpu/keep: postpone the stop of this server, as the button *Keep* does.

    The GPU service decides whether and for how long.
    """

    @web.authenticated
    @authorized
    async def post(self) -> None:
        await self.pass_on(self._link.keep())


class GiveBackHandler(LinkHandler):
    """POST gpu/give-back: stop this server, so that others can use its GPU.

    With `?cpu=1` the server is started again without a GPU.
    """

    @web.authenticated
    @authorized
    async def post(self) -> None:
        await self.pass_on(self._link.give_back(self.get_query_argument("cpu", "") == "1"))


class ExtendHandler(LinkHandler):
    """POST gpu/extend: put off the end of this server's lifetime, as the button *Ask for more time* does.

    The GPU service decides whether and for how long.
    """

    @web.authenticated
    @authorized
    async def post(self) -> None:
        await self.pass_on(self._link.extend())


class TrainingNoticeHandler(PanelHandler):
    """POST gpu/training-notice: send a notice by mail or webhook when a training ends, or send none.

    `?run=` is the id of the training, `?on=1` asks for the notice, and `?on=0` withdraws that.
    """

    def initialize(self, trainings: Trainings) -> None:
        self._trainings = trainings

    @web.authenticated
    @authorized
    def post(self) -> None:
        on = self.get_query_argument("on", "")
        try:
            if on not in ("0", "1"):
                raise RequestRefused(400, Problem("Expected 0 or 1.", "on"))
            self._trainings.wish(self.get_query_argument("run", ""), on == "1")
        except RequestRefused as refused:
            self.set_status(refused.status)
            self.finish(encode(refused.problem))
            return
        self.set_status(204)
        self.finish()


class SavedHandler(LinkHandler):
    """POST gpu/saved: report that a page has saved the open notebooks. The GPU service then goes on with the stop."""

    @web.authenticated
    @authorized
    async def post(self) -> None:
        try:
            await self._link.saved()
        except RequestRefused as refused:
            self.set_status(refused.status)
            self.finish(encode(refused.problem))
            return
        self.set_status(204)
        self.finish()


class ExampleHandler(PanelHandler):
    """GET gpu/examples/NAME: a notebook that reports the progress of a training, or tests the GPU, as JSON."""

    @web.authenticated
    @authorized
    def get(self, name: str) -> None:
        if name not in EXAMPLES:
            raise web.HTTPError(404)
        self.set_header("Content-Type", "application/json")
        self.finish((files("hub_extensions.progress") / "examples" / f"{name}.ipynb").read_bytes())


class WarnedHandler(LinkHandler):
    """POST gpu/warned: report that a page has shown the warning of a coming stop, so that the user counts as warned.

    The request has no body, and the answer is 304. A proxy counts a body, and an answer below 300, as use of the
    server.
    """

    @web.authenticated
    @authorized
    def post(self) -> None:
        self._link.warned()
        self.set_status(304)
        self.finish()


class LiveHandler(BoundedBody, WebSocketHandler, JupyterHandler):  # type: ignore[misc]  # as above
    """GET gpu/live: a WebSocket that sends everything that the GPU panel shows at first, then the changes.

    It accepts no messages. With `?every=5`, new numbers come every 5 s.
    """

    auth_resource = RESOURCE
    _track_activity = False

    every_seconds = SHORTEST_SECONDS

    def initialize(self, live: Broadcast) -> None:
        self._live = live

    @property
    def ping_interval(self) -> float | None:
        """Return 0, which disables pings, because each pong would count as use of the server."""
        return 0

    @property
    def max_message_size(self) -> int:
        """Return a small limit for messages from the browser, which has nothing to send."""
        return 1024

    def check_origin(self, origin: str = "") -> bool:
        """Accept the origins that Jupyter Server accepts, instead of tornado's own rule."""
        return JupyterHandler.check_origin(self, origin)

    @ws_authenticated
    @authorized
    async def get(self, *args: Any, **kwargs: Any) -> None:
        await super().get(*args, **kwargs)

    def open(self, *args: str, **kwargs: str) -> Awaitable[None] | None:
        self.every_seconds = seconds_in(self.get_query_argument("every", ""))
        self._bound_what_waits()
        self._live.join(self)
        return None

    def on_message(self, message: str | bytes) -> Awaitable[None] | None:
        self.close(1003, "this connection only tells")
        return None

    def on_close(self) -> None:
        self._live.leave(self)

    def push(self, text: str) -> asyncio.Future[None] | None:
        try:
            future = self.write_message(text)
        except WebSocketClosedError:
            return None
        future.add_done_callback(_heard)
        return future

    def drop(self, code: int, reason: str) -> None:
        self.close(code, reason)

    def _bound_what_waits(self) -> None:
        """Set socket options of the connection, so that a vanished browser is noticed within a minute and little unsent
        data is buffered.
        """
        stream = None if self.ws_connection is None else getattr(self.ws_connection, "stream", None)
        connection = getattr(stream, "socket", None)
        if connection is None or connection.family not in (socket.AF_INET, socket.AF_INET6):
            return  # a local socket knows when the other end is gone
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNHEARD_MILLISECONDS)


def seconds_in(text: str) -> float:
    """Parse the interval, in seconds, at which a GPU panel wants new measurements (the parameter `every` of gpu/live).

    While the panel is connected, the server tries to read its GPU at least this often, and sends new measurements to
    the panel at about this interval. The result is limited to 1 to 60 s. A text that is not a number gives 1 s.

    Args:
        text: the value of the parameter; "" if the panel has not sent it.
    """
    try:
        seconds = float(text)
    except ValueError:
        return SHORTEST_SECONDS
    if math.isnan(seconds):
        return SHORTEST_SECONDS
    return min(max(seconds, SHORTEST_SECONDS), LONGEST_SECONDS)


def _heard(future: asyncio.Future[None]) -> None:
    """Retrieve the exception of a finished send, because asyncio would otherwise log it.

    It is expected if the panel was closed before the message was sent.
    """
    if not future.cancelled():
        future.exception()


class GpuHandler(NamedTuple):
    """A route below the server's base URL.

    Attributes:
        part: the argument of the handler's `initialize`: ``live`` (the `Broadcast`), ``link`` (the `ServiceLink`) or
            ``trainings`` (the `Trainings`); "" if it takes none.
        gives: the name of the answer's type, for the reference page; "" if the answer has no body.
    """

    path: str
    handler: type[JupyterHandler]
    part: str
    gives: str


ROUTES = (
    GpuHandler("/gpu/snapshot", SnapshotHandler, "live", "Snapshot"),
    GpuHandler("/gpu/history", HistoryHandler, "live", "History"),
    GpuHandler("/gpu/live", LiveHandler, "live", "Push"),
    GpuHandler("/gpu/keep", KeepHandler, "link", "ServerState"),
    GpuHandler("/gpu/give-back", GiveBackHandler, "link", "ServerState"),
    GpuHandler("/gpu/extend", ExtendHandler, "link", "ServerState"),
    GpuHandler("/gpu/training-notice", TrainingNoticeHandler, "trainings", ""),
    GpuHandler("/gpu/examples/([^/]+)", ExampleHandler, "", "nbformat"),
    GpuHandler("/gpu/saved", SavedHandler, "link", ""),
    GpuHandler("/gpu/warned", WarnedHandler, "link", ""),
)


def handlers(
    live: Broadcast, link: ServiceLink, trainings: Trainings
) -> list[tuple[str, type[JupyterHandler], dict[str, Any]]]:
    """Return `ROUTES` in the form that Jupyter Server registers, with the objects that the handlers work with."""
    parts: dict[str, Any] = {"live": live, "link": link, "trainings": trainings}
    return [(route.path, route.handler, {route.part: parts[route.part]} if route.part else {}) for route in ROUTES]
