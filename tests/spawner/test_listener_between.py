"""Somebody stands between hub and service, as on a cluster's network: he learns no secret, and nobody believes him."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from functools import partial
from urllib.parse import urlsplit

import pytest

from hub_extensions.adapters.service.gpu_service import Away, GpuServiceClient, ServiceAway
from hub_extensions.core.messages import Ask, Started, Stopped, TicketStatus
from tests.fakes.service import SECRET, GpuServiceInATest
from tests.patience import patient

pytestmark = pytest.mark.slow


class Between:
    """Passes on what it is told, remembers it, and changes the answers."""

    def __init__(self, url: str) -> None:
        self.place = urlsplit(url)
        self.heard: list[bytearray] = []
        """All that came on each connection."""
        self.change: Callable[[bytes], bytes] = lambda answer: answer

    async def start(self) -> str:
        self.server = await asyncio.start_server(self._passed_on, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}{self.place.path}"

    async def _passed_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard = bytearray()
        self.heard.append(heard)
        there = await asyncio.open_connection(self.place.hostname, self.place.port)
        await asyncio.gather(
            self._pump(reader, there[1], partial(_remembered, heard)), self._pump(there[0], writer, self._changed)
        )

    def _changed(self, part: bytes) -> bytes:
        return self.change(part)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, change: Callable[[bytes], bytes]
    ) -> None:
        while part := await reader.read(65536):
            writer.write(change(part))
        writer.close()


def _remembered(heard: bytearray, part: bytes) -> bytes:
    heard += part
    return part


@pytest.fixture
async def service() -> AsyncIterator[GpuServiceInATest]:
    with GpuServiceInATest({"gpu": 1}) as running:
        yield running


@pytest.fixture
async def between(service: GpuServiceInATest) -> AsyncIterator[Between]:
    made = Between(service.url)
    yield made
    made.server.close()


@pytest.fixture
async def client(between: Between) -> AsyncIterator[GpuServiceClient]:
    made = GpuServiceClient(await between.start(), SECRET)
    yield made
    await made.close()


async def replayed(service: GpuServiceInATest, request: bytes) -> bytes:
    place = urlsplit(service.url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    writer.write(request.replace(b"keep-alive", b"close").replace(b"HTTP/1.1", b"HTTP/1.0"))
    answer = await asyncio.wait_for(reader.read(), patient(10))
    writer.close()
    return answer


async def test_who_listens_learns_no_secret_and_nothing_that_he_could_send(
    service: GpuServiceInATest, between: Between, client: GpuServiceClient
) -> None:
    with client.waiting("ada", "") as queue:
        state = await client.ask(Ask("ada", "", ("gpu",)))
        await client.form("ada", "", (), False)
        await client.started(state.ticket, Started(1, ready=True))
        await client.stopped(Stopped("ada", ""))
        while not isinstance(await asyncio.wait_for(queue.get(), patient(10)), TicketStatus):
            continue
    everything = b"".join(between.heard)
    for word in (b"hub/tickets", b"hub/form", b"/started", b"hub/stopped", b"hub/events"):
        assert word in everything
    assert SECRET.encode() not in everything
    requests = [each for one in between.heard for each in re.split(rb"(?=(?:GET|POST) /services/)", one) if each]
    assert len(requests) >= 5
    told = list(service.told)
    answers = [await replayed(service, each) for each in requests]
    assert {answer.split(b" ", 2)[1] for answer in answers} <= {b"401", b"403"}
    assert service.told == told


async def test_an_answer_that_was_changed_is_no_answer(
    service: GpuServiceInATest, between: Between, client: GpuServiceClient
) -> None:
    await client.ask(Ask("ada", "", ("gpu",)))
    between.change = lambda answer: answer.replace(b'"answer":"wait"', b'"answer":"admit"')
    with pytest.raises(ServiceAway, match="did not prove"):
        await client.ask(Ask("ben", "", ("gpu",)))
    between.change = lambda answer: answer.replace(b" 200 ", b" 403 ")
    with pytest.raises(ServiceAway, match="did not prove"):
        await client.form("ada", "", (), False)
    between.change = lambda answer: answer
    assert (await client.ask(Ask("ben", "", ("gpu",)))).answer == "wait"


async def test_a_line_that_was_put_into_the_stream_ends_it(
    service: GpuServiceInATest, between: Between, client: GpuServiceClient
) -> None:
    await client.ask(Ask("ada", "", ("gpu",)))
    between.change = lambda answer: answer.replace(b'"answer":"wait"', b'"answer":"admit"')
    with client.waiting("ben", "") as queue:
        with pytest.raises(ServiceAway):
            await client.ask(Ask("ben", "", ("gpu",)))
        updates = []
        while not isinstance(update := await asyncio.wait_for(queue.get(), patient(10)), Away):
            updates.append(update)
    assert [each for each in updates if isinstance(each, TicketStatus)] == []


async def test_a_made_up_answer_admits_nobody() -> None:
    admitted = b'{"ticket":"t","user":"ben","server":"","answer":"admit"}'

    async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(admitted)}\r\n"
        writer.write(f"{head}GPU-Signature: life={'0' * 16}, signature=x\r\n\r\n".encode() + admitted)
        writer.close()

    server = await asyncio.start_server(answered, "127.0.0.1", 0)
    client = GpuServiceClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/services/gpu", SECRET)
    with pytest.raises(ServiceAway, match="did not prove"):
        await client.ask(Ask("ben", "", ("gpu",)))
    await client.close()
    server.close()
