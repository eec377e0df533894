"""Debian's Prometheus, and exporters that say of pods what a test wants, with the labels of dcgm-exporter."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.fakes.dcgm_text import NEW_NAMES, written
from tests.patience import patient
from tests.ports import free_ports

ROOT = Path(__file__).resolve().parents[2]
ENGINE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
JOB = """
  - job_name: {name}
    honor_labels: {honoured}
    static_configs:
      - targets: ["127.0.0.1:{port}"]
        labels: {{namespace: gpu-operator, pod: nvidia-dcgm-exporter-{name}, container: nvidia-dcgm-exporter}}
"""


class MetricsPage:
    """Answers every GET with `text()`, in the format that Prometheus reads."""

    def __init__(self, text: Callable[[], str], port: int = 0) -> None:
        class Metrics(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = text().encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Metrics)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Exporter(MetricsPage):
    """dcgm-exporter of one node: its cards, and the pods that the kubelet says have them.

    `since_4_9`: with the names of metrics and labels since that version.
    """

    def __init__(self, host: str, *, since_4_9: bool) -> None:
        self.host = host
        self.metric = NEW_NAMES[ENGINE] if since_4_9 else ENGINE
        self.label = "hostname" if since_4_9 else "Hostname"
        self.rows: dict[str, tuple[dict[str, str], float]] = {}
        super().__init__(lambda: written((self.metric, *row) for row in tuple(self.rows.values())))

    def says(self, pod: str, ratio: float, namespace: str = "jhub", **labels: str) -> None:
        """What the device of this pod does."""
        named = {"namespace": namespace, "pod": pod, "container": "notebook", **labels}
        self.rows[pod] = ({"UUID": "GPU-1", self.label: self.host, **named}, ratio)


class ExporterProcess:
    """An exporter that can be killed: a process of its own, on the same port each time, that serves the file `text`."""

    def __init__(self, text: Path) -> None:
        self.text = text
        (self.port,) = free_ports(1)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        words = [sys.executable, "-m", "tests.fakes.real_prometheus", str(self.port), str(self.text)]
        self.process = subprocess.Popen(words, cwd=ROOT)

    def kill(self) -> None:
        """``kill -9``; it may be started again."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(patient(20))
            self.process = None


class RealPrometheus:
    """Reads exporters each second: the labels of one are honoured, those of another pushed aside.

    The caller starts and stops it; it may be started again, and has what it had.
    """

    def __init__(
        self, folder: Path, honoured: MetricsPage | ExporterProcess, pushed_aside: MetricsPage | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (self.port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}"
        self._config, self._data = folder / "prometheus.yml", folder / "data"
        jobs = JOB.format(name="a", honoured="true", port=honoured.port)
        if pushed_aside is not None:
            jobs += JOB.format(name="b", honoured="false", port=pushed_aside.port)
        self._config.write_text(f"global: {{scrape_interval: 1s}}\nscrape_configs:{jobs}", encoding="utf-8")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={self._config}",
                f"--storage.tsdb.path={self._data}",
                f"--web.listen-address=127.0.0.1:{self.port}",
                "--log.level=error",
            ],
            cwd=self._data.parent,
        )

    def kill(self) -> None:
        """``kill -9``."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(patient(20))
            self.process = None

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(patient(20))
            self.process = None


if __name__ == "__main__":
    MetricsPage(lambda: Path(sys.argv[2]).read_text(encoding="utf-8"), int(sys.argv[1]))
    threading.Event().wait()
