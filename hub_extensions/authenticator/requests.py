"""Permissions to list and end sessions, for pages and REST.

In a browser, a user needs no scope for their own sessions. A token needs the right to manage the user's tokens
(``tokens!user=…``). A server's own token lacks it, so that code in a notebook cannot sign anybody out.
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
    """Return the hub's `HubSignOn`, which the authenticator of this handler has made."""
    sign_on: HubSignOn = handler.authenticator.sign_on
    return sign_on


def is_own(handler: Any, name: str) -> bool:
    """Return whether a request may manage the sessions of the user `name` because they are the sender's own.

    A token also needs the right to manage the sender's tokens.
    """
    asker = handler.current_user
    if not isinstance(asker, User) or asker.name != name:
        return False
    if not getattr(handler, "_token_authenticated", False):
        return True
    return bool({"tokens", f"tokens!user={name}"} & set(handler.expanded_scopes))


def has_scope(handler: Any, scope: str) -> bool:
    """Return whether the request has the unrestricted scope, not one that is limited to some users."""
    return scope in handler.expanded_scopes


def user_named(handler: Any, name: str, scope: str) -> Any:
    """Return the hub's user with this name, if the request may see it.

    Args:
        name: name of the user.
        scope: the scope that a request about another user needs.

    Raises:
        HTTPError: 403 if the sender is unknown. 404 if the user does not exist or the request may not see it.
    """
    if handler.current_user is None:
        raise web.HTTPError(403)
    if not is_own(handler, name) and not has_scope(handler, scope):
        # the answer must not reveal whether the user exists
        raise web.HTTPError(404, "No such user, or not yours to see.")
    user = handler.find_user(name)
    if user is None:
        raise web.HTTPError(404, "No such user, or not yours to see.")
    return user


def requester_name(handler: Any) -> str:
    """Return the sender's name for the audit log: a user's, or a service's."""
    asker = handler.current_user
    return str(asker.name) if isinstance(asker, User) else f"service {asker.name}"


def language_of(handler: Any) -> Catalogue:
    """Return the language that the browser asks for; English if the request is unknown."""
    request = getattr(handler, "request", None)
    return catalogue_for(request.headers.get("Accept-Language", "") if request is not None else "")


def language_of_page(static_url: object) -> Catalogue:
    """Return the language for a template.

    Args:
        static_url: the template's function of this name. It is a method of the request's handler, and the only name in
            a template that gives access to the request.
    """
    return language_of(getattr(static_url, "__self__", None))


def as_row(session: SignOnSession, current: SignOnSession | None, t: Catalogue = ENGLISH) -> dict[str, Any]:
    """Return a session as a row for the pages and the REST API, as its user or an admin may see it.

    Args:
        session: the session.
        current: the session of the browser that asks, whose row is marked; `None` if the request has no session.
        t: the language of texts in the row.
    """
    return {
        "id": session.id,
        "browser": browser_text(session.browser, t),
        "address": session.address,
        "begun": session.begun.isoformat(timespec="seconds"),
        "last_use": session.last_use.isoformat(timespec="seconds"),
        "this_one": current is not None and current.id == session.id,
    }
