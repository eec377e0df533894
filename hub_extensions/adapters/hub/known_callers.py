"""Whose tokens these are, as the hub said last, for some seconds; a server's own token for some minutes.

Not here: the question itself (``jupyterhub_api.py``), and what a caller may do (``core/access.py``).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from math import inf

_CALLERS = 16_384
_CALLER_SECONDS = 15.0
_SERVER_SECONDS = 300.0
"""Of one server's own token, where it is asked for that server alone: each of 5,000 servers asks every few seconds, and
each would be a question to the hub. So long JupyterHub's own services remember any (``HubAuth.cache_max_age``)."""
_STRANGER_SECONDS = 5.0
_PROVED = 65_536
"""So many tokens that were once somebody's are asked about before the others."""
_SERVER_SCOPE = "access:servers!server="


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose token it is. `kind` is ``user`` or ``service``; `scopes` are the token's own, expanded by the hub.

    `admin` is about the person: a token of an admin's server has it as well, and may still do only what its scopes say.
    """

    name: str
    kind: str
    admin: bool
    groups: tuple[str, ...]
    scopes: frozenset[str]


def server_of(caller: Caller) -> tuple[str, str] | None:
    """(user, server) that the caller's token was made for, from its one ``access:servers!server=user/name`` scope.

    None: it is not one server's token, or it is another user's (an admin who visits somebody's server).
    """
    named = {scope.removeprefix(_SERVER_SCOPE) for scope in caller.scopes if scope.startswith(_SERVER_SCOPE)}
    if caller.kind != "user" or len(named) != 1:
        return None
    user, slash, server = named.pop().partition("/")  # the hub allows a slash in neither name, and escapes nothing
    if not slash or user != caller.name:
        return None
    return user, server


class KnownCallers:
    """Callers by the hash of their token, for some seconds. The token itself is not kept."""

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[float, Caller | None]] = {}
        self._proved: dict[bytes, None] = {}
        self.times_forgotten = 0

    def forget(self, name: str) -> None:
        """Tokens of this user or service are asked about again; an answer that is under way now counts no more."""
        self.times_forgotten += 1
        self._known = {key: kept for key, kept in self._known.items() if kept[1] is not None and kept[1].name != name}

    def was_proved(self, token: str) -> bool:
        """It was somebody's when it was asked about last."""
        return _digest(token) in self._proved

    def find(self, token: str, now: float, *, as_server: bool = False) -> tuple[bool, Caller | None]:
        """Whether it is known, and whose it is. `as_server`: it opens nothing but what is its own server's."""
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
