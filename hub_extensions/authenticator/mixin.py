"""Adds sign-on sessions to any authenticator class: `with_sessions`.

The hub calls `refresh_user` for every request (``auth_refresh_age = -1``), and a browser without a session has to sign
in. The authenticator's own refresh runs as often as configured. This works around three problems of JupyterHub: 5.5
does not set ``_jupyterhub_user`` on the handler during the refresh; 6.1 reads a ``_token_authenticated`` that was never
set; both refresh once per request, so that the refresh before a spawn would be skipped.
"""

from __future__ import annotations

import time
from datetime import datetime, timezone
from typing import Any, ClassVar

from jupyterhub.auth import Authenticator
from jupyterhub.utils import maybe_future

from hub_extensions.authenticator.login import handlers_with_sessions
from hub_extensions.authenticator.pages import PAGES
from hub_extensions.authenticator.rest import REST
from hub_extensions.authenticator.sign_on import HubSignOn
from hub_extensions.core.sign_on import EndCause, SignOnConfig, return_problem
from hub_extensions.core.sign_on.gate_config import GateAddress
from hub_extensions.core.text.translation import ENGLISH, Catalogue

EVERY_REQUEST = -1


class SignOnMixin:
    """Mixin that gives any authenticator of JupyterHub 5.3 to 6 sign-on sessions. `with_sessions` makes the class.

    Attributes:
        sign_on_config: the settings of the sessions.
        sign_on_gate: where ended sessions are reported; `None` without a gate.
        sign_on: the sessions of the running hub.
        auth_refresh_age: -1, so that the hub calls `refresh_user` for every request.
    """

    sign_on_config: ClassVar[SignOnConfig]
    sign_on_gate: ClassVar[GateAddress | None] = None
    sign_on: HubSignOn
    auth_refresh_age: int

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        own = getattr(self, "refresh_seconds", self.auth_refresh_age)  # how often the authenticator itself refreshes
        self._own_refresh_age, self.auth_refresh_age = own, EVERY_REQUEST
        self._refreshed: dict[int, float] = {}

    def provider_sentences(self, t: Catalogue = ENGLISH) -> list[str]:
        """Return sentences for the admins' page about where accounts are managed. An authenticator may add its own."""
        behind: Any = super()
        if hasattr(behind, "provider_sentences"):
            return list(behind.provider_sentences(t))
        if behind.refresh_user.__func__ is not Authenticator.refresh_user:
            return []
        return [t("This hub's authenticator cannot say when an account ends: end its sessions here.")]

    def sign_on_now(self) -> datetime:
        return datetime.now(timezone.utc)

    def get_handlers(self, app: Any) -> list[Any]:
        """Return the authenticator's handlers, which begin sessions, and the pages of sessions."""
        self.sign_on = HubSignOn(app, self.sign_on_config, self.sign_on_now, self.sign_on_gate)
        own: list[Any] = super().get_handlers(app)  # type: ignore[misc]  # the authenticator behind us has it
        return [*handlers_with_sessions(own), *PAGES, *REST]

    async def refresh_user(self, user: Any, handler: Any = None, **more: Any) -> Any:
        """Decide whether this request may continue: return False to make the browser sign in.

        Other results are those that JupyterHub defines for `refresh_user`. A request with a token never ends a session.
        Neither does the refresh of a user who is not the sender of the request.

        Args:
            user: the user whom the hub refreshes.
            handler: the handler of the request; `None` if no request is being handled.
            more: further arguments of the hub, for the authenticator's own refresh.
        """
        if handler is None:
            return await self._refresh(user, handler, **more)
        if not hasattr(handler, "_token_authenticated"):
            handler._token_authenticated = False
        if not _identifies(handler, user):
            return await self._refresh(user, handler, **more)
        handler._sign_on_asked = True
        if handler._token_authenticated:
            token = handler.get_token()
            self.sign_on.registry.use_by_token(None if token is None else token.session_id)
        elif not await self.sign_on.admit(handler, user):
            return False
        self.sign_on.grant_admins(user)
        if self._is_due(user):
            return await self._refresh(user, handler, **more)
        # the hub refreshes once per request; a spawn in this request may still need the authenticator's own refresh
        getattr(handler, "_refreshed_users", set()).discard(user.name)
        return True

    def sign_on_return_problem(self, user: Any) -> str:
        """Return why a server of this user may not be restarted automatically (for example because the user has signed
        out); "" if it may be. Called by the spawner.
        """
        sessions = self.sign_on.registry.of_user(user.id)
        return return_problem(sessions, self.sign_on_config, self.sign_on_now())

    def delete_user(self, user: Any) -> Any:
        """End the sessions of a user whom the hub deletes, before another account can get the same id."""
        self.sign_on.ender.end(user.id, self.sign_on.registry.of_user(user.id), EndCause.USER_DELETED)
        return super().delete_user(user)  # type: ignore[misc]

    def _is_due(self, user: Any) -> bool:
        if not self._own_refresh_age:
            return False
        last = self._refreshed.get(user.id)
        if last is None:  # the user has just signed in, or the hub has just started
            self._refreshed[user.id] = time.monotonic()
            return False
        return time.monotonic() - last >= self._own_refresh_age

    async def _refresh(self, user: Any, handler: Any, **more: Any) -> Any:
        result = await maybe_future(super().refresh_user(user, handler, **more))  # type: ignore[misc]
        if result:
            self._refreshed[user.id] = time.monotonic()
        return result


def _identifies(handler: Any, user: Any) -> bool:
    """Return whether JupyterHub refreshes `user` because `user` is the sender of this request.

    Further refreshes in the same request are about a spawn or a stop, and may be about another user.
    """
    if getattr(handler, "_sign_on_asked", False):
        return False
    return not hasattr(handler, "_jupyterhub_user") or handler._jupyterhub_user is user


def with_sessions(authenticator: type, config: SignOnConfig, gate: GateAddress | None = None) -> type:
    """Return a subclass of an authenticator, with sign-on sessions. The settings of the authenticator keep their names.

    Args:
        config: the settings of the sessions.
        gate: where ended sessions are reported; `None` without a gate.
    """
    if issubclass(authenticator, SignOnMixin):
        authenticator.sign_on_gate = gate
        return authenticator
    body = {
        "sign_on_config": config,
        "sign_on_gate": gate,
        "__doc__": authenticator.__doc__,
        "__module__": authenticator.__module__,
    }
    return type(authenticator.__name__, (SignOnMixin, authenticator), body)
