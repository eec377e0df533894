"""The gate as ``configure(c)`` wires it: the hub starts it, people come to it, and a sign-out at the hub closes it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import requests

from tests.gate.gate_browser import FETCH, PAGE
from tests.hubs import until
from tests.loop.place import THREE_SMALL, Place
from tests.patience import patient
from tests.ports import free_port

pytestmark = [pytest.mark.programs, pytest.mark.hub]

APPS_HOST = "127.0.0.3"
GATE = """
c.JupyterHub.load_groups = {{"lab": {{"users": ["ada"]}}, "staff": {{"users": []}}}}
c.SignOn.enabled = True
c.SignOnGate.enabled = True
c.SignOnGate.url = {origin!r}
c.SignOnGate.host = {host!r}
c.SignOnGate.port = {port}
c.SignOnGate.cache_seconds = 60
apps = {{"mlflow": ("MLflow", "lab"), "grafana": ("Grafana", "staff")}}
c.SignOnGate.apps = {{
    name: {{"title": title, "where": f"{origin}/{{name}}/", "upstream": "http://10.1.2.3:80", "groups": [group]}}
    for name, (title, group) in apps.items()
}}
"""


class Visitor:
    """A browser that is signed in at the hub, as the gate and its proxy see it."""

    def __init__(self, place: Place, origin: str, name: str) -> None:
        self.browser, self._origin = place.hub.login(name), origin
        self._secret = json.loads((place.state / "gate.json").read_text())["proxy_secret"]

    def check(self, **headers: str) -> requests.Response:
        asked = {"X-Gate-Proxy": self._secret, "X-Gate-Method": "GET", "X-Gate-Uri": "/mlflow/", **headers}
        address = f"{self._origin}/_gate/answer/mlflow"
        return self.browser.get(address, headers=asked, allow_redirects=False, timeout=patient(20))

    def front_page(self) -> str:
        answer = self.browser.get(f"{self._origin}/", headers=PAGE, timeout=patient(30))
        assert answer.status_code == 200, answer.text
        return answer.text


@pytest.fixture
def origin() -> str:
    return f"http://{APPS_HOST}:{free_port(APPS_HOST)}"


@pytest.fixture
def place(tmp_path: Path, origin: str) -> Iterator[Place]:
    port = urlsplit(origin).port
    gate = GATE.format(origin=origin, host=APPS_HOST, port=port)
    with Place(tmp_path / "hub", layout=THREE_SMALL, config=gate, lab=False).open() as place:

        def answers() -> bool:
            with contextlib.suppress(requests.ConnectionError):
                return requests.get(f"{origin}/_gate/health", timeout=patient(5)).ok
            return False

        until(answers, 60)
        yield place


def test_the_hub_starts_the_gate_whose_portal_shows_ones_own_and_a_sign_out_closes_it_at_once(
    place: Place, origin: str
) -> None:
    ada, ben = Visitor(place, origin, "ada"), Visitor(place, origin, "ben")
    page = ada.front_page()
    assert "MLflow" in page and "Grafana" not in page
    assert "1g.5gb" in page, "the waits, from the GPU service"
    assert "MLflow" not in ben.front_page()
    passed = ada.check(**PAGE)
    assert (passed.status_code, passed.headers["X-Auth-Request-User"]) == (200, "ada")
    assert ben.check(**FETCH).status_code == 403
    ada.browser.get(f"{place.hub.url}/hub/logout", timeout=patient(20))
    # what the hub said is believed for a minute: that it is over already was reported
    until(lambda: ada.check(**FETCH).status_code == 401)
