"""Two pages in the hub's layout: *my sessions*, and the sessions of all users for admins.

Each button is a form with the hub's XSRF token, so the pages work without scripts. A form leads back to its page.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from jupyterhub import orm
from jupyterhub.handlers import BaseHandler
from jupyterhub.user import User
from tornado import web
from tornado.httputil import HTTPInputError, parse_body_arguments

from hub_extensions.adapters.bounded_body import BoundedBody
from hub_extensions.authenticator.requests import as_row, has_scope, language_of, requester_name, sign_on_of
from hub_extensions.authenticator.scopes import END_SCOPE, LIST_SCOPE
from hub_extensions.authenticator.session_ender import of_one_user
from hub_extensions.core.sign_on import EndCause, EndReport, SignOnConfig
from hub_extensions.core.text.translation import ENGLISH, Catalogue, halves
from hub_extensions.core.text.wording import at_most, duration

MAX_PEOPLE = 100
EVENTS_SHOWN = 20


class FormPage(BoundedBody, BaseHandler, ABC):  # type: ignore[misc]  # jupyterhub has no types
    """Base class of a page with forms of limited size. The XSRF token is in the form's body."""

    body_bytes = 16 * 1024
    _has_form = False

    def check_xsrf_cookie(self) -> None:
        if self.request.method != "POST" or self._has_form:
            super().check_xsrf_cookie()

    @web.authenticated
    async def post(self) -> None:
        """Read the form, check its XSRF token, and call `submitted`."""
        request = self.request
        try:
            parse_body_arguments(
                request.headers.get("Content-Type", ""), self.whole_body(), request.body_arguments, request.files
            )
        except HTTPInputError:
            raise web.HTTPError(400, "The form cannot be read.") from None
        for name, values in request.body_arguments.items():
            request.arguments.setdefault(name, []).extend(values)
        self._has_form = True
        self.check_xsrf_cookie()
        await self.submitted()

    @abstractmethod
    async def submitted(self) -> None:
        """Carry out what the submitted form requests. Each page implements it."""


class SessionsPage(FormPage):
    """GET: the page *my sessions* of the user who is signed in. POST: end one of the user's sessions, or all others."""

    @web.authenticated
    async def get(self) -> None:
        user = _person(self)
        sign_on = sign_on_of(self)
        current = sign_on.session_of(self)
        t = language_of(self)
        rows = [as_row(each, current, t) for each in sign_on.registry.of_user(user.id)]
        html = await self.render_template(
            "sign_on_sessions.html",
            t=t,
            sessions=rows,
            ended=_number(self.get_argument("ended", "")),
            limits=limits_in_words(sign_on.config, t),
            keeps_servers=sign_on.config.servers_at_sign_out == "keep",
            may_list=has_scope(self, LIST_SCOPE),
        )
        self.set_header("Cache-Control", "no-store")
        self.finish(html)

    async def submitted(self) -> None:
        """End the session whose `id` the form names, or all sessions of the user except this browser's (`others`)."""
        user = _person(self)
        sign_on = sign_on_of(self)
        current = sign_on.session_of(self)
        mine = sign_on.registry.of_user(user.id)
        others = bool(self.get_argument("others", ""))
        wanted = self.get_argument("id", "")
        ending = [
            each for each in mine if (each.id == wanted if not others else current is None or each.id != current.id)
        ]
        if ending:
            await sign_on.ender.end(user.id, ending, EndCause.BY_OWNER)
        self.redirect(f"{self.hub.base_url}sso/sessions?{urlencode({'ended': len(ending)})}", status=303)


