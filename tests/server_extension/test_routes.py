"""The routes of a real Jupyter server, as a process of its own: who may ask, what comes, and that a panel is no use."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import subprocess
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from hub_extensions.server_extension.codec import PROTOCOL_VERSION
from hub_extensions.server_extension.routes import EXAMPLES
from tests.fakes.panel_service import TOKEN, PanelService, a_countdown, a_state
from tests.fakes.user_server import LOGIN_TOKEN, UserServer
from tests.patience import patient, soon, until
from tests.ports import free_port

pytestmark = pytest.mark.programs

ROOT = Path(__file__).resolve().parents[2]
ROUTES = [
    ("GET", "gpu/snapshot"),
    ("GET", "gpu/history"),
    ("GET", "gpu/live"),
    ("GET", "gpu/examples/loop"),
    ("POST", "gpu/keep"),
    ("POST", "gpu/give-back"),
    ("POST", "gpu/extend"),
    ("POST", "gpu/training-notice"),
    ("POST", "gpu/saved"),
    ("POST", "gpu/warned"),
]


@pytest.fixture(scope="module")
def service() -> Iterator[PanelService]:
    service = PanelService().come()
    yield service
    service.go()


@pytest.fixture(scope="module")
def server(service: PanelService, tmp_path_factory: pytest.TempPathFactory) -> Iterator[UserServer]:
    environ = {"JUPYTERHUB_GPU_SERVICE_URL": service.url, "JUPYTERHUB_API_TOKEN": TOKEN}
    server = UserServer(tmp_path_factory.mktemp("server"), environ)
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def a_fresh_state(service: PanelService) -> None:
    service.state, service.refuse = a_state(), None


@asynccontextmanager
async def listening(
    server: UserServer, *, headers: dict[str, str] | None = None, token: str | None = LOGIN_TOKEN, query: str = ""
) -> AsyncIterator[WebSocketClientConnection]:
    url = server.url.replace("http", "ws", 1) + "gpu/live" + query
    given = dict(headers or {})
    if token is not None:
        given["Authorization"] = f"token {token}"
    connection = await websocket_connect(
        HTTPRequest(url, headers=given, follow_redirects=False, request_timeout=patient(20))
    )
    try:
        yield connection
    finally:
        connection.close()


async def next_message(connection: WebSocketClientConnection, seconds: float = 15.0) -> dict[str, Any]:
    message = await asyncio.wait_for(connection.read_message(), patient(seconds))
    assert message is not None, "the connection was closed"
    found: dict[str, Any] = json.loads(message)
    return found


async def next_snapshot(connection: WebSocketClientConnection) -> dict[str, Any]:
    """The next one there is; numbers in between are passed over."""
    while True:
        snapshot: dict[str, Any] | None = (await next_message(connection))["snapshot"]
        if snapshot is not None:
            return snapshot


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_a_stranger_gets_nothing(server: UserServer, service: PanelService, method: str, path: str) -> None:
    before = service.keeps
    status, body = server.request(path, method, token=None)
    assert status in (302, 403)
    assert "ada" not in json.dumps(body)
    assert service.keeps == before


def test_an_address_that_is_refused_leaves_no_secret_of_its_query_in_the_log(server: UserServer) -> None:
    assert server.request("gpu/keep?code=code-of-a-login&state=state-of-a-login", "POST", token=None)[0] == 403
    assert "403 POST /user/ada/gpu/keep?code=[secret]&state=[secret]" in server.log.read_text()
    assert "-of-a-login" not in server.log.read_text()


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_a_wrong_token_gets_nothing(server: UserServer, method: str, path: str) -> None:
    assert server.request(path, method, token="wrong")[0] in (302, 403)


async def test_a_stranger_gets_no_websocket(server: UserServer) -> None:
    with pytest.raises(HTTPClientError) as refused:
        async with listening(server, token=None):
            pass
    assert refused.value.code in (302, 403)


def cookies_of(server: UserServer) -> str:
    """What a browser of the server's owner carries."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{server.url}tree?token={LOGIN_TOKEN}", timeout=patient(20)) as page:
        page.read()
        headers = page.headers.get_all("Set-Cookie") or []
    return "; ".join(re.split(";", header)[0] for header in headers)


