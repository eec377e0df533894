"""What a webhook of the admin's is sent. Never a token: the address leads to the hub, which asks who comes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from hub_extensions.core.offers.offer_id import OfferId


@dataclass(frozen=True, slots=True)
class WebhookNotice:
    """One notice to one user.

    Attributes:
        id: the same at each try: whoever has seen it already may drop it. `version` is this message's.
        kind: ``ready``: it is the user's turn, and the server is there. ``warning``, ``last-warning``: it stops soon.
            ``letter``: an admin writes to those on a card, and `text` is what.
        server: "" is the default server. url: where the user opens it. title: of the offer.
        at: when the server was ready. open_until: when its GPU goes to the next in line unless the server is opened;
            None: nothing stops an unopened server here.
        subject, text: the admin's templates, filled in; of a warning our own.
        stops_at, cause: of a warning: when it stops, and for what (``idle``, ``lifetime``, ``unopened``, ``admin``,
            ``cpu-idle``).
    """

    version: int
    id: str
    kind: str
    user: str
    server: str
    url: str
    offer: OfferId
    title: str
    at: datetime
    open_until: datetime | None
    subject: str
    text: str
    stops_at: datetime | None = None
    cause: str = ""
