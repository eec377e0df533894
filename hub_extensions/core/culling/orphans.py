"""Servers without a GPU that nobody will ever stop: their hub was killed before it had noted them. In doubt: none.

A server with a GPU is found by its lease. Not here: how processes are found (``adapters/linux/server_processes.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

ServerKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A process of our hub that answers at the address its server was given.

    Attributes:
        started: with `pid` it names this very process. ancestors: pids.
        user, server: as its hub called them when it was started.
    """

    pid: int
    started: int
    ancestors: frozenset[int]
    user: str
    server: str


@dataclass(frozen=True, slots=True)
class ListedServer:
    """A server that the hub has; `pid` None: the hub does not say."""

    user: str
    server: str
    ready: bool
    pid: int | None


def unknown_to_the_hub(
    found: Collection[ServerProcess], listed: Iterable[ListedServer], busy: Collection[ServerKey]
) -> tuple[ServerProcess, ...]:
    """Of these processes those that are no server of the hub's list.

    Args:
        found: all of the machine. listed: what the hub has, in whatever state.
        busy: servers of which somebody spoke lately, or that are in line: they may be on their way.
    """
    listed = tuple(listed)
    if any(each.ready and each.pid is None for each in listed):
        return ()  # under whatever name: whose process it is, the hub does not say
    pids = {each.pid for each in listed}
    strangers = [each for each in found if not pids & {each.pid, *each.ancestors}]
    theirs = [each for each in found if pids & {each.pid, *each.ancestors}]
    doubtful = {(each.user, each.server) for each in listed if not _answers(each, theirs)} | set(busy)
    return tuple(each for each in strangers if (each.user, each.server) not in doubtful)


def _answers(listed: ListedServer, theirs: Iterable[ServerProcess]) -> bool:
    """Another process is this server beyond doubt."""
    return listed.ready and any(listed.pid in (each.pid, *each.ancestors) for each in theirs)
