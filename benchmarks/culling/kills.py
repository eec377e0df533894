"""A stop on a real cluster in which one part is killed: at each stage, each part, on SQLite and on PostgreSQL.

A ring of two people wants one MIG device. Whoever has it does nothing: the server is warned twice, drained, stopped,
its pod goes, and the next in line starts. Beside them somebody trains all the time. At the stage that a line names one
part is killed (``kill -9``) and started again. API server, kubelet, hub, proxy, service, Prometheus and both databases
are real; what the GPUs do an exporter says, in the names of both generations by turns. Limits run six times as fast
(``tests/fakes/turned_service.py``). Which parts there are stands in ``kills_place.py``.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import requests

from benchmarks.culling.kills_place import OFFERS, Look, Stack, labels_of, resources
from tests.cluster.control_plane import ControlPlane
from tests.cluster.real_node import RealNode
from tests.fakes.own_postgresql import own_server
from tests.patience import patient

STAGES = ("idle seen", "warned", "second warning", "draining", "stop sent", "next starts")
PARTS = ("exporter", "prometheus", "service", "hub")
STORES = ("sqlite", "postgresql")
AWAY = 4.0
"""Seconds until what was killed is started again; the service is at once, by its own supervisor."""
LONGEST = 240.0
"""Seconds that a stage may take to come."""


@dataclass
class Cell:
    """What came of one stop. Times are seconds; None: it was not seen.

    Attributes:
        after_promise: from the first time that its user was told to the begin of the stop.
        after_last: the same from what was told last: a hub or service that is away moves it.
        late_kill: the stage that had come when the part was killed, where it was another.
    """

    store: str
    stage: str
    killed: str
    late_kill: str = ""
    after_promise: float | None = None
    after_last: float | None = None
    stops: int = 0
    hooks: int = 0
    trains: bool = False
    next_started: bool = False
    most_at_once: int = 0
    seconds: float = 0.0
    trouble: str = ""

    @property
    def kept(self) -> bool:
        """Everything that was promised."""
        in_time = self.after_promise is not None and self.after_promise >= 0
        whole = in_time and self.trains and self.next_started and self.most_at_once == 1 and self.stops == 1
        return whole and not self.trouble

    def line(self) -> str:
        """A row of the table."""
        said = [
            self.store, self.stage + (f" (killed at: {self.late_kill})" if self.late_kill else ""), self.killed,
            _seconds(self.after_promise), _seconds(self.after_last), str(self.stops), str(self.hooks),
            "alive" if self.trains else "LOST", "started" if self.next_started else "NOT STARTED",
            str(self.most_at_once), f"{self.seconds:.0f} s", "kept" if self.kept else f"BROKEN {self.trouble}".strip(),
        ]  # fmt: skip
        return "| " + " | ".join(said) + " |"


HEAD = (
    "store", "stage", "killed", "stop begins after its promise", "after the last time told", "stops", "hook ran",
    "training", "next in line", "most holders at once", "took", "",
)  # fmt: skip


def _seconds(value: float | None) -> str:
    return "not seen" if value is None else f"{value:+.1f} s"


@dataclass
class Seen:
    """What was seen since a cell began."""

    stages: dict[str, float] = field(default_factory=dict)
    first_promise: float | None = None
    last_promise: float | None = None
    most: int = 0

    def add(self, look: Look) -> None:
        """One more look."""
        self.most = max(self.most, look.holders)
        if look.stops_at is not None and "draining" not in self.stages:
            self.first_promise = self.first_promise if self.first_promise is not None else look.stops_at
            self.last_promise = look.stops_at
        for stage in look.stages:
            self.stages.setdefault(stage, look.at)


def cell(stack: Stack, stage: str, part: str) -> Cell:
    """The holder's server is stopped, and `part` is killed at `stage`; at the end the next one is ready."""
    began, told = time.time(), Seen()
    result = Cell(stack.store, stage, part)
    stack.new_round()
    stack.line_up()
    for look in _looks(stack, told, stage):
        if stage in look.stages:
            break
    result.late_kill = "" if told.stages.keys() <= set(STAGES[: STAGES.index(stage) + 1]) else [*told.stages][-1]
    stack.kill(part)
    time.sleep(0.0 if part == "service" else AWAY)
    stack.start_again(part)
    for _ in _looks(stack, told, "the next one is ready"):
        if stack.next_is_ready():
            break
    drained = stack.hooks()
    if drained and told.first_promise is not None and told.last_promise is not None:
        result.after_promise = drained[0] - told.first_promise
        result.after_last = drained[0] - told.last_promise
    result.hooks, result.stops = len(drained), stack.stops_in_the_audit()
    result.trains, result.next_started = stack.trains(), stack.next_is_ready()
    result.most_at_once, result.seconds = told.most, time.time() - began
    stack.turn()
    return result


