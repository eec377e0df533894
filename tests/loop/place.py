"""A real hub with the real service, spawner and panel, as ``configure(c)`` wires them; and people with browsers."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import requests
from playwright.sync_api import Browser, Page, TimeoutError, expect, sync_playwright

from tests.fakes.leaping_service import LATER
from tests.fakes.signed import Signs
from tests.hubs import ROOT, SINGLEUSER, Hub, free_port, until
from tests.machine_needs import CHROMIUM_FLAGS
from tests.patience import patient

PATIENCE = 60.0
"""Seconds on a quiet machine."""
SERVICES = (
    "hub_extensions.hub_service", "tests.fakes.turned_service", "tests.fakes.leaping_service",
    "tests.fakes.dying_service",
)  # fmt: skip
TURNED = f"""
from hub_extensions import configuration
configuration.COMMAND = ["-m", {SERVICES[1]!r}]
"""
"""In the `config` of a place: its service's running clock is turned (``tests/fakes/turned_service.py``)."""
LEAPING = TURNED.replace(*SERVICES[1:3])
"""It can be set an hour on, once (``tests/fakes/leaping_service.py``)."""
DYING = TURNED.replace(SERVICES[1], SERVICES[3])
"""It can be killed at a step (``tests/fakes/dying_service.py``)."""
THREE_SMALL = """
title: "One A100-40GB with three small parts, for tests"
gpus:
  - product: NVIDIA A100-PCIE-40GB
    memory_gib: 40
    sm: 108
    mig:
      - {profile: 19, start: 0}
      - {profile: 19, start: 1}
      - {profile: 19, start: 2}
"""


class Place:
    """A hub whose GPU service is the real one. `lab`: servers are real JupyterLabs; else they are up in a blink."""

    def __init__(self, folder: Path, *, layout: str, config: str = "", lab: bool = True, warm: bool = True) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        if "\n" in layout:
            (folder / "layout.yaml").write_text(layout)
            layout = str(folder / "layout.yaml")
        self.state = folder / "state"
        self.port = free_port()
        command = [os.sys.executable, "-m", "jupyterhub.singleuser"] if lab else SINGLEUSER  # type: ignore[attr-defined]
        self.hub = Hub(
            folder,
            f"""
from hub_extensions import configure
c.JupyterHub.spawner_class = "hub_extensions.spawner.local.GpuDemoSpawner"
c.Spawner.cmd = {command!r}
c.Spawner.default_url = "/lab"
c.Spawner.http_timeout = {int(patient(60))}
c.Spawner.environment = {{
    "JUPYTER_PREFER_ENV_PATH": "1",
    "JUPYTER_PATH": {os.environ.get("JUPYTER_PATH", "")!r},
    "PYTHONPATH": {str(ROOT)!r},
    "JUPYTER_CONFIG_DIR": lambda spawner: spawner.home_dir + "/.jupyter",
    "JUPYTER_DATA_DIR": lambda spawner: spawner.home_dir + "/.local/share/jupyter",
    "JUPYTER_RUNTIME_DIR": lambda spawner: spawner.home_dir + "/.local/share/jupyter/runtime",
    "IPYTHONDIR": lambda spawner: spawner.home_dir + "/.ipython",
}}
c.GpuOffers.simulate = {layout!r}
c.GpuService.state_dir = {str(self.state)!r}
c.GpuService.port = {self.port}
{config}
configure(c)
""",
            warm=warm,
        )

    @property
    def host(self) -> str:
        """Where the service listens."""
        return "127.0.0.1"

    @contextmanager
    def open(self) -> Iterator[Place]:
        with self.hub:
            self.wait_service()
            yield self

    def secret(self) -> str:
        return str(json.loads((self.state / "secrets.json").read_text())["hub_secret"])

    def service(self, path: str) -> requests.Response:
        """Ask the service as the hub does."""
        url = f"http://{self.host}:{self.port}/services/gpu/{path}"
        return requests.get(url, auth=Signs(self.secret()), timeout=patient(5))

    def wait_service(self, seconds: float = 60.0) -> None:
        def up() -> bool:
            try:
                return bool(self.service("health").json().get("ready"))
            except (requests.RequestException, ValueError):
                return False

        until(up, seconds, f"the service is ready; the hub's log ends:\n{self.hub.log()[-3000:]}")

    def service_pid(self) -> int:
        """The service itself: the child of its supervisor, which has the same command line."""
        found = [pid for pid in self.hub.processes() if any(name.encode() in _command(pid) for name in SERVICES)]
        serving = [pid for pid in found if parent_of(pid) in found]
        assert len(serving) == 1, found
        return serving[0]

    def kill_service(self) -> None:
        os.kill(self.service_pid(), signal.SIGKILL)

    def leap(self) -> None:
        """An hour passes at once for a service that is `LEAPING`."""
        (self.state / LATER).touch()

    def line(self) -> list[tuple[str, int]]:
        """(user, position) of all live tickets, in order, as admins see them."""
        listed = self.as_admin("api/tickets")
        return [(ticket["user"], ticket["position"]) for ticket in listed]

    def waiting(self) -> list[str]:
        return [user for user, position in self.line() if position]

    def leases(self) -> dict[str, str]:
        """user -> UUID of every lease; fails when a device is leased twice."""
        listed = self.as_admin("api/leases")
        uuids = [lease["uuid"] for lease in listed]
        assert len(uuids) == len(set(uuids)), f"a device is leased twice: {listed}"
        return {lease["user"]: lease["uuid"] for lease in listed}

    def as_admin(self, path: str) -> list[dict[str, str]]:
        """Through the proxy with an admin's token, as an admin's script would."""
        if not hasattr(self, "_admin_token"):
            self.hub.add_users("root-admin")
            self.hub.api("PATCH", "users/root-admin", {"admin": True})
            made = self.hub.api("POST", "users/root-admin/tokens", {"note": "tests"})
            self._admin_token = made.json()["token"]
        answer = requests.get(
            f"http://{self.host}:{self.port}/services/gpu/{path}",
            headers={"Authorization": f"token {self._admin_token}"},
            timeout=patient(10),
        )
        answer.raise_for_status()
        found: list[dict[str, str]] = answer.json()
        return found


