"""The whole way, as an admin sets it up: ``configure(c)``, a hub that starts the gate, ``gate config nginx``, an app.

People sign in at the hub once; a sign-out there closes app and front page at once. Nothing here is ours but the app.
"""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import requests

from tests.fakes.apps_host import AppsHost
from tests.fakes.real_proxies import NGINX
from tests.gate.gate_browser import FETCH, PAGE
from tests.hubs import until
from tests.loop.place import THREE_SMALL, Place
from tests.machine_needs import proxy_program
from tests.patience import patient
from tests.ports import free_port

pytestmark = [pytest.mark.programs, pytest.mark.whole, pytest.mark.hub, pytest.mark.needs("nginx")]

HOST = "127.0.0.3"
"""Another host than the hub's, as it has to be: cookies know no ports."""
GATE = """
c.JupyterHub.load_groups = {{"lab": {{"users": ["ada"]}}, "staff": {{"users": []}}}}
c.SignOn.enabled = True
c.SignOnGate.enabled = True
c.SignOnGate.url = {origin!r}
c.SignOnGate.port = {gate_port}
c.SignOnGate.cache_seconds = 60
apps = {{"echo": ("Experiments", "lab"), "board": ("Boards", "staff")}}
c.SignOnGate.apps = {{
    name: {{"title": title, "where": f"{origin}/apps/{{name}}/", "upstream": {app!r}, "groups": [group]}}
    for name, (title, group) in apps.items()
}}
"""


@dataclass
class AppsLab:
    """Hub, gate, nginx and an app that answers with what reached it."""

    place: Place
    origin: str

    def get(self, browser: requests.Session, path: str, **headers: str) -> requests.Response:
        return browser.get(f"{self.origin}{path}", headers=headers, timeout=patient(30))


@contextlib.contextmanager
def nginx(folder: Path, state: Path, port: int) -> Iterator[None]:
    """With the piece that ``gate config`` writes."""
    folder.mkdir()
    command = [sys.executable, "-m", "hub_extensions.tools.cli", "gate", "config", "nginx"]
    options = ["--config", str(state / "gate.json"), "--listen", HOST, "-o", str(folder / "apps.conf")]
    subprocess.run([*command, *options], check=True, timeout=patient(30))
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder))
    program = proxy_program("nginx")
    assert program is not None
    words = [program, "-c", str(folder / "nginx.conf"), "-p", str(folder), "-e", str(folder / "error.log")]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True)

    def listens() -> bool:
        assert process.poll() is None, (folder / "error.log").read_text()
        with socket.socket() as probe:
            return probe.connect_ex((HOST, port)) == 0

    try:
        until(listens, 30)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(patient(10))


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[AppsLab]:
    port, gate_port = free_port(HOST), free_port()
    origin, app = f"http://{HOST}:{port}", AppsHost()
    app.start(())
    text = GATE.format(origin=origin, gate_port=gate_port, app=app.app)
    try:
        with (
            Place(tmp_path / "hub", layout=THREE_SMALL, config=text, lab=False).open() as place,
            nginx(tmp_path / "nginx", place.state, port),
        ):

            def answers() -> bool:
                with contextlib.suppress(requests.ConnectionError):
                    return requests.get(f"{origin}/_gate/health", timeout=patient(5)).ok
                return False

            until(answers, 60)
            yield AppsLab(place, origin)
    finally:
        app.stop()


def test_one_sign_in_opens_ones_own_apps_and_one_sign_out_closes_them_at_once(lab: AppsLab) -> None:
    ada, ben, stranger = lab.place.hub.login("ada"), lab.place.hub.login("ben"), requests.Session()
    assert lab.get(stranger, "/apps/echo/", **PAGE).url.startswith(f"{lab.place.hub.url}/hub/login")
    assert lab.get(stranger, "/apps/echo/", **FETCH, **{"X-Auth-Request-User": "ada"}).status_code == 401
    opened = lab.get(ada, "/apps/echo/runs?x=1", **PAGE, **{"X-Auth-Request-User": "root"})
    assert opened.url == f"{lab.origin}/apps/echo/runs?x=1"
    reached = opened.json()
    sent = {name.lower(): value for name, value in reached["headers"]}
    assert (reached["uri"], sent["x-auth-request-user"]) == ("/apps/echo/runs?x=1", "ada")
    assert not set(ada.cookies.get_dict(HOST).values()) & set(json.dumps(sent).split('"'))
    assert lab.get(ben, "/apps/echo/", **PAGE).status_code == 403

    front = lab.get(ada, "/", **PAGE).text
    assert "Experiments" in front and "Boards" not in front
    assert "1g.5gb" in front, "the waits, from the GPU service"
    assert "Experiments" not in lab.get(ben, "/", **PAGE).text

    ada.get(f"{lab.place.hub.url}/hub/logout", timeout=patient(20))
    # what the hub said is believed for a minute; that it is over was reported
    until(lambda: lab.get(ada, "/apps/echo/", **FETCH).status_code == 401)
