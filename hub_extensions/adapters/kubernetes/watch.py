"""The service's view of the cluster: nodes, pods, volumes and DRA objects, each listed once and then watched.

Nothing is polled, and a view is returned without a request to the API server.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from types import MappingProxyType
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from hub_extensions.adapters.kubernetes.api import ClusterError, KubernetesApi
from hub_extensions.adapters.kubernetes.parse import (
    Json,
    SliceFacts,
    bound_volume,
    claim_of,
    counters_of,
    newest,
    node_of,
    pod_of,
    slice_of,
    template_of,
    volume_kept,
)
from hub_extensions.adapters.kubernetes.reflector import ObjectKind, Pace, Reflector
from hub_extensions.adapters.linux.timeouts import with_timeout
from hub_extensions.core.cluster.model import (
    ClaimFacts,
    ClusterConfig,
    ClusterView,
    CounterFacts,
    NodeFacts,
    SliceDevice,
    TemplateFacts,
    Volumes,
)

T = TypeVar("T")
U = TypeVar("U")

_log = logging.getLogger("hub_extensions.hub_service")


@dataclass(frozen=True, slots=True)
class AccessRight:
    """A permission that the service's account needs, as in a rule of a Kubernetes role.

    Attributes:
        group: API group; "" is the core group.
        resource: the kind of objects, such as ``pods``.
        verbs: what the account may do, such as ``list`` and ``watch``.
        own: the permission is needed only in the namespace of our servers' pods.
    """

    group: str
    resource: str
    verbs: frozenset[str]
    own: bool = False


RIGHTS = (
    AccessRight("", "nodes", frozenset({"get", "list", "watch"})),
    AccessRight("", "pods", frozenset({"get", "list", "watch"})),
    AccessRight("resource.k8s.io", "resourceslices", frozenset({"list", "watch"})),
    AccessRight("resource.k8s.io", "resourceclaims", frozenset({"list", "watch"})),
    AccessRight("resource.k8s.io", "resourceclaimtemplates", frozenset({"list", "watch"}), own=True),
    AccessRight("", "persistentvolumes", frozenset({"list", "watch"})),
    AccessRight("", "persistentvolumeclaims", frozenset({"list", "watch"}), own=True),
    AccessRight("", "pods", frozenset({"get", "list", "watch", "delete"}), own=True),
)
"""Permissions that every hub needs. ``rbac.yaml`` and ``dra.yaml`` in ``helm-values/manifests`` grant exactly these."""
DRAIN_RIGHT = AccessRight("", "nodes", frozenset({"patch"}))
"""Additional permission for ``c.GpuCluster.allow_node_drain``, granted by ``drain-nodes.yaml``."""


class ClusterWatch:
    """Watches a cluster, and has its last known state ready at any time. Call `start` once, then `view`, finally
    `close`.

    Args:
        config: how the cluster is reached.
        pace: delays and timeouts; `None` for the normal ones.
        clock: returns the present time (aware).
    """

    def __init__(
        self,
        config: ClusterConfig,
        *,
        pace: Pace | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        self._clock, self._pace = clock, pace or Pace()
        self._api = KubernetesApi(config.kubeconfig, config.context, config.namespace)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._news = asyncio.Event()
        self._lost_at: datetime | None = None
        self._on_slices: set[str] = set()
        self._to_ask_for: set[str] = set()
        self._nodes = self._reflector(
            ObjectKind(
                "nodes", "/api/v1/nodes", self._node_of, "Nodes may not be read: the configured capacity counts."
            )
        )
        self._pods = self._reflector(
            ObjectKind("pods", "/api/v1/pods", pod_of, "Pods of other namespaces may not be read: only our own count.")
        )
        self._own_pods = self._reflector(
            ObjectKind(
                "own pods", "/api/v1/namespaces/{namespace}/pods", pod_of, "Our own pods may not be read either."
            )
        )
        self._slices = self._reflector(_of_dra("resource slices", "resourceslices", slice_of))
        self._claims = self._reflector(_of_dra("resource claims", "resourceclaims", claim_of))
        self._templates = self._reflector(
            _of_dra("claim templates", "namespaces/{namespace}/resourceclaimtemplates", template_of)
        )
        self._volumes = self._reflector(_of_storage("volumes", "persistentvolumes", volume_kept))
        self._volume_claims = self._reflector(
            _of_storage("volume claims", "namespaces/{namespace}/persistentvolumeclaims", bound_volume)
        )
        self._flat_slices: _CachedValues[SliceFacts, SliceDevice] = _CachedValues(self._slices, newest)
        self._flat_counters: _CachedValues[SliceFacts, CounterFacts] = _CachedValues(self._slices, counters_of)
        self._flat_claims: _CachedValues[ClaimFacts, ClaimFacts] = _CachedValues(self._claims, tuple)
        self._flat_templates: _CachedValues[TemplateFacts, TemplateFacts] = _CachedValues(self._templates, tuple)
        self._slices_seen = -1
        self._volumes_of: tuple[tuple[int, int], Volumes] | None = None

    @property
    def namespace(self) -> str:
        """Return the namespace of our servers' pods; "" before `start` unless it is configured."""
        return self._api.namespace

    async def start(self, wait: float = 10.0) -> None:
        """Start the watch, and wait up to `wait` seconds until everything was read once or is known to be unreadable.

        Raises:
            ClusterAway: the address of the API server, or our credentials, are missing or invalid.
        """
        await self._api.open()
        for reflector in self._all():
            if reflector is not self._own_pods:
                self._begin(reflector)
        try:
            await with_timeout(wait, self._all_decided())
        except asyncio.TimeoutError:
            return  # the view has the problem

    async def close(self) -> None:
        """Stop all watches of the cluster. Can be called twice."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._api.close()

    def view(self, now: datetime) -> ClusterView:
        """Return the known state of the cluster. Its mappings change with the watch, so read them before an await.

        Args:
            now: the present wall-clock time. It becomes the view's `at` while the watches of nodes and pods are open,
                because the view is then current. Otherwise `at` is the time of their last reading.
        """
        pods = self._own_pods if self._pods.unreadable else self._pods
        both: tuple[Reflector[Any], ...] = (self._nodes, pods)
        read_at = [reflector.at(now) for reflector in both if not reflector.unreadable] or [
            reflector.at(now) for reflector in both
        ]
        known = [moment for moment in read_at if moment is not None]
        return ClusterView(
            nodes=_live_values(self._nodes),
            pods=_live_values(pods),
            own_pods_only=self._pods.unreadable,
            slices=self._flat_slices.values(),
            counters=self._flat_counters.values() or (),
            claims=self._flat_claims.values(),
            templates=self._flat_templates.values(),
            at=min(known) if len(known) == len(read_at) else None,
            problem=self.problem,
            namespace=self.namespace,
            volumes=self._known_volumes(),
        )

    def _known_volumes(self) -> Volumes:
        unread = self._volumes.unreadable or self._volume_claims.unreadable
        editions = self._volumes.edition, self._volume_claims.edition
        if self._volumes_of is None or self._volumes_of[0] != editions:
            known = Volumes(dict(self._volume_claims.values or {}), dict(self._volumes.values or {}), unread)
            self._volumes_of = editions, known
        return self._volumes_of[1]

    @property
    def problem(self) -> str:
        """Return why the cluster cannot be read now, as a sentence for administrators; "" if it can be read."""
        troubled = [reflector for reflector in self._all() if reflector.problem and reflector.since is not None]
        if troubled:
            first = min(troubled, key=lambda reflector: reflector.since or self._clock())
            since = (first.since or self._clock()).astimezone()
            return f"The cluster cannot be read since {since:%H:%M}: {first.problem.rstrip('.')}."
        pods = self._own_pods if self._pods.unreadable else self._pods
        if not (self._nodes.decided.is_set() and pods.decided.is_set()):
            return "The cluster has not been read yet."
        return ""

    @property
    def is_reading(self) -> bool:
        """Return whether all parts of the cluster can be read, as far as is known now."""
        return not any(reflector.problem for reflector in self._all())

    async def wait_changed(self, timeout: float) -> bool:
        """Wait until the view has changed since the last call; False after `timeout` seconds. Only one task may call
        it, because each change is reported once.
        """
        try:
            await with_timeout(timeout, self._news.wait())
        except asyncio.TimeoutError:
            return False
        self._news.clear()
        return True

    async def delete_pod(self, namespace: str, name: str, uid: str, *, force: bool = False) -> bool:
        """Delete the pod with this uid. Returns False if it does not exist any more.

        Args:
            force: delete the object at once, without waiting for its node.

        Raises:
            ClusterAway, ClusterRefused: the answer cannot be used, or the request was refused.
        """
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"
        return await self._api.delete(path, uid, force=force)

    async def cordon(self, node: str, closed: bool) -> None:
        """Cordon a node if `closed` is True, else uncordon it.

        Raises:
            ClusterAway, ClusterRefused: the answer cannot be used, or the request was refused.
        """
        await self._api.merge(f"/api/v1/nodes/{quote(node, safe='')}", {"spec": {"unschedulable": closed or None}})

    def _reflector(self, kind: ObjectKind[T]) -> Reflector[T]:
        return Reflector(self._api, kind, self._on_change, self._clock, self._pace)

    def _all(self) -> tuple[Reflector[Any], ...]:
        dra = (self._slices, self._claims, self._templates)
        return (self._nodes, self._pods, self._own_pods, *dra, self._volumes, self._volume_claims)

    def _begin(self, reflector: Reflector[Any]) -> None:
        self._tasks[reflector.kind.name] = asyncio.create_task(reflector.run(), name=f"reading {reflector.kind.name}")

    async def _all_decided(self) -> None:
        for reflector in self._all():
            if reflector is not self._own_pods:
                await reflector.decided.wait()
        if self._pods.unreadable:
            await self._own_pods.decided.wait()

    def _on_change(self) -> None:
        self._news.set()
        self._follow_pods()
        self._follow_slices()
        self._log_outage()

    def _follow_pods(self) -> None:
        """Start or stop the watch of our own namespace's pods.

        They are watched only while the hub is not allowed to read the pods of all namespaces.
        """
        task = self._tasks.get(self._own_pods.kind.name)
        if self._pods.unreadable and task is None and self._pods.kind.name in self._tasks:
            self._begin(self._own_pods)
        elif not self._pods.unreadable and task is not None:
            del self._tasks[self._own_pods.kind.name]
            task.cancel()
            self._own_pods.forget()

    def _follow_slices(self) -> None:
        """Find nodes that have devices in resource slices but no GPU label, and read and watch these nodes by name."""
        if self._slices.values is None or self._nodes.values is None or self._slices.edition == self._slices_seen:
            return
        self._slices_seen = self._slices.edition
        named = {device.node for one in self._slices.values.values() for device in one.devices if device.node}
        self._to_ask_for |= named - self._on_slices - self._nodes.values.keys()
        self._on_slices |= named
        if self._to_ask_for and "nodes by name" not in self._tasks:
            self._tasks["nodes by name"] = asyncio.create_task(self._ask_for_nodes())

    async def _ask_for_nodes(self) -> None:
        try:
            while self._to_ask_for:
                name = self._to_ask_for.pop()
                raw = await self._api.one(f"/api/v1/nodes/{quote(name, safe='')}")
                node = self._node_of(raw) if raw is not None else None
                if node is not None:
                    self._nodes.put(name, node)
        except ClusterError as error:
            _log.info("Nodes with devices to claim could not be read: %s", error.message)
            self._on_slices -= {name, *self._to_ask_for}  # retried with the next change of a slice
            self._to_ask_for.clear()
        finally:
            self._tasks.pop("nodes by name", None)

    def _node_of(self, raw: Json) -> NodeFacts | None:
        return node_of(raw, self._on_slices)

    def _log_outage(self) -> None:
        lost = any(reflector.problem for reflector in self._all())
        if lost and self._lost_at is None:
            self._lost_at = self._clock()
            _log.warning("%s What was read before stays.", self.problem)
        elif not lost and self._lost_at is not None:
            seconds = (self._clock() - self._lost_at).total_seconds()
            self._lost_at = None
            _log.info("The cluster can be read again, after %.0f s.", seconds)


class _CachedValues(Generic[T, U]):
    """Converts the values of a reflector to a tuple, and does so again only after a change.

    Args:
        reflector: the objects of one kind.
        flatten: converts all their values to the tuple.
    """

    def __init__(self, reflector: Reflector[T], flatten: Callable[[Iterable[T]], tuple[U, ...]]) -> None:
        self._reflector, self._flatten = reflector, flatten
        self._edition = -1
        self._made: tuple[U, ...] = ()

    def values(self) -> tuple[U, ...] | None:
        """Return the converted values; `None` if the objects are not read yet, do not exist or are forbidden."""
        if self._reflector.values is None:
            return None
        if self._edition != self._reflector.edition:
            self._made, self._edition = self._flatten(self._reflector.values.values()), self._reflector.edition
        return self._made


def _of_dra(name: str, path: str, take: Callable[[Json], T | None]) -> ObjectKind[T]:
    why = f"{name.capitalize()} may not be read: there are no offers by claims."
    return ObjectKind(name, f"/apis/resource.k8s.io/v1/{path}", take, why, optional=True, needed=False)


def _of_storage(name: str, path: str, take: Callable[[Json], T | None]) -> ObjectKind[T]:
    why = f"{name.capitalize()} may not be read: no server is kept in line for the nodes that its files are on."
    return ObjectKind(name, f"/api/v1/{path}", take, why, optional=True)


def _live_values(reflector: Reflector[T]) -> Mapping[str, T] | None:
    if reflector.unreadable:
        return None
    return MappingProxyType(reflector.values if reflector.values is not None else {})
