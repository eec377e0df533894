"""The handlers of sign-in, callback and sign-out.

Each stops at the first problem and shows it on a page; nothing is retried automatically.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Any
from urllib.parse import urlencode, urlsplit

from jupyterhub.handlers import BaseHandler
from oauthenticator.oauth2 import OAuthLogoutHandler
from tornado.httputil import url_concat

from hub_extensions.adapters.bounded_body import BoundedBody
from hub_extensions.adapters.provider.oidc import ProviderAway, ProviderMetadata, ProviderUnusable
from hub_extensions.authenticator.login import allowed_next_url
from hub_extensions.authenticator.openid.failure import FailurePageMixin, SignOnFailed, failure_for
from hub_extensions.authenticator.openid.login_state import (
    MAX_LOGIN_SECONDS,
    PendingLogin,
    cookie_name,
    new_login,
    sealed,
    surplus_cookies,
    unsealed,
)
from hub_extensions.core.sign_on.id_token import equal_in_constant_time

_ERRORS = {
    "access_denied": "consent",
    "consent_required": "consent",
    "interaction_required": "consent",
    "login_required": "consent",
    "temporarily_unavailable": "provider-away",
    "server_error": "provider-away",
    "unauthorized_client": "client-unknown",
    "invalid_request": "client-unknown",
    "invalid_scope": "client-unknown",
    "unsupported_response_type": "client-unknown",
}
"""OAuth error of the provider at the callback -> key of `FAILURES`."""


_ABOUT_NOBODY = {
    "provider-away", "other-issuer", "bad-document", "no-document", "redirects", "client-unknown",
    "other-login", "used", "too-late", "cookies",
}  # fmt: skip
"""Failures of a sign-in that do not concern a particular person; they are not recorded in the audit log."""
_WRITTEN = {"not-allowed", "name-taken"}
"""Failures that are already in the audit log when the sign-in fails. Other failures are recorded as *refused* with
their code.
"""


class OpenIdLogin(FailurePageMixin, BoundedBody, BaseHandler):  # type: ignore[misc]  # jupyterhub has no types
    """``/hub/oauth_login``: begins a sign-in and redirects to the provider.

    A cookie and the request to the provider get matching random values. These values later prove that the same browser
    comes back.
    """

    async def get(self) -> None:
        """Begin a sign-in. ``?again=other`` makes the provider ask which account to use."""
        try:
            metadata = await self.authenticator.provider.metadata()
        except (ProviderAway, ProviderUnusable) as problem:
            await self.show_failure(failure_for(problem))
            return
        redirect_uri = self.authenticator.get_callback_url(self)
        login = new_login(
            redirect_uri, allowed_next_url(self._validate_next_url, self.get_argument("next", "", strip=False))
        )
        for name in surplus_cookies(self):
            self.clear_cookie(name, path=self.hub.base_url)
        self._set_cookie(
            cookie_name(login.state),
            await sealed(login),
            encrypted=False,
            path=self.hub.base_url,
            samesite="Lax",
            max_age=int(2 * MAX_LOGIN_SECONDS),
        )
        self.set_header("Cache-Control", "no-store")
        self.redirect(url_concat(metadata.authorization, self._query(login)))

    def _query(self, login: PendingLogin) -> dict[str, str]:
        challenge = base64.urlsafe_b64encode(hashlib.sha256(login.verifier.encode()).digest()).decode().rstrip("=")
        asked = {"prompt": "select_account"} if self.get_argument("again", "") == "other" else {}
        return {
            **self.authenticator.extra_authorize_params,
            **asked,
            "response_type": "code",
            "client_id": self.authenticator.client_id,
            "redirect_uri": login.redirect_uri,
            "scope": " ".join(self.authenticator.scope),
            "state": login.state,
            "nonce": login.nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }


class OpenIdCallback(FailurePageMixin, BoundedBody, BaseHandler):  # type: ignore[misc]
    """``/hub/oauth_callback``: the address to which the browser returns from the provider."""

    identified_person: Any = None
    """The person whom the authenticator identified; `None` before that, and again once the session is linked to it."""
    sign_on_refusal = "not-allowed"
    """Cause in the audit log if the hub refuses the user without a reason."""

    async def get(self) -> None:
        """Complete a sign-in when the browser returns from the provider, or show why it failed."""
        self.set_header("Cache-Control", "no-store")
        self.set_header("Referrer-Policy", "no-referrer")
        try:
            login = await self._pending()
            await self._check_issuer()
            code = self._code()
            user = await self.login_user({"login": login, "code": code})
            if user is None:
                raise self.authenticator.not_allowed(self)
        except SignOnFailed as failure:
            if failure.code in ("used", "other-login") and self.current_user is not None:
                self.redirect(f"{self.hub.base_url}home")  # the Back button was pressed after a sign-in
                return
            if failure.code not in _ABOUT_NOBODY | _WRITTEN:
                self.authenticator.sign_on.refused(failure.code)
            await self.show_failure(failure)
            return
        self.redirect(allowed_next_url(self._validate_next_url, login.next_url) or self.get_next_url(user))

    def append_query_parameters(self, url: str, exclude: Any = None) -> str:
        """Return `url` unchanged, so that the provider's parameters are not added to the address after the sign-in."""
        return url

    def set_login_cookie(self, user: Any) -> None:
        """Set the hub's cookie, and link the session to the person whom the provider identified, if it identified one.

        `SessionLoginMixin`, which is put in front of this handler, has begun the session before.
        """
        super().set_login_cookie(user)
        if self.identified_person is not None:
            self.authenticator.link(self, user, self.identified_person)
            self.identified_person = None

    async def _pending(self) -> PendingLogin:
        """Return the sign-in that this browser began. Raises SignOnFailed."""
        state = self.get_argument("state", "")
        if not state:
            raise SignOnFailed("other-login", "The answer has no state.")
        name = cookie_name(state)
        cookie = self.get_cookie(name)
        if cookie is None:
            code = "other-login" if self.cookies else "cookies"
            raise SignOnFailed(code, "This browser has no cookie of a sign-in with this state.")
        self.clear_cookie(name, path=self.hub.base_url)
        login = await unsealed(cookie)
        if login is None or not equal_in_constant_time(login.state, state):
            raise SignOnFailed("other-login", "The cookie of the sign-in is not of this hub, or of another state.")
        if login.is_over:
            raise SignOnFailed("too-late", "The sign-in was begun more than an hour ago.")
        if not self.authenticator.used_logins.use(login):
            raise SignOnFailed("used", "The sign-in came back before.")
        return login

    async def _check_issuer(self) -> None:
        """Check that the answer comes from the configured provider (RFC 9207). Raises SignOnFailed."""
        try:
            metadata: ProviderMetadata = await self.authenticator.provider.metadata()
        except (ProviderAway, ProviderUnusable) as problem:
            raise failure_for(problem) from problem
        said = self.get_argument("iss", None)
        if said is None and not metadata.names_itself:
            return
        if said != metadata.issuer:
            raise SignOnFailed("token", "The answer is from another provider, or does not say from which (iss).")

    def _code(self) -> str:
        error = self.get_argument("error", "")
        if error:
            code = _ERRORS.get(error, "client-unknown")
            raise SignOnFailed(code, f"The provider says {error[:40]!a} instead of a code.")
        code = str(self.get_argument("code", ""))
        if not code:
            raise SignOnFailed("token", "The answer has no code.")
        return code


