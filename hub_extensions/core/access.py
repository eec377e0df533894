"""The rights of an authenticated caller of the GPU service's API.

A program's rights are the scopes of its token; a person with a login has the rights of the account.

`NEEDED` lists the JupyterHub scopes for each action. A token never allows more here than at the hub's API.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from hub_extensions.core.text.reasons import Reason, explain

ACCESS = ("access:services", "access:services!service=gpu")
"""One of these scopes is needed for every access to the service; each action below needs more."""
OF_A_SERVER = "access:servers!server="
"""Prefix of a scope that marks a server's own token, or the token of a user who visits the server; code in a
notebook can read both.
"""


class ApiAction(Enum):
    """An action of the GPU service's API that a caller needs a right for. The value describes it in messages."""

    READ = "look at the offers"
    LIST_OWN = "look at one's own places in line"
    START = "start a server of one's own"
    KEEP = "keep a server of one's own on"
    LEAVE = "end a place in line"
    LIST_ALL = "look at everybody's places, leases and the cluster"
    GIVE_UP = "give up a lease"
    ORDER = "empty a card, stop or keep anybody's server, write to users"
    METRICS = "read the metrics"
    HEALTH = "read the whole health"


NEEDED: Mapping[ApiAction, tuple[str, ...]] = {
    ApiAction.READ: (),
    ApiAction.LIST_OWN: (),
    ApiAction.START: ("servers", "start:servers"),
    ApiAction.KEEP: ("servers", "start:servers"),
    ApiAction.LEAVE: ("delete:servers",),
    ApiAction.LIST_ALL: ("list:users",),
    ApiAction.GIVE_UP: ("admin:servers",),
    ApiAction.ORDER: ("admin:servers",),
    ApiAction.METRICS: ("read:metrics",),
    ApiAction.HEALTH: ("read:hub",),
}
"""Action -> scopes of JupyterHub, one of which the token must have in addition to `ACCESS`; without scopes, access is
enough. JupyterHub 5 has no ``start:servers``. The hub expands a scope that includes others.
"""
OF_ONE_SERVER = frozenset({ApiAction.START, ApiAction.KEEP, ApiAction.LEAVE})
"""For these actions a scope may be limited to a user, a group or a server; for the others it has to be unlimited."""


@dataclass(frozen=True, slots=True)
class Person:
    """The caller: a user of the hub, or one of its services.

    Attributes:
        name: name of the user or service.
        kind: ``user`` or ``service``.
        admin: whether the user is an administrator of the hub. This gives rights only to a caller with a login.
        groups: the user's groups at the hub.
        scopes: the token's scopes, as the hub expands them. `None` if the caller has a login instead of a token, and so
            all rights of the account.
    """

    name: str
    kind: str = "user"
    admin: bool = False
    groups: tuple[str, ...] = ()
    scopes: frozenset[str] | None = None

    @property
    def by_server(self) -> bool:
        """Whether code in a notebook can read the caller's token.

        Such a token belongs to a server, or was issued for a user's visit to a server.
        """
        return any(scope.startswith(OF_A_SERVER) for scope in self.scopes or ())

    def may(self, action: ApiAction, of: tuple[str, str] | None = None) -> bool:
        """Return whether the caller may perform an action. If not, `refusal` gives the reason.

        Args:
            action: the action.
            of: user and name of the server that the action changes; `None` for the caller's own server, or if no server
                is concerned.
        """
        return refusal(self, action, of) is None


def has_access(scopes: frozenset[str]) -> bool:
    return any(scope in scopes for scope in ACCESS)


def refusal(person: Person, action: ApiAction, of: tuple[str, str] | None = None) -> Reason | None:
    """Return why a caller may not perform an action; `None` if the caller may.

    Args:
        person: the caller.
        action: the action.
        of: user and name of the server that the action changes; `None` for the caller's own server, or if no server is
            concerned.
    """
    if person.scopes is None:
        return _of_login(person, action, of)
    if person.by_server and action is not ApiAction.READ:
        return explain("server-token")
    needed = NEEDED[action]
    if not needed or any(_covers(person, scope, action, of) for scope in needed):
        return None
    return explain("scope-needed", scope=" or ".join(needed))


def _of_login(person: Person, action: ApiAction, of: tuple[str, str] | None) -> Reason | None:
    own = of is None or (person.kind == "user" and of[0] == person.name)
    if person.admin or (own and action in {ApiAction.READ, ApiAction.LIST_OWN, *OF_ONE_SERVER}):
        return None
    return explain("admins-only")


def _covers(person: Person, scope: str, action: ApiAction, of: tuple[str, str] | None) -> bool:
    scopes = person.scopes or frozenset()
    if scope in scopes:
        return True
    if action not in OF_ONE_SERVER:
        return False
    user, server = of or (person.name, "")
    narrowed = {f"{scope}!user={user}", f"{scope}!server={user}/{server}"}
    if person.kind == "user" and user == person.name:
        narrowed |= {f"{scope}!group={group}" for group in person.groups}
    return not narrowed.isdisjoint(scopes)
