"""The whole way as an admin sets it up: ``configure(c)``, a hub that starts the gate, ``gate config nginx``, an app.

Nothing here is ours but the app. The same with a fault: `FAULTS` are what goes wrong in a proxy's configuration.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import requests

from hub_extensions.adapters.apps.audit_accounts import AuditGate, AuditHub
from hub_extensions.adapters.apps.audit_run import AuditConfig
from hub_extensions.adapters.provider.assertions import KeyFolder, signing_key
from hub_extensions.gate.settings import SETTINGS_FILE, GateSettings
from tests.fakes.apps_host import AppsHost
from tests.fakes.real_proxies import NGINX
from tests.hubs import until
from tests.loop.place import THREE_SMALL, Place, parent_of
from tests.machine_needs import proxy_program
from tests.patience import patient
from tests.ports import free_port

HOST = "127.0.0.3"
"""Another host than the hub's, as it has to be: cookies know no ports."""
ELSEWHERE = "127.0.0.2"
"""It stands for the addresses by which others reach this machine."""
AUDITOR = "auditor-token-0123456789-0123456789"
FAULTS: Mapping[str, frozenset[str]] = {
    "cached": frozenset({"A5", "A11", "A12", "A14"}),
    "unchecked": frozenset({"A1", "A2", "A5", "A11", "A14"}),
    "socket": frozenset({"A1", "A2"}),
    "for-all": frozenset({"A2"}),
    "uncleared": frozenset({"A3"}),
    "any-cookie": frozenset({"A2", "A4", "A5", "A11", "A14"}),
    "assertion": frozenset({"A3", "A6"}),
    "everywhere": frozenset({"A7"}),
    "path-trick": frozenset({"A8"}),
    "check-outside": frozenset({"A9"}),
    "no-site": frozenset({"A11", "A14"}),
    "domain": frozenset({"A14"}),
    "framed": frozenset({"A14"}),
}
"""An app, called after what is wrong with it -> the cases that may say so; one fault may open more than one way."""
ONLY_HEADERS = frozenset({"uncleared", "assertion"})
OPEN_SERVICE, LEFT_OVER = "open-service", "board"

WITH_AUDITOR = f"""
c.JupyterHub.services += [{{"name": "auditor", "api_token": {AUDITOR!r}}}]
c.JupyterHub.load_roles += [
    {{"name": "auditor", "services": ["auditor"],
      "scopes": ["admin:users", "tokens", "groups", "list:services", "access:services", "admin:services", "proxy"]}},
]
"""
_CONFIG = """
c.JupyterHub.load_groups = {{"lab": {{"users": ["ada", "cem"]}}, "staff": {{"users": []}}}}
c.JupyterHub.load_roles += [
    {{"name": "user", "scopes": ["self", "access:services!service=gate", "access:services!service=for-all"]}},
]
c.SignOn.enabled = True
c.SignOnGate.enabled = True
c.SignOnGate.url = {origin!r}
c.SignOnGate.port = {gate_port}
c.SignOnGate.cache_seconds = {cache_seconds}
c.SignOnGate.apps = {apps!r}
{more}
"""


