"""Who answers in the GPU service's place and is not proved: he fills no memory, and leads no token on."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from hub_extensions.adapters.service.gpu_service import GpuServiceClient, ServiceAway
from hub_extensions.adapters.service.signed_request import MAX_ANSWER_BYTES, get_once
from hub_extensions.core.messages import Ask
from hub_extensions.tools.cli import main

pytestmark = pytest.mark.slow

PART = b"x" * 65536
MOST_SENT = 4 * MAX_ANSWER_BYTES
IN_FLIGHT = MAX_ANSWER_BYTES
"""What the two ends of a connection on the loopback hold beside what was read: some MiB."""


class Answers:
    """Answers each request with these headers, and then with bytes for as long as somebody reads, within a bound."""

    def __init__(self, head: str) -> None:
        self._head = head
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.heard = bytearray()
        self.sent = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self._answer(self._listening.accept()[0])

    def _answer(self, taken: socket.socket) -> None:
        with taken, contextlib.suppress(OSError):
            self.heard += taken.recv(65536)
            taken.sendall(self._head.encode())
            while "Content-Length" not in self._head and self.sent < MOST_SENT:
                taken.sendall(PART)
                self.sent += len(PART)

    def close(self) -> None:
        self._listening.close()


@pytest.fixture
def endless() -> Iterator[Answers]:
    found = Answers("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
    yield found
    found.close()


@pytest.mark.parametrize("way", ["ask", "form", "signed get", "offers with a token"])
async def test_an_answer_without_an_end_is_not_read_to_its_end(endless: Answers, way: str) -> None:
    client = GpuServiceClient(f"{endless.address}/services/gpu", "a secret")
    if way == "ask":
        with pytest.raises(ServiceAway, match="more than 16 MiB"):
            await client.ask(Ask("ada", "", ("gpu",)))
    elif way == "form":
        with pytest.raises(ServiceAway):
            await client.form("ada", "", (), False, seconds=30)
    elif way == "signed get":
        with pytest.raises(OSError, match="more than 16 MiB"):
            await asyncio.to_thread(get_once, f"{endless.address}/x", secret="a secret")
    else:
        told = await asyncio.to_thread(CliRunner().invoke, main, ["offers", "--url", endless.address, "--token", "t"])
        assert (told.exit_code, "more than 16 MiB" in " ".join(told.output.split())) == (1, True)
    await client.close()
    assert endless.sent < MAX_ANSWER_BYTES + IN_FLIGHT


def test_an_answer_that_leads_elsewhere_is_not_followed() -> None:
    elsewhere = Answers("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    leads = Answers(f"HTTP/1.1 302 Found\r\nLocation: {elsewhere.address}/\r\nContent-Length: 0\r\n\r\n")
    told = CliRunner().invoke(main, ["offers", "--url", leads.address, "--token", "somebodys-token"])
    with pytest.raises(OSError, match="did not prove"):
        get_once(f"{leads.address}/x", secret="a secret")
    for each in (leads, elsewhere):
        each.close()
    assert b"somebodys-token" in leads.heard
    assert (told.exit_code, "answered 302" in told.output, elsewhere.heard) == (1, True, b"")
