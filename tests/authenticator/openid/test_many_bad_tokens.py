"""Many bad logout tokens from one address, behind which the provider is too: they close the way to no good one."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import pytest
from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application

from hub_extensions.core.sign_on.refusal import SignOnRefusal
from tests.fakes.oidc_provider import EVENT

pytestmark = pytest.mark.programs  # JupyterHub starts one while it is imported
ISSUER = "https://op.example"


class Signatures:
    """The provider signed what begins with ``good``."""

    async def verified(self, token: str) -> Any:
        if not token.startswith("good"):
            return SignOnRefusal("signature", "Its signature is not the provider's.")
        now = int(time.time())
        claims = {"iss": ISSUER, "aud": "hub", "iat": now, "exp": now + 60, "jti": token, "sub": "u-1"}
        return {"alg": "RS256", "typ": "logout+jwt"}, {**claims, "events": {EVENT: {}}}


async def test_good_tokens_are_taken_however_many_bad_ones_an_address_sends() -> None:
    from hub_extensions.authenticator.openid.backchannel import MAX_BAD_PER_MINUTE, BackchannelLogout, LogoutTokens

    taken: list[str] = []
    auth = SimpleNamespace(
        provider=Signatures(),
        issuer=ISSUER,
        client_id="hub",
        signing_algorithms=["RS256"],
        leeway_seconds=60,
        sign_on_now=lambda: datetime.now(timezone.utc),
        log=SimpleNamespace(warning=lambda *_: None),
        record=lambda *_, **__: None,
    )

    class Tokens(LogoutTokens):
        # what a token that is taken ends is the real hub's test
        def _end(self, token: Any) -> None:
            taken.append(token.jti)

    socket, port = bind_unused_port()
    server = HTTPServer(Application([("/", BackchannelLogout, {"tokens": Tokens(auth)})]))
    server.add_socket(socket)

    async def send(token: str) -> int:
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        request = HTTPRequest(f"http://127.0.0.1:{port}/", "POST", headers, urlencode({"logout_token": token}).encode())
        return (await AsyncHTTPClient().fetch(request, raise_error=False)).code

    bad = [await send("bad") for _ in range(MAX_BAD_PER_MINUTE + 2)]
    assert bad == [400] * MAX_BAD_PER_MINUTE + [429] * 2
    assert await send("good-1") == 200
    assert taken == ["good-1"]
    server.stop()
