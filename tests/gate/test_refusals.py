"""A refusal never leaves a body behind on a connection that stays open: a proxy would send the next request into it."""

from __future__ import annotations

import asyncio

import pytest

from tests.gate.gate_browser import PROXY_SECRET, Standing
from tests.patience import patient

AFTER = b"GET /_gate/health HTTP/1.1\r\nHost: apps.example.org\r\nConnection: close\r\n\r\n"
BODIES = {
    "none": b"Content-Length: 0\r\n\r\n",
    "short": b"Content-Length: 5\r\n\r\nabcde",
    "chunked": b"Transfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n",
    "long": b"Content-Length: 200000\r\n\r\n" + 200_000 * b"x",
    "expects": b"Expect: 100-continue\r\nContent-Length: 200000\r\n\r\n",
}
PLACES = {
    "a check without a session": ("POST", "/_gate/check/dask"),
    "an app that is not there": ("POST", "/_gate/check/nothing"),
    "the end of sessions, unsigned": ("POST", "/_gate/ended"),
    "a page that takes no POST": ("POST", "/"),
    "a path that is not there": ("PUT", "/_gate/nothing"),
    "another method": ("PATCH", "/_gate/health"),
    "a deletion": ("DELETE", "/_gate/check/dask"),
}


@pytest.mark.whole
@pytest.mark.slow
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("place", PLACES)
async def test_a_refusal_reads_the_body_or_announces_the_end_of_the_connection(
    standing: Standing, place: str, body: str
) -> None:
    method, path = PLACES[place]
    port = standing.browser().port
    head = f"{method} {path} HTTP/1.1\r\nHost: apps.example.org\r\nX-Gate-Proxy: {PROXY_SECRET}\r\n".encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(head + BODIES[body])
    try:
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), patient(20))
    except ConnectionResetError:
        assert body == "long", "a body beyond the limit is not read: the connection ends at once"
        return
    closes = b"connection: close" in answer.lower()
    if closes:
        writer.close()
        return
    writer.write(AFTER)
    rest = await asyncio.wait_for(reader.read(), patient(20))
    writer.close()
    assert rest.count(b"HTTP/1.1 ") == 1 and b" 200 " in rest, "the next request has its own answer"
