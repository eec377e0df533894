"""Messages of this API alone: a user's request for a server, and readiness.

Messages between processes are in ``core/messages``.
"""

from __future__ import annotations

from dataclasses import dataclass

from hub_extensions.core.offers.offer_id import OfferId


@dataclass(frozen=True, slots=True)
class TicketRequest:
    """A user's request for a server with one of these offers, in order of preference.

    Attributes:
        offers: offer ids, at least one.
        server: name of the server; "" is the default server.
        notify_when_ready: notify the user when the server is ready, if the administrator has set up a channel.
    """

    offers: tuple[OfferId, ...]
    server: str = ""
    notify_when_ready: bool = False


@dataclass(frozen=True, slots=True)
class TicketAccepted:
    """The answer to a user's request for a server: the hub was asked to start this server.

    The ticket (place in line) appears in ``api/tickets`` a moment later.

    Attributes:
        user, server: name of the user and of the server.
        offers: ids of the requested offers, in order of preference.
        message: a sentence for the user.
    """

    user: str
    server: str
    offers: tuple[OfferId, ...]
    message: str


@dataclass(frozen=True, slots=True)
class Ready:
    """The part of ``health`` that everybody may read while the service can start."""

    ready: bool


@dataclass(frozen=True, slots=True)
class NotReady:
    """The part of ``health`` that everybody may read while the service cannot start or is read-only.

    Attributes:
        ready: always False.
        store: why the service cannot start or is read-only.
    """

    ready: bool
    store: str
