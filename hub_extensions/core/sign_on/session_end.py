"""What ends with a session: tokens, the hub's cookie, servers. A plan, and the report of what was done.

Who ends a session, and by which request, makes no difference here; only whether a right was lost does.
Not here: doing it (``authenticator/session_ender.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from hub_extensions.core.sign_on.config import ServerPolicy, SignOnConfig, TokenPolicy
from hub_extensions.core.sign_on.sessions import EndCause, SignOnSession

OWN = frozenset({EndCause.SIGN_OUT, EndCause.BY_OWNER})
"""Ends that its user asked for."""
_SERVER_SCOPES = ("access:servers!", "users:activity!")


@dataclass(frozen=True, slots=True)
class ServerFact:
    """A server of the person. `has_lease`: it holds a GPU. `waits`: it has not started yet."""

    name: str
    has_lease: bool = False
    waits: bool = False


@dataclass(frozen=True, slots=True)
class StopOrder:
    """A server that is to stop at a time, which may be now."""

    server: str
    at: datetime


@dataclass(frozen=True, slots=True)
class EndPlan:
    """What is to be done.

    Attributes:
        is_last: no session of the person is left, so the hub's own cookie ends too.
        tokens: which tokens end.
        stops: servers to stop. kept: servers that run on.
    """

    sessions: tuple[SignOnSession, ...]
    is_last: bool
    tokens: TokenPolicy
    stops: tuple[StopOrder, ...]
    kept: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EndReport:
    """What was done.

    Attributes:
        sessions: public ids. tokens: how many were deleted. tokens_kept: how many of the person's are left.
        servers_stopped: stopped, or to be stopped at the time that `stops_at` says.
        servers_asked: servers that have asked the hub again about their open pages.
        gate_told: the gate knows; False: it has not answered yet, and is called again. None: there is no gate.
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
    """A token of the person. `session`: the hub's id of the browser that got it; None: none did."""

    id: int
    note: str
    session: str | None
    scopes: frozenset[str]
    created: datetime


def server_scopes(wanted: Collection[str], user: str, server: str) -> frozenset[str]:
    """What a server's own token may have: what it has to, and what the hub's configuration gives it, as tokens say it.

    Args:
        wanted: of the role ``server``, or ``server_token_scopes``.
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
    """The token that the hub gave to the server at this address, a moment before that `started`.

    Anybody can write a note; so it counts only where no browser got the token, where it can no more than this server
    may (`allowed`), and for one token, the last before the start.
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
    """What ends with `ending`, which are among the `living` sessions of one person.

    Servers stop with the last session only, and never for a limit: a training goes on while its user sleeps. Nor do
    they stop while nobody knows whether the account is still there (`account_unknown`), but the tokens end then.
    """
    gone = {each.id for each in ending}
    is_last = all(each.id in gone for each in living)
    if lost_right:
        stops = _stops(servers, config.servers_at_lost_right, config, now, waiting_too=True)
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
    """A place in line is kept at one's own sign-out; with the right to sign in it ends at once."""
    orders = [StopOrder(each.name, now) for each in servers if each.waits and waiting_too]
    if policy == "keep":
        return tuple(orders)
    at = now + config.drain if policy == "drain" else now
    running = (each for each in servers if not each.waits and (each.has_lease or policy != "stop-gpu"))
    return (*orders, *(StopOrder(each.name, at) for each in running))


def _tokens(config: SignOnConfig, cause: EndCause, *, is_last: bool, lost_right: bool) -> TokenPolicy:
    if lost_right:
        return config.tokens_at_lost_right
    return config.tokens_at_sign_out if cause in OWN and is_last else "session"
