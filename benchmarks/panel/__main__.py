"""What an open panel costs its server: ours beside none, jupyterlab-nvdashboard and jupyter-resource-usage, in one run.

Each is a real server with eight fake GPUs. While 1, 10 and 50 listeners are on, and a call of the driver takes 1 and
20 ms, somebody else asks `GET api/status` every 50 ms: how long that takes is the figure. Its floor is the server
without a panel, asked just so in the same seconds, so that whatever else the machine does is in both. A request that
waits holds the next one back, so that a bad figure comes from few answers: `answers` says from how many. nan: none.
"""

from __future__ import annotations

import argparse
import http.client
import json
import math
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

from benchmarks.figures import quantile
from benchmarks.panel import weight
from benchmarks.panel.servers import GPUS, Peer, build_library, start
from tests.fakes.user_server import LOGIN_TOKEN, ROOT

LISTENERS = (1, 10, 50)
LATENCIES = (1, 20)
ASK_EVERY = 0.05
CALM_SECONDS = 90.0
QUIET_SECONDS = 30.0
ALLOWED = 1.5
OURS_LONGER = 2.5
"""Times a row of a peer: what is asked of ours is a p95, and 20 s give it 400 answers."""


@dataclass
class Row:
    """One server under one load: what others' requests took here and, meanwhile, at the server without a panel."""

    name: str
    latency: int
    listeners: int
    on: int
    asked: list[float] = field(default_factory=list)
    floor: list[float] = field(default_factory=list)
    seconds: float = math.nan
    calls: int = 0
    cpu: float = 0.0
    messages: int = 0
    bytes: int = 0
    first: int | None = None

    def times(self, share: float) -> tuple[float, float]:
        """Milliseconds here and at the floor; nan where nothing was answered."""
        mine, floor = (quantile(times, share) * 1000 if times else math.nan for times in (self.asked, self.floor))
        return mine, floor

    def over(self, share: float) -> float:
        """Times the floor; infinite where nothing was answered."""
        mine, floor = self.times(share)
        return mine / floor if self.asked and self.floor else math.inf

    def cells(self) -> list[str]:
        """The row of the table."""
        (p50, floor50), (p95, floor95) = self.times(0.5), self.times(0.95)
        told = self.on * self.seconds
        return [
            f"{self.latency} ms",
            f"{self.on}" if self.on == self.listeners else f"{self.on} of {self.listeners}",
            self.name,
            str(len(self.asked)),
            *(f"{value:.1f}" for value in (p50, p95, floor50, floor95)),
            *(f"{self.over(share):.2f}".replace("inf", "nan") for share in (0.5, 0.95)),
            f"{self.calls / self.seconds:.0f}",
            f"{self.messages / told:.2f}" if told else "-",
            f"{self.bytes / told:.0f}" if told else "-",
            f"{100 * self.cpu / self.seconds:.1f}",
        ]


HEAD = [
    "a call takes", "listeners", "panel", "answers", "p50 ms", "p95 ms", "none p50", "none p95", "p50 / none",
    "p95 / none", "driver calls/s", "messages/s to one", "bytes/s to one", "server CPU %",
]  # fmt: skip


