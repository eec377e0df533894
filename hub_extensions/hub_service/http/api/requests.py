"""The bodies that only this API takes or gives: asking for a server, and what came of asking.

Everything that the processes say to each other is in ``core/messages``.
"""

from __future__ import annotations

from dataclasses import dataclass

from hub_extensions.core.offers.offer_id import OfferId


@dataclass(frozen=True, slots=True)
class TicketRequest:
    """A user asks for a server with one of these offers, in order of preference.

    Attributes:
        offers: offer ids, at least one.
        server: name of the server; "" is the default server.
        notify_when_ready: the user hears of it with every page closed, where the admin has set a channel.
    """

    offers: tuple[OfferId, ...]
    server: str = ""
    notify_when_ready: bool = False


@dataclass(frozen=True, slots=True)
class TicketAccepted:
    """The hub was asked to start the server; its ticket appears in ``api/tickets`` a moment later."""

    user: str
    server: str
    offers: tuple[OfferId, ...]
    message: str


@dataclass(frozen=True, slots=True)
class Ready:
    """What ``health`` says to anybody."""

    ready: bool


@dataclass(frozen=True, slots=True)
class NotReady:
    """What ``health`` says to anybody while the service cannot start, or only shows what is there; `store`: why."""

    ready: bool
    store: str
