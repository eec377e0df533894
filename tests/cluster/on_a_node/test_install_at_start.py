"""The init container of ``helm-values/install-at-start.yaml`` on a real kubelet: an image without our package gets it.

The wheel and what it needs come from an index on the tests' own bridge, instead of the package index of a real hub. The
image is the base of the tests' own, since the chart's hub image cannot be had here.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from tests.cluster.control_plane import ControlPlane
from tests.cluster.image import BASE, base_layer, package_layer
from tests.cluster.programs.build import cache
from tests.cluster.real_node import RealNode
from tests.hubs import ROOT, until
from tests.patience import patient

pytestmark = [pytest.mark.needs("real-node"), pytest.mark.timeout(patient(600))]

ASKED = """
import hub_extensions, hub_extensions.hub_service.serve, hub_extensions.spawner.kube
from importlib.metadata import entry_points
print(hub_extensions.__file__, entry_points(group="jupyterhub.spawners")["gpu"].value)
"""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with our wheel and every wheel it needs, in the versions that the image has."""
    folder = tmp_path_factory.mktemp("house")
    (wheel,) = package_layer(cache()).tar.parent.glob("*.whl")
    (packages,) = (base_layer(cache()).tar.parent / "root/opt/venv/lib").glob("python3*/site-packages")
    there = [f"{each.name}=={each.version}\n" for each in distributions(path=[str(packages)])]
    (folder / "versions.txt").write_text("".join(there), encoding="utf-8")
    words = [sys.executable, "-m", "pip", "download", "-q", "--only-binary", ":all:", "-d", str(folder)]
    words += ["-c", str(folder / "versions.txt"), f"jupyterhub-gpu[hub,kubernetes] @ {wheel.as_uri()}"]
    env = {**os.environ, "PIP_CACHE_DIR": str(cache() / "pip-of-root")}  # pip keeps nothing in somebody else's folder
    subprocess.run([*words, "--retries", "10", "psycopg[binary]>=3.2"], check=True, timeout=patient(400), env=env)
    assert (folder / wheel.name).exists()
    return folder


@pytest.fixture
def index(house: Path, real_node: RealNode) -> Iterator[str]:
    handler = functools.partial(_Quiet, directory=str(house))
    with ThreadingHTTPServer((real_node.address, 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://{real_node.address}:{server.server_address[1]}"
        server.shutdown()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        return


def test_the_init_container_brings_our_package_into_an_image_that_lacks_it(
    control_plane: ControlPlane, real_node: RealNode, namespace: str, house: Path, index: str
) -> None:
    hub = yaml.safe_load((ROOT / "helm-values" / "install-at-start.yaml").read_text(encoding="utf-8"))["hub"]
    (wheel,) = house.glob("jupyterhub_gpu-*.whl")
    begin = hub["initContainers"][0] | {"image": BASE, "imagePullPolicy": "Never"}
    given = {"WHEEL": f"{index}/{wheel.name}", "HOME": "/tmp", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": f"{index}/"}
    given |= {"PIP_TRUSTED_HOST": real_node.address, "PIP_COMPILE": "0"}  # byte code takes most of its time
    begin["env"] = [{"name": name, "value": value} for name, value in given.items()]
    main: dict[str, Any] = {
        "name": "main",
        "image": BASE,
        "imagePullPolicy": "Never",
        "command": ["python3", "-c", ASKED],
        "env": [{"name": name, "value": value} for name, value in hub["extraEnv"].items()],
        "volumeMounts": hub["extraVolumeMounts"],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    spec = {
        "automountServiceAccountToken": False,
        "restartPolicy": "Never",
        "nodeSelector": {"nvidia.com/mig.capable": "true"},
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "initContainers": [begin],
        "containers": [main],
        "volumes": hub["extraVolumes"],
    }
    pods = f"/api/v1/namespaces/{namespace}/pods"
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "hub"}, "spec": spec}
    control_plane.call("POST", pods, pod)

    def over() -> str:
        phase = str(control_plane.call("GET", f"{pods}/hub")["status"]["phase"])
        return phase if phase in ("Succeeded", "Failed") else ""

    def told(container: str) -> str:
        with control_plane.client() as api:
            return str(client.CoreV1Api(api).read_namespaced_pod_log("hub", namespace, container=container))

    phase = until(over, 240, "the pod does not come to its end")
    assert phase == "Succeeded", told(begin["name"])[-2000:] + told("main")[-2000:]
    file, spawner = told("main").split()
    assert Path(file).is_relative_to(hub["extraVolumeMounts"][0]["mountPath"])
    assert spawner == "hub_extensions.spawner.kube:GpuKubeSpawner"
