"""Nodes and pods as they are on a cluster of many people: nobody runs them.

Nodes are made through the API server. Of the pods one is: the others are written beside it into etcd, as the API server
keeps and serves it, with its defaults and managed fields, for 10,000 ways through admission take a quarter of an hour.
1,000 nodes with 8 cards each: whole A100s and H100s, A100s cut to MIG devices, T4s shared over time. Labels, images
and conditions are as many as on real ones, for their size is what is read. Not here: the two nodes of the class, which
are played (``a_class.py``).
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import ssl
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from tests.cluster.control_plane import ControlPlane
from tests.cluster.played_nodes import MERGE

GPU, SMALL, MIDDLE = "nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "nvidia.com/mig-2g.10gb"
WHOLE_OFFER = "gpu@h100-80gb-hbm3"
"""What people of other namespaces take and free in the benchmark."""
SPACES = 20
AT_ONCE = 48
NOW = "2026-01-05T08:00:00Z"
Json = dict[str, Any]
Step = Callable[[], object]


@dataclass(frozen=True)
class Kind:
    """One kind of node. `share`: of all nodes; `holders`: of all pods, those that hold something here."""

    name: str
    share: float
    product: str
    allocatable: dict[str, int]
    labels: dict[str, str]
    holders: float


KINDS = (
    Kind(
        "a100", 0.35, "NVIDIA-A100-SXM4-40GB", {GPU: 8}, {"gpu.memory": "40960", "gpu.sharing-strategy": "none"}, 0.18
    ),
    Kind("h100", 0.25, "NVIDIA-H100-80GB-HBM3", {GPU: 8}, {"gpu.memory": "81559", "gpu.sharing-strategy": "none"}, 0.1),
    Kind(
        "mig",
        0.2,
        "NVIDIA-A100-SXM4-40GB",
        {GPU: 0, SMALL: 40, MIDDLE: 8},
        {
            "gpu.memory": "40960", "gpu.replicas": "0", "gpu.sharing-strategy": "none", "mig.config.state": "success",
            "mig-1g.5gb.count": "40", "mig-1g.5gb.memory": "4864", "mig-1g.5gb.multiprocessors": "14",
            "mig-2g.10gb.count": "8", "mig-2g.10gb.memory": "9856", "mig-2g.10gb.multiprocessors": "28",
        },
        0.2,
    ),
    Kind(
        "t4", 0.2, "Tesla-T4-SHARED", {GPU: 32},
        {"gpu.memory": "15360", "gpu.replicas": "4", "gpu.sharing-strategy": "time-slicing"}, 0.12,
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Populace:
    """All nodes and pods to be made; `pods` are placed already."""

    nodes: tuple[Json, ...]
    pods: tuple[Json, ...]

    @property
    def holders(self) -> int:
        """Pods that hold a GPU, or a part of one."""
        return sum(1 for pod in self.pods if pod["spec"]["containers"][0]["resources"]["limits"].keys() - {"memory"})


def populace(nodes: int, pods: int) -> Populace:
    """So many nodes and pods; the same every time."""
    chance = random.Random(1)
    made_nodes: list[Json] = []
    made_pods: list[Json] = []
    for kind in KINDS:
        count = nodes - len(made_nodes) if kind is KINDS[-1] else round(nodes * kind.share)
        names = [f"{kind.name}-{number:04}" for number in range(count)]
        made_nodes += [node(name, kind) for name in names]
        made_pods += _holders(kind, names, round(pods * kind.holders), chance)
    plain = [one["metadata"]["name"] for one in made_nodes]
    for number in range(pods - len(made_pods)):
        made_pods.append(pod(f"web-{number:05}", chance.choice(plain), f"team-{number % SPACES}", {}))
    return Populace(tuple(made_nodes), tuple(made_pods))


def _holders(kind: Kind, names: Sequence[str], count: int, chance: random.Random) -> list[Json]:
    """Pods that hold what these nodes have, never more of it than there is."""
    left = {(name, resource): amount for name in names for resource, amount in kind.allocatable.items() if amount}
    found = []
    for number in range(count):
        place = chance.choice(list(left)) if number % 50 == 0 else next(iter(left))
        name, resource = place
        amount = min(left[place], 8 if number % 20 == 0 else 1)
        left[place] -= amount
        if left[place]:
            left[place] = left.pop(place)  # to the end: the nodes fill up evenly
        else:
            del left[place]
        found.append(pod(f"{kind.name}-job-{number:05}", name, f"team-{number % SPACES}", {resource: str(amount)}))
    return found


def node(name: str, kind: Kind) -> Json:
    """A ready node with the labels of feature discovery and with images, as large as a real one."""
    labels = {
        "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        "nvidia.com/gpu.present": "true", "nvidia.com/gpu.product": kind.product, "nvidia.com/gpu.count": "8",
        **{f"nvidia.com/{label}": value for label, value in kind.labels.items()},
        **{f"feature.node.kubernetes.io/cpu-cpuid.FEATURE{at:02}": "true" for at in range(50)},
    }  # fmt: skip
    resources = {"cpu": "256", "memory": "2048Gi", "ephemeral-storage": "3000Gi", "pods": "250"}
    resources |= {resource: str(amount) for resource, amount in kind.allocatable.items()}
    images = [
        {"names": [f"registry.example.org/images/image-{at:02}@sha256:{at:064x}"], "sizeBytes": 10**9}
        for at in range(40)
    ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {
            "allocatable": resources,
            "capacity": resources,
            "conditions": [condition(word, "False") for word in ("MemoryPressure", "DiskPressure", "PIDPressure")]
            + [condition("Ready", "True")],
            "images": images,
        },
    }


def condition(kind: str, status: str) -> Json:
    """A condition as a kubelet writes it."""
    said = {"lastHeartbeatTime": NOW, "lastTransitionTime": NOW}
    return {"type": kind, "status": status, "reason": f"Kubelet{kind}", "message": f"the kubelet says {status}", **said}


def pod(name: str, place: str, namespace: str, limits: dict[str, str]) -> Json:
    """A pod of somebody's workload, placed on a node, with as much in it as such pods have."""
    env = [{"name": f"SETTING_{at:02}", "value": f"https://service-{at}.example.org/path"} for at in range(18)]
    container = {
        "name": "main",
        "image": "registry.example.org/team/workload:2026.01",
        "args": ["run", "--config", "/etc/workload/config.yaml", "--verbose"],
        "env": env,
        "resources": {"limits": {"memory": "1Gi", **limits}, "requests": {"memory": "1Gi", **limits}},
        "volumeMounts": [{"name": f"volume-{at}", "mountPath": f"/mnt/volume-{at}"} for at in range(4)],
    }
    side = {"name": "side", "image": "registry.example.org/team/side:1", "env": env[:6], "resources": {}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"app": name.split("-")[0], "app.kubernetes.io/part-of": "workload", "team": namespace},
            "annotations": {"prometheus.io/scrape": "true", "example.org/checksum": "0" * 64},
        },
        "spec": {
            "nodeName": place,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [container, side],
            "volumes": [{"name": f"volume-{at}", "emptyDir": {}} for at in range(4)],
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        },
    }


