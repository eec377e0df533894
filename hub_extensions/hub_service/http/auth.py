"""Finds out who is calling: the hub by its signature, a server by its own token, a person by HubOAuth or an API token.

``core/access.py`` decides what a person may do. No token is logged, and secrets are compared in constant time.
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
from hub_extensions.adapters.linux.listeners import ForeignListener, check_address
from hub_extensions.adapters.service.signatures import Signatures, VerifiedRequest
from hub_extensions.core.access import ApiAction, Person, has_access
from hub_extensions.core.text.reasons import Reason

BEARER = re.compile(r"(?:bearer|token)\s+(\S+)\s*", re.IGNORECASE)
CACHE_SECONDS = 30.0
CACHE_SIZE = 4096

ASKS_AGAIN: ContextVar[bool] = ContextVar("ASKS_AGAIN", default=False)
"""True while a request that changes something is handled: the hub is then asked who sends it, whatever is cached."""

T = TypeVar("T")


class Who(Enum):
    """The kinds of callers that a route may be for. Everybody else gets 403; pages redirect to the login."""

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
    """The calling process is the hub of this installation, as its signature proves."""


@dataclass(frozen=True, slots=True)
class Server:
    """The caller is one server of one user, as the scope of its token proves."""

    user: str
    server: str


class Forbidden(Exception):
    """The caller may not do this; the answer is 403. The reason names what would be needed, and never other users."""

    def __init__(self, why: Reason | str) -> None:
        self.why = why if isinstance(why, Reason) else Reason("forbidden", why)
        super().__init__(self.why.message)


class SignAgain(Exception):
    """The hub signed the request for an earlier run of this service, or its signing time is too far from our clock.

    The answer contains the present run and the present time, with which the hub signs the request again.
    """


class VerifyingOAuth(HubOAuth):  # type: ignore[misc]
    """JupyterHub's own client for logins. The client also checks which account's process listens at the hub's address.

    The service's token and users' cookies are sent to this address, so no other account's program may listen there.

    Attributes:
        account: the uid that has to listen there, if the hub is on this machine; `None` to accept any.
        times_forgotten: how often cached logins were dropped. If it changes while an answer is pending, the hub is
            asked again.
    """

    account: int | None = None
    times_forgotten = 0

    def forget(self) -> None:
        """Drop all cached logins. If an answer of the hub is pending, it is not used, and the hub is asked again."""
        self.times_forgotten += 1
        self.cache.clear()

    def user_for_token(self, token: str, use_cache: bool = True, session_id: str = "", *, sync: bool = True) -> Any:
        return super().user_for_token(token, use_cache and not ASKS_AGAIN.get(), session_id, sync=sync)

    async def _api_request(self, method: str, url: str, /, **options: Any) -> Any:
        try:
            check_address(url, self.account)
        except ForeignListener as problem:
            raise HTTPError(503, f"the hub does not answer: {problem}") from problem
        while True:
            forgotten = self.times_forgotten
            answer = await super()._api_request(method, url, **options)
            if method != "GET" or forgotten == self.times_forgotten:
                return answer


@dataclass
class Auth:
    """Authenticates the caller for every route.

    Attributes:
        hub: the hub's API, to identify tokens and to look up administrators and groups.
        oauth: JupyterHub's own client, for browsers and users' API tokens.
        hub_secret: secret with which the hub signs its requests; an empty one gives no access.
        metrics_token: token with which Prometheus may read the metrics; an empty one gives no access.
    """

    hub: HubApi
    oauth: VerifyingOAuth
    hub_secret: str = field(repr=False)
    metrics_token: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        self._admins: ShortMemory[tuple[bool, tuple[str, ...]]] = ShortMemory()
        self.signatures = Signatures(self.hub_secret)

    def verify_signature(self, request: HTTPServerRequest) -> VerifiedRequest | None:
        """Verify the hub's signature in the header Authorization. Call this once for each request.

        No request is sent to the hub, because the hub already polls its spawners before it accepts connections.

        Returns:
            `None` if the hub did not sign the request.
        """
        return self.signatures.verify(request.method or "", request.uri or "", request.headers.get("Authorization", ""))

    def is_older_hub(self, headers: HTTPHeaders) -> bool:
        """Return whether the caller is a hub with an older version of this product, which sends its secret as a token.

        Args:
            headers: headers of the request.
        """
        return _same(bearer(headers), self.hub_secret)

    def proves(self, method: str, target: str, authorization: str) -> bool:
        """Return whether the hub signed this request, or the request has a token that the hub last reported as valid.

        No request is sent to the hub.

        Args:
            method: method of the request.
            target: path and query of the request.
            authorization: the header Authorization, with a signature or a token.
        """
        if self.signatures.may_be_hub(method, target, authorization):
            return True
        found = BEARER.fullmatch(authorization)
        return found is not None and self.hub.was_proved(found.group(1))

    async def server(self, headers: HTTPHeaders) -> Server:
        """Return the server to which the token in the header belongs. User and name come from the token's scope.

        Raises:
            Forbidden: the token is missing, unknown, or not that of one server.
            HubAway: the hub does not answer.
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
        """Return whether a caller other than the hub may read the metrics.

        Args:
            headers: headers of the request, which need the metrics token or a token of JupyterHub with the right to do
                so.
        """
        if _same(bearer(headers), self.metrics_token):
            return True
        return await self._token_may(headers, ApiAction.METRICS)

    async def may_read_health(self, headers: HTTPHeaders) -> bool:
        """Return whether a caller other than the hub may read the details of ``health``.

        Args:
            headers: headers of the request, which need a token of JupyterHub with the right to do so.
        """
        return await self._token_may(headers, ApiAction.HEALTH)

    def forget(self, name: str) -> None:
        """Drop cached logins, tokens and rights of a user whose sessions ended."""
        self.oauth.forget()
        self.hub.forget(name)
        self._admins.forget(name)

    async def person(self, handler: RequestHandler) -> Person | None:
        """Return the user or service behind a cookie or token; `None` without a valid one.

        A request that changes something, which is any but GET and HEAD, never relies on cached answers of the hub.

        Raises:
            Forbidden: the caller is known, but may not use this service.
            HubAway, HTTPError: the hub does not answer.
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
        # for a login the hub returns the scopes of this service's own cookie, so the rights of the account are queried
        by_token = bool(self.oauth.get_token(handler, in_cookie=False))
        return Person(name, kind, admin, groups, scopes if by_token else None)

    async def known_name(self, handler: RequestHandler) -> str | None:
        """Return the name behind a token or cookie, before a form's body with its XSRF token is read.

        The name alone gives no rights: `person` checks the caller again.

        Returns:
            `None` if nobody is logged in.

        Raises:
            HubAway, HTTPError: the hub does not answer.
        """
        if token := bearer(handler.request.headers):
            caller = await self.hub.identify(token)
            return None if caller is None else caller.name
        session, token = self.oauth.get_session_id(handler), self.oauth.get_token(handler)
        model = await self.oauth.user_for_token(token, session_id=session, sync=False) if token else None
        return None if model is None else str(model["name"])

    async def caller(self, headers: HTTPHeaders) -> Caller | None:
        """Return the owner of the JupyterHub token in the header Authorization; `None` without a valid one."""
        token = bearer(headers)
        return await self.hub.identify(token) if token else None

    async def _token_may(self, headers: HTTPHeaders, action: ApiAction) -> bool:
        caller = await self.caller(headers)
        if caller is None or not has_access(caller.scopes):
            return False
        return Person(caller.name, caller.kind, scopes=caller.scopes).may(action)

    async def _standing(self, name: str) -> tuple[bool, tuple[str, ...]]:
        """Return whether a user is an administrator, and the user's groups.

        The hub is asked with the service's own token. An answer to the user's own token would lack ``admin``.
        """

        async def ask() -> tuple[bool, tuple[str, ...]]:
            user = await self.hub.user(name)
            return (False, ()) if user is None else (user.admin, user.groups)

        return await self._admins.get(name, ask, again=ASKS_AGAIN.get())


class ShortMemory(Generic[T]):
    """A cache of the hub's answers with a short lifetime, so that not every request here causes a request to the hub.

    Args:
        seconds: how long an answer is kept.
        size: maximum number of answers.
    """

    def __init__(self, seconds: float = CACHE_SECONDS, size: int = CACHE_SIZE) -> None:
        self._seconds = seconds
        self._size = size
        self._known: dict[str, tuple[float, T]] = {}
        self._times_forgotten = 0

    def forget(self, key: str) -> None:
        """Drop the cached answer for a key.

        Answers of the hub that are still pending, for any key, will not be cached.
        """
        self._times_forgotten += 1
        self._known.pop(key, None)

    async def get(self, key: str, ask: Callable[[], Awaitable[T]], *, again: bool = False) -> T:
        """Return the cached answer for a key, or ask for a new one. Failures are raised and not cached.

        Args:
            key: the key of the answer in the cache, such as the user's name.
            ask: asks the hub for a new answer.
            again: ask even if an answer is cached.
        """
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
    """Return the token in the header Authorization; "" without a token."""
    found = BEARER.fullmatch(headers.get("Authorization", ""))
    return found.group(1) if found else ""


def cookie_secret(hub_secret: str) -> bytes:
    """Derive the key for this service's cookies from the hub's secret; it is the same after a restart."""
    return hmac.new(hub_secret.encode(), b"cookies of the gpu service", hashlib.sha256).digest()


def _same(given: str, wanted: str) -> bool:
    # an empty secret never matches
    return bool(wanted) and hmac.compare_digest(given.encode(), wanted.encode())
