"""Decides during a flood of new connections which are served: first those of the hub and of clients with a valid token.

Reading and answering a request costs a thousand times more than looking at its first bytes. In a flood each new
connection is therefore only inspected. If its request has a signature of the hub, or a token that is known to be valid,
it is served at once. All other connections wait: a limited number per second is served, the newest first, and the
oldest are closed.
"""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from tornado.ioloop import PeriodicCallback

CALM_A_SECOND = 100
"""More new connections per second are a flood. During a flood, this many connections without a known signature or token
(strangers) are served per second."""
TICK_SECONDS = 0.01
WAITING = 256
RECHECKED = 32
"""Number of the newest waiting connections that are inspected again at each tick, because their first bytes may come
later.
"""
FIRST_BYTES = 16 * 1024  # the limit for a request's headers, since a proof may follow other headers
REQUEST = re.compile(rb"(\S+) (\S+) HTTP/1\.[01]\r\n(?:[^\r\n]*\r\n)*?authorization:([^\r\n]*)\r?\n", re.IGNORECASE)
"""Finds method, target and Authorization in the first bytes of a request. The pattern is applied to any
input during a flood, so it avoids ambiguous repetitions, which take long to match."""

WaitingConnection = tuple[socket.socket, Any]


class Doorway:
    """Passes new connections from the listening socket to the HTTP server; during a flood, most of them have to wait.

    Args:
        serve: passes a connection, with its address, to the HTTP server.
        proves: returns whether a signature of the hub or a valid token is in a request with this method, this target
            and this header Authorization.
        clock: monotonic seconds; tests replace it.
    """

    def __init__(
        self,
        serve: Callable[[socket.socket, Any], None],
        proves: Callable[[str, str, str], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._serve = serve
        self._proves = proves
        self._waiting: deque[WaitingConnection] = deque()
        self._second = 0.0
        self._came = 0
        self._ticking = PeriodicCallback(self._tick, TICK_SECONDS * 1000)

    def arrived(self, connection: socket.socket, address: Any) -> None:
        """Serve a new connection at once, or make it wait if there is a flood.

        Args:
            connection: the socket.
            address: address of the client.
        """
        now = self._clock()
        if now - self._second >= 1.0:
            self._second, self._came = now, 0
        self._came += 1
        if self._came <= CALM_A_SECOND and not self._waiting:
            self._serve(connection, address)
            return
        connection.setblocking(False)
        if self._has_proof(connection):
            self._serve(connection, address)
            return
        self._waiting.append((connection, address))
        if len(self._waiting) > WAITING:
            self._waiting.popleft()[0].close()
        if not self._ticking.is_running():
            self._ticking.start()

    def close(self) -> None:
        """Pass no more connections to the HTTP server, and close those that wait."""
        self._ticking.stop()
        while self._waiting:
            self._waiting.pop()[0].close()

    def _tick(self) -> None:
        """Serve waiting connections whose signature or token has arrived by now, and a few without one.

        In both cases the newest come first.
        """
        newest = [self._waiting.pop() for _ in range(min(RECHECKED, len(self._waiting)))]
        strangers: list[WaitingConnection] = []
        for connection, address in newest:
            if self._has_proof(connection):
                self._serve(connection, address)
            else:
                strangers.append((connection, address))
        served = int(CALM_A_SECOND * TICK_SECONDS)
        for connection, address in strangers[:served]:
            self._serve(connection, address)
        self._waiting.extend(reversed(strangers[served:]))
        if not self._waiting:
            self._ticking.stop()

    def _has_proof(self, connection: socket.socket) -> bool:
        with contextlib.suppress(OSError):
            found = REQUEST.match(connection.recv(FIRST_BYTES, socket.MSG_PEEK))
            return found is not None and self._proves(*(part.decode("latin-1").strip(" \t") for part in found.groups()))
        return False
