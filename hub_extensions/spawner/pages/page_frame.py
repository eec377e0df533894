"""The frame of the hub's own pages, for those of the GPU service: header, theme button, logout, an admin's own parts.

The service asks with its own token and names the reader; what comes is one of the hub's pages with places to fill in.
So it is the same on each generation of JupyterHub, with an admin's templates, and where the service has a pod of its
own. Not here: what stands in the frame (``hub_service/http/pages``).
"""

from __future__ import annotations

import json
from typing import Any

from jupyterhub import orm, scopes
from jupyterhub.handlers import BaseHandler
from tornado import web

from hub_extensions.adapters.bounded_body import BoundedBody


class PageFrame(BoundedBody, BaseHandler):  # type: ignore[misc]  # jupyterhub is untyped
    """GET: a page of the hub without contents, as ``?user=`` sees it; for one service and its token alone."""

    _accept_cookie_auth = False
    _accept_token_auth = True

    def initialize(self, service: str) -> None:
        """`service`: who may ask."""
        super().initialize()
        self.service = service

    async def get(self) -> None:
        """See the class."""
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
        """Answer in JSON: the hub's own page about an error cannot be made for a service."""
        problem = kwargs.get("exc_info", (None, None, None))[1]
        message = problem.log_message if isinstance(problem, web.HTTPError) else ""
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps({"status": status_code, "message": message or self._reason}))


def frame_handler(service: str) -> tuple[str, type[PageFrame], dict[str, str]]:
    """The address, as ``c.JupyterHub.extra_handlers`` takes it."""
    return (r"/api/gpu/frame", PageFrame, {"service": service})
