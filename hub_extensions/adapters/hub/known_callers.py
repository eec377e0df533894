"""A cache of the owners of tokens, as the hub last reported them: for some seconds, or for some minutes if the token is
a server's own.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from math import inf

_CALLERS = 16_384
_CALLER_SECONDS = 15.0
_SERVER_SECONDS = 300.0
"""Time for which the owner of a server's own token is cached for requests about that server only, because each of 5,000
servers sends one every few seconds. JupyterHub's own services cache every token for this long
(``HubAuth.cache_max_age``).
"""
_STRANGER_SECONDS = 5.0
_PROVED = 65_536  # number of tokens remembered as once valid; the hub is queried about these first
_SERVER_SCOPE = "access:servers!server="


@dataclass(frozen=True, slots=True)
class Caller:
    """The owner of a token, who sends requests to the service with it.

    Attributes:
        name: name of the user or service.
        kind: ``user`` or ``service``.
        admin: whether the user is an administrator. This is True also for the token of an administrator's server,
            although such a token may do only what its scopes allow.
        groups: groups of the user.
        scopes: the token's own, expanded by the hub.
    """

    name: str
    kind: str
    admin: bool
    groups: tuple[str, ...]
    scopes: frozenset[str]


def server_of(caller: Caller) -> tuple[str, str] | None:
    """Return the (user, server) that the token was made for, from its one scope ``access:servers!server=user/name``.

    Returns `None` if the token was not made for one server, or if its owner is not the server's user (but an
    administrator who visits the server).
    """
    named = {scope.removeprefix(_SERVER_SCOPE) for scope in caller.scopes if scope.startswith(_SERVER_SCOPE)}
    if caller.kind != "user" or len(named) != 1:
        return None
    user, slash, server = named.pop().partition("/")  # the hub allows a slash in neither name, and escapes nothing
    if not slash or user != caller.name:
        return None
    return user, server


class KnownCallers:
    """The cache of token owners. It is indexed by the hash of the token; the token itself is not kept.

    Attributes:
        times_forgotten: how often `forget` was called. If this number changes while the hub is asked about a token, the
            answer may be outdated and is not stored.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[float, Caller | None]] = {}
        self._proved: dict[bytes, None] = {}
        self.times_forgotten = 0

    def forget(self, name: str) -> None:
        """Drop the tokens of this user or service. An answer of the hub that is still pending will not be stored."""
        self.times_forgotten += 1
        self._known = {key: kept for key, kept in self._known.items() if kept[1] is not None and kept[1].name != name}

    def was_proved(self, token: str) -> bool:
        """Return whether the hub's last answer about this token was that the token is valid."""
        return _digest(token) in self._proved

    def find(self, token: str, now: float, *, as_server: bool = False) -> tuple[bool, Caller | None]:
        """Look up the cached answer of the hub about a token.

        Args:
            token: the token to look up.
            now: the present time on the monotonic clock.
            as_server: the request concerns only the server to which the token belongs, so an older answer is accepted.

        Returns:
            Whether there is an answer that is recent enough, and the owner of the token. If there is an answer and the
            owner is `None`, the hub reported that the token is invalid.
        """
        asked, caller = self._known.get(_digest(token), (-inf, None))
        return now < asked + _kept_for(caller, as_server), caller

    def keep(self, token: str, caller: Caller | None, now: float) -> None:
        self._note(_digest(token), caller is not None)
        if len(self._known) >= _CALLERS:
            self._known = {key: kept for key, kept in self._known.items() if now < kept[0] + _kept_for(kept[1], True)}
        while len(self._known) >= _CALLERS:
            del self._known[next(iter(self._known))]
        self._known[_digest(token)] = (now, caller)

    def _note(self, digest: bytes, proved: bool) -> None:
        self._proved.pop(digest, None)
        if not proved:
            return
        while len(self._proved) >= _PROVED:
            del self._proved[next(iter(self._proved))]
        self._proved[digest] = None


def _kept_for(caller: Caller | None, as_server: bool) -> float:
    if caller is None:
        return _STRANGER_SECONDS
    return _SERVER_SECONDS if as_server and server_of(caller) is not None else _CALLER_SECONDS


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
