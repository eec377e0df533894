"""A receiver of notices on loopback. Its failure modes are classes with a name."""

from __future__ import annotations

import json
import socketserver
import threading
import time
from typing import Any

PATIENCE = 20.0


class WebhookAsTold:
    """Answers 200; `taken` are the bodies it has read, `headers` what came with them, in lower case."""

    def __init__(self) -> None:
        self.taken: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.hits = 0
        told = self

        class Session(_Session):
            webhook = told

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Session)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/hook"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, session: _Session) -> None:
        session.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


class WebhookThatFails(WebhookAsTold):
    """Until it is mended."""

    fails = True

    def answer(self, session: _Session) -> None:
        if self.fails:
            session.wfile.write(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n")
        else:
            super().answer(session)


class WebhookThatRedirects(WebhookAsTold):
    """To itself, which would be seen."""

    def answer(self, session: _Session) -> None:
        session.wfile.write(f"HTTP/1.1 307 There\r\nLocation: {self.url}\r\nContent-Length: 0\r\n\r\n".encode())


class WebhookThatHangs(WebhookAsTold):
    def answer(self, session: _Session) -> None:
        time.sleep(PATIENCE)


class WebhookWithoutEnd(WebhookAsTold):
    """Says 200 and 100 MB, or as much of it as is taken; `sent` is how much that was."""

    sent = 0

    def answer(self, session: _Session) -> None:
        session.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 104857600\r\n\r\n")
        for _ in range(1600):
            session.wfile.write(b"x" * 65536)
            self.sent += 65536


class _Session(socketserver.StreamRequestHandler):
    webhook: WebhookAsTold

    def handle(self) -> None:
        try:
            if not self.rfile.readline():
                return
            heads = {}
            while (line := self.rfile.readline().decode().strip()) != "":
                name, _, value = line.partition(": ")
                heads[name.lower()] = value
            body = self.rfile.read(int(heads.get("content-length", 0)))
            self.webhook.hits += 1
            self.webhook.headers.append(heads)
            self.webhook.taken.append(json.loads(body))
            self.webhook.answer(self)
        except OSError:
            return  # the client is gone
