"""One HTTP request, byte by byte as it is given, also what libraries refuse to send. Bounded; it follows nothing.

For asking whether an app answers, and for an audit that tries spellings of headers and paths that no library lets by.
Not here: what an answer means.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlsplit

from hub_extensions.adapters.linux.timeouts import with_timeout

HEAD_BYTES = 64 * 1024
BODY_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class RawAnswer:
    """What came back. `headers`: names in lower case, in their order. `body`: at most its first 256 KiB."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    def header(self, name: str) -> str:
        """The first of that name; "" without one."""
        return next((value for known, value in self.headers if known == name.lower()), "")

    def all(self, name: str) -> tuple[str, ...]:
        """Each of that name."""
        return tuple(value for known, value in self.headers if known == name.lower())


@dataclass(frozen=True, slots=True)
class HttpPlace:
    """Where a request goes: address, port, TLS or not, and what the Host header says."""

    address: str
    port: int
    secure: bool
    host: str

    @classmethod
    def of(cls, url: str, connect: str = "") -> HttpPlace:
        """Of a URL. `connect`: ``address:port`` to go to in place of the one that the name leads to."""
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        address, port = parts.hostname or "", parts.port or (443 if secure else 80)
        if connect:
            address, _, number = connect.rpartition(":")
            port = int(number)
        return cls(address, port, secure, parts.netloc)


async def ask_raw(
    place: HttpPlace,
    method: str,
    target: str,
    headers: Sequence[tuple[bytes, bytes]],
    seconds: float,
    head: bool = False,
) -> RawAnswer:
    """The answer. `head`: its body is not read. Raises OSError: nobody answers in time, or not in HTTP.

    A certificate is not judged: whose an address is, is for browsers and proxies to judge.
    """
    try:
        return await with_timeout(seconds, _ask(place, method, target, headers, head))
    except asyncio.TimeoutError:
        raise TimeoutError(f"no answer in {seconds:g} s") from None
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError, ssl.SSLError) as problem:
        raise OSError(f"{type(problem).__name__}: no answer in HTTP") from problem


async def _ask(
    place: HttpPlace, method: str, target: str, headers: Sequence[tuple[bytes, bytes]], head: bool
) -> RawAnswer:
    reader, writer = await asyncio.open_connection(
        place.address, place.port, ssl=_any_certificate() if place.secure else None, limit=HEAD_BYTES
    )
    try:
        sent = b"".join(b"%s:%s\r\n" % (name, value) for name, value in headers)
        writer.write(b"%s %s HTTP/1.1\r\n%s\r\n" % (method.encode(), target.encode("utf-8", "surrogateescape"), sent))
        await writer.drain()
        answer = _head(await reader.readuntil(b"\r\n\r\n"))
        body = b"" if head or answer.status == 101 else await _body(reader, answer)
        return RawAnswer(answer.status, answer.headers, body)
    finally:
        writer.close()


async def certificate_fault(place: HttpPlace, seconds: float) -> tuple[int, str]:
    """OpenSSL's number and words for what is wrong with the certificate by this machine's authorities; 0: nothing.

    Raises OSError: nobody answers in time, or not in TLS.
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
    """As much as is sent, up to the bound: chunks are put together, so that no text is cut."""
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


@lru_cache(maxsize=1)
def _any_certificate() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # no authorities are read, for none is asked
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
