"""Apply the end of a session to the user's servers: find their tokens, have them check their users again, stop them.

A server that is instructed to check asks the hub again about the tokens that it has seen, and closes the pages of users
who are signed out. A server without our extension finds out by itself after ``token_cache_seconds``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
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
from hub_extensions.core.messages import DrainState, SignedOut, Stopped, WithoutSession, WithoutSessions
from hub_extensions.core.sign_on import ServerFact
from hub_extensions.core.sign_on.server_key import server_key
from hub_extensions.core.sign_on.session_end import TokenFact, server_scopes, server_token
from hub_extensions.core.stops import Cause

RECHECK = "gpu/sign-on/recheck"
CONNECT_SECONDS, ANSWER_SECONDS = 1.0, 5.0
CANCEL_SECONDS = 1.0
"""Time that a cancelled spawn has to end by itself, as in the hub's own stop."""
StopReport = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class AskedServers:
    """Result of instructing servers to check their users with the hub again, by names of servers.

    Servers in neither list do not run our extension.

    Attributes:
        done: servers that have checked their users.
        silent: servers that did not answer, and may be instructed again.
    """

    done: tuple[str, ...]
    silent: tuple[str, ...]


class UserServers:
    """Access to the running servers of all users, for the end of sessions.

    Args:
        app: the running JupyterHub.
    """

    def __init__(self, app: Any) -> None:
        self._app = app
        self._client: HttpClient | None = None

    def facts(self, user: Any) -> Sequence[ServerFact]:
        """Return for each of the user's active servers whether it has a lease and whether it is starting.

        A lease is the right to a share of a GPU.
        """
        return [
            ServerFact(spawner.name, has_lease=bool(_lease(spawner)), waits=spawner.pending == "spawn")
            for spawner in _active(user)
        ]

    def own_tokens(self, user: Any) -> set[int]:
        """Return the ids of the servers' own tokens, which end with the servers and not with a session. After its
        restart the hub no longer knows which tokens these are, so this method searches for them.
        """
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
        """Return whether the hub is still finding out, after its restart, which of the user's servers run."""
        return any(spawner.pending == "check" for spawner in _active(user))

    async def ask_again(self, user: Any, only: Collection[str] | None = None) -> AskedServers:
        """Instruct running servers to check their users with the hub again, and return which of them answered.

        Args:
            user: the hub's user.
            only: names of the servers; `None` for all of the user's servers.
        """
        ready = [each for each in _active(user) if each.ready and each.server is not None]
        wanted = [each for each in ready if only is None or each.name in only]
        answers = await asyncio.gather(*map(self._asks_again, wanted), return_exceptions=True)
        done, silent = [], []
        for spawner, code in zip(wanted, answers, strict=True):
            if code == 204:
                done.append(spawner.name)
            elif not isinstance(code, int) or code >= 500:  # other answers come from servers without our extension
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
            # not the hub's shared client: it has ten connections, and each spawn waits there for its server
            self._client = http_client(at_once=32)
        answer = await self._client.fetch(request, raise_error=False)
        return answer.code

    def _secret_of(self, spawner: Any) -> str:
        """Return the secret with which requests to a server are signed.

        The secret is the server's own token. The hub forgets this token when it restarts. From then on the secret is
        the server's key, which the hub can compute again.
        """
        own: str = spawner.api_token
        return own or server_key(self._app.cookie_secret, spawner.user.id, spawner.name)

    async def hand_over(self, spawner: Any, left: timedelta, cause: str) -> DrainState | None:
        """Have the GPU service stop a server. The service manages the server's lease (the right to a share of a GPU).

        Args:
            left: time until the server has to stop.
            cause: why the session ended.

        Returns:
            When the service begins to stop the server and how long that may take, or `None` if the hub has to stop the
            server.

        Raises:
            ServiceAway: the service does not answer.
        """
        lease = _lease(spawner)
        if not lease or not getattr(spawner, "gpu_service_url", ""):
            return None
        service = gpu_service(spawner.gpu_service_url, spawner.gpu_hub_secret, spawner.gpu_service_uid)
        message = SignedOut(spawner.user.name, spawner.name, lease, max(0.0, left.total_seconds()), cause)
        try:
            state = await service.signed_out(message)
        except ServiceRefused:  # an older service, which lacks the route
            return None
        return None if state.left_seconds is None else state

    def stop_report(self, spawner: Any) -> StopReport | None:
        """Return a function that reports to the GPU service that the hub stopped this server because a session ended.

        Call this before the stop, because the spawner forgets its lease when it stops. The returned function raises
        ServiceAway if the service does not answer. The result is `None` if the server holds no lease, or no service is
        configured.
        """
        if not _lease(spawner) or not getattr(spawner, "gpu_service_url", ""):
            return None
        service = gpu_service(spawner.gpu_service_url, spawner.gpu_hub_secret, spawner.gpu_service_uid)
        message = Stopped(spawner.user.name, spawner.name, reason=Cause.SIGNED_OUT.value, asked=True)

        async def report() -> None:
            with suppress(ServiceRefused):
                await service.stopped(message)

        return report

    async def report_without_session(self, people: Mapping[str, datetime], drain_after: timedelta | None) -> bool:
        """Report to the GPU service the users who have servers but no session that the provider still confirms.

        It is then unknown whether their accounts still exist, and the service may stop their idle servers.

        Args:
            people: user name -> since when that is unknown.
            drain_after: time after which their servers stop once they are idle; `None` if they do not stop for this
                reason.

        Returns:
            False if no spawner is configured with a service.

        Raises:
            ServiceAway: the service does not answer.
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
        service = gpu_service(spawner.gpu_service_url, spawner.gpu_hub_secret, spawner.gpu_service_uid)
        seconds = None if drain_after is None else drain_after.total_seconds()
        rows = tuple(WithoutSession(name, since) for name, since in sorted(people.items()))
        try:
            await service.without_session(WithoutSessions(rows, seconds))
        except ServiceRefused:  # an older service, which lacks the route
            return True
        return True

    async def stop(self, user: Any, name: str) -> None:
        """Stop a user's server or cancel its spawn, as the hub's API does."""
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
    """Return the scopes that the hub gives a server at its start.

    () if the admin has configured a function that computes the scopes.

    Args:
        db: the session of the hub's database, in which the default scopes are.
        spawner: the server's spawner.
    """
    wanted = spawner.server_token_scopes
    if callable(wanted):
        return ()
    return wanted or orm.Role.find(db, "server").scopes  # type: ignore[no-any-return]


def _lease(spawner: Any) -> str:
    """Return the id of the lease that a spawner holds; "" without a lease, and for spawners that are not ours."""
    return str((spawner.get_state() or {}).get("gpu_lease") or "")
