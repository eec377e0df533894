"""Answers at the service's address while the service cannot start: 503 for every request, with the reason.

The hub holds the listening socket, so requests, also those of health probes, would otherwise wait for an answer.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable
from html import escape

from tornado.httpserver import HTTPServer
from tornado.web import Application

from hub_extensions.adapters.bounded_body import BoundedBody
from hub_extensions.adapters.files.catalogues import catalogue_for

RETRY_SECONDS = 5.0


class NotReadyPage:
    """A small HTTP server that answers on copies of the service's sockets while the service cannot start.

    Attributes:
        reason: why the service cannot start; "" until `answer` is called.
    """

    def __init__(self) -> None:
        self.reason = ""
        self._application = Application(
            default_handler_class=_Unavailable,
            default_handler_args={"not_ready": self},
            log_function=lambda handler: None,
        )
        self._server: HTTPServer | None = None

    def answer(self, sockets: Iterable[socket.socket], reason: str) -> None:
        """Answer every request from now on with 503 and the reason.

        Args:
            sockets: the service's listening sockets, which are copied.
            reason: why the service cannot start.
        """
        self.reason = reason
        if self._server is None:
            self._server = HTTPServer(self._application, body_timeout=15.0, idle_connection_timeout=30.0)
            self._server.add_sockets([each.dup() for each in sockets])

    async def close(self) -> None:
        """Stop answering requests with "not ready". Can be called twice."""
        server, self._server = self._server, None
        if server is not None:
            server.stop()
            await server.close_all_connections()


class _Unavailable(BoundedBody):
    def initialize(self, not_ready: NotReadyPage) -> None:
        self._not_ready = not_ready

    def check_xsrf_cookie(self) -> None:
        """Do not check the XSRF cookie, because nothing is changed here."""

    async def prepare(self) -> None:
        reason = self._not_ready.reason
        self.set_status(503)
        self.clear_header("Server")
        self.set_header("Cache-Control", "no-store")
        self.set_header("Retry-After", str(int(RETRY_SECONDS)))
        path = self.request.path.rstrip("/")
        if path.endswith(("/health", "/healthz")):
            self.finish({"ready": False, "store": reason})
        elif "text/html" in self.request.headers.get("Accept", ""):
            t = catalogue_for(self.request.headers.get("Accept-Language", ""))
            title = escape(t("The GPU service cannot start now. Servers go on."))
            self.set_header("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
            self.set_header("Content-Type", "text/html; charset=utf-8")
            self.finish(
                f"<!doctype html><meta charset='utf-8'><title>{title}</title><h1>{title}</h1><p>{escape(reason)}"
            )
        else:
            self.set_header("Content-Type", "application/json")
            self.finish(json.dumps({"message": reason, "field": "", "reason": "store-away", "params": {}}))
