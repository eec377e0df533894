"""A sign-in at the hub (OAuth): redirect with a state that only this browser can bring back, and return with a code.

Browsers never get the token. The hub knows one redirect URI, on the apps' common host. If the app has its own host, the
code is forwarded to that host, and the app's host gets a session of its own. The state is bound to a cookie of the host
at which the sign-in began. The verifier of the code (PKCE) is computed from this cookie and the state, so it is not
stored.
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

MAX_SIGN_IN = timedelta(minutes=15)
"""Time within which a sign-in has to be completed."""
MAX_CODE_LENGTH = 512


def verifier_of(state: str, browser: str) -> str:
    """Return the PKCE verifier of a sign-in: the secret with which the gate proves that it began the sign-in.

    Args:
        state: the sign-in's state (the OAuth parameter).
        browser: value of the browser's cookie for sign-ins. State and cookie have fixed lengths, so different pairs
            never give the same text.
    """
    return (
        base64.urlsafe_b64encode(hashlib.sha256(f"verifier {state} {browser}".encode()).digest()).decode().rstrip("=")
    )


class SignInFailed(Exception):
    """The sign-in failed.

    Attributes:
        reason: key of the text that the page shows.
        status: HTTP status of the page.
    """

    def __init__(self, reason: str, status: int) -> None:
        super().__init__(reason)
        self.reason, self.status = reason, status


@dataclass(frozen=True, slots=True)
class SignedIn:
    """The next step of a browser that has returned from the hub, the result of `SignIns.finish`.

    Attributes:
        cookie: cookie of the new session; "" if the browser is sent to the app's host first, which creates the session.
        address: where the browser continues.
        user: the user who signed in; "" before the session is created.
    """

    cookie: str
    address: str
    user: str = ""


class SignIns:
    """The sign-ins of browsers at a gate: the redirect to the hub, the return, and the creation of the session."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def begin(self, app_name: str, wanted: str, browser: str) -> str:
        """Begin a sign-in, and return the address of the hub to which the browser is sent.

        Args:
            app_name: the app to return to; "" for the front page. An unknown app leads to the front page too.
            wanted: path and query in the app to return to.
            browser: value of the cookie by which the gate recognises the browser when it returns.
        """
        app = self._gate.apps.get(app_name)
        if app is None:
            app_name = ""  # strangers must not learn which apps exist
        state = secrets.token_urlsafe(32)
        path = return_path(app, wanted) if app is not None else "/"
        now = self._gate.now()
        kept = StoredSignIn(hash_of_secret(state), hash_of_secret(browser), app_name, path, now)
        try:
            await self._gate.sessions.begin_sign_in(kept, now - MAX_SIGN_IN)
        except TooManyStarts:
            raise SignInFailed("hub-away", 503) from None
        return self._gate.hub.authorize_url(state, verifier_of(state, browser))

    async def finish(self, code: str, state: str, browser: str, origin: str, before: GateSession | None) -> SignedIn:
        """Complete a sign-in when the browser returns from the hub. Raises SignInFailed.

        Args:
            code: the code that the hub gave to the browser.
            state: the state that the browser brought back.
            browser: value of the cookie that the browser got when the sign-in began; "" without one.
            origin: the origin at which the browser returned.
            before: the browser's session until now; `None` without one.
        """
        kept = await self._gate.sessions.find_sign_in(hash_of_secret(state))
        if kept is None or not 0 < len(code) <= MAX_CODE_LENGTH or self._gate.now() - kept.begun >= MAX_SIGN_IN:
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
        """Create a session for a test account of the audit (the test whether apps are open), and return its cookie.

        Args:
            token: the account's token at the hub.
            expired: whether the session has already passed its limits.

        Raises:
            SignInFailed: the token is invalid or belongs to another user.
        """
        owner = await self._owner_of(token)
        if not owner.name.startswith(ACCOUNT):
            raise SignInFailed("hub-refused", 403)
        cookie, _ = await self._gate.sessions.begin(owner.name, owner.session, token, None, expired=expired)
        return cookie

    async def _session_for(
        self, code: str, verifier: str, kept: StoredSignIn, before: GateSession | None
    ) -> tuple[str, str]:
        """Create a session, and return its cookie and its user.

        Args:
            code: the code with which the browser came back.
            verifier: PKCE verifier of the code.
            kept: the pending sign-in.
            before: the browser's session until now, which ends; `None` without one.
        """
        gate = self._gate
        try:
            token = await gate.hub.redeem(code, verifier)
        except CodeRefused:
            raise SignInFailed("sign-in-over", 400) from None
        except HubAway:
            raise self._away() from None
        owner = await self._owner_of(token)
        # the answer is not cached: a sign-out may have happened in the meantime, so the next check asks again
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
