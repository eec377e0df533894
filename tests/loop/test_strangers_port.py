"""Another account of the machine wants the service's port: it does not get it, and who has it already is told nothing.

The stranger is a real account and a real program; hub, proxy and service are real too.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import requests

from hub_extensions.core.messages import Report
from hub_extensions.server_extension.service_client import ServiceAddress, ServiceLink
from tests.hubs import ROOT
from tests.loop.place import Place, parent_of
from tests.patience import patient, until
from tests.plain_account import PlainAccount, plain_account

pytestmark = [pytest.mark.hub, pytest.mark.needs("root")]

STRANGER = """
import select, socket, sys, time
port, heard = int(sys.argv[1]), open(sys.argv[2], "ab", buffering=0)
while True:
    try:
        listening = socket.create_server(("127.0.0.1", port))
        break
    except OSError:
        time.sleep(0.002)
print("listening", flush=True)
taken = []
while True:
    for each in select.select([listening, *taken], [], [])[0]:
        if each is listening:
            taken.append(listening.accept()[0])
        elif said := each.recv(65536):
            heard.write(said)
            each.send(b"HTTP/1.1 200 OK\\r\\nContent-Type: application/json\\r\\nContent-Length: 2\\r\\n\\r\\n{}")
        else:
            taken.remove(each)
            each.close()
