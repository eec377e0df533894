"""The stream of changes: all live tickets, then every change, a heartbeat, and an end for who does not read."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from hub_extensions.core.messages import Ask
from hub_extensions.hub_service.http.api import hub as hub_routes
from tests.fakes.reasons import because
from tests.hub_service.conftest import PREFIX, Running
from tests.patience import patient, soon


@asynccontextmanager
async def stream(service: Running, version: str = "1.0") -> AsyncIterator[asyncio.StreamReader]:
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    proof = service.signature("GET", "hub/events")
    head = f"GET {PREFIX}hub/events HTTP/{version}\r\nHost: x\r\nAuthorization: {proof}\r\n\r\n"
    writer.write(head.encode())
    assert b" 200 " in await asyncio.wait_for(reader.readline(), patient(5))
    while (await asyncio.wait_for(reader.readline(), patient(5))).strip():
        continue
    try:
        yield reader
    finally:
        writer.close()


async def line(reader: asyncio.StreamReader, seconds: float = 5) -> bytes:
    """The next line, without its signature."""
    return (await asyncio.wait_for(reader.readline(), patient(seconds)))[65:]


async def told(reader: asyncio.StreamReader) -> dict[str, Any]:
    """The next line that is no heartbeat."""
    while True:
        found = await line(reader, hub_routes.HEARTBEAT_SECONDS + 2)
        if found.strip():
            return dict(json.loads(found))


async def readers_become(service: Running, count: int) -> None:
    await soon(lambda: service.engine.readers == count, hub_routes.READER_SECONDS + 5)


async def test_all_live_tickets_come_first_and_then_each_change_as_one_line(service: Running) -> None:
    await service.engine.ask(Ask("ada", "", ("mig-1g.5gb",)))
    await service.engine.ask(Ask("ben", "x", ("gpu-0.5",)))
    async with stream(service) as reader:
        first = [await told(reader) for _ in range(2)]
        assert [(state["user"], state["position"]) for state in first] == [("ada", 1), ("ben", 2)]
        service.engine.publish(replace(service.engine.queue["t2"], position=1))
        assert (await told(reader))["position"] == 1
    await readers_become(service, 0)


async def test_the_answer_begins_before_there_is_anything_to_say(service: Running) -> None:
    async with stream(service):
        await readers_become(service, 1)


async def test_an_empty_line_comes_while_nothing_happens(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_routes, "HEARTBEAT_SECONDS", 0.5)
    async with stream(service) as reader:
        assert await line(reader) == b"\n"


async def test_the_stream_ends_when_the_service_stops(service: Running) -> None:
    async with stream(service) as reader:
        await readers_become(service, 1)
        service.parts.closing.set()
        assert await line(reader) == b""
    await readers_become(service, 0)


async def test_a_reader_over_http_1_1_gets_whole_lines_too(service: Running) -> None:
    await service.engine.ask(Ask("ada", "", ("mig-1g.5gb",)))
    async with stream(service, "1.1") as reader:
        size = int(await asyncio.wait_for(reader.readline(), patient(5)), 16)
        assert json.loads((await reader.readexactly(size))[65:])["user"] == "ada"


@pytest.mark.whole
@pytest.mark.slow
async def test_a_reader_that_does_not_read_is_dropped_and_holds_nobody_up(
    service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its socket buffers are filled; the next line does not fit, and after READER_SECONDS it is gone."""
    monkeypatch.setattr(hub_routes, "READER_SECONDS", patient(0.5))
    state = await service.engine.ask(Ask("ada", "", ("mig-1g.5gb",)))
    large = replace(state, reason=because("x" * 1_000_000))
    lazy = socket.socket()
    lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    lazy.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(lazy, ("127.0.0.1", service.port))
    head = (
        f"GET {PREFIX}hub/events HTTP/1.0\r\nHost: x\r\nAuthorization: {service.signature('GET', 'hub/events')}\r\n\r\n"
    )
    await loop.sock_sendall(lazy, head.encode())
    await readers_become(service, 1)
    for _ in range(20):
        service.engine.publish(large)
    async with stream(service) as quick:
        assert (await told(quick))["user"] == "ada"
        await readers_become(service, 1)
        service.engine.publish(state)
        assert (await told(quick))["ticket"] == state.ticket
    lazy.close()
