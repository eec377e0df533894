"""The authenticator that a hub has, with sign-on sessions in front: `with_sessions`.

The hub asks `refresh_user` on every request (``auth_refresh_age = -1``); a browser without a session has to sign in.
The authenticator's own refresh goes on as often as the admin has set it. JupyterHub's traps, mended here:
5.5 has no ``_jupyterhub_user`` on the handler while it refreshes; 6.1 reads a ``_token_authenticated`` that nobody set;
both ask once a request only, so that the refresh before a start would be lost.
Not here: what a sign-in does (``login.py``), and sessions themselves (``sign_on.py``).
"""

from __future__ import annotations

import time
from datetime import datetime, timezone
from typing import Any, ClassVar

from jupyterhub.auth import Authenticator
from jupyterhub.utils import maybe_future

from hub_extensions.authenticator.login import with_sign_on
from hub_extensions.authenticator.pages import PAGES
from hub_extensions.authenticator.rest import REST
from hub_extensions.authenticator.sign_on import HubSignOn
from hub_extensions.core.sign_on import EndCause, SignOnConfig, return_problem
from hub_extensions.core.sign_on.gate_config import GateAddress
from hub_extensions.core.text.translation import ENGLISH, Catalogue

EVERY_REQUEST = -1


class SignOnMixin:
    """In front of any authenticator of JupyterHub 5.3 to 6."""

    sign_on_config: ClassVar[SignOnConfig]
    sign_on_gate: ClassVar[GateAddress | None] = None
    sign_on: HubSignOn
    auth_refresh_age: int

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        own = getattr(self, "refresh_seconds", self.auth_refresh_age)  # how often the one behind us is asked
        self._own_refresh_age, self.auth_refresh_age = own, EVERY_REQUEST
        self._refreshed: dict[int, float] = {}

    def provider_words(self, t: Catalogue = ENGLISH) -> list[str]:
        """What admins read of where accounts are; an authenticator that asks there has words of its own."""
        behind: Any = super()
        if hasattr(behind, "provider_words"):
            return list(behind.provider_words(t))
        if behind.refresh_user.__func__ is not Authenticator.refresh_user:
            return []
        return [t("This hub's authenticator cannot say when an account ends: end its sessions here.")]

    def sign_on_now(self) -> datetime:
        """The hub's clock."""
        return datetime.now(timezone.utc)

    def get_handlers(self, app: Any) -> list[Any]:
        """The authenticator's own, each of which begins sessions, and the pages of sessions."""
        self.sign_on = HubSignOn(app, self.sign_on_config, self.sign_on_now, self.sign_on_gate)
        own: list[Any] = super().get_handlers(app)  # type: ignore[misc]  # the authenticator behind us has it
        return [*with_sign_on(own), *PAGES, *REST]

    async def refresh_user(self, user: Any, handler: Any = None, **more: Any) -> Any:
        """May this request go on? A request about somebody else, and one by a token, never ends anybody's session."""
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
        # the hub asks once a request; a start in this one may ask the authenticator itself
        getattr(handler, "_refreshed_users", set()).discard(user.name)
        return True

    def sign_on_return_problem(self, user: Any) -> str:
        """Why a server of this person that nobody asks for is not started; "": it may be. A spawner asks."""
        sessions = self.sign_on.registry.of_user(user.id)
        return return_problem(sessions, self.sign_on_config, self.sign_on_now())

    def delete_user(self, user: Any) -> Any:
        """The hub deletes an account: its sessions end before another one may get its number."""
        self.sign_on.ender.end(user.id, self.sign_on.registry.of_user(user.id), EndCause.USER_DELETED)
        return super().delete_user(user)  # type: ignore[misc]

    def _is_due(self, user: Any) -> bool:
        if not self._own_refresh_age:
            return False
        last = self._refreshed.get(user.id)
        if last is None:  # signed in a moment ago, or the hub has just started
            self._refreshed[user.id] = time.monotonic()
            return False
        return time.monotonic() - last >= self._own_refresh_age

    async def _refresh(self, user: Any, handler: Any, **more: Any) -> Any:
        result = await maybe_future(super().refresh_user(user, handler, **more))  # type: ignore[misc]
        if result:
            self._refreshed[user.id] = time.monotonic()
        return result


def _identifies(handler: Any, user: Any) -> bool:
    """The hub finds out who asks, and it is this person; what it asks later in a request is about a start or a stop."""
    if getattr(handler, "_sign_on_asked", False):
        return False
    return not hasattr(handler, "_jupyterhub_user") or handler._jupyterhub_user is user


def with_sessions(authenticator: type, config: SignOnConfig, gate: GateAddress | None = None) -> type:
    """This authenticator with sessions; its own settings stay where they are. `gate`: to be called at each end."""
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