async def test_another_sites_page_gets_no_websocket_with_the_owners_cookie(server: UserServer) -> None:
    cookie = cookies_of(server)
    own = f"http://127.0.0.1:{server.port}"
    async with listening(server, token=None, headers={"Cookie": cookie, "Origin": own}) as connection:
        assert (await next_snapshot(connection))["version"] == PROTOCOL_VERSION
    with pytest.raises(HTTPClientError) as refused:
        async with listening(server, token=None, headers={"Cookie": cookie, "Origin": "https://evil.example"}):
            pass
    assert refused.value.code == 403


@pytest.mark.parametrize(
    "path", ["gpu/keep", "gpu/give-back", "gpu/extend", "gpu/training-notice", "gpu/saved", "gpu/warned"]
)
def test_another_sites_form_changes_nothing(server: UserServer, service: PanelService, path: str) -> None:
    before = service.keeps, list(service.given_back)
    headers = {"Cookie": cookies_of(server), "Origin": "https://evil.example"}
    assert server.request(path, "POST", token=None, headers=headers)[0] in (403, 404)
    assert (service.keeps, service.given_back) == before


async def answer_to(server: UserServer, method: str, path: str, *headers: str, body: bytes = b"") -> bytes:
    """Everything that comes back until the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    lines = (f"{method} {server.base_url}{path} HTTP/1.1", f"Host: 127.0.0.1:{server.port}", *headers, "", "")
    writer.write("\r\n".join(lines).encode() + body)
    try:
        return await asyncio.wait_for(reader.read(), patient(20))
    finally:
        writer.close()


@pytest.mark.parametrize("path", [path for _, path in ROUTES if path != "gpu/live"])
async def test_no_byte_of_a_strangers_body_is_waited_for_and_little_of_the_owners_is_read(
    server: UserServer, service: PanelService, path: str
) -> None:
    method, before = "POST" if ("POST", path) in ROUTES else "GET", service.keeps
    said = await answer_to(server, method, path, "Content-Length: 1000")
    assert said.startswith(b"HTTP/1.1 403"), said
    owner = f"Authorization: token {LOGIN_TOKEN}"
    said = await answer_to(server, method, path, owner, "Content-Length: 1000000", body=b"x" * 5000)
    assert said.startswith(b"HTTP/1.1 413"), said
    assert service.keeps == before


@pytest.mark.whole
async def test_more_websockets_than_a_person_has_pages_are_closed_though_nobody_answers(server: UserServer) -> None:
    upgrade = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")
    key, owner = "Sec-WebSocket-Key: " + "A" * 22 + "==", f"Authorization: token {LOGIN_TOKEN}"
    asked = [asyncio.create_task(answer_to(server, "GET", "gpu/live", *upgrade, key, owner)) for _ in range(70)]
    try:
        await soon(lambda: sum(task.done() for task in asked) >= 20, 60)
        closed = [task.result() for task in asked if task.done()]
        assert all(b" 101 " in said and b"too many open panels" in said for said in closed)
        assert sum(not task.done() for task in asked) == 50
    finally:
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)

    async def there_is_room() -> bool:
        async with listening(server) as connection:
            return await connection.read_message() is not None

    await soon(there_is_room)


def test_the_server_marks_none_of_our_routes_as_open(server: UserServer) -> None:
    """Jupyter Server lists every handler without an authentication decorator when it loads an extension."""
    log = server.log.read_text()
    assert "hub_extensions.server_extension | extension was successfully loaded" in log
    assert "gpu/" not in log[: log.index("is running at")]


async def test_the_snapshot_is_what_the_service_says(server: UserServer, service: PanelService) -> None:
    await soon(lambda: server.request("gpu/snapshot")[1]["server"])
    status, snapshot = server.request("gpu/snapshot")
    assert status == 200
    assert snapshot["state"] == "no-gpu"
    assert snapshot["reason"]["message"] == "This server has no GPU."
    assert snapshot["server"]["title"] == "MIG 1g.5gb"
    assert TOKEN not in json.dumps(snapshot)


async def test_keep_goes_to_the_service_and_shows_at_once(server: UserServer, service: PanelService) -> None:
    service.state = a_state(countdown=a_countdown())
    status, body = server.request("gpu/keep", "POST")
    assert (status, body["keep"]["left"], body["countdown"]) == (200, 0, None)
    assert server.request("gpu/snapshot")[1]["server"]["keep"]["left"] == 0


def test_our_notebooks_are_sent_as_json_and_no_other_file(server: UserServer) -> None:
    for name in EXAMPLES:
        status, notebook = server.request(f"gpu/examples/{name}")
        assert (status, notebook["nbformat"]) == (200, 4), name
        assert notebook["cells"]
    for name in ("other", "..%2F__init__", "loop.ipynb"):
        assert server.request(f"gpu/examples/{name}")[0] == 404


def test_a_refused_keep_says_why(server: UserServer, service: PanelService) -> None:
    problem = {"message": "You have used both.", "field": "keep", "reason": "keep-none-left", "params": {"times": 2.0}}
    service.refuse = (409, problem)
    assert server.request("gpu/keep", "POST") == (409, problem)


def test_giving_the_gpu_back_goes_to_the_service_as_the_user_wants_it(
    server: UserServer, service: PanelService
) -> None:
    service.state = a_state(countdown=a_countdown(0, cause="given-back"), save=True)
    before = len(service.given_back)
    for path in ("gpu/give-back", "gpu/give-back?cpu=1"):
        status, body = server.request(path, "POST")
        assert (status, body["countdown"]["cause"]) == (200, "given-back")
    assert service.given_back[before:] == [False, True]
    assert server.request("gpu/snapshot")[1]["server"]["save"] is True
    problem = {"message": "It stops already.", "field": "give-back", "reason": "keep-stopping", "params": {}}
    service.refuse = (409, problem)
    assert server.request("gpu/give-back", "POST") == (409, problem)


def test_saved_goes_to_the_service(server: UserServer, service: PanelService) -> None:
    service.state = a_state(save=True)
    assert server.request("gpu/saved", "POST")[0] == 204
    assert service.reports[-1]["saved"] is True


async def test_a_warning_that_a_page_has_shown_is_reported_and_is_no_use_of_the_server(
    server: UserServer, service: PanelService
) -> None:
    countdown = a_countdown()
    service.state = a_state(countdown=countdown)
    server.request("gpu/saved", "POST")  # the service's answer has the countdown
    shown = server.request("gpu/snapshot")[1]["server"]["countdown"]["stops_at"]
    headers = (f"Authorization: token {LOGIN_TOKEN}", "Connection: close", "Content-Length: 0")
    said = await answer_to(server, "POST", "gpu/warned", *headers)
    assert said.startswith(b"HTTP/1.1 304"), "a proxy counts an answer below 300"
    await soon(lambda: service.reports[-1]["warned"] == shown)


async def test_the_websocket_tells_at_once_and_on_change(server: UserServer, service: PanelService) -> None:
    async with listening(server) as connection:
        first = await next_snapshot(connection)
        assert first["version"] == PROTOCOL_VERSION
        service.state = a_state(countdown=a_countdown(), title="changed")
        titles = []
        while "changed" not in titles:
            snapshot = await next_snapshot(connection)
            titles.append((snapshot["server"] or {}).get("title"))
    assert "changed" in titles


async def test_an_opened_panel_is_reported_as_opened(server: UserServer, service: PanelService) -> None:
    async with listening(server) as connection:
        await next_snapshot(connection)
        await soon(lambda: service.reports and service.reports[-1]["opened"])
    assert service.reports[-1]["opened"] is True


async def test_a_panel_that_talks_is_closed(server: UserServer) -> None:
    async with listening(server) as connection:
        await next_snapshot(connection)
        await connection.write_message("keep")
        while await asyncio.wait_for(connection.read_message(), patient(10)) is not None:
            continue
        assert connection.close_code == 1003


@pytest.mark.whole
async def test_an_open_panel_is_no_activity_of_the_server(server: UserServer, service: PanelService) -> None:
    """The server's own last activity stays where it is while a panel listens and is pushed to."""
    service.state = a_state(save=True)  # the server asks every 2 s then
    async with listening(server) as connection:
        await next_snapshot(connection)
        before = server.last_activity()
        for number in range(3):
            service.state = a_state(title=f"pushed {number}", save=True)
            await next_snapshot(connection)
        server.request("gpu/snapshot")
        server.request("gpu/saved", "POST")
        assert server.last_activity() == before


