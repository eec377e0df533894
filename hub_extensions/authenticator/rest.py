"""REST API of sessions: ``/hub/api/sso/…``. Errors have the form of the hub's own API."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from jupyterhub.apihandlers.base import APIHandler
from tornado import web

from hub_extensions.adapters.bounded_body import BoundedBody
from hub_extensions.authenticator.requests import as_row, has_scope, is_own, requester_name, sign_on_of, user_named
from hub_extensions.authenticator.scopes import END_SCOPE, LIST_SCOPE
from hub_extensions.core.sign_on import EndCause, SignOnSession

MAX_EVENTS = 1000


class SessionsOfUser(BoundedBody, APIHandler):  # type: ignore[misc]  # jupyterhub has no types
    """GET: list a user's sessions. DELETE: end all of them.

    With ``?access_revoked=true``, the user has lost the right to sign in: tokens and servers end too, and
    ``custom:sign-on:end`` is needed.
    """

    def get(self, name: str) -> None:
        user = user_named(self, name, LIST_SCOPE)
        sign_on = sign_on_of(self)
        current = sign_on.session_of(self)
        _answer(self, {"sessions": [as_row(each, current) for each in sign_on.registry.of_user(user.id)]})

    async def delete(self, name: str) -> None:
        user = user_named(self, name, END_SCOPE)
        await _end(self, user, list(sign_on_of(self).registry.of_user(user.id)))


class SessionOfUser(BoundedBody, APIHandler):  # type: ignore[misc]
    """DELETE: end one session of a user. ``ID`` is the session's ``id`` in the list of the user's sessions."""

    async def delete(self, name: str, session_id: str) -> None:
        user = user_named(self, name, END_SCOPE)
        found = [each for each in sign_on_of(self).registry.of_user(user.id) if each.id == session_id]
        if not found:
            raise web.HTTPError(404, "No such session.")
        await _end(self, user, found)


class Events(BoundedBody, APIHandler):  # type: ignore[misc]
    """GET: list the events of the audit log (sign-ins, ends of sessions), newest first.

    ``?user=`` selects one user, ``?limit=`` sets the largest number.
    """

    def get(self) -> None:
        if not has_scope(self, LIST_SCOPE):
            raise web.HTTPError(403, f"This needs the scope {LIST_SCOPE}.")
        try:
            most = min(max(int(self.get_argument("limit", "100")), 1), MAX_EVENTS)
        except ValueError:
            raise web.HTTPError(400, "limit: a whole number is needed.") from None
        events = sign_on_of(self).registry.store.events(self.get_argument("user", None), most)
        _answer(self, {"events": [each.as_dict() for each in events]})


async def _end(handler: Any, user: Any, sessions: list[SignOnSession]) -> None:
    own = is_own(handler, user.name)
    lost_right = handler.get_argument("access_revoked", "false") == "true"
    if lost_right and not has_scope(handler, END_SCOPE):
        raise web.HTTPError(403, f"access_revoked needs the scope {END_SCOPE}.")
    report = await sign_on_of(handler).ender.end(
        user.id,
        sessions,
        EndCause.BY_OWNER if own and not lost_right else EndCause.BY_ADMIN,
        by="" if own and not lost_right else requester_name(handler),
        lost_right=lost_right,
    )
    stops_at = report.stops_at and report.stops_at.isoformat(timespec="seconds")
    _answer(handler, {**asdict(report), "stops_at": stops_at})


def _answer(handler: Any, value: object) -> None:
    handler.set_header("Cache-Control", "no-store")
    handler.write(json.dumps(value))


REST = (
    (r"/api/sso/users/([^/]+)/sessions", SessionsOfUser),
    (r"/api/sso/users/([^/]+)/sessions/([^/]+)", SessionOfUser),
    (r"/api/sso/events", Events),
)
