"""Finds the processes of one hub's servers on this machine.

Every process that a server starts inherits the hub's mark (an environment variable), but only the server itself also
listens at the server's port. Linux only.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterator
from urllib.parse import urlsplit

from hub_extensions.adapters.linux import procfs
from hub_extensions.core.culling.orphans import ServerProcess

HUB_MARK = "JUPYTERHUB_GPU_HUB"  # the environment variable with the mark of a hub
_LISTENING = b"0A"


def mark_of(secret: str) -> str:
    """Derive the value of a hub's mark (the environment variable of all its servers' processes) from the hub's secret.

    The secret cannot be recovered from the mark. "" without a secret.
    """
    return hmac.new(secret.encode(), b"servers of this hub", hashlib.sha256).hexdigest()[:32] if secret else ""


def servers(mark: str) -> tuple[ServerProcess, ...]:
    """Return the processes of this hub's servers that have no lease of a GPU.

    Servers with a lease are found by their lease mark (``procfs.py``).

    Args:
        mark: the hub's mark, from `mark_of`; with "" the result is empty.
    """
    found = (_server(pid, mark) for pid in procfs.pids()) if mark else iter(())
    return tuple(each for each in found if each is not None)


def _server(pid: int, mark: str) -> ServerProcess | None:
    environment = procfs.environment(pid)
    started = procfs.start_time(pid)
    if started is None or environment.get(HUB_MARK) != mark or procfs.LEASE_MARK in environment:
        return None
    port = _port(environment.get("JUPYTERHUB_SERVICE_URL", ""))
    if port is None or not _listens(pid, port) or not procfs.alive(pid, started):
        return None
    return ServerProcess(
        pid,
        started,
        frozenset(_ancestors(pid)),
        environment.get("JUPYTERHUB_USER", ""),
        environment.get("JUPYTERHUB_SERVER_NAME", ""),
    )


def _port(address: str) -> int | None:
    try:
        return urlsplit(address).port
    except ValueError:
        return None


def _listens(pid: int, port: int) -> bool:
    ours = {f"socket:[{inode}]" for inode in _listeners(pid, port)}
    return bool(ours) and any(link in ours for link in _links(f"/proc/{pid}/fd"))


def _listeners(pid: int, port: int) -> Iterator[str]:
    """Yield the inodes of the sockets that listen at the port, in the network namespace of the process `pid`."""
    for table in ("tcp", "tcp6"):
        try:
            with open(f"/proc/{pid}/net/{table}", "rb") as file:
                rows = [line.split() for line in file.readlines()[1:]]
        except OSError:  # it ended meanwhile, or the kernel lacks this table
            continue
        yield from (row[9].decode() for row in rows if row[3] == _LISTENING and int(row[1].split(b":")[1], 16) == port)


def _links(directory: str) -> Iterator[str]:
    try:
        names = os.listdir(directory)
    except OSError:  # it ended meanwhile, or we may not read it
        return
    for name in names:
        try:
            yield os.readlink(f"{directory}/{name}")
        except OSError:  # closed meanwhile
            continue


def _ancestors(pid: int) -> Iterator[int]:
    while (process := procfs.describe(pid)) is not None and process.ppid > 1:
        pid = process.ppid
        yield pid
