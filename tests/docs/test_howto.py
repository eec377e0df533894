"""The how-to for a plain pip JupyterHub, done as it is written: its code blocks are what this test runs."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.patience import patient
from tests.plain_account import ROOT, PlainAccount, plain_account, until

PAGE = ROOT / "docs" / "howto" / "plain-jupyterhub.md"
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TOKEN = "t" * 40
READY_SECONDS = 90


def blocks() -> dict[int, list[str]]:
    """Step -> its code blocks."""
    parts = re.split(r"^## (\d)\. ", PAGE.read_text(), flags=re.MULTILINE)[1:]
    return {
        int(number): [code for _, code in BLOCK.findall(text)]
        for number, text in zip(parts[::2], parts[1::2], strict=True)
    }


def plain_config(folder: Path, ports: list[int], *before: str) -> str:
    """What an admin may have had before, plus what keeps this test to itself (ports, a simulated card)."""
    public, hub, proxy, service = ports
    role = {"name": "test", "services": ["test"], "scopes": ["admin:users", "admin:servers", "access:services"]}
    return "\n".join(
        [
            "c = get_config()",
            f"c.JupyterHub.bind_url = 'http://127.0.0.1:{public}'",
            f"c.JupyterHub.hub_port = {hub}",
            f"c.ConfigurableHTTPProxy.api_url = 'http://127.0.0.1:{proxy}'",
            "c.JupyterHub.authenticator_class = 'dummy'",
            "c.Authenticator.allowed_users = {'ada', 'ben'}",
            "c.JupyterHub.cleanup_servers = False",
            "c.JupyterHub.service_check_interval = 0",  # a check while the hub stops is a traceback of the hub's own
            f"c.JupyterHub.services = [{{'name': 'test', 'api_token': {TOKEN!r}}}]",
            f"c.JupyterHub.load_roles = [{role!r}]",
            f"c.Spawner.cmd = [{sys.executable!r}, '-m', 'jupyterhub.singleuser']",
            f"c.Spawner.environment = {{'HOWTO_TEST': {str(folder)!r}}}",
            f"c.Spawner.start_timeout = c.Spawner.http_timeout = {int(patient(120))}",
            "c.JupyterHub.log_level = 'WARN'",
            "# the accounts of this test are no system accounts, and its card is simulated",
            *before,
            'c.GpuOffers.simulate = "lab-a100"',
            f"c.GpuService.port = {service}",
            "",
        ]
    )


class Hub:
    """A running hub, asked by its API."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def api(self, path: str, body: object = None, method: str | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/hub/api{path}", data, headers, method=method)
        with self.opener.open(request, timeout=patient(60)) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def answers(self, url: str) -> bool:
        try:
            with self.opener.open(url, timeout=patient(5)) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def server(self, user: str) -> dict[str, Any]:
        found: dict[str, Any] = self.api(f"/users/{user}")["servers"].get("", {})
        return found


@contextmanager
def running(account: PlainAccount, config: Path, hub: Hub, ready: Callable[[], bool]) -> Iterator[None]:
    log = account.folder / "hub.log"
    with log.open("w") as output:
        process = account.popen(sys.executable, "-m", "jupyterhub", "-f", str(config), output=output)
    try:
        until(ready, READY_SECONDS, process)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=patient(60))
        assert "Traceback" not in log.read_text(), log.read_text()


@pytest.fixture
def account() -> Iterator[PlainAccount]:
    with plain_account() as made:
        yield made
        for pid in servers(made.folder):
            subprocess.run(["kill", "-9", str(pid)], check=False)


