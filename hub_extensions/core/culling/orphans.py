"""Find processes of servers without a GPU that the hub does not know, because it was killed before it recorded them.

Nobody would ever stop such a process. If it is not certain, a process counts as that of a known server. A server with a
GPU is found by its lease instead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

ServerKey = tuple[str, str]
"""Name of the user and of the server."""


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A process of a server of this hub, which listens at the address that the server was given.

    Attributes:
        pid: the process id.
        started: start time of the process, which identifies it together with `pid`.
        ancestors: pids of its parent, of the parent's parent, and so on.
        user, server: the names in the environment with which it was started.
    """

    pid: int
    started: int
    ancestors: frozenset[int]
    user: str
    server: str


@dataclass(frozen=True, slots=True)
class ListedServer:
    """A server in the hub's list.

    Attributes:
        ready: whether the hub reports it as ready.
        pid: its process; `None` if the hub does not report it.
    """

    user: str
    server: str
    ready: bool
    pid: int | None


def unknown_to_the_hub(
    found: Collection[ServerProcess], listed: Iterable[ListedServer], busy: Collection[ServerKey]
) -> tuple[ServerProcess, ...]:
    """Return the processes that do not belong to any server of the hub's list.

    Empty if the hub lists a ready server without its process, because any of the processes may be that server.

    Args:
        found: all processes of servers on the machine.
        listed: the hub's servers in every state.
        busy: servers that the hub reported lately, or that wait in line, so that they may be starting.
    """
    listed = tuple(listed)
    if any(each.ready and each.pid is None for each in listed):
        return ()  # any process may be that server
    pids = {each.pid for each in listed}
    strangers = [each for each in found if not pids & {each.pid, *each.ancestors}]
    theirs = [each for each in found if pids & {each.pid, *each.ancestors}]
    doubtful = {(each.user, each.server) for each in listed if not _answers(each, theirs)} | set(busy)
    return tuple(each for each in strangers if (each.user, each.server) not in doubtful)


def _answers(listed: ListedServer, theirs: Iterable[ServerProcess]) -> bool:
    """Return whether the hub lists a server as ready, and the server's process is found on the machine.

    It is found if one of `theirs` is the process that the hub lists, or descends from that process.

    Args:
        listed: a server as the hub lists it.
        theirs: processes on the machine that the hub lists for any server, or that descend from a listed process.
    """
    return listed.ready and any(listed.pid in (each.pid, *each.ancestors) for each in theirs)
