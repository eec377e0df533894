"""An event of the sign-on audit log, such as a sign-in or an ended session. It contains no cookie, token or address."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

SESSION_LETTERS = 8
"""Number of letters of a session's public id that an event contains."""

EventKind = Literal[
    "signed-in",
    "refused",
    "ended",
    "pinned",
    "name-taken",
    "logout-refused",
    "provider-away",
    "provider-back",
    "groups-changed",
    "groups-unknown",
    "groups-ended",
    "admin-given",
    "admin-ended",
    "account-unknown",
    "account-known",
]


@dataclass(frozen=True, slots=True)
class SignOnEvent:
    """An event of the sign-on audit log, such as a sign-in or an ended session.

    Attributes:
        user: name of the user; `None` if no such user is known, or if the account was deleted since.
        session: the first letters of the session's public id; "" if the event concerns no session.
        by: the admin or service who caused the event; "" otherwise.
        cause: why a session ended or a sign-in was refused; "" for other events.
        tokens: number of tokens that were deleted.
        servers: number of servers that were stopped or will be stopped.
        milliseconds: how long the end of a session took; 0 for other events.
    """

    time: datetime
    kind: EventKind
    user: str | None
    session: str = ""
    by: str = ""
    cause: str = ""
    tokens: int = 0
    servers: int = 0
    milliseconds: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return this event of the audit log as a JSON object."""
        return {**asdict(self), "time": self.time.isoformat(timespec="milliseconds")}

    def as_json(self) -> str:
        """Return this event of the audit log as one line of JSON in ASCII."""
        return json.dumps(self.as_dict(), separators=(",", ":"))