def parent_of(pid: int) -> int:
    """Its parent's process id; 0: it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@contextmanager
def browsers(chromium_path: str) -> Iterator[Browser]:
    expect.set_options(timeout=patient(PATIENCE) * 1000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path, args=CHROMIUM_FLAGS)
        yield browser
        browser.close()


class Person:
    """Somebody with a browser of their own, who is logged in."""

    def __init__(self, browser: Browser, url: str, name: str, password: str = "any", scheme: str = "light") -> None:
        self.name = name
        self.url = url
        self.context = browser.new_context(
            viewport={"width": 1100, "height": 820},
            color_scheme=scheme,  # type: ignore[arg-type]
            locale="en-GB",
        )
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(patient(PATIENCE) * 1000)
        self.page.goto(f"{url}/hub/login")
        self.page.fill("#username_input", name)
        self.page.fill("#password_input", password)
        self.page.click("#login_submit")
        self.page.wait_for_url(re.compile(r".*/(hub/(spawn|home)|user/).*"))

    def form(self, server: str = "") -> None:
        self.page.goto(f"{self.url}/hub/spawn/{self.name}{'/' + server if server else ''}")
        expect(self.page.locator("#spawn_form")).to_be_visible()

    def choose(self, offer: str) -> None:
        self.page.check(f'input[type=radio][value="{offer}"]')
        self.page.click("#spawn_form button[type=submit]")

    def take(self, offer: str, server: str = "") -> None:
        self.form(server)
        self.choose(offer)

    def is_in_lab(self, seconds: float = PATIENCE) -> None:
        """Fails with what the page says instead."""
        try:
            self.page.wait_for_url(f"**/user/{self.name}/**", timeout=patient(seconds) * 1000, wait_until="commit")
        except TimeoutError as error:
            raise AssertionError(f"{self.page.url} says: {self.page.inner_text('body')}") from error

    def waits(self, place: str, seconds: float = PATIENCE) -> None:
        """The waiting page says this place ("1st")."""
        words = f"You are {place} in line"
        expect(self.page.locator("#gpu-headline")).to_contain_text(words, timeout=patient(seconds) * 1000)

    def stop_at_home(self) -> None:
        """On the hub's home page. Its buttons are deaf until its script, which comes after the page, says so."""
        self.page.goto(f"{self.url}/hub/home")
        self.page.wait_for_function("window._jupyterhub_page_loaded")
        self.page.click("#stop")

    def leave(self) -> None:
        self.context.close()
