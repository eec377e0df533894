"""What the use of 1,000 leased pods costs: Debian's Prometheus, 6,000 series, the service's own questions."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
import time
import urllib.request
from datetime import datetime, timezone
from pathlib import Path

from benchmarks.figures import latency_row
from hub_extensions.adapters.prometheus import DcgmReading, Prometheus
from hub_extensions.core.gpu.dcgm import PodGpu
from tests.fakes.dcgm_text import NEW_NAMES, written
from tests.fakes.real_prometheus import MetricsPage, RealPrometheus

PODS, NODES, TIMES = 1000, 125, 15
SETTLED = 130.0
"""Seconds: then the range that is asked for is full of samples."""
Row = tuple[str, dict[str, str], float]


def rows() -> list[Row]:
    """Eight cards a node, half of the nodes with the names since 4.9; all six fields of each."""
    found = []
    for number in range(PODS):
        node, new = number // 8, number // 8 % 2
        labels = {
            "UUID": f"GPU-{number}", "gpu": str(number % 8), "hostname" if new else "Hostname": f"node-{node}",
            "namespace": "jhub", "pod": f"jupyter-user-{number}", "container": "notebook", "pod_uid": f"uid-{number}",
        }  # fmt: skip
        for old, name in NEW_NAMES.items():
            found.append((name if new else old, labels, 0.5 if number % 2 else 0.0))
    return found


def wanted() -> list[PodGpu]:
    """The leases, as the service knows their pods."""
    since = datetime.now(timezone.utc)
    return [
        PodGpu(f"l{n}", "jhub", f"jupyter-user-{n}", f"node-{n // 8}", f"uid-{n}", since, None, 1, False, 1.0)
        for n in range(PODS)
    ]


async def ask(url: str) -> tuple[list[float], int]:
    """Seconds of each round of questions, and how many pods' use was known in the last."""
    prometheus, pods, nodes = Prometheus(url), wanted(), {f"node-{n}" for n in range(NODES)}
    taken, known = [], 0
    for _ in range(TIMES):
        began = time.monotonic()
        kinds = await prometheus.kinds()
        reading = await prometheus.query_pods(pods, nodes, datetime.now(timezone.utc))
        taken.append(time.monotonic() - began)
        assert not isinstance(kinds, DcgmReading) and not reading.reason, reading
        known = len(reading.figures)
    prometheus.close()
    return taken, known


def processor_seconds(prometheus: RealPrometheus) -> float:
    """What Prometheus has had since its start."""
    assert prometheus.process is not None
    fields = Path(f"/proc/{prometheus.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def queries(url: str) -> int:
    """How many were asked, as Prometheus counts them."""
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        text = answer.read().decode()
    found = re.findall(r'prometheus_http_requests_total\{[^}]*handler="/api/v1/query"[^}]*\} (\d+)', text)
    return sum(map(int, found))


def main() -> None:
    """Print the figures."""
    text = written(rows())
    exporter = MetricsPage(lambda: text)  # of all nodes at one address
    with tempfile.TemporaryDirectory() as folder:
        prometheus = RealPrometheus(Path(folder), exporter)
        config = Path(folder) / "prometheus.yml"
        config.write_text(config.read_text().replace("scrape_interval: 1s", "scrape_interval: 10s"))
        prometheus.start()
        try:
            time.sleep(SETTLED)
            before = queries(prometheus.url)
            asked_of, own = processor_seconds(prometheus), time.process_time()
            taken, known = asyncio.run(ask(prometheus.url))
            work = [(processor_seconds(prometheus) - asked_of) / TIMES, (time.process_time() - own) / TIMES]
            each = (queries(prometheus.url) - before) / TIMES
        finally:
            prometheus.stop()
            exporter.stop()
    print(f"{PODS:,} leased pods on {NODES} nodes, {len(rows()):,} series read every 10 s; use of {known:,} known")
    print(latency_row(f"a round of {each:g} queries, by the clock", taken))
    print(f"    of a processor, a round: Prometheus {work[0] * 1000:.0f} ms, the service {work[1] * 1000:.0f} ms")


if __name__ == "__main__":
    main()
