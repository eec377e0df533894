"""The end of sign-on sessions: which tokens, cookies and servers end too (`EndPlan`), and what was done (`EndReport`).

A session is one browser that is signed in. The tokens, cookies and servers that end with it depend on the cause, and on
whether the user also lost the right to sign in.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from hub_extensions.core.sign_on.config import ServerPolicy, SignOnConfig, TokenPolicy
from hub_extensions.core.sign_on.sessions import EndCause, SignOnSession

OWN = frozenset({EndCause.SIGN_OUT, EndCause.BY_OWNER})
"""Causes of an end that the user ordered."""
_SERVER_SCOPES = ("access:servers!", "users:activity!")


@dataclass(frozen=True, slots=True)
class ServerFact:
    """A server of the person whose sessions end.

    Attributes:
        has_lease: whether it holds a GPU.
        waits: whether it is in line and has not started yet.
    """

    name: str
    has_lease: bool = False
    waits: bool = False


@dataclass(frozen=True, slots=True)
class StopOrder:
    """A server that will stop at a time, which may be now."""

    server: str
    at: datetime


@dataclass(frozen=True, slots=True)
class EndPlan:
    """The tokens, cookies and servers that end together with some sessions of one person.

    Attributes:
        sessions: the sessions that end.
        is_last: whether these are the person's last sessions, so that the hub's own cookie ends too.
        tokens: which tokens of the person end: those that came from the sessions (``session``), or all (``all``).
        stops: servers to stop, each with its time.
        kept: names of the servers that keep running.
    """

    sessions: tuple[SignOnSession, ...]
    is_last: bool
    tokens: TokenPolicy
    stops: tuple[StopOrder, ...]
    kept: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EndReport:
    """The result of ending some sessions of one person.

    Attributes:
        sessions: public ids of the sessions.
        tokens: number of deleted tokens.
        tokens_kept: number of the person's tokens that are left.
        servers_stopped: names of the servers that stop.
        stops_at: when the last of these servers stops; `None` if none stops.
        servers_kept: names of the servers that keep running.
        servers_asked: names of the servers that were asked to check the users of their open pages at the hub again, and
            have reported that they did.
        milliseconds: how long it took.
        gate_told: True if the gate has confirmed that the sessions ended. False if the gate has not answered yet; the
            hub then calls it again. `None` without a gate.
    """

    sessions: tuple[str, ...]
    tokens: int = 0
    tokens_kept: int = 0
    servers_stopped: tuple[str, ...] = ()
    stops_at: datetime | None = None
    servers_kept: tuple[str, ...] = ()
    servers_asked: tuple[str, ...] = ()
    milliseconds: int = 0
    gate_told: bool | None = None


@dataclass(frozen=True, slots=True)
class TokenFact:
    """An API token of the person whose sessions end.

    Attributes:
        note: the token's note at the hub.
        session: the hub's id of the browser session that got the token; `None` if no browser session did.
    """

    id: int
    note: str
    session: str | None
    scopes: frozenset[str]
    created: datetime


def server_scopes(wanted: Collection[str], user: str, server: str) -> frozenset[str]:
    """Return the scopes that a server's own token may have, in the form in which tokens list them.

    Args:
        wanted: the configured scopes: those of the role ``server``, or ``server_token_scopes``.
        user, server: names of the user and of the server, which replace ``!user`` and ``!server`` in the scopes.
    """
    filters = {"server": f"!server={user}/{server}", "user": f"!user={user}"}
    found = set(wanted)
    for scope in wanted:
        name, mark, kind = scope.rpartition("!")
        if mark and kind in filters:
            found.add(name + filters[kind])
    return frozenset(found)


def server_token(
    tokens: Sequence[TokenFact], address: str, started: datetime | None, allowed: frozenset[str] = frozenset()
) -> TokenFact | None:
    """Return the token that the hub gave to the server at this address shortly before `started`.

    The hub writes the server's address into the token's note, but anybody can create a token with such a note. So a
    token counts only if no browser session got it, and if each of its scopes is about one server or in `allowed`. Of
    these tokens, the last one that was created before the start is returned, or `None` if no token counts.

    Args:
        tokens: the tokens of the server's user.
        address: the server's address in the note.
        started: when the server started; `None` if it is not known, so that the newest token counts.
        allowed: the scopes that the server's own token may have, from `server_scopes`.
    """
    own = [
        each
        for each in tokens
        if each.note == f"Server at {address}"
        and each.session is None
        and all(scope.startswith(_SERVER_SCOPES) or scope in allowed for scope in each.scopes)
        and (started is None or each.created <= started)
    ]
    return max(own, key=lambda each: (each.created, each.id), default=None)


def plan_end(
    ending: Collection[SignOnSession],
    living: Collection[SignOnSession],
    servers: Sequence[ServerFact],
    config: SignOnConfig,
    cause: EndCause,
    now: datetime,
    *,
    lost_right: bool = False,
    account_unknown: bool = False,
) -> EndPlan:
    """Decide what ends with the sessions `ending` of one person.

    The settings decide which servers stop, but only if the person lost the right to sign in, or ended the last session
    by an action of their own (`OWN`). No server stops because a session passed a limit: a training continues while its
    user sleeps.

    Args:
        ending: the sessions that end.
        living: all sessions of the person that have not ended yet, including `ending`.
        servers: the person's servers.
        config: the settings that define which tokens and servers end.
        cause: why the sessions end.
        lost_right: the person may no longer sign in, so that servers stop even if other sessions last.
        account_unknown: it is unknown whether the account still exists. With the last session the tokens then end, and
            the servers keep running.
    """
    gone = {each.id for each in ending}
    is_last = all(each.id in gone for each in living)
    if lost_right:
        stops = _stops(servers, config.servers_at_revocation, config, now, waiting_too=True)
    elif cause in OWN and is_last:
        stops = _stops(servers, config.servers_at_sign_out, config, now, waiting_too=False)
    else:
        stops = ()
    stopping = {order.server for order in stops}
    return EndPlan(
        sessions=tuple(ending),
        is_last=is_last,
        tokens=_tokens(config, cause, is_last=is_last, lost_right=lost_right or (account_unknown and is_last)),
        stops=stops,
        kept=tuple(each.name for each in servers if each.name not in stopping),
    )


def _stops(
    servers: Sequence[ServerFact], policy: ServerPolicy, config: SignOnConfig, now: datetime, *, waiting_too: bool
) -> tuple[StopOrder, ...]:
    """Return which servers stop, and when.

    Args:
        policy: the setting that decides: ``keep`` stops no running server, ``stop`` all of them, ``stop-gpu`` those
            with a GPU, ``drain`` all of them after the time `config.drain`.
        waiting_too: whether servers that wait in line leave it at once. They do if the user loses the right to sign in;
            at a sign-out they keep their places.
    """
    orders = [StopOrder(each.name, now) for each in servers if each.waits and waiting_too]
    if policy == "keep":
        return tuple(orders)
    at = now + config.drain if policy == "drain" else now
    running = (each for each in servers if not each.waits and (each.has_lease or policy != "stop-gpu"))
    return (*orders, *(StopOrder(each.name, at) for each in running))


def _tokens(config: SignOnConfig, cause: EndCause, *, is_last: bool, lost_right: bool) -> TokenPolicy:
    if lost_right:
        return config.tokens_at_revocation
    return config.tokens_at_sign_out if cause in OWN and is_last else "session"
