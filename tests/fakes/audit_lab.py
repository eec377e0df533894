"""A proxy with a gate, apps and a hub in a few lines, all of them safe; each fault is planted by its name.

It reads paths and headers as they come, as a proxy does, so that an audit's odd requests reach it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import urlsplit

from hub_extensions.core.sign_on.apps import App
from tests.ports import free_port

FAULTS = {
    "page-open": "A1",
    "socket-open": "A1",
    "any-group": "A2",
    "header-of-stranger": "A3",
    "header-not-cleared": "A3",
    "any-cookie": "A4",
    "any-assertion": "A6",
    "everywhere": "A7",
    "double-slash": "A8",
    "check-outside": "A9",
    "cross-site": "A11",
    "framed": "A14",
    "signed-out-open": "A5",
    "two-cookies": "A4",
    "over-open": "A4",
    "no-service": "A13",
    "cookie-for-all": "A14",
}
"""A fault of one app -> the case that finds it."""
OF_HOST = {"service-open": "A10", "left-over": "A13", "undying": "A12"}
"""Faults of hub and gate."""
NAMES = ("x-webauth-user", "x_webauth_user", "x.webauth.user")


class AuditLab:
    """Each app is called after its fault; `good` has none. `hub_refuses`: the hub makes no accounts.

    Attributes:
        users: name -> groups, of accounts at the hub that are there now. made: all that ever were.
    """

    def __init__(self, faults: Collection[str] = (), hub_refuses: bool = False) -> None:
        self.faults, self.hub_refuses = set(faults), hub_refuses
        self.users: dict[str, set[str]] = {}
        self.tokens: dict[str, str] = {}
        self.made: list[str] = []
        self.cookies: dict[str, str] = {}
        self.signed_out: set[str] = set()
        self.over: set[str] = set()
        self.port, self.names = free_port(), ["good", *(each for each in FAULTS if each in self.faults)]
        self.upstreams = {name: free_port() for name in self.names}
        self.url = f"http://127.0.0.1:{self.port}/"
        self._servers: list[asyncio.Server] = []

    @property
    def apps(self) -> tuple[App, ...]:
        return tuple(
            App(
                name,
                name,
                f"{self.url}{name}/",
                f"http://127.0.0.1:{self.upstreams[name]}",
                groups=("staff",),
            )
            for name in self.names
        )

    async def __aenter__(self) -> AuditLab:
        self._servers.append(await asyncio.start_server(self._connected, "127.0.0.1", self.port))
        for name, port in self.upstreams.items():
            address = "0.0.0.0" if name == "everywhere" else "127.0.0.1"  # the fault
            self._servers.append(await asyncio.start_server(self._app_connected, address, port))
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()
            await server.wait_closed()

    async def session_for(self, token: str, expired: bool) -> str:
        """As the gate gives one to an audit's account."""
        cookie = f"{token.replace('-', ''):{'z' if expired else 'x'}<43}"
        self.cookies[f"gate-without-https={cookie}"] = self.tokens[token]
        if expired:
            self.over.add(f"gate-without-https={cookie}")
        return cookie

    async def _app_connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await _answer(writer, 200, "the app itself")

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except asyncio.IncompleteReadError:
            writer.close()
            return
        first, *lines = head.rstrip().split("\r\n")
        method, target, _ = first.split(" ", 2)
        if any(line.startswith((" ", "\t")) for line in lines) or "\0" in head:
            await _answer(writer, 400)  # a folded line
            return
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        path = urlsplit(target).path if not target.startswith("//") else target
        if path.startswith(("/hub/", "/services/")):
            status, text, more = self._hub(method, path, headers, body)
        else:
            status, text, more = self._gate(method, path, headers)
        await _answer(writer, status, text, more)

    # ---------------------------------------------------------------- gate and apps

    def _gate(self, method: str, path: str, headers: Mapping[str, str]) -> tuple[int, str, dict[str, str]]:
        if path == "/_gate/sign-out":
            self.signed_out.add(headers.get("cookie", ""))
            return 303, "", {"Location": "/hub/logout"}
        if path.startswith("/_gate/"):
            return (401 if path == "/_gate/check/check-outside" else 404), "", {}
        name = path.lstrip("/").split("/")[0]
        if name not in self.names or (path.startswith("//") and name != "double-slash"):
            return 404, "", {}
        rest = path.lstrip("/")[len(name) :]
        if name == "double-slash" and path.startswith("//"):
            return 200, "inside", {}
        if rest != "/":
            return 404, "", {}
        return self._checked(name, method, headers)

    def _checked(self, name: str, method: str, headers: Mapping[str, str]) -> tuple[int, str, dict[str, str]]:
        socket, page = "upgrade" in headers, "text/html" in headers.get("accept", "")
        cookie = headers.get("cookie", "")
        if name == "two-cookies" and "; " in cookie:
            cookie = cookie.split("; ")[1]
        by_cookie = cookie in self.cookies or (name == "any-cookie" and bool(cookie))
        by_cookie = by_cookie and (cookie not in self.signed_out or name == "signed-out-open")
        by_cookie = by_cookie and (cookie not in self.over or name in ("any-cookie", "over-open"))
        user = self.tokens.get(headers.get("authorization", "").removeprefix("Bearer "), "")
        user = user or (self.cookies.get(cookie, "") if by_cookie else "")
        forged = next((headers[each] for each in NAMES if each in headers), "")
        open_to_all = (
            (name == "page-open" and page)
            or (name == "socket-open" and socket)
            or (name == "header-of-stranger" and forged)
            or (name == "any-assertion" and headers.get("x-sign-on-assertion", "").count(".") == 2)
        )
        if not (user or by_cookie or open_to_all):
            more = {"Set-Cookie": "gate-without-https-browser=1; Path=/; HttpOnly; SameSite=Lax"}
            if name == "cookie-for-all":
                more = {"Set-Cookie": "gate-without-https-browser=1; Domain=example.org; HttpOnly; SameSite=Lax"}
            return (302, "", {**more, "Location": f"/_gate/start?app={name}"}) if page else (401, "", {})
        gone = {"staff"} if "undying" in self.faults else set()
        if user and "staff" not in self.users.get(user, gone) and name != "any-group":
            return 403, "", {}
        if by_cookie and "elsewhere" in headers.get("origin", "") and name != "cross-site":
            return 403, "", {}
        if headers.get("sec-fetch-dest") == "iframe" and name != "framed":
            return 403, "", {}
        if socket:
            return 101, "", {}
        return 200, f"hello {forged if name == 'header-not-cleared' and forged else user}", {}

    # ---------------------------------------------------------------- hub

    def _hub(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, str, dict[str, str]]:
        if path == "/services/tb/":
            to_login = {"Location": "/hub/api/oauth2/authorize?client_id=service-tb"}
            return (200, "open", {}) if "service-open" in self.faults else (302, "", to_login)
        parts = path.removeprefix("/hub/api/").split("/")
        if headers.get("authorization") != "Bearer admin" or self.hub_refuses:
            return 403, "{}", {}
        if parts == ["services"]:
            return 200, json.dumps(self._services()), {}
        if parts[0] == "groups":
            self.users[json.loads(body)["users"][0]].add(parts[1])
        elif parts[-1] == "tokens":
            self.tokens[f"token-of-{parts[1]}"] = parts[1]
            return 201, json.dumps({"token": f"token-of-{parts[1]}"}), {}
        elif method == "POST":
            self.users[parts[1]] = set()
            self.made.append(parts[1])
        elif self.users.pop(parts[1], None) is None:
            return 404, "{}", {}
        elif "undying" not in self.faults:
            del self.tokens[f"token-of-{parts[1]}"]
        return 200, "{}", {}

    def _services(self) -> dict[str, dict[str, Any]]:
        of_apps: dict[str, dict[str, Any]] = {
            name: {"url": None, "info": {"href": "/"}} for name in self.names if name != "no-service"
        }
        left = {"left-over": {"info": {"href": "/"}}} if "left-over" in self.faults else {}
        return {**of_apps, **left, "gpu": {"url": None}, "tb": {"url": "http://127.0.0.1:1", "prefix": "/services/tb/"}}


async def _answer(
    writer: asyncio.StreamWriter, status: int, text: str = "", more: Mapping[str, str] | None = None
) -> None:
    head = "".join(f"{name}: {value}\r\n" for name, value in (more or {}).items())
    writer.write(f"HTTP/1.1 {status} X\r\n{head}Content-Length: {len(text)}\r\n\r\n{text}".encode())
    await writer.drain()
    writer.close()
