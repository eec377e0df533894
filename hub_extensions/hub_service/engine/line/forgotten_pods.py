"""Pods of this hub's servers that the hub no longer knows.

Administrators see these pods, and can allow the service to delete them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from hub_extensions.adapters.kubernetes.api import ClusterError
from hub_extensions.adapters.store import Changes
from hub_extensions.core import messages
from hub_extensions.core.cluster.model import ClusterConfig, ClusterView, PodFacts
from hub_extensions.hub_service.engine.state.errors import Refused
from hub_extensions.hub_service.engine.state.state import State
from hub_extensions.hub_service.engine.state.transaction import Transactions

log = logging.getLogger("hub_extensions.hub_service")

REMOVE_AGAIN = 60.0
"""Seconds until the deletion of a forgotten pod is retried."""


class Deleter(Protocol):
    """Deletes pods: ``adapters.kubernetes.ClusterWatch``, or a fake in a test."""

    async def delete_pod(self, namespace: str, name: str, uid: str, *, force: bool = False) -> bool:
        """Delete the pod with this name, if it still has this uid. Return False if it does not exist any more.

        Args:
            namespace: namespace of the pod.
            name: name of the pod.
            uid: uid of the pod.
            force: whether to delete the object at once, without waiting for its node.

        Raises:
            ClusterError: the API server refused it, or did not answer.
        """


@dataclass(frozen=True)
class Forgotten:
    """A pod of this hub's servers that the hub no longer knows.

    Attributes:
        pod: the pod, as last read.
        since: when it was found to be forgotten, in seconds of the machine's monotonic clock.
        removing: whether it is being deleted, because the administrator allows that.
        refused: when the API server last refused to delete it, by the same clock. `None` if it never did.
    """

    pod: PodFacts
    since: float
    removing: bool = False
    refused: float | None = None


class ForgottenPods:
    """Finds pods of this hub's servers that the hub no longer knows, and deletes them if the administrator allows it.

    Args:
        state: the state, with the hub's list of servers.
        transaction: writes deletions to the journal (the log of decisions).
        cluster: deletes pods.
        config: the settings of the cluster, with the time after which a forgotten pod is deleted.

    Attributes:
        pods: uid of a pod -> the forgotten pod.
    """

    def __init__(self, state: State, transaction: Transactions, cluster: Deleter, config: ClusterConfig) -> None:
        self.state = state
        self.transaction = transaction
        self.cluster = cluster
        self.config = config
        self.pods: dict[str, Forgotten] = {}

    def clear(self) -> None:
        """Count no pod as forgotten, because the hub's list of servers is not known."""
        self.pods = {}

    def info(self) -> tuple[messages.ForgottenPod, ...]:
        """Return the pods that the hub no longer knows, for the administrators' page."""
        now = self.state.clock.elapsed()
        return tuple(
            messages.ForgottenPod(
                item.pod.name,
                item.pod.namespace,
                item.pod.node,
                item.pod.user,
                item.pod.server,
                item.pod.offer,
                now - item.since,
                item.removing,
            )
            for item in self.pods.values()
        )

    def find(self, view: ClusterView, pods: Mapping[str, PodFacts]) -> None:
        """Look for living pods of this hub whose server is unknown to the hub and to this service, and remember them.

        A pod is forgotten, for example, if a user is renamed while a server runs: the hub lists the new name, the pod
        has the old one.

        Args:
            view: what was read from the cluster, with the namespace of the hub's pods.
            pods: the pods that were read.
        """
        hub = self.state.hub_view
        if hub.listed is None or not view.namespace:
            return
        now = self.state.clock.elapsed()
        active = {(t.user, t.server) for t in self.state.tickets.values()}
        active |= hub.listed.keys() | self.state.facts.keys() | self.state.touched.keys()
        found: dict[str, Forgotten] = {}
        for pod in pods.values():
            ours = bool(pod.lease or pod.offer) and pod.user and pod.namespace == view.namespace
            if not ours or pod.over or pod.deleting or (pod.user, pod.server) in active:
                continue
            if pod.name in hub.pods:
                continue
            known = self.pods.get(pod.uid)
            if known is None:
                log.warning("the hub has forgotten the pod %s", pod.name, extra={"user": pod.user})
            found[pod.uid] = replace(known, pod=pod) if known else Forgotten(pod, now)
        self.pods = found

    async def remove(self) -> None:
        """Delete the pods that have been forgotten for `ClusterConfig.forgotten_after`, if the administrator allows it.

        Each deletion is written to the journal (the log of decisions). While the hub does not answer, no pod is
        deleted.
        """
        if not self.config.delete_orphaned_pods or not self.state.hub_view.is_up:
            return
        now = self.state.clock.elapsed()
        for uid, item in tuple(self.pods.items()):
            if item.removing or now - item.since < self.config.forgotten_after.total_seconds():
                continue
            if item.refused is not None and now - item.refused < REMOVE_AGAIN:
                continue
            try:
                await self.cluster.delete_pod(item.pod.namespace, item.pod.name, uid)
            except ClusterError as problem:
                if item.refused is None:
                    log.warning("the forgotten pod %s cannot be removed: %s", item.pod.name, problem)
                self.pods[uid] = replace(item, refused=now)
                continue
            self.pods[uid] = replace(item, removing=True)
            self.state.count("pods", "forgotten-removed")
            text, server = f"the forgotten pod {item.pod.name} is removed", (item.pod.user, item.pod.server)
            evidence = f"neither the hub's list nor the line had it for {now - item.since:.0f} s"
            with suppress(Refused):  # it is deleted even if the journal cannot be written
                async with self.transaction() as transaction:
                    row = transaction.server_row("removed", server, text, evidence=evidence)
                    await transaction.write(Changes(journal=(row,)))
