"""Requests written byte by byte, as no library would send them, and what came back."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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
    """Send bytes on a connection of their own, and read one answer, if one comes."""
    plain = socket.create_connection((address, port), timeout=patient(seconds))
    with (
        tls.wrap_socket(plain, server_hostname=address) if tls else plain as connection,
        connection.makefile("rb") as file,
    ):
        connection.sendall(data)
        try:
            return _answer(file, head_only=data.startswith(b"HEAD "))
        except (ConnectionError, TimeoutError, ValueError, IndexError):
            return Answer(0, {}, b"")


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


def _answer(file: Any, *, head_only: bool) -> Answer:
    first = file.readline()
    if not first:
        return Answer(0, {}, b"")
    status = int(first.split()[1])
    headers: dict[str, str] = {}
    while (row := file.readline().strip()) != b"":
        name, _, value = row.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    if status == 100:  # go on with the body: it was sent already
        return _answer(file, head_only=head_only)
    if status == 101:
        return Answer(status, headers, _message(file))
    if head_only or status in (204, 304):
        return Answer(status, headers, b"")
    if headers.get("transfer-encoding") == "chunked":
        return Answer(status, headers, _chunks(file))
    length = headers.get("content-length")
    return Answer(status, headers, file.read(int(length)) if length else file.read())


def _chunks(file: Any) -> bytes:
    body = b""
    while size := int(file.readline().split(b";")[0], 16):
        body += file.read(size)
        file.readline()
    return body


def _message(file: Any) -> bytes:
    length = file.read(2)[1] & 127
    if length == 126:
        length = int.from_bytes(file.read(2), "big")
    elif length == 127:
        length = int.from_bytes(file.read(8), "big")
    return bytes(file.read(length))
