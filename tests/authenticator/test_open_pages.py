"""What is open in a real server when a session ends: pages and WebSockets of that session close, nothing else."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import uuid
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import requests
from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

from hub_extensions.server_extension.recheck import SIGNED_OUT
from tests.authenticator.canaries import shown
from tests.authenticator.killed_at import again, config, dies_before
from tests.authenticator.signed_hub import ids, rest
from tests.hubs import Hub
from tests.loop.place import Place
from tests.patience import patient

pytestmark = pytest.mark.hub


CONFIG = """
c.SignOn.enabled = True
c.SignOn.token_cache_seconds = 300
c.Spawner.debug = True
"""


class Browser:
    """A person at a server of their own: cookies of hub and server, requests and WebSockets with them."""

    def __init__(self, hub: Hub, name: str) -> None:
        self.hub, self.server = hub, f"/user/{name}/"
        self.hub_session = hub.login(name)
        self.cookies = self.hub_session.cookies
        assert self.hub_session.get(f"{hub.url}{self.server}tree", timeout=patient(60)).url.endswith("/tree")

    def ask(self, method: str, path: str) -> requests.Response:
        xsrf = next((each.value for each in self.cookies if each.name == "_xsrf" and each.path == self.server), "")
        headers = {"X-XSRFToken": xsrf or "", "Sec-Fetch-Mode": "same-origin"}
        return self.hub_session.request(
            method, self.hub.url + self.server + path, headers=headers, timeout=patient(30), allow_redirects=False
        )

    async def open(self, path: str, at: str = "") -> WebSocketClientConnection:
        url = (at or self.hub.url) + self.server + path
        cookie = requests.Request("GET", url, cookies=self.cookies).prepare().headers["Cookie"]
        request = HTTPRequest(url.replace("http", "ws", 1), headers={"Cookie": cookie}, request_timeout=patient(30))
        return await websocket_connect(request)


def kernel_info() -> str:
    header = {
        "msg_id": uuid.uuid4().hex,
        "msg_type": "kernel_info_request",
        "session": "test",
        "username": "",
        "version": "5.3",
    }
    message = {"header": header, "parent_header": {}, "metadata": {}, "content": {}, "channel": "shell", "buffers": []}
    return json.dumps(message)


async def answers(kernel: WebSocketClientConnection) -> None:
    """The kernel answers over this WebSocket."""
    await kernel.write_message(kernel_info())
    while True:
        message: Any = await kernel.read_message()
        assert message is not None, f"closed with {kernel.close_code}"
        if isinstance(message, str) and json.loads(message)["msg_type"] == "kernel_info_reply":
            return


def own_address(hub: Hub, path: str) -> str:
    """Where the server with this path listens itself."""
    with closing(sqlite3.connect(hub.folder / "jupyterhub.sqlite")) as database:
        [(port,)] = database.execute("select port from servers where base_url = ?", [path])
    return f"http://127.0.0.1:{port}"


async def closed(connection: WebSocketClientConnection) -> int | None:
    """Wait for the other end to close it; the code."""
    while await asyncio.wait_for(connection.read_message(), patient(30)) is not None:
        pass
    return connection.close_code


@pytest.mark.whole
async def test_an_ended_sessions_pages_close_at_once_and_the_kernel_lives_on(tmp_path: Path) -> None:
    place = Place(tmp_path / "hub", layout="lab-a100", config=CONFIG + config())
    with place.open():
        hub = place.hub
        hub.add_users("ada")
        hub.spawn("ada", {"offer": "cpu"})
        hub.wait_ready("ada", seconds=60)
        one, two = Browser(hub, "ada"), Browser(hub, "ada")
        kernel = one.ask("POST", "api/kernels").json()["id"]
        terminal = one.ask("POST", "api/terminals").json()["name"]
        channels = f"api/kernels/{kernel}/channels?session_id="
        mine = await one.open(f"{channels}one")
        theirs = [await two.open(path) for path in (f"{channels}two", f"terminals/websocket/{terminal}", "gpu/live")]
        await answers(mine)
        await answers(theirs[0])
        assert two.ask("GET", "api/kernels").ok
        report = rest(
            hub, one.hub_session, "DELETE", f"users/ada/sessions/{ids(hub, one.hub_session, 'ada')[False][0]}"
        )
        assert (report.json()["servers_asked"], report.json()["tokens"]) == ([""], 1)
        assert [await closed(each) for each in theirs] == [SIGNED_OUT] * 3
        assert two.ask("GET", "api/kernels").status_code == two.ask("GET", "gpu/snapshot").status_code == 403
        await answers(mine)
        assert one.ask("GET", f"api/kernels/{kernel}").ok
        # only the hub makes a server ask
        assert one.ask("POST", "gpu/sign-on/recheck").status_code == 403
        # a new session finds the kernel again
        three = Browser(hub, "ada")
        await answers(await three.open(f"{channels}three"))
        # a hub that was killed before it told the server does so at its start, by the key that it gave the server:
        # the server's token it has forgotten
        at = own_address(hub, three.server)  # with its hub a proxy of the hub's own ends, and with it what goes by it
        mine = await one.open(f"{channels}one", at)
        theirs = [await three.open(path, at) for path in (f"{channels}four", "gpu/live")]
        await answers(theirs[0])
        [other] = ids(hub, one.hub_session, "ada")[False]
        dies_before(hub, "servers are asked")
        with suppress(requests.ConnectionError):
            rest(hub, one.hub_session, "DELETE", f"users/ada/sessions/{other}")
        again(hub)
        assert [await closed(each) for each in theirs] == [SIGNED_OUT] * 2
        assert three.ask("GET", "api/kernels").status_code == 403
        await answers(mine)
        assert one.ask("GET", f"api/kernels/{kernel}").ok
        # no secret of all this stands where somebody could read it: hub, service and server talk at their most
        kept = [each for each in place.state.rglob("*") if each.is_file() and each.suffix != ".json"]
        people = (each.hub_session for each in (one, two, three))
        assert shown(hub, {place.secret()}, *people, more=kept) == []
