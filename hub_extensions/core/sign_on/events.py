"""A line of the sign-on audit log. Nothing in it opens anything: no cookie, no token, no address.

Not here: how long it is kept, and where (``adapters/store/sign_on.py``).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

SESSION_LETTERS = 8
"""So much of a session's public id stands in an event."""

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
    """What happened.

    Attributes:
        user: None where nobody is known by that name, or the account was deleted since.
        session: the first letters of the session's public id.
        by: who did it, where it was an admin or a service.
        servers: how many were stopped, or are to be.
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
        """For JSON."""
        return {**asdict(self), "time": self.time.isoformat(timespec="milliseconds")}

    def as_json(self) -> str:
        """One line of JSON, in ASCII: no name breaks it."""
        return json.dumps(self.as_dict(), separators=(",", ":"))
