"""Who may list and end whose sessions, for pages and REST alike.

A person's own need no scope in a browser. A token needs the right over the person's tokens (``tokens!user=…``), which
a server's own token has not: code in a notebook signs nobody out.
"""

from __future__ import annotations

from typing import Any

from jupyterhub.user import User
from tornado import web

from hub_extensions.adapters.files.catalogues import catalogue_for
from hub_extensions.authenticator.sign_on import HubSignOn
from hub_extensions.core.sign_on import SignOnSession, browser_text
from hub_extensions.core.text.translation import ENGLISH, Catalogue


def sign_on_of(handler: Any) -> HubSignOn:
    """What the hub has of sessions."""
    sign_on: HubSignOn = handler.authenticator.sign_on
    return sign_on


def is_own(handler: Any, name: str) -> bool:
    """The request is this person's own."""
    asker = handler.current_user
    if not isinstance(asker, User) or asker.name != name:
        return False
    if not getattr(handler, "_token_authenticated", False):
        return True
    return bool({"tokens", f"tokens!user={name}"} & set(handler.expanded_scopes))


def has_scope(handler: Any, scope: str) -> bool:
    """The request has the whole scope, not one narrowed to some people."""
    return scope in handler.expanded_scopes


def user_named(handler: Any, name: str, scope: str) -> Any:
    """The hub's user by a name, for a request that may see it. Raises 401, 403 and 404."""
    if handler.current_user is None:
        raise web.HTTPError(403)
    if not is_own(handler, name) and not has_scope(handler, scope):
        # whether there is such a person is nobody's business
        raise web.HTTPError(404, "No such user, or not yours to see.")
    user = handler.find_user(name)
    if user is None:
        raise web.HTTPError(404, "No such user, or not yours to see.")
    return user


def asker_name(handler: Any) -> str:
    """Who asks, for the audit log: a user's name, or a service's."""
    asker = handler.current_user
    return str(asker.name) if isinstance(asker, User) else f"service {asker.name}"


def language_of(handler: Any) -> Catalogue:
    """The language that the browser of a request asks for; English where no request is known."""
    request = getattr(handler, "request", None)
    return catalogue_for(request.headers.get("Accept-Language", "") if request is not None else "")


def language_of_page(static_url: object) -> Catalogue:
    """The same from inside a page: of its names `static_url` is the one that is a method of its request."""
    return language_of(getattr(static_url, "__self__", None))


def as_row(session: SignOnSession, current: SignOnSession | None, t: Catalogue = ENGLISH) -> dict[str, Any]:
    """A session as its person, or an admin, may see it."""
    return {
        "id": session.id,
        "browser": browser_text(session.browser, t),
        "address": session.address,
        "begun": session.begun.isoformat(timespec="seconds"),
        "last_use": session.last_use.isoformat(timespec="seconds"),
        "this_one": current is not None and current.id == session.id,
    }
