"""The hub's sign-on sessions at run time: how they begin and are used, and the work that is done every minute.

The authenticator makes one `HubSignOn` per hub, when the hub asks for its handlers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any

from jupyterhub import orm, roles

from hub_extensions.adapters.hub.login_log import hide_login_secrets
from hub_extensions.adapters.service.gpu_service import gpu_service
from hub_extensions.adapters.store.sign_on import PendingStop, SignOnStore
from hub_extensions.authenticator.gate_caller import GateCaller, ServiceCaller
from hub_extensions.authenticator.registry import SessionRegistry
from hub_extensions.authenticator.scopes import ADMIN_ROLE
from hub_extensions.authenticator.session_ender import SessionEnder
from hub_extensions.core.sign_on import (
    EndCause,
    SignOnConfig,
    SignOnEvent,
    SignOnSession,
    limit_passed,
    surplus_sessions,
)
from hub_extensions.core.sign_on.events import SESSION_LETTERS
from hub_extensions.core.sign_on.gate_config import GateAddress

COOKIE = "jupyterhub-sign-on"
COOKIE_DAYS = 30
"""Time in days that a browser keeps the cookie if the lifetime of sessions is not limited."""
MINUTE_SECONDS = 60.0
CLEAN_AFTER_MINUTES = 60
MAX_REFUSED_PER_MINUTE = 30
"""Maximum number of refused sign-ins in the audit log per minute, so that nobody can fill the hub's disk."""


