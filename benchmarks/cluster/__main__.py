"""``python -m benchmarks.cluster``: builds the cluster, measures, prints a table. See ``benchmarks/README.md``."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.cluster import a_class, lateness
from benchmarks.cluster.populace import WHOLE_OFFER, Populace, Writer, each, pod, populace
from benchmarks.cluster.requests_made import AuditLog, name_counts
from benchmarks.figures import quantile
from tests.cluster.control_plane import ControlPlane
from tests.cluster.namespaces import fresh_namespace
from tests.cluster.place import ClusterPlace
from tests.cluster.played_nodes import PlayedNodes
from tests.cluster.responder import Responder
from tests.fakes.signed import Signs
from tests.hubs import ROOT, Hub, until

HOME = "hub-of-the-benchmark"
STOCK = """
c.Spawner.options_form = '<label><input type="radio" name="size" value="a" checked> A</label>' * 3
"""
PROBED = """
for _service in c.JupyterHub.services:
    if _service["name"] == "gpu":
        _service["command"] = [{python!r}, "-m", "benchmarks.cluster.probed", *_service["command"][3:], *{more!r}]
        _service["cwd"] = {root!r}
"""
MB = 1024 * 1024
CHANGES, FORMS, CHURN_SECONDS, CHURN_A_SECOND = 40, 200, 30.0, 50
PAGE = 500


@dataclass
class Row:
    what: str
    measured: str
    asked: str
    beside: str
    kept: bool | None = None


@dataclass
class Bench:
    """What the measurements have in common."""

    cluster: ControlPlane
    place: ClusterPlace
    people: Populace
    audit: AuditLog
    noted: Path
    idle: Path
    console: Console
    rows: list[Row] = field(default_factory=list)

    def row(self, what: str, measured: str, asked: str = "", beside: str = "", kept: bool | None = None) -> None:
        self.rows.append(Row(what, measured, asked, beside, kept))
        self.console.print(f"  {what}: {measured}  [dim]{beside}[/]", highlight=False)

    def blocks(self, what: str, since: float, until: float) -> None:
        """The longest block of the service's loop between two times, beside that of a loop that does nothing."""
        mine = lateness.read(self.noted, since, until)
        idle = lateness.read(self.idle, since, until)
        wall, own, processor = (max(getattr(one, name) for one in mine) * 1000 for name in ("wall", "own", "processor"))
        floor = max(one.wall for one in idle) * 1000
        self.row(
            f"longest block of the loop, {what}",
            f"{own:.0f} ms",
            "50 ms",
            f"with what other programs took {wall:.0f} ms; of the processor {processor:.0f} ms; "
            f"an idle loop at the same time {floor:.0f} ms",
            own <= 50,
        )
        for place in [one.where for one in mine if one.where and one.own > lateness.LONG][:20]:
            self.console.print(f"    {place}", style="dim", highlight=False, soft_wrap=True)


def main() -> None:
    """Build, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--people", type=int, default=300, help="of the class")
    parser.add_argument("--where", action="store_true", help="show where the service's loop lets others wait")
    told = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 160)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-")))
        bench = build(stack, folder, told.nodes, told.pods, console, told.where)
        stack.callback(report, bench)  # what was measured is printed, also after a failure
        with bench.place.open():
            read_first(bench)
            quiet(bench)
            events_to_form(bench)
            forms(bench, folder)
            asyncio.run(churn(bench))
            listed_anew(bench)
            the_class(bench, told.people)
            memory(bench)


# ------------------------------------------------------------------ the cluster


def build(stack: ExitStack, folder: Path, nodes: int, pods: int, console: Console, where: bool) -> Bench:
    """The control plane, its people, and a hub that is not started yet."""
    people = populace(nodes - a_class.NODES, pods)
    audit = AuditLog(folder / "audit", HOME)
    cluster = stack.enter_context(
        ControlPlane().start(folder / "cluster", grace_seconds=86_400, api_server_flags=audit.flags)
    )
    console.print(f"{nodes:,} nodes, {pods:,} pods, {people.holders:,} of them with a GPU")
    began = time.monotonic()
    with progress(console, "nodes and pods are made", len(people.nodes) + len(people.pods)) as step:
        asyncio.run(_make(cluster, people, step))
    console.print(f"made in {time.monotonic() - began:.0f} s")
    (folder / "played").mkdir()
    played = stack.enter_context(PlayedNodes(cluster, folder / "played"))
    a_class.add_nodes(played)
    _until_ready(played)
    stack.enter_context(fresh_namespace(cluster, HOME))
    responder = stack.enter_context(Responder())
    config = f"c.KubeSpawner.port = {responder.port}\nc.GpuQueue.max_starting = 64"
    place = ClusterPlace(cluster, HOME, folder / "hub", config=config)
    noted, idle = folder / "service.noted", folder / "idle.noted"
    more = ["--noted", str(noted), *(["--where"] if where else [])]
    with place.hub.config.open("a") as text:
        text.write(PROBED.format(python=sys.executable, more=more, root=str(ROOT)))
    floor = subprocess.Popen([sys.executable, "-m", "benchmarks.cluster.lateness", str(idle)], cwd=ROOT)
    stack.callback(floor.wait)
    stack.callback(floor.kill)
    return Bench(cluster, place, people, audit, noted, idle, console)


async def _make(cluster: ControlPlane, people: Populace, step: Any) -> None:
    async with Writer(cluster) as writer:
        await writer.make(people, step)


def _until_ready(played: PlayedNodes) -> None:
    """After 1,000 nodes the controller takes its time with two more."""
    for number in range(a_class.NODES):
        played.until_ready(f"class-{number}", seconds=300)


@contextmanager
def progress(console: Console, what: str, total: int) -> Iterator[Any]:
    """A bar on a terminal; gives the function that moves it by one."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)


