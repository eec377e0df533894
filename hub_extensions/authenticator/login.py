"""Sign-in and sign-out: the authenticator's handlers begin a session, and the handler of ``/logout`` ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jupyterhub.handlers import BaseHandler
from jupyterhub.handlers.login import LoginHandler, LogoutHandler
from tornado import web
from tornado.httputil import url_concat

from hub_extensions.authenticator.requests import language_of
from hub_extensions.core.sign_on import EndCause, end_sentence
from hub_extensions.core.sign_on.events import SESSION_LETTERS
from hub_extensions.core.text.translation import halves

SILENT = frozenset({EndCause.SIGN_OUT.value, EndCause.REPLACED.value})
"""Causes of a session's end that are not shown at the next sign-in, because the user caused the end."""


WAIT_SECONDS = 1.0
"""Maximum time that a sign-out waits for the user's servers to close their open pages."""


def allowed_next_url(validate: Callable[[str], str], address: str) -> str:
    """Return the address to continue at after a sign-in, or "" if that address is malformed or not allowed.

    Args:
        validate: the hub's own check, which returns the address, or "" if it is not allowed.
        address: the address that the request names.
    """
    try:
        return str(validate(address)) if address.isprintable() else ""
    except ValueError:  # the hub would answer 500
        return ""


class SessionLoginMixin:
    """Mixin for an authenticator's handler of sign-in: each sign-in begins a session.

    The mixin works for handlers that call the hub's `login_user`, and for those that call only `set_login_cookie`.
    """

    _sign_on_new = False

    def _validate_next_url(self: Any, next_url: str) -> str:
        """Return the address if the hub's own check allows it; otherwise "".

        Addresses that cannot be in a ``Location`` header are refused too, because the hub would answer 500 to them.
        """
        return allowed_next_url(super()._validate_next_url, next_url)  # type: ignore[misc]

    async def login_user(self: Any, data: Any = None) -> Any:
        """Sign the user in as the hub does, in a new session, even if this browser has one.

        If the sign-in is refused, the audit log gets an event.

        Args:
            data: the submitted credentials, as the hub passes them to its own `login_user`; `None` without a form.

        Returns:
            The user; `None` if the authenticator refuses the sign-in.
        """
        self._sign_on_new = True
        try:
            user = await super().login_user(data)  # type: ignore[misc]  # the handler behind us has it
        except web.HTTPError as error:
            if error.status_code == 403:
                self.authenticator.sign_on.refused()
            raise
        finally:
            self._sign_on_new = False
        if user is None:
            self.authenticator.sign_on.refused(getattr(self, "sign_on_refusal", ""))
        return user

    def set_login_cookie(self: Any, user: Any) -> None:
        """Begin a session and set the hub's cookie.

        If this browser already has a session of this user, as at a second visit of the login page, that session goes
        on. A sign-in with `login_user` always begins a new one.
        """
        sign_on = self.authenticator.sign_on
        session = sign_on.session_of(self)
        if self._sign_on_new or session is None or session.user_id != user.id:
            sign_on.begin(self, user)
        super().set_login_cookie(user)  # type: ignore[misc]

    async def prepare(self: Any) -> None:
        """Show once why this browser's last session ended, before the sign-in page."""
        await super().prepare()  # type: ignore[misc]
        if self.request.method != "GET" or self._finished or self.current_user is not None:
            return
        if self.request.headers.get("Sec-Fetch-Mode", "navigate") != "navigate":
            return  # a background request, whose answer no user reads
        # only at the start of a sign-in, never at its callback
        if self.request.path != self.settings["login_url"]:
            return
        session = self.authenticator.sign_on.ended_session_of(self)
        if session is None or session.cause in SILENT:
            return
        self.authenticator.sign_on.clear_cookie(self)
        t = language_of(self)
        html = await self.render_template(
            "sign_on_ended.html",
            t=t,
            halves=halves,
            stops=self.authenticator.sign_on.stops_of(session.user_id),
            message=end_sentence(session.cause, t),
            ended=session.ended,
            number=session.id[:SESSION_LETTERS],
            again=url_concat(self.authenticator.login_url(self.hub.base_url), {"next": self.get_argument("next", "")}),
        )
        self.finish(html)


class SessionLogoutMixin:
    """Mixin for the handler of ``/logout``, which ends this browser's session."""

    async def prepare(self: Any) -> None:
        """Refuse requests that do not load a page, such as an image in a notebook, because servers may stop with the
        session.
        """
        await super().prepare()  # type: ignore[misc]
        if self.request.headers.get("Sec-Fetch-Dest", "document") != "document":
            raise web.HTTPError(403, "Open this page to sign out.")

    async def default_handle_logout(self: Any) -> None:
        """End this browser's session everywhere before the hub's own sign-out."""
        ending = self._end_session()
        if ending is not None:
            await asyncio.wait({ending}, timeout=WAIT_SECONDS)
        await super().default_handle_logout()  # type: ignore[misc]
        self.authenticator.sign_on.clear_cookie(self)

    def clear_login_cookie(self: Any, name: Any = None) -> None:
        """End the session when the hub deletes the login cookie.

        `default_handle_logout` is not enough, because an authenticator's own logout handler may call only this method.

        Args:
            name: is passed on to the hub's own method.
        """
        self._end_session()
        super().clear_login_cookie(name)  # type: ignore[misc]
        self.authenticator.sign_on.clear_cookie(self)

    def _end_session(self: Any) -> asyncio.Future[Any] | None:
        sign_on = self.authenticator.sign_on
        session = sign_on.session_of(self)
        if session is None:
            return None
        ending: asyncio.Future[Any] = sign_on.ender.end(session.user_id, [session], EndCause.SIGN_OUT)
        return ending


def handlers_with_sessions(handlers: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield the authenticator's handlers, each with our mixin for its path.

    For ``/login`` and ``/logout``, the hub's own handlers are yielded if the authenticator does not define any.
    """
    taken = set()
    for path, handler, *more in handlers:
        taken.add(path)
        yield (path, _in_front(path, handler), *more)
    for path, handler in (("/login", LoginHandler), ("/logout", LogoutHandler)):
        if path not in taken:
            yield (path, _in_front(path, handler))


def _in_front(path: str, handler: Any) -> Any:
    if not isinstance(handler, type) or not issubclass(handler, BaseHandler):
        return handler
    ours = SessionLogoutMixin if issubclass(handler, LogoutHandler) or path == "/logout" else SessionLoginMixin
    return type(handler.__name__, (ours, handler), {"__module__": handler.__module__, "__doc__": handler.__doc__})
