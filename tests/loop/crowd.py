"""People who start servers by REST while hub, service and proxy are killed at random; and what became of each start.

A start counts as accepted when the hub has answered 201 or 202, or says later that it is pending already (that answer
was lost with its hub). Who was not answered asks again. What joined, and in which order, is read from the service's own
journal, where nothing is ever taken out. Shared by a test and by ``benchmarks/faults``.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import requests
from sqlalchemy import NullPool, create_engine, text

from tests.hubs import Hub, until
from tests.loop.place import Place
from tests.patience import patient

OFFER = "mig-1g.5gb"
FAULTS = ("service",) * 4 + ("proxy",) * 2 + ("hub",) * 3 + ("hub and service",) * 2
SETTLED_SECONDS = 120.0


@dataclass
class Outcome:
    """What became of everybody.

    Attributes:
        sent: when somebody first asked. accepted: when the hub's answer came. refused: with which words.
        joined: everybody who ever got a place, in the order of the places.
        again: people who got a second place though their first start did not fail (the hub stops a server that a dead
            proxy cannot be told of): their first place was lost. inverted: pairs, of which the one that was
            accepted before the other had even asked stands behind.
        faults: how many kills of hub or service were begun.
        back_seconds: from a kill of the service's process alone to its next answer, where none of these came between.
    """

    sent: dict[str, float] = field(default_factory=dict)
    accepted: dict[str, float] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    joined: list[str] = field(default_factory=list)
    again: list[str] = field(default_factory=list)
    kills: dict[str, int] = field(default_factory=dict)
    faults: int = 0
    back_seconds: list[float] = field(default_factory=list)

    @property
    def lost(self) -> list[str]:
        return sorted(set(self.accepted) - set(self.joined) - set(self.refused))

    @property
    def inverted(self) -> list[tuple[str, str]]:
        place = {name: number for number, name in enumerate(self.joined)}
        known = [name for name in self.accepted if name in place]
        return [
            (first, then)
            for first in known
            for then in known
            if self.accepted[first] < self.sent[then] and place[first] > place[then]
        ]

    def __str__(self) -> str:
        kills = ", ".join(f"{what} {times}" for what, times in sorted(self.kills.items()))
        return (
            f"{sum(self.kills.values())} kills ({kills}); accepted {len(self.accepted)}: joined {len(self.joined)}, "
            f"refused with a reason {len(self.refused)}, lost {len(self.lost)}, a second place {len(self.again)}, "
            f"out of order {len(self.inverted)}{self._back()}"
        )

    def _back(self) -> str:
        """How soon a service that was killed alone answered again."""
        if not self.back_seconds:
            return ""
        return (
            f"; the service killed alone answers again after {statistics.median(self.back_seconds):.1f} s, at most "
            f"{max(self.back_seconds):.1f} s, {len(self.back_seconds)} times"
        )


def config_for(database: str) -> str:
    """For `Place`: hub and service keep what they know in this database; "": in files of their own."""
    return f"c.JupyterHub.db_url = {database!r}\nc.GpuService.database_url = {database!r}" if database else ""


def run(place: Place, people: int, seconds: float, kills: int, seed: int, database: str = "") -> Outcome:
    """Everybody begins within `seconds`; the kills go on for as long as they take. Ends when all is settled.

    `database`: where `config_for` put it; "": a file in the service's folder.
    """
    store = database or f"sqlite:///file:{place.state / 'gpu.sqlite'}?mode=ro&uri=true"
    chance = random.Random(seed)
    outcome = Outcome()
    names = [f"p{number:03}" for number in range(people)]
    for begin in range(0, people, 50):
        place.hub.add_users(*names[begin : begin + 50])
    began = time.monotonic()
    with ThreadPoolExecutor(min(people, 48)) as threads:
        joins = [
            threads.submit(_join, place.hub, name, began + chance.uniform(0, seconds), outcome)
            for name in sorted(names, key=lambda _: chance.random())
        ]
        _kill(place, kills, seconds / kills, chance, outcome)
        for join in joins:
            join.result()
    with contextlib.suppress(AssertionError):  # who is missing then is lost
        until(lambda: set(outcome.accepted) <= {*_joined(store), *outcome.refused}, SETTLED_SECONDS)
    outcome.joined = list(dict.fromkeys(_joined(store)))
    places = _joined(store, "and ticket not in (select ticket from gpu_journal where kind = 'failed')")
    outcome.again = sorted({name for name in places if places.count(name) > 1})
    return outcome


def _join(hub: Hub, name: str, at: float, outcome: Outcome) -> None:
    time.sleep(max(0.0, at - time.monotonic()))
    deadline = time.monotonic() + patient(600)
    while time.monotonic() < deadline:
        sent = time.monotonic()
        outcome.sent.setdefault(name, sent)
        with contextlib.suppress(requests.RequestException):
            answer = hub.spawn(name, {"offer": OFFER})
            words = answer.text
            if answer.status_code in (201, 202) or (answer.status_code == 400 and "pending" in words):
                outcome.accepted[name] = time.monotonic()
                return
            if 400 <= answer.status_code < 500 and answer.status_code not in (404, 424):
                outcome.refused[name] = words
                return
        time.sleep(random.uniform(0.3, 1.0))
    outcome.refused[name] = "the hub never answered"


def _kill(place: Place, kills: int, pause: float, chance: random.Random, outcome: Outcome) -> None:
    while sum(outcome.kills.values()) < kills:
        time.sleep(chance.uniform(0.3, 1.7) * pause)
        what = chance.choice(FAULTS)
        outcome.faults += what != "proxy"
        if what == "proxy":
            done = _end(place.hub, b"configurable-http-proxy")
        elif what == "service":
            done = kill_service_alone(place, outcome)
        else:
            if what == "hub and service":
                _end(place.hub, b"hub_extensions.hub_service")
            done = True
            place.hub.kill()
            place.hub.start()
        if done:
            outcome.kills[what] = outcome.kills.get(what, 0) + 1


def kill_service_alone(place: Place, outcome: Outcome) -> bool:
    """Kill its process, not the parent that starts it again; when it answers is noted. False: it is dead already."""
    try:
        place.kill_service()
    except (AssertionError, ProcessLookupError):
        return False
    threading.Thread(target=_note_answer, args=(place, outcome, outcome.faults), daemon=True).start()
    return True


def _note_answer(place: Place, outcome: Outcome, fault: int) -> None:
    killed = time.monotonic()
    until = killed + patient(60)
    while time.monotonic() < until:
        with contextlib.suppress(requests.RequestException):
            requests.get(f"http://{place.host}:{place.port}/healthz", timeout=patient(60))
            if outcome.faults == fault:
                outcome.back_seconds.append(time.monotonic() - killed)
            return
        time.sleep(0.01)


def _end(hub: Hub, command: bytes) -> bool:
    """Kill every process of this hub with that in its command; False: there is none now."""
    found = False
    for pid in list(hub.processes()):
        with contextlib.suppress(OSError):
            if command in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
                found = True
    return found


def _joined(store: str, but: str = "") -> list[str]:
    """Everybody who joined, as the service wrote it down."""
    engine = create_engine(store, poolclass=NullPool)
    with engine.connect() as connection:
        asked = text(f"select \"user\" from gpu_journal where kind = 'joined' {but} order by id")
        return [user for (user,) in connection.execute(asked)]
