"""A refusal by the service takes nothing from others whose requests come through the same proxy."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.fakes.proxy import Proxy
from tests.hub_service.conftest import PREFIX, Running
from tests.kept_connections import SentRequest, ends_unannounced, failures_beside

pytestmark = pytest.mark.slow

UPGRADE = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {'A' * 22}==")
TWO = ("Content-Length: 2", "Content-Type: application/json")
ADA = "Authorization: token ada-token"
REFUSED = [
    *(
        SentRequest(method, path)
        for path in ("", "help", "admin", "audit", "api/tickets")
        for method in ("GET", "HEAD")
    ),
    *(
        SentRequest(method, path, TWO, b"{}")
        for path in ("", "leave", "keep", "admin/stop", "api/tickets", "hub/tickets", "health", "metrics", "nothing")
        for method in ("POST", "PUT", "PATCH", "DELETE", "NONSENSE")
    ),
    SentRequest("GET", "oauth_callback?state=made-up"),
    SentRequest("POST", "oauth_callback", TWO, b"{}"),
    SentRequest("GET", "static/page.css"),
    SentRequest("GET", "static/nothing.css", (ADA,)),
    SentRequest("GET", "", UPGRADE),
    SentRequest("GET", "api/server", UPGRADE),
    SentRequest("POST", "leave", (ADA, *TWO), b"{}"),
    SentRequest("POST", "leave", (ADA, "Content-Length: 1000000")),
    SentRequest("POST", "leave", (ADA, "Transfer-Encoding: chunked"), b"30000\r\n" + b"x" * 0x30000),
    SentRequest("POST", "api/tickets", ("Transfer-Encoding: chunked",), b"2\r\n{}\r\n0\r\n\r\n"),
    SentRequest("POST", "api/tickets", (ADA, "Content-Length: 2", "Content-Type: text/plain"), b"no"),
    SentRequest("POST", "hub/tickets", ("Content-Length: 1000",)),
]


async def test_a_connection_goes_on_after_any_refusal_or_its_end_is_announced(service: Running) -> None:
    asked = [request._replace(path=PREFIX + request.path) for request in REFUSED]
    found = [(request, await ends_unannounced(service.port, request)) for request in asked]
    assert [each for each in found if each[1]] == []


@pytest.mark.whole
@pytest.mark.needs("node")
@pytest.mark.programs
async def test_pages_go_on_through_a_real_proxy_while_strangers_are_refused(service: Running, tmp_path: Path) -> None:
    whole = [each for each in REFUSED if each.method != "NONSENSE" and "Content-Length: 1000000" not in each.headers]
    asked = [each._replace(path=PREFIX + each.path) for each in whole if "Content-Length: 1000" not in each.headers]
    page = SentRequest("GET", PREFIX, (ADA,))
    with Proxy(tmp_path, {PREFIX.rstrip("/"): f"http://127.0.0.1:{service.port}"}) as proxy:
        statuses = await asyncio.to_thread(failures_beside, proxy.url, asked, 200, page)
    assert set(statuses) == {200}, statuses
