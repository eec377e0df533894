"""The gate as a process before a real JupyterHub: sign in once, open an app, sign out of everything."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import requests

from hub_extensions.core.sign_on.apps import App
from hub_extensions.gate.gate import PLAIN_COOKIE
from hub_extensions.gate.settings import GateSettings
from tests.gate.gate_browser import FETCH, PAGE, PROXY_SECRET
from tests.hubs import Hub, until
from tests.patience import patient
from tests.ports import free_port

pytestmark = pytest.mark.hub

HOST = "127.0.0.2"
"""Another host than the hub's, as it has to be: cookies know no ports."""
CONFIG = """
c.JupyterHub.load_groups = {{"lab": {{"users": ["ada"]}}}}
c.JupyterHub.services += [
    {{"name": "gate", "api_token": "{token}", "oauth_client_id": "service-gate", "oauth_no_confirm": True,
      "oauth_redirect_uri": "{origin}/_gate/callback", "oauth_client_allowed_scopes": ["access:services"]}},
    {{"name": "mlflow"}}, {{"name": "grafana"}},
]
c.JupyterHub.load_roles += [
    # without it the hub lets nobody come to the gate; it opens no app
    {{"name": "user", "scopes": ["self", "access:services!service=gate"]}},
    {{"name": "mlflow", "groups": ["lab"], "scopes": ["access:services!service=mlflow"]}},
]
"""
TOKEN = "token-of-the-gate-token-of-the-gate"


class GateProcess:
    """`seen`: what nobody may find in its log."""

    def __init__(self, settings: GateSettings, log: Path) -> None:
        self.settings, self._log = settings, log
        self.process: subprocess.Popen[bytes] | None = None
        self.seen: set[str] = set()
        self.start()

    def start(self) -> None:
        file = self.settings.folder / "gate.json"
        self.settings.dump(file)
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "hub_extensions.gate", "--config", str(file)],
                stderr=log,
                stdout=log,
                start_new_session=True,
            )

        def answers() -> bool:
            with contextlib.suppress(requests.ConnectionError):
                return requests.get(f"{self.settings.origin}/_gate/health", timeout=patient(5)).ok
            return False

        until(answers, 30, lambda: f"the gate answers; its log ends: {self._log.read_text()[-2000:]}")

    def end(self, number: int) -> None:
        assert self.process is not None
        if number == signal.SIGKILL:  # its supervisor too
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
        else:
            self.process.send_signal(number)
        self.process.wait(patient(20))

    def check(self, browser: requests.Session, app: str = "mlflow", **headers: str) -> requests.Response:
        sent = {"X-Gate-Proxy": PROXY_SECRET, "X-Gate-Method": "GET", "X-Gate-Uri": f"/{app}/?x=1", **PAGE, **headers}
        address = f"{self.settings.origin}/_gate/answer/{app}"
        return browser.get(address, headers=sent, allow_redirects=False, timeout=patient(20))

    def open(self, browser: requests.Session, app: str = "mlflow") -> str:
        """As a browser: through the hub, and back; where it ends. There is no app here, so the gate answers 404."""
        first = self.check(browser, app)
        assert first.status_code == 302, first.text
        last = browser.get(first.headers["Location"], headers=PAGE, timeout=patient(30))
        for each in last.history:
            query = parse_qs(urlsplit(each.headers.get("Location", "")).query)
            self.seen |= {value for name in ("code", "state") for value in query.get(name, [])}
        self.seen |= {cookie.value or "" for cookie in browser.cookies if cookie.domain == HOST}
        return last.url

    def log(self) -> str:
        return self._log.read_text()


