"""Strangers take neither files nor memory nor time: the rule of places, and small attacks on a real port."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections.abc import AsyncIterator

import pytest

from hub_extensions.hub_service.http import limits
from hub_extensions.hub_service.http.auth import Server
from hub_extensions.hub_service.http.limits import HUB, Connections, Refusals, Room, raise_file_limit, room_within
from tests.fakes.engine import EngineInMemory
from tests.hub_service.conftest import PREFIX, SECRET, Running, known_hub
from tests.patience import patient, soon

SMALL = Room(strangers=6, an_address=4, known=3, a_caller=2)
HALF = f"POST {PREFIX}leave HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n"


# ------------------------------------------------------------------ who has to go


def test_the_stranger_that_was_silent_longest_goes_first() -> None:
    table = Connections(SMALL)
    assert [table.enter(one, "10.0.0.1") for one in "abcd"] == [None] * 4
    table.note_request("a")
    assert table.enter("e", "10.0.0.1") == "b"
    assert table.enter("f", "10.0.0.2") is None
    assert table.enter("g", "10.0.0.2") is None
    assert table.enter("h", "10.0.0.3") == "c", "of the address that has the most"
    assert table.strangers == 6


def test_the_hub_and_servers_keep_their_places_whatever_strangers_do() -> None:
    table = Connections(SMALL)
    for one, caller in (("h1", HUB), ("h2", HUB), ("s1", Server("ada", ""))):
        assert table.enter(one, "10.0.0.1") is None
        assert table.prove(one, caller) is None
    gone = [table.enter(number, "10.0.0.1") for number in range(100)]
    assert set(gone) == {None, *range(96)}
    assert all(table.is_known(one) for one in ("h1", "h2", "s1"))


def test_one_server_has_a_few_places_and_all_together_a_bound() -> None:
    table = Connections(SMALL)
    own = Server("ada", "")
    for one in "abc":
        table.enter(one, "10.0.0.1")
    assert [table.prove(one, own) for one in "abc"] == [None, None, "a"]
    assert table.prove("b", own) is None, "said again"
    for one in "de":
        table.enter(one, "10.0.0.1")
    assert table.prove("d", HUB) is None
    assert table.prove("e", HUB) in ("c", "d")
    assert table.prove("never came", HUB) is None


def test_who_leaves_is_forgotten() -> None:
    table = Connections(SMALL)
    for number in range(1000):
        table.enter(number, f"10.0.0.{number % 250}")
        if number % 3 == 0:
            table.prove(number, HUB)
        table.leave(number)
        table.leave(number)
    assert table.strangers == 0
    assert not table._strangers and not table._known


@pytest.mark.parametrize(
    ("files", "room"),
    [(1024, Room(256, 256, 512)), (65_536, Room()), (4864, Room()), (256, Room(21, 21, 43))],
)
def test_there_is_room_within_the_files_that_may_be_open(files: int, room: Room) -> None:
    assert room_within(files) == room


def test_the_limit_of_open_files_is_raised_to_the_hard_one() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
        assert raise_file_limit() in (hard, Room().strangers + Room().known + limits.OWN_FILES)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_refusals_wait_only_in_a_flood() -> None:
    refusals = Refusals(100.0)
    pauses = [refusals.pause(100.0 + number / 1000) for number in range(60)]
    assert pauses == [0.0] * 50 + [1.0] * 10
    assert refusals.pause(101.2) == 0.0


# ------------------------------------------------------------------ attacks


@pytest.fixture
async def attacked(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    for name, seconds in (("HEADER_SECONDS", 0.5), ("BODY_SECONDS", 0.3), ("WRITE_SECONDS", 0.3)):
        monkeypatch.setattr(limits, name, seconds)
    monkeypatch.setattr(limits, "CHECK_SECONDS", 0.1)
    running = Running(EngineInMemory(), known_hub())
    running.parts.connections.room = Room(strangers=40, an_address=30)
    yield running
    await running.stop()


async def send(service: Running, text: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
    writer.write(text.encode())
    with contextlib.suppress(ConnectionError):
        await writer.drain()
    return reader, writer


async def all_of(reader: asyncio.StreamReader) -> bytes:
    with contextlib.suppress(ConnectionError):
        return await asyncio.wait_for(reader.read(), patient(10))
    return b""


@pytest.mark.whole
@pytest.mark.slow
async def test_half_a_request_keeps_nobody_out_and_ends_in_time(attacked: Running) -> None:
    attackers = [await send(attacked, "POST /x HTTP/1.1\r\nHost: x\r\n") for _ in range(200)]
    assert attacked.parts.connections.strangers <= 30
    for _ in range(5):
        assert (await attacked.ask("GET", "hub/form?user=ada", SECRET)).code == 200
    for reader, writer in attackers:
        assert await all_of(reader) == b""
        writer.close()
    await soon(lambda: attacked.parts.connections.strangers == 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", ["leave", "keep", "give-up", "api/tickets", "hub/tickets", "api/server/report", "none"]
)
@pytest.mark.parametrize("extra", ["", "Authorization: Bearer made-up-token\r\n", "Cookie: service-gpu=made-up\r\n"])
async def test_a_stranger_is_refused_before_a_byte_of_the_body(attacked: Running, path: str, extra: str) -> None:
    reader, writer = await send(attacked, HALF.replace("leave", path) + extra + "\r\n")
    said = await all_of(reader)
    assert said.startswith((b"HTTP/1.1 403", b"HTTP/1.1 404")), said
    writer.close()


async def test_a_body_that_does_not_come_ends_in_time(attacked: Running) -> None:
    head = (
        HALF.replace("leave", "hub/tickets") + f"Authorization: {attacked.signature('POST', 'hub/tickets')}\r\n\r\n{{"
    )
    reader, writer = await send(attacked, head)
    assert await all_of(reader) == b""
    writer.close()


async def test_more_than_the_most_of_a_body_is_refused_and_not_kept(attacked: Running) -> None:
    large = HALF.replace("60000", "1000000") + "Authorization: Bearer ada-token\r\n\r\n"
    reader, writer = await send(attacked, large)
    assert (await all_of(reader)).startswith(b"HTTP/1.1 413")
    writer.close()


@pytest.mark.slow
async def test_who_does_not_read_the_answers_is_dropped(attacked: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HEADER_SECONDS", 600.0)
    ask = f"GET {PREFIX}api/openapi.json HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ada-token\r\n\r\n"
    reader, writer = await send(attacked, ask)
    await reader.readline()
    writer.write(ask.encode() * 2000)
    # it takes nothing from now on
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    await soon(lambda: attacked.parts.connections.strangers == 0)
    writer.transport.abort()


@pytest.mark.whole
@pytest.mark.slow
async def test_made_up_tokens_do_not_keep_the_hub_busy_nor_a_known_server_out(attacked: Running) -> None:
    assert (await attacked.ask("GET", "api/server", "ada-thesis")).code in (200, 404)
    attacked.parts.connections.room = Room()
    ask = f"GET {PREFIX}api/server HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer made-up-{{}}\r\n\r\n"
    attackers = [await send(attacked, ask.format(number)) for number in range(300)]
    assert (await attacked.ask("GET", "api/server", "ada-thesis")).code in (200, 404)
    assert (await attacked.ask("GET", "hub/form?user=ada", SECRET)).code == 200
    for reader, writer in attackers:
        assert (await all_of(reader)).startswith((b"HTTP/1.1 403", b"HTTP/1.1 503"))
        writer.close()


@pytest.mark.slow
async def test_an_idle_websocket_is_no_way_in(attacked: Running) -> None:
    upgrade = f"GET {PREFIX} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    attackers = [await send(attacked, upgrade) for _ in range(100)]
    for reader, writer in attackers:
        assert not (await all_of(reader)).startswith(b"HTTP/1.1 101")
        writer.close()
    await soon(lambda: attacked.parts.connections.strangers == 0)
