"""A device from one server to the next: from its last process to the lease, to the page, to a ready server.

The clock starts when no process with the old lease's mark is left in /proc (looked at every few milliseconds from
outside), not when the service notices. The peer for a start is JupyterHub's own LocalProcessSpawner family in the same
run, with the same command. Run as a plain user: JupyterLab does not start as root.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.figures import latency_row, quantile
from hub_extensions.adapters.linux.procfs import marked
from tests.hubs import Hub, until
from tests.loop.place import Person, Place, browsers
from tests.loop.test_countdown import ONE_SMALL
from tests.machine_needs import chromium

ROUNDS = 6
LOOK_EVERY = 0.01


class Moments:
    """When things happened, on one clock."""

    def __init__(self) -> None:
        self.gone = self.lease = self.starting = self.ready = 0.0


def main() -> None:
    """Two people pass one device to and fro."""
    path = chromium()
    assert path, "no browser: install chromium"
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder) / "ours", layout=ONE_SMALL)
        capacity = Hub(
            Path(folder) / "stock",
            f"c.Spawner.cmd = [{sys.executable!r}, '-m', 'jupyterhub.singleuser']\nc.Spawner.default_url = '/lab'\n"
            "c.Spawner.http_timeout = 60",
        )
        with place.open(), browsers(path) as browser:
            people = [Person(browser, place.hub.url, name) for name in ("ada", "ben")]
            people[0].take("mig-1g.5gb")
            people[0].is_in_lab()
            rounds = []
            for number in range(ROUNDS):
                rounds.append(pass_on(place, people[number % 2], people[(number + 1) % 2]))
        with capacity:
            capacity.add_users("ada")
            plain = [plain_start(capacity) for _ in range(ROUNDS)]
    to_lease = [m.lease - m.gone for m in rounds]
    to_page = [m.starting - m.gone for m in rounds]
    to_ready = [m.ready - m.lease for m in rounds]
    print(latency_row("last process gone -> lease", to_lease))
    print(latency_row("last process gone -> page says starting", to_page))
    print(latency_row("lease -> ready", to_ready))
    print(latency_row("a plain start of the same command", plain))
    print(f"lease to ready, p50: {quantile(to_ready, 0.5) / quantile(plain, 0.5):.2f} times a plain start")


def pass_on(place: Place, holder: Person, waiter: Person) -> Moments:
    """The holder's server is stopped; the waiter's page is watched, and nobody clicks."""
    waiter.take("mig-1g.5gb")
    waiter.waits("1st")
    old = place.as_admin("api/leases")[0]["lease"]
    moments = Moments()

    def watch() -> None:
        while any(process.lease == old for process in marked()):
            time.sleep(LOOK_EVERY)
        moments.gone = time.perf_counter()
        while not any(lease["user"] == waiter.name for lease in place.as_admin("api/leases")):
            time.sleep(LOOK_EVERY)
        moments.lease = time.perf_counter()
        until(lambda: place.hub.ready(waiter.name), 90, "ready")
        moments.ready = time.perf_counter()

    watcher = threading.Thread(target=watch)
    watcher.start()
    place.hub.stop_server(holder.name)
    waiter.page.wait_for_function(
        "/starting/i.test((document.getElementById('gpu-headline') || {}).textContent || '')", timeout=60_000
    )
    moments.starting = time.perf_counter()
    watcher.join(120)
    waiter.is_in_lab()
    return moments


def plain_start(capacity: Hub) -> float:
    began = time.perf_counter()
    capacity.spawn("ada")
    until(lambda: capacity.ready("ada"), 90, "ready")
    took = time.perf_counter() - began
    capacity.stop_server("ada")
    until(lambda: capacity.server("ada") is None, 30, "stopped")
    return took


if __name__ == "__main__":
    main()
