"""What is over, and after how many seconds, when somebody's sign-on ends: oauthenticator's own beside ours.

One provider (oidc-provider, ``scripts/sso``), two hubs after each other that differ in their authenticator alone, and
for each event a person with two browsers, a personal token, a server with a GPU, and an open WebSocket of a kernel.
The stock hub asks its provider again as often as ours (`auth_refresh_age`). Cookies are looked at as a copy has them,
so that a browser that forgets its own is no end. A lost right drains for six seconds here. Run as a plain user, once
with the Python of each generation.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

import requests
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

from hub_extensions.tools.demo_sign_in import CLIENT, SignInService, serving
from tests.authenticator.signed_hub import copy_of, ids, rest
from tests.hubs import Hub, free_port
from tests.loop.place import Place
from tests.machine_needs import sign_in_service

WATCH_SECONDS = 30.0
LOOK_EVERY = 0.1
BUSY_SECONDS = 8.0
"""So long it is looked at so often, and nothing else begins."""
OFFER = "mig-1g.5gb"
SIX = """
title: "One A100-40GB with six small parts"
gpus:
  - product: NVIDIA A100-PCIE-40GB
    memory_gib: 40
    sm: 108
    mig: [{profile: 19, start: 0}, {profile: 19, start: 1}, {profile: 19, start: 2}, {profile: 19, start: 3},
          {profile: 19, start: 4}, {profile: 19, start: 5}]
