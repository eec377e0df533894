"""A sign-in at the hub: out with a state that only this browser can bring back, and back with a code.

The token never goes to the browser. An app on a host of its own gets a session of its own there: the hub knows one
address to come back to, and from there the code is handed on to the app's host, whose cookie the state is bound to.
The verifier of a code is made of that cookie and the state, so that nobody keeps it.
Not here: the routes (``routes.py``), and which address is gone back to (``core/sign_on/return_address.py``).
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlencode

from hub_extensions.adapters.hub.hub_sign_in import CodeRefused, TokenOwner
from hub_extensions.adapters.hub.jupyterhub_api import HubAway
from hub_extensions.adapters.store.gate import StoredSignIn
from hub_extensions.core.sign_on.access import SilentRound
from hub_extensions.core.sign_on.audit import ACCOUNT
from hub_extensions.core.sign_on.return_address import origin_of, return_address, return_path
from hub_extensions.gate.gate import Gate
from hub_extensions.gate.sessions import COOKIE_LETTERS, GateSession, TooManyStarts, hash_of_secret
from hub_extensions.gate.settings import CALLBACK_PATH

LONGEST = timedelta(minutes=15)
"""A sign-in has to be done within this time."""
LONGEST_PARAMETER = 512


def verifier_of(state: str, browser: str) -> str:
    """What redeems the code of this sign-in. `browser`: its cookie for this; the two have fixed lengths."""
    return (
        base64.urlsafe_b64encode(hashlib.sha256(f"verifier {state} {browser}".encode()).digest()).decode().rstrip("=")
    )


class SignInFailed(Exception):
    """It did not work. `reason`: a key of the pages' texts."""

    def __init__(self, reason: str, status: int) -> None:
        super().__init__(reason)
        self.reason, self.status = reason, status


@dataclass(frozen=True, slots=True)
class SignedIn:
    """It worked. `cookie`: of the new session; "": nothing was done yet. `address`: where the browser goes on to.

    `user`: who signed in.
    """

    cookie: str
    address: str
    user: str = ""


class SignIns:
    """The sign-ins of one gate."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def begin(self, app_name: str, wanted: str, browser: str) -> str:
        """Where the browser goes to sign in. `browser`: its cookie for this.

        `app_name`: "" for the front page, to which one that there is not leads too.
        """
        app = self._gate.apps.get(app_name)
        if app is None:
            app_name = ""  # whether there is such an app is nothing for strangers
        state = secrets.token_urlsafe(32)
        path = return_path(app, wanted) if app is not None else "/"
        now = self._gate.now()
        kept = StoredSignIn(hash_of_secret(state), hash_of_secret(browser), app_name, path, now)
        try:
            await self._gate.sessions.begin_sign_in(kept, now - LONGEST)
        except TooManyStarts:
            raise SignInFailed("hub-away", 503) from None
        return self._gate.hub.authorize_url(state, verifier_of(state, browser))

    async def finish(self, code: str, state: str, browser: str, origin: str, before: GateSession | None) -> SignedIn:
        """The browser is back, at `origin`. `before`: the session that it has. Raises SignInFailed."""
        kept = await self._gate.sessions.find_sign_in(hash_of_secret(state))
        if kept is None or not 0 < len(code) <= LONGEST_PARAMETER or self._gate.now() - kept.begun >= LONGEST:
            raise SignInFailed("sign-in-over", 400)
        app = self._gate.apps.get(kept.app)
        if app is None and kept.app:
            raise SignInFailed("unknown-app", 404)
        home = origin_of(app) if app is not None else self._gate.settings.origin
        if origin != home and origin == self._gate.settings.origin:
            return SignedIn("", f"{home}{CALLBACK_PATH}?{urlencode({'code': code, 'state': state})}")
        if len(browser) != COOKIE_LETTERS or hash_of_secret(browser) != kept.browser:
            raise SignInFailed("other-browser", 400)
        if not await self._gate.sessions.finish_sign_in(kept.state):
            raise SignInFailed("sign-in-over", 400)
        cookie, user = await self._session_for(code, verifier_of(state, browser), kept, before)
        return SignedIn(cookie, return_address(app, kept.path) if app is not None else f"{home}/", user)

    async def for_audit(self, token: str, expired: bool) -> str:
        """The cookie of a session, `expired` or not, for an account that an audit has made. Raises SignInFailed."""
        owner = await self._owner_of(token)
        if not owner.name.startswith(ACCOUNT):
            raise SignInFailed("hub-refused", 403)
        cookie, _ = await self._gate.sessions.begin(owner.name, owner.session, token, None, expired=expired)
        return cookie

    async def _session_for(
        self, code: str, verifier: str, kept: StoredSignIn, before: GateSession | None
    ) -> tuple[str, str]:
        """Its cookie, and whose it is."""
        gate = self._gate
        try:
            token = await gate.hub.redeem(code, verifier)
        except CodeRefused:
            raise SignInFailed("sign-in-over", 400) from None
        except HubAway:
            raise self._away() from None
        owner = await self._owner_of(token)
        # its answer is not kept: a sign-out may have come in between, and the next check asks once more
        rounds = {kept.app: SilentRound(gate.now(), owner.groups)} if kept.app else {}
        cookie, _ = await gate.sessions.begin(owner.name, owner.session, token, before, rounds)
        return cookie, owner.name

    async def _owner_of(self, token: str) -> TokenOwner:
        try:
            owner = await self._gate.hub.owner(token)
        except HubAway:
            raise self._away() from None
        if owner is None or owner.kind != "user":
            raise SignInFailed("sign-in-over", 400)
        return owner

    def _away(self) -> SignInFailed:
        answers = self._gate.answers
        answers.away_since = answers.away_since or self._gate.now()
        return SignInFailed("hub-away", 503)
