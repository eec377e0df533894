"""A cluster with everything at once: every offer of the form is chosen through the hub, and its pod looked at.

Real: the hub, the service, our spawner, the API server with Pod Security ``restricted``, the scheduler with its DRA
part, our manifests' rights. Played: the nodes and their pods (kwok), whose addresses a small responder answers at.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.cluster.control_plane import ControlPlane
from tests.cluster.namespaces import fresh_namespace
from tests.cluster.place import ClusterPlace
from tests.cluster.played_nodes import PlayedNodes
from tests.cluster.responder import Responder
from tests.hubs import ROOT, until
from tests.patience import patient

pytestmark = [pytest.mark.needs("cluster"), pytest.mark.timeout(patient(300))]

PLACE = "tests/place"
HERE = {PLACE: "mixed"}
TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
A100 = "NVIDIA-A100-PCIE-40GB"  # as on the real node of other tests: the same product has the same offer


def labels(product: str, **more: str) -> dict[str, str]:
    """As GPU Feature Discovery writes them: ``gpu_memory="40960"`` is ``nvidia.com/gpu.memory``."""
    found = {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.product": product}
    found |= {f"nvidia.com/{key.replace('_', '.')}": value for key, value in more.items()}
    return HERE | found


def mig(profile: str, count: int, memory: str, sms: str) -> dict[str, str]:
    """The labels of one profile under the mixed strategy."""
    said = {"count": str(count), "memory": memory, "multiprocessors": sms, "replicas": "1", "sharing-strategy": "none"}
    return {f"nvidia.com/mig-{profile}.{key}": value for key, value in said.items()}


@dataclass(frozen=True)
class Expected:
    """What an offer's pod has to be.

    Attributes:
        resource: the one GPU resource that it has; "" for none. where: the labels that its node must have, and those
            that it must not have (no value).
    """

    node: str
    resource: str
    total: int
    where: dict[str, list[str]] = field(default_factory=dict)
    shm: bool = True
    environment: dict[str, str] = field(default_factory=dict)


PRODUCT = "nvidia.com/gpu.product"
STRATEGY = "nvidia.com/gpu.sharing-strategy"
GROW = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
EXPECTED = {
    f"mig-1g.5gb@{A100.lower().removeprefix('nvidia-')}": Expected(
        "mixed", "nvidia.com/mig-1g.5gb", 5, {PRODUCT: [A100]}
    ),
    "mig-2g.10gb": Expected("mixed", "nvidia.com/mig-2g.10gb", 1, {PRODUCT: [A100]}),
    "mig-1g.5gb@a100-sxm4-40gb": Expected(
        "single", "nvidia.com/gpu", 7, {PRODUCT: ["NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"]}
    ),
    "gpu.shared@l4": Expected("renamed", "nvidia.com/gpu.shared", 4, {PRODUCT: ["NVIDIA-L4"]}, environment=GROW),
    "gpu.shared@tesla-t4": Expected("shared", "nvidia.com/gpu", 4, {PRODUCT: ["Tesla-T4-SHARED"]}, environment=GROW),
    "gpu.shared@a10": Expected(
        "mps", "nvidia.com/gpu", 3, {PRODUCT: ["NVIDIA-A10-SHARED"]}, shm=False, environment=GROW
    ),
    "gpu@a100-sxm4-80gb": Expected("whole", "nvidia.com/gpu", 4, {PRODUCT: ["NVIDIA-A100-SXM4-80GB"]}),
    "gpu@h100-80gb-hbm3": Expected("newest", "nvidia.com/gpu", 2, {PRODUCT: ["NVIDIA-H100-80GB-HBM3"]}),
    "gpu@whole-by-claim": Expected("claimed", "", 2),
    "mig-1g.10gb@mig-by-claim": Expected("claimed", "", 2),
    "cpu": Expected("", "", 0, environment={"NVIDIA_VISIBLE_DEVICES": "void", "CUDA_VISIBLE_DEVICES": "void"}),
}

CLASSES = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.nvidia.com}
spec: {selectors: [{cel: {expression: "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"}}]}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: mig.nvidia.com}
spec: {selectors: [{cel: {expression: "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'mig'"}}]}
"""  # noqa: E501
TEMPLATES = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: whole-by-claim}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]}}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: mig-by-claim}
spec:
  spec:
    devices:
      requests:
        - name: gpu
          exactly:
            deviceClassName: mig.nvidia.com
            selectors: [{cel: {expression: "device.attributes['gpu.nvidia.com'].profile == '1g.10gb'"}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: only-the-scheduler-knows}
spec:
  spec:
    devices:
      requests:
        - name: gpu
          exactly:
            deviceClassName: gpu.nvidia.com
            selectors: [{cel: {expression: "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('10Gi')) > 0"}}]
"""


def resource_slice(node: str) -> dict[str, Any]:
    """Two whole cards and two MIG devices, as NVIDIA's driver publishes them."""

    def device(name: str, kind: str, memory: str, sms: str, **more: str) -> dict[str, Any]:
        said = {"type": kind, "productName": "NVIDIA H200", "uuid": f"GPU-{name}", **more}
        capacity = {"memory": {"value": memory}, "multiprocessors": {"value": sms}}
        return {"name": name, "attributes": {k: {"string": v} for k, v in said.items()}, "capacity": capacity}

    devices = [device(f"gpu-{number}", "gpu", "141Gi", "132") for number in range(2)]
    devices += [device(f"gpu-2-mig-{number}", "mig", "10Gi", "16", profile="1g.10gb") for number in range(2)]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-gpu.nvidia.com"},
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    }


