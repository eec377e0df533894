"""Send one HTTP request exactly as it is given, also one that HTTP libraries refuse to send. Answers are bounded.

The gate uses this module to find out whether an app answers. The audit and the tests of the proxies use it to send
malformed headers and paths.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from urllib.parse import urlsplit

from hub_extensions.adapters.linux.timeouts import with_timeout

HEAD_BYTES = 64 * 1024
BODY_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """An answer of a server to a raw request.

    Attributes:
        status: HTTP status.
        headers: (lower-case name, value), in the order received.
        body: at most the first 256 KiB of the body.
    """

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    def header(self, name: str) -> str:
        """Return the first value of a header of this answer, or "" if the answer lacks the header."""
        return next((value for known, value in self.headers if known == name.lower()), "")

    def all(self, name: str) -> tuple[str, ...]:
        """Return all values of a header of this answer, in the order received."""
        return tuple(value for known, value in self.headers if known == name.lower())


@dataclass(frozen=True, slots=True)
class HttpTarget:
    """The destination of a request.

    Attributes:
        address, port: the address to connect to.
        secure: connect with TLS.
        host: the value of the Host header.
    """

    address: str
    port: int
    secure: bool
    host: str

    @classmethod
    def of(cls, url: str, connect: str = "") -> HttpTarget:
        """Return the target of a URL.

        Args:
            connect: ``address:port`` to connect to; "" for the address that the URL's host resolves to.
        """
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        address, port = parts.hostname or "", parts.port or (443 if secure else 80)
        if connect:
            address, _, number = connect.rpartition(":")
            port = int(number)
        return cls(address, port, secure, parts.netloc)


async def request_raw(
    place: HttpTarget,
    method: str,
    target: str,
    headers: Sequence[tuple[bytes, bytes]],
    seconds: float,
    head: bool = False,
) -> RawAnswer:
    """Send a request without a body, and return the answer.

    Args:
        place: where the request is sent.
        method: HTTP method.
        target: path and query of the request.
        headers: (name, value) of each header, which are sent exactly as given.
        seconds: time limit for the whole exchange.
        head: do not read a body, because the request is a HEAD request.

    Raises:
        OSError: the answer does not come in time, or is not HTTP.
    """
    sent = b"".join(b"%s:%s\r\n" % (name, value) for name, value in headers)
    request = b"%s %s HTTP/1.1\r\n%s\r\n" % (method.encode(), target.encode("utf-8", "surrogateescape"), sent)
    return await send_raw(place, request, seconds, head=head)


async def send_raw(
    place: HttpTarget,
    request: bytes,
    seconds: float,
    *,
    head: bool = False,
    first_message: bool = False,
    tls: ssl.SSLContext | None = None,
) -> RawAnswer:
    """Send bytes on a new connection and read one answer.

    Args:
        place: where the request is sent.
        request: the complete request, as it goes over the connection.
        seconds: time limit for the whole exchange.
        head: do not read a body, because the request is a HEAD request.
        first_message: if the answer opens a WebSocket, read its first message as the body.
        tls: how to verify the certificate; `None` does not verify it, because browsers and proxies do that.

    Raises:
        OSError: the answer does not come in time, or is not HTTP.
    """
    try:
        return await with_timeout(seconds, _exchange(place, request, head, first_message, tls))
    except asyncio.TimeoutError:
        raise TimeoutError(f"no answer in {seconds:g} s") from None
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError, ssl.SSLError) as problem:
        raise OSError(f"{type(problem).__name__}: no answer in HTTP") from problem


async def _exchange(
    place: HttpTarget, request: bytes, head: bool, first_message: bool, tls: ssl.SSLContext | None
) -> RawAnswer:
    reader, writer = await asyncio.open_connection(
        place.address, place.port, ssl=(tls or _any_certificate()) if place.secure else None, limit=HEAD_BYTES
    )
    try:
        writer.write(request)
        await writer.drain()
        answer = _head(await reader.readuntil(b"\r\n\r\n"))
        while answer.status == 100:  # the body was sent already; the answer follows
            answer = _head(await reader.readuntil(b"\r\n\r\n"))
        if answer.status == 101:
            return replace(answer, body=await _first_message(reader)) if first_message else answer
        return answer if head else replace(answer, body=await _body(reader, answer))
    finally:
        writer.close()


async def certificate_fault(place: HttpTarget, seconds: float) -> tuple[int, str]:
    """Verify a server's certificate with this machine's authorities.

    Args:
        place: the server.
        seconds: time limit.

    Returns:
        OpenSSL's error code and message; 0 and "" if the certificate is valid.

    Raises:
        OSError: the answer does not come in time, or is not TLS.
    """
    name = urlsplit(f"//{place.host}").hostname
    try:
        _, writer = await with_timeout(
            seconds,
            asyncio.open_connection(place.address, place.port, ssl=ssl.create_default_context(), server_hostname=name),
        )
    except asyncio.TimeoutError:
        raise TimeoutError(f"no answer in {seconds:g} s") from None
    except ssl.SSLCertVerificationError as problem:
        return problem.verify_code, problem.verify_message
    writer.close()
    return 0, ""


def _head(read: bytes) -> RawAnswer:
    first, *rest = read.decode("latin-1").split("\r\n")
    version, _, status = first.partition(" ")
    if not version.startswith("HTTP/1."):
        raise ValueError("not HTTP")
    pairs = (each.partition(":") for each in rest if each)
    return RawAnswer(int(status[:3]), tuple((name.strip().lower(), value.strip()) for name, _, value in pairs))


async def _body(reader: asyncio.StreamReader, answer: RawAnswer) -> bytes:
    """Read the body of an answer up to the limit. Chunks of a chunked body are joined."""
    if answer.status in (204, 304):
        return b""
    if answer.header("transfer-encoding").lower() == "chunked":
        found = b""
        while len(found) < BODY_BYTES and (size := int((await reader.readline()).split(b";")[0], 16)):
            found += (await reader.readexactly(min(size, BODY_BYTES)))[:BODY_BYTES]
            await reader.readline()
        return found[:BODY_BYTES]
    length = answer.header("content-length")
    if length:
        return await reader.readexactly(min(int(length), BODY_BYTES))
    found = b""
    while len(found) < BODY_BYTES and (part := await reader.read(HEAD_BYTES)):
        found += part
    return found[:BODY_BYTES]


async def _first_message(reader: asyncio.StreamReader) -> bytes:
    """Return the payload of the first WebSocket frame, which a server sends unmasked (RFC 6455, section 5.2)."""
    length = (await reader.readexactly(2))[1] & 127
    if length >= 126:
        length = int.from_bytes(await reader.readexactly(2 if length == 126 else 8), "big")
    return await reader.readexactly(min(length, BODY_BYTES))


@lru_cache(maxsize=1)
def _any_certificate() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # certificates are not verified, so no authorities are loaded
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
