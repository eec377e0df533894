"""HTTP requests to the GPU service and to the gate, signed with the shared secret.

The program that answers has not proved yet that it is the service. It can therefore neither redirect a request, and a
token with it, to another address, nor make the sender read an answer without an end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from tornado.httpclient import HTTPClientError, HTTPRequest, HTTPResponse

from hub_extensions.adapters.http_client import HttpClient, http_client
from hub_extensions.adapters.service.signer import ATTEMPTS, Signer, Unproved
from hub_extensions.core.signing import ANSWER_HEADER

MAX_ANSWER_BYTES = 16 * 1024 * 1024  # a form with 1,000 offers has less than 1 MiB
COMMAND_SECONDS = 10.0
_CLOSED = 599  # tornado's status if no answer came


def service_client(account: int | None = None, at_once: int = 50) -> HttpClient:
    """Create a client for the GPU service that bounds each answer and never decompresses it.

    Args:
        account: the uid that has to listen at the service's port, if that is on this machine; `None` to connect to
            any listener.
        at_once: the number of requests that run at the same time.
    """
    return http_client(
        at_once=at_once,
        max_bytes=MAX_ANSWER_BYTES,
        max_buffered=MAX_ANSWER_BYTES,
        account=account,
        decompress_response=False,
    )


async def fetch_signed(
    client: HttpClient,
    signer: Signer,
    method: str,
    url: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    **options: Any,
) -> HTTPResponse:
    """Send a signed request, and return the answer once its signature is verified.

    Args:
        body: the request's body; `None` for a request without one.
        headers: further headers; `None` for none.
        options: further arguments of ``HTTPRequest``, such as its time-outs.

    Raises:
        OSError: no answer came, or (`Unproved`) the program that answered does not know the secret.
    """
    place = urlsplit(url)
    target = f"{place.path}?{place.query}" if place.query else place.path
    for _ in range(ATTEMPTS):
        outgoing = signer.sign(method, target, body or b"")
        signed = {**(headers or {}), **outgoing.headers}
        answer = await _fetch(client, HTTPRequest(url, method, signed, body, **options))
        if outgoing.verify(answer.code, answer.body, answer.headers.get(ANSWER_HEADER)):
            return answer
    raise Unproved("answered only that the request is to be signed again")


def get_once(
    url: str,
    *,
    secret: str = "",
    headers: Mapping[str, str] | None = None,
    account: int | None = None,
    seconds: float = COMMAND_SECONDS,
) -> tuple[int, bytes]:
    """Send one GET request from a program that runs no event loop, such as a command of an administrator.

    Args:
        secret: signs the request; "" sends it unsigned, and the signature of the answer is then not verified.
        headers: further headers; `None` for none.
        account: the uid that has to listen at the port, if that is on this machine; `None` to connect to any listener.
        seconds: the time limit.

    Returns:
        The status and the body of the answer; a redirect is returned, not followed.

    Raises:
        OSError: no answer came, or not from the service.
    """

    async def get() -> HTTPResponse:
        client = service_client(account)
        limits: dict[str, Any] = {"connect_timeout": seconds, "request_timeout": seconds}
        if secret:
            return await fetch_signed(client, Signer(secret), "GET", url, headers=headers, **limits)
        return await _fetch(client, HTTPRequest(url, headers=dict(headers or {}), **limits))

    answer = asyncio.run(get())
    return answer.code, answer.body


async def _fetch(client: HttpClient, request: HTTPRequest) -> HTTPResponse:
    request.follow_redirects = False
    try:
        answer = await client.fetch(request, raise_error=False)
    except (HTTPClientError, ValueError) as problem:  # ValueError: the address cannot be used
        answer = HTTPResponse(request, _CLOSED, error=problem)
    if answer.code == _CLOSED:
        raise OSError(_reason(answer.error))
    return answer


def _reason(error: BaseException | None) -> str:
    text = str(getattr(error, "message", None) or error or "")
    if text in ("Connection closed", "Stream closed"):  # tornado does not distinguish an answer that is too long
        limit = MAX_ANSWER_BYTES // 1024**2
        return f"ended its answer too early, or answered more than {limit} MiB: it may be another program"
    return text or "no answer"
