"""A refusal of a stranger's request takes nothing from the requests of the server's owner, whatever it was refused for.

A proxy keeps its connections to a server. A connection that ends after an answer which does not say so fails the next
request that the proxy sends over it, whoever sent that.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.panel_service import TOKEN, PanelService
from tests.fakes.proxy import Proxy
from tests.fakes.user_server import LOGIN_TOKEN, UserServer
from tests.kept_connections import SentRequest, ends_unannounced, failures_beside

pytestmark = pytest.mark.programs

BASE = "/user/ada/"
OWNER = f"Authorization: token {LOGIN_TOKEN}"
SHORT, JSON = "Content-Length: 2", "Content-Type: application/json"
PATHS = ("snapshot", "history", "live", "keep", "give-back", "saved", "warned")
UPGRADE = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {'A' * 22}==")
REFUSED = [
    *(SentRequest(method, f"{BASE}gpu/{path}") for path in PATHS for method in ("GET", "HEAD", "DELETE", "NONSENSE")),
    *(
        SentRequest(method, f"{BASE}gpu/{path}", (SHORT, JSON), b"{}")
        for path in PATHS
        for method in ("POST", "PUT", "PATCH")
    ),
    SentRequest("POST", f"{BASE}gpu/saved", (SHORT, "Content-Type: text/plain"), b"{}"),
    SentRequest("POST", f"{BASE}gpu/saved", ("Transfer-Encoding: chunked",), b"2\r\n{}\r\n0\r\n\r\n"),
    SentRequest("POST", f"{BASE}gpu/saved", ("Content-Length: 1000",)),
    SentRequest("POST", f"{BASE}gpu/saved", ("Cookie: _xsrf=2|made|up|1", SHORT), b"{}"),
    SentRequest("POST", f"{BASE}gpu/saved", (OWNER, "Origin: https://evil.example", SHORT), b"{}"),
    SentRequest("POST", f"{BASE}gpu/saved", (OWNER, "Content-Length: 1000000")),
    SentRequest("POST", f"{BASE}gpu/saved", (OWNER, "Transfer-Encoding: chunked"), b"3000\r\n" + b"x" * 0x3000),
    SentRequest("PUT", f"{BASE}gpu/saved", (OWNER, SHORT), b"{}"),
    SentRequest("POST", f"{BASE}gpu/sign-on/recheck", (SHORT,), b"{}"),
    SentRequest("POST", f"{BASE}gpu/sign-on/recheck", ("Authorization: made up", "Content-Length: 1000000")),
    SentRequest("GET", f"{BASE}gpu/sign-on/recheck"),
    SentRequest("GET", f"{BASE}gpu/nothing"),
    SentRequest("POST", f"{BASE}gpu/nothing", (SHORT,), b"{}"),
    SentRequest("GET", f"{BASE}gpu/live", UPGRADE),
    SentRequest("GET", f"{BASE}gpu/saved", UPGRADE),
    SentRequest("POST", f"{BASE}gpu/live", (*UPGRADE, SHORT), b"{}"),
    SentRequest("GET", f"{BASE}gpu/live", (*UPGRADE, "Content-Length: 1000")),
    SentRequest("GET", f"{BASE}gpu/live", (*UPGRADE, OWNER, "Content-Length: 1000000")),
]
WHOLE = [each for each in REFUSED if not {"Content-Length: 1000", "Content-Length: 1000000"} & set(each.headers)]
THROUGH_A_PROXY = [*WHOLE, SentRequest("POST", f"{BASE}gpu/saved", (JSON, "Content-Length: 100000"), b"x" * 100_000)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UserServer]:
    service = PanelService().come()
    environ = {"JUPYTERHUB_GPU_SERVICE_URL": service.url, "JUPYTERHUB_API_TOKEN": TOKEN}
    server = UserServer(tmp_path_factory.mktemp("server"), environ)
    yield server
    server.stop()
    service.go()


@pytest.mark.whole
async def test_a_connection_goes_on_after_a_refusal_or_its_end_is_announced(server: UserServer) -> None:
    found = [(request, await ends_unannounced(server.port, request)) for request in REFUSED]
    assert [each for each in found if each[1]] == []


@pytest.mark.whole
@pytest.mark.needs("node")
def test_saves_go_on_through_a_real_proxy_while_strangers_are_refused(server: UserServer, tmp_path: Path) -> None:
    notebook = {"type": "notebook", "format": "json", "content": {"cells": [], "metadata": {}, "nbformat": 4}}
    notebook["content"]["nbformat_minor"] = 5  # type: ignore[index]
    body = json.dumps(notebook).encode()
    save = SentRequest("PUT", f"{BASE}api/contents/work.ipynb", (OWNER, JSON), body)
    with Proxy(tmp_path, {"/user/ada": f"http://127.0.0.1:{server.port}"}) as proxy:
        statuses = failures_beside(proxy.url, THROUGH_A_PROXY, 200, save)
    assert sum(statuses.values()) > 20
    assert set(statuses) <= {200, 201}, statuses
