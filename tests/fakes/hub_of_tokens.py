"""A hub that knows whose token is whose: a real HTTP server with the few routes the service asks it.

`asked` counts the requests by path. `HubOfTokens.stop` makes it a hub that is away.
"""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, HTTPError, RequestHandler

ACCESS = "access:services!service=gpu"
SERVICE_TOKEN = "service-token-service-token"


class HubOfTokens:
    def __init__(self) -> None:
        self.users: dict[str, dict[str, Any]] = {}
        self.tokens: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []
        self.started: list[tuple[str, Any]] = []
        self.start_answer = (202, "")
        self.frame: str | None = None
        self.holds: asyncio.Event | None = None
        """Until it is set, whose token it is was found out and is not answered yet; None: it is answered at once."""
        self._server: HTTPServer | None = None
        sockets = bind_sockets(0, "127.0.0.1", family=socket.AF_INET)
        self._sockets = sockets
        self.url = f"http://127.0.0.1:{sockets[0].getsockname()[1]}/hub/api"

    def add_user(self, name: str, *, admin: bool = False, groups: tuple[str, ...] = ()) -> None:
        self.users[name] = {"kind": "user", "name": name, "admin": admin, "groups": list(groups), "servers": {}}

    def add_token(self, token: str, name: str, *scopes: str, kind: str = "user") -> None:
        """What the hub says about a token has no ``admin``: the token may not read it."""
        self.tokens[token] = {"kind": kind, "name": name, "groups": [], "scopes": list(scopes)}

    def start(self) -> None:
        routes = [
            (r"/hub/api/user", _WhoIs, {"hub": self}),
            (r"/hub/api/users", _Users, {"hub": self}),
            (r"/hub/api/users/([^/]+)", _User, {"hub": self}),
            (r"/hub/api/users/([^/]+)/servers?(?:/([^/]*))?", _Start, {"hub": self}),
            (r"/hub/api/gpu/frame", _Frame, {"hub": self}),
            (r"/hub/api/?", _Up, {"hub": self}),
        ]
        self._server = HTTPServer(Application(routes, log_function=lambda handler: None))
        self._server.add_sockets(self._sockets)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.stop()
            await self._server.close_all_connections()
            self._server = None
        await asyncio.sleep(0)


class _Base(RequestHandler):
    def initialize(self, hub: HubOfTokens) -> None:
        self.hub = hub

    def prepare(self) -> None:
        self.hub.asked.append(self.request.path)

    @property
    def token(self) -> str:
        return self.request.headers.get("Authorization", "").partition(" ")[2]

    def by_service(self) -> None:
        if self.token != SERVICE_TOKEN:
            raise HTTPError(403)


class _WhoIs(_Base):
    async def get(self) -> None:
        found = self.hub.tokens.get(self.token)
        if self.hub.holds is not None:
            await self.hub.holds.wait()
        if found is None:
            raise HTTPError(403)
        self.finish(found)


class _User(_Base):
    def get(self, name: str) -> None:
        self.by_service()
        if name not in self.hub.users:
            raise HTTPError(404)
        self.finish(self.hub.users[name])


class _Users(_Base):
    """Nobody has a server here."""

    def get(self) -> None:
        self.by_service()
        self.finish({"items": [], "_pagination": {"total": 0, "next": None}})


class _Start(_Base):
    def post(self, name: str, server: str | None = None) -> None:
        self.by_service()
        status, message = self.hub.start_answer
        self.set_status(status)
        if status >= 400:
            self.finish({"status": status, "message": message})
            return
        self.hub.started.append((f"{name}/{server or ''}", json.loads(self.request.body or b"{}")))


class _Frame(_Base):
    """A page of the hub without contents; an older hub has none."""

    def get(self) -> None:
        self.by_service()
        if self.hub.frame is None or self.get_query_argument("user") not in self.hub.users:
            raise HTTPError(404)
        self.finish(self.hub.frame)


class _Up(_Base):
    def get(self) -> None:
        self.finish({"version": "6.1.1"})
