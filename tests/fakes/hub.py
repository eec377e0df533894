"""Stand-ins for a JupyterHub: the part of its REST API that the service uses, without spawners or a database.

What they answer is held against a real hub by ``tests/adapters/hub/test_jupyterhub_api.py``, which asks both the same
questions.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, HTTPError, RequestHandler

LONG_AGO = "2026-01-01T00:00:00.000000Z"


@dataclass
class FakeServer:
    """A server of the hub. `pending` is None, ``spawn``, ``stop`` or ``check``."""

    ready: bool = True
    pending: str | None = None
    user_options: dict[str, object] = field(default_factory=dict)
    started: str = LONG_AGO
    last_activity: str = LONG_AGO
    state: dict[str, object] | None = None


@dataclass
class FakeUser:
    admin: bool = False
    groups: list[str] = field(default_factory=list)
    servers: dict[str, FakeServer] = field(default_factory=dict)


class FakeHub:
    """A hub that answers at once. Change `users` and `tokens` as you like while it runs.

    Attributes:
        users: by name. tokens: token -> what ``GET /user`` says (without the token's own fields).
        slow_users: their spawns stay pending. refusals: (user, server) -> status and message of a start or stop.
        asked: (method, path, body) of every request, in order.
    """

    def __init__(self, token: str = "service-token", version: str = "6.1.1", page_limit: int = 200) -> None:
        self.token, self.version, self.page_limit = token, version, page_limit
        self.users: dict[str, FakeUser] = {}
        self.tokens: dict[str, dict[str, object]] = {}
        self.slow_users: set[str] = set()
        self.refusals: dict[tuple[str, str], tuple[int, str]] = {}
        self.asked: list[tuple[str, str, Any]] = []
        self.url = ""
        self._server: HTTPServer | None = None

    async def __aenter__(self) -> FakeHub:
        api = r"/hub/api"
        settings = {"hub": self}
        application = Application(
            [
                (rf"{api}/", _Version, settings),
                (rf"{api}/gpu/servers", _NotThere, settings),
                (rf"{api}/user", _Self, settings),
                (rf"{api}/users", _Users, settings),
                (rf"{api}/users/([^/]+)", _User, settings),
                (rf"{api}/users/([^/]+)/server()", _Server, settings),
                (rf"{api}/users/([^/]+)/servers/([^/]*)", _Server, settings),
            ]
        )
        sockets = bind_sockets(0, "127.0.0.1")
        self._server = HTTPServer(application)
        self._server.add_sockets(sockets)
        self.url = f"http://127.0.0.1:{sockets[0].getsockname()[1]}{api}"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.stop()
            await self._server.close_all_connections()

    def sent(self, method: str) -> list[tuple[str, Any]]:
        """Path and body of the requests of one method."""
        return [(path, body) for how, path, body in self.asked if how == method]

    async def before(self, path: str) -> None:
        """Called before every answer."""

    def listed(self, active: bool) -> Iterator[str]:
        return (name for name, user in self.users.items() if user.servers or not active)


class HubThatIsSlow(FakeHub):
    """Takes `seconds` over every request whose path starts with one of `paths` (after ``/hub/api``)."""

    def __init__(self, *paths: str, seconds: float = 60.0, **more: Any) -> None:
        super().__init__(**more)
        self.paths, self.seconds = paths, seconds
        self.waiting = asyncio.Event()

    async def before(self, path: str) -> None:
        if path.removeprefix("/hub/api").startswith(self.paths):
            self.waiting.set()
            await asyncio.sleep(self.seconds)


class HubWhoseListMoves(FakeHub):
    """A server of an earlier page ends after each page that was asked for, `times` times."""

    def __init__(self, times: int, **more: Any) -> None:
        super().__init__(**more)
        self.times = times

    async def before(self, path: str) -> None:
        pages = [each for how, each, _ in self.asked if how == "GET" and each.endswith("/users")]
        if path.endswith("/users") and len(pages) > 1 and self.times > 0:
            self.times -= 1
            del self.users[next(iter(self.users))]


class HubWhosePageFails(FakeHub):
    """The page of the list with this number is answered with 500, `times` times; the others as ever."""

    def __init__(self, page: int, times: int = 1, **more: Any) -> None:
        super().__init__(**more)
        self.page, self.times = page, times

    async def before(self, path: str) -> None:
        pages = [each for how, each, _ in self.asked if how == "GET" and each.endswith("/users")]
        if path.endswith("/users") and len(pages) == self.page and self.times > 0:
            self.times -= 1
            self.asked.clear()
            raise HTTPError(500, "database is locked")


class HubWithoutOurList(FakeHub):
    """Answers `ours` where `configure(c)` puts our list of servers. `away`: the proxy before it finds no hub."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.ours, self.away = 404, False

    async def before(self, path: str) -> None:
        if self.away:
            raise HTTPError(503)
        if path.endswith("/gpu/servers"):
            raise HTTPError(self.ours)


class HubThatIsAway:
    """Nobody listens at its address."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}/hub/api"


class _Handler(RequestHandler):
    hub: FakeHub

    def initialize(self, hub: FakeHub) -> None:
        self.hub = hub

    async def prepare(self) -> None:
        body = json.loads(self.request.body) if self.request.body else None
        self.hub.asked.append((self.request.method or "", self.request.path, body))
        await self.hub.before(self.request.path)

    def need_service(self) -> None:
        if self.request.headers.get("Authorization") != f"token {self.hub.token}":
            raise HTTPError(403)

    def find(self, name: str) -> FakeUser:
        self.need_service()
        user = self.hub.users.get(name)
        if user is None:
            raise HTTPError(404)
        return user

    def write_error(self, status_code: int, **more: Any) -> None:
        reason = getattr(more["exc_info"][1], "log_message", None) if "exc_info" in more else None
        self.finish({"status": status_code, "message": reason or self._reason})


class _NotThere(_Handler):
    def get(self) -> None:
        raise HTTPError(404)


class _Version(_Handler):
    def get(self) -> None:
        self.write({"version": self.hub.version})


class _Self(_Handler):
    def get(self) -> None:
        kind, _, token = self.request.headers.get("Authorization", "").partition(" ")
        said = self.hub.tokens.get(token)
        if kind != "token" or said is None:
            raise HTTPError(403)
        self.write(said)


class _Users(_Handler):
    def get(self) -> None:
        self.need_service()
        active = self.get_query_argument("state", None) == "active"
        offset = int(self.get_query_argument("offset", "0"))
        limit = min(int(self.get_query_argument("limit", "50")), self.hub.page_limit)
        names = list(self.hub.listed(active))
        more = {"offset": offset + limit, "limit": limit} if offset + limit < len(names) else None
        items = [_user_model(name, self.hub.users[name]) for name in names[offset : offset + limit]]
        if "jupyterhub-pagination" not in self.request.headers.get("Accept", ""):
            self.write(json.dumps(items))
            return
        page = {"offset": offset, "limit": limit, "total": len(names), "next": more}
        self.write({"items": items, "_pagination": page})


class _User(_Handler):
    def get(self, name: str) -> None:
        self.write(_user_model(name, self.find(name)))


class _Server(_Handler):
    def post(self, name: str, server: str) -> None:
        user = self.find(name)
        self._refuse(name, server)
        here = user.servers.get(server)
        if here is not None and here.pending == "spawn":
            self.set_status(202)
            return
        if here is not None:
            raise HTTPError(400, f"{name}:{server} is already running")
        body = json.loads(self.request.body or b"{}")
        options = body if int(self.hub.version.partition(".")[0]) < 6 else body.get("user_options", body)
        slow = name in self.hub.slow_users
        user.servers[server] = FakeServer(not slow, "spawn" if slow else None, dict(options or {}))
        self.set_status(202 if slow else 201)

    def delete(self, name: str, server: str) -> None:
        user = self.find(name)
        self._refuse(name, server)
        if server and server not in user.servers:
            raise HTTPError(404, f"{name} has no server named '{server}'")
        user.servers.pop(server, None)
        self.set_status(204)

    def _refuse(self, name: str, server: str) -> None:
        if (name, server) in self.hub.refusals:
            raise HTTPError(*self.hub.refusals[name, server])


def _user_model(name: str, user: FakeUser) -> Mapping[str, object]:
    servers = {server: _server_model(server, each) for server, each in user.servers.items()}
    return {"kind": "user", "name": name, "admin": user.admin, "groups": user.groups, "servers": servers}


def _server_model(name: str, server: FakeServer) -> Mapping[str, object]:
    model: dict[str, object] = {
        "name": name,
        "ready": server.ready,
        "pending": server.pending,
        "stopped": False,
        "started": server.started,
        "last_activity": server.last_activity,
        "user_options": server.user_options,
    }
    return model if server.state is None else {**model, "state": server.state}
