"""The port that the hub holds: handed to each life of the service, never free in between, and taken back."""

from __future__ import annotations

import socket
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hub_extensions.adapters.linux import port_holder
from hub_extensions.adapters.linux.port_holder import NAME, PortHolder, handed_over
from tests.patience import until
from tests.ports import free_port

HOST = "127.0.0.1"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Deeper than the name of a Unix socket may be long."""
    deep = tmp_path / ("a" * 60) / ("b" * 60)
    deep.mkdir(parents=True, mode=0o700)
    return deep


@pytest.fixture
def held(folder: Path) -> Iterator[PortHolder]:
    held = PortHolder(folder, HOST, free_port())
    held.hold(may_move=True)
    held.serve()
    yield held
    held.close()


def ports(given: tuple[list[socket.socket], bool] | None) -> tuple[list[int], bool]:
    assert given is not None
    found = [each.getsockname()[1] for each in given[0]]
    for each in given[0]:
        each.close()
    return found, given[1]


def test_each_life_of_the_service_gets_the_socket(held: PortHolder, folder: Path) -> None:
    for _ in range(3):
        found, own = ports(handed_over(folder))
        assert own
        with pytest.raises(OSError, match="in use"), socket.socket() as stranger:
            stranger.bind((HOST, found[0]))


def test_who_connects_while_no_service_lives_is_heard_by_the_next(held: PortHolder, folder: Path) -> None:
    (port,), _ = ports(handed_over(folder))
    with socket.create_connection((HOST, port)) as asking:
        asking.sendall(b"hello")
        given = handed_over(folder)
        assert given is not None
        given[0][0].setblocking(True)
        taken, _ = given[0][0].accept()
        with taken, given[0][0]:
            assert taken.recv(5) == b"hello"


def test_only_the_hubs_account_may_knock(held: PortHolder, folder: Path) -> None:
    assert stat.S_IMODE((folder / NAME).stat().st_mode) == 0o600


def test_without_a_hub_nothing_is_handed_over(folder: Path) -> None:
    assert handed_over(folder) is None
    (folder / NAME).touch()
    assert handed_over(folder) is None


def test_a_successor_serves_in_the_place_of_a_hub_that_was_killed(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left, port_holder._short(folder) as short:
        left.bind(str(short / NAME))
    test = PortHolder(folder, HOST, free_port())
    test.hold(may_move=True)
    test.serve()
    assert ports(handed_over(folder))[1]
    test.close()


@pytest.mark.parametrize("may_move", [True, False])
def test_a_port_that_is_taken_is_stood_in_for_until_it_is_free(
    folder: Path, monkeypatch: pytest.MonkeyPatch, may_move: bool
) -> None:
    monkeypatch.setattr(port_holder, "PREDECESSOR_SECONDS", 0.1)
    port = free_port()
    held = PortHolder(folder, HOST, port)
    with socket.create_server((HOST, port)):
        held.hold(may_move)
        held.serve()
        found, own = ports(handed_over(folder))
        assert not own and port not in found
        assert found == ([held.stand_in] if may_move else [])
    until(lambda: ports(handed_over(folder)) == ([*found, port], True), 10, "it is taken")
    held.close()


def test_the_port_of_a_service_that_is_ending_is_waited_for(folder: Path) -> None:
    """After a ``kill -9`` of the hub its service ends a moment later."""
    port = free_port()
    ending = socket.create_server((HOST, port))
    threading.Timer(0.3, ending.close).start()
    held = PortHolder(folder, HOST, port)
    held.hold(may_move=True)
    assert held.stand_in is None
    held.close()
