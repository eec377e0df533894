"""A real Jupyter server of a user, as a process of its own, with our extension and nothing of the caller's settings.

Not a fake: it stands here because the tests of the extension, of the panel and of the proxy all start one.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests import warm
from tests.patience import patient

ROOT = Path(__file__).resolve().parents[2]
LOGIN_TOKEN = "login-token"
START_SECONDS = 60
WITH_US: Mapping[str, bool] = {"hub_extensions.server_extension": True}


class UserServer:
    """One server; `url` ends with its base URL and a slash.

    `extensions` are those of the server beside what its Python has switched on; `python` is another Python to run in.
    """

    def __init__(
        self,
        directory: Path,
        environ: dict[str, str],
        *options: str,
        port: int = 0,
        base_url: str = "/user/ada/",
        extensions: Mapping[str, bool] = WITH_US,
        python: str = sys.executable,
    ) -> None:
        self.directory = directory
        self.base_url = base_url
        for name in ("home", "work", "runtime", "config", "data"):
            (directory / name).mkdir(parents=True, exist_ok=True)
        kept = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH")
        env = {name: os.environ[name] for name in kept if name in os.environ}
        env |= {
            "HOME": str(directory / "home"),
            "JUPYTER_RUNTIME_DIR": str(directory / "runtime"),
            "JUPYTER_CONFIG_DIR": str(directory / "config"),
            "JUPYTER_DATA_DIR": str(directory / "data"),
            "PYTHONPATH": str(ROOT),
            **environ,
        }
        self.log = directory / "server.log"
        with self.log.open("wb") as log:
            self.process = warm.Popen(
                [
                    python,
                    "-m",
                    "jupyter_server",
                    "--ServerApp.ip=127.0.0.1",
                    f"--ServerApp.port={port}",
                    "--ServerApp.open_browser=False",
                    "--ServerApp.allow_root=True",
                    f"--ServerApp.base_url={base_url}",
                    "--ServerApp.allow_unauthenticated_access=False",
                    f"--ServerApp.root_dir={directory / 'work'}",
                    f"--IdentityProvider.token={LOGIN_TOKEN}",
                    f"--ServerApp.jpserver_extensions={dict(extensions)}",
                    *options,
                ],
                cwd=directory / "work",
                env=env,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            self.port = self._find_port()
        except BaseException:
            self.process.kill()
            self.process.wait(patient(10))
            raise
        self.url = f"http://127.0.0.1:{self.port}{base_url}"

    @property
    def work(self) -> Path:
        return self.directory / "work"

    def stop(self) -> bool:
        """End it as a hub does (SIGTERM, and again). Did it end so? Else it is killed.

        Again, because the server writes to its log inside its signal handler: a signal that comes in the middle of a
        line of the log is lost ("reentrant call inside <_io.BufferedWriter>", jupyter_server 2.21.1).
        """
        for seconds in (4, 16):
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(patient(seconds))
                return True
        self.process.kill()
        self.process.wait(patient(10))
        return False

    def request(
        self, path: str, method: str = "GET", *, token: str | None = LOGIN_TOKEN, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """One request without following redirects: (status, JSON body or text)."""
        request = urllib.request.Request(self.url + path, method=method, headers=dict(headers or {}))
        if token is not None:
            request.add_header("Authorization", f"token {token}")
        if method == "POST":
            request.data = b"{}"
            request.add_header("Content-Type", "application/json")
        try:
            with _opener.open(request, timeout=patient(20)) as answer:
                status, body = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            status, body = error.code, error.read()
        try:
            return status, json.loads(body)
        except ValueError:
            return status, body.decode(errors="replace")

    def last_activity(self) -> str:
        """What the server itself says when it was last used (asking is no use)."""
        status, body = self.request("api/status?no_track_activity=1")
        assert status == 200, body
        return str(body["last_activity"])

    def _find_port(self) -> int:
        deadline = time.monotonic() + patient(START_SECONDS)
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended at once:\n{self.log.read_text()}")
            port = self._port_in_runtime()
            if port is not None:
                return port
            time.sleep(0.05)
        raise RuntimeError(f"no server after {START_SECONDS} s:\n{self.log.read_text()}")

    def _port_in_runtime(self) -> int | None:
        for file in (self.directory / "runtime").glob("jpserver-*.json"):
            try:
                port = int(json.loads(file.read_text())["port"])
            except (ValueError, KeyError):
                continue  # half-written
            if port and self._answers(port):
                return port
        return None

    def _answers(self, port: int) -> bool:
        try:
            with _opener.open(f"http://127.0.0.1:{port}{self.base_url}api", timeout=patient(5)) as answer:
                return int(answer.status) == 200
        except OSError:
            return False


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect)
