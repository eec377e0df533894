"""``POST /hub/sso/backchannel-logout``: the provider reports that a person signed out there.

The sessions of the token's ``sid`` end, and the person's other sessions are re-checked at once, because some providers
send one token although they ended all sessions. The ends, and which sessions have to be re-checked, are written to the
database before the provider gets its answer, so that they are not lost if the hub restarts. No cookie is read, and only
signed tokens of the provider are accepted.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs

from tornado import web

from hub_extensions.adapters.bounded_body import BoundedBody
from hub_extensions.adapters.provider.oidc import ProviderAway, ProviderUnusable
from hub_extensions.authenticator.openid.metrics import LOGOUT_TOKENS
from hub_extensions.core.sign_on import EndCause
from hub_extensions.core.sign_on.logout_token import MAX_BODY_BYTES, LogoutToken, judge_logout_token
from hub_extensions.core.sign_on.refusal import SignOnRefusal

FORM = "application/x-www-form-urlencoded"
MAX_WRITTEN_PER_MINUTE = 30
"""Maximum number of refused tokens in the audit log per minute, so that nobody can fill the hub's disk."""
MAX_BAD_PER_MINUTE = 120
"""Maximum number of refused tokens of one address that are logged per minute. Accepted tokens are not limited, because
behind an ingress all senders, including the provider, share one address.
"""
MAX_ADDRESSES = 1000
"""Number of addresses with refused tokens that are remembered."""


class LogoutTokens:
    """Checks logout tokens, with which the provider reports a sign-out, and ends the sessions that they name.

    Args:
        authenticator: the hub's `SingleSignOnOIDCAuthenticator`.
    """

    def __init__(self, authenticator: Any) -> None:
        self._auth = authenticator
        self._bad: OrderedDict[str, list[float]] = OrderedDict()
        self._written: deque[float] = deque(maxlen=MAX_WRITTEN_PER_MINUTE)

    async def take(self, token: str) -> SignOnRefusal | None:
        """End the sessions that a logout token names.

        Returns:
            Why the token is refused; `None` if it was accepted.

        Raises:
            ProviderAway, ProviderUnusable: the provider's keys cannot be read, so the token cannot be verified.
        """
        auth = self._auth
        found = await auth.provider.verified(token)
        if isinstance(found, SignOnRefusal):
            return found
        judged = judge_logout_token(
            *found,
            issuer=auth.issuer,
            client_id=auth.client_id,
            algorithms=tuple(auth.signing_algorithms),
            leeway=timedelta(seconds=auth.leeway_seconds),
            now=auth.sign_on_now(),
        )
        return judged if isinstance(judged, SignOnRefusal) else self._end(judged)

    def _end(self, token: LogoutToken) -> SignOnRefusal | None:
        """Write in one commit the token's id, the ends of its sessions, and which sessions have to be re-checked.

        Nothing is awaited here, so that no other task of the hub runs in between.

        Returns:
            A refusal if the token was used before; otherwise `None`.
        """
        links, sign_on = self._auth.links, self._auth.sign_on
        ending = {each.session: each for each in links.of_logout(token.iss, token.sub, token.sid)}
        people = {(each.iss, each.sub) for each in ending.values()} | ({(token.iss, token.sub)} if token.sub else set())
        others = [each for who in people for each in links.of_person(*who) if each.session not in ending]
        with sign_on.registry.store.transaction():
            links.store.forget_logouts(self._auth.sign_on_now())
            if not links.store.note_logout(token.iss, token.jti, token.until):
                return SignOnRefusal("again", "It was taken before (jti).")
            links.mark_due(others)
            for user_id in {each.user_id for each in ending.values()}:
                sessions = [each for each in sign_on.registry.of_user(user_id) if each.id in ending]
                if sessions:
                    sign_on.ender.end(user_id, sessions, EndCause.PROVIDER)
        self._auth.recheck.wake()
        return None

    def note_refused(self, address: str, code: str, sentence: str) -> None:
        """Count and log a refused token.

        Args:
            address: address of the sender.
            code: why the token is refused, as a code.
            sentence: why the token is refused, as a sentence for the log.
        """
        LOGOUT_TOKENS.labels(code).inc()
        recent = self._bad.setdefault(address, [])
        recent.append(time.monotonic())
        del recent[: max(0, len(recent) - MAX_BAD_PER_MINUTE)]
        self._bad.move_to_end(address)
        while len(self._bad) > MAX_ADDRESSES:
            self._bad.popitem(last=False)
        self._auth.log.warning("sign-on: a logout token from %s is not taken (%s): %s", address, code, sentence)
        now = time.monotonic()
        if len(self._written) < MAX_WRITTEN_PER_MINUTE or now - self._written[0] > 60:
            self._written.append(now)
            self._auth.record("logout-refused", cause=code)

    def is_too_much(self, address: str) -> bool:
        """Return whether this address has sent too many logout tokens that were refused."""
        recent = self._bad.get(address, [])
        return len(recent) >= MAX_BAD_PER_MINUTE and time.monotonic() - recent[0] < 60


class BackchannelLogout(BoundedBody):
    """POST, with the authenticator `single-sign-on`: the OpenID provider reports that a person signed out there, and
    the person's sessions end here. The request is a form with a signed `logout_token` (OpenID Connect Back-Channel
    Logout).
    """

    body_bytes = MAX_BODY_BYTES

    def initialize(self, tokens: LogoutTokens) -> None:
        self._tokens = tokens
        self._is_over = False

    def check_xsrf_cookie(self) -> None:
        """Accept the request without XSRF token: no cookie is read here, so no browser can be abused."""

    def set_default_headers(self) -> None:
        self.set_header("Cache-Control", "no-store")

    async def prepare(self) -> None:
        """Refuse a wrong method or a body that is too large."""
        if self.request.method != "POST":
            self._refuse(405, "method", "It is no POST.")
            return
        try:
            self.take_body()
        except web.HTTPError:
            self._refuse(413, "size", "Its body is too large.")

    def data_received(self, chunk: bytes) -> None:
        """Stop reading a body that is too large."""
        super().data_received(chunk)
        if len(self.received) > MAX_BODY_BYTES and not self._is_over:
            self._refuse(413, "size", "Its body is too large.")

    async def post(self) -> None:
        if self._is_over:
            return
        token = self._token()
        if token is None:
            self._refuse(400, "form", "It is no form with one logout_token.")
            return
        try:
            refusal = await self._tokens.take(token)
        except (ProviderAway, ProviderUnusable) as problem:
            self._refuse(503, "provider-away", str(problem))
            return
        if refusal is not None:
            self._refuse(400, refusal.code, refusal.log_message)
            return
        LOGOUT_TOKENS.labels("taken").inc()
        self.finish()

    def _token(self) -> str | None:
        if self.request.headers.get("Content-Type", "").partition(";")[0].strip().lower() != FORM:
            return None
        try:
            fields = parse_qs(self.whole_body().decode("ascii"), max_num_fields=10)
        except ValueError:
            return None
        found = fields.get("logout_token", [])
        return found[0] if len(found) == 1 else None

    def _refuse(self, status: int, code: str, sentence: str) -> None:
        if self._tokens.is_too_much(self._address):
            LOGOUT_TOKENS.labels("too-many").inc()
            self._close(status if status == 503 else 429, "slow_down")
            return
        self._tokens.note_refused(self._address, code, sentence)
        self._close(status, "invalid_request")

    def _close(self, status: int, error: str) -> None:
        self._is_over = True
        self.set_status(status)
        self.set_header("Connection", "close")
        self.finish({"error": error})

    @property
    def _address(self) -> str:
        return self.request.remote_ip or ""
