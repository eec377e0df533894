"""What a known caller of the service may do: the scopes of a token count, of a login the account itself.

A table of actions and the scopes that each needs, JupyterHub's own names. A token never does more here than at the
hub's API. Not here: who is calling (``hub_service/http/auth.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from hub_extensions.core.text.reasons import Reason, explain

ACCESS = ("access:services", "access:services!service=gpu")
"""One of these opens the door to the service; each action below asks for more."""
OF_A_SERVER = "access:servers!server="
"""A token with such a scope is a server's own, or was given to one by who visited it: code in a notebook has it."""


class ApiAction(Enum):
    """What somebody may want of the service."""

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
"""Of each row any one, beside access. JupyterHub 5 has no ``start:servers``; the hub adds what a scope implies."""
OF_ONE_SERVER = frozenset({ApiAction.START, ApiAction.KEEP, ApiAction.LEAVE})
"""Here a scope may be narrowed, to a user, a group or a server; elsewhere it has to be whole."""


@dataclass(frozen=True, slots=True)
class Person:
    """A user of the hub, or one of its services.

    Attributes:
        kind: ``user`` or ``service``.
        admin: an admin of the hub, which counts for a login alone.
        scopes: the token's own, as the hub expands them; None: a login, which has all that its account has.
    """

    name: str
    kind: str = "user"
    admin: bool = False
    groups: tuple[str, ...] = ()
    scopes: frozenset[str] | None = None

    @property
    def by_server(self) -> bool:
        """The token is of code in a notebook: a server's own, or a visitor's that the server keeps."""
        return any(scope.startswith(OF_A_SERVER) for scope in self.scopes or ())

    def may(self, action: ApiAction, of: tuple[str, str] | None = None) -> bool:
        """See `refusal`."""
        return refusal(self, action, of) is None


def has_access(scopes: frozenset[str]) -> bool:
    """A token with these scopes may come in at all."""
    return any(scope in scopes for scope in ACCESS)


def refusal(person: Person, action: ApiAction, of: tuple[str, str] | None = None) -> Reason | None:
    """Why this caller may not do this; None: it may.

    `of` is (user, server) of what is acted upon; None: it is the caller's own, or nobody's.
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
