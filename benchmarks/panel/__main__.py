"""What an open panel costs its server: ours beside none, jupyterlab-nvdashboard and jupyter-resource-usage, in one run.

Each is a real server with eight fake GPUs. While 1, 10 and 50 listeners are on, and a call of the driver takes 1 and
20 ms, somebody else asks `GET api/status` every 50 ms: how long that takes is the figure, and its floor is the server
without a panel, measured before and after ours. A request that waits holds the next one back, so that a bad figure
comes from few answers: `answers` says from how many. nan: none in the whole row.
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
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

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


@dataclass
class Row:
    """One server under one load: what the others' requests took, and what the panel took. None is not known."""

    name: str
    latency: int
    listeners: int
    on: int
    asked: list[float] = field(default_factory=list)
    seconds: float = 0.0
    calls: int = 0
    cpu: float = 0.0
    messages: int = 0
    bytes: int = 0
    first: int | None = None

    def at(self, share: float) -> float:
        """Seconds of the others' requests; nan where none was answered."""
        return quantile(self.asked, share) if self.asked else math.nan

    def cells(self, floor: Row) -> list[str]:
        """The row of the table; ratios are to `floor`."""
        p50, p95 = self.at(0.5), self.at(0.95)
        base = self.name == "none"
        heard = self.on if self.messages else 0
        return [
            f"{self.latency} ms",
            "0" if base else f"{self.on}" if self.on == self.listeners else f"{self.on} of {self.listeners}",
            self.name,
            str(len(self.asked)),
            *(f"{value * 1000:.1f}" for value in (p50, p95)),
            *(
                "1.00" if base else f"{mine / theirs:.2f}"
                for mine, theirs in zip((p50, p95), (floor.at(0.5), floor.at(0.95)), strict=True)
            ),
            f"{self.calls / self.seconds:.0f}",
            "-" if base else f"{self.messages / self.seconds / heard:.2f}" if heard else "0",
            "-" if base else f"{self.bytes / self.seconds / heard:.0f}" if heard else "0",
            f"{100 * self.cpu / self.seconds:.1f}",
        ]


HEAD = [
    "a call takes", "listeners", "panel", "answers", "p50 ms", "p95 ms", "p50 / none", "p95 / none", "driver calls/s",
    "messages/s to one", "bytes/s to one", "server CPU %",
]  # fmt: skip


