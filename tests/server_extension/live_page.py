"""A page's connection to a real user's server: what it has heard, and waiting for more."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from tests.fakes.user_server import LOGIN_TOKEN, UserServer
from tests.patience import patient


class Page:
    """What a panel hears: `messages` in order, the newest `snapshot`, `closed` when the server has hung up."""

    def __init__(self, connection: WebSocketClientConnection) -> None:
        self._connection = connection
        self.messages: list[dict[str, Any]] = []
        self.snapshot: dict[str, Any] = {}
        self.closed = False

    async def until(self, true: Callable[[], object], seconds: float = 20.0) -> None:
        """Read on until it is so."""
        deadline = time.monotonic() + patient(seconds)
        while not true():
            left = deadline - time.monotonic()
            assert left > 0, f"it did not come; the last snapshot: {self.snapshot}"
            try:
                message = await asyncio.wait_for(self._connection.read_message(), min(left, 1.0))
            except asyncio.TimeoutError:
                continue  # the wait itself may be over
            if message is None:
                self.closed = True
                assert true(), "the connection was closed"
                return
            self.messages.append(json.loads(message))
            self.snapshot = self.messages[-1]["snapshot"] or self.snapshot

    async def until_state(self, state: str, seconds: float = 20.0) -> str:
        """Read on until the GPU's state is this one; the English text of its reason."""
        await self.until(lambda: self.snapshot.get("state") == state, seconds)
        return str((self.snapshot["reason"] or {}).get("message", ""))

    def numbers(self) -> list[dict[str, Any]]:
        return [numbers for message in self.messages for numbers in message["numbers"]]


@asynccontextmanager
async def page_of(server: UserServer, query: str = "") -> AsyncIterator[Page]:
    """An open page of this server."""
    url = server.url.replace("http", "ws", 1) + "gpu/live" + query
    request = HTTPRequest(url, headers={"Authorization": f"token {LOGIN_TOKEN}"}, request_timeout=patient(20))
    connection = await websocket_connect(request)
    try:
        yield Page(connection)
    finally:
        connection.close()


def states_in(log: str) -> list[str]:
    """The GPU's states as the server's log has them, one a line."""
    return [line.split("GPU: ", 1)[1].split()[0] for line in log.splitlines() if "GPU: " in line]