class AdminPage(FormPage):
    """For admins. GET: the sessions of all users, a search, and recent events. POST: end a user's sessions."""

    @web.authenticated
    async def get(self) -> None:
        await self._show(None, "")

    async def submitted(self) -> None:
        """End all sessions of the user whom the form names, or only one of them, and show the result.

        The fields of the form are: `user`, the name; `id`, the public id of a session, which is missing to end all; and
        `access_revoked`, with which everything that depends on the right to sign in ends too: tokens and servers.
        """
        if not has_scope(self, END_SCOPE):
            raise web.HTTPError(403, f"This needs the scope {END_SCOPE}.")
        sign_on = sign_on_of(self)
        user = self.find_user(self.get_argument("user", ""))
        if user is None:
            raise web.HTTPError(404, "No such user.")
        sessions = sign_on.registry.of_user(user.id)
        wanted = self.get_argument("id", "")
        report = await sign_on.ender.end(
            user.id,
            [each for each in sessions if not wanted or each.id == wanted],
            EndCause.BY_ADMIN,
            by=requester_name(self),
            lost_right=bool(self.get_argument("access_revoked", "")),
        )
        if sign_on.session_of(self) is None:  # the admin ended this very session
            self.redirect(self.settings["login_url"], status=303)
            return
        await self._show(report, str(user.name))

    async def _show(self, report: EndReport | None, name: str) -> None:
        if not has_scope(self, LIST_SCOPE):
            raise web.HTTPError(403, f"This page needs the scope {LIST_SCOPE}.")
        sign_on = sign_on_of(self)
        search = self.get_argument("search", "").strip()
        t = language_of(self)
        html = await self.render_template(
            "sign_on_admin.html",
            t=t,
            halves=halves,
            people=_people(self, search, t),
            without_session=_without_session(self),
            most=MAX_PEOPLE,
            search=search,
            report=report,
            report_name=name,
            events=sign_on.registry.store.events(None, EVENTS_SHOWN),
            may_end=has_scope(self, END_SCOPE),
            ends_too=ends_too(sign_on.config, t),
            provider=self.authenticator.provider_sentences(t),
        )
        self.set_header("Cache-Control", "no-store")
        self.finish(html)


def _person(handler: Any) -> Any:
    if not isinstance(handler.current_user, User):
        raise web.HTTPError(403)
    return handler.current_user


def _people(handler: Any, search: str, t: Catalogue) -> Sequence[dict[str, Any]]:
    """Return one row for each user with a session, for the admins' page: the name and the sessions.

    The rows are sorted by name, and at most `MAX_PEOPLE`.

    Args:
        handler: the handler of the admins' page.
        search: only users whose names contain this text; "" for all.
        t: the language of texts in the rows.
    """
    sign_on = sign_on_of(handler)
    current = sign_on.session_of(handler)
    registry = sign_on.registry
    by_user = of_one_user(each for user_id in registry.users() for each in registry.of_user(user_id))
    named = handler.db.query(orm.User.id, orm.User.name).order_by(orm.User.name)
    found = [(user_id, name) for user_id, name in named if user_id in by_user and search.lower() in name.lower()]
    return [
        {"name": name, "sessions": [as_row(each, current, t) for each in by_user[user_id]]}
        for user_id, name in found[:MAX_PEOPLE]
    ]


def _without_session(handler: Any) -> Sequence[dict[str, Any]]:
    """Return one row for each user whose servers run although the account may no longer exist at the provider.

    A row has the name, since when that is unknown, and the servers. The admins' page shows the rows.
    """
    unknown = sign_on_of(handler).registry.unknown
    found = [(handler.app.users[user_id], since) for user_id, since in unknown.items() if user_id in handler.app.users]
    return [
        {"name": user.name, "since": since.isoformat(timespec="seconds"), "servers": servers}
        for user, since in sorted(found, key=lambda each: each[1])
        if (servers := sorted(spawner.name for spawner in user.spawners.values() if spawner.active))
    ][:MAX_PEOPLE]


def limits_in_words(config: SignOnConfig, t: Catalogue = ENGLISH) -> str:
    """Describe for the pages after which time a session ends; "" without such limits."""
    if config.idle is None and config.lifetime is None:
        return ""
    if config.lifetime is None:
        return t("A session ends when it was not used for %1.", duration(config.idle or timedelta(), t))
    if config.idle is None:
        return t("A session ends %1 after it began.", at_most(config.lifetime.total_seconds(), t))
    idle, lifetime = duration(config.idle, t), at_most(config.lifetime.total_seconds(), t)
    return t("A session ends when it was not used for %1, or %2 after it began.", idle, lifetime)


def ends_too(config: SignOnConfig, t: Catalogue = ENGLISH) -> list[str]:
    """List for the admins' page what ends together with the sessions of a user who may no longer sign in."""
    servers = {
        "keep": [],
        "stop": [t("servers")],
        "stop-gpu": [t("servers with a GPU")],
        "drain": [t("servers after %1", duration(config.drain, t))],
    }
    tokens = [t("API tokens")] if config.tokens_at_revocation == "all" else []
    return [*tokens, t("places in line"), *servers[config.servers_at_revocation]]


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else None


PAGES = ((r"/sso/sessions", SessionsPage), (r"/sso/admin", AdminPage))
