"""Asking the provider again about who is signed in: who is due, and what an answer means.

======================================  ==================================================================
what the provider says                  what follows
======================================  ==================================================================
here is who it is, and we let them in   it stays; its groups are taken over, where they are known
here is who it is; not let in any more  all sessions of the person end, and the right is lost
no (``invalid_grant``, 401)             this session ends; a no also comes when a sign-in there ran out
no, and it says that the account is     all sessions of the person end, and the right is lost
disabled or gone
nothing that can be read                it stays: nobody is signed out because a provider is away
======================================  ==================================================================

Not here: asking (``adapters/oidc.py``), and ending (``authenticator/session_ender.py``).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

AT_ONCE = 5
"""So many are asked about at a time."""
JITTER = 0.2
"""A session is due up to this part of the time earlier, each by another, so that not all come at once."""

_ACCOUNT_GONE = re.compile(r"\b(user|account)\b.*\b(disabled|deleted|not found|locked|does not exist)\b", re.IGNORECASE)


class RecheckOutcome(str, Enum):
    """What becomes of a session."""

    STAYS = "stays"
    ENDS = "ends"
    RIGHT_LOST = "right-lost"


@dataclass(frozen=True, slots=True)
class ProviderLink:
    """What a session has from its provider.

    Attributes:
        session: its public id. user_id: the hub's number of its user.
        kept: refresh token and id token, encrypted; empty: there is none to ask with.
        checked: when the provider last said that it is good; None: it is to be asked at once.
    """

    session: str
    user_id: int
    iss: str
    sub: str
    sid: str
    kept: bytes
    checked: datetime | None


def outcome_of_no(description: str) -> RecheckOutcome:
    """What a *no* means, by the words that came with it."""
    return RecheckOutcome.RIGHT_LOST if _ACCOUNT_GONE.search(description) else RecheckOutcome.ENDS


def due(links: Iterable[ProviderLink], every: timedelta, now: datetime) -> Sequence[ProviderLink]:
    """Whom to ask about now, the longest unasked first. `every` of zero: only those that are to be asked at once."""
    found = [
        each
        for each in links
        if each.checked is None or (every > timedelta(0) and now - each.checked >= every * (1 - _early(each.session)))
    ]
    return sorted(found, key=lambda each: (each.checked is not None, each.checked or now))


def _early(session: str) -> float:
    """0 to `JITTER`: always the same for a session."""
    return JITTER * hashlib.sha256(session.encode()).digest()[0] / 256