"""
EVENTS = {
    "ada": "own sign-out at the hub",
    "ben": "signed out at the provider",
    "cem": "provider's admin signs out everywhere",
    "dora": "disabled at the provider",
    "eva": "out of every group that is let in",
}
ON_OUR_PAGE = {"finn": "ended on the hub's page, from another browser"}
SURFACES = ("hub page", "hub API", "OAuth token", "own token", "server page", "WebSocket", "GPU server")
Figures = Mapping[str, float | None]
STOCK = """
c.JupyterHub.authenticator_class = "generic-oauth"
c.GenericOAuthenticator.client_id = {client!r}
c.GenericOAuthenticator.client_secret = {secret!r}
c.GenericOAuthenticator.oauth_callback_url = {hub!r} + "/hub/oauth_callback"
c.GenericOAuthenticator.authorize_url = {issuer!r} + "/authorize"
c.GenericOAuthenticator.token_url = {issuer!r} + "/token"
c.GenericOAuthenticator.userdata_url = {issuer!r} + "/me"
c.GenericOAuthenticator.username_claim = "preferred_username"
c.GenericOAuthenticator.scope = ["openid", "profile"]
c.GenericOAuthenticator.manage_groups = True
c.GenericOAuthenticator.auth_state_groups_key = "oauth_user.groups"
c.GenericOAuthenticator.allowed_groups = {{"course", "thesis"}}
c.GenericOAuthenticator.enable_auth_state = True
c.Authenticator.auth_refresh_age = 5
"""


class Visitor:
    """Somebody with a browser, a server and what hangs on it."""

    def __init__(self, hub: Hub, service: SignInService, name: str) -> None:
        self.hub, self.issuer, self.name = hub, service.url, name
        self.browser, self.other = self._signed_in(), self._signed_in()
        hub.spawn(name, {"offer": OFFER})
        hub.wait_ready(name, seconds=60)
        assert self.browser.get(f"{hub.url}/user/{name}/lab", timeout=30).ok
        self.token = hub.token_of(name)
        self.copy = copy_of(self.browser)
        self.copy.headers["X-XSRFToken"] = self.browser.cookies.get("_xsrf", path="/hub/") or ""
        self.opened, self.closed = threading.Event(), threading.Event()
        listening = self._hold(self._kernel_socket())
        threading.Thread(target=asyncio.run, args=(listening,), daemon=True).start()
        assert self.opened.wait(60), "the kernel's WebSocket is open"

    def _signed_in(self) -> requests.Session:
        browser = requests.Session()
        browser.headers["Connection"] = "close"
        page = browser.get(f"{self.hub.url}/hub/oauth_login", params={"next": "/hub/home"}, timeout=30)
        done = browser.post(page.url, {"person": f"u-{self.name}"}, headers={"Origin": self.issuer}, timeout=30)
        assert urlsplit(done.url).path == "/hub/home", done.text
        browser.headers["X-XSRFToken"] = browser.cookies.get("_xsrf", path="/hub/") or ""
        return browser

    def _kernel_socket(self) -> HTTPRequest:
        """What opens it."""
        place = f"{self.hub.url}/user/{self.name}/"
        xsrf = self.browser.cookies.get("_xsrf", path=f"/user/{self.name}/") or ""
        made = self.browser.post(f"{place}api/kernels", json={}, headers={"X-XSRFToken": xsrf}, timeout=60)
        assert made.ok, made.text
        cookies = "; ".join(f"{each.name}={each.value}" for each in self.browser.cookies if each.path != "/hub/")
        address = f"{place}api/kernels/{made.json()['id']}/channels".replace("http:", "ws:")
        return HTTPRequest(address, headers={"Cookie": cookies, "Origin": self.hub.url})

    async def _hold(self, request: HTTPRequest) -> None:
        connection = await websocket_connect(request)
        self.opened.set()
        while await connection.read_message() is not None:
            pass
        self.closed.set()

    def alive(self) -> Mapping[str, Callable[[], bool]]:
        """What is looked at: does it still work?"""
        hub, user = f"{self.hub.url}/hub", f"{self.hub.url}/user/{self.name}"
        return dict(
            zip(
                SURFACES,
                (
                    lambda: self._answers(f"{hub}/home"),
                    lambda: self._answers(f"{hub}/api/user", **{"Sec-Fetch-Mode": "same-origin"}),
                    self._has_oauth_token,
                    lambda: self.hub.api("GET", "user", token=self.token).ok,
                    lambda: self._answers(f"{user}/api/status"),
                    lambda: not self.closed.is_set(),
                    lambda: self.hub.server(self.name) is not None,
                ),
                strict=True,
            )
        )

    def _answers(self, address: str, **headers: str) -> bool:
        return self.copy.get(address, headers=headers, allow_redirects=False, timeout=30).status_code == 200

    def _has_oauth_token(self) -> bool:
        """Of this browser: the other one has opened no server."""
        tokens = self.hub.api("GET", f"users/{self.name}/tokens").json()["api_tokens"]
        return any(each["oauth_client"] != "JupyterHub" for each in tokens)

    def ends(self) -> None:
        """What happens to this one."""
        if self.name == "ada":
            self.browser.get(f"{self.hub.url}/hub/logout", timeout=30)
        elif self.name == "ben":
            page = self.browser.get(f"{self.issuer}/end_session", timeout=30).text
            found = re.search(r'action="([^"]+)".*?value="([^"]+)"', page, re.DOTALL)
            assert found, page
            self.browser.post(found[1], {"xsrf": found[2], "logout": "yes"}, timeout=30)
        elif self.name == "finn":
            mine = ids(self.hub, self.browser, self.name)[True][0]
            assert rest(self.hub, self.other, "DELETE", f"users/{self.name}/sessions/{mine}").ok
        else:
            action = {"cem": "sign-out", "dora": "disable", "eva": "leave"}[self.name]
            form = {"action": action, "person": f"u-{self.name}", "group": "course"}
            assert requests.post(f"{self.issuer}/", form, headers={"Origin": self.issuer}, timeout=30).ok


def seconds_until_over(visitor: Visitor) -> Figures:
    """For each surface; None: it worked to the end of the watch."""
    looks = visitor.alive()
    assert all(look() for look in looks.values()), visitor.name
    began = time.monotonic()

    def over(look: Callable[[], bool]) -> float | None:
        while (asked := time.monotonic()) - began < WATCH_SECONDS:
            if not look():
                return asked - began
            time.sleep(LOOK_EVERY if asked - began < BUSY_SECONDS else 1.0)
        return None

    with ThreadPoolExecutor(len(looks)) as together:
        found = [together.submit(over, look) for look in looks.values()]
        visitor.ends()
        return {surface: each.result() for surface, each in zip(looks, found, strict=True)}


def measured(folder: Path, service: SignInService, place: Place, people: Iterable[str]) -> list[Figures]:
    """One hub, from its start to its end; the events begin one after the other."""
    with serving(service, folder, place.hub.url, os.environ, answers), place.open():
        visitors = [Visitor(place.hub, service, name) for name in people]
        with ThreadPoolExecutor(len(visitors)) as together:
            found = []
            for visitor in visitors:
                found.append(together.submit(seconds_until_over, visitor))
                time.sleep(BUSY_SECONDS)
            return [each.result() for each in found]


def answers(address: str) -> bool:
    """Whether something is there."""
    try:
        return requests.get(address, timeout=5).ok
    except requests.RequestException:
        return False


def shown(seconds: float | None) -> str:
    """A cell."""
    return "works" if seconds is None else f"{seconds:.1f}"


def main() -> None:
    """Both, and the table."""
    program = sign_in_service()
    assert program is not None, "./scripts/test sets up the sign-in service"
    people = EVENTS | ON_OUR_PAGE
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in ("stock", "ours"):
            there = Path(folder) / kind
            there.mkdir()
            groups = dict.fromkeys(people, ("course",))
            keys = secrets.token_hex(16), secrets.token_hex(32)
            service = SignInService(program, free_port(), "mig-2g.10gb", *keys, groups)
            place = Place(there / "hub", layout=SIX)
            text = place.hub.config.read_text()
            place.hub.config.write_text(
                text.replace("configure(c)\n", f"{signing_in(kind, service, place)}configure(c)\n")
            )
            figures[kind] = measured(there, service, place, people if kind == "ours" else EVENTS)
    print(f"JupyterHub {version('jupyterhub')}, oauthenticator {version('oauthenticator')}; seconds until it is over,")
    print(f'stock / ours; "works": still so after {WATCH_SECONDS:.0f} s')
    print("| event | " + " | ".join(SURFACES) + " |")
    print("| --- |" + " --- |" * len(SURFACES))
    for number, event in enumerate(people.values()):
        stock = figures["stock"][number] if number < len(EVENTS) else None
        ours = figures["ours"][number]
        cells = [f"{shown(stock[each]) if stock else '-'} / {shown(ours[each])}" for each in SURFACES]
        print(f"| {event} | " + " | ".join(cells) + " |")


def signing_in(kind: str, service: SignInService, place: Place) -> str:
    """What this hub's configuration says of it."""
    begin = f"import os\nos.environ.update({dict(service.variables)!r})\nc.Authenticator.allow_all = False\n"
    if kind == "ours":
        return f"{begin}{service.configuration}c.SignOn.drain_minutes = 0.1\n"
    return begin + STOCK.format(client=CLIENT, secret=service.secret, hub=place.hub.url, issuer=service.url)


if __name__ == "__main__":
    sys.exit(main())
