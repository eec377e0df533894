"""The gate's HTTP server: a fast path for the checks of proxies, and tornado's handlers for everything else.

A check is answered from its headers; its body is discarded, and no handler is created. A request without the proxies'
secret gets 404, whichever app it names.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http.client import responses
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.httputil import (
    HTTPConnection,
    HTTPHeaders,
    HTTPMessageDelegate,
    HTTPServerConnectionDelegate,
    RequestStartLine,
    ResponseStartLine,
)
from tornado.web import Application

from hub_extensions.adapters.files.catalogues import catalogue_for
from hub_extensions.core.sign_on.access import Passage
from hub_extensions.core.sign_on.apps import CHECK_PATH
from hub_extensions.core.sign_on.identity_headers import SIGN_IN
from hub_extensions.gate.gate import CheckAnswer, CheckedRequest, Gate
from hub_extensions.gate.pages import COMMON_HEADERS, JSON, RETRY_SECONDS, PageFacts, message, refusal
from hub_extensions.gate.relay import LARGEST_MESSAGE
from hub_extensions.gate.routes import routes_of

log = logging.getLogger("hub_extensions.gate")

ANSWER_PATH = "/_gate/answer/"
"""Path of checks like `CHECK_PATH`, for proxies that pass the gate's complete answer to the browser."""
LARGEST_HEADERS = 32 * 1024
LARGEST_BODY = 64 * 1024
IDLE_SECONDS = 120.0


def make_server(gate: Gate, portal: Sequence[Any] = ()) -> HTTPServer:
    """Return the gate's server, which does not listen yet.

    Args:
        portal: the handlers of the front page; () without a front page.
    """
    routes = Application(
        [*portal, *routes_of(gate)],
        log_function=lambda handler: None,
        gate=gate,
        websocket_max_message_size=LARGEST_MESSAGE,
        websocket_ping_interval=30.0,
    )
    return HTTPServer(
        _ConnectionDelegate(gate, routes),
        xheaders=False,
        max_header_size=LARGEST_HEADERS,
        max_body_size=LARGEST_BODY,
        idle_connection_timeout=IDLE_SECONDS,
        body_timeout=15.0,
    )


class _ConnectionDelegate(HTTPServerConnectionDelegate):
    def __init__(self, gate: Gate, routes: Application) -> None:
        self._gate, self._routes = gate, routes

    def start_request(self, server_conn: object, request_conn: HTTPConnection) -> HTTPMessageDelegate:
        return _RequestDelegate(self._gate, request_conn, lambda: self._routes.start_request(server_conn, request_conn))


class _RequestDelegate(HTTPMessageDelegate):
    """Receives one request. A check of a proxy is answered here, every other request by tornado's handlers.

    Args:
        gate: decides about checks.
        connection: the connection on which the request came.
        usual: returns tornado's own receiver of the request, to which every other request is passed.
    """

    def __init__(self, gate: Gate, connection: HTTPConnection, usual: Callable[[], HTTPMessageDelegate]) -> None:
        self._gate, self._connection, self._usual = gate, connection, usual
        self._inner: HTTPMessageDelegate | None = None
        self._check: CheckedRequest | None = None
        self._redirects = self._is_known = False
        self._work: asyncio.Future[None] | None = None

    def headers_received(
        self, start: RequestStartLine | ResponseStartLine, headers: HTTPHeaders
    ) -> Awaitable[None] | None:
        assert isinstance(start, RequestStartLine)
        path = start.path
        length = headers.get("Content-Length", "0")
        if length.isdecimal() and int(length) > LARGEST_BODY:  # the body is not read, and the connection is closed
            self._write(413, {**JSON, "Connection": "close"}, message("method", 413), start.method)
            return None
        for prefix in (CHECK_PATH, ANSWER_PATH):
            if path.startswith(prefix):
                self._redirects = prefix is ANSWER_PATH
                self._is_known = self._gate.is_from_proxy(headers)
                name, slash, tail = path[len(prefix) :].partition("/")
                app = self._gate.apps.get(name.partition("?")[0] if self._redirects else name)
                context: Any = getattr(self._connection, "context", None)
                peer = getattr(context, "remote_ip", "")
                self._check = CheckedRequest(app, headers, start.method, slash + tail, peer=peer)
                return None
        self._inner = self._usual()
        return self._inner.headers_received(start, headers)

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        return self._inner.data_received(chunk) if self._inner is not None else None

    def finish(self) -> None:
        if self._inner is not None:
            self._inner.finish()
            return
        check = self._check
        assert check is not None
        if not self._is_known:
            self._write(404, JSON, message("not-found", 404), check.method)
            return
        try:
            answer = self._gate.answer_now(check)
            if answer is not None:
                self._finish_with(answer, check)
        except Exception as problem:  # noqa: BLE001  # no error may let a request pass
            self._fail(problem, check)
            return
        if answer is None:
            self._work = asyncio.ensure_future(self._answer(check))

    def on_connection_close(self) -> None:
        if self._inner is not None:
            self._inner.on_connection_close()
        elif self._work is not None:
            self._work.cancel()

    async def _answer(self, check: CheckedRequest) -> None:
        try:
            self._finish_with(await self._gate.answer(check), check)
        except Exception as problem:  # noqa: BLE001  # no error may let a request pass
            self._fail(problem, check)

    def _fail(self, problem: Exception, check: CheckedRequest) -> None:
        """Answer a check with 503, because an error occurred.

        A check is a proxy's question whether a request may pass to an app. Only the type of the exception is logged:
        its text may contain a header's value.

        Args:
            problem: the exception.
            check: the unanswered check.
        """
        log.error("a check failed: %s", type(problem).__name__)
        self._write(503, {**JSON, "Retry-After": RETRY_SECONDS}, message("hub-away", 503), check.method)

    def _finish_with(self, answer: CheckAnswer, check: CheckedRequest) -> None:
        passage = answer.verdict.passage
        if passage is Passage.PASS:
            self._write(200, answer.identity, b"", check.method)
            return
        if answer.sign_in:
            if self._redirects:
                self._write(302, {"Location": answer.sign_in}, b"", check.method)
            else:
                self._write(401, {**JSON, SIGN_IN: answer.sign_in}, message(answer.verdict.reason, 401), check.method)
            return
        app, settings = answer.app, self._gate.settings
        front = f"{settings.origin}/" if settings.portal else ""
        facts = PageFacts(app.title if app else "", settings.contact, self._gate.answers.away_since, front)
        headers, body = refusal(answer, facts, catalogue_for(check.headers.get("Accept-Language", "")))
        more = {"WWW-Authenticate": "Bearer"} if passage is Passage.REFUSE else {}
        if passage is Passage.AWAY:
            more["Retry-After"] = RETRY_SECONDS
        self._write(passage.value, {**headers, **more}, body, check.method)

    def _write(
        self, status: int, headers: Mapping[str, str] | Sequence[tuple[str, str]], body: bytes, method: str
    ) -> None:
        found = HTTPHeaders(COMMON_HEADERS)
        for name, value in headers.items() if isinstance(headers, Mapping) else headers:
            found.add(name, value)
        found.add("Content-Length", str(len(body)))
        start = ResponseStartLine("HTTP/1.1", status, responses[status])
        self._connection.write_headers(start, found, body if method != "HEAD" else b"")
        self._connection.finish()
