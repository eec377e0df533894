"""A gate that answers by cookie, and an app that keeps what reached it: both ends of a proxy, in a thread of the test.

The gate answers as the real one does: who has no cookie signs in, ``ada`` may open every app, ``eve`` none, and for
``away`` the hub does not answer. It asks for the proxy's secret first.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from typing import Any, ClassVar

from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPServerRequest
from tornado.web import Application, RequestHandler
from tornado.websocket import WebSocketHandler

from hub_extensions.core.sign_on.access import is_public
from hub_extensions.core.sign_on.apps import App
from hub_extensions.core.sign_on.identity_headers import (
    COOKIE,
    PROXY_SECRET,
    SIGN_IN,
    URI,
    CallerIdentity,
    cookies_without,
    headers_of,
)
from hub_extensions.gate.gate import CheckedRequest
from tests.patience import patient
from tests.ports import free_ports

SECRET = "a-secret-of-the-proxy-of-these-tests-0123456789"
GATE_COOKIE = "__Host-gate"
ADA = f"{GATE_COOKIE}=ada"
ASSERTION_OF_ADA = "the.assertion.of-ada"
METHODS = ("GET", "HEAD", "POST", "DELETE", "PATCH", "PUT", "OPTIONS", "PROPFIND", "CONNECT", "TRACE")


class FakeGate(RequestHandler):
    """`/_gate/check`, `answer` and `away` of each app, and a public page."""

    SUPPORTED_METHODS = METHODS  # type: ignore[assignment]
    apps: ClassVar[Mapping[str, App]] = {}

    async def prepare(self) -> None:
        kind, _, rest = self.request.path.removeprefix("/_gate/").partition("/")
        if kind not in ("check", "answer", "away"):
            return self._end(200, {"page": self.request.path, "host": self.request.host})
        app, is_known = self.apps.get(rest.partition("/")[0]), self.request.headers.get(PROXY_SECRET) == SECRET
        if kind == "away":
            return self._end(502, {"error": f"{app.title if app and is_known else 'the app'} does not answer"})
        if app is None or not is_known:
            return self._end(404, {"error": "not found"})
        return self._verdict(kind, app)

    def _who(self) -> str:
        return who(self.request)

    def _verdict(self, kind: str, app: App) -> None:
        who, asked = self._who(), self.request.headers
        checked = CheckedRequest(app, asked, self.request.method or "")
        facts = checked.facts
        if is_public(facts, app, checked.uri):
            return self._pass(app, CallerIdentity(""), "")
        if who == "away":
            return self._end(503, {"error": "the hub does not answer since 12:00"})
        if who == "eve":
            return self._end(403, {"error": f"{app.title} is for its group"})
        if facts.method == "POST" and asked.get("Sec-Fetch-Site", "none") not in ("same-origin", "none"):
            return self._end(403, {"error": "from a page of another address"})
        if who == "ada":
            return self._pass(app, CallerIdentity("ada", ("lab",)), ASSERTION_OF_ADA)
        if facts.method != "GET" or facts.upgrade or asked.get("Sec-Fetch-Mode") != "navigate":
            return self._end(401, {"error": "sign in first"})
        start = f"/_gate/start?app={app.name}"
        self.set_header("Location" if kind == "answer" else SIGN_IN, start)
        return self._end(302 if kind == "answer" else 401, {"error": "sign in first"})

    def _pass(self, app: App, identity: CallerIdentity, assertion: str) -> None:
        for name, value in headers_of(identity, app.header_family, assertion).items():
            self.set_header(name, value)
        self.set_header(COOKIE, cookies_without("; ".join(self.request.headers.get_list("Cookie")), (GATE_COOKIE,)))
        self._end(200, {})

    def _end(self, status: int, answer: Mapping[str, Any]) -> None:
        self.set_status(status)
        self.finish(json.dumps(answer))


class FakeRelay(WebSocketHandler):
    """`/_gate/relay`: reports whose WebSocket it would carry, and where."""

    def open(self) -> None:
        asked = self.request.headers
        assert asked.get(PROXY_SECRET) == SECRET
        tail = str(self.request.uri).removeprefix("/_gate/relay/relayed")
        self.write_message(json.dumps({"relayed": asked.get(URI) or tail, "to": who(self.request)}))


def who(request: HTTPServerRequest) -> str:
    """Whose cookie it is; "": nobody's."""
    pairs = "; ".join(request.headers.get_list("Cookie")).split("; ")
    return next((pair.partition("=")[2] for pair in pairs if pair.startswith(f"{GATE_COOKIE}=")), "")


class EchoApp(RequestHandler):
    """An app that answers with what reached it, and keeps it."""

    SUPPORTED_METHODS = METHODS  # type: ignore[assignment]
    seen: ClassVar[list[dict[str, Any]]] = []

    def prepare(self) -> None:
        self.finish(json.dumps(kept(self.request)))


class EchoSocket(WebSocketHandler):
    """The same over a WebSocket, with the origin check that Tornado apps have."""

    def open(self) -> None:
        self.write_message(json.dumps(kept(self.request)))


def kept(request: HTTPServerRequest) -> dict[str, Any]:
    """What an app sees of a request; noted in `EchoApp.seen`."""
    headers = [[name, value] for name, value in request.headers.get_all()]
    found = {"method": request.method, "uri": request.uri, "headers": headers, "body": len(request.body)}
    EchoApp.seen.append(found)
    return found


class AppsHost:
    """Gate and app, listening. `gate`, `app`: their addresses; nothing listens on `away`."""

    def __init__(self) -> None:
        self.gate_port, self.app_port, away = free_ports(3)
        self.gate, self.app = f"http://127.0.0.1:{self.gate_port}", f"http://127.0.0.1:{self.app_port}"
        self.away = f"http://127.0.0.1:{away}"
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def start(self, apps: tuple[App, ...]) -> None:
        FakeGate.apps = {app.name: app for app in apps}
        EchoApp.seen.clear()
        self._thread.start()
        assert self._ready.wait(patient(10))

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.call_soon(self._listen)
        self._loop.run_forever()

    def _listen(self) -> None:
        quiet: dict[str, Any] = {"log_function": lambda handler: None}
        gate = Application([(r"/_gate/relay/.*", FakeRelay), (r"/.*", FakeGate)], **quiet)
        app = Application([(r"/.*/socket|/socket", EchoSocket), (r".*", EchoApp)], **quiet)
        self._servers = [
            gate.listen(self.gate_port, "127.0.0.1"),
            app.listen(self.app_port, "127.0.0.1", max_header_size=256 * 1024),
        ]
        self._ready.set()

    def stop(self) -> None:
        async def close() -> None:
            for server in self._servers:
                server: HTTPServer
                server.stop()
                await server.close_all_connections()
            self._loop.stop()

        asyncio.run_coroutine_threadsafe(close(), self._loop)
        self._thread.join(patient(10))
        self._loop.close()