def main() -> None:
    """Start the four servers, load them in turn, print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.panel", description=__doc__)
    parser.add_argument("--peers", required=True, metavar="PYTHON", help="a Python with both peers; see the README")
    parser.add_argument("--seconds", type=float, default=8.0, help="of a row (8)")
    parser.add_argument("--listeners", type=int, nargs="+", default=LISTENERS)
    parser.add_argument("--latencies", type=int, nargs="+", default=LATENCIES, help="ms a call of the driver takes")
    told = parser.parse_args()
    say(f"{about(told.peers)}\n{load()}")
    rows: list[tuple[Row, Row]] = []
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        library = build_library(folder)
        weights = weight.imports(told.peers, library), weight.bundles(told.peers)
        peers = start(told.peers, folder, library, stack)
        for latency in told.latencies:
            for peer in peers.values():
                peer.slow(latency)
            for listeners in told.listeners:
                rows += group(peers, latency, listeners, told.seconds)
        alone = quiet(peers)
    print(f"\n{load()}\n\nOther requests of the server while a panel is open, {GPUS} GPUs:\n")
    print(table(HEAD, [row.cells(floor) for row, floor in rows]))
    print(f"\n{verdict(rows)}\n\nCPU of the server while nobody else asks, a call takes 1 ms, {QUIET_SECONDS:.0f} s:\n")
    print(table(["panel", "closed %", "one listener %", "driver calls/s closed", "driver calls/s open"], alone))
    for head, lines in weights:
        print(f"\n{table(head, lines)}")


def group(peers: dict[str, Peer], latency: int, listeners: int, seconds: float) -> list[tuple[Row, Row]]:
    """The four under one load, one after the other; the floor is measured on both sides of ours."""
    floor = Row("none", latency, listeners, 0)
    measure(peers["none"], floor, seconds / 2)
    ours = loaded(peers["ours"], latency, listeners, seconds)
    measure(peers["none"], floor, seconds / 2)
    rows = [
        floor,
        ours,
        *(loaded(peers[name], latency, listeners, seconds) for name in ("nvdashboard", "resource-usage")),
    ]
    for row in rows:
        said = " ".join(f"{name}={cell}" for name, cell in zip(HEAD, row.cells(floor), strict=True) if cell != "-")
        say(f"{said}" + ("" if row.first is None else f" first message={row.first} bytes"))
    return [(row, floor) for row in rows]


def loaded(peer: Peer, latency: int, listeners: int, seconds: float) -> Row:
    """One server while the listeners are on; it is given time to come to rest before and after."""
    rest(peer)
    with listening(peer, listeners) as pages:
        row = Row(peer.name, latency, listeners, pages.on)
        time.sleep(1.0)  # the answers to the opening are over
        pages.tell("begin")
        measure(peer, row, seconds)
        heard = pages.tell("end")
    if heard is not None:
        row.messages, row.bytes = int(heard["messages"]), int(heard["bytes"])
        row.first = max(heard["first"], default=None)
    rest(peer)
    return row


def measure(peer: Peer, row: Row, seconds: float) -> None:
    """Ask every 50 ms from one connection, for so long; an answer that does not come in that time is none."""
    calls, cpu, began = peer.calls(), peer.cpu_seconds(), time.perf_counter()
    ends = began + seconds
    connection = http.client.HTTPConnection("127.0.0.1", peer.server.port, timeout=seconds)
    turn = began
    while (now := time.perf_counter()) < ends:
        if now < turn:
            time.sleep(min(turn, ends) - now)
            continue
        turn = max(turn + ASK_EVERY, now)
        took = ask(connection, peer, ends - now)
        if took is None:
            break
        row.asked.append(took)
    time.sleep(max(0.0, ends - time.perf_counter()))
    connection.close()
    row.seconds += time.perf_counter() - began
    row.calls += peer.calls() - calls
    row.cpu += peer.cpu_seconds() - cpu


def ask(connection: http.client.HTTPConnection, peer: Peer, patience: float) -> float | None:
    """Seconds of one `GET api/status`; None: no answer in time."""
    connection.timeout = patience
    if connection.sock is not None:
        connection.sock.settimeout(patience)
    began = time.perf_counter()
    try:
        connection.request(
            "GET", f"{peer.server.base_url}api/status", headers={"Authorization": f"token {LOGIN_TOKEN}"}
        )
        answer = connection.getresponse()
        answer.read()
    except TimeoutError:
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
        said = self._hear(120.0)
        self.on = 0 if said is None else int(said["on"])

    def tell(self, word: str) -> dict | None:
        """Say ``begin`` or ``end``; what was heard, after ``end``."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        return self._hear(30.0) if word == "end" else None

    def _hear(self, seconds: float) -> dict | None:
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            return None
        line = self.process.stdout.readline()
        return json.loads(line) if line else None


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


def verdict(rows: list[tuple[Row, Row]]) -> str:
    """Ours, against what is asked of it."""
    ours = [(row, floor) for row, floor in rows if row.name == "ours"]
    lines = []
    for share in (0.5, 0.95):
        worst, row = max((row.at(share) / floor.at(share), row) for row, floor in ours)
        kept = "kept" if worst <= ALLOWED else "NOT kept"
        lines.append(
            f"p{100 * share:.0f} of ours, worst of {len(ours)} loads: {worst:.2f} times none "
            f"({row.listeners} listeners, {row.latency} ms a call); at most {ALLOWED:g}: {kept}"
        )
    first = max((row.first or 0 for row, _ in ours), default=0)
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


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
