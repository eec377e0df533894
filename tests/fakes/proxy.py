"""A real configurable-http-proxy in front of servers that run already, and what it holds for their last activity.

Not a fake, and no hub: it stands here because a test and a benchmark both start one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tests.patience import patient
from tests.ports import free_port

START_SECONDS = 30


class Proxy:
    """Use it as a context. `routes`: from a path such as ``/user/ada`` to the address behind it; `url` has no slash."""

    def __init__(self, directory: Path, routes: Mapping[str, str]) -> None:
        self._directory = directory
        self._routes = routes
        self._process: subprocess.Popen[bytes] | None = None
        self.port, self._api_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Proxy:
        program = shutil.which("configurable-http-proxy")
        if program is None:
            raise RuntimeError("configurable-http-proxy is not on the path")
        ports = (f"--port={self.port}", f"--api-port={self._api_port}", "--ip=127.0.0.1", "--api-ip=127.0.0.1")
        with (self._directory / "proxy.log").open("wb") as log:
            self._process = subprocess.Popen(
                [program, *ports],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={"PATH": os.environ["PATH"], "HOME": str(self._directory)},
            )
        try:
            self._wait()
            for path, target in self._routes.items():
                self._ask(path, json.dumps({"target": target}).encode())
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def last_activity(self, path: str) -> str:
        """When the proxy last saw this route used, as it says it: ISO 8601, UTC, milliseconds. Asking is no use."""
        return str(json.loads(self._ask())[path]["last_activity"])

    def _wait(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + patient(START_SECONDS)
        while True:
            try:
                self._ask()
                return
            except OSError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise RuntimeError((self._directory / "proxy.log").read_text()) from None
                time.sleep(0.05)

    def _ask(self, path: str = "", body: bytes | None = None) -> bytes:
        url = f"http://127.0.0.1:{self._api_port}/api/routes{path}"
        method = "GET" if body is None else "POST"
        with _opener.open(urllib.request.Request(url, data=body, method=method), timeout=patient(5)) as answer:
            said: bytes = answer.read()
            return said

    def _stop(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(patient(10))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(patient(10))


_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
