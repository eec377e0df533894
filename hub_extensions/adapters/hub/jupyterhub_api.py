"""The service's client of JupyterHub's REST API, the same for JupyterHub 5.5 and 6.1.

Listing, starting, stopping and identifying use separate HTTP clients, so that a slow list never delays a stop.
"""

from __future__ import annotations

import asyncio
import json
import math
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Any
from urllib.parse import quote, urlencode

from tornado.httpclient import HTTPClientError, HTTPRequest, HTTPResponse

from hub_extensions.adapters.http_client import HttpClient, http_client
from hub_extensions.adapters.hub.known_callers import Caller, KnownCallers
from hub_extensions.core.messages import RETURNS_HEADER

_PAGINATED = "application/jupyterhub-pagination+json"
_PAGE = 200
_READINGS = 3
_WITHOUT_OUR_LIST = 600.0
"""If the hub lacks the route that ``configure(c)`` adds to list all servers, its user list is used for this many
seconds before the route is tried again.
"""
_UNPROVED_AT_ONCE = 64  # limit of pending queries about tokens that were never valid; further ones fail at once


@dataclass(frozen=True, slots=True)
class _Purpose:
    """A kind of request to the hub. Each kind has its own HTTP client, so that slow requests do not delay others.

    Attributes:
        name: name of the kind, for messages.
        seconds: time limit of a request.
        at_once: how many requests run at the same time.
    """

    name: str
    seconds: float
    at_once: int


_LIST = _Purpose("list", 30.0, 4)
_START = _Purpose("start", 60.0, 16)
_STOP = _Purpose("stop", 60.0, 16)
_IDENTIFY = _Purpose("identify", 10.0, 32)
_IDENTIFY_UNPROVED = _Purpose("identify unproved", 10.0, 4)
_UP = _Purpose("up", 5.0, 2)
_FRAME = _Purpose("frame", 3.0, 4)


