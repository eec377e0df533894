"""The state of a pending sign-in, which only the browser that began it can bring back from the provider.

It is encrypted with the hub's `CryptKeeper` in a cookie that is sent to the hub only. Each tab has its own cookie, so
that two tabs do not disturb each other.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from dataclasses import asdict, dataclass, field
from typing import Any

from jupyterhub.crypto import CryptKeeper, InvalidToken

PREFIX = "jupyterhub-sign-on-login-"
MAX_TABS = 3
MAX_NEXT_LENGTH = 512
"""Maximum length of the address to continue at. A longer one is dropped, because browsers limit a cookie to 4 kB."""
MAX_LOGIN_SECONDS = 3600.0
"""Time within which a sign-in has to be completed."""
MAX_USED = 10_000
"""Number of used sign-ins that are remembered. If a flood exceeds it, the oldest are discarded."""


@dataclass(frozen=True, slots=True)
class PendingLogin:
    """The values of one pending sign-in. They are not shown in logs.

    Attributes:
        state: random text that the provider returns with the code.
        nonce: random text that the provider returns in the id token.
        verifier: PKCE verifier of the code.
        redirect_uri: the callback address that was sent to the provider.
        next_url: where the browser continues after the sign-in; "" for the hub's default page.
        begun: when the sign-in began, in seconds since 1970.
    """

    state: str = field(repr=False)
    nonce: str = field(repr=False)
    verifier: str = field(repr=False)
    redirect_uri: str
    next_url: str
    begun: float

    @property
    def is_over(self) -> bool:
        """Whether the sign-in was not completed within `MAX_LOGIN_SECONDS`, so that it is refused."""
        return abs(time.time() - self.begun) >= MAX_LOGIN_SECONDS


def new_login(redirect_uri: str, next_url: str) -> PendingLogin:
    """Begin a sign-in, with new random values.

    Args:
        redirect_uri: the callback address for the provider.
        next_url: where the browser continues after the sign-in; "" for the hub's default page. An address that is too
            long is dropped.
    """
    state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
    kept = next_url if len(next_url) <= MAX_NEXT_LENGTH else ""
    return PendingLogin(state, nonce, verifier, redirect_uri, kept, time.time())


def cookie_name(state: str) -> str:
    """Return the name of the sign-in's cookie, which does not reveal the state."""
    return PREFIX + hashlib.sha256(state.encode("utf-8", "replace")).hexdigest()[:16]


async def sealed(login: PendingLogin) -> str:
    """Encrypt a sign-in for its cookie."""
    kept: bytes = await CryptKeeper.instance().encrypt(asdict(login))
    return kept.decode()


async def unsealed(cookie: str) -> PendingLogin | None:
    """Decrypt a sign-in from its cookie; `None` if the cookie is invalid."""
    try:
        return PendingLogin(**await CryptKeeper.instance().decrypt(cookie.encode()))
    except (InvalidToken, TypeError, ValueError):
        return None


class UsedLogins:
    """The sign-ins that were completed, in memory. Each sign-in is accepted once, even if its cookie was copied."""

    def __init__(self) -> None:
        self._used: dict[str, float] = {}

    def use(self, login: PendingLogin) -> bool:
        """Mark a sign-in as completed. Return False if it was completed before, so that its cookie was copied."""
        name = cookie_name(login.state)
        if name in self._used:
            return False
        now = time.monotonic()
        if len(self._used) >= MAX_USED:
            self._used = {each: at for each, at in self._used.items() if now - at < MAX_LOGIN_SECONDS}
        while len(self._used) >= MAX_USED:
            del self._used[next(iter(self._used))]
        self._used[name] = now
        return True


def surplus_cookies(handler: Any) -> list[str]:
    """Return the names of cookies that have to be deleted, because the browser has cookies of too many pending
    sign-ins.

    Each tab has its own cookie, so abandoned sign-ins would otherwise accumulate.
    """
    ours = [name for name in handler.cookies if name.startswith(PREFIX)]
    return ours[: max(0, len(ours) - MAX_TABS + 1)]