def _looks(stack: Stack, told: Seen, what: str) -> Iterator[Look]:
    """One after the other, each noted; ends by an error after a while."""
    deadline = time.monotonic() + patient(LONGEST)
    while time.monotonic() < deadline:
        look = stack.look()
        told.add(look)
        yield look
        time.sleep(0.1)
    raise TimeoutError(f"not within {patient(LONGEST):.0f} s: {what}; came: {', '.join(told.stages)}")


def run(stack: Stack, cells: Sequence[tuple[str, str]], results: list[Cell], printing: threading.Lock) -> None:
    """All of these, one after the other, in one place."""
    with stack.open():
        for stage, part in cells:
            try:
                stack.begin()
                found = cell(stack, stage, part)
            except (AssertionError, TimeoutError, requests.RequestException) as problem:
                found = Cell(stack.store, stage, part, trouble=str(problem).splitlines()[0][:200])
                stack.mend()
            with printing:
                results.append(found)
                print(found.line(), flush=True)


def main(stores: Sequence[str], stages: Sequence[str], parts: Sequence[str], side_by_side: int) -> None:
    """Print the table."""
    cells = [(stage, part) for stage in stages for part in parts]
    results: list[Cell] = []
    printing = threading.Lock()
    print("| " + " | ".join(HEAD) + " |\n" + "| --- " * len(HEAD) + "|", flush=True)
    with tempfile.TemporaryDirectory(prefix="kills-") as name, ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o755)  # homes are mounted from it
        cluster = stack.enter_context(ControlPlane().start(folder / "control-plane"))
        places = [(store, number) for number in range(side_by_side) for store in stores]
        offers = dict(zip(places, OFFERS, strict=False))
        node = RealNode(
            cluster, folder / "node", resources=resources(offers.values()), labels=labels_of(offers.values())
        )
        node.start(wait=600)
        stack.callback(node.stop)
        database = stack.enter_context(own_server()) if "postgresql" in stores else None
        with ThreadPoolExecutor(len(places)) as threads:
            running = []
            for (store, number), offer in offers.items():
                own = database.create(f"kills_{number}") if store == "postgresql" and database else ""
                place = Stack(cluster, node, folder / f"{store}-{number}", store, own, offer)
                running.append(threads.submit(run, place, cells[number::side_by_side], results, printing))
            for each in running:
                try:
                    each.result()
                except Exception:  # noqa: BLE001 - the others' lines are printed all the same
                    traceback.print_exc()
    report(results, len(cells) * len(stores))


def report(results: Sequence[Cell], wanted: int) -> None:
    """The table in order, and its sum."""
    order = {name: number for number, name in enumerate((*STORES, *STAGES, *PARTS))}
    print("\nin order:\n| " + " | ".join(HEAD) + " |\n" + "| --- " * len(HEAD) + "|")
    for each in sorted(results, key=lambda one: (order[one.store], order[one.stage], order[one.killed])):
        print(each.line())
    kept = sum(each.kept for each in results)
    times = [each.after_promise for each in results if each.after_promise is not None]
    last = [each.after_last for each in results if each.after_last is not None]
    print(f"\n{kept} of {wanted} kept")
    if times:
        print(f"a stop began {min(times):.1f} to {max(times):.1f} s after the time first told,")
        print(f"{min(last):.1f} to {max(last):.1f} s after the one told last")
    sys.exit(0 if kept == wanted else 1)
