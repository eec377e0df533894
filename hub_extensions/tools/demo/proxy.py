"""The demo's proxy in front of the apps: nginx or Caddy.

Its configuration is the one that ``jupyterhub-gpu gate config`` writes. To show what the audit finds, a fault can be
added to it: one app is then served without asking the gate.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

from hub_extensions.hub_service.setup.settings import write_private
from hub_extensions.tools.demo import DemoRefused
from hub_extensions.tools.demo.processes import program

FACTS = "proxy.json"
ANSWERS_IN_SECONDS = 90.0
NGINX = """pid nginx.pid;
error_log error.log;
daemon off;
worker_processes 1;
events {}
http {
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
"""
CADDY = """{
    admin unix/admin.sock
    auto_https off
    persist_config off
}
"""


@dataclass(frozen=True)
class DemoProxy:
    """The proxy in front of the apps of a demo.

    Attributes:
        kind: nginx or caddy.
        program: path of the program.
        folder: its working folder.
        gate_file: file with the gate's settings.
        unprotected: name of the app that the fault concerns. The fault is a change of the configuration, made on
            request, after which the proxy serves this app without asking the gate.
    """

    kind: str
    program: str
    folder: str
    gate_file: str
    unprotected: str

    @classmethod
    def load(cls, folder: Path) -> DemoProxy:
        """Return the proxy of a running demo.

        Args:
            folder: the proxy's working folder, to which `serving` has written its description.
        """
        return cls(**json.loads((folder / FACTS).read_text(encoding="utf-8")))

    @property
    def words(self) -> Sequence[str]:
        """The command that starts the proxy. The working folder of the command is the proxy's folder."""
        if self.kind == "nginx":
            return [self.program, "-p", f"{self.folder}/", "-c", "proxy.conf", "-e", "error.log"]
        return [self.program, "run", "--adapter", "caddyfile", "--config", "proxy.conf"]

    def write(self, *, has_fault: bool = False) -> None:
        """Write the proxy's configuration file, which follows from the gate's current settings.

        Args:
            has_fault: one app is served without asking the gate.
        """
        write_private(Path(self.folder, "proxy.conf"), self.configuration(has_fault=has_fault))

    def configuration(self, *, has_fault: bool) -> str:
        """Return the content of the proxy's configuration file.

        Args:
            has_fault: one app is served without asking the gate.
        """
        from hub_extensions.gate.settings import GateSettings
        from hub_extensions.tools.gate_config.render import ProxySettings, render

        gate = GateSettings.load(self.gate_file)
        known = ProxySettings(gate.url, gate.proxy_secret, gate=gate.connect_url, listen="127.0.0.1")
        piece = render(self.kind, gate.catalogue, known)
        if has_fault:
            piece = _without_check(piece, self.kind, self.unprotected)
        return f"{NGINX}{piece}}}\n" if self.kind == "nginx" else CADDY + piece

    def change(self, *, has_fault: bool) -> None:
        """Add the fault (one app is served without asking the gate) to the configuration, or remove it.

        Returns when the proxy uses the new configuration.

        Args:
            has_fault: add the fault; otherwise remove it.

        Raises:
            DemoRefused: the proxy did not change in time. A fault that was to be added is removed again.
        """
        try:
            self._change(has_fault=has_fault)
        except BaseException:  # also after a signal, because the demo's page has no button to remove a failed fault
            if has_fault:
                self._reload(has_fault=False)
            raise

    def _change(self, *, has_fault: bool) -> None:
        self._reload(has_fault=has_fault)
        if not _becomes(lambda: (self._status_for_a_stranger() == 200) is has_fault):
            raise DemoRefused("The proxy did not change in time.")

    def _reload(self, *, has_fault: bool) -> None:
        self.write(has_fault=has_fault)
        reload = ["reload", "--adapter", "caddyfile", "--config", "proxy.conf", "--address", "unix/admin.sock"]
        words = [*self.words, "-s", "reload"] if self.kind == "nginx" else [self.program, *reload]
        done = subprocess.run(words, cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise DemoRefused(f"The proxy did not take its new configuration: {done.stderr.strip()[-300:]}")

    def _status_for_a_stranger(self) -> int | None:
        """Return the HTTP status with which the app `unprotected` answers a client that is not signed in.

        None without an answer.
        """
        gate = json.loads(Path(self.gate_file).read_text(encoding="utf-8"))
        where = next(urlsplit(str(app["where"])) for app in gate["catalogue"] if app["name"] == self.unprotected)
        return status_of(where.port or 80, where.netloc, where.path)


def find_proxy(environment: Path) -> tuple[str, str]:
    """Return kind (nginx or caddy) and path of a proxy that can be used.

    It is this machine's nginx or Caddy, otherwise the Caddy in the apps' environment. Raises DemoRefused if none is
    found.
    """
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin"])
    for kind in ("nginx", "caddy"):
        if found := shutil.which(kind, path=path):
            return kind, found
    own = environment / "caddy"
    if not own.exists():
        raise DemoRefused("There is no proxy for the apps: nginx or Caddy. ./scripts/demo --sso brings one along.")
    return "caddy", str(own)


@contextmanager
def serving(proxy: DemoProxy, variables: Mapping[str, str], stop: threading.Event) -> Iterator[None]:
    """Run the proxy while the block runs, and first wait until it reaches the gate.

    Args:
        proxy: the proxy.
        variables: environment variables of its process.
        stop: set if the demo should end, which ends the wait.

    Raises:
        DemoRefused: the proxy did not start, or the gate does not answer.
    """
    folder = Path(proxy.folder)
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / "admin.sock").unlink(missing_ok=True)
    proxy.write()
    write_private(folder / FACTS, json.dumps(asdict(proxy)))
    gate = urlsplit(json.loads(Path(proxy.gate_file).read_text(encoding="utf-8"))["url"])
    log = folder / "output.log"
    with program(proxy.words, log, {**variables, "HOME": str(folder)}) as process:

        def is_there() -> bool:
            if process.poll() is not None:
                raise DemoRefused(f"The proxy before the apps ({proxy.program}) did not start. Its log is {log}.")
            return stop.is_set() or status_of(gate.port or 80, gate.netloc, "/_gate/health") == 200

        if not _becomes(is_there):
            raise DemoRefused(f"The gate before the apps does not answer. The proxy's log is {log}.")
        yield


def status_of(port: int, host: str, path: str) -> int | None:
    """Send a request to a port of the loopback address and return the HTTP status; None without an answer.

    Args:
        host: the host name in the request, by which the proxy finds the app.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path, headers={"Host": host, "Accept": "text/html", "Sec-Fetch-Mode": "navigate"})
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def _becomes(is_so: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + ANSWERS_IN_SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def _without_check(piece: str, kind: str, app: str) -> str:
    """Return a proxy's configuration without the directive that asks the gate whether a user may open one app.

    An administrator would get such a configuration by copying only the directive that forwards requests to the app.

    Args:
        piece: the configuration.
        kind: nginx or caddy.
        app: name of the app.
    """
    nginx, caddy = rf" *auth_request /_gate/check/{app};\n", rf" *forward_auth [^\n]*\n *uri \S*/{app} .*?\n {{12}}}}\n"
    changed, number = re.subn(nginx if kind == "nginx" else caddy, "", piece, count=1, flags=re.DOTALL)
    if number != 1:
        raise DemoRefused(f"There is no check of {app} to take out.")
    return changed


def main(folder: str, wanted: str) -> int:
    """Add the fault (one app is served without asking the gate) to the proxy of a running demo, or remove it.

    Two buttons of the demo's page run this as a command.

    Args:
        folder: working folder of the proxy.
        wanted: ``plant`` to add the fault, ``mend`` to remove it.

    Returns:
        The exit status.
    """
    try:
        DemoProxy.load(Path(folder)).change(has_fault=wanted == "plant")
    except (DemoRefused, OSError, ValueError) as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
