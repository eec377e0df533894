"""The servers of a person, as far as the end of a session concerns them: what they are, asking again, stopping.

A server is told nothing but to ask the hub again about the tokens it has seen. Where it does not run our extension, it
finds out by itself after ``server_cache_seconds``.
Not here: which servers stop, and when (``core/sign_on/session_end.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from jupyterhub import orm
from jupyterhub.utils import make_ssl_context
from tornado.httpclient import HTTPRequest

from hub_extensions.adapters.http_client import HttpClient, http_client
from hub_extensions.adapters.service.gpu_service import ServiceRefused, gpu_service
from hub_extensions.adapters.service.signer import Signer
from hub_extensions.core.messages import DrainState, SignedOut, WithoutSession, WithoutSessions
from hub_extensions.core.sign_on import ServerFact
from hub_extensions.core.sign_on.server_key import server_key
from hub_extensions.core.sign_on.session_end import TokenFact, server_scopes, server_token

RECHECK = "gpu/sign-on/recheck"
CONNECT_SECONDS, ANSWER_SECONDS = 1.0, 5.0
CANCEL_SECONDS = 1.0
"""So long a cancelled start has to end by itself, as in the hub's own stop."""


@dataclass(frozen=True, slots=True)
class AskedServers:
    """What became of telling servers to ask the hub again, by their names.

    Attributes:
        done: they have asked it. silent: they gave no answer, and may do so later; others do not run our extension.
    """

    done: tuple[str, ...]
    silent: tuple[str, ...]


