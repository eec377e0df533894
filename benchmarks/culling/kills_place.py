"""Where ``kills.py`` kills: a hub on a real kubelet, its service and store, Prometheus, an exporter; and two people."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import requests

from tests.cluster.control_plane import ControlPlane
from tests.cluster.namespaces import fresh_namespace
from tests.cluster.on_a_node.homes import STORAGE, home_of
from tests.cluster.place import ClusterPlace
from tests.cluster.real_node import LABELS, RealNode
from tests.fakes.dcgm_text import NEW_NAMES, written
from tests.fakes.real_prometheus import ENGINE, ExporterProcess, RealPrometheus
from tests.fakes.webhook import WebhookAsTold
from tests.hubs import until
from tests.loop.place import TURNED, parent_of
from tests.patience import patient

OFFERS = ("mig-2g.10gb", "mig-3g.20gb", "mig-4g.20gb", "mig-1g.10gb")
"""One for each place that works beside others: its one device is what is waited for."""
TRAINING = "mig-1g.5gb"
SIZES = {"2g.10gb": (9984, 28), "3g.20gb": (20096, 42), "4g.20gb": (20096, 56), "1g.10gb": (9984, 14)}
IN_TURN, TRAINER = ("ada", "ben"), "cem"
START = 180.0
HOOK = """#!/bin/sh
date +%s.%N >> "$HOME/drained"
sleep 5
"""
CONFIG = """
c.GpuService.prometheus_url = {prometheus!r}
c.GpuService.database_url = {database!r}
c.GpuCulling.enabled = True
c.GpuCulling.idle_minutes = 4
c.GpuCulling.warn_minutes = 2.5
c.GpuCulling.unopened_minutes = None
c.GpuCulling.grace_minutes = 0
c.GpuCulling.lifetime_hours = None
c.GpuCulling.drain_seconds = 120
c.GpuCulling.warning_webhook_url = {webhook!r}
c.JupyterHub.public_url = facts["public"]
c.KubeSpawner.delete_grace_period = 8
c.KubeSpawner.lifecycle_hooks = {{"preStop": {{"exec": {{"command": ["sleep", "2"]}}}}}}
c.Spawner.http_timeout = {start:.0f}
c.Spawner.start_timeout = {start:.0f}
"""


def resources(offers: Iterable[str]) -> dict[str, int]:
    """What the node has: a device of each offer, and one for each training."""
    own = list(offers)
    return {f"nvidia.com/{TRAINING}": len(own), **{f"nvidia.com/{offer}": 1 for offer in own}}


def labels_of(offers: Iterable[str]) -> dict[str, str]:
    """As GPU Feature Discovery writes them."""
    found = {name: text for name, text in LABELS.items() if "replicas" not in name and "sharing" not in name}
    found = {name: text for name, text in found.items() if "2g.10gb" not in name} | {"nvidia.com/gpu.count": "3"}
    for offer in offers:
        profile = offer.removeprefix("mig-")
        memory, sms = SIZES[profile]
        facts = {
            "count": "1",
            "memory": memory,
            "multiprocessors": sms,
            "product": f"NVIDIA-A100-PCIE-40GB-MIG-{profile}",
        }
        found |= {f"nvidia.com/{offer}.{name}": str(value) for name, value in facts.items()}
    return found


@dataclass(frozen=True)
class Look:
    """How it stands: when it was looked, which stages have come, the time that is told, who has the device."""

    at: float
    stages: frozenset[str]
    stops_at: float | None
    holders: int


class Stack:
    """One hub with all its parts."""

    def __init__(
        self, cluster: ControlPlane, node: RealNode, folder: Path, store: str, database: str, offer: str
    ) -> None:
        folder.mkdir(mode=0o755)
        self.cluster, self.node, self.folder = cluster, node, folder
        self.store, self.offer = store, offer
        self.database = database.replace("postgresql://", "postgresql+psycopg://")
        self.rounds = 0
        self.holder, self.next = IN_TURN
        self.exporter = ExporterProcess(folder / "metrics")
        self.prometheus = RealPrometheus(folder / "prometheus", self.exporter)
        self.webhook = WebhookAsTold()
        self._pod = self._training = ""
        self._letters = self._hooks = self._stops = 0
        self._decided: dict[str, Any] | None = None
        self._holders = 1

    @contextmanager
    def open(self) -> Iterator[None]:
        """Everything runs, and somebody trains."""
        self.exporter.text.write_text("")
        config = f"{STORAGE}{TURNED}" + CONFIG.format(
            prometheus=self.prometheus.url, database=self.database, webhook=self.webhook.url, start=patient(START)
        )
        with fresh_namespace(self.cluster, f"kills-{os.urandom(2).hex()}") as namespace:
            volumes = [home_of(user, self.home(user), namespace) for user in (*IN_TURN, TRAINER)]
            for volume in volumes:
                self.cluster.call("POST", "/api/v1/persistentvolumes", volume)
            for user in IN_TURN:
                self._give_hook(user)
            try:
                self.exporter.start()
                self.prometheus.start()
                self.place = ClusterPlace(
                    self.cluster, namespace, self.folder / "hub", address=self.node.address, config=config
                )
                with self.place.open():
                    self.place.hub.add_users(*IN_TURN, TRAINER)
                    self.place.until_offered(self.offer, 1, 60)
                    self.place.hub.spawn(TRAINER, {"offer": TRAINING})
                    self.place.hub.wait_ready(TRAINER, seconds=START)
                    self._training = self.pods()[TRAINER]["metadata"]["uid"]
                    yield
            finally:
                self.exporter.kill()
                self.prometheus.kill()
                self.webhook.close()
                for volume in volumes:
                    self.cluster.call("DELETE", f"/api/v1/persistentvolumes/{volume['metadata']['name']}")

    def home(self, user: str) -> Path:
        """A folder of this machine that is this user's home."""
        return self.folder / f"home-of-{user}"

    def _give_hook(self, user: str) -> None:
        """A program of the user's own, which takes 5 s of the drain."""
        folder = self.home(user) / ".jupyter"
        folder.mkdir()
        hook = folder / "gpu-before-stop"
        hook.write_text(HOOK)
        hook.chmod(0o755)
        for each in (folder, hook):
            os.chown(each, 1000, 100)

    # ------------------------------------------------------------------ a round

    def begin(self) -> None:
        """Whoever has the device has a server that is ready."""
        hub = self.place.hub
        if not hub.ready(self.holder):
            hub.spawn(self.holder, {"offer": self.offer})
            hub.wait_ready(self.holder, seconds=START)
        # a hub that was started while the pod went asks the server as long as a start may take, then lets go
        until(lambda: hub.server(self.next) is None, START + 60, f"{self.next} has no server")

    def new_round(self) -> None:
        """What happened before does not count."""
        self.rounds += 1
        self._pod = self.pods()[self.holder]["metadata"]["uid"]
        self._letters, self._hooks = len(self.webhook.taken), len(self._marks())
        self._stops = self._audited()

    def line_up(self) -> None:
        """The next one waits for the same device."""
        self.place.hub.spawn(self.next, {"offer": self.offer})
        until(lambda: self.next in self.place.waiting(), 30, f"{self.next} waits")

    def look(self) -> Look:
        """Ask everybody; the exporter says what the pods do."""
        pods = self.pods()
        self._label(pods)
        with suppress(requests.RequestException):
            view: Any = self.place.as_admin("api/culling")
            mine = [each for each in view["servers"] if each["user"] == self.holder]
            self._decided = mine[0] if mine else None
            self._holders = sum(lease["offer"] == self.offer for lease in self.place.as_admin("api/leases"))
        stages, decided = set(), self._decided
        own = pods.get(self.holder)
        there = own is not None and own["metadata"]["uid"] == self._pod
        stops_at = None
        if decided is not None and decided["cause"] == "idle" and there:
            stages.add("warned" if decided["action"] in ("warn", "stop") else "idle seen")
            stops_at = datetime.fromisoformat(decided["stops_at"].replace("Z", "+00:00")).timestamp()
        letters = self.webhook.taken[self._letters :]
        if any(each["kind"] == "last-warning" and each["user"] == self.holder for each in letters):
            stages.add("second warning")
        if self.hooks():
            stages.add("draining")
        if own is not None and there and own["metadata"].get("deletionTimestamp"):
            stages.add("stop sent")
        if not there:
            stages.add("next starts")
        return Look(time.time(), frozenset(stages), stops_at, max(self._holders, self._with_device(pods)))

    def pods(self) -> dict[str, dict[str, Any]]:
        """user -> pod."""
        return self.place.pods()

    def _with_device(self, pods: dict[str, dict[str, Any]]) -> int:
        """Pods that have the one device, by their own word."""
        wants = f"nvidia.com/{self.offer}"
        found = 0
        for pod in pods.values():
            asked = [(each.get("resources") or {}).get("limits") or {} for each in pod["spec"]["containers"]]
            runs = pod["spec"].get("nodeName") and pod["status"].get("phase") in ("Pending", "Running")
            found += bool(runs and any(wants in each for each in asked))
        return found

    def _label(self, pods: dict[str, dict[str, Any]]) -> None:
        """What dcgm-exporter says of these pods; whose names are the old ones changes with each round."""
        rows = []
        for number, (user, pod) in enumerate(sorted(pods.items())):
            new = (number + self.rounds) % 2 == 1
            profile = (TRAINING if user == TRAINER else self.offer).removeprefix("mig-")
            labels = {
                "UUID": "GPU-1", "hostname" if new else "Hostname": "lab", "namespace": self.place.namespace,
                "pod": pod["metadata"]["name"], "container": "notebook", "GPU_I_ID": str(number + 7),
                "GPU_I_PROFILE": profile,
            }  # fmt: skip
            rows.append((NEW_NAMES[ENGINE] if new else ENGINE, labels, 0.6 if user == TRAINER else 0.0))
        made = self.exporter.text.with_suffix(".new")
        made.write_text(written(rows))
        made.replace(self.exporter.text)

    # ------------------------------------------------------------------ kills

    def kill(self, part: str) -> None:
        """``kill -9``."""
        how: dict[str, Callable[[], object]] = {
            "exporter": self.exporter.kill,
            "prometheus": self.prometheus.kill,
            "service": self._kill_service,
            "hub": self.place.hub.kill,
        }
        how[part]()

    def _kill_service(self) -> None:
        """The service itself: the child of its supervisor, which has the same command line."""
        settings = str(self.place.state).encode()
        found = {int(each.parent.name) for each in Path("/proc").glob("[0-9]*/cmdline") if settings in _bytes(each)}
        serving = [pid for pid in found if parent_of(pid) in found]
        assert len(serving) == 1, f"one service runs: {found}"
        os.kill(serving[0], signal.SIGKILL)

    def start_again(self, part: str) -> None:
        """The service is started by its supervisor."""
        if part == "exporter":
            self.exporter.start()
        elif part == "prometheus":
            self.prometheus.start()
        elif part == "hub":
            self.place.hub.start()

    # ------------------------------------------------------------------ what came of it

    def _marks(self) -> list[float]:
        """When the holder's hook began, each time."""
        file = self.home(self.holder) / "drained"
        return [float(line) for line in file.read_text().split()] if file.exists() else []

    def hooks(self) -> list[float]:
        """When the holder's hook began in this round."""
        return self._marks()[self._hooks :]

    def _audited(self) -> int:
        """How many stops of the holder the audit has."""
        admin = self.place.hub.login("root-admin")
        page = admin.get(f"{self.place.hub.url}/services/gpu/audit.csv?kind=culled", timeout=patient(20))
        page.raise_for_status()
        return sum(",culled," in line and f",{self.holder}," in line for line in page.text.splitlines())

    def stops_in_the_audit(self) -> int:
        """Of this round."""
        return self._audited() - self._stops

    def trains(self) -> bool:
        """The training's pod is the one that it was, its server answers, and it has its lease."""
        pod = self.pods().get(TRAINER)
        same = pod is not None and pod["metadata"]["uid"] == self._training and pod["status"]["phase"] == "Running"
        leased = [lease["user"] for lease in self.place.as_admin("api/leases") if lease["offer"] == TRAINING]
        return same and self.place.hub.ready(TRAINER) and leased == [TRAINER]

    def next_is_ready(self) -> bool:
        """The server of the next one answers on the device; what is looked at then is that one."""
        try:
            if not self.place.hub.ready(self.next) or self.holder in self.pods():
                return False
        except requests.RequestException:
            return False
        return self.place.limits(self.next) == {f"nvidia.com/{self.offer}": "1"}

    def turn(self) -> None:
        """The next one has the device now, and the other waits."""
        self.holder, self.next = self.next, self.holder

    def mend(self) -> None:
        """After a round that failed: everything runs, nobody has the device."""
        for part, process in (("exporter", self.exporter.process), ("prometheus", self.prometheus.process)):
            if process is None:
                self.start_again(part)
        if not self.place.hub.running:
            self.place.hub.start()
        for user in IN_TURN:
            self.place.hub.stop_server(user)
        for user in IN_TURN:
            until(lambda user=user: self.place.hub.server(user) is None, 120, f"{user} has stopped")  # type: ignore[misc]
        until(lambda: not set(IN_TURN) & set(self.pods()), 120, "their pods are gone")


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""
