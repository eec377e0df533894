"""A played cluster for a hub on this machine: an API server's pods and events, and pods that are processes.

As much of the API as KubeSpawner uses: list, watch, create and delete. A pod is a program of this machine under the
environment and on the address of its pod (127.x.y.z). What becomes of each new pod is what the test says in `plan`;
statuses and texts are those that real ones were seen to give. It places nothing and knows no resources: for that there
is ``tests/cluster``. `answers` are given to the next creates instead of taking them.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import subprocess
import threading
import uuid
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

from tornado import web
from tornado.httpserver import HTTPServer
from tornado.iostream import StreamClosedError
from tornado.netutil import bind_sockets

from tests import warm
from tests.patience import patient
from tests.ports import free_port

T = TypeVar("T")

# No two clusters, nor the tests of two processes side by side, may share one: each pod's server listens on its own.
_PLACE = os.getpid() % (200 * 256)
_ADDRESSES = itertools.cycle(f"127.{16 + _PLACE // 256}.{_PLACE % 256}.{last}" for last in range(1, 255))
Json = dict[str, Any]
LACKING = (
    "0/1 nodes are available: 1 Insufficient nvidia.com/mig-1g.5gb. no new claims to deallocate, preemption: "
    "0/1 nodes are available: 1 No preemption victims found for incoming pod."
)
NO_MEMORY = (
    "0/2 nodes are available: 1 Insufficient memory, 1 node(s) didn't match Pod's node affinity/selector. preemption: "
    "0/2 nodes are available: 1 No preemption victims found for incoming pod, 1 Preemption is not helpful."
)
REFUSED_ALLOCATE = (
    "Pod was rejected: Allocate failed due to rpc error: code = Unknown desc = no such device, which is unexpected"
)
KUEUE_DOWN = (
    'Internal error occurred: failed calling webhook "mpod.kb.io": failed to call webhook: Post '
    '"https://127.0.0.1:9443/mutate--v1-pod?timeout=10s": dial tcp 127.0.0.1:9443: connect: connection refused'
)
OVER_QUOTA = (
    'pods "jupyter-ada" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/mig-1g.5gb=1, '
    "used: requests.nvidia.com/mig-1g.5gb=2, limited: requests.nvidia.com/mig-1g.5gb=2"
)


class PlayedCluster:
    """``with PlayedCluster(tmp_path) as cluster:``; the hub gets `env` in its environment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plan: list[str] = []
        """What becomes of the next pods: ``run`` (else), ``refuse``, ``no-place``, ``no-memory``, ``gated``,
        ``no-image``."""
        self.answers: list[tuple[int, str]] = []
        self.silent: set[str] = set()
        """Pods whose machine does not answer: only by force they are gone."""
        self.list_seconds = 0.0
        """How long the answer to a list takes."""
        self.creates = threading.Event()
        """Cleared, creates wait until it is set; they are taken also where nobody waits for the answer any more."""
        self.creates.set()
        self.made: list[Json] = []
        """Every pod that was created, as it was sent."""
        self.requests: list[str] = []
        self._objects: dict[tuple[str, str], Json] = {}
        self._log: list[tuple[int, str, str, Json]] = []
        self._version = itertools.count(100)
        self._watchers: set[asyncio.Event] = set()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: HTTPServer | None = None
        self._port = free_port()

    # ------------------------------------------------------------ life

    def __enter__(self) -> PlayedCluster:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._thread.start()
        self.open()
        self.kubeconfig.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "played",
                    "clusters": [{"name": "played", "cluster": {"server": f"http://127.0.0.1:{self._port}"}}],
                    "contexts": [{"name": "played", "context": {"cluster": "played", "user": "hub"}}],
                    "users": [{"name": "hub", "user": {}}],
                }
            )
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        for process in self._processes.values():
            process.kill()
            process.wait(patient(5))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(patient(5))

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def env(self) -> dict[str, str]:
        return {"KUBECONFIG": str(self.kubeconfig)}

    def open(self) -> None:
        """Listen (again, on the same port)."""

        async def listen() -> None:
            sockets = bind_sockets(self._port, "127.0.0.1")
            place = r"/api/v1/(?:namespaces/[^/]+/)?(pods|events|persistentvolumeclaims)"
            routes = [(place, _Many, {"cluster": self}), (place + "/([^/]+)", _One, {"cluster": self})]
            self._server = HTTPServer(web.Application(routes))
            self._server.add_sockets(sockets)

        self._run(listen())

    def close(self) -> None:
        """Stop listening and end every connection: an API server that is down. What it knows is kept."""

        async def unlisten() -> None:
            if self._server is not None:
                self._server.stop()
                await asyncio.wait_for(self._server.close_all_connections(), patient(5))
                self._server = None

        self._run(unlisten())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(15)

    # ------------------------------------------------------------ what tests do to it

    @property
    def pods(self) -> dict[str, Json]:
        return {name: pod for (kind, name), pod in list(self._objects.items()) if kind == "pods"}

    def change(self, name: str, change: Callable[[Json], None]) -> None:
        """Change a pod, and tell whoever watches."""

        async def now() -> None:
            pod = json.loads(json.dumps(self._objects["pods", name]))
            change(pod)
            self._put("pods", name, pod)

        self._run(now())

    def run_pod(self, name: str) -> None:
        """A place was found: it runs."""

        async def now() -> None:
            self._start(name)

        self._run(now())

    def remove(self, name: str) -> None:
        """Somebody deletes the pod."""

        async def now() -> None:
            self._drop(name)

        self._run(now())

    def event(self, name: str, reason: str, message: str, kind: str = "Warning") -> None:
        """An event of this pod, as the scheduler writes it: with an event time and no other."""

        async def now() -> None:
            pod = self._objects["pods", name]
            self._event(pod, reason, message, kind)

        self._run(now())

    # ------------------------------------------------------------ objects

    def create(self, sent: Json) -> Json:
        name = sent["metadata"]["name"]
        self.made.append(sent)
        pod = json.loads(json.dumps(sent))
        pod["metadata"] |= {"uid": str(uuid.uuid4()), "namespace": "hub", "creationTimestamp": _now()}
        pod["status"] = {"phase": "Pending"}
        what = self.plan.pop(0) if self.plan else "run"
        if what == "refuse":
            pod["spec"]["nodeName"] = "node-1"
            pod["status"] = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": REFUSED_ALLOCATE}
        if what == "no-place":
            pod["status"]["conditions"] = [_condition("PodScheduled", "False", "Unschedulable", LACKING)]
        if what == "no-memory":
            pod["status"]["conditions"] = [_condition("PodScheduled", "False", "Unschedulable", NO_MEMORY)]
        if what == "gated":
            pod["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
            gated = "Scheduling is blocked due to non-empty scheduling gates"
            pod["status"]["conditions"] = [_condition("PodScheduled", "False", "SchedulingGated", gated)]
        if what == "no-image":
            self._no_image(pod)
        self._put("pods", name, pod)
        if what == "run":
            self._loop.call_soon(self._start, name)
        return self._objects["pods", name]

    def _no_image(self, pod: Json) -> None:
        long_ago = _now(-70)
        pod["spec"]["nodeName"] = "node-1"
        waiting = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "no/such:1"'}
        pod["status"] |= {
            "conditions": [_condition("PodScheduled", "True", at=long_ago)],
            "containerStatuses": [
                {"name": "notebook", "ready": False, "restartCount": 0, "state": {"waiting": waiting}}
                | {"image": "no/such:1", "imageID": ""}
            ],
        }
        self._event(pod, "Failed", 'Failed to pull image "no/such:1": not found', at=long_ago)

    def _start(self, name: str) -> None:
        pod = json.loads(json.dumps(self._objects["pods", name]))
        container = next(one for one in pod["spec"]["containers"] if one["name"] == "notebook")
        address = next(_ADDRESSES)
        env = {one["name"]: one.get("value") or "" for one in container["env"]}
        url = urlsplit(env["JUPYTERHUB_SERVICE_URL"])
        port = container["ports"][0]["containerPort"]
        env["JUPYTERHUB_SERVICE_URL"] = urlunsplit(url._replace(netloc=f"{address}:{port}"))
        if name not in self._processes:
            path = {"PATH": os.environ["PATH"]}
            self._processes[name] = warm.Popen(container["args"], env=path | env, cwd=self.folder)
        pod["spec"].pop("schedulingGates", None)
        pod["spec"]["nodeName"] = "node-1"
        pod["status"] = {
            "phase": "Running",
            "podIP": address,
            "conditions": [_condition("PodScheduled", "True"), _condition("Ready", "True")],
            "containerStatuses": [
                {"name": one["name"], "ready": True, "restartCount": 0, "state": {"running": {"startedAt": _now()}}}
                for one in pod["spec"]["containers"]
            ],
        }
        self._put("pods", name, pod)

    def end_by(self, name: str, seconds: float) -> None:
        """It is being deleted, and nobody says that it has ended. A second request does not change when it should."""
        pod = json.loads(json.dumps(self._objects["pods", name]))
        pod["metadata"].setdefault("deletionTimestamp", _now(seconds))
        self._put("pods", name, pod)

    def _drop(self, name: str) -> None:
        pod = self._objects.pop(("pods", name), None)
        process = self._processes.pop(name, None)
        if process is not None:
            process.kill()
            process.wait(patient(5))
        if pod is not None:
            self._tell("DELETED", "pods", pod)

    def _event(self, pod: Json, reason: str, message: str, kind: str = "Warning", at: str = "") -> None:
        name = f"event-{next(self._version)}"
        about = {"kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"], "namespace": "hub"}
        event = {
            "metadata": {"name": name, "namespace": "hub", "uid": str(uuid.uuid4()), "creationTimestamp": at or _now()},
            "involvedObject": about,
            "reason": reason,
            "message": message,
            "type": kind,
            "eventTime": at or _now(),
            "firstTimestamp": None,
            "lastTimestamp": None,
        }
        self._put("events", name, event)

    def _put(self, kind: str, name: str, thing: Json) -> None:
        old = (kind, name) in self._objects
        thing["metadata"]["resourceVersion"] = str(next(self._version))
        self._objects[kind, name] = thing
        self._tell("MODIFIED" if old else "ADDED", kind, thing)

    def _tell(self, what: str, kind: str, thing: Json) -> None:
        self._log.append((next(self._version), what, kind, thing))
        for watcher in self._watchers:
            watcher.set()


