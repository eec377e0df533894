"""The hub as the gate knows it: where browsers sign in, a token for a code, and whose a token is.

Three answers: it is somebody's, it is nobody's, or the hub is away. Only a refusal of the hub's own is a no; a
redirect, a page of a proxy, an error and silence are none. Nothing here is logged, and no error has a token in it.
Not here: how long an answer counts (``gate/hub_answers.py``).
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
"""Of a token's scopes those that begin so mean something here: the others are not kept."""


class CodeRefused(Exception):
    """The hub gives no token for this code: it is old, was used already, or is another client's."""


@dataclass(frozen=True, slots=True)
class TokenOwner:
    """Whose token it is, and what it may do.

    Attributes:
        session: the hash, as the hub reports it at its end, of the hub's session that got the token; "": none did.
    """

    name: str
    kind: str
    groups: tuple[str, ...]
    scopes: frozenset[str]
    session: str = ""


@dataclass(frozen=True, slots=True)
class HubAddresses:
    """Where the hub is. `api`: ends in ``/hub/api``. `public`: of browsers, ends in ``/hub/``."""

    api: str
    public: str


class HubSignIn:
    """The hub, for one OAuth client of it."""

    def __init__(self, addresses: HubAddresses, client_id: str, client_secret: str, callback_url: str) -> None:
        self._api = addresses.api.rstrip("/")
        self._public = addresses.public if addresses.public.endswith("/") else f"{addresses.public}/"
        self._client = (client_id, client_secret)
        self._callback_url = callback_url
        self._clients: list[HttpClient] = []

    @property
    def sign_out_url(self) -> str:
        """Where a browser is signed out of the hub."""
        return f"{self._public}logout"

    def authorize_url(self, state: str, verifier: str) -> str:
        """Where a browser is sent to sign in."""
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
        """The token for a code. Raises CodeRefused, HubAway."""
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
        """Whose token it is; None: nobody's (any more). Raises HubAway."""
        answer = await self._ask("/user", headers={"Authorization": f"Bearer {token}"})
        if answer.code in (401, 403):
            _object(answer)  # the hub says so in JSON; a proxy in front of it does not
            return None
        return _owner(_object(answer))

    def close(self) -> None:
        """Close the connections."""
        while self._clients:
            self._clients.pop().close()

    async def _ask(self, path: str, **more: Any) -> HTTPResponse:
        if not self._clients:
            self._clients.append(http_client(at_once=AT_ONCE, most_bytes=LARGEST_BYTES))
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
    """Thousands of people have the same scopes: they are kept once."""
    return scopes


@lru_cache(maxsize=4096)
def _shared_groups(groups: tuple[str, ...]) -> tuple[str, ...]:
    """The same for their groups."""
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