class Nginx:
    """With the piece that ``gate config`` writes, and what a test does to it."""

    def __init__(self, folder: Path, state: Path, origin: str) -> None:
        self.folder, self.origin = folder, origin
        folder.mkdir()
        command = [sys.executable, "-m", "hub_extensions.tools.cli", "gate", "config", "nginx"]
        options = ["--config", str(state / SETTINGS_FILE), "--listen", HOST, "-o", str(folder / "apps.conf")]
        subprocess.run([*command, *options], check=True, timeout=patient(30))
        self.text = (folder / "apps.conf").read_text()
        (folder / "nginx.conf").write_text(NGINX.format(folder=folder))
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        program = proxy_program("nginx")
        assert program is not None
        words = [program, "-c", str(self.folder / "nginx.conf"), "-p", str(self.folder)]
        words += ["-e", str(self.folder / "error.log")]
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True)
        until(self._listens, 30)

    def _listens(self) -> bool:
        assert self.process is not None and self.process.poll() is None, (self.folder / "error.log").read_text()
        with socket.socket() as probe:
            return probe.connect_ex((HOST, int(self.origin.rpartition(":")[2]))) == 0

    @property
    def pids(self) -> list[int]:
        """The process that was started, and its worker."""
        assert self.process is not None
        first = self.process.pid
        return [first, *map(int, Path(f"/proc/{first}/task/{first}/children").read_text().split())]

    def end(self, number: int = signal.SIGTERM) -> None:
        if self.process is not None and self.process.poll() is None:
            os.killpg(self.process.pid, number)
            self.process.wait(patient(10))

    @contextlib.contextmanager
    def changed(self, text: str) -> Iterator[None]:
        """For as long as the block runs the piece is another."""
        (self.folder / "apps.conf").write_text(text)
        try:
            self.end()
            self.start()
            yield
        finally:
            (self.folder / "apps.conf").write_text(self.text)
            self.end()
            self.start()


@dataclass
class AppsLab:
    """Hub, gate, nginx and an app that answers with what reached it."""

    place: Place
    origin: str
    nginx: Nginx

    @property
    def settings(self) -> GateSettings:
        return GateSettings.load(self.place.state / SETTINGS_FILE)

    def get(self, browser: requests.Session, path: str, **headers: str) -> requests.Response:
        return browser.get(f"{self.origin}{path}", headers=headers, timeout=patient(30))

    def status(self, browser: requests.Session, path: str = "/apps/echo/", seconds: float = 30, **headers: str) -> int:
        """0: nobody answers."""
        try:
            sent = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors", **headers}
            return browser.get(
                f"{self.origin}{path}", headers=sent, timeout=patient(seconds), allow_redirects=False
            ).status_code
        except (requests.ConnectionError, requests.Timeout):
            return 0

    def answers(self) -> bool:
        """The gate does, through the proxy."""
        with contextlib.suppress(requests.ConnectionError):
            return requests.get(f"{self.origin}/_gate/health", timeout=patient(5)).ok
        return False

    def gates(self) -> list[int]:
        """The gate itself, while there is one: the child of its supervisor, which has the same command line."""
        found = [pid for pid in self.place.hub.processes() if b"hub_extensions.gate\0" in _command(pid)]
        return [pid for pid in found if parent_of(pid) in found]

    def audit(self, *names: str, **more: Any) -> AuditConfig:
        """Of these apps."""
        about = {"addresses": (ELSEWHERE,), "dead_seconds": patient(1.0)}
        return audit_of(self.settings, *names, **{**about, **more})


def audit_of(settings: GateSettings, *names: str, **more: Any) -> AuditConfig:
    """As ``jupyterhub-gpu gate audit`` makes it, with the token of `AUDITOR`; of these apps."""
    by_name = {app.name: app for app in settings.catalogue}
    hub, gate = AuditHub(settings.hub_api_url, AUDITOR), AuditGate(settings.connect_url, settings.client_secret)
    about: dict[str, Any] = {"session_for": gate.session_for, "key": signing_key(KeyFolder(settings.folder))}
    about |= {"cookie_name": "gate-without-https", **more}
    return AuditConfig(tuple(by_name[name] for name in names), settings.url, settings.hub_url, hub, **about)


