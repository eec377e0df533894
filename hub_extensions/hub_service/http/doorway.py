"""Who is let in first where new connections come as a flood: those whose first words prove something.

To read and answer a request costs a thousand times what it costs to look at its first bytes. So in a flood each new
connection is only looked at: one that the hub signed, or whose token is known to be good, is served at once. The
others wait, so many a second are served, the newest first, and those that have waited longest are closed.
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
"""So many new connections a second are no flood, and in a flood so many strangers a second are served."""
TICK_SECONDS = 0.01
WAITING = 256
RECHECKED = 32
"""Of those that wait, so many of the newest are looked at again at each tick: their words may come a moment later."""
FIRST_BYTES = 16 * 1024
"""As many as a request's headers may have: a proof may stand behind others."""
REQUEST = re.compile(rb"(\S+) (\S+) HTTP/1\.[01]\r\n(?:[^\r\n]*\r\n)*?authorization:([^\r\n]*)\r?\n", re.IGNORECASE)
"""Nothing in it can be divided in two ways: in a flood it is tried on what strangers write."""

WaitingConnection = tuple[socket.socket, Any]


class Doorway:
    """Stands between the listening socket and the server.

    `proves` says of a request's method, target and Authorization that they are known to be good.
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
        """A new connection: served, or made to wait."""
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
        """Nobody is served any more."""
        self._ticking.stop()
        while self._waiting:
            self._waiting.pop()[0].close()

    def _tick(self) -> None:
        """Whose words have come meanwhile, and a few of the strangers, the newest first."""
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
