"""A cluster as a table a test edits: nodes, pods, slices; what it was asked to delete. It places no pod by itself."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from hub_extensions.adapters.kubernetes.api import ClusterAway, ClusterRefused
from hub_extensions.core.cluster.model import ClusterView, NodeFacts, PodFacts

A100 = "NVIDIA-A100-SXM4-40GB"
HOME = "jhub"


def node(name: str, *resources: tuple[str, int], product: str = A100, **changes: Any) -> NodeFacts:
    """A ready node with these counts (``("mig-1g.5gb", 5)``), labelled as GPU Feature Discovery does."""
    allocatable = {f"nvidia.com/{resource}": count for resource, count in resources}
    labels = {"nvidia.com/gpu.product": product, **changes.pop("labels", {})}
    return replace(NodeFacts(name, labels, allocatable), **changes)


def pod(name: str, on: str = "", *, asks: str = "", count: int = 1, **changes: Any) -> PodFacts:
    """A pod that asks for `count` of ``nvidia.com/<asks>``, bound to the node `on`; Running once it is bound."""
    requests = {f"nvidia.com/{asks}": count} if asks else {}
    plain = PodFacts(f"uid-{name}", "others", name, on, requests, "Running" if on else "Pending")
    return replace(plain, **changes)


class ClusterTable:
    """Change `nodes`, `pods` and `problem`, then `change()`; `nodes` None: they may not be read.

    Attributes:
        deleted: (namespace, name, uid, force) of what was deleted; the pod goes out of the table with it.
        refuses: status and words of every deletion and cordon; None: none is refused.
        silent: a cordon is done, and its answer is lost.
        lingers: a pod that is deleted stays in the table, as one does whose end takes long.
    """

    def __init__(self, *nodes: NodeFacts) -> None:
        self.nodes: dict[str, NodeFacts] | None = {each.name: each for each in nodes}
        self.pods: dict[str, PodFacts] | None = {}
        self.problem = ""
        self.own_pods_only = False
        self.deleted: list[tuple[str, str, str, bool]] = []
        self.refuses: tuple[int, str] | None = None
        self.lingers = False
        self.silent = False
        self.asked = 0
        self._news = asyncio.Event()

    def put(self, *pods: PodFacts) -> None:
        """Add or replace pods, by their uid."""
        assert self.pods is not None
        self.pods.update({each.uid: each for each in pods})
        self.change()

    def set_node(self, name: str, **changes: Any) -> None:
        """Change a node."""
        assert self.nodes is not None
        self.nodes[name] = replace(self.nodes[name], **changes)
        self.change()

    def change_pod(self, name: str, **changes: Any) -> None:
        """Change a pod."""
        assert self.pods is not None
        self.put(replace(self.pods[f"uid-{name}"], **changes))

    def remove(self, name: str) -> None:
        """A pod is gone."""
        assert self.pods is not None
        del self.pods[f"uid-{name}"]
        self.change()

    def change(self) -> None:
        """Wake whoever waits for a change."""
        self._news.set()

    def view(self, now: datetime) -> ClusterView:
        return ClusterView(
            self.nodes, self.pods, self.own_pods_only, HOME, at=datetime.now(timezone.utc), problem=self.problem
        )

    async def wait_changed(self, timeout: float) -> bool:
        try:
            await asyncio.wait_for(self._news.wait(), timeout)
        except asyncio.TimeoutError:
            return False
        self._news.clear()
        return True

    async def cordon(self, node: str, closed: bool) -> None:
        if self.refuses is not None:
            raise ClusterRefused(*self.refuses)
        self.set_node(node, cordoned=closed)
        if self.silent:
            raise ClusterAway("it does not answer in time")

    async def delete_pod(self, namespace: str, name: str, uid: str, *, force: bool = False) -> bool:
        self.asked += 1
        if self.refuses is not None:
            raise ClusterRefused(*self.refuses)
        self.deleted.append((namespace, name, uid, force))
        if self.lingers:
            return True
        found = (self.pods or {}).pop(uid, None)
        self.change()
        return found is not None
