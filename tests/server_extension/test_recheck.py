"""Which WebSockets a server knows: each that opens, once, until it is closed; whatever others do around Tornado."""

from __future__ import annotations

from functools import wraps
from typing import Any

import pytest
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application
from tornado.websocket import WebSocketHandler, websocket_connect

from hub_extensions.server_extension.recheck import note_websockets, open_websockets
from tests.patience import soon


class Quiet(WebSocketHandler):
    """Says nothing."""


class Apart(WebSocketHandler):
    """Of an extension that shakes hands itself first, as proxied apps do."""

    async def get(self, *args: Any, **kwargs: Any) -> None:
        await super().get(*args, **kwargs)


def wrapped_by_others() -> Any:
    opens = WebSocketHandler.get

    @wraps(opens)
    async def traced(handler: WebSocketHandler, *args: Any, **kwargs: Any) -> None:
        await opens(handler, *args, **kwargs)

    return traced


@pytest.mark.parametrize("others", [False, True])
async def test_each_websocket_is_known_from_its_opening_to_its_end(
    monkeypatch: pytest.MonkeyPatch, others: bool
) -> None:
    monkeypatch.setattr(WebSocketHandler, "get", wrapped_by_others() if others else WebSocketHandler.get)
    note_websockets()
    noting = WebSocketHandler.get
    note_websockets()
    assert WebSocketHandler.get is noting, "a second call changes nothing"
    [socket] = bind_sockets(0, "127.0.0.1")
    server = HTTPServer(Application([("/quiet", Quiet), ("/apart", Apart)]))
    server.add_socket(socket)
    url = f"ws://127.0.0.1:{socket.getsockname()[1]}"
    try:
        quiet, apart = await websocket_connect(f"{url}/quiet"), await websocket_connect(f"{url}/apart")

        def known() -> set[type]:
            return {type(each) for each in open_websockets() if isinstance(each, (Quiet, Apart))}

        assert known() == {Quiet, Apart}
        quiet.close()
        await soon(lambda: known() == {Apart})
        apart.close()
        await soon(lambda: not known())
    finally:
        server.stop()
