"""The stream of changes of tickets (users' places in the line): one endless answer of the GPU service with signed
lines.

The request is HTTP/1.0, so that lines arrive without chunks. Tornado's client is not used, because it cannot close an
endless answer.
"""

from __future__ import annotations

import asyncio
from http.client import HTTPMessage, parse_headers
from io import BytesIO
from urllib.parse import urlsplit

from hub_extensions.adapters.linux.listeners import ListenerCheck
from hub_extensions.adapters.linux.timeouts import with_timeout
from hub_extensions.adapters.service.signer import ATTEMPTS, OutgoingRequest, Signer, Unproved
from hub_extensions.core.signing import ANSWER_HEADER

CONNECT_SECONDS = 5.0
HEARTBEAT_SECONDS = 15.0
"""The service sends an empty line every 5 s; a longer silence means that the connection is dead."""
LINE_BYTES = 1024 * 1024
MAX_HEADERS = 100
ANSWER_BYTES = 64 * 1024  # limit for the body of an answer that is not the stream


class ChangeStream:
    """An open stream of changes. The signature of the answer's status and headers was verified before."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, outgoing: OutgoingRequest) -> None:
        self._reader, self._writer, self._letter = reader, writer, outgoing

    async def line(self) -> bytes | None:
        """Return the next line without its line end; `None` if the service closed the stream.

        Raises:
            OSError, TimeoutError, ValueError: the connection is lost, or the line is not valid.
        """
        line = await with_timeout(HEARTBEAT_SECONDS, self._reader.readline())
        return self._letter.line(line[:-1]) if line.endswith(b"\n") else None

    def close(self) -> None:
        self._writer.close()


async def open_stream(url: str, path: str, signer: Signer, account: int | None) -> ChangeStream:
    """Open the stream of changes.

    Args:
        url: address of the service.
        path: path of the stream below that address.
        signer: signs the request and verifies the answer.
        account: the uid that has to listen at the address, if that is on this machine; `None` to accept any.

    Raises:
        OSError, EOFError, TimeoutError, ValueError: the service does not answer, or the answer is not valid.
    """
    for _ in range(ATTEMPTS):
        stream = await _opened(url, path, signer, account)
        if stream is not None:
            return stream
    raise Unproved("answered only that the request is to be signed again")


async def _opened(url: str, path: str, signer: Signer, account: int | None) -> ChangeStream | None:
    place = urlsplit(url)
    tls = place.scheme == "https"
    port = place.port or (443 if tls else 80)
    proof = ListenerCheck(port, account)
    reader, writer = await with_timeout(
        CONNECT_SECONDS, asyncio.open_connection(place.hostname, port, ssl=tls or None, limit=LINE_BYTES), parts=10
    )
    stands = False
    try:
        proof.check(writer.get_extra_info("socket"))
        target = f"{place.path}/{path}"
        outgoing = signer.sign("GET", target)
        lines = [f"GET {target} HTTP/1.0", f"Host: {place.netloc}", "Accept: application/x-ndjson"]
        lines += [f"{name}: {value}" for name, value in outgoing.headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        await writer.drain()
        status, headers = await _head(reader)
        body = b"" if status == 200 else await with_timeout(HEARTBEAT_SECONDS, _rest(reader), parts=10)
        stands = outgoing.verify(status, body, headers.get(ANSWER_HEADER))
        if stands and status != 200:
            raise ValueError(f"answered {status} to {path}")
        return ChangeStream(reader, writer, outgoing) if stands else None
    finally:
        if not stands or status != 200:
            writer.close()


async def _rest(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while len(body) < ANSWER_BYTES and (part := await reader.read(ANSWER_BYTES)):
        body += part
    return body


async def _head(reader: asyncio.StreamReader) -> tuple[int, HTTPMessage]:
    """Read the status and the headers of an answer. Raises ValueError if it is not HTTP."""
    words = (await with_timeout(HEARTBEAT_SECONDS, reader.readline())).split(b" ", 2)
    if len(words) < 2 or not words[1].isdigit():
        raise ValueError(f"answered {b' '.join(words[:2]).decode(errors='replace')!r}")
    lines = []
    while (line := await with_timeout(HEARTBEAT_SECONDS, reader.readline())).strip():
        lines.append(line)
        if len(lines) > MAX_HEADERS:
            raise ValueError("answered with too many headers")
    return int(words[1]), parse_headers(BytesIO(b"".join(lines) + b"\r\n"))
