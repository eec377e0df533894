"""The service apart from a real hub: asks it for its settings, serves its users, and follows what the hub says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.hub_service.test_process import PATIENT_SERVICE
from tests.hubs import ROOT, Hub, free_port, until
from tests.patience import patient

TOKEN = "token-of-the-gpu-service-" * 2
PASSWORD = "database-word"
CONFIG = """
from hub_extensions import configure
c.JupyterHub.spawner_class = "hub_extensions.spawner.local.GpuDemoSpawner"
c.JupyterHub.cleanup_servers = False
c.JupyterHub.services.append({{"name": "gpu", "api_token": {token!r}}})
c.GpuService.started_by_hub = False
c.GpuService.url = "http://127.0.0.1:{port}"
c.GpuService.port = {port}
c.GpuService.state_dir = "not-made"
c.GpuOffers.simulate = "lab-a100"
# more
configure(c)
"""


class Apart:
    """A hub, and services started by hand as its Deployment starts them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.hub = Hub(folder / "hub", CONFIG.format(token=TOKEN, port=self.port))
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, *, token: str = TOKEN, patient: bool = True, **more: str) -> subprocess.Popen[bytes]:
        """One service, whose log is ``<name>.log``."""
        kept = {key: os.environ[key] for key in ("PATH", "HOME", "LANG", "VIRTUAL_ENV") if key in os.environ}
        env = kept | {
            "PYTHONPATH": str(ROOT),
            "JUPYTERHUB_API_URL": f"http://127.0.0.1:{self.hub.hub_port}/hub/api",
            "JUPYTERHUB_API_TOKEN": token,
        }
        how = [PATIENT_SERVICE] if patient else ["-m", "hub_extensions.hub_service"]
        command = [sys.executable, *how, "--ask-hub", "--host", "127.0.0.1"]
        with (self.folder / f"{name}.log").open("wb") as log:
            self.started.append(
                subprocess.Popen(
                    [*command, "--state-dir", str(self.folder / "volume" / "state")],
                    env=env | more,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            )
        return self.started[-1]

    def text(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def said(self, name: str, words: str) -> list[str]:
        lines = [json.loads(line) for line in self.text(name).splitlines() if line.startswith("{")]
        return [str(line["message"]) for line in lines if words in str(line["message"])]

    def ready(self) -> bool:
        try:
            return requests.get(f"http://127.0.0.1:{self.port}/healthz", timeout=patient(5)).ok
        except requests.RequestException:
            return False

    def wait_ready(self, name: str) -> None:
        until(self.ready, 60, lambda: f"the service is ready; it says\n{self.text(name)}")

    def offers(self, user: str) -> dict[str, str]:
        """id -> title, through the hub's proxy with the user's own token."""
        headers = {"Authorization": f"token {self.hub.token_of(user)}"}
        answer = requests.get(f"{self.hub.url}/services/gpu/api/offers", headers=headers, timeout=patient(10))
        answer.raise_for_status()
        return {offer["id"]: offer["title"] for offer in answer.json()["offers"]}

    def change(self, setting: str) -> None:
        """Another setting in the hub's configuration, and the hub started again, as ``helm upgrade`` does it."""
        self.hub.terminate()
        text = self.hub.config.read_text()
        self.hub.config.write_text(text.replace("# more\n", f"# more\n{setting}\n"))
        self.hub.start()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Apart]:
    made = Apart(tmp_path)
    yield made
    made.hub.close()
    for process in made.started:
        process.kill()
        process.wait(patient(10))


@pytest.mark.whole
@pytest.mark.hub
def test_it_waits_for_its_hub_serves_its_users_and_keeps_their_leases_over_a_kill(place: Apart) -> None:
    first = place.start("first")
    until(lambda: place.said("first", "waiting for the hub"), 30, "it says that it waits")
    with place.hub as hub:
        place.wait_ready("first")
        waited = place.said("first", "waiting for the hub")
        assert waited[0] == "waiting for the hub: it does not answer"
        assert len(waited) == len(set(waited)), "one line a reason"
        assert not (place.folder / "hub" / "not-made").exists()

        session = hub.login("ada")
        session.headers.pop("X-XSRFToken", None)
        page = session.get(f"{hub.url}/services/gpu/", timeout=patient(20))
        assert page.url == f"{hub.url}/services/gpu/", page.text
        assert "Your GPU" in page.text and "ada" in page.text
        form = session.get(f"{hub.url}/hub/spawn", timeout=patient(20))
        assert "mig-1g.5gb" in form.text

        assert hub.spawn("ada", {"offers": ["mig-1g.5gb"]}).status_code in (201, 202)
        hub.wait_ready("ada")
        uuid = hub.environ("ada")["NVIDIA_VISIBLE_DEVICES"]
        assert uuid.startswith("MIG-")
        assert hub.environ("ada")["JUPYTERHUB_GPU_SERVICE_URL"] == f"http://127.0.0.1:{place.port}/services/gpu"

        first.kill()
        first.wait(patient(30))
        until(lambda: not place.ready(), 10, "without its supervisor it ends too")
        place.start("second")
        place.wait_ready("second")
        page = session.get(f"{hub.url}/services/gpu/", timeout=patient(20))
        assert "Your GPU" in page.text and "1g.5gb" in page.text
        assert hub.environ("ada")["NVIDIA_VISIBLE_DEVICES"] == uuid
        hub.stop_server("ada")
        until(lambda: hub.server("ada") is None, 20, "the server is gone")


@pytest.mark.whole
@pytest.mark.hub
def test_with_other_settings_at_the_hub_it_ends_and_is_started_again_with_them(place: Apart) -> None:
    first = place.start("first")
    with place.hub as hub:
        place.wait_ready("first")
        hub.add_users("ada", "ben")
        assert place.offers("ada")["mig-1g.5gb"] != "Tiny"
        hub.spawn("ada", {"offers": ["mig-1g.5gb"]})
        hub.wait_ready("ada")  # from now on the hub listens to the service, which notices its end at once

        place.change("")
        until(lambda: place.said("first", "the hub answers again"), 30, "it sees the hub again")
        assert first.poll() is None, "nothing changed, so it goes on"
        hub.spawn("ben", {"offers": ["mig-1g.5gb"]})
        hub.wait_ready("ben")

        place.change('c.GpuOffers.titles = {"mig-1g.5gb": "Tiny"}')
        until(lambda: place.said("first", "starting it again"), 60, "its supervisor starts it again")
        assert len(place.said("first", "the hub has other settings")) == 1
        assert place.said("first", "stopped") == ["stopped"]
        assert "ended with status 0" in place.said("first", "starting it again")[0]
        place.wait_ready("first")
        until(lambda: place.offers("ada")["mig-1g.5gb"] == "Tiny", 20, "the new title")


@pytest.mark.whole
@pytest.mark.hub
def test_a_hub_that_starts_the_service_itself_and_a_wrong_token_are_said(place: Apart) -> None:
    text = place.hub.config.read_text()
    place.hub.config.write_text(text.replace("started_by_hub = False", "started_by_hub = True"))
    with place.hub:
        one = place.start("one")
        until(lambda: place.said("one", "started_by_hub is not False"), 40, lambda: place.text("one"))
        assert len(place.said("one", "waiting for the hub")) == 1
        one.terminate()
        assert one.wait(patient(30)) == 0
        two = place.start("two", token="another-token-" * 3)
        until(lambda: place.said("two", "is not the token of its service 'gpu'"), 40, lambda: place.text("two"))
        two.terminate()
        assert two.wait(patient(30)) == 0


@pytest.mark.whole
@pytest.mark.hub
@pytest.mark.needs("postgresql")
def test_no_secret_is_in_what_the_hub_tells_in_a_log_or_in_the_list_of_processes(
    place: Apart, postgresql_url: str
) -> None:
    url = postgresql_url.replace("test@", f"test:{PASSWORD}@")
    given = {"JUPYTERHUB_GPU_DATABASE_URL": url, "JUPYTERHUB_GPU_METRICS_TOKEN": "metrics-token-" * 2}
    place.hub.config.write_text(
        place.hub.config.read_text().replace("# more\n", f"c.GpuService.database_url = {url!r}\n# more\n")
    )
    with place.hub as hub:
        poor = place.start("poor")
        until(lambda: place.said("poor", "set JUPYTERHUB_GPU_DATABASE_URL"), 40, lambda: place.text("poor"))
        poor.terminate()
        assert poor.wait(patient(30)) == 0
        service = place.start("first", **given)
        place.wait_ready("first")
        admin = hub.api("GET", "services/gpu", token=TOKEN)
        told = admin.json()["info"]
        assert told["needs"] == ["JUPYTERHUB_GPU_DATABASE_URL"]
        command = Path(f"/proc/{service.pid}/cmdline").read_text()
        metrics = requests.get(
            f"http://127.0.0.1:{place.port}/services/gpu/metrics",
            headers={"Authorization": f"Bearer {given['JUPYTERHUB_GPU_METRICS_TOKEN']}"},
            timeout=patient(10),
        )
        assert metrics.ok
        kept = (place.folder / "volume" / "state" / "service.json").read_text()
        service.terminate()
        assert service.wait(patient(30)) == 0
    for words in (json.dumps(told), command, place.text("first"), place.text("poor"), kept, place.hub.log()):
        assert PASSWORD not in words
        assert "metrics-token-metrics" not in words
    for words in (json.dumps(told), command, place.text("first"), place.text("poor")):
        assert TOKEN not in words
    assert not list((place.folder / "volume" / "state").glob("*.sqlite"))


def run(tmp_path: Path, *arguments: str, **environment: str) -> tuple[int, str]:
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)} | environment
    command = [sys.executable, "-m", "hub_extensions.hub_service", *arguments]
    ran = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=patient(60))
    return ran.returncode, ran.stderr


