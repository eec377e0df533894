"""A handler that renders a page of the hub without content: the page layout around the GPU service's pages.

The GPU service requests this page with its own token, names the user who will read the page, and inserts its own
content. The result has the hub's header, theme and logout, with any version of JupyterHub, with an administrator's own
templates, and also if the service runs in a separate pod.
"""

from __future__ import annotations

import json
from typing import Any

from jupyterhub import orm, scopes
from jupyterhub.handlers import BaseHandler
from tornado import web

from hub_extensions.adapters.bounded_body import BoundedBody


class PageFrame(BoundedBody, BaseHandler):  # type: ignore[misc]  # jupyterhub is untyped
    """Handler that returns a page of the hub without content, as the user ``?user=`` would see it.

    Only the GPU service named at its creation may request it, with its own token.
    """

    route = "/api/gpu/frame"
    _accept_cookie_auth = False
    _accept_token_auth = True

    def initialize(self, service: str) -> None:
        super().initialize()
        self.service = service

    async def get(self) -> None:
        asking = self.current_user
        if not isinstance(asking, orm.Service) or asking.name != self.service:
            raise web.HTTPError(403, "This is for the GPU service.")
        reader = self.find_user(self.get_argument("user"))
        if reader is None:
            raise web.HTTPError(404, "No such user.")
        self._jupyterhub_user = reader
        self.expanded_scopes = scopes.get_scopes_for(reader)
        self.parsed_scopes = scopes.parse_scopes(self.expanded_scopes)
        page = await self.render_template("gpu_frame.html")
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.set_header("Cache-Control", "no-store")
        self.finish(page)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer in JSON, because the hub's error page cannot be rendered for a service."""
        problem = kwargs.get("exc_info", (None, None, None))[1]
        message = problem.log_message if isinstance(problem, web.HTTPError) else ""
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps({"status": status_code, "message": message or self._reason}))