RUNNING = {
    "status": {
        "phase": "Running",
        "startTime": NOW,
        "podIP": "10.9.8.7",
        "conditions": [
            {"type": word, "status": "True", "lastTransitionTime": NOW}
            for word in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
        ],
        "containerStatuses": [
            {
                "name": name, "image": "registry.example.org/team/workload:2026.01", "ready": True, "started": True,
                "imageID": f"registry.example.org/team/workload@sha256:{'0' * 64}", "restartCount": 0,
                "containerID": f"containerd://{'1' * 64}", "state": {"running": {"startedAt": NOW}},
            }
            for name in ("main", "side")
        ],
    }
}  # fmt: skip


def like(pattern: Json, wanted: Json) -> Json:
    """The wanted pod with everything that the API server has given to the pattern."""
    about = {**pattern["metadata"], **wanted["metadata"], "uid": str(uuid.uuid4())}
    del about["resourceVersion"]
    first, *others = pattern["spec"]["containers"]
    first = {**first, "resources": wanted["spec"]["containers"][0]["resources"]}
    spec = {**pattern["spec"], "nodeName": wanted["spec"]["nodeName"], "containers": [first, *others]}
    return {**pattern, "metadata": about, "spec": spec}


def _key(one: Json) -> str:
    return f"/registry/pods/{one['metadata']['namespace']}/{one['metadata']['name']}"


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


