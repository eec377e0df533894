"""Whose socket takes a connection, as the kernel's tables say, and connections that are proved by it."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tornado.httpclient import HTTPRequest

from hub_extensions.adapters.http_client import http_client
from hub_extensions.adapters.linux.listeners import (
    ForeignListener,
    ListenerCheck,
    ListeningSocket,
    accepting,
    accounts_at,
    check_address,
    is_of_this_machine,
    listeners,
    listeners_in,
)
from hub_extensions.adapters.linux.socket_diag import DiagSocket
from hub_extensions.adapters.service.signed_request import get_once

ANOTHER = os.geteuid() + 1
"""Stands for an account that is not ours; what another really has: ``test_strangers_port.py``."""
TCP = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1FFF 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 111 1 0000000000000000 100
   1: 00000000:2000 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 222 1 0000000000000000 100
   2: 0100007F:1FFF 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  2000        0 333 1 0000000000000000 20
"""
TCP6 = """\
  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when
   0: 00000000000000000000000000000000:1FFF 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 \
00000000  3000        0 444 1 0000000000000000 100
   1: 00000000000000000000000001000000:2001 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 \
00000000  1000        0 555 1 0000000000000000 100
"""


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    (tmp_path / "tcp").write_text(TCP)
    (tmp_path / "tcp6").write_text(TCP6)
    return tmp_path


@pytest.mark.parametrize(
    ("port", "address", "uids"),
    [
        (0x1FFF, "127.0.0.1", [1000]),  # the nearest, and not one that somebody put beside it for all of IPv6
        (0x1FFF, "::1", [3000]),
        (0x1FFF, "10.0.0.1", [3000]),
        (0x2000, "10.0.0.1", [0]),
        (0x2000, "::1", []),
        (0x2001, "::1", [1000]),
        (0x2001, "127.0.0.1", []),
        (0x1FF, "127.0.0.1", []),
    ],
)
def test_a_connection_comes_to_the_nearest_listener(tables: Path, port: int, address: str, uids: list[int]) -> None:
    assert [each.account for each in accepting(listeners_in(tables, port), address)] == uids


def test_which_socket_it_is_is_told_too(tables: Path) -> None:
    assert accepting(listeners_in(tables, 0x1FFF), "127.0.0.1") == (ListeningSocket(b"0100007F", 1000, 111),)


@pytest.fixture(params=["127.0.0.1", "::1", "0.0.0.0", "::"])
def listener(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with socket.create_server((request.param, 0), family=family) as listening:
        yield listening


def test_asked_for_one_port_the_kernel_answers_what_its_tables_say(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = listener.getsockname()[1]
    by_table = listeners_in(Path("/proc/net"), port)
    assert [each.inode for each in by_table] == [os.fstat(listener.fileno()).st_ino]
    assert listeners(port) == by_table

    def refused(port: int) -> tuple[DiagSocket, ...]:
        raise PermissionError("a sandbox without netlink")

    monkeypatch.setattr("hub_extensions.adapters.linux.listeners.listening", refused)
    assert listeners(port) == by_table


def test_the_kernels_own_tables_are_read(listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    assert accounts_at({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port) == {os.geteuid()}


@pytest.mark.parametrize(
    ("host", "ours"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("192.0.2.1", False), ("2001:db8::1", False),
     ("no-such-host.invalid", False), ("", False)],
)  # fmt: skip
def test_an_address_of_this_machine_is_one_that_can_be_bound(host: str, ours: bool) -> None:
    assert is_of_this_machine(host) is ours


def test_a_place_is_looked_at_before_a_client_of_others_connects(listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    address = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "::1": "[::1]"}.get(host, host)
    check_address(f"http://{address}:{port}/hub/api", os.geteuid())
    check_address(f"http://{address}:{port}/hub/api", None)
    check_address(f"http://192.0.2.1:{port}/hub/api", ANOTHER)
    if os.geteuid():
        with pytest.raises(ForeignListener, match=f"uid {os.geteuid()}"):
            check_address(f"http://{address}:{port}/hub/api", ANOTHER)
    listener.close()
    check_address(f"http://{address}:{port}/hub/api", ANOTHER)


def connect(listening: socket.socket) -> socket.socket:
    host, port = listening.getsockname()[:2]
    return socket.create_connection(({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port))


def test_our_own_listener_is_proved_and_anothers_is_not(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    ours, others, unasked = (ListenerCheck(port, account) for account in (os.geteuid(), ANOTHER, None))
    with connect(listener) as connected:
        ours.check(connected)
        unasked.check(connected)
        if os.geteuid():
            with pytest.raises(ForeignListener, match=f"uid {os.geteuid()}"):
                others.check(connected)


def test_a_listener_that_changed_while_we_connected_is_not_proved(listener: socket.socket) -> None:
    """Somebody took our connection, and closed before we looked: now the right one listens there."""
    port = listener.getsockname()[1]
    proof = ListenerCheck(port, os.geteuid())
    connected = connect(listener)
    address, family = listener.getsockname(), listener.family
    taken, _ = listener.accept()
    listener.close()
    unseen = pytest.raises(ForeignListener, match="cannot be seen")
    with connected, taken, socket.create_server(address[:2], family=family), unseen:
        proof.check(connected)


def test_a_listener_that_is_gone_is_not_proved(listener: socket.socket) -> None:
    proof = ListenerCheck(listener.getsockname()[1], os.geteuid())
    connected = connect(listener)
    taken, _ = listener.accept()
    listener.close()
    with connected, taken, pytest.raises(ForeignListener):
        proof.check(connected)


@pytest.mark.needs("plain-user")  # root's listeners are trusted by everybody
@pytest.mark.parametrize("client", ["in a loop", "of a command"])
async def test_a_stranger_is_sent_nothing(client: str) -> None:
    heard: list[bytes] = []

    def hear() -> None:
        with listening.accept()[0] as taken:
            heard.append(taken.recv(100))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        stranger = threading.Thread(target=hear)
        stranger.start()
        request = {"Authorization": "Bearer secret"}
        if client == "in a loop":
            with pytest.raises(ForeignListener):
                await http_client(account=ANOTHER).fetch(HTTPRequest(url, headers=request))
        else:
            with pytest.raises(OSError, match="another account"):
                await asyncio.to_thread(get_once, url, headers=request, account=ANOTHER)
        await asyncio.to_thread(stranger.join)
    assert heard == [b""]
