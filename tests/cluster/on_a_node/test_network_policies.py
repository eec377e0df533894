"""The policies around the gate, enforced: who reaches a gate and an app from a real pod, before them and with them.

kube-router translates the policies for this node's kernel (``--kube-router FILE``, CONTRIBUTING.md); what it does to
the machine's rules is taken back in the end. ``helm check`` proves the same policies without a kernel. The audit's own
Job, which asks the app past its proxy as a user's pod (A7), finds it open before them, and closed with them.
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

import jwt
import pytest
import yaml

from tests.cluster.control_plane import ControlPlane
from tests.cluster.daemons import Daemon
from tests.cluster.image import JUPYTERLAB
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


GATE_JSON = {
    "url": "https://apps.example.org",
    "hub_url": "https://hub.example.org/hub/",
    "hub_api_url": "http://hub.jhub:8081/hub/api",
    "client_secret": "of-the-gate",
}
"""What the audit reads of the gate's settings beside the catalogue; A7 asks none of these."""


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


def audit_as_a_user(cluster: ControlPlane, name: str) -> str:
    """How the Job of the manifest ended, and the count of its report."""
    job = yaml.safe_load((GATE / "audit-as-a-user.yaml").read_text(encoding="utf-8"))
    job["metadata"]["name"] = name
    spec = job["spec"]["template"]["spec"]
    spec["nodeSelector"] = {"nvidia.com/mig.capable": "true"}
    (container,) = spec["containers"]
    container |= {"image": JUPYTERLAB, "imagePullPolicy": "Never"}
    # the hub's image has PyJWT, and the image of these tests, a user's, has not
    container["env"] = [{"name": "PYTHONPATH", "value": "/of-the-hub"}]
    container["volumeMounts"].append({"name": "jwt", "mountPath": "/of-the-hub/jwt", "readOnly": True})
    spec["volumes"].append({"name": "jwt", "hostPath": {"path": str(Path(jwt.__file__).parent)}})
    cluster.apply(yaml.safe_dump(job), HUB)
    found = f"/api/v1/namespaces/{HUB}/pods?labelSelector=job-name%3D{name}"

    def ended() -> dict[str, Any] | None:
        pods = cluster.call("GET", found)["items"]
        return next((pod for pod in pods if pod["status"]["phase"] in ("Succeeded", "Failed")), None)

    pod = until(ended, 60, lambda: f"{cluster.call('GET', found)['items']}")
    report = _log(cluster, HUB, pod["metadata"]["name"])
    print(report)
    return f"{pod['status']['phase']}: {report.strip().splitlines()[-1]}"


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

    upstream = "http://{}:{}".format(*places["app"])
    app = {"name": "mlflow", "title": "MLflow", "where": "https://apps.example.org/mlflow/", "upstream": upstream}
    settings = {"gate.json": json.dumps({**GATE_JSON, "catalogue": [app]})}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "jupyterhub-gate"}, "stringData": settings}
    control_plane.call("POST", f"/api/v1/namespaces/{HUB}/secrets", secret)
    assert audit_as_a_user(control_plane, "audit-before") == "Failed: 1 open, 0 safe, 0 not tried"

    for file in ("networkpolicy.yaml", "app-policy.yaml"):
        for policy in yaml.safe_load_all((GATE / file).read_text(encoding="utf-8")):
            control_plane.apply(yaml.safe_dump(policy), policy["metadata"]["namespace"])
    request.getfixturevalue("kube_router")

    wanted = {name: MAY.get(name, set()) for name in names}
    until(lambda: reached(control_plane) == wanted, 60, lambda: f"{reached(control_plane)}")
    assert audit_as_a_user(control_plane, "audit-with-them") == "Succeeded: 0 open, 1 safe, 0 not tried"
    for name in names:
        print(name, "reaches", ", ".join(sorted(reached(control_plane)[name])) or "neither")