@pytest.mark.programs
@pytest.mark.parametrize(
    ("arguments", "environment", "status", "said"),
    [
        ((), {}, 2, "--config --ask-hub"),
        (("--ask-hub",), {}, 2, "--ask-hub needs --state-dir DIR"),
        (("--ask-hub", "--config", "x"), {}, 2, "not allowed with"),
        (("--ask-hub", "--state-dir", "s"), {}, 78, "JUPYTERHUB_API_URL has to be set"),
        (("--ask-hub", "--state-dir", "s"), {"JUPYTERHUB_API_URL": "http://h/"}, 78, "JUPYTERHUB_API_TOKEN has to"),
        (
            ("--ask-hub", "--state-dir", "/dev/null/x"),
            {"JUPYTERHUB_API_URL": "http://h/", "JUPYTERHUB_API_TOKEN": TOKEN},
            78,
            "--state-dir /dev/null/x cannot be made",
        ),
    ],
)
@pytest.mark.whole
def test_a_wrong_start_is_a_sentence_and_no_traceback(
    tmp_path: Path, arguments: tuple[str, ...], environment: dict[str, str], status: int, said: str
) -> None:
    ended, text = run(tmp_path, *arguments, **environment)
    assert ended == status
    assert re.sub(r"[\[\]|\s]+", " ", said) in re.sub(r"[\[\]|\s]+", " ", text)
    assert "Traceback" not in text
    assert not (tmp_path / "s").exists()


@pytest.mark.whole
@pytest.mark.programs
def test_one_that_is_told_to_stop_while_it_loads_or_waits_stops_at_once(place: Apart) -> None:
    """The first process of a container has no default for SIGTERM: it needs a handler from its first moment on."""
    early = place.start("early", patient=False)
    until(lambda: b"hub_extensions" in Path(f"/proc/{early.pid}/cmdline").read_bytes(), 30, "it runs")
    caught = until(lambda: _catches_sigterm(early.pid), 30, "it catches SIGTERM")
    assert caught
    early.terminate()
    assert early.wait(patient(30)) == 0
    late = place.start("late")
    until(lambda: place.said("late", "waiting for the hub"), 30, "it waits")
    late.terminate()
    assert late.wait(patient(30)) == 0, "in order: it was not cut off"


def _catches_sigterm(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    mask = int(next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt")), 16)
    return bool(mask >> 14 & 1)
