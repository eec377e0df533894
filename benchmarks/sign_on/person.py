"""Somebody who has signed in at Keycloak: a browser, a copy of it, a server on a GPU, a page of it, an open kernel."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import requests
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

from benchmarks.sign_on.keycloak import Keycloak
from tests.authenticator.openid.provider_hub import new_browser
from tests.authenticator.signed_hub import copy_of
from tests.authenticator.test_open_pages import answers
from tests.hubs import Hub
from tests.patience import patient

SURFACES = ("hub page", "hub API", "OAuth token", "own token", "server page", "WebSocket", "GPU server")
OFFER = "mig-1g.5gb"


def signed_in(hub: Hub, keycloak: Keycloak, name: str) -> requests.Session:
    """A browser."""
    browser = new_browser()
    page = keycloak.sign_in(browser, f"{hub.url}/hub/oauth_login?next=/hub/home", name)
    assert page.url == f"{hub.url}/hub/home", page.text
    browser.headers["X-XSRFToken"] = browser.cookies.get("_xsrf", path="/hub/") or ""
    return browser


class Person:
    """Whose sign-on is to end. `works`: is a surface still there? `began`: when the event did."""

    def __init__(self, hub: Hub, keycloak: Keycloak, name: str) -> None:
        self.hub, self.name = hub, name
        self.id = keycloak.add(name)
        self.browser = signed_in(hub, keycloak, name)
        self.token = hub.token_of(name)
        self.began = 0.0
        self.works: dict[str, Callable[[], bool]] = {}
        hub.spawn(name, {"offer": OFFER}).raise_for_status()
        hub.wait_ready(name, seconds=90)

    def begins(self) -> None:
        """The event, a moment from now."""
        self.began = time.monotonic()

    def opens_all(self) -> None:
        """A page of the server, and a kernel in it."""
        mine = f"/user/{self.name}/"
        self.browser.get(f"{self.hub.url}{mine}tree", timeout=patient(60)).raise_for_status()
        xsrf = self.browser.cookies.get("_xsrf", path=mine) or ""
        made = self.browser.post(
            f"{self.hub.url}{mine}api/kernels", json={}, headers={"X-XSRFToken": xsrf}, timeout=patient(60)
        )
        made.raise_for_status()
        url = f"{self.hub.url}{mine}api/kernels/{made.json()['id']}/channels?session_id=one"
        cookie = requests.Request("GET", url, cookies=self.browser.cookies).prepare().headers["Cookie"]
        request = HTTPRequest(url.replace("http", "ws", 1), headers={"Cookie": cookie})
        opened, closed = threading.Event(), threading.Event()
        threading.Thread(target=asyncio.run, args=(_hold(request, opened, closed),), daemon=True).start()
        assert opened.wait(patient(60)), "the kernel answers over its WebSocket"
        self.works = self._looks(lambda: not closed.is_set())
        broken = [surface for surface, works in self.works.items() if not works()]
        assert not broken, f"{self.name} has these no more, before anything ended: {broken}"

    def _looks(self, is_open: Callable[[], bool]) -> dict[str, Callable[[], bool]]:
        hub, copies = self.hub, [copy_of(self.browser) for _ in range(3)]
        own = {"Authorization": f"token {self.token}"}
        for each in copies:
            each.headers["X-XSRFToken"] = str(self.browser.headers["X-XSRFToken"])

        def answered(browser: requests.Session, path: str, **headers: str) -> bool:
            address = f"{hub.url}/{path}"
            answer = browser.get(address, headers=headers, allow_redirects=False, timeout=patient(30))
            return answer.status_code == 200

        def oauth_token() -> bool:
            listed = hub.api("GET", f"users/{self.name}/tokens").json()["api_tokens"]
            return any(str(each.get("oauth_client", "")).startswith("Server at") for each in listed)

        return {
            "hub page": lambda: answered(copies[0], "hub/home"),
            "hub API": lambda: answered(copies[1], "hub/api/user", **{"Sec-Fetch-Mode": "same-origin"}),
            "OAuth token": oauth_token,
            "own token": lambda: answered(new_browser(), "hub/api/user", **own),
            "server page": lambda: answered(copies[2], f"user/{self.name}/api/kernels"),
            "WebSocket": is_open,
            "GPU server": lambda: hub.server(self.name) is not None,
        }


async def _hold(request: HTTPRequest, opened: threading.Event, closed: threading.Event) -> None:
    socket = await websocket_connect(request)
    await answers(socket)
    opened.set()
    while await socket.read_message() is not None:
        pass
    closed.set()
