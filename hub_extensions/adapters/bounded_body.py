"""Request bodies with limits on size and time.

Tornado closes a connection on which it answered before the whole body was read. The answer has to announce the close.
Otherwise a proxy that reuses connections sends the next request, of another user, into the closed connection.
"""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

from tornado.web import HTTPError, RequestHandler, stream_request_body


@stream_request_body
class BoundedBody(RequestHandler):
    """A mix-in for tornado handlers that limits request bodies in size and time.

    The handler's `prepare` runs before any byte of the body is read. It calls `take_body` if it accepts a body.

    Attributes:
        body_bytes: the size of the largest accepted body.
        body_seconds: how long the body may take to arrive; `None` for the server's own limit.
        received: the part of the body that has arrived.
    """

    body_bytes: ClassVar[int] = 4 * 1024
    body_seconds: ClassVar[float | None] = 15.0
    _takes_body = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.received = bytearray()
        super().__init__(*args, **kwargs)

    async def prepare(self) -> None:
        prepared: Any = super().prepare()
        if inspect.isawaitable(prepared):
            await prepared
        self.take_body()

    def take_body(self) -> None:
        """Start reading the body, within the limits of the class.

        Raises:
            Exception: the error of `too_large`, if the header ``Content-Length`` announces a body that is too large.
        """
        length = self.request.headers.get("Content-Length", "0")
        if length.isdecimal() and int(length) > self.body_bytes:
            raise self.too_large()
        self._takes_body = True
        connection: Any = self.request.connection
        # the length of a chunked body is known only at its end; some excess is read, so that it can be answered
        connection.set_max_body_size(2 * self.body_bytes)
        if self.body_seconds is not None:
            connection.set_body_timeout(self.body_seconds)

    def data_received(self, chunk: bytes) -> None:
        if len(self.received) <= self.body_bytes:
            self.received += chunk

    def whole_body(self) -> bytes:
        """Return the body; available once a method of the handler runs.

        Raises:
            Exception: the error of `too_large`, if the body is larger than `body_bytes`.
        """
        if len(self.received) > self.body_bytes:
            raise self.too_large()
        return bytes(self.received)

    def too_large(self) -> Exception:
        """Return the error that is raised for a body that is larger than `body_bytes`. A handler may override it."""
        return HTTPError(413, f"The body is too large; {self.body_bytes} bytes is the most.")

    def finish(self, *args: Any, **kwargs: Any) -> Any:
        if not self._takes_body:
            self.set_header("Connection", "close")
        return super().finish(*args, **kwargs)
