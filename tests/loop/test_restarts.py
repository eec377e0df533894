"""Pull the plug on each process, with three running and two waiting and the browsers left open.

After each: the same order, no device leased twice, and the first in line gets to JupyterLab without a click. Nobody in
these tests touches a page after the plug was pulled.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests
from playwright.sync_api import Browser

from tests.hubs import until
from tests.loop.place import THREE_SMALL, Person, Place, browsers

pytestmark = [pytest.mark.needs("browser"), pytest.mark.timeout(900)]

OFFER = "mig-1g.5gb"


@pytest.fixture(scope="module")
def browser(chromium_path: str) -> Iterator[Browser]:
    with browsers(chromium_path) as browser:
        yield browser


class Queue:
    """Three people run, two wait: and whoever loses a server stands in line again."""

    def __init__(self, place: Place, browser: Browser) -> None:
        self.place = place
        self.people = {name: Person(browser, place.hub.url, name) for name in ("ada", "ben", "cem", "dora", "eva")}
        self.running: list[str] = []
        self.in_line: list[str] = []
        for name, person in self.people.items():
            person.take(OFFER)
            if len(self.running) < 3:
                self.arrives(name)
            else:
                self.in_line.append(name)
                person.waits(("1st", "2nd")[len(self.in_line) - 1])

    def arrives(self, name: str) -> None:
        """The page leads to JupyterLab, which is left again: five of them keep two cores from all else."""
        self.people[name].is_in_lab(90)
        self.people[name].page.goto("about:blank")
        self.running.append(name)

    def still_stands(self) -> None:
        """The same order in the service and on both open pages, no device twice."""
        place = self.place
        until(lambda: _quietly(place.waiting) == self.in_line, 90, f"the line is {self.in_line} again")
        assert set(place.leases()) == set(self.running)
        for name, words in zip(self.in_line, ("1st", "2nd"), strict=True):
            self.people[name].waits(words, 90)

    def next_one_starts(self, meanwhile: Callable[[str], None] = lambda first: None) -> None:
        """A server stops: the first in line is in JupyterLab without a click, and its owner joins the line's end."""
        leaver, first = self.running.pop(0), self.in_line.pop(0)
        assert self.place.hub.stop_server(leaver).status_code in (202, 204)
        meanwhile(first)
        self.arrives(first)
        self.people[self.in_line[0]].waits("1st")
        self.people[leaver].take(OFFER)
        self.people[leaver].waits("2nd")
        self.in_line.append(leaver)
        assert set(self.place.leases()) == set(self.running)


def _quietly(look: Callable[[], object]) -> object:
    try:
        return look()
    except (
        requests.RequestException,
        AssertionError,
        KeyError,
        ValueError,
    ) as problem:  # not there yet: we wait for it
        return str(problem)


@pytest.mark.whole
def test_three_run_and_two_wait_through_every_restart(tmp_path: Path, browser: Browser) -> None:
    """T3, T4, T14, T15: kill -9 of the service, of the hub, of both; SIGTERM that leaves the servers running."""
    place = Place(tmp_path, layout=THREE_SMALL, config="c.JupyterHub.cleanup_servers = False")
    with place.open():
        queue = Queue(place, browser)

        place.kill_service()
        place.wait_service(90)
        queue.still_stands()
        queue.next_one_starts()

        place.hub.kill()
        place.hub.start()
        queue.still_stands()
        queue.next_one_starts()

        place.kill_service()
        place.hub.kill()
        place.hub.start()
        queue.still_stands()
        queue.next_one_starts()

        place.hub.terminate()
        place.hub.start()
        queue.still_stands()
        queue.next_one_starts()


@pytest.mark.whole
@pytest.mark.parametrize("how", ["terminate", "interrupt"])
def test_a_stop_that_takes_the_servers_along_keeps_the_line(tmp_path: Path, browser: Browser, how: str) -> None:
    """T4, T15, T16: SIGTERM and SIGINT with cleanup_servers on: the devices are free, the waiters are first in line."""
    place = Place(tmp_path, layout=THREE_SMALL, config="c.JupyterHub.cleanup_servers = True", lab=False, warm=False)
    with place.open():
        queue = Queue(place, browser)
        getattr(place.hub, how)()
        place.hub.start()
        for name in queue.in_line:
            queue.people[name].is_in_lab(90)
        until(lambda: set(place.leases()) == set(queue.in_line), 30, f"the leases are theirs: {place.leases()}")


@pytest.mark.whole
def test_ten_random_moments_between_admission_and_ready(tmp_path: Path, browser: Browser) -> None:
    """The hub (now and then the service too) is killed somewhere in a start: same ticket, same device, no click."""
    chance = random.Random(20260105)
    place = Place(
        tmp_path,
        layout=THREE_SMALL,
        lab=False,
        config='c.JupyterHub.cleanup_servers = False\nc.Spawner.environment["FAKE_SINGLEUSER_SLOW"] = "1.5"',
    )
    with place.open():
        queue = Queue(place, browser)

        def pull_the_plug(first: str) -> None:
            until(lambda: first in place.leases(), 20, "admitted")
            uuid = place.leases()[first]
            time.sleep(chance.uniform(0.0, 2.0))  # the random moment itself
            if chance.random() < 0.3:
                place.kill_service()
            place.hub.kill()
            place.hub.start()
            place.wait_service()
            queue.people[first].is_in_lab(90)
            until(lambda: place.hub.ready(first), 60, "ready")
            assert place.leases()[first] == uuid
            assert place.hub.environ(first)["CUDA_VISIBLE_DEVICES"] == uuid

        for _ in range(10):
            queue.next_one_starts(pull_the_plug)
