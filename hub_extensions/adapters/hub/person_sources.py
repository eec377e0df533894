"""Fetches one user's data from the hub and the GPU service with the user's own token, within a time limit.

If a source is late, refuses, or answers in an unknown format, its part of the result is `None`, which means not known.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from tornado.httpclient import HTTPClientError, HTTPRequest

from hub_extensions.adapters.http_client import http_client
from hub_extensions.adapters.linux.timeouts import with_timeout
from hub_extensions.core.messages import FormState, ServerState, TicketInfo
from hub_extensions.core.sign_on.portal import RunningServer, Sources

SOURCE_SECONDS = 1.5
ANSWER_BYTES = 4 * 1024 * 1024
T = TypeVar("T")
_FORM = TypeAdapter(FormState)
_SERVERS = TypeAdapter(tuple[ServerState, ...])
_TICKETS = TypeAdapter(tuple[TicketInfo, ...])


class PersonSources:
    """Fetches the data of one user at a time and keeps nothing. The gate shows them on its front page.

    Args:
        hub_api_url: ends in ``/hub/api``.
        gpu_service_url: ends in the service's prefix; "" without a GPU service.
        seconds: time limit of a fetch.
    """

    def __init__(self, hub_api_url: str, gpu_service_url: str, seconds: float = SOURCE_SECONDS) -> None:
        self._hub = hub_api_url.rstrip("/")
        self._gpu = gpu_service_url.rstrip("/")
        self._seconds = seconds
        self._client = http_client(
            at_once=64,
            max_bytes=ANSWER_BYTES,
            max_buffered=ANSWER_BYTES,
            decompress_response=False,
            follow_redirects=False,
        )

    async def of(self, token: str) -> Sources:
        """Fetch the data of the user of this token from all sources at the same time, never longer than the time limit.

        Args:
            token: the user's token at the hub.
        """
        if not self._gpu:
            return Sources(False, _hub_servers(await self._body(f"{self._hub}/user", token)))
        user, servers, form, tickets = await asyncio.gather(
            self._body(f"{self._hub}/user", token),
            *(self._body(f"{self._gpu}/api/{name}", token) for name in ("servers", "offers", "tickets")),
        )
        return Sources(True, _hub_servers(user), _read(_SERVERS, servers), _read(_FORM, form), _read(_TICKETS, tickets))

    async def _body(self, url: str, token: str) -> bytes | None:
        request = HTTPRequest(url, headers={"Authorization": f"Bearer {token}"}, request_timeout=self._seconds)
        try:
            answer = await with_timeout(self._seconds, self._client.fetch(request, raise_error=False))
        except (OSError, HTTPClientError, asyncio.TimeoutError):
            return None
        return answer.body if answer.code == 200 else None


def _read(kind: TypeAdapter[T], body: bytes | None) -> T | None:
    try:
        return None if body is None else kind.validate_json(body)
    except ValidationError:
        return None


def _hub_servers(body: bytes | None) -> tuple[RunningServer, ...] | None:
    """Return the servers that run or start; `None` if the hub does not list them, as for a token without
    ``read:servers!user``.

    Args:
        body: the hub's answer; `None` if it did not answer in time or refused.
    """
    model = _read(TypeAdapter(dict[str, Any]), body)
    servers = model.get("servers") if model is not None else None
    if not isinstance(servers, dict):
        return None
    running = (each for each in servers.items() if isinstance(each[1], dict) and not each[1].get("stopped"))
    return tuple(RunningServer(str(name), bool(each.get("ready"))) for name, each in running)
