"""What the hub reports to the gate when sessions end: whose, and of which browsers, without the value of any cookie.

Not here: sending it (``authenticator/gate_caller.py``), and what the gate does then.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

ENDED_PATH = "/_gate/ended"
"""Where the hub POSTs it, as JSON, signed as ``core/signing.py`` says."""


@dataclass(frozen=True, slots=True)
class EndedSessions:
    """Sessions of a person that are over. `sessions`: `session_hash` of each; None: all of them."""

    user: str
    sessions: tuple[str, ...] | None = None


def session_hash(hub_session: str) -> str:
    """Of the hub's ``session_id``, which the check of a token reports too: SHA-256, in hexadecimal."""
    return hashlib.sha256(hub_session.encode("utf-8", "replace")).hexdigest()
