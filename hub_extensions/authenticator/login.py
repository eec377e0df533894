"""Sign-in and sign-out: each handler of the authenticator begins a session, and the one of ``/logout`` ends it.

Not here: what a session is (``sign_on.py``), and the pages about sessions (``pages.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jupyterhub.handlers import BaseHandler
from jupyterhub.handlers.login import LoginHandler, LogoutHandler
from tornado import web
from tornado.httputil import url_concat

from hub_extensions.authenticator.requests import language_of
from hub_extensions.core.sign_on import EndCause, end_words
from hub_extensions.core.sign_on.events import SESSION_LETTERS
from hub_extensions.core.text.translation import halves

SILENT = frozenset({EndCause.SIGN_OUT.value, EndCause.REPLACED.value})
"""Ends that nobody has to be told of."""


WAIT_SECONDS = 1.0
"""So long a sign-out waits for the person's servers to have closed their pages."""


def on_this_host(validate: Callable[[str], str], address: str) -> str:
    """Where to go on to, as the hub allows it; "": nowhere, as for what is no address, and for control characters."""
    try:
        return str(validate(address)) if address.isprintable() else ""
    except ValueError:  # the hub would answer 500
        return ""


class BeginsSessions:
    """In front of a handler that signs people in, by the hub's `login_user` or by `set_login_cookie` alone."""

    _sign_on_new = False

    def _validate_next_url(self: Any, next_url: str) -> str:
        """As the hub does; an address that no ``Location`` can have is none, and the hub would answer 500 to it."""
        return on_this_host(super()._validate_next_url, next_url)  # type: ignore[misc]

    async def login_user(self: Any, data: Any = None) -> Any:
        """As the hub does; a new session even where this browser has one."""
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
        """As the hub does, with a session; a visit to the login page by who is signed in begins none."""
        sign_on = self.authenticator.sign_on
        session = sign_on.session_of(self)
        if self._sign_on_new or session is None or session.user_id != user.id:
            sign_on.begin(self, user)
        super().set_login_cookie(user)  # type: ignore[misc]

    async def prepare(self: Any) -> None:
        """Before the page to sign in: who or what ended the session that this browser had. Said once, to a person."""
        await super().prepare()  # type: ignore[misc]
        if self.request.method != "GET" or self._finished or self.current_user is not None:
            return
        if self.request.headers.get("Sec-Fetch-Mode", "navigate") != "navigate":
            return  # a page asks by itself, and shows nobody what it gets
        # where signing in begins, never where it comes back to
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
            message=end_words(session.cause, t),
            ended=session.ended,
            number=session.id[:SESSION_LETTERS],
            again=url_concat(self.authenticator.login_url(self.hub.base_url), {"next": self.get_argument("next", "")}),
        )
        self.finish(html)


class EndsSession:
    """In front of the handler of ``/logout``."""

    async def prepare(self: Any) -> None:
        """Only a page that is opened signs out, and no picture of a notebook: servers may stop with the session."""
        await super().prepare()  # type: ignore[misc]
        if self.request.headers.get("Sec-Fetch-Dest", "document") != "document":
            raise web.HTTPError(403, "Open this page to sign out.")

    async def default_handle_logout(self: Any) -> None:
        """As the hub does, after the session of this browser has ended everywhere."""
        ending = self._end_session()
        if ending is not None:
            await asyncio.wait({ending}, timeout=WAIT_SECONDS)
        await super().default_handle_logout()  # type: ignore[misc]
        self.authenticator.sign_on.clear_cookie(self)

    def clear_login_cookie(self: Any, name: Any = None) -> None:
        """As the hub does; a handler with a `get` of its own does no more than this."""
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


def with_sign_on(handlers: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """The authenticator's handlers with ours in front; the hub's own for the paths that it leaves to the hub."""
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
    ours = EndsSession if issubclass(handler, LogoutHandler) or path == "/logout" else BeginsSessions
    return type(handler.__name__, (ours, handler), {"__module__": handler.__module__, "__doc__": handler.__doc__})