@pytest.fixture
def gate_and_hub(tmp_path: Path) -> Iterator[tuple[GateProcess, Hub]]:
    origin = f"http://{HOST}:{free_port(HOST)}"
    app = App("mlflow", "MLflow", f"{origin}/mlflow/", "http://127.0.0.1:9", groups=("lab",))
    other = App("grafana", "Grafana", f"{origin}/grafana/", "http://127.0.0.1:9", groups=("staff",))
    with Hub(tmp_path / "hub", CONFIG.format(token=TOKEN, origin=origin)) as hub:
        (tmp_path / "gate").mkdir()
        settings = GateSettings(
            url=origin,
            host=HOST,
            port=urlsplit(origin).port or 0,
            cache=timedelta(0),
            state_dir=str(tmp_path / "gate"),
            hub_api_url=f"http://127.0.0.1:{hub.hub_port}/hub/api",
            hub_url=f"{hub.url}/hub/",
            client_secret=TOKEN,
            proxy_secret=PROXY_SECRET,
            catalogue=(app, other),
        )
        gate = GateProcess(settings, tmp_path / "gate.log")
        try:
            yield gate, hub
        finally:
            gate.end(signal.SIGKILL)


def test_one_sign_in_opens_an_app_and_one_sign_out_closes_it(gate_and_hub: tuple[GateProcess, Hub]) -> None:
    gate, hub = gate_and_hub
    ada, elsewhere, ben = hub.login("ada"), hub.login("ada"), hub.login("ben")
    for browser in (ada, elsewhere):
        assert gate.open(browser) == f"{gate.settings.origin}/mlflow/?x=1"
    passed = gate.check(ada)
    assert (passed.status_code, passed.headers["X-Auth-Request-User"]) == (200, "ada")
    assert passed.headers["X-Auth-Request-Groups"] == "lab"
    # who has no right reads so, after one round at the hub
    gate.open(ben)
    assert gate.check(ben).status_code == 403
    assert gate.check(ben, **FETCH).json()["reason"] == "not-allowed"
    assert gate.check(requests.Session(), **FETCH).status_code == 401
    # a program, by a token of ada's and of ben's
    for user, status in (("ada", 200), ("ben", 403)):
        token = hub.token_of(user)
        gate.seen.add(token)
        assert gate.check(requests.Session(), Authorization=f"Bearer {token}").status_code == status
    assert gate.check(requests.Session(), Authorization=f"Bearer {TOKEN}").status_code == 401, "a service's"
    # a gate that was killed knows everybody again
    gate.end(signal.SIGKILL)
    gate.start()
    assert gate.check(ada).status_code == 200
    assert gate.check(ben).status_code == 403, "and which round was in vain"
    # a new right takes one silent round, at once after one in vain; one that was taken away, or came back, takes none
    assert hub.api("POST", "groups/lab/users", {"users": ["ben"]}).ok
    gate.open(ben)
    for method, status in (("", 200), ("DELETE", 403), ("POST", 200)):
        assert not method or hub.api(method, "groups/lab/users", {"users": ["ben"]}).ok
        assert gate.check(ben, **FETCH).status_code == status
    assert PLAIN_COOKIE in {cookie.name for cookie in ben.cookies}
    # a sign-out at the gate is the hub's
    copy = requests.Session()
    copy.cookies.update(ada.cookies)
    out = ada.post(
        f"{gate.settings.origin}/_gate/sign-out", headers={"Sec-Fetch-Site": "same-origin"}, timeout=patient(20)
    )
    assert out.history[0].headers["Location"] == f"{hub.url}/hub/logout"
    assert ada.get(f"{hub.url}/hub/home", allow_redirects=False, timeout=patient(20)).status_code == 302
    for browser in (ada, copy):
        assert gate.check(browser, **FETCH).status_code == 401
    assert gate.check(elsewhere).status_code == 200
    # a sign-out at the hub is the gate's: its token is gone
    elsewhere.get(f"{hub.url}/hub/logout", timeout=patient(20))
    assert gate.check(elsewhere).status_code == 302
    gate.end(signal.SIGTERM)
    assert len(gate.seen) > 8 and [each for each in gate.seen if each in gate.log()] == []
    assert TOKEN not in gate.log() and PROXY_SECRET not in gate.log()