# ------------------------------------------------------------------ measured


def read_first(bench: Bench) -> None:
    """From the first question to a form that knows what is free; and the floor: the same pages, only parsed."""
    until(lambda: bench.place.offers().get(WHOLE_OFFER, {}).get("free") is not None, 120, "the form knows what is free")
    known = time.time()
    asking = bench.audit.first_list()
    bare, size, biggest = bare_lists(bench.cluster)
    bench.row("a pod, as JSON", f"{size / 1000:.1f} kB", "3 to 10 kB", f"a page of {PAGE} is {biggest / 1e6:.1f} MB")
    bench.row(
        "all is read, from the first question to the form",
        f"{known - asking:.1f} s",
        "",
        f"the same pages afterwards, only asked for and parsed: {bare:.1f} s ({(known - asking) / bare:.1f} times)",
    )
    bench.blocks("the service starts", 0.0, asking)
    bench.blocks("all is read", asking + lateness.SAY_EVERY, known)


def bare_lists(cluster: ControlPlane) -> tuple[float, float, int]:
    """(seconds, mean bytes of a pod, bytes of the biggest page) of listing nodes and pods page by page."""
    began = time.perf_counter()
    lengths, biggest, count = 0, 0, 0
    for path in ("/api/v1/nodes", "/api/v1/pods"):
        following = ""
        while True:
            query = f"?limit={PAGE}" + (f"&continue={following}" if following else "")
            answer = cluster._session.get(cluster.url + path + query, timeout=60)
            page = json.loads(answer.content)
            biggest = max(biggest, len(answer.content))
            if path.endswith("pods"):
                count += len(page["items"])
                lengths += len(answer.content)
            following = page["metadata"].get("continue", "")
            if not following:
                break
    took = time.perf_counter() - began
    return took, lengths / count, biggest


def quiet(bench: Bench) -> None:
    """Nothing happens but what always does."""
    since = time.time()
    time.sleep(10)
    bench.blocks("nothing happens", since, time.time())
    bench.row("memory of the service, all read", f"{lateness.read(bench.noted)[-1].rss / MB:.0f} MB", "250 MB")


