"""In a flood of new connections those with a proof come first, a few strangers are served, and the rest is closed."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator

import pytest

from hub_extensions.hub_service.http import doorway as module
from hub_extensions.hub_service.http.doorway import Doorway
from tests.patience import soon

PROOF = b"GET /services/gpu/hub/form HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\n\r\n"
MADE_UP = PROOF.replace(b"good", b"made-up")


class Street:
    """Connections that come to the doorway, by number; what it serves is noted."""

    def __init__(self) -> None:
        self.served: list[int] = []
        self.doorway = Doorway(
            lambda connection, address: self.served.append(address),
            lambda method, target, authorization: (target, authorization) == ("/services/gpu/hub/form", "Bearer good"),
            lambda: 1000.0,  # one second that does not end
        )
        self.ends: list[tuple[socket.socket, socket.socket]] = []

    def come(self, words: bytes = b"") -> int:
        """A new one; returns its number."""
        theirs, ours = socket.socketpair()
        self.ends.append((theirs, ours))
        theirs.send(words)
        self.doorway.arrived(ours, len(self.ends) - 1)
        return len(self.ends) - 1

    def is_closed(self, number: int) -> bool:
        return self.ends[number][1].fileno() == -1


@pytest.fixture
async def street(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Street]:
    for name, value in (("CALM_A_SECOND", 2), ("WAITING", 4), ("TICK_SECONDS", 1.0), ("RECHECKED", 3)):
        monkeypatch.setattr(module, name, value)
    made = Street()
    yield made
    made.doorway.close()
    for pair in made.ends:
        for end in pair:
            end.close()


def test_a_few_a_second_are_served_as_they_come(street: Street) -> None:
    assert [street.come(), street.come(MADE_UP)] == street.served


def test_in_a_flood_only_a_proof_is_served_at_once(street: Street) -> None:
    calm = [street.come(), street.come()]
    for words in (b"", MADE_UP, b"GET / HTTP/1.1\r\n", b"\xff\xfe" * 3000):
        street.come(words)
    proved = street.come(PROOF)
    assert street.served == [*calm, proved]


def test_a_proof_behind_many_other_headers_is_seen(street: Street) -> None:
    """What stands between hub and service, a mesh say, may add some."""
    street.come(), street.come()
    others = b"".join(b"X-Forwarded-%d: %s\r\n" % (number, b"x" * 100) for number in range(130))
    assert street.come(PROOF.replace(b"Host: x\r\n", b"Host: x\r\n" + others)) in street.served


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "words",
    [b"GET / HTTP/1.1\r\nauthorization:" + b" " * 20_000 + b"x", b"GET / HTTP/1.1\r\nauthorization: \t" * 600,
     b"GET / HTTP/1.1\r\n" + b"a:\r\n" * 5_000, b"x" * 20_000, b"x " * 10_000, b"\r\n" * 10_000],
    ids=["blanks", "many of them", "many lines", "no space", "many spaces", "no words"],
)  # fmt: skip
def test_no_words_keep_the_doorway_busy_for_long(street: Street, words: bytes) -> None:
    """Their length to the power of three was minutes, in which nobody was served."""
    calm = [street.come(), street.come()]
    street.come(words)
    assert street.served == calm


def test_of_strangers_the_newest_are_served_first_and_the_oldest_closed(street: Street) -> None:
    numbers = [street.come() for _ in range(8)]
    assert street.served == numbers[:2]
    assert [street.is_closed(number) for number in numbers] == [False] * 2 + [True] * 2 + [False] * 4
    street.doorway._tick()
    street.doorway._tick()
    assert street.served == [*numbers[:2], 7, 6, 5, 4]


def test_a_proof_that_comes_a_moment_later_is_seen(street: Street) -> None:
    for _ in range(4):
        street.come()
    late = street.come()
    street.ends[late][0].send(PROOF)
    street.doorway._tick()
    assert late in street.served


@pytest.mark.slow
async def test_who_waits_is_served_without_anybody_new(street: Street) -> None:
    for _ in range(3):
        street.come()
    await soon(lambda: len(street.served) == 3)


def test_at_its_end_nobody_is_left_waiting(street: Street) -> None:
    for _ in range(4):
        street.come()
    street.doorway.close()
    assert [street.is_closed(number) for number in (2, 3)] == [True, True]
