"""A sign-in that is under way: what the browser keeps while it is at the provider, so that only it can come back.

It is encrypted with the hub's `CryptKeeper` in a cookie, which is sent to the hub only. Each tab has one of its own, so
two tabs do not spoil each other. Not here: what comes back (``login.py``).
"""

from __future__ import annotations

import hashlib
import secrets
import time
from dataclasses import asdict, dataclass, field
from typing import Any

from jupyterhub.crypto import CryptKeeper, InvalidToken

PREFIX = "jupyterhub-sign-on-login-"
MOST_TABS = 3
LONGEST_NEXT = 512
"""Letters of the address to go on to; a longer one is forgotten, since a browser keeps 4 kB of a cookie."""
LONGEST_SECONDS = 3600.0
"""A sign-in has to be done within this time."""
MOST_USED = 10_000
"""So many are remembered as used: more would be a flood, of which the oldest are over by then."""


@dataclass(frozen=True, slots=True)
class PendingLogin:
    """What belongs to one sign-in. Never shown."""

    state: str = field(repr=False)
    nonce: str = field(repr=False)
    verifier: str = field(repr=False)
    redirect_uri: str
    next_url: str
    begun: float

    @property
    def is_over(self) -> bool:
        """It was left open too long."""
        return abs(time.time() - self.begun) >= LONGEST_SECONDS


def new_login(redirect_uri: str, next_url: str) -> PendingLogin:
    """One that begins now."""
    state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
    kept = next_url if len(next_url) <= LONGEST_NEXT else ""
    return PendingLogin(state, nonce, verifier, redirect_uri, kept, time.time())


def cookie_name(state: str) -> str:
    """Its cookie; from the name nobody learns the state."""
    return PREFIX + hashlib.sha256(state.encode("utf-8", "replace")).hexdigest()[:16]


async def sealed(login: PendingLogin) -> str:
    """For the cookie."""
    kept: bytes = await CryptKeeper.instance().encrypt(asdict(login))
    return kept.decode()


async def unsealed(cookie: str) -> PendingLogin | None:
    """From the cookie; None: it is not ours."""
    try:
        return PendingLogin(**await CryptKeeper.instance().decrypt(cookie.encode()))
    except (InvalidToken, TypeError, ValueError):
        return None


class UsedLogins:
    """Which sign-ins came back already: each comes back once, also with a copied cookie."""

    def __init__(self) -> None:
        self._used: dict[str, float] = {}

    def use(self, login: PendingLogin) -> bool:
        """False: it was used before."""
        name = cookie_name(login.state)
        if name in self._used:
            return False
        now = time.monotonic()
        if len(self._used) >= MOST_USED:
            self._used = {each: at for each, at in self._used.items() if now - at < LONGEST_SECONDS}
        while len(self._used) >= MOST_USED:
            del self._used[next(iter(self._used))]
        self._used[name] = now
        return True


def surplus_cookies(handler: Any) -> list[str]:
    """Cookies of earlier tabs that are one too many: a browser that never comes back would collect them."""
    ours = [name for name in handler.cookies if name.startswith(PREFIX)]
    return ours[: max(0, len(ours) - MOST_TABS + 1)]
