"""Limits for connections, and time limits for each step of a request, so that strangers cannot exhaust the service.

A connection belongs to a stranger until a request on it has proved by signature or token that it comes from the hub or
a user's server. Strangers have separate limits, in total and for each address. If a limit is reached, the connection
that has been silent longest is closed for the newest. Somebody who sends half requests can therefore not keep others
out, even if all come through one proxy. Connections of the hub and of users' servers are not closed for strangers.
``doorway.py`` handles floods of new connections.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPConnection, HTTPHeaders, HTTPInputError, HTTPMessageDelegate
from tornado.ioloop import PeriodicCallback
from tornado.iostream import IOStream
from tornado.netutil import add_accept_handler

from hub_extensions.hub_service.http.api.codec import BODY_LIMIT_BYTES
from hub_extensions.hub_service.http.doorway import FIRST_BYTES, Doorway

HEADER_SECONDS = 30.0  # how long a connection may be idle, and how long the headers of a request may take
BODY_SECONDS = 15.0
WRITE_SECONDS = 20.0  # a reader that accepts nothing of an answer for this long is dropped
CHECK_SECONDS = 2.0
MAX_HEADER_BYTES = FIRST_BYTES
CHUNK_BYTES = 16 * 1024
SEND_BUFFER_BYTES = 64 * 1024
OWN_FILES = 256  # files that are not connections of this server: store, hub, cluster, log
REFUSALS_A_SECOND = 50  # more refused requests within a second are a flood; each further one is answered with a delay
REFUSAL_SECONDS = 1.0


class Room(NamedTuple):
    """Maximum numbers of open connections of the service's HTTP server.

    Attributes:
        strangers: maximum number of connections of clients that have not proved who they are.
        an_address: maximum number of connections of such clients from one address.
        known: maximum number of connections of the hub and of users' servers together.
        a_caller: maximum number of connections of one user's server.
    """

    strangers: int = 512
    an_address: int = 256
    known: int = 4096
    a_caller: int = 16


def room_within(files: int) -> Room:
    """Return the limits of connections for a process that may open this number of files, sockets included."""
    free = max(files - OWN_FILES, 64)
    full = Room()
    strangers = min(full.strangers, free // 3)
    return Room(strangers, min(full.an_address, strangers), min(full.known, free - strangers), full.a_caller)


def raise_file_limit() -> int:
    """Raise this process's limit of open files to the hard limit, and return the new limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return Room().strangers + Room().known + OWN_FILES if hard == resource.RLIM_INFINITY else hard


class Connections:
    """Knows all open connections, and decides which one is closed when a limit is reached.

    The closing itself is done by the caller.

    A connection belongs to a stranger until a request on it has proved that it comes from the hub or a user's server.

    Args:
        room: the limits. `None` for the default ones.
    """

    def __init__(self, room: Room | None = None) -> None:
        self.room = room or Room()
        self._strangers: dict[str, OrderedDict[Hashable, None]] = {}
        self._known: dict[Hashable, OrderedDict[Hashable, None]] = {}
        self._at: dict[Hashable, str] = {}
        self._caller: dict[Hashable, Hashable] = {}

    @property
    def strangers(self) -> int:
        """Number of connections on which no request has proved that it comes from the hub or a user's server."""
        return len(self._at) - len(self._caller)

    def enter(self, one: Hashable, address: str) -> Hashable | None:
        """Add a new connection of a client that has not proved who it is.

        Args:
            one: the connection.
            address: address of the client.

        Returns:
            The connection that has to be closed for it; `None` if there is room.
        """
        victim: Hashable | None = None
        here = self._strangers.get(address, ())
        if len(here) >= self.room.an_address:
            victim = next(iter(here))
        elif self.strangers >= self.room.strangers:
            victim = _oldest_of_most(self._strangers)
        if victim is not None:
            self.leave(victim)
        self._at[one] = address
        self._strangers.setdefault(address, OrderedDict())[one] = None
        return victim

    def note_request(self, one: Hashable) -> None:
        """Record that a whole request has arrived on the connection `one`.

        When there is no room, connections that have been silent longer are closed before this one.
        """
        if one in self._at and one not in self._caller:
            self._strangers[self._at[one]].move_to_end(one)

    def prove(self, one: Hashable, caller: Hashable) -> Hashable | None:
        """Record that a request on this connection has proved, by signature or token, who sends it.

        Args:
            one: the connection.
            caller: `HUB`, or the user's server.

        Returns:
            The connection that has to be closed because there are now too many; `None` if there is room.
        """
        if one not in self._at:
            return None
        self._forget(one)
        self._caller[one] = caller
        own = self._known.setdefault(caller, OrderedDict())
        own[one] = None
        victim: Hashable | None = None
        if len(own) > self.room.a_caller and caller is not HUB:
            victim = next(iter(own))
        elif len(self._caller) > self.room.known:
            victim = _oldest_of_most(self._known)
        if victim is not None:
            self.leave(victim)
        return victim

    def is_known(self, one: Hashable) -> bool:
        """Return whether a request on the connection `one` has proved that it comes from the hub or a user's server."""
        return one in self._caller

    def leave(self, one: Hashable) -> None:
        """Remove the closed connection `one` from the list of open connections. Can be called twice."""
        self._forget(one)
        self._at.pop(one, None)

    def _forget(self, one: Hashable) -> None:
        """Remove the connection `one` from the list of its client's address or, if known, of its caller."""
        address, caller = self._at.get(one), self._caller.pop(one, None)
        places: dict[Any, OrderedDict[Hashable, None]] = self._strangers if caller is None else self._known
        key = address if caller is None else caller
        if key in places:
            places[key].pop(one, None)
            if not places[key]:
                del places[key]