class UserServers:
    """Servers of all people. `app` is the running JupyterHub."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._client: HttpClient | None = None

    def facts(self, user: Any) -> Sequence[ServerFact]:
        """The person's servers that run or wait."""
        return [
            ServerFact(spawner.name, has_lease=bool(_lease(spawner)), waits=spawner.pending == "spawn")
            for spawner in _active(user)
        ]

    def own_tokens(self, user: Any) -> set[int]:
        """The numbers of the servers' own tokens: they end with the server. A hub that restarted has to find them."""
        found = set()
        facts: list[TokenFact] | None = None
        for spawner in _active(user):
            token = orm.APIToken.find(self._app.db, spawner.api_token) if spawner.api_token else None
            if token is not None:
                found.add(token.id)
            elif spawner.server is not None:
                facts = _token_facts(user) if facts is None else facts
                allowed = server_scopes(_wanted_scopes(self._app.db, spawner), user.name, spawner.name)
                own = server_token(facts, spawner.server.base_url, spawner.orm_spawner.started, allowed)
                found |= set() if own is None else {own.id}
        return found

    def are_checked(self, user: Any) -> bool:
        """A hub that restarted does not know yet whether all of them still run."""
        return any(spawner.pending == "check" for spawner in _active(user))

    async def ask_again(self, user: Any, only: Collection[str] | None = None) -> AskedServers:
        """Tell each running server to ask the hub again. `only`: those of these names; None: all."""
        ready = [each for each in _active(user) if each.ready and each.server is not None]
        wanted = [each for each in ready if only is None or each.name in only]
        answers = await asyncio.gather(*map(self._asks_again, wanted), return_exceptions=True)
        done, silent = [], []
        for spawner, code in zip(wanted, answers, strict=True):
            if code == 204:
                done.append(spawner.name)
            elif not isinstance(code, int) or code >= 500:  # else it says that it knows no such thing
                silent.append(spawner.name)
        return AskedServers(tuple(done), tuple(silent))

    async def _asks_again(self, spawner: Any) -> int:
        url = f"{spawner.server.url.rstrip('/')}/{RECHECK}"
        options: dict[str, Any] = {}
        if self._app.internal_ssl:
            authority = self._app.internal_ssl_ca
            options["ssl_options"] = make_ssl_context(
                self._app.internal_ssl_key, self._app.internal_ssl_cert, cafile=authority
            )
        request = HTTPRequest(
            url,
            method="POST",
            body=b"",
            headers=dict(Signer(self._secret_of(spawner)).sign("POST", urlsplit(url).path).headers),
            connect_timeout=CONNECT_SECONDS,
            request_timeout=ANSWER_SECONDS,
            follow_redirects=False,
            **options,
        )
        if self._client is None:
            # one of our own: the hub's shared one has ten places, and each start waits there for its server
            self._client = http_client(at_once=32)
        answer = await self._client.fetch(request, raise_error=False)
        return answer.code

    def _secret_of(self, spawner: Any) -> str:
        """The server's own token, or what a hub that restarted has instead."""
        own: str = spawner.api_token
        return own or server_key(self._app.cookie_secret, spawner.user.id, spawner.name)

    async def hand_over(self, spawner: Any, left: timedelta, cause: str) -> DrainState | None:
        """Leave a server's stop to the GPU service, which has its lease; None: it is the hub's.

        Raises:
            ServiceAway: the service does not answer.
        """
        lease = _lease(spawner)
        if not lease or not getattr(spawner, "gpu_service_url", ""):
            return None
        service = gpu_service(spawner.gpu_service_url, spawner.gpu_hub_secret, spawner.gpu_service_account)
        message = SignedOut(spawner.user.name, spawner.name, lease, max(0.0, left.total_seconds()), cause)
        try:
            state = await service.signed_out(message)
        except ServiceRefused:  # a service that has no such route
            return None
        return None if state.left_seconds is None else state

    async def report_without_session(self, people: Mapping[str, datetime], drain_after: timedelta | None) -> bool:
        """Tell the GPU service whose servers have nobody signed in; False: no server knows a service.

        Args:
            people: names, and since when. drain_after: after that their idle servers stop; None: never for that.

        Raises:
            ServiceAway: it does not answer.
        """
        spawner = next(
            (
                spawner
                for user in list(self._app.users.values())
                for spawner in _active(user)
                if getattr(spawner, "gpu_service_url", "")
            ),
            None,
        )
        if spawner is None:
            return False
        service = gpu_service(spawner.gpu_service_url, spawner.gpu_hub_secret, spawner.gpu_service_account)
        seconds = None if drain_after is None else drain_after.total_seconds()
        rows = tuple(WithoutSession(name, since) for name, since in sorted(people.items()))
        try:
            await service.without_session(WithoutSessions(rows, seconds))
        except ServiceRefused:  # a service that has no such route
            return True
        return True

    async def stop(self, user: Any, name: str) -> None:
        """Stop a server, or end its place in line, as the hub does by its API."""
        spawner = user.spawners[name]
        if spawner.pending == "stop":
            return
        if spawner.pending:
            if spawner._spawn_future is not None:
                spawner._spawn_future.cancel()
            await asyncio.sleep(CANCEL_SECONDS)
        if not spawner.active or spawner.pending == "stop":
            return
        spawner._stop_pending = True
        try:
            await self._app.proxy.delete_user(user, name)
            await user.stop(name)
        finally:
            spawner._stop_pending = False


def _active(user: Any) -> Sequence[Any]:
    return [spawner for spawner in list(user.spawners.values()) if spawner.active] if user is not None else []


def _token_facts(user: Any) -> list[TokenFact]:
    return [
        TokenFact(each.id, each.note or "", each.session_id, frozenset(each.scopes), each.created)
        for each in user.orm_user.api_tokens
    ]


def _wanted_scopes(db: Any, spawner: Any) -> Sequence[str]:
    """As the hub asks at a start; of a function of the admin's own nothing is known here."""
    wanted = spawner.server_token_scopes
    if callable(wanted):
        return ()
    return wanted or orm.Role.find(db, "server").scopes  # type: ignore[no-any-return]


def _lease(spawner: Any) -> str:
    """By the state that our spawners keep; another spawner's server has no lease."""
    return str((spawner.get_state() or {}).get("gpu_lease") or "")
