"""A user's server that is up in a blink: answers the hub's readiness check and tells its own environment.

Run as ``Spawner.cmd``. ``FAKE_SINGLEUSER_SLOW`` seconds before it listens; ``FAKE_SINGLEUSER_FORK`` leaves a child
behind that ignores the end of its parent (``nohup``).
"""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps({"environ": dict(os.environ), "pid": os.getpid(), "args": sys.argv}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-JupyterHub-Version", os.environ.get("FAKE_HUB_VERSION", ""))
        self.end_headers()
        self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        return


def main() -> None:
    if os.environ.get("FAKE_SINGLEUSER_FORK"):
        subprocess.Popen(["sleep", "600"], start_new_session=True)
    time.sleep(float(os.environ.get("FAKE_SINGLEUSER_SLOW", "0")))
    place = urlsplit(os.environ["JUPYTERHUB_SERVICE_URL"])
    server = ThreadingHTTPServer((place.hostname or "127.0.0.1", place.port or 0), Handler)
    if place.scheme == "https":
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=os.environ["JUPYTERHUB_SSL_CLIENT_CA"])
        context.load_cert_chain(os.environ["JUPYTERHUB_SSL_CERTFILE"], os.environ["JUPYTERHUB_SSL_KEYFILE"])
        server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