class HubAway(Exception):
    """The hub did not answer in time. It is not known whether the hub carried out the request.

    Attributes:
        message: explanation for the log and for the service's report of its own state (``health``).
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class HubRefused(Exception):
    """The hub answered with an error.

    Attributes:
        status: the HTTP status.
        message: the hub's own text.
        retry_after: the time to wait, from the header ``Retry-After``; `None` without that header.
    """

    def __init__(self, status: int, message: str, retry_after: timedelta | None = None) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message
        self.retry_after = retry_after


class StartRefused(HubRefused):
    """The hub did not start the server (429: too many at once; 400: it already runs, or its name is invalid)."""


class StopRefused(HubRefused):
    pass


@dataclass(frozen=True, slots=True)
class HubUser:
    """A user of the hub, as the hub's API describes it.

    Attributes:
        admin: whether the user is an administrator.
    """

    name: str
    admin: bool
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HubServer:
    """A server that is not stopped.

    Attributes:
        server: name of the server; "" is the default server.
        ready: it runs and answers.
        pending: ``spawn``, ``stop`` or ``check`` (the hub checks it after its restart); `None` if the hub is doing
            nothing with it.
        started: when the server was started (aware UTC); `None` if the hub does not report it.
        last_activity: time of the last activity that the hub has recorded (aware UTC); `None` if it has recorded none.
        user_options: the options of the server's last start, as the hub has stored them; empty without options.
        admin: whether its user is an administrator.
        groups: the groups of its user.
        pid: process id, from the spawner's state; `None` if the state does not contain it, or if our token
            lacks the scope ``admin:server_state``.
        pod: name of the pod, from the spawner's state; "" without a pod or without that scope.
    """

    user: str
    server: str
    ready: bool
    pending: str | None
    started: datetime | None
    last_activity: datetime | None
    user_options: Mapping[str, object] = field(default_factory=dict)
    admin: bool = False
    groups: tuple[str, ...] = ()
    pid: int | None = None
    pod: str = ""


class StopAnswer(Enum):
    """The result of a request to stop a server: the hub stops the server, the server is stopped already, or it is
    starting and goes on.
    """

    ASKED = "asked"  # The hub stops it because of this request
    OVER = "over"  # nothing was sent, because the server is already being stopped, or is gone
    STARTS = "starts"
    """Nothing was sent, because a spawn (or the hub's check after a restart) is pending, and a stop would cancel it."""


class HubApi:
    """The service's client of the hub's REST API.

    Every method except `up` raises `HubAway` if the hub does not answer, and `HubRefused` if the service's token lacks
    a scope.

    Attributes:
        clock_ahead: by how much the hub's clock was ahead of this machine's clock when the servers were last listed
            (from the header ``Date``); `None` without such a header.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        tls: ssl.SSLContext | None = None,
        account: int | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create a client.

        Args:
            url: ends in ``/hub/api``, with or without a slash.
            token: the service's own API token.
            tls: the certificates of JupyterHub's ``internal_ssl``; `None` without it.
            account: the uid that has to listen at the address, if that is on this machine; `None` to accept any.
            monotonic: returns the monotonic clock in seconds.
        """
        self._url = url.rstrip("/")
        self._token = token
        self._tls = tls
        self._account = account
        self._monotonic = monotonic
        self.clock_ahead: timedelta | None = None
        self._clients: dict[str, HttpClient] = {}
        self._whole_body: bool | None = None
        self._no_list_until = -math.inf
        self._callers = KnownCallers()
        self._unproved = 0

    async def servers(self) -> tuple[HubServer, ...]:
        """Return all servers of all users that are not stopped, including pending spawns and stops."""
        users = await self._list_of_ours()
        if users is None:
            users = await self._all_users({"state": "active"})
        return tuple(server for user in users for server in _servers_of(user))

    async def users(self) -> tuple[HubUser, ...]:
        return tuple(_user(model) for model in await self._all_users({}))

    async def user(self, name: str) -> HubUser | None:
        """Ask the hub for one user. Return `None` if the hub does not know the name."""
        model = await self._one_user(name, _LIST)
        return None if model is None else _user(model)

    async def server(self, user: str, server: str) -> HubServer | None:
        """Ask the hub for one server. Return `None` if it is stopped or does not exist."""
        return _server_in(await self._one_user(user, _LIST), server)

    async def start(self, user: str, server: str, options: Mapping[str, object], *, returns: bool = False) -> bool:
        """Ask the hub to start a server.

        Args:
            user: name of the user.
            server: name of the server; "" is the default server.
            options: ``user_options`` of the spawn.
            returns: the server is restarted without its user asking. The hub refuses that for a user who has signed
                out.

        Returns:
            True if the hub starts the server. False if the hub was not asked to, because a spawn is already pending.

        Raises:
            StartRefused: with the hub's status and message.
        """
        found = _server_in(await self._one_user(user, _START), server)
        if found is not None and found.pending == "spawn":
            return False
        # JupyterHub 5 takes the whole body as the options; checked again after each absence, as the hub may be upgraded
        if self._whole_body is None:
            major = (await self._version()).partition(".")[0]
            self._whole_body = major.isdigit() and int(major) < 6
        body = dict(options) if self._whole_body else {"user_options": dict(options)}
        headers = {RETURNS_HEADER: "1"} if returns else {}
        answer = await self._ask(_START, "POST", _server_path(user, server), body=body, headers=headers)
        if answer.code not in (201, 202):
            raise StartRefused(answer.code, _message(answer))
        return True

    async def stop(self, user: str, server: str) -> StopAnswer:
        """Ask the hub to stop a server.

        Raises:
            StopRefused: with the hub's status and message.
        """
        found = _server_in(await self._one_user(user, _STOP), server)
        if found is None or found.pending == "stop":
            return StopAnswer.OVER
        if found.pending is not None:
            return StopAnswer.STARTS
        answer = await self._ask(_STOP, "DELETE", _server_path(user, server))
        if answer.code not in (202, 204, 404):
            raise StopRefused(answer.code, _message(answer), _retry_after(answer))
        return StopAnswer.OVER if answer.code == 404 else StopAnswer.ASKED

    async def identify(self, token: str, *, as_server: bool = False, again: bool = False) -> Caller | None:
        """Return the owner of a token; `None` if the token is invalid. The answer is cached for some seconds.

        Args:
            token: the API token.
            as_server: the request concerns only the server to which the token belongs, so an answer that is some
                minutes old is accepted.
            again: ask the hub even if the answer is cached.

        Raises:
            HubAway: the hub does not answer, or too many queries about unknown tokens are pending.
        """
        now, forgotten = asyncio.get_running_loop().time(), self._callers.times_forgotten
        known, caller = self._callers.find(token, now, as_server=as_server)
        if known and not again:
            return caller
        if self._callers.was_proved(token):
            answer = await self._ask(_IDENTIFY, "GET", "/user", token=token)
        else:
            answer = await self._ask_unproved(token)
        caller = None if answer.code in (401, 403) else _caller(_parsed(answer))
        if forgotten == self._callers.times_forgotten:
            self._callers.keep(token, caller, now)
        return caller

    def forget(self, name: str) -> None:
        """Drop what is cached about the tokens of this user or service."""
        self._callers.forget(name)

    def was_proved(self, token: str) -> bool:
        """Return whether the hub's last answer about this token was that the token is valid."""
        return self._callers.was_proved(token)

    async def _ask_unproved(self, token: str) -> HTTPResponse:
        """Ask the hub about a token that it has never confirmed. The number of such requests at the same time is
        limited, so that a flood of made-up tokens does not delay valid ones.
        """
        if self._unproved >= _UNPROVED_AT_ONCE:
            raise HubAway("Too many unknown tokens are asked about at once.")
        self._unproved += 1
        try:
            return await self._ask(_IDENTIFY_UNPROVED, "GET", "/user", token=token)
        finally:
            self._unproved -= 1

    async def service_info(self, name: str) -> Mapping[str, Any]:
        """Return the field ``info`` of a service in the hub's configuration. Needs ``read:services``."""
        info = _mapping(_parsed(await self._ask(_UP, "GET", f"/services/{_quoted(name)}"))).get("info")
        return info if isinstance(info, dict) else {}

    async def page_frame(self, user: str, language: str) -> str:
        """Return the HTML of a page of the hub without content, as a user sees it. The service puts its own content
        into it.

        ``configure(c)`` adds the route of that page to the hub.

        Args:
            user: name of the user.
            language: the language of the page.
        """
        path = "/gpu/frame?" + urlencode({"user": user})
        answer = await self._ask(_FRAME, "GET", path, headers={"Accept-Language": language})
        if answer.code != 200:
            raise HubRefused(answer.code, _message(answer))
        return answer.body.decode(errors="replace")

    async def own_token(self) -> str:
        """Return the hub's id of the service's API token; "" if it reports none.

        At its start a hub forgets services that its configuration does not have, together with their tokens. So a new
        id shows that the hub ran without our service in between.
        """
        try:
            return str(_mapping(_parsed(await self._ask(_UP, "GET", "/user"))).get("token_id") or "")
        except HubRefused:
            return ""

    async def up(self) -> bool:
        """Return whether the hub answers. Never raises."""
        try:
            await self._version()
        except (HubAway, HubRefused):
            return False
        return True

    def close(self) -> None:
        """Close the HTTP clients for the hub. Can be called twice."""
        while self._clients:
            self._clients.popitem()[1].close()

    async def _version(self) -> str:
        return str(_mapping(_parsed(await self._ask(_UP, "GET", "/"))).get("version", ""))

    async def _one_user(self, name: str, purpose: _Purpose) -> Mapping[str, Any] | None:
        answer = await self._ask(purpose, "GET", f"/users/{_quoted(name)}")
        return None if answer.code == 404 else _mapping(_parsed(answer))

    async def _list_of_ours(self) -> list[Mapping[str, Any]] | None:
        """Return all servers in one answer, by a route that ``configure(c)`` adds to the hub. `None` if the hub lacks
        the route.
        """
        if self._monotonic() < self._no_list_until:
            return None
        answer = await self._ask(_LIST, "GET", "/gpu/servers")
        if answer.code in (403, 404):
            self._no_list_until = self._monotonic() + _WITHOUT_OUR_LIST
        if answer.code != 200:
            return None
        self.clock_ahead = _clock_ahead(answer, datetime.now(timezone.utc))
        return [_mapping(item) for item in _mapping(_parsed(answer)).get("items", ())]

    async def _all_users(self, query: Mapping[str, str]) -> list[Mapping[str, Any]]:
        """Read the hub's list of users page by page.

        If a user leaves the list between two pages, all later users move up by one, and one of them could be missed.
        Therefore the list is read again if its total has changed. If the total keeps changing, the result is the union
        of all attempts.

        Args:
            query: parameters of the request, such as ``{"state": "active"}`` for users with servers only.
        """
        seen: dict[str, Mapping[str, Any]] = {}
        for _ in range(_READINGS):
            found, still = await self._read_pages(query)
            seen.update((str(model.get("name")), model) for model in found)
            if still:
                return found
        return list(seen.values())

    async def _read_pages(self, query: Mapping[str, str]) -> tuple[list[Mapping[str, Any]], bool]:
        found: list[Mapping[str, Any]] = []
        totals: set[object] = set()
        offset, limit = 0, _PAGE
        while True:
            path = "/users?" + urlencode({**query, "limit": limit, "offset": offset})
            answer = await self._ask(_LIST, "GET", path)
            self.clock_ahead = _clock_ahead(answer, datetime.now(timezone.utc))
            page = _mapping(_parsed(answer))
            found.extend(_mapping(item) for item in page.get("items", ()))
            pagination = _mapping(page.get("_pagination"))
            totals.add(pagination.get("total"))
            following = pagination.get("next")
            if not following:
                return found, len(totals) == 1
            offset, limit = int(following["offset"]), int(following["limit"])  # the hub may have a smaller page size

    async def _ask(
        self,
        purpose: _Purpose,
        method: str,
        path: str,
        *,
        body: Mapping[str, object] | None = None,
        token: str | None = None,
        headers: Mapping[str, str] = {},
    ) -> HTTPResponse:
        request = HTTPRequest(
            self._url + path,
            method=method,
            headers={"Authorization": f"token {token or self._token}", "Accept": _PAGINATED, **headers},
            body=None if body is None else json.dumps(body),
            connect_timeout=min(5.0, purpose.seconds),
            request_timeout=purpose.seconds,
            follow_redirects=False,
            ssl_options=self._tls,
        )
        if purpose.name not in self._clients:
            self._clients[purpose.name] = http_client(at_once=purpose.at_once, account=self._account)
        try:
            answer = await self._clients[purpose.name].fetch(request, raise_error=False)
        except (HTTPClientError, OSError) as error:
            self._may_be_another()
            raise HubAway(f"The hub does not answer ({_why(error, purpose)}).") from error
        if answer.code in (502, 503, 504) and purpose is not _START:
            self._may_be_another()
            raise HubAway(f"The hub does not answer ({answer.code} {_message(answer)}).")
        return answer

    def _may_be_another(self) -> None:
        """Forget the hub's version and routes after it was away, because it may come back with another version or
        configuration.
        """
        self._whole_body, self._no_list_until = None, -math.inf


def _quoted(name: str) -> str:
    return quote(name, safe="")


def _server_path(user: str, server: str) -> str:
    return f"/users/{_quoted(user)}/" + (f"servers/{_quoted(server)}" if server else "server")


def _parsed(answer: HTTPResponse) -> object:
    if answer.code != 200:
        raise HubRefused(answer.code, _message(answer))
    try:
        return json.loads(answer.body)
    except ValueError as error:
        raise HubAway("What answers at the hub's address is not a JupyterHub.") from error


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise HubAway("What answers at the hub's address is not a JupyterHub.")
    return value


def _message(answer: HTTPResponse) -> str:
    try:
        body = json.loads(answer.body or b"")
    except ValueError:
        return str(answer.reason)
    return str(body.get("message") or answer.reason) if isinstance(body, dict) else str(answer.reason)


def _clock_ahead(answer: HTTPResponse, now: datetime) -> timedelta | None:
    try:
        said = parsedate_to_datetime(answer.headers.get("Date", ""))
    except (TypeError, ValueError):
        return None
    return None if said.tzinfo is None else said - now


def _retry_after(answer: HTTPResponse) -> timedelta | None:
    wished = answer.headers.get("Retry-After", "").strip()
    return timedelta(seconds=int(wished)) if wished.isascii() and wished.isdigit() and len(wished) < 8 else None


def _why(error: Exception, purpose: _Purpose) -> str:
    if isinstance(error, HTTPClientError) and "Timeout while connecting" in str(error):
        return "no connection"
    if isinstance(error, HTTPClientError) and "Timeout" in str(error):
        return f"nothing within {purpose.seconds:g} s"
    return getattr(error, "strerror", None) or str(error)


def _user(model: Mapping[str, Any]) -> HubUser:
    return HubUser(str(model["name"]), bool(model.get("admin", False)), tuple(model.get("groups") or ()))


def _servers_of(model: Mapping[str, Any]) -> Iterator[HubServer]:
    user = _user(model)
    for name, each in (model.get("servers") or {}).items():
        if each.get("stopped", False):
            continue
        state = each.get("state") or {}
        pid = state.get("pid")
        yield HubServer(
            user=user.name,
            server=str(name),
            ready=bool(each.get("ready")),
            pending=each.get("pending"),
            started=_time(each.get("started")),
            last_activity=_time(each.get("last_activity")),
            user_options=dict(each.get("user_options") or {}),
            admin=user.admin,
            groups=user.groups,
            pid=pid if isinstance(pid, int) and pid > 0 else None,
            pod=str(state.get("pod_name") or ""),
        )


def _server_in(model: Mapping[str, Any] | None, server: str) -> HubServer | None:
    return None if model is None else next((each for each in _servers_of(model) if each.server == server), None)


def _caller(model: object) -> Caller:
    fields = _mapping(model)
    return Caller(
        name=str(fields["name"]),
        kind=str(fields.get("kind", "user")),
        admin=bool(fields.get("admin", False)),
        groups=tuple(fields.get("groups") or ()),
        scopes=frozenset(fields.get("scopes") or ()),
    )


def _time(value: str | None) -> datetime | None:
    if not value:
        return None
    # Python 3.10 reads neither the Z nor fractions of other than three or six digits
    whole, _, fraction = value.removesuffix("Z").partition(".")
    digits = fraction.partition("+")[0]
    read = datetime.fromisoformat(f"{whole}.{digits:0<6.6}" if digits else whole)
    return read.replace(tzinfo=timezone.utc) if read.tzinfo is None else read.astimezone(timezone.utc)
