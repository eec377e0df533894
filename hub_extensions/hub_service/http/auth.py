"""Who is calling: the hub by its signature, a server by its own token, a person by HubOAuth or an API token.

Not here: what a person may do (``core/access.py``), and what becomes of a ticket or a lease (the engine says it).
No token is logged, and secrets are compared in constant time.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, TypeVar

from jupyterhub.services.auth import HubOAuth
from tornado.httputil import HTTPHeaders, HTTPServerRequest
from tornado.web import HTTPError, RequestHandler

from hub_extensions.adapters.hub.jupyterhub_api import HubApi
from hub_extensions.adapters.hub.known_callers import Caller, server_of
from hub_extensions.adapters.linux.listeners import StrangerListens, check_place
from hub_extensions.adapters.service.signatures import Judged, Signatures
from hub_extensions.core.access import ApiAction, Person, has_access
from hub_extensions.core.text.reasons import Reason

BEARER = re.compile(r"(?:bearer|token)\s+(\S+)\s*", re.IGNORECASE)
CACHE_SECONDS = 30.0
CACHE_SIZE = 4096

ASKS_AGAIN: ContextVar[bool] = ContextVar("ASKS_AGAIN", default=False)
"""What is asked in this context is an order: the hub is asked who gives it, whatever is remembered."""

T = TypeVar("T")


class Who(Enum):
    """Who may call a route; everybody else gets 403, or the login on a page."""

    ANYBODY = "anybody"
    HUB = "the hub, by its signature"
    SERVER = "a user's server, by its own token"
    READER = "a user, a user's server or a service with access to this service"
    PERSON = "a user with access to this service (not a server's token)"
    ADMIN = "an admin who is logged in, or a token with the scope that is named"
    METRICS = (
        "the hub's signature, the metrics token, or a token with access to this service and the scope read:metrics"
    )


@dataclass(frozen=True, slots=True)
class Hub:
    """The hub process of this installation."""


@dataclass(frozen=True, slots=True)
class Server:
    """One user's one server, as its token's scope names it."""

    user: str
    server: str


class Forbidden(Exception):
    """This caller may not do this. The reason says what would be needed, never who else is there."""

    def __init__(self, why: Reason | str) -> None:
        self.why = why if isinstance(why, Reason) else Reason("forbidden", why)
        super().__init__(self.why.message)


class SignAgain(Exception):
    """The hub signed this for another run of the service, or another time: the answer tells both."""


class ProvingOAuth(HubOAuth):  # type: ignore[misc]
    """JupyterHub's own client for logins, which tells the hub's API our token and users' cookies.

    Attributes:
        account: the uid of who has to listen there, where that is on this machine; None: it is not looked at.
    """

    account: int | None = None
    times_forgotten = 0

    def forget(self) -> None:
        """Every login is asked about again, also one that the hub is asked about now."""
        self.times_forgotten += 1
        self.cache.clear()

    def user_for_token(self, token: str, use_cache: bool = True, session_id: str = "", *, sync: bool = True) -> Any:
        return super().user_for_token(token, use_cache and not ASKS_AGAIN.get(), session_id, sync=sync)

    async def _api_request(self, method: str, url: str, /, **options: Any) -> Any:
        try:
            check_place(url, self.account)
        except StrangerListens as problem:
            raise HTTPError(503, f"the hub does not answer: {problem}") from problem
        while True:
            forgotten = self.times_forgotten
            answer = await super()._api_request(method, url, **options)
            if method != "GET" or forgotten == self.times_forgotten:
                return answer


@dataclass
class Auth:
    """Answers "who is this?" for every route.

    Attributes:
        hub_secret, metrics_token: fixed in configuration; an empty one opens nothing.
        hub: for tokens and for who is an admin. oauth: JupyterHub's own, for browsers and users' API tokens.
    """

    hub: HubApi
    oauth: ProvingOAuth
    hub_secret: str = field(repr=False)
    metrics_token: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        self._admins: ShortMemory[tuple[bool, tuple[str, ...]]] = ShortMemory()
        self.signatures = Signatures(self.hub_secret)

    def judged(self, request: HTTPServerRequest) -> Judged | None:
        """The request, if the hub signed it; to be asked once. Asks nobody: the hub polls before it listens."""
        return self.signatures.judge(request.method or "", request.uri or "", request.headers.get("Authorization", ""))

    def is_older_hub(self, headers: HTTPHeaders) -> bool:
        """The caller sends the hub's secret itself, as versions before this one did."""
        return _same(bearer(headers), self.hub_secret)

    def proves(self, method: str, target: str, authorization: str) -> bool:
        """The hub signed this, or its token was somebody's when the hub was asked last. Asks nobody."""
        if self.signatures.may_be_hub(method, target, authorization):
            return True
        found = BEARER.fullmatch(authorization)
        return found is not None and self.hub.was_proved(found.group(1))

    async def server(self, headers: HTTPHeaders) -> Server:
        """The server whose own token this is: user and name from the token's scope, never from what it says.

        Raises:
            Forbidden: no token, an unknown one, or not one server's. HubAway: nobody can tell now.
        """
        token = bearer(headers)
        caller = await self.hub.identify(token, as_server=True) if token else None
        if caller is None:
            raise Forbidden("This needs the server's own token (JUPYTERHUB_API_TOKEN in the server).")
        named = server_of(caller)
        if named is None:
            raise Forbidden("This token belongs to no single server (scope access:servers!server=user/name).")
        return Server(*named)

    async def may_read_metrics(self, headers: HTTPHeaders) -> bool:
        """The caller, who is not the hub, may read counts without names."""
        if _same(bearer(headers), self.metrics_token):
            return True
        return await self._token_may(headers, ApiAction.METRICS)

    async def may_read_health(self, headers: HTTPHeaders) -> bool:
        """The caller, who is not the hub, may see more of ``health`` than ready or not."""
        return await self._token_may(headers, ApiAction.HEALTH)

    def forget(self, name: str) -> None:
        """Sessions of this user ended: the hub is asked again about logins, tokens and rights."""
        self.oauth.forget()
        self.hub.forget(name)
        self._admins.forget(name)

    async def person(self, handler: RequestHandler) -> Person | None:
        """The user (or service) behind a browser's cookie or a token in the header; None: nobody known.

        An order, which is any request but a GET or HEAD, never rests on what the hub said before.

        Raises:
            Forbidden: known, but without access to this service. HubAway, or HTTPError 5xx: nobody can tell now.
        """
        is_order = handler.request.method not in ("GET", "HEAD")
        ASKS_AGAIN.set(is_order)
        if (token := bearer(handler.request.headers)) and await self.hub.identify(token, again=is_order) is None:
            return None
        model = await self.oauth.get_user(handler, sync=False)
        if model is None:
            return None
        scopes = frozenset(map(str, model.get("scopes", ())))
        if not has_access(scopes):
            raise Forbidden(
                "Your account may not use this; an admin can give it the scope access:services!service=gpu."
            )
        name, kind = str(model["name"]), str(model.get("kind", "user"))
        admin, groups = await self._standing(name) if kind == "user" else (False, ())
        # of a login the hub says the scopes of this service's own cookie: what its account has is asked for
        by_token = bool(self.oauth.get_token(handler, in_cookie=False))
        return Person(name, kind, admin, groups, scopes if by_token else None)

    async def known_name(self, handler: RequestHandler) -> str | None:
        """Whose token or cookie this is, before a form's body with its proof (XSRF) is read. It proves no right.

        Raises:
            HubAway, or HTTPError 5xx: nobody can tell now.
        """
        if token := bearer(handler.request.headers):
            caller = await self.hub.identify(token)
            return None if caller is None else caller.name
        session, token = self.oauth.get_session_id(handler), self.oauth.get_token(handler)
        model = await self.oauth.user_for_token(token, session_id=session, sync=False) if token else None
        return None if model is None else str(model["name"])

    async def caller(self, headers: HTTPHeaders) -> Caller | None:
        """Whose hub token is in the header; None: none, or nobody's."""
        token = bearer(headers)
        return await self.hub.identify(token) if token else None

    async def _token_may(self, headers: HTTPHeaders, action: ApiAction) -> bool:
        caller = await self.caller(headers)
        if caller is None or not has_access(caller.scopes):
            return False
        return Person(caller.name, caller.kind, scopes=caller.scopes).may(action)

    async def _standing(self, name: str) -> tuple[bool, tuple[str, ...]]:
        """Admin or not, and the groups: a token's own view has no ``admin``, so the service asks with its own."""

        async def ask() -> tuple[bool, tuple[str, ...]]:
            user = await self.hub.user(name)
            return (False, ()) if user is None else (user.admin, user.groups)

        return await self._admins.get(name, ask, again=ASKS_AGAIN.get())


class ShortMemory(Generic[T]):
    """Remembers answers for a short while, so that a panel's poll is not a call to the hub each time."""

    def __init__(self, seconds: float = CACHE_SECONDS, size: int = CACHE_SIZE) -> None:
        self._seconds = seconds
        self._size = size
        self._known: dict[str, tuple[float, T]] = {}
        self._times_forgotten = 0

    def forget(self, key: str) -> None:
        """Ask again, also where an answer is under way."""
        self._times_forgotten += 1
        self._known.pop(key, None)

    async def get(self, key: str, ask: Callable[[], Awaitable[T]], *, again: bool = False) -> T:
        """The remembered answer, or a new one. A failure is raised and not remembered. `again`: a new one."""
        now, forgotten = time.monotonic(), self._times_forgotten
        found = self._known.get(key)
        if found is not None and found[0] > now and not again:
            return found[1]
        answer = await ask()
        if forgotten != self._times_forgotten:
            return answer
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