@pytest.mark.whole
@pytest.mark.needs("node")
async def test_an_open_panel_is_no_activity_for_the_proxy(
    server: UserServer, service: PanelService, tmp_path: Path
) -> None:
    """configurable-http-proxy counts every byte from the browser, pongs too: an open panel sends none."""
    service.state = a_state(save=True)
    with proxied(server, tmp_path) as proxy:
        url = f"ws://127.0.0.1:{proxy.port}/user/ada/gpu/live?token={LOGIN_TOKEN}"
        connection = await websocket_connect(HTTPRequest(url, request_timeout=patient(20)))
        try:
            await next_snapshot(connection)
            opened = proxy.last_activity()
            for number in range(3):
                service.state = a_state(title=f"through the proxy {number}", save=True)
                await next_snapshot(connection)
            assert proxy.last_activity() == opened
            proxy.get(f"/user/ada/api/status?no_track_activity=1&token={LOGIN_TOKEN}")
            assert proxy.last_activity() > opened, "the contrast: any answered request moves it"
        finally:
            connection.close()


class proxied:  # noqa: N801 - a context manager, read as one
    """A real configurable-http-proxy in front of one server."""

    def __init__(self, server: UserServer, directory: Path) -> None:
        self._server = server
        self._directory = directory
        self.port, self._api_port = free_port(), free_port()

    def __enter__(self) -> proxied:
        program = shutil.which("configurable-http-proxy")
        assert program is not None, "configurable-http-proxy is not on the path"
        with (self._directory / "proxy.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    program,
                    f"--port={self.port}",
                    f"--api-port={self._api_port}",
                    "--ip=127.0.0.1",
                    "--api-ip=127.0.0.1",
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={"PATH": os.environ["PATH"], "HOME": str(self._directory)},
            )
        until(self._add_route, 30, "the proxy comes")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(patient(10))

    def _add_route(self) -> bool:
        body = json.dumps({"target": f"http://127.0.0.1:{self._server.port}"}).encode()
        url = f"http://127.0.0.1:{self._api_port}/api/routes/user/ada"
        assert self._process.poll() is None, "the proxy has ended"
        with contextlib.suppress(OSError):
            urllib.request.urlopen(urllib.request.Request(url, data=body, method="POST"), timeout=patient(5)).close()
            return True
        return False

    def last_activity(self) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._api_port}/api/routes", timeout=patient(5)) as answer:
            return str(json.loads(answer.read())["/user/ada"]["last_activity"])

    def get(self, path: str) -> None:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=patient(10)) as answer:
            answer.read()


@pytest.mark.whole
def test_it_works_without_a_hub_and_ends_when_it_is_told(tmp_path: Path) -> None:
    server = UserServer(tmp_path, {})
    try:
        status, snapshot = server.request("gpu/snapshot")
        assert status == 200
        assert (snapshot["state"], snapshot["server"]) == ("no-gpu", None)
        assert snapshot["service_note"]["message"] == "This server was not started by a hub with GPU offers."
        assert server.request("gpu/keep", "POST")[0] == 503
    finally:
        ended = server.stop()
    assert ended
    assert "Traceback" not in server.log.read_text()
