"""Who is calling: the hub by its secret, a server by its own token, a person by HubOAuth or an API token.

Not here: what each of them may do with a route (the routes say it) and with a ticket or a lease (the engine says it).
No token is logged, and secrets are compared in constant time.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

from jupyterhub.services.auth import HubOAuth
from tornado.httputil import HTTPHeaders
from tornado.web import RequestHandler

from hub_extensions.adapters.jupyterhub_api import Caller, HubApi, server_of

BEARER = re.compile(r"(?:bearer|token)\s+(\S+)\s*", re.IGNORECASE)
CACHE_SECONDS = 30.0
CACHE_SIZE = 4096

T = TypeVar("T")


class Who(Enum):
    """Who may call a route; everybody else gets 403, or the login on a page."""

    ANYBODY = "anybody"
    HUB = "the hub, by its secret"
    SERVER = "a user's server, by its own token"
    READER = "a user, a user's server or a service with access to this service"
    PERSON = "a user with access to this service (not a server's token)"
    ADMIN = "an admin with access to this service"
    METRICS = "the hub's secret, the metrics token, a token with the scope read:metrics, or an admin's"


@dataclass(frozen=True, slots=True)
class Hub:
    """The hub process of this installation."""


@dataclass(frozen=True, slots=True)
class Server:
    """One user's one server, as its token's scope names it."""

    user: str
    server: str


@dataclass(frozen=True, slots=True)
class Person:
    """A user of the hub, or one of its services.

    Attributes:
        kind: ``user`` or ``service``.
        by_server: the token is a server's own: code in a notebook, which speaks for that server only.
    """

    name: str
    kind: str = "user"
    admin: bool = False
    groups: tuple[str, ...] = ()
    by_server: bool = False


class Forbidden(Exception):
    """This caller may not do this. The message says what would be needed, never who else is there."""

    def __init__(self, message: str, reason: str = "forbidden") -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason


@dataclass
class Auth:
    """Answers "who is this?" for every route.

    Attributes:
        hub_secret, metrics_token: fixed in configuration; an empty one opens nothing.
        hub: for tokens and for who is an admin. oauth: JupyterHub's own, for browsers and users' API tokens.
    """

    hub: HubApi
    oauth: HubOAuth
    hub_secret: str = field(repr=False)
    metrics_token: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        self._admins: ShortMemory[tuple[bool, tuple[str, ...]]] = ShortMemory()

    def is_hub(self, headers: HTTPHeaders) -> bool:
        """The caller has the hub's secret. Asks nobody: the hub polls its spawners before it listens."""
        return _same(bearer(headers), self.hub_secret)

    async def server(self, headers: HTTPHeaders) -> Server:
        """The server whose own token this is: user and name from the token's scope, never from what it says.

        Raises:
            Forbidden: no token, an unknown one, or not one server's. HubAway: nobody can tell now.
        """
        caller = await self.caller(headers)
        if caller is None:
            raise Forbidden("This needs the server's own token (JUPYTERHUB_API_TOKEN in the server).")
        named = server_of(caller)
        if named is None:
            raise Forbidden("This token belongs to no single server (scope access:servers!server=user/name).")
        return Server(*named)

    async def may_read_metrics(self, headers: HTTPHeaders) -> bool:
        """The caller may read counts without names."""
        given = bearer(headers)
        if self.is_hub(headers) or _same(given, self.metrics_token):
            return True
        caller = await self.caller(headers)
        if caller is None:
            return False
        return "read:metrics" in caller.scopes or await self._is_admin(caller)

    async def may_read_health(self, headers: HTTPHeaders) -> bool:
        """The caller may see more of ``health`` than ready or not."""
        if self.is_hub(headers):
            return True
        caller = await self.caller(headers)
        return caller is not None and await self._is_admin(caller)

    async def person(self, handler: RequestHandler) -> Person | None:
        """The user (or service) behind a browser's cookie or a token in the header; None: nobody known.

        Raises:
            Forbidden: known, but without access to this service. HubAway, or HTTPError 5xx: nobody can tell now.
        """
        model = await self.oauth.get_user(handler, sync=False)
        if model is None:
            return None
        scopes = set(model.get("scopes", ()))
        if not self.oauth.check_scopes(self.oauth.access_scopes, model):
            raise Forbidden(
                "Your account may not use this; an admin can give it the scope access:services!service=gpu."
            )
        name, kind = str(model["name"]), str(model.get("kind", "user"))
        if kind != "user":
            return Person(name, kind, admin=bool(model.get("admin")))
        admin, groups = await self._standing(name)
        return Person(name, kind, admin, groups, by_server=_is_servers_own(scopes))

    async def caller(self, headers: HTTPHeaders) -> Caller | None:
        """Whose hub token is in the header; None: none, or nobody's."""
        token = bearer(headers)
        return await self.hub.identify(token) if token else None

    async def _is_admin(self, caller: Caller) -> bool:
        if caller.kind != "user":
            return caller.admin
        if server_of(caller) is not None:
            # code in a notebook speaks for that server, also an admin's notebook
            return False
        return (await self._standing(caller.name))[0]

    async def _standing(self, name: str) -> tuple[bool, tuple[str, ...]]:
        """Admin or not, and the groups: a token's own view has no ``admin``, so the service asks with its own."""

        async def ask() -> tuple[bool, tuple[str, ...]]:
            user = await self.hub.user(name)
            return (False, ()) if user is None else (user.admin, user.groups)

        return await self._admins.get(name, ask)


class ShortMemory(Generic[T]):
    """Remembers answers for a short while, so that a panel's poll is not a call to the hub each time."""

    def __init__(self, seconds: float = CACHE_SECONDS, size: int = CACHE_SIZE) -> None:
        self._seconds = seconds
        self._size = size
        self._known: dict[str, tuple[float, T]] = {}

    async def get(self, key: str, ask: Callable[[], Awaitable[T]]) -> T:
        """The remembered answer, or a new one. A failure is raised and not remembered."""
        now = time.monotonic()
        found = self._known.get(key)
        if found is not None and found[0] > now:
            return found[1]
        answer = await ask()
        if len(self._known) >= self._size:
            self._known = {name: entry for name, entry in self._known.items() if entry[0] > now}
        if len(self._known) < self._size:
            self._known[key] = (now + self._seconds, answer)
        return answer


def bearer(headers: HTTPHeaders) -> str:
    """The token of the Authorization header; "" without one."""
    found = BEARER.fullmatch(headers.get("Authorization", ""))
    return found.group(1) if found else ""


def cookie_secret(hub_secret: str) -> bytes:
    """Signs this service's cookies: another value than the hub's secret, the same after a restart."""
    return hmac.new(hub_secret.encode(), b"cookies of the gpu service", hashlib.sha256).digest()


def _same(given: str, wanted: str) -> bool:
    # an empty secret is no secret
    return bool(wanted) and hmac.compare_digest(given.encode(), wanted.encode())


def _is_servers_own(scopes: set[str]) -> bool:
    return any(scope.startswith("access:servers!server=") for scope in scopes)
