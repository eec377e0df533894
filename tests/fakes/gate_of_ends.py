"""A gate as far as the hub knows it: it hears which sessions have ended, from whom has its secret."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.web import Application, RequestHandler

from hub_extensions.adapters.service.signatures import Signatures, SignatureVerdict
from hub_extensions.core.sign_on.ended_sessions import ENDED_PATH
from hub_extensions.core.signing import ANSWER_HEADER, hash_of
from tests.ports import free_port

SECRET = "of hub and gate alone"


class GateOfEnds:
    """Listens from `start` to `stop`. `heard`: the reports in order. `answers`: a status other than 200, once each."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        self.answers: list[int] = []
        self.strangers = 0
        self._signatures = Signatures(SECRET)
        self.url = f"http://127.0.0.1:{free_port()}"
        self._server: HTTPServer | None = None

    def start(self) -> None:
        """Listen."""
        gate = self

        class Ended(RequestHandler):
            def post(self) -> None:
                gate._answer(self)

        self._server = HTTPServer(Application([(ENDED_PATH, Ended)]))
        self._server.listen(int(self.url.rpartition(":")[2]), "127.0.0.1")

    def stop(self) -> None:
        """Nobody answers any more."""
        if self._server is not None:
            self._server.stop()

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Listen in a thread of its own, for a hub that is another process."""
        loop = asyncio.new_event_loop()
        thread = Thread(target=loop.run_forever)
        thread.start()
        loop.call_soon_threadsafe(self.start)
        try:
            yield
        finally:
            loop.call_soon_threadsafe(self.stop)
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def _answer(self, handler: RequestHandler) -> None:
        request = handler.request
        judged = self._signatures.verify("POST", str(request.uri), request.headers.get("Authorization", ""))
        if judged is None or judged.request.body != hash_of(request.body):
            self.strangers += 1
            handler.set_status(403)
            return
        if judged.verdict is SignatureVerdict.GOOD:
            status = self.answers.pop(0) if self.answers else 200
            if status == 200:
                self.heard.append(json.loads(request.body))
        else:
            status = 401
        handler.set_status(status)
        handler.set_header(ANSWER_HEADER, self._signatures.signed(judged.request, status, b""))
