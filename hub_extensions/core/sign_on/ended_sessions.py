"""The message with which the hub reports ended sessions to the gate. It contains no value of a cookie."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

ENDED_PATH = "/_gate/ended"
"""Path to which the hub POSTs the message as JSON, signed as in ``core/signing.py``."""


@dataclass(frozen=True, slots=True)
class EndedSessions:
    """A message of the hub to the gate: sessions of this user have ended.

    Attributes:
        sessions: the `session_hash` of each ended session; `None` means all sessions of the user.
    """

    user: str
    sessions: tuple[str, ...] | None = None


def session_hash(hub_session: str) -> str:
    """Return the SHA-256 (hex) of the hub's ``session_id``, which the hub also reports when the gate checks a token."""
    return hashlib.sha256(hub_session.encode("utf-8", "replace")).hexdigest()
