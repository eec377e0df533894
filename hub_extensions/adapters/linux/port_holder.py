"""Binds the service's port in the hub and passes it to each run of the service, so that no other program can take the
port between two runs.

JupyterHub closes all its files in the processes it starts, so the sockets are sent over a Unix socket in the state
folder, which only the hub's account may enter. If another account already has the configured port, a free port is used
instead. The configured port is then bound as soon as it is free.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tornado.netutil import bind_sockets

from hub_extensions.adapters.linux.listeners import accounts_at

log = logging.getLogger("jupyterhub.gpu")

NAME = "port.sock"
PREDECESSOR_SECONDS = 5.0
"""Longest wait for a port that another process of this account has: the service of a hub that was killed needs some
seconds to end.
"""
AGAIN_SECONDS = 0.5  # interval between attempts at a port that another account has
HAND_OVER_SECONDS = 2.0
_MOST = 16


class PortHolder:
    """Holds the listening sockets of one service in the hub, and hands them over to each run of the service.

    Args:
        folder: the state folder, in which the Unix socket is created.
        host: address to listen at.
        port: the configured port.

    Attributes:
        stand_in: the free port that is used instead of the configured one; `None` if the configured port is held.
        stranger: the uid that has the configured port; `None` if no other account has it, or if it is not known.
    """

    def __init__(self, folder: Path, host: str, port: int) -> None:
        self._folder, self._host, self._port = folder, host, port
        self._sockets: list[socket.socket] = []
        self._has_port = False
        self._lock = threading.Lock()
        self.stand_in: int | None = None
        self.stranger: int | None = None

    def hold(self, may_move: bool) -> None:
        """Bind the configured port.

        Args:
            may_move: if another program has the port, bind a free port for now. If False, nothing is bound then.

        Raises:
            OSError: the address cannot be used.
        """
        until = time.monotonic() + PREDECESSOR_SECONDS
        while not self._took_port():
            others = (accounts_at(self._host, self._port) or frozenset()) - {os.geteuid()}
            if not others and time.monotonic() < until:
                time.sleep(0.05)
                continue
            self.stranger = min(others, default=None)
            if may_move:
                self._sockets += bind_sockets(
                    0, self._host, family=socket.AF_INET6 if ":" in self._host else socket.AF_INET
                )
                self.stand_in = self._sockets[0].getsockname()[1]
            return

    def serve(self) -> None:
        """Hand the sockets to any process of this account that asks, from now on. Raises OSError if the folder
        cannot hold a socket.
        """
        door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with _short(self._folder) as short:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(short / NAME)
            door.bind(str(short / NAME))
            os.chmod(short / NAME, 0o600)
        door.listen()
        threading.Thread(target=self._serve, args=(door,), name="gpu-port", daemon=True).start()

    def close(self) -> None:
        """Release the port of the GPU service. A running hub never does this."""
        with self._lock:
            for each in self._sockets:
                each.close()
            self._sockets.clear()

    def _took_port(self) -> bool:
        try:
            found = bind_sockets(self._port, self._host)
        except OSError as problem:
            if problem.errno != errno.EADDRINUSE:
                raise
            return False
        with self._lock:
            self._sockets += found
            self._has_port = True
        return True

    def _serve(self, door: socket.socket) -> None:
        while True:
            ready, _, _ = select.select([door], [], [], None if self._has_port else AGAIN_SECONDS)
            with contextlib.suppress(OSError):
                if not self._has_port and self._took_port():
                    log.info("port %s is free again, and kept for the GPU service", self._port)
                if ready:
                    self._hand_over(door.accept()[0])

    def _hand_over(self, visitor: socket.socket) -> None:
        with visitor, self._lock:
            visitor.settimeout(HAND_OVER_SECONDS)
            if _uid_of(visitor) in (os.geteuid(), 0):
                word = b"all" if self._has_port else b"stand-in"
                socket.send_fds(visitor, [word], [each.fileno() for each in self._sockets])


def handed_over(folder: Path) -> tuple[list[socket.socket], bool] | None:
    """Get the listening sockets from the hub that holds the service's port.

    Args:
        folder: the state folder, in which the hub listens at a Unix socket.

    Returns:
        The sockets, and whether the configured port is among them. `None` if no hub holds the port; the caller then
        binds it itself.
    """
    visitor = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with visitor:
        visitor.settimeout(HAND_OVER_SECONDS)
        try:
            with _short(folder) as short:
                visitor.connect(str(short / NAME))
            word, numbers, _, _ = socket.recv_fds(visitor, 64, _MOST)
        except OSError:
            return None
    found = [socket.socket(fileno=number) for number in numbers]
    for each in found:
        each.setblocking(False)
    return (found, word == b"all") if word else None


@contextmanager
def _short(folder: Path) -> Iterator[Path]:
    """Provide the folder under a short path, because the name of a Unix socket is limited to 107 bytes."""
    number = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield Path(f"/proc/self/fd/{number}")
    finally:
        os.close(number)


def _uid_of(visitor: socket.socket) -> int:
    _, uid, _ = struct.unpack("3i", visitor.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return int(uid)
