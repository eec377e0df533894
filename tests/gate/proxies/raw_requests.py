"""Requests written byte by byte, as no library would send them, and what came back."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hub_extensions.adapters.apps.raw_http import HttpTarget, send_raw
from tests.patience import patient

NAVIGATION = ("Sec-Fetch-Mode: navigate", "Accept: text/html")
SOCKET = (
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)


@dataclass(frozen=True)
class Answer:
    """`status` 0: the connection ended without one. `body`: of a WebSocket, its first message."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def has(self, name: str) -> list[str]:
        """What the app had under this name."""
        return [value for each, value in self.json["headers"] if each.lower() == name.lower()]


def send(
    port: int, data: bytes, seconds: float = 20, address: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> Answer:
    """Send bytes on a new connection, as the audit does, and read one answer, if one comes."""
    place = HttpTarget(address, port, tls is not None, address)
    try:
        answer = asyncio.run(
            send_raw(place, data, patient(seconds), head=data.startswith(b"HEAD "), first_message=True, tls=tls)
        )
    except ConnectionRefusedError:
        raise
    except OSError:
        return Answer(0, {}, b"")
    return Answer(answer.status, dict(answer.headers), answer.body)


def request(
    port: int,
    target: str,
    headers: Sequence[str] = (),
    method: str = "GET",
    body: bytes = b"",
    host: str = "",
    address: str = "127.0.0.1",
    tls: ssl.SSLContext | None = None,
) -> Answer:
    """A request with these header lines, each as it is."""
    length = [f"Content-Length: {len(body)}"] if body or method == "POST" else []
    close = [] if any(each.startswith("Upgrade:") for each in headers) else ["Connection: close"]
    head = [f"{method} {target} HTTP/1.1", f"Host: {host or f'{address}:{port}'}", *headers, *length, *close, "", ""]
    return send(port, "\r\n".join(head).encode("latin-1") + body, address=address, tls=tls)


def open_socket(port: int, target: str, headers: Sequence[str] = ()) -> Answer:
    """A WebSocket of a page of the same host: the answer, and the first message."""
    return request(port, target, (*SOCKET, f"Origin: http://127.0.0.1:{port}", *headers))