def _oldest_of_most(places: Mapping[Any, OrderedDict[Hashable, None]]) -> Hashable:
    """Return the oldest connection of the caller or address that has the most connections.

    Args:
        places: caller or address -> its connections, the oldest first.
    """
    most: OrderedDict[Hashable, None] = max(places.values(), key=len)
    return next(iter(most))


HUB = "the hub"  # this caller has no limit of its own: its connections count only in the total


@dataclass
class Refusals:
    """Counts refused requests within the last second. If there are too many, answers to further ones are delayed."""

    _since: float = field(default_factory=time.monotonic)
    _count: int = 0

    def pause(self, now: float) -> float:
        """Count one more refused request, and return the seconds for which its answer is to be delayed.

        Args:
            now: present time of the monotonic clock, in seconds.
        """
        if now - self._since >= 1.0:
            self._since, self._count = now, 0
        self._count += 1
        return REFUSAL_SECONDS if self._count > REFUSALS_A_SECOND else 0.0

    async def slow_down(self) -> None:
        """Count one more refused request, and wait for a second if there are too many within a second."""
        if seconds := self.pause(time.monotonic()):
            await asyncio.sleep(seconds)


class _Gone(HTTPMessageDelegate):
    """Rejects a request on a closed connection. Tornado alone would handle all requests that are still buffered."""

    def headers_received(self, start_line: object, headers: HTTPHeaders) -> None:
        raise HTTPInputError("the connection is closed")


class BoundedServer(HTTPServer):
    """Tornado's HTTP server with limits for its connections and time limits for each step of a request."""

    connections: Connections

    def initialize(  # type: ignore[override]
        self, request_callback: Any, connections: Connections, proves: Callable[[str, str, str], bool], **settings: Any
    ) -> None:
        """Set the size limits and time limits of requests, and the limits for connections.

        Tornado calls this instead of a constructor.

        Args:
            request_callback: the tornado application.
            connections: decides which connection is closed when there are too many.
            proves: returns whether a signature of the hub or a valid token is in a request with this method, this
                target (path and query) and this header Authorization. It matters only during a flood of new
                connections: a connection whose request has such a proof is served at once, and all others wait.
            settings: further settings of tornado's server, which take precedence over the limits here.
        """
        limits: dict[str, Any] = {
            "xheaders": True,
            "max_body_size": BODY_LIMIT_BYTES,
            "max_header_size": MAX_HEADER_BYTES,
            "chunk_size": CHUNK_BYTES,
            "idle_connection_timeout": HEADER_SECONDS,
            "body_timeout": BODY_SECONDS,
        }
        super().initialize(request_callback, **(limits | settings))
        self.connections = connections
        self._streams: dict[IOStream, float | None] = {}
        self._checking = PeriodicCallback(self._drop_slow_readers, CHECK_SECONDS * 1000)
        self._checking.start()
        self._doorway = Doorway(self._handle_connection, proves)

    def add_sockets(self, sockets: Iterable[socket.socket]) -> None:
        """Add listening sockets. Unlike in tornado, `Doorway` decides when a new connection is served."""
        for listener in sockets:
            self._sockets[listener.fileno()] = listener
            self._handlers[listener.fileno()] = add_accept_handler(listener, self._doorway.arrived)

    def handle_stream(self, stream: IOStream, address: tuple[Any, ...]) -> None:
        self._drop(self.connections.enter(stream, str(address[0]) if address else ""))
        self._streams[stream] = None
        # the system's buffer for unread answers is limited like our own
        stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        super().handle_stream(stream, address)

    def start_request(self, server_conn: object, request_conn: HTTPConnection) -> HTTPMessageDelegate:
        """Begin the next request of a connection, or reject it if the connection is closed.

        Args:
            server_conn: tornado's object for the connection, with the stream.
            request_conn: tornado's object for writing the answer to this request.
        """
        stream: IOStream = server_conn.stream  # type: ignore[attr-defined]
        return _Gone() if stream.closed() else super().start_request(server_conn, request_conn)

    def on_close(self, server_conn: object) -> None:
        super().on_close(server_conn)
        stream: IOStream = server_conn.stream  # type: ignore[attr-defined]
        self._streams.pop(stream, None)
        self.connections.leave(stream)

    def stop(self) -> None:
        self._checking.stop()
        self._doorway.close()
        super().stop()

    def _drop_slow_readers(self) -> None:
        """Close connections whose client has accepted nothing of an answer for `WRITE_SECONDS`."""
        now = time.monotonic()
        for stream, since in tuple(self._streams.items()):
            if not stream.writing():
                self._streams[stream] = None
            elif since is None:
                self._streams[stream] = now
            elif now - since > WRITE_SECONDS:
                self._drop(stream)

    def _drop(self, stream: Any) -> None:
        if stream is not None:
            stream.close()
