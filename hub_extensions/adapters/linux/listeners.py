"""Finds out which account listens at a port of this machine, and verifies connections before anything is sent.

The port of a service that was killed can be taken by any account. A client with a secret therefore asks the kernel
whose socket accepts its connection. It asks before and after connecting and requires the same socket, because a socket
that was closed in between may have accepted the connection. Standard library and tornado only, because users'
servers use this too.
"""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tornado.iostream import IOStream
from tornado.tcpclient import TCPClient

from hub_extensions.adapters.linux.socket_diag import listening

_TABLES = ("tcp", "tcp6")
_LISTENS = rb"^ *\d+: ([0-9A-F]+):%04X [0-9A-F]+:[0-9A-F]{4} 0A \S+ \S+ \S+ +(\d+) +\d+ +(\d+) "
_ROOT = 0


class ForeignListener(OSError):
    """The service's port is not held by the service's account, or the account cannot be determined. Nothing
    was sent.
    """


@dataclass(frozen=True, slots=True)
class ListeningSocket:
    """A listening socket of this machine.

    Attributes:
        address: the bound address in hexadecimal, as the kernel writes it.
        account: the uid that created it.
        inode: identifies the socket while it exists.
    """

    address: bytes
    account: int
    inode: int


def listeners(port: int) -> tuple[ListeningSocket, ...]:
    """Return all sockets that listen at this port on any address. Raises OSError if the kernel does not list them."""
    try:
        return tuple(ListeningSocket(_spelled(each.packed), each.account, each.inode) for each in listening(port))
    except OSError:  # some sandboxes provide only the tables
        return listeners_in(Path("/proc/net"), port)


def listeners_in(place: Path, port: int) -> tuple[ListeningSocket, ...]:
    """Return the sockets that listen at this port, from the kernel's tables of sockets.

    Args:
        place: the folder with the tables, such as ``/proc/net``.
        port: the port.

    Raises:
        OSError: the tables cannot be read.
    """
    wanted = re.compile(_LISTENS % port, re.MULTILINE)
    tables = [place / name for name in _TABLES]
    text = b"\n".join(table.read_bytes() for table in tables if table.name == "tcp" or table.exists())
    return tuple(ListeningSocket(address, int(uid), int(inode)) for address, uid, inode in wanted.findall(text))


def accepting(found: tuple[ListeningSocket, ...], address: str) -> tuple[ListeningSocket, ...]:
    """Return those of the listening sockets that accept a connection to this IP address.

    These are the sockets with the most specific matching address: a socket of the address itself comes before one of
    all addresses.
    """
    for spelled in _nearest_first(ip_address(address)):
        if nearest := tuple(each for each in found if each.address == spelled):
            return nearest
    return ()


def accounts_at(host: str, port: int) -> frozenset[int] | None:
    """Return the uids of the accounts whose sockets accept a connection to this host and port; empty if nobody listens.

    `None` if the kernel does not list the sockets, or the host cannot be resolved.
    """
    try:
        found = listeners(port)
        places = {str(each[4][0]) for each in socket.getaddrinfo(host or "127.0.0.1", port, type=socket.SOCK_STREAM)}
    except OSError:
        return None
    return frozenset(each.account for place in places for each in accepting(found, place))


class ListenerCheck:
    """Checks that the other end of one connection belongs to the expected account, before a secret is sent.

    Create it before connecting, and call `check` with the connected socket.

    Args:
        port: the port to which the connection is made.
        account: the uid that has to listen; `None` if nothing is verified, because the service runs on another machine
            or under an account of its own.
    """

    def __init__(self, port: int, account: int | None) -> None:
        self._port = port
        self._account = account
        self._before = frozenset(_listeners_or_none(port)) if account is not None else frozenset()

    def check(self, connected: socket.socket) -> None:
        """Check who is at the other end of a connection, before a secret is sent to it.

        Raises:
            ForeignListener: the other end is on this machine, and belongs neither to the expected account nor to root.
        """
        if self._account is None:
            return
        address = str(connected.getpeername()[0])
        if address != connected.getsockname()[0]:
            return  # another machine, or another network of this one
        found = accepting(_listeners_or_none(self._port), address.partition("%")[0])
        strangers = sorted({each.account for each in found} - {self._account, _ROOT})
        if strangers:
            raise ForeignListener(f"port {self._port} is held by another account (uid {strangers[0]})")
        if not found or not self._before.issuperset(found):
            raise ForeignListener(f"whose port {self._port} is cannot be seen")


def check_address(url: str, account: int | None) -> None:
    """Check who listens at an address before code of another library connects to it.

    That code does not give access to its socket, so a `ListenerCheck` is impossible. A change between this check and
    the connection is not noticed. An address where nobody listens, or that is not of this machine, is accepted.

    Args:
        url: the address.
        account: the uid that has to listen there; `None` if nothing is verified.

    Raises:
        ForeignListener: another account listens there.
    """
    place = urlsplit(url)
    host, port = place.hostname or "", place.port or (443 if place.scheme == "https" else 80)
    if account is None or not is_of_this_machine(host):
        return
    found = accounts_at(host, port)
    if found is None:
        raise ForeignListener(f"whose port {port} is cannot be seen")
    if strangers := sorted(found - {account, _ROOT}):
        raise ForeignListener(f"port {port} is held by another account (uid {strangers[0]})")


def is_of_this_machine(host: str) -> bool:
    """Return whether all addresses of this host belong to this machine, so that its listeners can be seen."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)
        for family, kind, protocol, _, place in found:
            with socket.socket(family, kind, protocol) as probe:
                probe.bind((place[0], 0, *place[2:]))
    except OSError:
        return False
    return bool(found)


class VerifyingTCPClient(TCPClient):
    """Tornado's TCP client, which checks who listens at the other end of each connection before anything is sent.

    Args:
        account: the uid that has to listen, if the address is on this machine; `None` to accept any.
    """

    def __init__(self, account: int | None) -> None:
        super().__init__()
        self._account = account

    async def connect(self, host: str, port: int, *args: Any, **options: Any) -> IOStream:
        """Connect like tornado's client.

        Raises:
            ForeignListener: another account listens at the address.
        """
        proof = ListenerCheck(port, self._account)
        stream = await super().connect(host, port, *args, **options)
        try:
            proof.check(stream.socket)
        except OSError:
            stream.close()
            raise
        return stream


def _listeners_or_none(port: int) -> tuple[ListeningSocket, ...]:
    try:
        return listeners(port)
    except OSError:
        return ()


def _nearest_first(address: IPv4Address | IPv6Address) -> Iterator[bytes]:
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    v4 = address if isinstance(address, IPv4Address) else mapped
    if v4 is not None:
        yield from (_spelled(v4.packed), _spelled(bytes(4)), _spelled(bytes(10) + b"\xff\xff" + v4.packed))
    else:
        yield _spelled(address.packed)
    yield _spelled(bytes(16))


def _spelled(packed: bytes) -> bytes:
    """Format an address as ``/proc/net/tcp`` does: words of four bytes, each as a number in this machine's byte
    order.
    """
    return b"".join(b"%08X" % word for word in struct.unpack(f"={len(packed) // 4}I", packed))
