"""A hub as the gate meets it: it signs in whom a test names, gives codes and tokens, and says whose a token is.

`faults` make it a bad one: ``500``, ``html``, ``late``, ``redirect``. `asked` counts the requests by path.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.httputil import url_concat
from tornado.testing import bind_unused_port
from tornado.web import Application, RequestHandler

from tests.secret_notes import note

CLIENT_ID, CLIENT_SECRET = "service-gate", "client-secret-client-secret"


@dataclass
class Given:
    """A code that was given out."""

    user: str
    redirect_uri: str
    challenge: str


@dataclass
class GateHub:
    """`users`: name -> the fields of ``GET /user`` that differ. `signed_in`: who the browser is at the hub."""

    users: dict[str, dict[str, Any]] = field(default_factory=dict)
    tokens: dict[str, str] = field(default_factory=dict)
    codes: dict[str, Given] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    fault: str = ""
    signed_in: str = "ada"
    url: str = ""

    def __post_init__(self) -> None:
        self.gate_opens = asyncio.Event()
        self.gate_opens.set()
        self.was_asked = asyncio.Event()

    async def __aenter__(self) -> GateHub:
        socket, port = bind_unused_port()
        routes = [
            (r"/hub/api/oauth2/authorize", _Authorize, {"hub": self}),
            (r"/hub/api/oauth2/token", _Token, {"hub": self}),
            (r"/hub/api/user", _Owner, {"hub": self}),
        ]
        self._server = HTTPServer(Application(routes, log_function=lambda handler: None))
        self._server.add_socket(socket)
        self.url = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.gate_opens.set()
        await self.stop()

    async def stop(self) -> None:
        self._server.stop()
        await self._server.close_all_connections()

    def add_user(self, name: str, *scopes: str, groups: tuple[str, ...] = (), kind: str = "user") -> None:
        model = {"name": name, "kind": kind, "groups": list(groups), "scopes": list(scopes), "session_id": f"of-{name}"}
        self.users[name] = model

    def token_for(self, name: str) -> str:
        token = secrets.token_hex(16)
        note("OAuth token", token)
        self.tokens[token] = name
        return token

    def revoke(self, name: str) -> None:
        self.tokens = {token: owner for token, owner in self.tokens.items() if owner != name}


class _OfHub(RequestHandler):
    def initialize(self, hub: GateHub) -> None:
        self.hub = hub

    async def prepare(self) -> None:
        hub = self.hub
        hub.asked[self.request.path.rpartition("/")[2]] += 1
        hub.was_asked.set()
        await hub.gate_opens.wait()
        if hub.fault == "500":
            self.set_status(500)
            self.finish("{}")
        elif hub.fault == "html":
            self.finish("<html>log in to the proxy</html>")
        elif hub.fault == "403-html":
            self.set_status(403)
            self.finish("<html>forbidden by a proxy</html>")
        elif hub.fault == "redirect":
            self.redirect("https://evil.example/hub/api/user")
        elif hub.fault == "groups":
            self.finish({"name": "ada", "kind": "user", "scopes": [], "groups": 5})
        elif hub.fault == "deep":
            self.finish("[" * 100_000)
        elif hub.fault == "odd":
            self.finish({"name": 7, "kind": "user", "scopes": "all"})


class _Authorize(_OfHub):
    def get(self) -> None:
        get = self.get_query_argument
        assert (get("client_id"), get("response_type")) == (CLIENT_ID, "code")
        assert get("code_challenge_method") == "S256"
        code = secrets.token_urlsafe(16)
        self.hub.codes[code] = Given(self.hub.signed_in, get("redirect_uri"), get("code_challenge"))
        self.redirect(url_concat(get("redirect_uri"), {"code": code, "state": get("state")}))


class _Token(_OfHub):
    def post(self) -> None:
        get = self.get_body_argument
        note("between gate and hub", get("code"), get("code_verifier"), CLIENT_SECRET)
        given = self.hub.codes.pop(get("code"), None)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(get("code_verifier").encode()).digest()).decode()
        good = given is not None and (given.redirect_uri, given.challenge) == (
            get("redirect_uri"),
            challenge.rstrip("="),
        )
        if not good or (get("client_id"), get("client_secret")) != (CLIENT_ID, CLIENT_SECRET):
            self.set_status(400)
            self.finish({"error": "invalid_grant"})
            return
        assert given is not None
        self.finish({"access_token": self.hub.token_for(given.user), "token_type": "Bearer"})


class _Owner(_OfHub):
    def get(self) -> None:
        name = self.hub.tokens.get(self.request.headers.get("Authorization", "").partition(" ")[2])
        if name is None:
            self.set_status(403)
            self.finish({"status": 403, "message": "Forbidden"})
            return
        self.finish(self.hub.users[name])
