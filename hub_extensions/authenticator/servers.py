"""The servers of a person, as far as the end of a session concerns them: what they are, asking again, stopping.

A server is told nothing but to ask the hub again about the tokens it has seen. Where it does not run our extension, it
finds out by itself after ``server_cache_seconds``.
Not here: which servers stop, and when (``core/sign_on/session_end.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

from jupyterhub.utils import make_ssl_context
from tornado.httpclient import AsyncHTTPClient, HTTPRequest

from hub_extensions.adapters.signer import Signer
from hub_extensions.core.sign_on import ServerFact

RECHECK = "gpu/sign-on/recheck"
CONNECT_SECONDS, ANSWER_SECONDS = 1.0, 5.0
CANCEL_SECONDS = 1.0
"""So long a cancelled start has to end by itself, as in the hub's own stop."""


class UserServers:
    """Servers of all people. `app` is the running JupyterHub."""

    def __init__(self, app: Any) -> None:
        self._app = app

    def facts(self, user: Any) -> Sequence[ServerFact]:
        """The person's servers that run or wait."""
        return [
            ServerFact(spawner.name, has_lease=_has_lease(spawner), waits=spawner.pending == "spawn")
            for spawner in _active(user)
        ]

    def tokens(self, user: Any) -> Iterator[str]:
        """The servers' own tokens: they end with the server."""
        for spawner in _active(user):
            if spawner.api_token:
                yield str(spawner.api_token)

    async def ask_again(self, user: Any) -> tuple[str, ...]:
        """Tell each running server to ask the hub again; which ones have done so."""
        ready = [spawner for spawner in _active(user) if spawner.ready and spawner.server is not None]
        done = await asyncio.gather(*map(self._asks_again, ready), return_exceptions=True)
        return tuple(spawner.name for spawner, answer in zip(ready, done, strict=True) if answer is True)

    async def _asks_again(self, spawner: Any) -> bool:
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
            headers=dict(Signer(spawner.api_token).sign("POST", urlsplit(url).path).headers),
            connect_timeout=CONNECT_SECONDS,
            request_timeout=ANSWER_SECONDS,
            follow_redirects=False,
            **options,
        )
        answer = await AsyncHTTPClient().fetch(request, raise_error=False)
        return bool(answer.code == 204)

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


def _has_lease(spawner: Any) -> bool:
    """By the state that our spawners keep; another spawner's server has no lease."""
    return bool((spawner.get_state() or {}).get("gpu_lease"))
