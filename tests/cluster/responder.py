"""Answers where nothing runs: a played pod's address is a loopback one, and here somebody listens on all of them.

With it a server in a played pod becomes ready for its hub, so that whole loops run on played nodes. It tells nothing
of a real server: no JupyterLab, no environment. One port for all addresses; bound to the loopback device only.
"""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

from tests.patience import patient


class _Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps({"played": self.headers.get("Host", "")}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        return


class _OnLoopback(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")  # 0.0.0.0 is 127.0.0.0/8 then
        super().server_bind()


class Responder:
    """``with Responder() as responder:`` servers whose ``c.KubeSpawner.port`` is ``responder.port`` answer."""

    def __init__(self) -> None:
        self._server = _OnLoopback(("0.0.0.0", 0), _Answer)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def __enter__(self) -> Responder:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(patient(5))