def add_nodes(nodes: PlayedNodes) -> None:
    small, large = mig("1g.5gb", 5, "4864", "14"), mig("2g.10gb", 1, "9856", "28")
    mixed = labels(A100, mig_strategy="mixed", mig_capable="true", gpu_count="1", gpu_replicas="0")
    state = {"nvidia.com/mig.config.state": "success"}
    add = nodes.add
    add(
        "mixed",
        {"nvidia.com/gpu": 0, "nvidia.com/mig-1g.5gb": 5, "nvidia.com/mig-2g.10gb": 1},
        mixed | small | large | state,
        [TAINT],
    )
    single = labels("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", mig_strategy="single", gpu_count="7", gpu_memory="4864")
    add("single", {"nvidia.com/gpu": 7}, single | {"nvidia.com/gpu.multiprocessors": "14"} | state)
    sliced = {STRATEGY: "time-slicing", "nvidia.com/gpu.replicas": "4"}
    renamed = labels("NVIDIA-L4", gpu_count="1", gpu_memory="23034") | sliced
    add("renamed", {"nvidia.com/gpu": 0, "nvidia.com/gpu.shared": 4}, renamed)
    add("shared", {"nvidia.com/gpu": 4}, labels("Tesla-T4-SHARED", gpu_count="1", gpu_memory="15360") | sliced)
    mps = {STRATEGY: "mps", "nvidia.com/gpu.replicas": "3", "nvidia.com/mps.capable": "true"}
    add("mps", {"nvidia.com/gpu": 3}, labels("NVIDIA-A10-SHARED", gpu_count="1", gpu_memory="23028") | mps)
    plain = {STRATEGY: "none", "nvidia.com/gpu.replicas": "1"}
    add("whole", {"nvidia.com/gpu": 4}, labels("NVIDIA-A100-SXM4-80GB", gpu_count="4", gpu_memory="81920") | plain)
    add("newest", {"nvidia.com/gpu": 2}, labels("NVIDIA-H100-80GB-HBM3", gpu_count="2", gpu_memory="81559") | plain)
    add("claimed", {}, HERE)


@pytest.fixture(scope="module")
def place(
    control_plane: ControlPlane, played_nodes: PlayedNodes, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterPlace]:
    slices = "/apis/resource.k8s.io/v1/resourceslices"
    with fresh_namespace(control_plane, "mixed-cluster") as namespace, Responder() as responder:
        control_plane.apply(CLASSES)
        control_plane.apply(TEMPLATES, namespace)
        control_plane.call("POST", slices, resource_slice("claimed"))
        config = f"""
c.KubeSpawner.port = {responder.port}
c.KubeSpawner.node_selector = {HERE!r}
c.GpuQueue.max_starting = 20
"""
        folder = tmp_path_factory.mktemp("mixed")
        try:
            add_nodes(played_nodes)
            with ClusterPlace(control_plane, namespace, folder, config=config).open() as place:
                yield place
        finally:
            for node in (*dict.fromkeys(e.node for e in EXPECTED.values() if e.node),):
                played_nodes.remove(node)
            control_plane.call("DELETE", f"{slices}/claimed-gpu.nvidia.com")
            for name in ("gpu.nvidia.com", "mig.nvidia.com"):
                control_plane.call("DELETE", f"/apis/resource.k8s.io/v1/deviceclasses/{name}")


def free_counts(place: ClusterPlace) -> dict[str, int | None]:
    return {offer: said["free"] for offer, said in place.offers().items() if offer != "cpu"}


TOTALS = {offer: expected.total for offer, expected in EXPECTED.items() if offer != "cpu"}


def test_every_offer_of_a_mixed_cluster_is_admitted_placed_and_counted(place: ClusterPlace):
    until(lambda: free_counts(place) == TOTALS, 20, lambda: f"{free_counts(place)}")
    with_everyone(place)
    until(lambda: free_counts(place) == TOTALS, 30, lambda: f"{free_counts(place)}")
    assert place.pods() == {}


def with_everyone(place: ClusterPlace) -> None:
    """One user for each offer; all of them stop again, also after a failure."""
    users = {offer: f"user{number}" for number, offer in enumerate(EXPECTED)}
    place.hub.add_users(*users.values())
    try:
        for offer, user in users.items():
            assert place.hub.spawn(user, {"user_options": {"offer": offer}}).status_code in (201, 202), offer
        for offer, user in users.items():
            place.hub.wait_ready(user, seconds=60)
            look_at(place, offer, user)
        fewer = {offer: total - 1 for offer, total in TOTALS.items()}
        until(lambda: free_counts(place) == fewer, 5, lambda: f"{free_counts(place)}")
        said = report(place).stdout
        assert "mixed: 4 free of 5" in said and "claimed: 1 free of 2" in said, said
        assert "all are held by this hub's servers" in said, said
    finally:
        for user in users.values():
            place.hub.stop_server(user)