class HubSignOn:
    """The sign-on sessions (signed-in browsers) of a running hub. Handlers and the authenticator use it.

    Args:
        app: the running JupyterHub.
        config: the settings of sessions.
        now: returns the hub's time.
        gate: where ended sessions are reported; `None` without a gate.

    Attributes:
        registry: all sessions.
        ender: ends sessions.
    """

    def __init__(
        self, app: Any, config: SignOnConfig, now: Callable[[], datetime], gate: GateAddress | None = None
    ) -> None:
        self.config = config
        self.now = now
        self._app = app
        self.registry = SessionRegistry(SignOnStore.opened(app.db), config, now)
        caller = None if gate is None else GateCaller(gate, app.log)
        self.ender = SessionEnder(app, self.registry, config, now, self._log_event, caller, _service_caller(app))
        self._refused: deque[datetime] = deque(maxlen=MAX_REFUSED_PER_MINUTE)
        role = orm.Role.find(app.db, ADMIN_ROLE)
        for user in {*app.db.query(orm.User).filter_by(admin=True), *(role.users if role is not None else ())}:
            self.grant_admins(user)
        hide_login_secrets()
        self._work = asyncio.ensure_future(self._run())

    # ---------------------------------------------------------------- sessions of a browser

    def session_of(self, handler: Any) -> SignOnSession | None:
        """Return the session of the browser that sends this request; `None` if the browser is not signed in, or if
        its session has ended.
        """
        return self.registry.living(handler.get_cookie(COOKIE))

    def ended_session_of(self, handler: Any) -> SignOnSession | None:
        """Return the session of the browser that sends this request, if it ended recently; otherwise `None`."""
        return self.registry.ended(handler.get_cookie(COOKIE))

    def begin(self, handler: Any, user: Any) -> None:
        """Begin a session for the browser that sends this request, and end the session that the browser had before."""
        before = self.session_of(handler)
        session, value = self.registry.begin(
            user.id, handler.request.headers.get("User-Agent", ""), handler.request.remote_ip or ""
        )
        event = SignOnEvent(session.begun, "signed-in", str(user.name), session=session.id[:SESSION_LETTERS])
        with self.registry.store.transaction():
            self.registry.store.put([session])
            self.registry.store.record(event)
        self.registry.put(session)
        self._log_event(event)
        # a new id at each sign-in, so that knowing the old one is useless (session fixation)
        handler._session_id = session.hub_session
        handler.set_session_cookie()
        handler._set_cookie(COOKIE, value, encrypted=False, **self._cookie_options(handler))
        # the hub would keep a cookie that is about to expire
        handler.set_hub_cookie(user)
        self.ender.note_known(user.id, "signed-in")
        if before is not None:
            self.ender.end(before.user_id, [before], EndCause.REPLACED)
        surplus = surplus_sessions(self.registry.of_user(user.id), self.config)
        if surplus:
            self.ender.end(user.id, surplus, EndCause.NUMBER)

    async def admit(self, handler: Any, user: Any) -> bool:
        """Return whether this browser has a session of this user that has not ended. If so, the request counts as a use
        of the session.
        """
        session = self.session_of(handler)
        if session is None or session.user_id != user.id:
            return False
        created = user.created
        if created is not None and created.replace(tzinfo=timezone.utc) > session.begun + timedelta(seconds=1):
            return False  # a new account with the id of a deleted one
        cause = limit_passed(session, self.config, self.now())
        if cause is not None:
            self.ender.end(user.id, [session], cause)
            return False
        self.registry.use(session)
        if handler.get_session_cookie() != session.hub_session:
            handler._session_id = session.hub_session
            handler.set_session_cookie()
        return True

    def clear_cookie(self, handler: Any) -> None:
        """Delete the cookie of the sign-on session in the browser."""
        handler.clear_cookie(COOKIE, path=handler.hub.base_url)

    def _cookie_options(self, handler: Any) -> dict[str, Any]:
        options: dict[str, Any] = {"path": handler.hub.base_url, "httponly": True, "samesite": "Lax"}
        if "expires_days" not in handler.settings.get("cookie_options", {}):
            longest = self.config.lifetime
            options["expires_days"] = COOKIE_DAYS if longest is None else longest / timedelta(days=1)
        return options

    def is_unknown(self, user_id: int) -> bool:
        """Return whether it is not known if the provider still has the account of this user (the hub's id)."""
        return user_id in self.registry.unknown

    def stops_of(self, user_id: int) -> list[PendingStop]:
        """Return the pending stops of a user's servers (stops because a session ended), the earliest first."""
        return [each for each in self.registry.store.stops() if each.user_id == user_id]

    # ---------------------------------------------------------------- audit log, admins, work of each minute

    def refused(self, cause: str = "") -> None:
        """Record a refused sign-in in the audit log.

        The user name is not recorded, because it may be a password in the wrong field.

        Args:
            cause: why it was refused, as a code; "" if that is not known.
        """
        now = self.now()
        if len(self._refused) == MAX_REFUSED_PER_MINUTE and now - self._refused[0] < timedelta(minutes=1):
            return
        self._refused.append(now)
        event = SignOnEvent(now, "refused", None, cause=cause)
        with self.registry.store.transaction():
            self.registry.store.record(event)
        self._log_event(event)

    def record(self, event: SignOnEvent) -> None:
        """Write an event to the audit log of sign-ons."""
        with self.registry.store.transaction():
            self.registry.store.record(event)
        self._log_event(event)

    def grant_admins(self, user: Any) -> None:
        """Give an admin the role with the two scopes of sign-on sessions. Take it from a user who is not an admin."""
        orm_user = getattr(user, "orm_user", user)
        has_it = any(role.name == ADMIN_ROLE for role in orm_user.roles)
        if has_it == bool(orm_user.admin) or orm.Role.find(self._app.db, ADMIN_ROLE) is None:
            return
        change = roles.grant_role if orm_user.admin else roles.strip_role
        change(self._app.db, entity=orm_user, rolename=ADMIN_ROLE)

    def _log_event(self, event: SignOnEvent) -> None:
        self._app.log.info("sign-on %s", event.as_json())

    async def _run(self) -> None:
        """Do the regular work of sign-on sessions once a minute, as long as the hub runs."""
        await self._app._start_future
        minutes, resumed = 0, False
        while True:
            resumed = resumed or self._tries(self.ender.resume)
            if self._tries(partial(self._do_minute, clean=minutes % CLEAN_AFTER_MINUTES == 0)):
                minutes += 1
            await asyncio.sleep(MINUTE_SECONDS)

    def _do_minute(self, *, clean: bool) -> None:
        self._tries(self.registry.note_uses)
        for session, cause in self.registry.over_limits():
            self._tries(partial(self.ender.end, session.user_id, [session], cause))
        for user_id in self.ender.deleted_users():
            self._tries(partial(self.ender.end, user_id, self.registry.of_user(user_id), EndCause.USER_DELETED))
        self.ender.delete_late_tokens()
        self._tries(self.ender.forget_unknown)
        self.ender.report_to_service_again()
        if clean:
            self.registry.forget_ended()
            with self.registry.store.transaction():
                self.registry.store.clean_events(self.now() - timedelta(days=self.config.audit_retention_days))

    def _tries(self, work: Callable[[], object]) -> bool:
        """Call `work`, a part of the work of each minute, and return whether it succeeded.

        If it fails, for example because the database is locked, the error is logged and the next minute tries again.
        """
        try:
            work()
        except Exception:
            self._app.log.exception("A part of the minute's work on sign-on sessions was not done")
            with suppress(Exception):  # the next part begins with a rollback again
                self._app.db.rollback()
            return False
        return True


def _service_caller(app: Any) -> ServiceCaller | None:
    """Return the object that reports ended sessions to the GPU service of this hub's spawners.

    `None` if the spawners use no GPU service.
    """
    known = getattr(app, "config", {}).get("GpuSpawnerMixin", {})
    url, secret = known.get("gpu_service_url", ""), known.get("gpu_hub_secret", "")
    if not url or not secret:
        return None
    return ServiceCaller(gpu_service(url, secret, known.get("gpu_service_uid")), app.log)