def _condition(kind: str, status: str, reason: str = "", message: str = "", at: str = "") -> Json:
    said = {"type": kind, "status": status, "lastTransitionTime": at or _now()}
    return said | ({"reason": reason, "message": message} if reason else {})


def _now(seconds: float = 0) -> str:
    return (datetime.now(timezone.utc) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


class _Base(web.RequestHandler):
    def initialize(self, cluster: PlayedCluster) -> None:
        self.cluster = cluster

    def prepare(self) -> None:
        self.cluster.requests.append(f"{self.request.method} {self.request.uri}")

    def say(self, status: int, body: Json) -> None:
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(body))

    def refuse(self, status: int, message: str) -> None:
        self.say(
            status, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": status}
        )


class _Many(_Base):
    async def get(self, kind: str) -> None:
        if self.get_query_argument("watch", "") in ("true", "True", "1"):
            await self._watch(kind)
            return
        await asyncio.sleep(self.cluster.list_seconds)
        items = [thing for (of, _), thing in self.cluster._objects.items() if of == kind]
        version = str(next(self.cluster._version))
        self.say(200, {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": version}, "items": items})

    async def post(self, kind: str) -> None:
        sent = json.loads(self.request.body)
        while not self.cluster.creates.is_set():  # noqa: ASYNC110  another thread sets it
            await asyncio.sleep(0.02)
        if self.cluster.answers:
            self.refuse(*self.cluster.answers.pop(0))
        elif (kind, sent["metadata"]["name"]) in self.cluster._objects:
            self.refuse(409, f'{kind} "{sent["metadata"]["name"]}" already exists')
        else:
            self.say(201, self.cluster.create(sent))

    async def _watch(self, kind: str) -> None:
        since = int(self.get_query_argument("resourceVersion", "0") or 0)
        changed = asyncio.Event()
        self.cluster._watchers.add(changed)
        deadline = asyncio.get_running_loop().time() + float(self.get_query_argument("timeoutSeconds", "10"))
        with contextlib.suppress(StreamClosedError):
            try:
                while (left := deadline - asyncio.get_running_loop().time()) > 0:
                    changed.clear()
                    for number, what, of, thing in list(self.cluster._log):
                        if number > since and of == kind:
                            since = number
                            self.write(json.dumps({"type": what, "object": thing}) + "\n")
                    await self.flush()
                    with contextlib.suppress(asyncio.TimeoutError):
                        await asyncio.wait_for(changed.wait(), left)
            finally:
                self.cluster._watchers.discard(changed)


class _One(_Base):
    def get(self, kind: str, name: str) -> None:
        found = self.cluster._objects.get((kind, name))
        if found is None:
            self.refuse(404, f'{kind} "{name}" not found')
        else:
            self.say(200, found)

    def delete(self, kind: str, name: str) -> None:
        if (kind, name) not in self.cluster._objects:
            self.refuse(404, f'{kind} "{name}" not found')
            return
        grace = json.loads(self.request.body or "{}").get("gracePeriodSeconds", 30)
        grace = int(self.get_query_argument("gracePeriodSeconds", str(grace)))
        if grace and name in self.cluster.silent:
            self.cluster.end_by(name, grace)
        else:
            self.cluster._drop(name)
        self.say(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})
