"""What keeps strangers from taking the service's files, memory and time: bounded connections, and time for each step.

A connection belongs to a stranger until a request on it has proved its caller. Strangers have room of their own, in all
and for each address; where it is full, the newest takes the place of the one that has been silent the longest. So who
sends half a request cannot keep others out, also where all of them come through one proxy. The hub and users' servers
keep the room that they have once proved to be theirs. Where new connections come as a flood, `doorway.py` lets those in
first whose first words prove something. Not here: who is who (``auth.py``).
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

HEADER_SECONDS = 30.0
"""How long a connection may be idle, and how long the lines of a request may take."""
BODY_SECONDS = 15.0
WRITE_SECONDS = 20.0
"""A reader that takes nothing of an answer for so long is dropped."""
CHECK_SECONDS = 2.0
MAX_HEADER_BYTES = FIRST_BYTES
CHUNK_BYTES = 16 * 1024
SEND_BUFFER_BYTES = 64 * 1024
OWN_FILES = 256
"""Files that are not connections of this server: store, hub, cluster, log."""
REFUSALS_A_SECOND = 50
"""More refused requests than this within a second are a flood: each further one is answered later."""
REFUSAL_SECONDS = 1.0


class Room(NamedTuple):
    """How many connections there may be: of strangers, of them from one address, of known callers, and of each."""

    strangers: int = 512
    an_address: int = 256
    known: int = 4096
    a_caller: int = 16


def room_within(files: int) -> Room:
    """As much as so many open files allow."""
    free = max(files - OWN_FILES, 64)
    full = Room()
    strangers = min(full.strangers, free // 3)
    return Room(strangers, min(full.an_address, strangers), min(full.known, free - strangers), full.a_caller)


def raise_file_limit() -> int:
    """Allow this process as many open files as it may have at all; returns how many these are."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return Room().strangers + Room().known + OWN_FILES if hard == resource.RLIM_INFINITY else hard


class Connections:
    """Who has which place: decides whose connection is closed where there is none left. Holds no socket's state."""

    def __init__(self, room: Room | None = None) -> None:
        self.room = room or Room()
        self._strangers: dict[str, OrderedDict[Hashable, None]] = {}
        self._known: dict[Hashable, OrderedDict[Hashable, None]] = {}
        self._at: dict[Hashable, str] = {}
        self._caller: dict[Hashable, Hashable] = {}

    @property
    def strangers(self) -> int:
        """How many connections of strangers there are."""
        return len(self._at) - len(self._caller)

    def enter(self, one: Hashable, address: str) -> Hashable | None:
        """A new connection; returns the one that has to go for it."""
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

    def heard(self, one: Hashable) -> None:
        """It has sent a whole request: of the strangers it is the last to go."""
        if one in self._at and one not in self._caller:
            self._strangers[self._at[one]].move_to_end(one)

    def prove(self, one: Hashable, caller: Hashable) -> Hashable | None:
        """A request on it has proved this caller; returns the connection that has to go for it."""
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
        """A request on it has proved its caller."""
        return one in self._caller

    def leave(self, one: Hashable) -> None:
        """A connection is gone. Can be said twice."""
        self._forget(one)
        self._at.pop(one, None)

    def _forget(self, one: Hashable) -> None:
        """Take its place away, whichever it has."""
        address, caller = self._at.get(one), self._caller.pop(one, None)
        places: dict[Any, OrderedDict[Hashable, None]] = self._strangers if caller is None else self._known
        key = address if caller is None else caller
        if key in places:
            places[key].pop(one, None)
            if not places[key]:
                del places[key]


def _oldest_of_most(places: Mapping[Any, OrderedDict[Hashable, None]]) -> Hashable:
    """Who has the most of them pays first."""
    most: OrderedDict[Hashable, None] = max(places.values(), key=len)
    return next(iter(most))


HUB = "the hub"
"""The one caller whose connections are counted only together with all others."""


@dataclass
class Refusals:
    """How many requests were refused within the last second; in a flood each waits, so that it takes little time."""

    _since: float = field(default_factory=time.monotonic)
    _count: int = 0

    def pause(self, now: float) -> float:
        """One more; seconds until it is answered."""
        if now - self._since >= 1.0:
            self._since, self._count = now, 0
        self._count += 1
        return REFUSAL_SECONDS if self._count > REFUSALS_A_SECOND else 0.0

    async def slow_down(self) -> None:
        """Wait, where there is a flood."""
        if seconds := self.pause(time.monotonic()):
            await asyncio.sleep(seconds)


class _Gone(HTTPMessageDelegate):
    """For a request whose connection is closed: tornado would have all answered that are still in its memory."""

    def headers_received(self, start_line: object, headers: HTTPHeaders) -> None:
        """Nobody reads an answer."""
        raise HTTPInputError("the connection is closed")


class BoundedServer(HTTPServer):
    """An HTTP server whose connections are bounded, and which waits for nobody for ever."""

    connections: Connections

    def initialize(  # type: ignore[override]
        self, request_callback: Any, connections: Connections, proves: Callable[[str, str, str], bool], **settings: Any
    ) -> None:
        """Called by tornado in place of a constructor. `proves`: as the doorway's."""
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
        """As tornado's own, but what comes in passes the doorway."""
        for listener in sockets:
            self._sockets[listener.fileno()] = listener
            self._handlers[listener.fileno()] = add_accept_handler(listener, self._doorway.arrived)

    def handle_stream(self, stream: IOStream, address: tuple[Any, ...]) -> None:
        """A new connection."""
        self._drop(self.connections.enter(stream, str(address[0]) if address else ""))
        self._streams[stream] = None
        # what the system keeps of unread answers is as bounded as what we keep
        stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        super().handle_stream(stream, address)

    def start_request(self, server_conn: object, request_conn: HTTPConnection) -> HTTPMessageDelegate:
        """The next request of a connection; none of one that is gone, though more of them may have come before."""
        stream: IOStream = server_conn.stream  # type: ignore[attr-defined]
        return _Gone() if stream.closed() else super().start_request(server_conn, request_conn)

    def on_close(self, server_conn: object) -> None:
        """A connection is gone."""
        super().on_close(server_conn)
        stream: IOStream = server_conn.stream  # type: ignore[attr-defined]
        self._streams.pop(stream, None)
        self.connections.leave(stream)

    def stop(self) -> None:
        """No new connections."""
        self._checking.stop()
        self._doorway.close()
        super().stop()

    def _drop_slow_readers(self) -> None:
        """What has been written and is not taken for long."""
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
