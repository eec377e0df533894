"""The message to the administrator's webhook. It holds no token: its link leads to the hub, which asks for a login."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from hub_extensions.core.offers.offer_id import OfferId


@dataclass(frozen=True, slots=True)
class WebhookNotice:
    """The JSON that is sent to the webhook: one notice to one user.

    Attributes:
        version: the version of this message's format.
        id: the same at each delivery attempt, so that a receiver can drop repeats.
        kind: ``ready``: it is the user's turn and the server is up. ``warning``, ``last-warning``: the server stops
            soon. ``letter``: a message in `text` from an administrator to the holders of a device. ``training-ended``:
            a training has ended. ``training-too-long``: the server stops before its training will be done.
        server: the server's name; "" for the default server.
        url: where the user opens the server.
        title: the title of the offer.
        at: when the server was ready.
        open_until: when the GPU goes to the next in line if nobody opens the server; `None` if unopened servers are not
            stopped.
        subject, text: the administrator's templates, filled in; for a warning the built-in text.
        stops_at: for a warning and a training that is too long, when the server stops; `None` for other kinds.
        cause: for a warning, why the server stops (``idle``, ``lifetime``, ``unopened``, ``admin``, ``cpu-idle``); ""
            for other kinds.
        training: for a training, the name that its program gave it; "" without a name.
        training_state: for a training that has ended, how: ``done``, ``left`` (the loop was left before its end),
            ``failed`` (an exception) or ``vanished`` (its process is gone); "" for other kinds.
        training_ends: for a training, when it has ended or will likely end; `None` for other kinds.
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
    training: str = ""
    training_state: str = ""
    training_ends: datetime | None = None
