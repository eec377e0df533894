"""The gate's client of the hub: the sign-in page, a token for an OAuth code, and the owner of a token.

A token can have an owner, be invalid, or be unknown because the hub is away. Only the hub's own refusal counts as
invalid; a redirect, a proxy's page, an error or silence do not. Nothing is logged here, and no error contains a token.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import urlencode

from tornado.httpclient import HTTPClientError, HTTPRequest, HTTPResponse

from hub_extensions.adapters.http_client import HttpClient, http_client
from hub_extensions.adapters.hub.jupyterhub_api import HubAway
from hub_extensions.core.sign_on.ended_sessions import session_hash

SECONDS = 5.0
AT_ONCE = 64
LARGEST_BYTES = 1024 * 1024
COUNTING = ("access:services", "access:servers!server=", "read:metrics")
"""Prefixes of the scopes that the gate evaluates; other scopes of an owner are not kept."""


class CodeRefused(Exception):
    """The hub gives no token for this code: it is too old, was already used, or belongs to another client."""


@dataclass(frozen=True, slots=True)
class TokenOwner:
    """The owner of a token and the token's rights.

    Attributes:
        name: name of the user or service.
        kind: ``user`` or ``service``.
        groups: groups of the user.
        scopes: those scopes of the token that the gate evaluates (`COUNTING`).
        session: the hash of the hub's session that got the token, as the hub reports it when the session ends; ""
            without a session.
    """

    name: str
    kind: str
    groups: tuple[str, ...]
    scopes: frozenset[str]
    session: str = ""


@dataclass(frozen=True, slots=True)
class HubAddresses:
    """The addresses of the hub.

    Attributes:
        api: ends in ``/hub/api``.
        public: the address for browsers, ends in ``/hub/``.
    """

    api: str
    public: str


class HubSignIn:
    """The gate's client of the hub. The gate is one of the hub's OAuth clients.

    Args:
        addresses: addresses of the hub.
        client_id: the gate's OAuth client id.
        client_secret: the gate's OAuth client secret.
        callback_url: where the hub sends the browser back.
    """

    def __init__(self, addresses: HubAddresses, client_id: str, client_secret: str, callback_url: str) -> None:
        self._api = addresses.api.rstrip("/")
        self._public = addresses.public if addresses.public.endswith("/") else f"{addresses.public}/"
        self._client = (client_id, client_secret)
        self._callback_url = callback_url
        self._clients: list[HttpClient] = []

    @property
    def sign_out_url(self) -> str:
        """Return the address at which a browser signs out of the hub."""
        return f"{self._public}logout"

    def authorize_url(self, state: str, verifier: str) -> str:
        """Return the address to which a browser is sent to sign in.

        Args:
            state: a random text that the hub returns with the code; it shows that the same browser comes back.
            verifier: PKCE verifier; only its hash is sent.
        """
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
        query = {
            "client_id": self._client[0],
            "redirect_uri": self._callback_url,
            "response_type": "code",
            "state": state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        return f"{self._public}api/oauth2/authorize?{urlencode(query)}"

    async def redeem(self, code: str, verifier: str) -> str:
        """Exchange an OAuth code and its PKCE verifier for a token.

        Raises:
            CodeRefused: the hub gives no token for the code.
            HubAway: the hub does not answer.
        """
        form = {
            "client_id": self._client[0],
            "client_secret": self._client[1],
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._callback_url,
            "code_verifier": verifier,
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        answer = await self._ask("/oauth2/token", method="POST", body=urlencode(form), headers=headers)
        if answer.code in (400, 401, 403):
            raise CodeRefused
        token = _object(answer).get("access_token")
        if not isinstance(token, str) or not token:
            raise HubAway("The hub answered without a token.")
        return token

    async def owner(self, token: str) -> TokenOwner | None:
        """Return the owner of a token, or `None` if it is not valid (any more). Raises HubAway."""
        answer = await self._ask("/user", headers={"Authorization": f"Bearer {token}"})
        if answer.code in (401, 403):
            _object(answer)  # the hub refuses in JSON; a proxy in front of it does not
            return None
        return _owner(_object(answer))

    def close(self) -> None:
        while self._clients:
            self._clients.pop().close()

    async def _ask(self, path: str, **more: Any) -> HTTPResponse:
        if not self._clients:
            self._clients.append(http_client(at_once=AT_ONCE, max_bytes=LARGEST_BYTES))
        request = HTTPRequest(
            f"{self._api}{path}",
            connect_timeout=SECONDS,
            request_timeout=SECONDS,
            follow_redirects=False,
            decompress_response=False,
            **more,
        )
        try:
            answer = await self._clients[0].fetch(request, raise_error=False)
        except (HTTPClientError, OSError, ValueError) as problem:
            raise HubAway(f"The hub does not answer: {type(problem).__name__}.") from None
        if answer.code == 599:
            raise HubAway("The hub does not answer in time.")
        return answer


def _object(answer: HTTPResponse) -> dict[str, Any]:
    if answer.code not in (200, 400, 401, 403):
        raise HubAway(f"The hub answered {answer.code}.")
    try:
        found = json.loads(answer.body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise HubAway("The hub answered something else than JSON.")
    return found


@lru_cache(maxsize=4096)
def _shared(scopes: frozenset[str]) -> frozenset[str]:
    """Return one shared object for equal sets of scopes, because thousands of users have the same ones."""
    return scopes


@lru_cache(maxsize=4096)
def _shared_groups(groups: tuple[str, ...]) -> tuple[str, ...]:
    return groups


def _owner(model: dict[str, Any]) -> TokenOwner:
    name, kind, scopes = model.get("name"), model.get("kind"), model.get("scopes")
    groups = model.get("groups") or []
    if (
        not isinstance(groups, list)
        or not isinstance(name, str)
        or not name
        or kind not in ("user", "service")
        or not isinstance(scopes, list)
    ):
        raise HubAway("The hub's answer about a token cannot be read.")
    session = model.get("session_id")
    return TokenOwner(
        name,
        str(kind),
        _shared_groups(tuple(group for group in groups if isinstance(group, str))),
        _shared(frozenset(scope for scope in scopes if isinstance(scope, str) and scope.startswith(COUNTING))),
        session_hash(session) if isinstance(session, str) and session else "",
    )
