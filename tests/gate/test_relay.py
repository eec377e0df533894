"""WebSockets that the gate carries: judged before they open, closed with their session, ours hidden from the app."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application
from tornado.websocket import WebSocketClientConnection, WebSocketHandler, websocket_connect

from hub_extensions.core.sign_on.ended_sessions import session_hash
from hub_extensions.gate.gate import SECURE_COOKIE
from tests.fakes.gate_hub import GateHub
from tests.gate.gate_browser import DASK, MLFLOW, ORIGIN, PROXY_SECRET, GateBrowser, Standing, a_gate
from tests.gate.test_ends import report_end
from tests.patience import patient

pytestmark = pytest.mark.slow

LONG = 3600.0


class Echo(WebSocketHandler):
    """An app with Tornado's own check of the origin; its first message says what reached it."""

    def select_subprotocol(self, subprotocols: list[str]) -> str | None:
        return subprotocols[0] if subprotocols else None

    def open(self) -> None:
        headers = dict(self.request.headers.get_all())
        self.write_message(json.dumps({"uri": self.request.uri, "headers": headers}))

    def on_message(self, message: str | bytes) -> None:
        if message == "end":
            self.close(4000, "the app's end")
        else:
            self.write_message(message, binary=isinstance(message, bytes))


@asynccontextmanager
async def echo_app() -> AsyncIterator[str]:
    """Its address."""
    socket, port = bind_unused_port()
    server = HTTPServer(Application([(r"/.*", Echo)], log_function=lambda handler: None))
    server.add_socket(socket)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.stop()
        await server.close_all_connections()


@asynccontextmanager
async def relayed(folder: Path, hub: GateHub, cache: float = LONG, prefix: bool = True) -> AsyncIterator[Standing]:
    hub.add_user("ada", MLFLOW.scope, DASK.scope, groups=("lab",))
    async with echo_app() as upstream:
        dask = replace(DASK, upstream=upstream, relay=True, prefix=prefix)
        async with a_gate(folder, hub, cache=timedelta(seconds=cache), catalogue=(dask, MLFLOW)) as standing:
            yield standing


async def opened(browser: GateBrowser, app: str = "dask", tail: str = "", **more: str) -> WebSocketClientConnection:
    headers = {
        "X-Gate-Proxy": PROXY_SECRET,
        "X-Gate-Uri": f"/{app}/live?x=1",
        "X-Gate-Upgrade": "websocket",
        "Origin": ORIGIN,
        "Sec-Fetch-Site": "same-origin",
        "Cookie": f"{SECURE_COOKIE}={browser.cookie}; theirs=1",
        **{key.replace("_", "-"): value for key, value in more.items()},
    }
    url = f"ws://127.0.0.1:{browser.port}/_gate/relay/{app}{tail}"
    return await websocket_connect(HTTPRequest(url, headers=headers), subprotocols=["bokeh"])


async def refused(browser: GateBrowser, app: str = "dask", **more: str) -> int:
    with pytest.raises(HTTPClientError) as refusal:
        await opened(browser, app, **more)
    return refusal.value.code


async def until(true: Callable[[], bool]) -> None:
    async def holds() -> None:
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    await asyncio.wait_for(holds(), patient(20))


async def told(socket: WebSocketClientConnection) -> str | bytes | None:
    return await asyncio.wait_for(socket.read_message(), patient(20))


async def test_it_carries_both_ways_and_the_app_learns_who_it_is_from_the_gate_alone(
    tmp_path: Path, hub: GateHub
) -> None:
    async with relayed(tmp_path / "gate", hub) as standing:
        ada = standing.browser()
        await ada.sign_in("dask")
        socket = await opened(ada, X_Auth_Request_User="root")
        reached = json.loads(await told(socket) or "")
        assert reached["uri"] == "/dask/live?x=1"
        assert reached["headers"]["X-Auth-Request-User"] == "ada"
        behind = await opened(ada, tail="/dask/live?x=2", X_Gate_Uri="")  # as Traefik leads them
        assert json.loads(await told(behind) or "")["uri"] == "/dask/live?x=2"
        assert reached["headers"]["Host"] == "apps.example.org"
        assert reached["headers"]["Cookie"] == "theirs=1"
        assert ada.cookie not in json.dumps(reached) and PROXY_SECRET not in json.dumps(reached)
        assert socket.selected_subprotocol == "bokeh"
        for message in ("text", b"\x00\xff" * 70_000):
            await socket.write_message(message, binary=isinstance(message, bytes))
            assert await told(socket) == message
        await socket.write_message("end")
        assert await told(socket) is None
        assert (socket.close_code, socket.close_reason) == (4000, "the app's end")


async def test_a_path_is_taken_off_where_the_app_does_not_know_it(tmp_path: Path, hub: GateHub) -> None:
    async with relayed(tmp_path / "gate", hub, prefix=False) as standing:
        ada = standing.browser()
        await ada.sign_in("dask")
        assert json.loads(await told(await opened(ada)) or "")["uri"] == "/live?x=1"
        assert await refused(ada, X_Gate_Uri="/mlflow/live") == 400


async def test_who_may_not_opens_none(tmp_path: Path, hub: GateHub) -> None:
    async with relayed(tmp_path / "gate", hub) as standing:
        ada, ben = standing.browser(), standing.browser()
        await ada.sign_in("dask")
        hub.signed_in = "ben"
        await ben.sign_in("dask")
        assert await refused(ben) == 403
        assert await refused(standing.browser()) == 401
        assert await refused(ada, X_Gate_Proxy="another") == 404
        assert await refused(ada, "mlflow") == 404, "its WebSockets are the proxy's"
        assert await refused(ada, Origin="https://evil.example", Sec_Fetch_Site="cross-site") == 403
        assert await refused(ada, X_Gate_Uri="//evil.example/ x") == 400


@pytest.mark.slow
async def test_it_closes_with_its_session_though_the_hubs_answer_is_fresh(tmp_path: Path, hub: GateHub) -> None:
    async with relayed(tmp_path / "gate", hub) as standing:
        ada = standing.browser()
        await ada.sign_in("dask")
        socket = await opened(ada)
        await told(socket)
        await report_end(standing, {"user": "ada", "sessions": [session_hash("of-ada")]})
        assert await told(socket) is None
        assert socket.close_code == 4401
        assert await refused(ada) == 401


@pytest.mark.whole
@pytest.mark.slow
async def test_it_closes_when_the_right_is_gone_and_not_because_the_hub_is_away(tmp_path: Path, hub: GateHub) -> None:
    async with relayed(tmp_path / "gate", hub, cache=0.0) as standing:
        ada = standing.browser()
        await ada.sign_in("dask")
        socket = await opened(ada)
        await told(socket)
        hub.fault, count = "500", hub.asked["user"]
        await until(lambda: hub.asked["user"] >= count + 2)
        await socket.write_message("still here")
        assert await told(socket) == "still here"
        hub.fault = ""
        hub.add_user("ada", MLFLOW.scope, groups=("lab",))
        assert await told(socket) is None
        assert socket.close_code == 4401