def servers(folder: Path) -> list[int]:
    """Every live process that was started as, or by, a user's server of this test."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"HOWTO_TEST={folder}".encode() in (entry / "environ").read_bytes().split(
                b"\0"
            ):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def variable(pid: int, name: str) -> str:
    entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return next((entry.decode().split("=", 1)[1] for entry in entries if entry.startswith(name.encode() + b"=")), "")


def test_the_how_to_has_five_steps_with_something_to_type() -> None:
    assert {step for step, code in blocks().items() if code} == {1, 2, 3, 4, 5}


def test_step_1_installs_the_wheel_that_it_makes_with_extras_that_there_are() -> None:
    lines = blocks()[1][0].splitlines()
    assert lines[:2] == ["rm -f dist/*.whl", "python3 -m pip wheel --no-deps --wheel-dir dist ."]
    found = re.fullmatch(r'python3 -m pip install "\$\(ls dist/\*\.whl\)\[([a-z,]+)\]"', lines[2])
    assert found is not None
    setup = (ROOT / "setup.py").read_text()
    for extra in found[1].split(","):
        assert f'"{extra}":' in setup


@pytest.mark.whole
@pytest.mark.programs
def test_step_2_only_looks(tmp_path: Path) -> None:
    for line in blocks()[2][0].splitlines():
        words = line.split()
        assert words[0] == "jupyterhub-gpu"
        command = [sys.executable, "-m", "hub_extensions.tools.cli", *words[1:]]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=patient(60), check=False)
        assert done.returncode in {0, 1}
        assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.whole
@pytest.mark.hub
@pytest.mark.timeout(600)
def test_the_five_steps_lead_to_a_server_with_a_gpu_and_back(
    account: PlainAccount, free_ports: Callable[[int], list[int]]
) -> None:
    steps, ports = blocks(), free_ports(4)
    config = account.folder / "jupyterhub_config.py"
    hub = Hub(f"http://127.0.0.1:{ports[0]}")
    # the lines for a hub that is not root, as this one; the package need not be installed here
    ours = steps[3][2].replace("/home/me/hub-homes", str(account.folder / "homes"))
    ours = ours.replace('"gpu-demo"', "'hub_extensions.spawner.local.GpuDemoSpawner'")

    # Step 3: the block of the page at the end of what was there.
    config.write_text(plain_config(account.folder, ports, ours) + steps[3][0])
    config.chmod(0o644)

    # Step 4: check, restart, health. Without the lines for it the check says what is wrong, and gives them.
    config.write_text(plain_config(account.folder, ports) + steps[3][0])
    wrong, _ = account.popen(sys.executable, "-m", "hub_extensions.tools.cli", *steps[4][0].split()[1:]).communicate(
        timeout=patient(60)
    )
    assert "wrong" in wrong and 'c.JupyterHub.spawner_class = "gpu-demo"' in wrong, wrong
    config.write_text(plain_config(account.folder, ports, ours) + steps[3][0])
    check, health = steps[4][0].split(), steps[4][1].replace("8000", str(ports[0])).split()[-1]
    checked, _ = account.popen(sys.executable, "-m", "hub_extensions.tools.cli", *check[1:]).communicate(
        timeout=patient(60)
    )
    assert "wrong" not in checked, checked
    with running(account, config, hub, lambda: hub.answers(health)):
        hub.api("/users/ada/server", {"offer": "mig-2g.10gb"})
        until(lambda: hub.server("ada").get("ready"), READY_SECONDS)
        devices = {variable(pid, "CUDA_VISIBLE_DEVICES") for pid in servers(account.folder)}
        assert len(devices) == 1
        assert devices.pop().startswith("MIG-")

    # Step 5: idle servers stop, from the next restart on. The running server outlives it.
    config.write_text(plain_config(account.folder, ports, ours) + steps[5][0] + steps[3][0])
    with running(account, config, hub, lambda: hub.answers(health)):
        policy = json.loads((account.folder / "gpu-state" / "service.json").read_text())["culling"]
        assert (policy["enabled"], policy["idle"], policy["lifetime"]) == (True, "PT30M", "PT12H")
        assert hub.server("ada")["ready"]
        hub.api("/users/ada/server", method="DELETE")
        until(lambda: not servers(account.folder), 60)

    # Going back: the old spawner_class, and servers start as before.
    simple = [ours.splitlines()[1], "c.JupyterHub.spawner_class = 'simple'"]
    config.write_text(plain_config(account.folder, ports, *simple) + steps[3][0])
    with running(account, config, hub, lambda: hub.answers(health)):
        hub.api("/users/ben/server", {})
        until(lambda: hub.server("ben").get("ready"), READY_SECONDS)
        assert {variable(pid, "CUDA_VISIBLE_DEVICES") for pid in servers(account.folder)} == {""}
        hub.api("/users/ben/server", method="DELETE")
        until(lambda: not servers(account.folder), 60)