def _command(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


@contextlib.contextmanager
def apps_lab(folder: Path, *, cache_seconds: int = 60, more: str = "") -> Iterator[AppsLab]:
    """All of it. `more`: of the hub's configuration."""
    port, gate_port, app = free_port(HOST), free_port(), AppsHost()
    origin = f"http://{HOST}:{port}"
    app.start(())
    with everywhere() as open_port:
        apps = {"echo": ("Experiments", "lab"), "board": ("Boards", "staff")}
        apps |= {name: (name, "lab") for name in FAULTS}
        entries = {
            name: {"title": title, "where": f"{origin}/apps/{name}/", "upstream": app.app, "groups": [group]}
            for name, (title, group) in apps.items()
        }
        entries["everywhere"]["upstream"] = f"http://127.0.0.1:{open_port}"
        text = WITH_AUDITOR + _CONFIG.format(
            origin=origin, gate_port=gate_port, cache_seconds=cache_seconds, apps=entries, more=more
        )
        try:
            with Place(folder / "hub", layout=THREE_SMALL, config=text, lab=False).open() as place:
                nginx = Nginx(folder / "nginx", place.state, origin)
                lab = AppsLab(place, origin, nginx)
                nginx.start()
                try:
                    until(lab.answers, 60)
                    yield lab
                finally:
                    nginx.end()
        finally:
            app.stop()


class _Open(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps(self.headers.items()).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextlib.contextmanager
def everywhere() -> Iterator[int]:
    """An app that listens on another address of this machine too; its port."""
    port = free_port()
    servers = [ThreadingHTTPServer((address, port), _Open) for address in ("127.0.0.1", ELSEWHERE)]
    for server in servers:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield port
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


# ------------------------------------------------------------------ what goes wrong in a piece


def with_faults(text: str, app: str, cache: Path) -> str:
    """nginx' piece with every fault of `FAULTS` that is one of it. `app`: the echo app's address."""
    changes: Mapping[str, Callable[[str], str]] = {
        "cached": lambda at: _in_check(
            at,
            "proxy_cache checks; proxy_cache_key $http_cookie$http_authorization; proxy_cache_valid 200 1h; "
            "proxy_ignore_headers Cache-Control Set-Cookie;",
        ),
        "unchecked": lambda at: at.replace("auth_request /_gate/check/unchecked;", ""),
        "socket": lambda at: _past("socket", at, "$gate_upgrade", app),
        "uncleared": lambda at: _removed(at, "proxy_set_header X-WEBAUTH-USER $"),
        "any-cookie": lambda at: _past("any-cookie", at, "$http_cookie ~ gate-without-https", app),
        "assertion": lambda at: _past("assertion", at, "$http_x_sign_on_assertion", app),
        "path-trick": lambda at: _before(at, f'location ~ "^/apps/path-trick/;" {{ proxy_pass {app}; }}'),
        "check-outside": lambda at: at.replace("internal;", ""),
        "no-site": lambda at: _in_check(at, "proxy_set_header Sec-Fetch-Site same-origin;"),
        "domain": lambda at: _in_app(at, 'add_header Set-Cookie "theme=1; Domain=apps.example.org" always;', "domain"),
        "framed": lambda at: _in_check(at, 'proxy_set_header Sec-Fetch-Dest "";'),
    }
    parts = text.split("\n    # ")
    for place, part in enumerate(parts):
        name = part.partition("\n")[0]
        if name in changes:
            changed = changes[name](part)
            assert changed != part, name
            parts[place] = changed
    return f"proxy_cache_path {cache} keys_zone=checks:1m;\n" + "\n    # ".join(parts)


def _before(part: str, words: str) -> str:
    """Before the app's own locations."""
    name, _, rest = part.partition("\n")
    return f"{name}\n    {words}\n{rest}"


def _in_check(part: str, words: str) -> str:
    return part.replace("internal;", f"internal; {words}", 1)


def _in_app(part: str, words: str, name: str) -> str:
    return part.replace(f"auth_request /_gate/check/{name};", f"auth_request /_gate/check/{name}; {words}")


def _removed(part: str, begins: str) -> str:
    return "\n".join(line for line in part.split("\n") if not line.strip().startswith(begins))


def _past(name: str, part: str, condition: str, app: str) -> str:
    """Who has this goes past the check."""
    door = (
        f"location @past_{name.replace('-', '_')} {{ proxy_pass {app}; proxy_http_version 1.1; "
        "proxy_set_header Upgrade $gate_upgrade; proxy_set_header Connection $gate_connection; }"
    )
    words = f"error_page 418 = @past_{name.replace('-', '_')}; if ({condition}) {{ return 418; }}"
    return _before(_in_app(part, words, name), door)