def main() -> None:
    """Start the four servers, load them in turn, print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.panel", description=__doc__)
    parser.add_argument("--peers", required=True, metavar="PYTHON", help="a Python with both peers; see the README")
    parser.add_argument(
        "--seconds", type=float, default=8.0, help=f"of a row (8); of ours {OURS_LONGER:g} times as long"
    )
    parser.add_argument("--listeners", type=int, nargs="+", default=LISTENERS)
    parser.add_argument("--latencies", type=int, nargs="+", default=LATENCIES, help="ms a call of the driver takes")
    told = parser.parse_args()
    log(f"{about(told.peers)}\n{load()}")
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        library = build_library(folder)
        weights = weight.imports(told.peers, library), weight.bundles(told.peers)
        peers = start(told.peers, folder, library, stack)
        rows = [loaded(peers, "none", 0, 0, told.seconds)]
        for latency in told.latencies:
            for peer in peers.values():
                peer.slow(latency)
            for listeners in told.listeners:
                for name in ("ours", "nvdashboard", "resource-usage"):
                    seconds = told.seconds * (OURS_LONGER if name == "ours" else 1)
                    rows.append(loaded(peers, name, latency, listeners, seconds))
        alone = quiet(peers)
    long = f"{told.seconds:g} s a row, of ours {OURS_LONGER:g} times as long"
    print(f"\n{load()}\n\nOther requests of the server while a panel is open, {GPUS} GPUs, {long}:\n")
    print(table(HEAD, [row.cells() for row in rows]))
    print(f"\n{verdict(rows)}\n\nCPU of the server while nobody else asks, a call takes 1 ms, {QUIET_SECONDS:.0f} s:\n")
    print(table(["panel", "closed %", "one listener %", "driver calls/s closed", "driver calls/s open"], alone))
    for head, lines in weights:
        print(f"\n{table(head, lines)}")


def loaded(peers: dict[str, Peer], name: str, latency: int, listeners: int, seconds: float) -> Row:
    """One server while the listeners are on; it is given time to come to rest before and after."""
    peer = peers[name]
    rest(peer)
    row = Row(name, latency, listeners, 0)
    if not listeners:
        measure(peer, peers["none"], row, seconds)
    else:
        with listening(peer, listeners) as pages:
            row.on = pages.on
            time.sleep(1.0)  # the answers to the opening are over
            pages.tell("begin")
            measure(peer, peers["none"], row, seconds)
            heard = pages.tell("end")
        row.messages, row.bytes = int(heard["messages"]), int(heard["bytes"])
        row.first = max(heard["first"], default=None)
        rest(peer)
    log(", ".join(f"{head} {cell}" for head, cell in zip(HEAD, row.cells(), strict=True)))
    return row


def measure(peer: Peer, none: Peer, row: Row, seconds: float) -> None:
    """Ask both every 50 ms, in turn, each from one connection, for so long."""
    calls, cpu, began = peer.calls(), peer.cpu_seconds(), time.perf_counter()
    with ThreadPoolExecutor(2) as threads:
        floor = threads.submit(ask_again, none, began + ASK_EVERY / 2, seconds)
        row.asked = threads.submit(ask_again, peer, began, seconds).result()
        row.floor = floor.result()
    row.seconds = time.perf_counter() - began
    row.calls, row.cpu = peer.calls() - calls, peer.cpu_seconds() - cpu


def ask_again(peer: Peer, turn: float, seconds: float) -> list[float]:
    """Seconds of each request that was answered in that time; the first is sent at `turn`."""
    ends, took = turn + seconds, []
    connection = http.client.HTTPConnection("127.0.0.1", peer.server.port)
    while (now := time.perf_counter()) < ends:
        if now < turn:
            time.sleep(min(turn, ends) - now)
            continue
        turn = max(turn + ASK_EVERY, now)
        answered = ask(connection, peer, ends - now)
        if answered is not None:
            took.append(answered)
    connection.close()
    return took


def ask(connection: http.client.HTTPConnection, peer: Peer, patience: float) -> float | None:
    """Seconds of one `GET api/status`; None: no answer in time."""
    connection.timeout = patience
    if connection.sock is not None:
        connection.sock.settimeout(patience)
    path, headers = f"{peer.server.base_url}api/status", {"Authorization": f"token {LOGIN_TOKEN}"}
    began = time.perf_counter()
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        answer.read()
    except TimeoutError:
        connection.close()
        return None
    if answer.status != 200:
        raise RuntimeError(f"{peer.name} answered {answer.status}")
    return time.perf_counter() - began


def rest(peer: Peer) -> None:
    """Wait until the server answers at once again: a listener that left may still be worked off."""
    deadline, quick = time.monotonic() + CALM_SECONDS, 0
    while quick < 3 and time.monotonic() < deadline:
        connection = http.client.HTTPConnection("127.0.0.1", peer.server.port)
        took = ask(connection, peer, max(0.1, deadline - time.monotonic()))
        connection.close()
        quick = quick + 1 if took is not None and took < 0.1 else 0


class Pages:
    """The other process with the listeners. `on`: how many of them are connected."""

    def __init__(self, peer: Peer, count: int) -> None:
        command = [
            sys.executable,
            "-m",
            "benchmarks.panel.listeners",
            peer.name,
            peer.server.url,
            LOGIN_TOKEN,
            str(count),
        ]
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.on = int(self._hear(120.0)["on"])

    def tell(self, word: str) -> dict[str, Any]:
        """Say ``begin`` or ``end``; what was heard, after ``end``."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        return self._hear(30.0) if word == "end" else {}

    def _hear(self, seconds: float) -> dict[str, Any]:
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            raise RuntimeError(f"the listeners said nothing for {seconds:.0f} s")
        said: dict[str, Any] = json.loads(self.process.stdout.readline())
        return said


