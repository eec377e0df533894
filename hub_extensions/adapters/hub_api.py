"""What the service asks of JupyterHub over its REST API, the same on JupyterHub 5.5 and 6.1.

Listing, starting and stopping, and identifying use HTTP clients of their own: a slow list never delays a stop.
Not here: when a server is started or stopped, and who may ask.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


class HubAway(Exception):
    """The hub did not answer (in time). Whether it did what was asked is not known.

    Attributes:
        sentence: for the log and ``health``.
    """

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


class HubRefused(Exception):
    """The hub answered, and the answer is no.

    Attributes:
        status: HTTP status. message: the hub's own words.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message


class StartRefused(HubRefused):
    """The hub did not start the server (429: too many at once; 400: it runs already, or a bad name)."""


class StopRefused(HubRefused):
    """The hub did not stop the server."""


@dataclass(frozen=True, slots=True)
class HubUser:
    """A user as the hub knows it."""

    name: str
    admin: bool
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HubServer:
    """A server that is not stopped.

    Attributes:
        server: "" is the default server.
        ready: it runs and answers. pending: ``spawn``, ``stop`` or None.
        started, last_activity: aware UTC.
        user_options: as the hub keeps them; empty when there are none.
        admin, groups: of its user.
        pid: from the spawner's state, where the scope ``admin:server_state`` lets us see it.
    """

    user: str
    server: str
    ready: bool
    pending: str | None
    started: datetime | None
    last_activity: datetime | None
    user_options: Mapping[str, object] = field(default_factory=dict)
    admin: bool = False
    groups: tuple[str, ...] = ()
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class Caller:
    """Whose token it is. `kind` is ``user`` or ``service``; `scopes` are the token's own, expanded by the hub."""

    name: str
    kind: str
    admin: bool
    groups: tuple[str, ...]
    scopes: frozenset[str]


def server_of(caller: Caller) -> tuple[str, str] | None:
    """(user, server) that the caller's token was made for, from its one ``access:servers!server=user/name`` scope.

    None: it is not one server's token, or it is another user's (an admin who visits somebody's server).
    """


class HubApi:
    """The hub's REST API. Every method raises `HubAway` when the hub does not answer."""

    def __init__(self, url: str, token: str) -> None:
        """`url` ends in ``/hub/api`` (a trailing slash is fine); `token` is the service's own."""

    async def servers(self) -> tuple[HubServer, ...]:
        """All servers that are not stopped, pending spawns and stops included, of all users."""

    async def users(self) -> tuple[HubUser, ...]:
        """All users."""

    async def user(self, name: str) -> HubUser | None:
        """One user; None: there is no such user."""

    async def server(self, user: str, server: str) -> HubServer | None:
        """One server that is not stopped; None: there is none."""

    async def start(self, user: str, server: str, options: Mapping[str, object]) -> None:
        """Ask the hub to start a server; a spawn that is pending already is fine.

        Raises:
            StartRefused: with the hub's status and words.
        """

    async def stop(self, user: str, server: str) -> bool:
        """Ask the hub to stop a server. False: nothing was sent, as it is pending a spawn; True: it stops, or is gone.

        Raises:
            StopRefused: with the hub's status and words.
        """

    async def identify(self, token: str) -> Caller | None:
        """Whose token this is; None: nobody's. Remembered for some seconds."""

    async def up(self) -> bool:
        """The hub answers. Never raises."""

    def close(self) -> None:
        """Close the clients. Can be called twice."""
