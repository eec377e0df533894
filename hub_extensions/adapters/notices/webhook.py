"""Sends a notice to a webhook: one POST, of whose answer only the status counts.

A redirect is not followed, because the token is for this address only. A server whose answer does not come or does
not end is probably a page or a file and not a receiver; its notice counts as not delivered.
"""

from __future__ import annotations

import asyncio
import ssl

from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.httputil import parse_response_start_line

from hub_extensions.adapters.http_client import HttpClient, http_client
from hub_extensions.adapters.notices import NotSent

SECONDS = 10.0
ANSWER_BYTES = 64 * 1024  # a receiver of notices answers with less


class Webhook:
    def __init__(self, url: str, token: str = "", *, ca_file: str = "", seconds: float = SECONDS) -> None:
        """Create a sender of notices to one webhook.

        Args:
            url: address of the webhook.
            token: sent as a bearer token; "" for none.
            ca_file: file of accepted authorities; "" for the system's.
            seconds: time limit of a delivery.
        """
        self._url = url
        self._token = token
        self._ca_file = ca_file
        self._seconds = seconds
        self._client: HttpClient | None = None

    async def send(self, id: str, body: bytes) -> None:
        """Deliver the notice. Raises NotSent.

        Args:
            id: identifies the notice, so that the receiver can recognize a repetition.
            body: the notice as JSON.
        """
        status = 0

        def read_header(line: str) -> None:
            nonlocal status
            if line.startswith("HTTP/"):
                status = parse_response_start_line(line.rstrip()).code

        request = HTTPRequest(
            self._url,
            method="POST",
            headers={
                "Content-Type": "application/json",
                "Idempotency-Key": id,
                **({"Authorization": f"Bearer {self._token}"} if self._token else {}),
            },
            body=body,
            header_callback=read_header,
            connect_timeout=self._seconds,
            request_timeout=self._seconds,
            follow_redirects=False,
            decompress_response=False,
        )
        try:
            if self._ca_file:
                request.ssl_options = ssl.create_default_context(cafile=self._ca_file)
            await self._open().fetch(request, raise_error=False)
        except (HTTPClientError, OSError, ValueError, asyncio.TimeoutError) as error:
            if not status:
                raise NotSent(f"The webhook does not answer ({self._why(error)}).") from error
            if 200 <= status < 300:
                most = f"its answer does not end, or is longer than {ANSWER_BYTES // 1024} KiB"
                raise NotSent(f"The webhook has not taken it: {most}. Is it the right address?") from error
        if 300 <= status < 400:
            raise NotSent(f"The webhook redirects ({status}), which is not followed: set the address it leads to.")
        if not 200 <= status < 300:
            raise NotSent(f"The webhook answers with an error ({status}).")

    def close(self) -> None:
        """Close the connections to the webhook. Can be called twice."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _open(self) -> HttpClient:
        if self._client is None:
            self._client = http_client(at_once=16, max_bytes=ANSWER_BYTES)
        return self._client

    def _why(self, error: Exception) -> str:
        if isinstance(error, asyncio.TimeoutError) or "Timeout" in str(error):
            return f"nothing within {self._seconds:g} s"
        return getattr(error, "strerror", None) or str(error) or type(error).__name__
