"""What a look at 5,000 servers and 40 stops cost a real hub: ours and jupyterhub-idle-culler, in the same run.

Requests and wall time are read from the hub's own log, its processor time from the kernel; meanwhile somebody else asks
the hub something ten times a second.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.culling.full_hub import IDLE, OURS, ROOT, STOCK_IDLE_SECONDS, STOP_SECONDS, FullHub, Others, Request
from benchmarks.figures import quantile
from tests.hubs import until

LOOK = """
import asyncio, sys
from hub_extensions.adapters.hub.jupyterhub_api import HubApi

async def look():
    api = HubApi(sys.argv[1], sys.argv[2])
    print(len(await api.servers()), flush=True)
    api.close()

asyncio.run(look())
"""
PAGE = 200
NARROW = "ours, hub's list"


@dataclass(frozen=True)
class Cost:
    """What something cost the hub, and how long others waited meanwhile."""

    requests: int
    wall: float
    hub: float
    others: list[float]

    def __str__(self) -> str:
        p50, p95 = (quantile(self.others, share) * 1000 for share in (0.5, 0.95))
        waited = f"others p50 {p50:.0f}, p95 {p95:.0f}, max {max(self.others) * 1000:.0f} ms"
        return (
            f"{self.requests:>4} requests  {self.wall:7.2f} s wall  {self.hub:6.2f} s of the hub's processor  {waited}"
        )


def measured(full: FullHub, who: str, does: Callable[[int], None]) -> Cost:
    """`does` with the log's length before it; it returns when all is over."""
    mark, before = full.mark(), full.processor_seconds()
    with Others(full) as others:
        does(mark)
        hub = full.processor_seconds() - before
    asked = full.requests(who, mark)
    wall = asked[-1].at - (asked[0].at - asked[0].seconds)
    return Cost(len(asked), wall, hub, others.taken or [0.0])


def quiet_share(full: FullHub, seconds: float) -> float:
    """Of a core of the hub, while nobody asks it anything but what asks it by itself."""
    before = full.processor_seconds()
    time.sleep(seconds)
    return (full.processor_seconds() - before) / seconds


def stock(full: FullHub, python: str, *options: str) -> subprocess.Popen[bytes]:
    """The stock culler's first pass; it is idle afterwards."""
    words = ["-m", "jupyterhub_idle_culler", f"--url={full.hub.url}/hub/api", "--cull-every=86400", *options]
    env = {"PATH": os.environ["PATH"], "JUPYTERHUB_API_TOKEN": full.tokens["stock"]}
    return subprocess.Popen([python, *words], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def stock_look(full: FullHub, python: str, page: int) -> Cost:
    """A pass in which nobody is idle."""
    pages = -(-full.servers // page)
    options = ["--timeout=864000", *([f"--api-page-size={page}"] if page != 50 else [])]

    def does(mark: int) -> None:
        culler = stock(full, python, *options)
        try:
            until(lambda: len(lists(full.requests("stock", mark))) >= pages, 300, "the stock culler has read all pages")
        finally:
            culler.kill()
            culler.wait()

    return measured(full, "stock", does)


def our_look(full: FullHub, who: str) -> Cost:
    """What the service asks each turn, by the same adapter, in a process of its own as the stock culler is."""

    def does(_: int) -> None:
        words = [sys.executable, "-c", LOOK, f"http://127.0.0.1:{full.hub.hub_port}/hub/api", full.tokens[who]]
        done = subprocess.run(words, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, check=True)
        assert int(done.stdout) == full.servers, done.stdout

    return measured(full, who, does)


def lists(asked: list[Request]) -> list[Request]:
    return [each for each in asked if each.path.startswith("/hub/api/users?")]


def stops_of(asked: list[Request]) -> list[Request]:
    return [each for each in asked if each.method == "DELETE"]


def stops(full: FullHub, who: str, prefix: str, begin: Callable[[], object]) -> str:
    """All stops of one culler, from the begin of the first until the last server is gone."""
    mark, before = full.mark(), full.processor_seconds()
    with Others(full) as others, ExitStack() as stack:
        culler = begin()
        if isinstance(culler, subprocess.Popen):
            stack.callback(culler.wait)
            stack.callback(culler.kill)
        until(lambda: len(stops_of(full.requests(who, mark))) >= IDLE, 600, lambda: f"{prefix}: {IDLE} stops")
        until(lambda: not any(full.hub.server(f"{prefix}-{n}") for n in range(IDLE)), 60, f"{prefix}: all are gone")
        hub = full.processor_seconds() - before
    done = stops_of(full.requests(who, mark))
    began = min(each.at - each.seconds for each in done)
    cost = Cost(len(full.requests(who, mark)), max(each.at for each in done) - began, hub, others.taken)
    return f"{IDLE} stops of {STOP_SECONDS:g} s: {cost}"


def main(servers: int, python: str, quiet: float, times: int) -> None:
    """Print all figures."""
    with tempfile.TemporaryDirectory() as folder, FullHub(Path(folder), servers).open() as full:
        print(f"{servers:,} servers, load average {os.getloadavg()[0]:.1f}", flush=True)
        with full.still():
            time.sleep(5)
            floor = quiet_share(full, quiet / 3)
            costs: dict[str, list[Cost]] = {"stock": [], f"stock, page {PAGE}": [], NARROW: [], "ours": []}
            for _ in range(times):
                costs["stock"].append(stock_look(full, python, 50))
                costs[f"stock, page {PAGE}"].append(stock_look(full, python, PAGE))
                costs[NARROW].append(our_look(full, "narrow"))
                costs["ours"].append(our_look(full, "ours"))
            for name, found in costs.items():
                for each in found:
                    print(f"a look, {name:<16} {each}", flush=True)
            best = {name: (min(c.wall for c in each), min(c.hub for c in each)) for name, each in costs.items()}
            for name in list(costs)[:-1]:
                ratios = [ours / theirs for ours, theirs in zip(best["ours"], best[name], strict=True)]
                print(
                    f"the best of ours over the best of {name}: wall {ratios[0]:.2f}, hub {ratios[1]:.2f}", flush=True
                )
        time.sleep(40)
        share = quiet_share(full, quiet)
        print(
            f"nothing changes: the hub has {100 * floor:.1f} % of a core without us, {100 * share:.1f} % with "
            f"(over {quiet:.0f} s): {100 * (share - floor):.1f} % are ours",
            flush=True,
        )
        full.policy.write_text(OURS)
        print("ours,  " + stops(full, "gpu", "ours", lambda: None), flush=True)
        with full.still():
            begin = lambda: stock(full, python, f"--timeout={STOCK_IDLE_SECONDS}")  # noqa: E731
            print("stock, " + stops(full, "stock", "stock", begin), flush=True)
