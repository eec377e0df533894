"""The portal on a gate, a hub and a GPU service that are a few lines each, and on apps that answer or do not.

A browser is whoever its cookie `who` says. Runs in a thread with a loop of its own, so that tests may block.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter
from tornado import web
from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPServerRequest
from tornado.netutil import bind_sockets

from hub_extensions.adapters.hub.person_sources import PersonSources
from hub_extensions.core.messages import FormState, ServerState, TicketInfo
from hub_extensions.core.sign_on.apps import App
from hub_extensions.gate.health import HealthWatch
from hub_extensions.gate.portal import PortalParts, portal_routes
from tests.patience import patient
from tests.ports import free_port


@dataclass
class Somebody:
    """Whose session it is, and what hub and service would say to his token."""

    user: str
    apps: Sequence[App] = ()
    servers: tuple[ServerState, ...] = ()
    form: FormState | None = None
    tickets: tuple[TicketInfo, ...] = ()


class GateOfCookies:
    """A gate that believes the cookie `who`. `away_since`: it cannot ask the hub since then, and opens nothing."""

    def __init__(self, people: dict[str, Somebody]) -> None:
        self.people = people
        self.away_since: datetime | None = None
        self.answers = self

    async def session_of(self, request: HTTPServerRequest) -> Somebody | None:
        found = request.cookies.get("who")
        return self.people.get(found.value) if found is not None else None

    def apps_open_to(self, session: Somebody) -> Sequence[App]:
        return () if self.away_since else session.apps

    def token_of(self, session: Somebody) -> str:
        return f"token-of-{session.user}"


class PortalLab:
    """`silent`: which of `user`, `servers`, `offers` and `tickets` never answer; `broken`: which say rubbish."""

    def __init__(self, people: dict[str, Somebody], gpu_service: bool = True) -> None:
        self.gate = GateOfCookies(people)
        self.silent: set[str] = set()
        self.broken: set[str] = set()
        self.signed_out = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.health = HealthWatch([app for each in people.values() for app in each.apps])
        self._server = self.run(self._start(port, gpu_service))

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(patient(30))

    def close(self) -> None:
        async def stop() -> None:
            self._server.stop()
            await self._server.close_all_connections()

        self.run(stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(patient(10))
        self._loop.close()

    async def _start(self, port: int, gpu_service: bool) -> HTTPServer:
        sources = PersonSources(f"{self.url}/hub/api", f"{self.url}/services/gpu/" if gpu_service else "", patient(1.0))
        parts = PortalParts(self.health, sources, f"{self.url}/hub/", True)
        own = {"lab": self}
        routes = [
            *portal_routes(parts),
            (r"/hub/api/(user)", Source, own),
            (r"/services/gpu/api/(servers|offers|tickets)", Source, own),
            (r"/_gate/sign-out", SignOut, own),
            (r"/(?:_gate/start|app/.*|hub/.*)", Elsewhere),
        ]
        server = HTTPServer(web.Application(routes, gate=self.gate))
        server.add_sockets(bind_sockets(port, "127.0.0.1"))
        return server


class Source(web.RequestHandler):
    def initialize(self, lab: PortalLab) -> None:
        self.lab = lab

    async def get(self, name: str) -> None:
        if name in self.lab.silent:
            await asyncio.sleep(patient(20))
        if name in self.lab.broken:
            self.finish(b'{"servers": 5, "offers": ')
            return
        token = self.request.headers.get("Authorization", "").removeprefix("Bearer token-of-")
        who = next(each for each in self.lab.gate.people.values() if each.user == token)
        if name == "user":
            servers = {each.server: {"name": each.server, "ready": True, "stopped": False} for each in who.servers}
            self.finish(json.dumps({"name": who.user, "servers": servers}))
            return
        value = {"servers": who.servers, "offers": who.form, "tickets": who.tickets}[name]
        kind: Any = {"servers": tuple[ServerState, ...], "offers": FormState, "tickets": tuple[TicketInfo, ...]}[name]
        self.finish(TypeAdapter(kind).dump_json(value))


class SignOut(web.RequestHandler):
    def initialize(self, lab: PortalLab) -> None:
        self.lab = lab

    def check_xsrf_cookie(self) -> None:
        """The gate has no tokens in forms: what the browser says of where they come from counts."""

    def post(self) -> None:
        assert self.request.headers["Sec-Fetch-Site"] == "same-origin"
        assert self.request.headers["Origin"] == self.lab.url, "the gate believes no form without"
        self.lab.signed_out += 1
        self.clear_cookie("who")
        self.redirect(self.lab.url.replace("127.0.0.1", "localhost") + "/hub/logout", status=303)


class Elsewhere(web.RequestHandler):
    def get(self) -> None:
        self.finish(f"<!DOCTYPE html><title>elsewhere</title>{self.request.uri!r}"[:200])