class Writer:
    """Writes to the API server as its admin, many requests at a time. ``async with``."""

    def __init__(self, cluster: ControlPlane) -> None:
        self._url = cluster.url
        self._context = ssl.create_default_context(cafile=str(cluster.ca))
        assert cluster.authority is not None
        keys = cluster.ca.parent
        self._context.load_cert_chain(keys / "admin.crt", keys / "admin.key")
        self._session: aiohttp.ClientSession | None = None
        flag = "--listen-client-urls="
        self._etcd = next(word.removeprefix(flag) for word in cluster.etcd.argv if word.startswith(flag))

    async def __aenter__(self) -> Writer:
        connector = aiohttp.TCPConnector(ssl=self._context, limit=AT_ONCE)
        self._session = aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=120))
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def ask(self, method: str, path: str, body: Json | None = None, kind: str = "application/json") -> Json:
        """One request."""
        assert self._session is not None
        data = None if body is None else json.dumps(body)
        async with self._session.request(method, self._url + path, data=data, headers={"Content-Type": kind}) as answer:
            text = await answer.text()
            assert answer.status < 300, f"{method} {path}: {answer.status} {text[:300]}"
            found: Json = json.loads(text)
            return found

    async def run(self, one: Json) -> None:
        """Make a placed pod, and say that it runs."""
        about = one["metadata"]
        path = f"/api/v1/namespaces/{about['namespace']}/pods"
        await self.ask("POST", path, one)
        await self.ask("PATCH", f"{path}/{about['name']}/status", RUNNING, MERGE)

    async def delete(self, one: Json) -> None:
        """It is gone at once."""
        about = one["metadata"]
        await self.ask("DELETE", f"/api/v1/namespaces/{about['namespace']}/pods/{about['name']}?gracePeriodSeconds=0")

    async def relabel(self, name: str, labels: dict[str, str]) -> None:
        """As feature discovery does after a restart."""
        await self.ask("PATCH", f"/api/v1/nodes/{name}", {"metadata": {"labels": labels}}, MERGE)

    async def make(self, wanted: Populace, step: Step) -> None:
        """All of it; `step` after each object."""
        for number in range(SPACES):
            name = f"team-{number}"
            await self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        await each((self._node(one) for one in wanted.nodes), step)
        await self._account_of("team-0")
        pattern = await self._pattern(wanted.pods[0])
        for first in range(0, len(wanted.pods), AT_ONCE):
            some = wanted.pods[first : first + AT_ONCE]
            await self._store(like(pattern, one) for one in some)
            for _ in some:
                step()

    async def _node(self, one: Json) -> None:
        """Every new node has a taint, which a controller takes away when it is ready; of 1,000 it takes its time."""
        await self.ask("POST", "/api/v1/nodes", one)
        await self.ask("PATCH", f"/api/v1/nodes/{one['metadata']['name']}", {"spec": {"taints": None}}, MERGE)

    async def _pattern(self, wanted: Json) -> Json:
        """A running pod, as the API server serves it."""
        one = {**wanted, "metadata": {**wanted["metadata"], "name": "pattern", "namespace": "team-0"}}
        await self.run(one)
        made = await self.ask("GET", "/api/v1/namespaces/team-0/pods/pattern")
        await self.delete(one)
        return made

    async def _store(self, pods: Iterable[Json]) -> None:
        """Into etcd, in one go, through its own gateway."""
        assert self._session is not None
        puts = [{"request_put": {"key": _base64(_key(one)), "value": _base64(json.dumps(one))}} for one in pods]
        async with self._session.post(f"{self._etcd}/v3/kv/txn", json={"success": puts}) as answer:
            assert answer.status == 200, await answer.text()

    async def _account_of(self, namespace: str) -> None:
        while True:
            accounts = await self.ask("GET", f"/api/v1/namespaces/{namespace}/serviceaccounts")
            if accounts["items"]:
                return
            await asyncio.sleep(0.2)


async def each(work: Iterable[Any], step: Step = lambda: None, at_once: int = AT_ONCE) -> None:
    """Do all of it, so much at a time."""
    left = iter(work)

    async def worker() -> None:
        for one in left:
            await one
            step()

    await asyncio.gather(*(worker() for _ in range(at_once)))