class OpenIdLogout(FailurePageMixin, OAuthLogoutHandler):  # type: ignore[misc]
    """``/hub/logout``: signs out at the hub, then at the provider.

    The request to the provider contains the id token of the session, so that the provider does not ask the user for a
    confirmation.
    """

    _hint = ""

    async def get(self) -> None:
        """Sign out. The id token is read first, because it is removed with the session."""
        self._hint = await self.authenticator.id_token_hint(self)
        await super().get()

    async def render_logout_page(self) -> None:
        """Redirect to the provider's sign-out page, if it has one."""
        if self.authenticator.logout_redirect_url:
            self.redirect(self.authenticator.logout_redirect_url)
            return
        try:
            metadata = await self.authenticator.provider.metadata() if self._hint else None
        except (ProviderAway, ProviderUnusable):
            metadata = None
        if metadata is None or not metadata.end_session:
            await super().render_logout_page()
            return
        back = urlsplit(self.authenticator.get_callback_url(self))._replace(path=self.settings["login_url"], query="")
        query = {
            "id_token_hint": self._hint,
            "client_id": self.authenticator.client_id,
            "post_logout_redirect_uri": back.geturl(),
        }
        self.set_header("Cache-Control", "no-store")
        joint = "&" if urlsplit(metadata.end_session).query else "?"
        self.redirect(f"{metadata.end_session}{joint}{urlencode(query)}")
