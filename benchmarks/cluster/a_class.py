"""A class begins: 300 people press Start within a minute, for the same small MIG device, of which 100 are free.

Each has logged in before, as a browser does, and posts the hub's own form. Their pods are made by the hub, placed by
the scheduler on two played nodes (kwok), and a small responder answers in the servers' place.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event, Thread

import requests

from hub_extensions.adapters.store import Store
from tests.cluster.place import ClusterPlace
from tests.cluster.played_nodes import PlayedNodes
from tests.hubs import until

OFFER = "mig-1g.10gb"
RESOURCE = f"nvidia.com/{OFFER}"
NODES, FREE = 2, 100
MINUTE = 60.0
Answers = Callable[[], float]


@dataclass
class Class:
    """What happened. Times are seconds.

    Attributes:
        statuses: HTTP status -> how many got it, of the form's post. took: each post.
        beside: somebody else's look at the hub's page meanwhile. before: the same before the class began.
        joined, admitted: users in these orders. placed: pods that have a node. ready: servers that answer.
        out_of_order: admissions before somebody who had joined earlier.
    """

    statuses: dict[int, int] = field(default_factory=dict)
    took: list[float] = field(default_factory=list)
    before: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)
    joined: list[str] = field(default_factory=list)
    admitted: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    placed: int = 0
    ready: int = 0
    all_placed: float = 0.0
    began: float = 0.0
    ended: float = 0.0

    @property
    def lost(self) -> int:
        """Tickets that neither wait nor were admitted."""
        return len(set(self.joined) - set(self.admitted) - set(self.waiting))

    @property
    def out_of_order(self) -> int:
        at = {user: number for number, user in enumerate(self.joined)}
        order = [at[user] for user in self.admitted]
        return sum(1 for number, place in enumerate(order) if place > number)


def add_nodes(played: PlayedNodes) -> None:
    """Two nodes with 50 devices each that nobody else has. They are ready some time later."""
    labels = {
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        f"{RESOURCE}.memory": "9728",
        f"{RESOURCE}.multiprocessors": "16",
        f"{RESOURCE}.sharing-strategy": "none",
        "nvidia.com/mig.config.state": "success",
    }
    for number in range(NODES):
        played.add(f"class-{number}", {RESOURCE: FREE // NODES, "nvidia.com/gpu": 0, "pods": "110"}, labels, wait=False)


def log_in(place: ClusterPlace, people: Sequence[str], step: Callable[[], object]) -> dict[str, requests.Session]:
    """Everybody's browser session."""

    def one(name: str) -> tuple[str, requests.Session]:
        session = place.hub.login(name)
        step()
        return name, session

    with ThreadPoolExecutor(4) as pool:
        return dict(pool.map(one, people))


def begin(
    place: ClusterPlace, sessions: dict[str, requests.Session], look: Answers, step: Callable[[], object]
) -> Class:
    """All of them within a minute; ends when as many servers are ready as there are devices."""
    seen = Class(before=[look() for _ in range(50)])
    over = Event()

    def beside() -> None:
        while not over.wait(0.2):
            seen.beside.append(look())

    watcher = Thread(target=beside, daemon=True)
    seen.began = time.time()
    watcher.start()
    start = time.perf_counter()

    def press(entry: tuple[int, tuple[str, requests.Session]]) -> tuple[int, float]:
        number, (name, session) = entry
        time.sleep(max(0.0, start + number * MINUTE / len(sessions) - time.perf_counter()))
        began = time.perf_counter()
        url = f"{place.hub.url}/hub/spawn/{name}"
        answer = session.post(
            url, data={"offer": OFFER, "_xsrf": session.headers["X-XSRFToken"]}, timeout=60, allow_redirects=False
        )
        step()
        return answer.status_code, time.perf_counter() - began

    with ThreadPoolExecutor(16) as pool:
        for status, took in pool.map(press, enumerate(sessions.items())):
            seen.statuses[status] = seen.statuses.get(status, 0) + 1
            seen.took.append(took)
    expected = min(FREE, len(sessions))
    until(lambda: _placed(place) >= expected, 180, lambda: f"{_placed(place)} pods have a place")
    seen.all_placed = time.perf_counter() - start
    with suppress(AssertionError):
        until(lambda: _ready(place) >= expected, 120)
    seen.ended = time.time()
    over.set()
    watcher.join(60)
    seen.placed, seen.ready = _placed(place), _ready(place)
    seen.waiting = place.waiting()
    _read_journal(place, seen)
    return seen


def _placed(place: ClusterPlace) -> int:
    return sum(1 for pod in place.pods().values() if pod["spec"].get("nodeName"))


def _ready(place: ClusterPlace) -> int:
    users = place.hub.api("GET", "users?state=ready&limit=1000").json()
    return len(users)


def _read_journal(place: ClusterPlace, seen: Class) -> None:
    """Who joined and who was admitted, in the order in which the service wrote it down."""
    store = Store.open(f"sqlite:///{place.state / 'gpu.sqlite'}")
    try:
        rows = asyncio.run(store.journal(limit=10_000))
    finally:
        store.close()
    for row in reversed(rows):
        if row.kind == "joined" and row.user:
            seen.joined.append(row.user)
        elif row.kind == "admitted" and row.user:
            seen.admitted.append(row.user)
