"""The service's routes on a real port, with an engine in memory and a hub that knows some tokens."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import datetime, timezone
from secrets import token_hex
from typing import Any

import pytest
from tornado.httpclient import AsyncHTTPClient, HTTPRequest, HTTPResponse
from tornado.netutil import bind_sockets

from hub_extensions.adapters.hub.jupyterhub_api import HubApi
from hub_extensions.core.signing import SignedRequest, hash_of
from hub_extensions.hub_service.http.api.base import Parts
from hub_extensions.hub_service.http.app import make_oauth, make_server
from hub_extensions.hub_service.http.auth import Auth
from tests.fakes.engine import EngineInMemory
from tests.fakes.hub_of_tokens import ACCESS, SERVICE_TOKEN, HubOfTokens
from tests.patience import patient

SECRET = "hub-secret-hub-secret"
METRICS = "metrics-token-metrics"
PREFIX = "/jh/services/gpu/"
OWN_SERVERS = ("servers", "start:servers", "delete:servers")
ADMINS = ("list:users", "admin:servers", "read:metrics", "read:hub")
"""As JupyterHub 6 expands the scopes of a token that has all of its user's rights."""


class Running:
    """The service as a test sees it."""

    def __init__(self, engine: EngineInMemory, hub: HubOfTokens) -> None:
        self.engine = engine
        self.hub = hub
        api = HubApi(hub.url, SERVICE_TOKEN)
        oauth = make_oauth(prefix=PREFIX, api_url=hub.url, token=SERVICE_TOKEN)
        auth = Auth(api, oauth, SECRET, METRICS)
        self.api = api
        self.parts = Parts(engine, api, auth, PREFIX, "/jh/")  # type: ignore[arg-type]
        self.server = make_server(self.parts)
        sockets = bind_sockets(0, "127.0.0.1")
        self.server.add_sockets(sockets)
        self.port = sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}{PREFIX}"
        self.client = AsyncHTTPClient(force_instance=True)

    async def ask(
        self,
        method: str,
        path: str,
        token: str | None = None,
        body: object = None,
        headers: dict[str, str] | None = None,
    ) -> HTTPResponse:
        """One request; `body` is sent as it is (bytes) or as JSON. With SECRET as token it is signed."""
        sent = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        heads = {**(headers or {}), **({"Authorization": f"Bearer {token}"} if token else {})}
        if token == SECRET:
            heads["Authorization"] = self.signature(method, path, sent or b"")
        request = HTTPRequest(
            self.url + path,
            method=method,
            headers=heads,
            body=sent,
            allow_nonstandard_methods=True,
            follow_redirects=False,
            request_timeout=patient(10),
        )
        return await self.client.fetch(request, raise_error=False)

    def signature(self, method: str, path: str, body: bytes = b"") -> str:
        """The header with which the hub proves itself, in this run of the service."""
        now, life = datetime.now(timezone.utc), self.parts.auth.signatures.life
        return SignedRequest(method, PREFIX + path, life, now, now, token_hex(16), hash_of(body)).signed(SECRET)

    async def stop(self) -> None:
        self.parts.closing.set()
        self.client.close()
        self.server.stop()
        await self.server.close_all_connections()
        self.api.close()
        await self.hub.stop()


def known_hub() -> HubOfTokens:
    hub = HubOfTokens()
    hub.add_user("ada", groups=("course",))
    hub.add_user("ben")
    hub.add_user("root", admin=True)
    hub.add_token("ada-token", "ada", ACCESS, *(f"{scope}!user=ada" for scope in OWN_SERVERS))
    hub.add_token("ben-token", "ben", ACCESS, *(f"{scope}!user=ben" for scope in OWN_SERVERS))
    hub.add_token("admin-token", "root", ACCESS, *OWN_SERVERS, *ADMINS)
    hub.add_token("ada-access", "ada", ACCESS)
    hub.add_token("admin-access", "root", ACCESS)
    hub.add_token("admin-without-access", "root", *OWN_SERVERS, *ADMINS)
    hub.add_token("admin-visits-ben", "root", "access:servers!server=ben/", ACCESS, *OWN_SERVERS, *ADMINS)
    hub.add_token("outsider-token", "ada", "read:users:name!user=ada")
    hub.add_token("metrics-scope", "prom", "read:metrics", ACCESS, kind="service")
    hub.add_token("metrics-no-access", "prom", "read:metrics", kind="service")
    hub.add_token("ada-thesis", "ada", "access:servers!server=ada/thesis", ACCESS)
    hub.add_token("ada-default", "ada", "access:servers!server=ada/", ACCESS)
    hub.add_token("root-server", "root", "access:servers!server=root/", ACCESS)
    hub.add_token("ada-visits-ben", "ada", "access:servers!server=ben/", ACCESS)
    hub.add_token("ada-two-servers", "ada", "access:servers!server=ada/a", "access:servers!server=ada/b", ACCESS)
    hub.start()
    return hub


@pytest.fixture
async def service() -> AsyncIterator[Running]:
    running = Running(EngineInMemory(), known_hub())
    yield running
    await running.stop()


def said(response: HTTPResponse) -> Any:
    return json.loads(response.body)
