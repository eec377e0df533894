"""Relays WebSockets of apps with ``relay: true``, and closes them as soon as their session is over.

The proxy sends these requests to the gate, which checks them as any other before it connects to the app. WebSockets of
other apps end when the proxy ends them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.iostream import StreamClosedError
from tornado.websocket import WebSocketClientConnection, WebSocketClosedError, WebSocketHandler, websocket_connect

from hub_extensions.core.sign_on.access import Passage
from hub_extensions.core.sign_on.apps import App
from hub_extensions.core.sign_on.identity_headers import URI
from hub_extensions.gate.gate import CheckAnswer, CheckedRequest, Gate
from hub_extensions.gate.pages import COMMON_HEADERS

log = logging.getLogger("hub_extensions.gate")

RELAY_PATH = "/_gate/relay/"
POLL_SECONDS = 0.5
"""Interval at which the relay checks in memory whether the session is over."""
CONNECT_SECONDS = 10.0
LARGEST_MESSAGE = 64 * 1024 * 1024
SESSION_OVER = 4401
"""Close code of a WebSocket that means: sign in again."""
FORWARDED_HEADERS = (
    "Origin",
    "User-Agent",
    "Accept-Language",
    "X-Forwarded-For",
    "X-Forwarded-Proto",
    "X-Forwarded-Host",
)


class RelaySocket(WebSocketHandler):
    """A WebSocket of a browser to an app that the gate relays: the proxy connects to the gate, the gate to the app."""

    def initialize(self, gate: Gate) -> None:
        self.gate = gate
        self._app_side: WebSocketClientConnection | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def set_default_headers(self) -> None:
        self.clear_header("Server")
        for name, value in COMMON_HEADERS.items():
            self.set_header(name, value)

    def check_origin(self, origin: str) -> bool:
        """Accept any origin here (return True), because the gate has already checked the origin with the request."""
        return True

    def select_subprotocol(self, subprotocols: list[str]) -> str | None:
        """Return the WebSocket subprotocol that the app has chosen; `None` if it has chosen none.

        Args:
            subprotocols: those that the browser offers. They are not needed here, because the app has chosen already.
        """
        return self._app_side.selected_subprotocol if self._app_side is not None else None

    async def get(self, *args: Any, **kwargs: Any) -> None:
        """Check the request, connect to the app, then accept the browser's WebSocket."""
        headers = self.request.headers
        self._asked = CheckedRequest(
            self.gate.apps.get(args[0]), headers, "GET", self._tail, peer=self.request.remote_ip or ""
        )
        app = self._asked.app
        if not self.gate.is_from_proxy(headers) or app is None or not app.relay:
            self._end(404)
            return
        answer = await self.gate.answer(self._asked)
        if answer.verdict.passage is not Passage.PASS:
            self._end(401 if answer.sign_in else answer.verdict.passage.value)
            return
        address = _address(app, headers.get(URI) or self._tail)
        if not address:
            self._end(400)
            return
        try:
            self._app_side = await self._opened(app, address, answer)
        except (HTTPClientError, OSError, StreamClosedError, asyncio.TimeoutError) as problem:
            log.warning("the app %s did not take a WebSocket: %s", app.name, type(problem).__name__)
            self._end(502)
            return
        self._asked = replace(self._asked, is_use=False)  # an open WebSocket alone is not a use of the session
        await super().get(*args, **kwargs)
        if self.ws_connection is None:  # the browser's handshake failed
            self._app_side.close()

    async def open(self, *args: str, **kwargs: str) -> None:
        """Start to relay messages between browser and app. Both WebSockets are connected now."""
        self._tasks = [asyncio.ensure_future(self._from_app()), asyncio.ensure_future(self._until_over())]

    def on_message(self, message: str | bytes) -> Awaitable[None] | None:
        """Send the browser's message to the app.

        Returns:
            The pending send, for which tornado waits before it reads the next message.
        """
        return self._to_app(message)

    def on_close(self) -> None:
        """Close the WebSocket to the app, because the browser's WebSocket has been closed."""
        for task in self._tasks:
            task.cancel()
        if self._app_side is not None:
            self._app_side.close()

    @property
    def _tail(self) -> str:
        """Path and query for the app, from the address of the relay's request; "" if the address lacks both.

        Some proxies append them to the app's name in this address; others send them in a header.
        """
        _, slash, rest = str(self.request.uri).removeprefix(RELAY_PATH).partition("/")
        return slash + rest

    async def _opened(self, app: App, address: str, answer: CheckAnswer) -> WebSocketClientConnection:
        headers = {name: value for name in FORWARDED_HEADERS if (value := self.request.headers.get(name))}
        headers |= {name: value for name, value in answer.identity if value}
        offered = [each.strip() for each in self.request.headers.get("Sec-WebSocket-Protocol", "").split(",")]
        request = HTTPRequest(
            address,
            headers={**headers, "Host": urlsplit(app.where).netloc},
            connect_timeout=CONNECT_SECONDS,
            request_timeout=CONNECT_SECONDS,
            follow_redirects=False,
        )
        return await websocket_connect(
            request, subprotocols=[each for each in offered if each] or None, max_message_size=LARGEST_MESSAGE
        )

    async def _to_app(self, message: str | bytes) -> None:
        assert self._app_side is not None
        try:
            await self._app_side.write_message(message, binary=isinstance(message, bytes))
        except (WebSocketClosedError, StreamClosedError):
            self.close()

    async def _from_app(self) -> None:
        assert self._app_side is not None
        with contextlib.suppress(WebSocketClosedError, StreamClosedError):
            while (message := await self._app_side.read_message()) is not None:
                await self.write_message(message, binary=isinstance(message, bytes))
        code = self._app_side.close_code
        # 1005, 1006 and 1015 mean that no code was received, and must not be sent (RFC 6455, section 7.4.1)
        self.close(code if code not in (None, 1005, 1006, 1015) else None, self._app_side.close_reason)

    async def _until_over(self) -> None:
        """Close the WebSocket when its session ends, or when the hub answers that the user has lost access."""
        session, rest = self.gate.session_now(self._asked), 0.0
        while True:
            if rest <= 0 or (session is not None and session.is_over):
                if not await self._may_stay():
                    self.close(SESSION_OVER, "sign in again")
                    return
                rest = max(1.0, self.gate.settings.cache.total_seconds())
            await asyncio.sleep(POLL_SECONDS)
            rest -= POLL_SECONDS

    async def _may_stay(self) -> bool:
        try:
            return (await self.gate.answer(self._asked)).verdict.passage in (Passage.PASS, Passage.AWAY)
        except Exception as problem:  # noqa: BLE001  # no error may keep a WebSocket open
            log.error("whether a WebSocket may stay cannot be known: %s", type(problem).__name__)
            return False

    def _end(self, status: int) -> None:
        self.set_status(status)
        self.finish()


def _address(app: App, uri: str) -> str:
    """Return the URL of the app's WebSocket; "" if the path is malformed.

    Args:
        uri: path and query of the browser's request.
    """
    if not uri.startswith("/") or not uri.isascii() or not uri.isprintable() or " " in uri:
        return ""
    own, inner = urlsplit(app.where).path.rstrip("/"), urlsplit(app.upstream)
    if not app.prefix and own:
        if not uri.startswith(f"{own}/"):
            return ""
        uri = uri[len(own) :]
    return f"{'wss' if inner.scheme == 'https' else 'ws'}://{inner.netloc}{uri}"
