"""What is use of a server, seen by a real configurable-http-proxy and by the server: not our panel, still its kernels.

A hub stops idle servers by what the proxy saw, and the proxy counts every byte from the browser, pongs too.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

from hub_extensions.adapters.simulated.layouts import load_layout
from tests.fakes.proxy import Proxy
from tests.fakes.user_server import LOGIN_TOKEN, UserServer
from tests.patience import patient, soon

pytestmark = pytest.mark.needs("node")

ROUTE = "/user/ada"
UUID = next(device.uuid for device in load_layout("lab-a100").devices if device.profile == "1g.5gb")
QUIET_SECONDS = 12.0
"""Longer than the period of a server that nobody looks at, and than twelve of one that is looked at."""
PING_MS = 1000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UserServer]:
    environ = {
        "JUPYTERHUB_GPU_LEASE": "lease-of-this-test",
        "JUPYTERHUB_GPU_SIMULATED": "lab-a100",
        "CUDA_VISIBLE_DEVICES": UUID,
    }
    pings = f"--ServerApp.tornado_settings={{'ws_ping_interval': {PING_MS}}}"
    server = UserServer(tmp_path_factory.mktemp("server"), environ, pings)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def proxy(server: UserServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with Proxy(tmp_path_factory.mktemp("proxy"), {ROUTE: f"http://127.0.0.1:{server.port}"}) as proxy:
        yield proxy


@asynccontextmanager
async def through(proxy: Proxy, path: str) -> AsyncIterator[list[str | bytes]]:
    """A websocket to the server through the proxy, that reads all (what it heard) and answers pings, as browsers do."""
    heard: list[str | bytes] = []

    def hear(message: str | bytes | None) -> None:
        if message is not None:  # None: closed
            heard.append(message)

    url = f"{proxy.url.replace('http', 'ws', 1)}{ROUTE}/{path}"
    request = HTTPRequest(url, headers={"Authorization": f"token {LOGIN_TOKEN}"}, request_timeout=patient(20))
    connection = await websocket_connect(request, on_message_callback=hear)
    try:
        yield heard
        assert connection.close_code is None, "the server closed the connection"
    finally:
        connection.close()


@pytest.mark.whole
async def test_the_panel_and_the_event_stream_are_no_use_of_the_server(server: UserServer, proxy: Proxy) -> None:
    """Pages that only listen: pushed to every second, for longer than any of our periods."""
    async with through(proxy, "gpu/live") as panel, through(proxy, "api/events/subscribe"):
        await soon(lambda: panel, 15)
        before, since = (proxy.last_activity(ROUTE), server.last_activity()), time.monotonic()
        await soon(lambda: time.monotonic() - since > QUIET_SECONDS, 2 * QUIET_SECONDS)
        assert len(panel) >= 2, "something was pushed meanwhile"
        assert (proxy.last_activity(ROUTE), server.last_activity()) == before


@pytest.mark.whole
async def test_an_open_notebook_still_counts_for_the_proxy(server: UserServer, proxy: Proxy) -> None:
    """A kernel's websocket is pinged by the server, and the browser's pongs move the proxy's view, with us there."""
    status, kernel = server.request("api/kernels", "POST")
    assert status == 201, kernel
    async with through(proxy, "gpu/live"), through(proxy, f"api/kernels/{kernel['id']}/channels"):
        before = proxy.last_activity(ROUTE)
        await soon(lambda: proxy.last_activity(ROUTE) > before, QUIET_SECONDS)