"""


class Stranger:
    """Tries for the port, without a pause, and writes down what it is told."""

    def __init__(self, account: PlainAccount, port: int) -> None:
        self._said = account.folder / "said"
        self._heard = account.folder / "heard"
        self._heard.touch()
        self._heard.chmod(0o666)
        with self._said.open("w") as said:
            self.process = account.popen(sys.executable, "-c", STRANGER, str(port), str(self._heard), output=said)

    @property
    def listens(self) -> bool:
        return "listening" in self._said.read_text()

    @property
    def heard(self) -> bytes:
        return self._heard.read_bytes()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def account() -> Iterator[PlainAccount]:
    with plain_account() as found:
        yield found


@pytest.fixture
def config() -> str:
    return ""


@pytest.fixture
def place(tmp_path: Path, config: str) -> Place:
    return Place(tmp_path / "hub", layout="lab-a100", lab=False, config=config)


@pytest.fixture
def stranger(account: PlainAccount, place: Place) -> Iterator[Stranger]:
    found = Stranger(account, place.port)
    yield found
    found.end()


def page(place: Place, name: str, path: str = "") -> requests.Response:
    """A browser with its cookies at the service's page, by the hub's proxy."""
    session = place.hub.login(name)
    session.headers.pop("X-XSRFToken", None)
    return session.get(f"{place.hub.url}/services/gpu/{path}", timeout=patient(20))


def test_the_port_of_a_service_that_was_killed_is_never_free(place: Place, account: PlainAccount) -> None:
    with place.open():
        stranger = Stranger(account, place.port)
        try:
            before = place.service_pid()
            place.kill_service()
            until(lambda: before not in place.hub.processes(), 20, "it is gone")
            place.wait_service(90)
            assert page(place, "ada").status_code == 200
            assert not stranger.listens
        finally:
            stranger.end()
        assert stranger.heard == b""


@pytest.mark.parametrize(
    "config",
    [
        "",
        pytest.param('c.GpuService.url = f"http://localhost:{c.GpuService.port}"', id="with a URL of this machine"),
    ],
)
def test_a_stranger_who_has_the_port_is_told_nothing_and_all_works_without_it(place: Place, stranger: Stranger) -> None:
    until(lambda: stranger.listens, 20, "the stranger listens")
    with place.hub:
        until(lambda: page(place, "root-admin").status_code == 200, 90, "the service answers by the proxy")
        text = page(place, "root-admin", "admin/parts").text
        assert f"{place.port} is held by another program" in text
        place.hub.add_users("ada")
        assert place.hub.spawn("ada", {"offers": ["mig-1g.5gb"]}).status_code in (201, 202)
        place.hub.wait_ready("ada")
        assert place.hub.environ("ada")["JUPYTERHUB_GPU_SERVICE_URL"].endswith(f":{place.port}/services/gpu")
        assert "held by another account (uid 65534)" in place.hub.log()
        doctor = subprocess.run(
            [sys.executable, "-m", "hub_extensions.tools.cli", "doctor", "--config", str(place.hub.config)],
            capture_output=True, text=True, cwd=place.hub.folder, check=False, timeout=patient(60),
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert "is held by nobody (uid 65534), and the hub's is root (uid 0)" in " ".join(doctor.stdout.split())
        assert stranger.heard == b""
        stranger.process.send_signal(signal.SIGKILL)
        place.wait_service(30)
        until(lambda: "listening at port" in place.hub.log(), 30, "the service has its port")
        assert place.service("health").json()["port"] == "the service's own"
        lines = [line for line in place.hub.log().splitlines() if f"{place.port} of 127.0.0.1" in line]
        assert len([line for line in lines if "it is taken as soon as it is free" in line]) == 1


@pytest.mark.parametrize("config", ['c.GpuService.url = f"http://192.0.2.1:{c.GpuService.port}"'])
def test_the_proxy_leads_nobody_to_a_stranger_where_nothing_can_stand_in(place: Place, stranger: Stranger) -> None:
    """The service is reached at another machine, which leads on to the port that the stranger has."""
    until(lambda: stranger.listens, 20, "the stranger listens")
    with place.hub:
        assert page(place, "ada").status_code == 404
        noted = [line for line in place.hub.log().splitlines() if "held by another account (uid 65534)" in line]
        (note,) = [line for line in noted if line.startswith("jupyterhub-gpu: port")]
        assert "leads nobody to the service's pages until that port is free and the hub is started again" in note
        place.hub.add_users("ben")
        assert place.hub.spawn("ben", {"offers": ["cpu"]}).status_code in (201, 202)
        place.hub.wait_ready("ben")
        assert place.hub.environ("ben")["JUPYTERHUB_GPU_SERVICE_URL"].startswith(f"http://127.0.0.1:{place.port}/")
    assert stranger.heard == b""


def test_the_service_says_nothing_to_a_stranger_on_the_hubs_own_port(place: Place, account: PlainAccount) -> None:
    """The hub is dead, and the service lives on: its parent, which would end it, does not get to it."""
    with place.open():
        service = place.service_pid()
        supervisor = parent_of(service)
        os.kill(supervisor, signal.SIGSTOP)
        stranger = Stranger(account, place.hub.hub_port)
        try:
            place.hub.kill()
            until(lambda: stranger.listens, 20, "the stranger listens")
            until(lambda: "does not answer" in place.service("health").json()["hub"], 90, "the service has asked")
            # whose token it is, and whose login, the service asks the hub; of a login by its own token
            address = f"http://{place.host}:{place.port}/services/gpu/"
            bearer = {"Authorization": "Bearer adas-own-token"}
            assert requests.get(f"{address}api/offers", headers=bearer, timeout=patient(20)).status_code == 503
            to_login = requests.get(address, timeout=patient(20), allow_redirects=False)
            (state,) = parse_qs(urlsplit(to_login.headers["Location"]).query)["state"]
            back = {"code": "made-up", "state": state}
            called = requests.get(
                f"{address}oauth_callback", params=back, cookies=to_login.cookies, timeout=patient(20)
            )  # a connection of its own: a kept one may be closed just then
            assert called.status_code == 503
            assert state not in place.hub.log(), "hub and service write one"
            assert f"port {place.hub.hub_port} is held by another account (uid 65534)" in place.hub.log()
        finally:
            os.kill(supervisor, signal.SIGCONT)
            stranger.end()
        assert stranger.heard == b""


async def test_a_users_server_says_nothing_to_a_stranger(place: Place, stranger: Stranger) -> None:
    until(lambda: stranger.listens, 20, "the stranger listens")

    async def report(_: float) -> Report:
        return Report(opened=True, kernels=0, busy_kernels=0)

    for account, heard in ((0, False), (None, True)):
        asked = asyncio.Event()
        address = ServiceAddress(f"http://127.0.0.1:{place.port}/x", "the-servers-token", account)
        link = ServiceLink(address, report, on_answer=asked.set)
        link.start()
        await asked.wait()
        link.stop()
        # with no account to look for it is told, which shows that this test would notice
        assert (b"the-servers-token" in stranger.heard) is heard
