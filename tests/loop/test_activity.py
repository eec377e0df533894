"""What the hub itself takes for use of a server, through its own proxy: not the panel's connection."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
import requests
from tornado.httpclient import HTTPRequest
from tornado.ioloop import IOLoop
from tornado.websocket import websocket_connect

from tests.hubs import until
from tests.loop.place import THREE_SMALL, Place
from tests.patience import patient

pytestmark = [pytest.mark.needs("node"), pytest.mark.timeout(400), pytest.mark.whole]

EVERY = 2
SECONDS = float(os.environ.get("HUB_ACTIVITY_SECONDS", "12"))


class PanelAlone(threading.Thread):
    """A panel's connection in a thread of its own: it reads, and says nothing."""

    def __init__(self, url: str, token: str) -> None:
        super().__init__(daemon=True)
        self._request = HTTPRequest(url, headers={"Authorization": f"token {token}"}, request_timeout=patient(30))
        self.heard = 0
        self.loop: IOLoop | None = None

    def run(self) -> None:
        self.loop = IOLoop(make_current=False)
        self.loop.run_sync(self._listen)

    async def _listen(self) -> None:
        connection = await websocket_connect(self._request)
        while await connection.read_message() is not None:
            self.heard += 1


def test_the_hub_does_not_take_the_panels_connection_for_use(tmp_path: Path) -> None:
    """``HUB_ACTIVITY_SECONDS`` makes it longer; it prints what it saw (pytest -s)."""
    place = Place(tmp_path, layout=THREE_SMALL, config=f"c.JupyterHub.last_activity_interval = {EVERY}")
    with place.open():
        hub = place.hub
        hub.add_users("ada")
        hub.spawn("ada", {"offer": "mig-1g.5gb"})
        hub.wait_ready("ada", seconds=90)
        token = hub.token_of("ada")
        panel = PanelAlone(f"{hub.url.replace('http', 'ws', 1)}/user/ada/gpu/live", token)
        panel.start()
        until(lambda: panel.heard > 0, 30, "the panel is told something")

        used = server_says(hub.url, token)
        seen = settled(lambda: hub_says(place))
        began, heard = time.monotonic(), panel.heard
        while time.monotonic() - began < SECONDS:
            time.sleep(0.5)  # nothing is waited for: that nothing happens in this time is what is measured
        after = hub_says(place)
        assert panel.heard > heard + SECONDS / 2, "it is told its numbers meanwhile"
        print(f"\nhub: {seen} before, {after} after {SECONDS:g} s of the panel's connection alone")
        assert after == seen

        now = server_says(hub.url, token)
        print(f"server: {used} before, {now} after")
        assert now == used
        until(lambda: hub_says(place) != seen, 20, "the hub does notice use: that one question through its proxy")


def hub_says(place: Place) -> str:
    model = place.hub.server("ada")
    assert model is not None
    return str(model["last_activity"])


def server_says(url: str, token: str) -> str:
    answer = requests.get(
        f"{url}/user/ada/api/status?no_track_activity=1",
        headers={"Authorization": f"token {token}"},
        timeout=patient(20),
    )
    answer.raise_for_status()
    return str(answer.json()["last_activity"])


def settled(look: object) -> str:
    """What it says as soon as it has said the same for three of the hub's rounds."""
    assert callable(look)
    last, since = str(look()), time.monotonic()
    deadline = time.monotonic() + patient(60)
    while time.monotonic() - since < 3 * EVERY:
        assert time.monotonic() < deadline, "it never settles"
        time.sleep(0.2)
        if (now := str(look())) != last:
            last, since = now, time.monotonic()
    return last
