"""The values of the gate on the tests' cluster: its front page has line and waits, also when the hub's pod is another.

Real: hub, service, the proxy that goes on while the hub restarts, API server, scheduler, and the gate as a process with
the gate.json that the values make. The new pod's address is, on this machine, another port of the service.
"""

from __future__ import annotations

import re
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import requests

from hub_extensions.gate.settings import GateSettings
from tests.cluster.played_nodes import PlayedNodes
from tests.gate.gate_browser import PAGE, PROXY_SECRET
from tests.gate.test_real_hub import HOST, GateProcess
from tests.helm_values.conftest import Released
from tests.helm_values.rendering import OVERLAYS, Values, read
from tests.helm_values.test_rendered import FOUND, choose
from tests.hubs import until
from tests.patience import patient
from tests.ports import free_port

pytestmark = [pytest.mark.needs("cluster"), pytest.mark.timeout(300), pytest.mark.hub("5.5")]

SMALL = "mig-1g.5gb"
ONE = {"nvidia.com/gpu": 0, f"nvidia.com/{SMALL}": 1}


def front_page(gate: GateProcess, browser: requests.Session) -> dict[str, str]:
    """What stands in each part of it."""
    page = browser.get(f"{gate.settings.origin}/", headers=PAGE, timeout=patient(20)).text
    parts = re.findall(r'<section id="(\w+)".*?>(.*?)</section>', page, re.DOTALL)
    return {name: " ".join(re.sub(r"<[^>]*>", " ", text).split()) for name, text in parts}


def test_the_front_page_has_line_and_waits_also_from_the_hubs_next_pod(
    released: Released, played_nodes: PlayedNodes, tmp_path: Path
) -> None:
    with played_nodes.node("gate", ONE, labels=FOUND["lab-a100-40gb"].labels):
        release = released("gate")
        hub, port = release.hub, free_port(HOST)
        hub.env |= {"PROXY_PUBLIC_SERVICE_HOST": "127.0.0.1", "PROXY_PUBLIC_SERVICE_PORT": str(hub.port)}
        gate_url = f"http://{HOST}:{port}"
        here: Values = {
            "hub": {
                "config": {
                    "JupyterHub": {"public_url": f"{hub.url}/", "load_groups": {"mlflow": {"users": ["cem"]}}},
                    "SignOnGate": {
                        "url": gate_url,
                        "connect_url": gate_url,
                        "host": HOST,
                        "port": port,
                        "cache_seconds": 0,
                        "apps": {"mlflow": {"where": f"{gate_url}/mlflow/"}},
                    },
                }
            }
        }
        values = [*read(*(OVERLAYS / name for name in ("gpu.yaml", "mig.yaml", "gate.yaml"))), here]
        release.install(*values)
        made = GateSettings.load(release.state / "gate.json")
        assert made.gpu_service_url == f"{hub.url}/services/gpu"
        (tmp_path / "gate").mkdir()
        gate = GateProcess(replace(made, state_dir=str(tmp_path / "gate"), proxy_secret=PROXY_SECRET), tmp_path / "log")
        try:
            hub.add_users("ada", "cem")
            release.until_offered(SMALL, 1)
            choose(release, hub.login("ada"), "ada", SMALL)
            hub.wait_ready("ada", seconds=60)
            cem = hub.login("cem")
            choose(release, cem, "cem", SMALL)
            gate.open(cem)

            def shown() -> bool:
                page = front_page(gate, cem)
                return "1st in line" in page.get("places", "") and "full" in page.get("waits", "")

            until(shown, 30, lambda: f"{front_page(gate, cem)}")
            release.port = free_port()
            release.upgrade(*values)
            until(shown, 30, lambda: f"{front_page(gate, cem)}")
            print(front_page(gate, cem))
        finally:
            gate.end(signal.SIGKILL)