@contextmanager
def listening(peer: Peer, count: int) -> Iterator[Pages]:
    pages = Pages(peer, count)
    try:
        yield pages
    finally:
        try:
            pages.process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            pages.process.kill()
            pages.process.communicate()


def quiet(peers: dict[str, Peer]) -> list[list[str]]:
    """CPU with nobody asking: nobody listens, then one page does; all four at the same time."""
    for peer in peers.values():
        peer.slow(1)
        rest(peer)
    closed = spent(peers)
    with ExitStack() as stack:
        for peer in peers.values():
            if peer.name != "none":
                stack.enter_context(listening(peer, 1))
        opened = spent(peers)
    return [
        [name, *(f"{100 * when[name][0] / QUIET_SECONDS:.2f}" for when in (closed, opened)),
         *(f"{when[name][1] / QUIET_SECONDS:.1f}" for when in (closed, opened))]
        for name in peers
    ]  # fmt: skip


def spent(peers: dict[str, Peer]) -> dict[str, tuple[float, int]]:
    """CPU seconds and calls of the driver of each, over the same time."""
    before = {name: (peer.cpu_seconds(), peer.calls()) for name, peer in peers.items()}
    time.sleep(QUIET_SECONDS)
    return {
        name: (peer.cpu_seconds() - before[name][0], peer.calls() - before[name][1]) for name, peer in peers.items()
    }


def verdict(rows: list[Row]) -> str:
    """Ours, against what is asked of it."""
    ours = [row for row in rows if row.name == "ours"]
    lines = []
    for share in (0.5, 0.95):
        worst, row = max(((row.over(share), row) for row in ours), key=itemgetter(0))
        kept = "kept" if worst <= ALLOWED else "NOT kept"
        lines.append(
            f"p{100 * share:.0f} of ours, worst of {len(ours)} loads: {worst:.2f} times none "
            f"({row.listeners} listeners, {row.latency} ms a call); at most {ALLOWED:g}: {kept}"
        )
    together = Row("ours", 0, 0, 0, [t for row in ours for t in row.asked], [t for row in ours for t in row.floor])
    lines.append(
        f"all loads of ours together, {len(together.asked)} answers: p50 {together.over(0.5):.2f}, "
        f"p95 {together.over(0.95):.2f} times none"
    )
    first = max((row.first or 0 for row in ours), default=0)
    return "\n".join([*lines, f"the first message of ours, with the history: {first} bytes at most"])


def table(head: list[str], lines: list[list[str]]) -> str:
    """A table that reads well here and in Markdown."""
    widths = [max(len(line[column]) for line in [head, *lines]) for column in range(len(head))]
    printed = [head, ["-" * width for width in widths], *lines]
    return "\n".join(
        "| " + " | ".join(c.rjust(w) for c, w in zip(line, widths, strict=True)) + " |" for line in printed
    )


def about(python: str) -> str:
    """The versions that are compared, from the peers' Python."""
    names = (
        "jupyter_server",
        "jupyterlab",
        "tornado",
        "nvidia-ml-py",
        "jupyterlab_nvdashboard",
        "jupyter-resource-usage",
    )
    code = f"import importlib.metadata as m\nprint(', '.join(f'{{n}} {{m.version(n)}}' for n in {names!r}))"
    return subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def load() -> str:
    one, five, _ = os.getloadavg()
    return f"{os.cpu_count()} cores, load average {one:.2f} (1 min), {five:.2f} (5 min)"


def log(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
