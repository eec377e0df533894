"""The policies around the gate, enforced: who reaches a gate and an app from a real pod, before them and with them.

kube-router translates the policies for this node's kernel (``--kube-router FILE``, CONTRIBUTING.md); what it does to
the machine's rules is taken back in the end. ``helm check`` proves the same policies without a kernel.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.control_plane import ControlPlane
from tests.cluster.daemons import Daemon
from tests.cluster.network import PATH
from tests.cluster.on_a_node.test_real_node import _create, _log, _pod, _status
from tests.cluster.real_node import RealNode
from tests.hubs import until
from tests.patience import patient

pytestmark = [pytest.mark.needs("real-node"), pytest.mark.needs("kube-router"), pytest.mark.timeout(patient(200))]

GATE = Path(__file__).parents[3] / "helm-values" / "manifests" / "gate"
HUB, APPS, PROXIES = "jhub", "apps", "envoy-gateway-system"
OURS = {"app": "jupyterhub"}
SERVERS = {"app": (APPS, {"app": "mlflow"}, 5000), "gate": (HUB, {**OURS, "component": "gate"}, 8192)}
CALLERS = {
    "proxy": (PROXIES, {"gateway.envoyproxy.io/owning-gateway-name": "apps"}),
    "hub": (HUB, {**OURS, "component": "hub"}),
    "gate-again": (HUB, {**OURS, "component": "gate"}),
    "user": (HUB, {**OURS, "component": "singleuser-server"}),
    "user-that-lies": (
        HUB,
        {**OURS, "component": "singleuser-server", "gateway.envoyproxy.io/owning-gateway-name": "apps"},
    ),
    "neighbour": (APPS, {"app": "another"}),
}
MAY = {"proxy": {"app", "gate"}, "hub": {"gate"}, "gate-again": {"app"}}
"""Whoever is not here reaches neither."""
ASK = """
import json, socket, time
places = {places}
while True:
    found = {{}}
    for name, place in places.items():
        try:
            socket.create_connection(place, 0.5).close()
            found[name] = True
        except OSError:
            found[name] = False
    print(json.dumps(found), flush=True)
    time.sleep(0.2)
"""


@pytest.fixture
def namespaces(control_plane: ControlPlane) -> Iterator[None]:
    """Those that the policies name."""
    for name in (HUB, APPS, PROXIES):
        control_plane.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    yield
    for name in (HUB, APPS, PROXIES):
        control_plane.call("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture
def kube_router(control_plane: ControlPlane, real_node: RealNode, tmp_path: Path) -> Iterator[Daemon]:
    """Enforces policies on this node, and nothing else."""
    program, before = os.environ["TEST_KUBE_ROUTER"], rules()
    environment = {**os.environ, "PATH": f"{os.environ['PATH']}:{PATH['PATH']}"}
    words = [program, "--kubeconfig", str(control_plane.kubeconfig), "--hostname-override", real_node.name]
    words += ["--run-router=false", "--run-service-proxy=false", "--run-firewall=true", "--iptables-sync-period=30s"]
    words += ["--health-port=0", "--metrics-port=0"]
    daemon = Daemon("kube-router", words, tmp_path / "kube-router.log", env=environment)
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.stop()
        take_back()
    assert rules() == before


def rules() -> list[str]:
    return _run("iptables", "-S").splitlines()


def take_back() -> None:
    """All that kube-router wrote: its chains, what leads to them, and its sets. Its own clean-up fails without IPVS."""
    chains = [line.split()[1] for line in rules() if line.startswith("-N KUBE-")]
    jumps = [
        line.replace("-A", "-D", 1) for line in rules() if re.match(r"-A (INPUT|OUTPUT|FORWARD) .*KUBE-ROUTER", line)
    ]
    lines = [
        "*filter",
        *(f":{name} - [0:0]" for name in chains),
        *jumps,
        *(f"-X {name}" for name in chains),
        "COMMIT",
        "",
    ]
    _run("iptables-restore", "--noflush", given="\n".join(lines))
    for name in _run("ipset", "list", "-n").split():
        if name.startswith("KUBE-"):
            _run("ipset", "destroy", name)


def _run(*words: str, given: str = "") -> str:
    env = {"PATH": f"{os.environ['PATH']}:{PATH['PATH']}"}
    done = subprocess.run(words, env=env, input=given, capture_output=True, text=True, timeout=patient(30), check=True)
    return done.stdout


def start(cluster: ControlPlane, name: str, namespace: str, labels: Mapping[str, str], script: str) -> None:
    pod: dict[str, Any] = _pod(name, script, None)
    pod["metadata"]["labels"] = dict(labels)
    _create(cluster, namespace, pod)


def reached(cluster: ControlPlane) -> dict[str, set[str]]:
    """What each caller reached last."""
    lines = {name: _log(cluster, namespace, name).strip().splitlines() for name, (namespace, _) in CALLERS.items()}
    return {
        name: {server for server, is_open in json.loads(said[-1]).items() if is_open} if said else set()
        for name, said in lines.items()
    }


@pytest.mark.usefixtures("namespaces")
def test_the_proxy_alone_reaches_gate_and_app(
    control_plane: ControlPlane, real_node: RealNode, request: pytest.FixtureRequest
) -> None:
    for name, (namespace, labels, port) in SERVERS.items():
        start(control_plane, name, namespace, labels, f"cd /tmp && exec python3 -m http.server {port}")
    places = {
        name: (until(lambda n=name, at=at: _status(control_plane, at, n).get("podIP"), 30, "no address"), port)
        for name, (at, _, port) in SERVERS.items()
    }
    for name, (namespace, labels) in CALLERS.items():
        start(control_plane, name, namespace, labels, f"exec python3 -c {shlex.quote(ASK.format(places=places))}")
    both, names = set(SERVERS), list(CALLERS)
    phase = {name: namespace for name, (namespace, _) in CALLERS.items()}
    until(lambda: all(_status(control_plane, phase[n], n)["phase"] == "Running" for n in names), 60, "not all run")
    until(lambda: reached(control_plane) == dict.fromkeys(names, both), 30, lambda: f"{reached(control_plane)}")

    for file in ("networkpolicy.yaml", "app-policy.yaml"):
        for policy in yaml.safe_load_all((GATE / file).read_text(encoding="utf-8")):
            control_plane.apply(yaml.safe_dump(policy), policy["metadata"]["namespace"])
    request.getfixturevalue("kube_router")

    wanted = {name: MAY.get(name, set()) for name in names}
    until(lambda: reached(control_plane) == wanted, 60, lambda: f"{reached(control_plane)}")
    for name in names:
        print(name, "reaches", ", ".join(sorted(reached(control_plane)[name])) or "neither")