def events_to_form(bench: Bench) -> None:
    """A pod of another namespace takes a card, then frees it; the clock starts when the API server has said yes."""
    session = requests.Session()
    session.auth = Signs(bench.place.secret())
    url = f"http://127.0.0.1:{bench.place.port}/services/gpu/hub/form?user=ada"

    def free() -> int:
        found = next(one["free"] for one in session.get(url, timeout=10).json()["offers"] if one["id"] == WHOLE_OFFER)
        return int(found)

    def until_free(count: int, since: float) -> float:
        until(lambda: free() == count, 20, lambda: f"{count} are free, the form says {free()}")
        return time.perf_counter() - since

    nodes = free_h100s(bench.people)
    before = free()
    taken, freed = [], []
    for number in range(CHANGES // 2):
        one = pod(f"taker-{number}", nodes[number % len(nodes)], "team-0", {"nvidia.com/gpu": "1"})
        bench.cluster.call("POST", "/api/v1/namespaces/team-0/pods", one)
        taken.append(until_free(before - 1, time.perf_counter()))
        bench.cluster.call("DELETE", f"/api/v1/namespaces/team-0/pods/taker-{number}?gracePeriodSeconds=0")
        freed.append(until_free(before, time.perf_counter()))
    for what, times in (("takes", taken), ("frees", freed)):
        p50, p95 = (quantile(times, share) for share in (0.5, 0.95))
        bench.row(
            f"a pod of others {what} a card, until the form says so",
            f"p50 {p50:.2f} s, p95 {p95:.2f} s, n={len(times)}",
            "2 s",
            f"worst {max(times):.2f} s",
            p95 <= 2,
        )


def free_h100s(people: Populace) -> list[str]:
    """Nodes with a whole card that nobody holds."""
    used: dict[str, int] = {}
    for one in people.pods:
        limits = one["spec"]["containers"][0]["resources"]["limits"]
        name = one["spec"]["nodeName"]
        used[name] = used.get(name, 0) + int(limits.get("nvidia.com/gpu", "0"))
    names = [one["metadata"]["name"] for one in people.nodes]
    return [name for name in names if name.startswith("h100") and used.get(name, 0) < 8]


def forms(bench: Bench, folder: Path) -> None:
    """The spawn page, against a hub's without us; and what the API server was asked meanwhile."""
    with Hub(folder / "stock", STOCK) as capacity:
        ours, theirs = (hub.login("ada") for hub in (bench.place.hub, capacity))
        mine, plain = [], []
        page = ours.get(f"{bench.place.hub.url}/hub/spawn/ada", timeout=30).text
        assert f'value="{WHOLE_OFFER}"' in page, "the form has the cluster's offers"
        mark = bench.audit.here()
        for _ in range(FORMS):
            mine.append(timed(ours, f"{bench.place.hub.url}/hub/spawn/ada"))
            plain.append(timed(theirs, f"{capacity.url}/hub/spawn/ada"))
        asked = bench.audit.since(mark)
    over = quantile(mine, 0.95) - quantile(plain, 0.95)
    bench.row(
        "the form, p95 over the hub's own",
        f"{over * 1000:.0f} ms",
        "50 ms",
        f"ours p50 {quantile(mine, 0.5) * 1000:.0f}, p95 {quantile(mine, 0.95) * 1000:.0f} ms; the hub's own "
        f"p50 {quantile(plain, 0.5) * 1000:.0f}, p95 {quantile(plain, 0.95) * 1000:.0f} ms; n={FORMS}",
        over <= 0.05,
    )
    calls = sum(count for (_, verb, _), count in asked.items() if verb != "watch")
    bench.row(
        f"requests to the API server in {FORMS} forms", f"{calls}", "none", f"asked: {name_counts(asked)}", calls == 0
    )


def timed(session: requests.Session, url: str) -> float:
    began = time.perf_counter()
    answer = session.get(url, timeout=30)
    took = time.perf_counter() - began
    assert answer.ok and "spawn_form" in answer.text
    return took


async def churn(bench: Bench) -> None:
    """Pods of others come, change and go, some every second and then 500 at once; and every node gets new labels."""
    nodes = free_h100s(bench.people)
    chance = random.Random(2)
    async with Writer(bench.cluster) as writer:
        since = time.time()
        events = 0
        living: list[dict[str, Any]] = []
        while time.time() - since < CHURN_SECONDS:
            second = time.monotonic()
            fresh = [
                pod(f"churn-{events}-{n}", nodes[n % len(nodes)], "team-1", {}) for n in range(CHURN_A_SECOND // 4)
            ]
            for one in fresh:
                if chance.random() < 0.6:
                    one["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "1"
                    one["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] = "1"
            await each((writer.run(one) for one in fresh), at_once=8)
            living += fresh
            await each((writer.delete(one) for one in living[: len(fresh)]) if len(living) > 50 else ())
            living = living[len(fresh) :] if len(living) > 50 else living
            events += 4 * len(fresh)
            await asyncio.sleep(max(0.0, 1 - (time.monotonic() - second)))
        bench.blocks(f"{events / (time.time() - since):.0f} changes of pods a second", since, time.time())
        since = time.time()
        gone = [one for one in bench.people.pods if one["metadata"]["name"].startswith("a100-job")][:500]
        await each(writer.delete(one) for one in gone)
        await asyncio.sleep(2)
        bench.blocks(f"{len(gone)} pods with GPUs end at once", since, time.time())
        since = time.time()
        names = [one["metadata"]["name"] for one in bench.people.nodes]
        await each(writer.relabel(name, {"nvidia.com/gfd.timestamp": str(int(since))}) for name in names)
        await asyncio.sleep(2)
        bench.blocks(f"{len(names)} nodes get new labels", since, time.time())


def listed_anew(bench: Bench) -> None:
    """The API server is restarted, and knows no history: all is listed again while the service goes on."""
    mark, since = bench.audit.here(), time.time()
    bench.cluster.api_server.stop(patience=5)
    bench.cluster.api_server.start()
    bench.cluster.until_ready(300)  # it reads all of etcd first

    def watched() -> bool:
        asked = bench.audit.since(mark)
        return bool(asked["service", "watch", "pods"] and asked["service", "watch", "nodes"])

    until(watched, 120, "the service watches again")
    time.sleep(3)
    bench.blocks("the API server is restarted", since, time.time())
    asked = bench.audit.since(mark)
    lists = {key: count for key, count in asked.items() if key[0] == "service" and key[1] == "list"}
    bench.row("pages listed again after that", str(sum(lists.values())))


def the_class(bench: Bench, count: int) -> None:
    """See ``a_class.py``."""
    people = [f"pupil{number:03}" for number in range(count)]
    with progress(bench.console, "people log in", count) as step:
        sessions = a_class.log_in(bench.place, people, step)
    onlooker = bench.place.hub.login("onlooker")

    def look() -> float:
        return timed(onlooker, f"{bench.place.hub.url}/hub/spawn/onlooker")

    with progress(bench.console, "people press Start", count) as step:
        seen = a_class.begin(bench.place, sessions, look, step)
    refused = sum(number for status, number in seen.statuses.items() if status >= 400)
    bench.row(
        f"{count} people press Start in 60 s: refused (429 or else)",
        str(refused),
        "none",
        f"answers {seen.statuses}, p95 {quantile(seen.took, 0.95) * 1000:.0f} ms",
        refused == 0,
    )
    bench.row(
        "tickets lost", str(count - len(set(seen.joined)) + seen.lost), "none",
        f"{len(seen.joined)} joined, {len(seen.admitted)} admitted, {len(seen.waiting)} in line",
        len(set(seen.joined)) == count and not seen.lost,
    )  # fmt: skip
    in_line = [user for user in seen.joined if user not in set(seen.admitted)]
    bench.row(
        "admitted out of the order of joining", str(seen.out_of_order), "none",
        f"the line is {'in' if seen.waiting == in_line else 'NOT in'} the order of joining",
        seen.out_of_order == 0 and seen.waiting == in_line,
    )  # fmt: skip
    bench.row(
        "their pods, made by the hub and placed by the scheduler", f"{seen.placed} in {seen.all_placed:.0f} s", "",
        f"{seen.ready} servers ready (played pods: a responder answers)",
    )  # fmt: skip
    bench.row(
        "somebody else's form meanwhile",
        f"p50 {quantile(seen.beside, 0.5) * 1000:.0f} ms, p95 {quantile(seen.beside, 0.95) * 1000:.0f} ms",
        "",
        f"before: p50 {quantile(seen.before, 0.5) * 1000:.0f}, p95 {quantile(seen.before, 0.95) * 1000:.0f} ms; "
        f"worst {max(seen.beside) * 1000:.0f} ms",
    )
    bench.blocks("the class", seen.began, seen.ended)


def memory(bench: Bench) -> None:
    """Of the service at the end, and the most it ever had."""
    pid = next(p for p in bench.place.hub.processes() if b"benchmarks.cluster.probed" in _command(p))
    now, most = lateness.rss(pid), lateness.rss(pid, "VmHWM")
    bench.row(
        "memory of the service at the end", f"{now / MB:.0f} MB", "250 MB", f"at most {most / MB:.0f} MB",
        most <= 250 * MB,
    )  # fmt: skip


def _command(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def report(bench: Bench) -> None:
    """The table, at the end."""
    load = os.getloadavg()[0]
    nodes = len(bench.people.nodes) + a_class.NODES
    table = Table(title=f"{nodes:,} nodes, {len(bench.people.pods):,} pods; load average {load:.1f}")
    for head in ("", "measured", "asked", "kept", "beside it"):
        table.add_column(head, overflow="fold")
    for row in bench.rows:
        kept = "" if row.kept is None else "yes" if row.kept else "NO"
        table.add_row(row.what, row.measured, row.asked, kept, row.beside)
    bench.console.print(table)


if __name__ == "__main__":
    main()
