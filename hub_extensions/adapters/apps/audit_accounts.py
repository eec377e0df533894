"""The two hub accounts with which the audit tries whether apps behind the gate are closed to users without access.

They are created at the hub with an admin's token, and removed at the end. One of them is in the groups of the apps. If
the token may not create an account, the account is `None`, and the audit skips the cases that need it.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from tornado.httpclient import HTTPClientError, HTTPRequest

from hub_extensions.adapters.http_client import http_client
from hub_extensions.adapters.service.signed_request import fetch_signed
from hub_extensions.adapters.service.signer import Signer
from hub_extensions.core.sign_on.audit import ACCOUNT, AUDIT_PATH

SECONDS = 10.0


class HubDeclined(Exception):
    """The hub or the gate did not carry out a request of the audit, or did not answer. The text explains which."""


class HubRefusesAccount(HubDeclined):
    """The hub answered with an error status, so it has not carried out the request."""


@dataclass(frozen=True, slots=True)
class AuditAccount:
    """One of the two hub accounts with which the audit tries the apps.

    Attributes:
        name: name of the hub user.
        token: an API token of this user.
    """

    name: str
    token: str


@dataclass(frozen=True, slots=True)
class AuditAccounts:
    """The two accounts of one audit. An account is `None` if the hub did not create it.

    Attributes:
        outsider: an account in no group, which no app may let in.
        member: an account in the groups of the apps.
        why: why an account is `None`; "" if both exist.
    """

    outsider: AuditAccount | None
    member: AuditAccount | None
    why: str = ""


class AuditHub:
    """Client of the hub's REST API, with which the audit creates and removes its two accounts.

    Args:
        api_url: address of the API, ending in ``/hub/api``.
        token: may create and remove users, read services and change groups.

    Attributes:
        left_over: names of accounts that may still exist because their removal failed, each with the reason.
    """

    def __init__(self, api_url: str, token: str) -> None:
        self._api, self._token = api_url.rstrip("/"), token
        self.left_over: list[tuple[str, str]] = []
        self._client = http_client(follow_redirects=False)

    async def services(self) -> dict[str, dict[str, Any]] | None:
        """Return the services of the hub: name -> its model in the hub's API. `None` if the token may not read them."""
        try:
            found = await self._ask("GET", "services")
        except HubDeclined:
            return None
        return found if isinstance(found, dict) else None

    @asynccontextmanager
    async def accounts(self, groups: Iterable[str]) -> AsyncIterator[AuditAccounts]:
        """Provide the audit's two accounts while the block runs, and remove them when it ends, also after an error.

        Args:
            groups: groups of the apps, to which the account `AuditAccounts.member` is added.
        """
        made: list[str] = []
        try:
            yield await self._made(tuple(groups), made)
        finally:
            for name in made:
                try:
                    await self.remove(name)
                except HubDeclined as problem:
                    self.left_over.append((name, str(problem)))

    async def remove(self, name: str) -> None:
        """Remove one of the audit's test accounts from the hub, with its token. Raises HubDeclined."""
        if not name.startswith(ACCOUNT):
            raise ValueError(f"{name} is no account of an audit")
        try:
            await self._ask("DELETE", f"users/{quote(name, safe='')}")
        except HubDeclined as problem:
            if not str(problem).endswith(" 404"):
                raise

    async def _made(self, groups: tuple[str, ...], made: list[str]) -> AuditAccounts:
        try:
            outsider = await self._make(made)
        except HubDeclined as problem:
            return AuditAccounts(None, None, str(problem))
        try:
            member = await self._make(made)
            for group in groups:
                await self._ask("POST", f"groups/{quote(group, safe='')}/users", {"users": [member.name]})
        except HubDeclined as problem:
            return AuditAccounts(outsider, None, str(problem))
        return AuditAccounts(outsider, member)

    async def _make(self, made: list[str]) -> AuditAccount:
        name = f"{ACCOUNT}{secrets.token_hex(6)}"
        made.append(name)  # before the request: the hub may create the account although its answer is lost
        try:
            await self._ask("POST", f"users/{name}")
        except HubRefusesAccount:
            made.remove(name)
            raise
        answer = await self._ask("POST", f"users/{name}/tokens", {"note": "audit of the gate", "expires_in": 900})
        return AuditAccount(name, str(answer["token"]))

    async def _ask(self, method: str, path: str, body: object = None) -> Any:
        payload = json.dumps(body if body is not None else {}) if method == "POST" else None
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        request = HTTPRequest(f"{self._api}/{path}", method, headers, payload, request_timeout=SECONDS)
        try:
            answer = await self._client.fetch(request, raise_error=False)
        except (OSError, HTTPClientError) as problem:
            raise HubDeclined(f"{method} {path.split('/')[0]}: no answer ({type(problem).__name__})") from problem
        if answer.code >= 300:
            raise HubRefusesAccount(f"the hub answers {method} {path.split('/')[0]} with {answer.code}")
        return json.loads(answer.body) if answer.body else {}


class AuditGate:
    """Client of the gate, from which the audit gets sessions for its accounts without signing in with a browser.

    Args:
        url: the gate's own address.
        secret: signs the requests.
    """

    def __init__(self, url: str, secret: str) -> None:
        self._url, self._signer = url.rstrip("/"), Signer(secret)
        self._client = http_client(follow_redirects=False)

    async def session_for(self, token: str, expired: bool = False) -> str:
        """Return the cookie of a new session, or of one that has expired. Raises HubDeclined.

        Args:
            token: API token of the account.
            expired: return a session that has already passed its lifetime.
        """
        body = json.dumps({"token": token, "expired": expired}).encode()
        try:
            url = f"{self._url}{AUDIT_PATH}"
            answer = await fetch_signed(self._client, self._signer, "POST", url, body, request_timeout=SECONDS)
            found = json.loads(answer.body)
        except (OSError, ValueError) as problem:
            raise HubDeclined(
                f"the gate gives no session: no answer at {self._url} ({type(problem).__name__})"
            ) from None
        if answer.code != 200:
            raise HubDeclined(f"the gate gives no session: {answer.code}")
        return str(found["cookie"])
