"""The lab's apps: programs as anybody installs them, how each is started, and what of it is opened.

Not here: hub, gate and proxies (``gate_lab.py``), pgAdmin's settings and the provider (``gate_lab_provider.py``).
"""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gate_lab_provider import PGADMIN, SETUP, Provider
from tests.gate.proxies.raw_requests import NAVIGATION, SOCKET, Answer, request
from tests.patience import patient, until
from tests.ports import free_port

START_SECONDS = 90
FOREIGN = "Origin: https://elsewhere.example.org"


@dataclass(frozen=True)
class Door:
    """Where apps are reached: their own port, or the proxy's. `tls`: by https, of the authority that it knows."""

    address: str
    port: int
    tls: ssl.SSLContext | None = None

    @property
    def origin(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.address}:{self.port}"

    def ask(self, target: str, headers: Sequence[str] = (), method: str = "GET", body: bytes = b"") -> Answer:
        return request(self.port, target, headers, method, body, address=self.address, tls=self.tls)

    def connect(self) -> socket.socket:
        connection = socket.create_connection((self.address, self.port), timeout=patient(30))
        return self.tls.wrap_socket(connection, server_hostname=self.address) if self.tls else connection


@dataclass(frozen=True)
class RealApp:
    """A program, and what of it is opened. `words`: {port}, {folder} and {path} are filled in. `socket`: "": none."""

    name: str
    words: Sequence[str]
    page: str
    api: str
    group: str
    socket: str = ""
    environment: Mapping[str, str] | None = None
    files: Mapping[str, str] | None = None
    """In its folder: name -> text."""
    about: Mapping[str, object] | None = None
    """In the catalogue."""
    asks_provider: bool = False
    """It is a client of the provider itself: one click on its page before anything of it opens."""


SHOWS = """
import json, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Shows(BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps(self.headers.items()).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Shows).serve_forever()
"""
"""An app that shows what it got, so that an audit can tell whom it believes (A3): none of the others does."""
APPS = (
    RealApp(
        "tensorboard",
        ("tensorboard", "--logdir={folder}", "--port={port}", "--host=127.0.0.1", "--path_prefix={path}"),
        "",
        "data/environment",
        "lab",
    ),
    RealApp(
        "mlflow",
        ("mlflow", "server", "--backend-store-uri=sqlite:///{folder}/mlflow.sqlite", "--host=127.0.0.1",
         "--port={port}", "--workers=1", "--static-prefix={path}"),
        "",
        "api/2.0/mlflow/experiments/get?experiment_id=0",
        "lab",
        environment={"MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "0"},
    ),
    RealApp(
        "dask",
        ("dask", "scheduler", "--host=127.0.0.1", "--port=0", "--dashboard-address=127.0.0.1:{port}",
         "--dashboard-prefix={path}"),
        "status",
        "health",
        "lab",
        "status/ws",
        environment={"DASK_DISTRIBUTED__SCHEDULER__DASHBOARD__BOKEH_APPLICATION__ALLOW_WEBSOCKET_ORIGIN": '["*"]'},
    ),
    RealApp(
        "prometheus",
        ("prometheus", "--config.file={folder}/prometheus.yml", "--storage.tsdb.path={folder}/data",
         "--web.listen-address=127.0.0.1:{port}", "--web.external-url=http://127.0.0.1{path}", "--log.level=error"),
        "classic/graph",
        "api/v1/query?query=up",
        "ops",
        files={"prometheus.yml": "global: {}\n"},
    ),
    RealApp("shows", ("python3", "{folder}/shows.py", "{port}"), "", "api", "lab", files={"shows.py": SHOWS}),
)  # fmt: skip


def pgadmin_of(provider: Provider, port: int, folder: Path) -> RealApp:
    """pgAdmin, which asks the provider itself and takes its path from the proxy."""
    home = folder / PGADMIN
    return RealApp(
        PGADMIN,
        ("pgadmin4",),
        "browser/",
        "misc/ping",
        "lab",
        "socket.io/?EIO=4&transport=websocket",
        environment={"PYTHONPATH": str(home), **SETUP},
        files={"config_local.py": provider.pgadmin_settings(port, home / "data")},
        about={"mode": "oidc", "prefix": False, "header_family": None},
        asks_provider=True,
    )


class RunningApp:
    """One of `APPS`, started by the caller's `running`."""

    def __init__(self, app: RealApp, program: str, folder: Path, port: int = 0) -> None:
        self.app, self.path = app, f"/apps/{app.name}/"
        self.port = port or free_port()
        self.own_path = self.path if (app.about or {}).get("prefix", True) else "/"
        self._program, self._folder = program, folder / app.name

    @contextmanager
    def running(self) -> Iterator[None]:
        self._folder.mkdir()
        for name, text in (self.app.files or {}).items():
            (self._folder / name).write_text(text, encoding="utf-8")
        filled = [
            word.format(port=self.port, folder=self._folder, path=self.path.rstrip("/")) for word in self.app.words[1:]
        ]
        with (self._folder / "output.log").open("wb") as output:
            process = subprocess.Popen(
                [self._program, *filled], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True, cwd=self._folder,
                env={**os.environ, "HOME": str(self._folder), **(self.app.environment or {})},
            )  # fmt: skip
        try:
            until(lambda: self._answers(process), START_SECONDS, f"{self.app.name} answers")
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(patient(10))

    def _answers(self, process: subprocess.Popen[bytes]) -> bool:
        if process.poll() is not None:
            raise RuntimeError(f"{self.app.name} ended: {(self._folder / 'output.log').read_text()[-2000:]}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", self.port)):
                return False
        return self.own_door.ask(self.own_path + self.app.page, NAVIGATION).status in (200, 302)

    def entry(self, origin: str) -> dict[str, object]:
        """It in the catalogue."""
        about: dict[str, object] = {"where": f"{origin}{self.path}", "upstream": f"http://127.0.0.1:{self.port}"}
        about |= {"title": self.app.name, "groups": [self.app.group], "relay": bool(self.app.socket)}
        return {**about, **(self.app.about or {})}

    @property
    def own_door(self) -> Door:
        """Past any proxy."""
        return Door("127.0.0.1", self.port)

    def kinds(self, door: Door, who: Sequence[str]) -> Mapping[str, Callable[[], Answer]]:
        """What somebody may try: page, API, a POST of another site's page, and the WebSocket."""
        path = self.own_path if door == self.own_door else self.path
        page, api = path + self.app.page, path + self.app.api
        own = (*SOCKET, "Sec-WebSocket-Protocol: bokeh", f"Origin: {door.origin}", *who)
        foreign = (*who, FOREIGN, "Sec-Fetch-Site: cross-site")
        found = {
            "page": lambda: door.ask(page, (*NAVIGATION, *who)),
            "API": lambda: door.ask(api, who),
            "POST": lambda: door.ask(api, foreign, "POST", b"{}"),
        }
        if self.app.socket:
            found["WebSocket"] = lambda: door.ask(path + self.app.socket, own)
        return found