def look_at(place: ClusterPlace, offer: str, user: str) -> None:
    """One pod: where it is, and that it has exactly what its offer says."""
    expected, pod = EXPECTED[offer], place.pods()[user]
    container = next(c for c in pod["spec"]["containers"] if c["name"] == "notebook")
    node = pod["spec"]["nodeName"]
    gpus, asked = (
        {key: value for key, value in container["resources"].get(part, {}).items() if key.startswith("nvidia.com/")}
        for part in ("limits", "requests")
    )
    environment = {one["name"]: one.get("value") for one in container["env"]}
    print(f"{offer:28} {node:8} {gpus or pod['spec'].get('resourceClaims') or 'no GPU'} as {pod['metadata']['name']}")
    if expected.node:
        assert node == expected.node, (offer, node)
    assert gpus == asked == ({expected.resource: "1"} if expected.resource else {}), offer
    assert needed(pod) == expected.where, offer
    marks = pod["metadata"]["labels"]
    assert marks["jupyterhub-gpu/offer"] == offer.replace("@", "_")
    assert ("jupyterhub-gpu/lease" in marks) == (offer != "cpu")
    for name, value in expected.environment.items():
        assert environment[name] == value, (offer, name)
    if offer != "cpu":
        assert not {"NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"} & set(environment), offer
        assert environment["JUPYTERHUB_GPU_LEASE"] == marks["jupyterhub-gpu/lease"]
    mounts = [mount["mountPath"] for mount in container.get("volumeMounts", ())]
    assert ("/dev/shm" in mounts) == expected.shm, (offer, mounts)
    if "claim" in offer:
        assert claimed_device(place, pod).startswith("gpu-2-mig-" if "mig" in offer else "gpu-"), offer


def needed(pod: dict[str, Any]) -> dict[str, list[str]]:
    """The labels a pod's node must have, as its required affinity says."""
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = required.get("nodeSelectorTerms") or [{}]
    assert len(terms) == 1
    return {one["key"]: one.get("values", []) for one in terms[0].get("matchExpressions") or ()}


def claimed_device(place: ClusterPlace, pod: dict[str, Any]) -> str:
    """The one device that the scheduler gave to the pod's claim."""
    (status,) = pod["status"]["resourceClaimStatuses"]
    path = f"/apis/resource.k8s.io/v1/namespaces/{place.namespace}/resourceclaims/{status['resourceClaimName']}"
    claim = place.control_plane.call("GET", path)
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert (result["driver"], result["pool"]) == ("gpu.nvidia.com", "claimed")
    assert claim["status"]["reservedFor"][0]["name"] == pod["metadata"]["name"]
    print(f"{'':28} claim {claim['metadata']['name']} has {result['device']}")
    return str(result["device"])


def report(place: ClusterPlace, *words: str) -> subprocess.CompletedProcess[str]:
    """``jupyterhub-gpu offers --cluster`` with the hub's own rights and settings."""
    command = [sys.executable, "-m", "hub_extensions.tools.cli", "offers", "--cluster", "--state-dir", str(place.state)]
    keep = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    env = keep | {"PYTHONPATH": str(ROOT), "COLUMNS": "150", "KUBECONFIG": str(place.kubeconfig)}
    return subprocess.run([*command, *words], capture_output=True, text=True, timeout=patient(60), env=env, check=False)


def test_the_report_says_of_every_offer_from_which_nodes_it_is_and_why_something_is_left_out(
    place: ClusterPlace, played_nodes: PlayedNodes
):
    played_nodes.cordon("newest")
    played_nodes.patch("single", {"metadata": {"labels": {"nvidia.com/mig.config.state": "pending"}}})
    try:
        place.until_offered("gpu@h100-80gb-hbm3", 0)
        said = report(place)
        print(said.stdout, said.stderr)
        told = json.loads(report(place, "--json").stdout)
    finally:
        played_nodes.cordon("newest", False)
        played_nodes.patch("single", {"metadata": {"labels": {"nvidia.com/mig.config.state": "success"}}})
    assert said.returncode == 0, said.stderr
    for offer in EXPECTED:
        assert any(line.startswith(offer) for line in said.stdout.splitlines()), offer
    for words in (
        "mixed: 5 free of 5",
        "claimed: 2 free of 2",
        "newest: does not count: it is cordoned",
        "node single: its GPUs are being cut anew",
        "claim template only-the-scheduler-knows: only the scheduler can tell what this selects",
    ):
        assert words in said.stdout, words
    assert {one["id"] for one in told["offers"]} == set(EXPECTED)
    place.until_offered("gpu@h100-80gb-hbm3", 2)
