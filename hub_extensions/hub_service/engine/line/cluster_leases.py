"""Leases (servers' rights to their GPUs) on a cluster: a lease ends only when its pod is gone from the API server.

Everything is read from watches of the API server: free devices, the pod of each lease, pods without a node, nodes that
do not answer, and pods that the hub has forgotten. No lease ends because of a message of the hub alone.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from hub_extensions.adapters.files.mig_tables import sm_of_product
from hub_extensions.adapters.hub.jupyterhub_api import HubServer
from hub_extensions.adapters.kubernetes.api import ClusterError
from hub_extensions.adapters.linux.procfs import Process
from hub_extensions.adapters.store import Changes
from hub_extensions.core import messages
from hub_extensions.core.cluster.dra import devices_given
from hub_extensions.core.cluster.model import ClusterConfig, ClusterView, PodFacts
from hub_extensions.core.cluster.nodes import NodeReadings
from hub_extensions.core.cluster.offers import derive_cluster_offers
from hub_extensions.core.cluster.pools import PoolSurvey, caution_of, read_in_steps, survey_pools
from hub_extensions.core.cluster.unschedulable import why_unschedulable
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.offers.pod_request import label_value
from hub_extensions.core.queue import lifecycle
from hub_extensions.core.queue.lifecycle import LeaseReading
from hub_extensions.core.queue.model import Lease, LeaseState, Ticket, TicketState
from hub_extensions.core.text.reasons import Reason, explain
from hub_extensions.core.usage import UseEnd
from hub_extensions.hub_service.engine.line.forgotten_pods import Deleter, ForgottenPods
from hub_extensions.hub_service.engine.line.leases import adopted_lease
from hub_extensions.hub_service.engine.line.node_drains import Cordoner, NodeDrains
from hub_extensions.hub_service.engine.state.errors import Refused
from hub_extensions.hub_service.engine.state.snapshots import ClusterSnapshot, ServerPods
from hub_extensions.hub_service.engine.state.state import State
from hub_extensions.hub_service.engine.state.transaction import Transaction, Transactions
from hub_extensions.hub_service.engine.views import presenters

log = logging.getLogger("hub_extensions.hub_service")

REFRESH_AT_LEAST = 5.0
"""Seconds after which leases are refreshed although the cluster has not changed, because some rules depend on time."""
TOGETHER = 0.1
"""Changes within this many seconds are handled together."""
GONE_FOR = 1.0
"""A pod counts as gone if it is missing for this many seconds: a list that is read again may lack it briefly."""
SETTLES = timedelta(seconds=30)
"""Time for which a new lease may lack its pod: API server, hub and service see a new pod at different times."""

ServerKey = tuple[str, str]


class Cluster(Deleter, Cordoner, Protocol):
    """A cluster whose objects are watched: ``adapters.kubernetes.ClusterWatch``, or a table in a test."""

    def view(self, now: datetime) -> ClusterView:
        """Return what the watches have read so far: nodes, pods, volumes and their claims, and the objects of DRA.

        Args:
            now: the present wall-clock time. It becomes the view's `at` while the watches of nodes and pods are open,
                because the view is then current. Otherwise `at` is the time of their last reading.
        """

    async def wait_changed(self, timeout: float) -> bool:
        """Return True when the cluster has changed since the last call, or False after `timeout` seconds."""


class ClusterLeases:
    """Reads the cluster and ends leases (servers' rights to a GPU) whose pod is gone.

    Args:
        state: the state of the line, of servers and of devices.
        transaction: changes the state.
        cluster: the watches of the cluster's API server.
        config: the settings of the cluster.

    Attributes:
        trespassers: empty. On one machine it has the devices that a server uses without a lease of them.
        unproved: empty. On one machine it has the leases that seem to be over without proof.
        problem: why the cluster cannot be read now; "" if it can be.
        sampled: event that is set each time the cluster has been read.
        forgotten: finds pods of this hub's servers that the hub no longer knows.
        drains: cordons and drains nodes on an administrator's order.
    """

    def __init__(self, state: State, transaction: Transactions, cluster: Cluster, config: ClusterConfig) -> None:
        self.state = state
        self.transaction = transaction
        self.cluster = cluster
        self.config = config
        self.trespassers: dict[str, bool] = {}
        self.unproved: dict[str, Reason] = {}
        self.forgotten = ForgottenPods(state, transaction, cluster, config)
        self.drains = NodeDrains(state, transaction, cluster, config.allow_node_drain)
        self.problem = ""
        self.sampled = asyncio.Event()
        self._seen: set[str] = set()
        self._without_place: dict[str, float] = {}
        self._gone_since: dict[str, float] = {}
        self._notes: tuple[str, ...] = ()
        self._readings = NodeReadings()
        self._held_up_before: frozenset[str] = frozenset()
        self._soon = asyncio.Event()

    async def run(self) -> None:
        """Call `refresh` at each change of the cluster, and at least every 5 s, until cancelled."""
        while True:
            await self.refresh()
            await self._next()
            await asyncio.sleep(TOGETHER)

    async def _next(self) -> None:
        changed = asyncio.ensure_future(self.cluster.wait_changed(REFRESH_AT_LEAST))
        soon = asyncio.ensure_future(self._soon.wait())
        try:
            await asyncio.wait({changed, soon}, timeout=REFRESH_AT_LEAST, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
            soon.cancel()
            self._soon.clear()

    def refresh_soon(self) -> None:
        """Have `run` call `refresh` at once, because a lease (right to a GPU) is expected to change."""
        self._soon.set()

    async def refresh(self) -> None:
        """Read the cluster once, end leases that are over, and admit tickets (places in line) that can start.

        A lease is a server's right to its GPU. It is over when its pod has been finished or missing for `GONE_FOR`
        (1 s). If no pod of a running lease was ever seen, this time is `SETTLES` (30 s).
        """
        try:
            async with self.transaction(admit=True) as transaction:
                # read here, because opening the transaction may have taken a while
                view = self.cluster.view(self.state.clock.utc_now())
                transaction.state.note_inventory_problem(view.problem)
                self.problem = view.problem
                if view.at is not None and not view.problem:
                    await self._take_in(view, transaction)  # otherwise the last reading counts for a while
                await asyncio.sleep(0)
        except Refused as problem:
            log.debug("nothing is released: %s", problem)
        if not self.problem:
            await self.forgotten.remove()

    # -------------------------------------------------------------- taking in

    async def _take_in(self, view: ClusterView, transaction: Transaction) -> None:
        transaction.state.take_pods(self._server_pods(view))
        if self.state.cluster is None:  # all nodes are counted for the first time, in steps
            ours = {pod.uid for pod in self._adopted_and_bound().values()}
            renamed, kept = self.state.offer_config.resources, self._readings
            for _ in read_in_steps(
                view, self.config, leases=self.state.leases, ours=ours, kept=kept, resources=renamed
            ):
                await asyncio.sleep(0)
        snapshot = self._snapshot(view)
        await asyncio.sleep(0)  # a large cluster takes long to count: let other tasks run in between
        await transaction.state.take_cluster(snapshot)
        await self.drains.notice_undone(transaction)
        self.sampled.set()
        if self.state.quota_holds:
            for lease in [self.state.leases.get(each) for each in self.state.pods.by_lease]:
                if lease is not None and lease.state is LeaseState.STARTING:
                    transaction.pod_taken(lease.offer, lease.since)
        if view.pods is None:
            return  # pods may not be read, so only the hub reports what is gone
        self.forgotten.find(view, view.pods)
        await transaction.refresh_leases(
            lambda lease: self._after(lease, view),
            lambda before, after: _cause(before, after, snapshot),
            lambda lease: explain("machine-not-answering", server=lease.server),
        )

    def _server_pods(self, view: ClusterView) -> ServerPods:
        """Find the pod of each lease (a server's right to its GPU) and of each server.

        If several pods match, a pod in the hub's own namespace is taken before others, and a pod that has not finished
        before one that has.

        Args:
            view: what was read from the cluster, with the pods.
        """
        by_lease: dict[str, PodFacts] = {}
        by_server: dict[ServerKey, PodFacts] = {}
        for pod in (view.pods or {}).values():
            if not (pod.lease or pod.user):
                continue
            server = (pod.user, pod.server)
            at_home = not view.namespace or pod.namespace == view.namespace
            lease = self.state.leases.get(pod.lease)
            if not at_home and (lease is None or (lease.user, lease.server) != server):
                continue  # another hub's pod, or somebody else set this label
            _prefer(by_lease, pod.lease, pod, home=view.namespace)
            _prefer(by_server, server if pod.user else None, pod, home=view.namespace)
        return ServerPods(by_lease, by_server)

    def _snapshot(self, view: ClusterView) -> ClusterSnapshot:
        adopted = self._adopted_and_bound()
        survey = survey_pools(
            view,
            self.state.offer_config,
            self.config,
            names=self.state.pool_names,
            leases=self.state.leases,
            ours={pod.uid for pod in adopted.values()},
            kept=self._readings,
        )
        survey = replace(survey, bound=(survey.bound & self.state.pods.by_lease.keys()) | adopted.keys())
        offers = derive_cluster_offers(survey.pools, self.state.offer_config, self.config, sm_of_product=sm_of_product)
        if offers.notes != self._notes:
            self._notes = offers.notes
            for note in offers.notes:
                # texts for offers that do not exist here are normal: a values file may have texts for many
                harmless = note.startswith(("titles[", "descriptions["))
                log.log(logging.INFO if harmless else logging.WARNING, "c.GpuOffers.%s", note)
        queue = "Kueue" if self.config.kueue_queue else "KAI" if self.config.kai_queue else ""
        held_up, held_back = self._without_a_place(queue)
        return ClusterSnapshot(
            survey,
            offers,
            queue,
            frozenset(held_up),
            held_back,
            caution_of(view),
            held_up_on={offer: nodes for offer, nodes in held_up.items() if nodes is not None},
            node_of={lease: pod.node for lease, pod in {**self.state.pods.by_lease, **adopted}.items() if pod.node},
            device_of=devices_given(view, self.state.pods.by_lease),
            nodes=dict(view.nodes or {}),
            volumes=view.volumes,
        )

    def _adopted_and_bound(self) -> dict[str, PodFacts]:
        """Return the pods of adopted servers, which the service found running, by the id of the lease (right to a GPU).

        Only pods that have a node are returned. They hold devices, but may lack the label of their lease: they were
        started before this product was installed, or during an outage of the service.
        """
        found = ((lease, self.state.pods.of(lease)) for lease in self.state.leases.values() if lease.adopted)
        return {lease.id: pod for lease, pod in found if pod is not None and pod.node}

    def _without_a_place(self, queue: str) -> tuple[dict[OfferId, frozenset[str] | None], frozenset[str]]:
        """Find admitted servers whose pods have no node yet.

        Args:
            queue: name of the external queue (``Kueue``, ``KAI``) that decides which pods start; "" without one.

        Returns:
            A pair. First: each offer with an admitted pod that finds no device -> the nodes that such pods may use;
            `None` if they may use all nodes. Second: ids of the tickets (places in line) that do not count towards the
            limit of simultaneous starts, because their pods have waited for a node for too long or wait in `queue`.
        """
        now = self.state.clock.elapsed()
        up, back, still = dict[OfferId, frozenset[str] | None](), set[str](), {}
        for ticket in self.state.tickets.values():
            pod = self._waiting_pod(ticket)
            if pod is None:
                continue
            since = still[ticket.id] = self._without_place.get(ticket.id, now)
            late = now - since > self.config.outside_after.total_seconds()
            if queue or late:
                back.add(ticket.id)
            offer = ticket.admitted_offer or CPU
            # if a pod lacks something other than a GPU (CPU, storage), its offer is not held up
            for_a_gpu = not pod.unscheduled_why or why_unschedulable(pod.unscheduled_why).lacks_device
            if late and not queue and offer != CPU and for_a_gpu:
                nodes, before = self.state.ticket_index.node_sets.get(ticket.id), up.get(offer, frozenset())
                up[offer] = None if nodes is None or before is None else nodes | before
                if ticket.id not in self._held_up_before:
                    log.warning(
                        "an admitted pod has no place: %s",
                        pod.unscheduled_why or pod.unscheduled,
                        extra={"ticket": ticket.id},
                    )
        self._without_place = still
        self._held_up_before = frozenset(back)
        return up, frozenset(back)

    def _waiting_pod(self, ticket: Ticket) -> PodFacts | None:
        """Return the pod of an admitted ticket (place in line). `None` without a pod, or if the pod has a node."""
        if ticket.state is not TicketState.ADMITTED:
            return None
        lease, pods = self.state.lease_of_ticket(ticket.id), self.state.pods
        pod = pods.by_lease.get(lease.id) if lease else pods.by_server.get((ticket.user, ticket.server))
        return pod if pod is not None and not pod.node and not pod.over and not pod.deleting else None

    # -------------------------------------------------------------- leases

    def _after(self, lease: Lease, view: ClusterView) -> Lease:
        """Return the lease as it is after the cluster was read; the same object if nothing changed.

        Args:
            lease: the server's right to its GPU, as it was before.
            view: what was read from the cluster.
        """
        pod = self.state.pods.of(lease)
        if pod is not None:
            self._seen.add(lease.id)
            self._gone_since.pop(lease.id, None)
        lost = None if pod is None else self._node_lost(pod, view)
        gone = pod is None and lease.state is not LeaseState.STARTING and self._is_gone(lease)
        seen = LeaseReading(
            ticket_lives=lease.ticket in self.state.tickets,
            device=None if lost is None else not lost,
            server_gone=gone,
            released=gone,
        )
        return lifecycle.refresh(lease, seen)

    def _is_gone(self, lease: Lease) -> bool:
        """Return whether the pod of a lease (right to a GPU) is gone, after a while in which it may still appear.

        A pod that was seen before has to be missing for `GONE_FOR` (1 s), and a pod that was never seen for `SETTLES`
        (30 s).
        """
        now = self.state.clock.elapsed()
        since = self._gone_since.setdefault(lease.id, now)
        sure = lease.id in self._seen or lease.state is LeaseState.ENDING
        patience = GONE_FOR if sure else SETTLES.total_seconds()
        if now - since < patience:
            if patience < REFRESH_AT_LEAST:
                asyncio.get_running_loop().call_later(patience, self._soon.set)
            return False
        self._gone_since.pop(lease.id, None)
        self._seen.discard(lease.id)
        return True

    @staticmethod
    def _node_lost(pod: PodFacts, view: ClusterView) -> bool | None:
        """Return whether the node of a pod has stopped responding. `None` if the node is unknown.

        Args:
            pod: what was read of the pod.
            view: what was read from the cluster, with the nodes.
        """
        if view.nodes is None or not pod.node:
            return None
        node = view.nodes.get(pod.node)
        return None if node is None else node.ready is not True

    async def give_up(self, lease_id: str, admin: str, why: str = "") -> None:
        """Delete the pod of a lease (right to a GPU) by force, on an administrator's order: its node does not answer.

        The lease ends when the pod is gone.

        Args:
            lease_id: the lease.
            admin: name of the administrator, for the journal (the log of decisions).
            why: the administrator's reason, for the journal; "" if none is given.

        Raises:
            Refused: 404 if the lease does not exist; 409 if the node answers, so that the server can be stopped; 502 if
                the API server refuses to delete the pod.
        """
        lease = self.state.leases.get(lease_id)
        if lease is None:
            raise Refused.because(404, explain("unknown-lease"), "lease")
        pod = self.state.pods.of(lease)
        lost = lease.state is LeaseState.LOST
        if lease.state is LeaseState.ENDING and pod is not None:  # the server was stopped, but the node cannot end it
            lost = self._node_lost(pod, self.cluster.view(self.state.clock.utc_now())) is True
        if not lost or pod is None:
            raise Refused.because(409, explain("not-lost"), "lease")
        try:
            await self.cluster.delete_pod(pod.namespace, pod.name, pod.uid, force=True)
        except ClusterError as problem:
            raise Refused(502, problem.message, "", "cluster") from problem
        async with self.transaction() as transaction:
            use = self.state.uses.get(lease.id)
            order = "pod-deleted-because" if why else "pod-deleted"
            deleted = explain(order, pod=pod.name, **({"why": why} if why else {}))
            silent = explain("seen-node-silent", node=pod.node or "")
            row = transaction.lease_row(
                "given-up", lease, deleted.message, actor=f"admin {admin}", evidence=silent.message
            )
            uses = () if use is None else (replace(use, end=UseEnd.ADMIN),)
            await transaction.write(Changes(uses=uses, journal=(replace(row, reasons=(deleted,), grounds=(silent,)),)))
        self.refresh_soon()

    # -------------------------------------------------------------- servers that ran before

    def lease_of_unknown_server(self, server: HubServer, now: datetime) -> Lease | None:
        """Create the lease of a running server that the state does not know, from its pod's offer label or requests.

        A pod whose lease label is unknown was started when the service had another store; its lease gets the id of the
        label.

        Args:
            server: the server, as the hub lists it.
            now: by the running clock, which stands still while the hub is away.

        Returns:
            `None` if no pod belongs to this server, if the pod requests no device or is being deleted, or if the state
            knows its lease.
        """
        key = (server.user, server.server)
        pod = self.state.pods.by_server.get(key)
        snapshot = self.state.cluster
        if pod is None or pod.over or pod.deleting or snapshot is None:
            return None
        known = self.state.leases.get(pod.lease)
        if known is not None and (known.user, known.server) == key:
            return None
        named = [each for each in snapshot.offers.offers if each.pool and label_value(each.id) == pod.offer]
        offer = named[0] if len(named) == 1 else None
        pool = offer.pool if offer else _pool_of(pod, snapshot.survey) if pod.requests else None
        if pool is None:
            return None
        lease = adopted_lease(server, pool, now, self.state.end_of)
        if pod.lease and pod.lease not in self.state.leases:
            lease = replace(lease, id=pod.lease)
        if offer is not None:
            lease = replace(lease, offer=offer.id, share=offer.share)
        return replace(lease, ends_at=self.state.end_of(lease))

    def may_be(self, server: HubServer) -> bool:
        """Return True: the hub's entry for a server may always be right, because pods are found by their labels."""
        return True

    def hear_stop(self, user: str, server: str, polled: bool | None) -> None:
        """Ignore the hub's report that a server has stopped, because the API server shows which pods are gone."""

    def is_stopping(self, server: HubServer) -> bool:
        """Whether the server's pod is being deleted, although the hub may list the server as ready."""
        pod = self.state.pods.by_server.get((server.user, server.server))
        return pod is not None and not pod.over and pod.deleting

    def lives(self, lease: Lease) -> bool:
        """Whether the pod of this lease (a server's right to its GPU) exists and is not being deleted."""
        pod = self.state.pods.of(lease)
        return pod is not None and not pod.deleting

    def has_started(self, lease: Lease) -> bool:
        """Return True: KubeSpawner checks the pod before it reports the server as ready."""
        return True

    def what_is_left(self, lease: Lease) -> str:
        """Return the name and the node of the lease's pod, and whether it is being deleted; "" without a pod."""
        pod = self.state.pods.of(lease)
        if pod is None:
            return ""
        return f"its pod {pod.name}{f' on {pod.node}' if pod.node else ''}{' (being deleted)' if pod.deleting else ''}"

    def processes(self, lease: Lease) -> tuple[Process, ...]:
        """Return an empty tuple, because on a cluster a pod holds the lease (right to a GPU), not single processes."""
        return ()

    async def end_again(self, lease: Lease) -> None:
        """Delete the pod that is left of a server that the hub reports as stopped, unless it is being deleted already.

        A pod whose name is in the hub's list belongs to a listed server and is kept. There is one exception: if the
        listed server is the lease's own server, and its spawn is pending, the pod is deleted.
        """
        pod = self.state.pods.of(lease)
        if pod is None or pod.deleting:
            return
        pods = self.state.hub_view.pods
        if pod.name in pods and pods[pod.name] != (lease.user, lease.server):
            return
        try:
            await self.cluster.delete_pod(pod.namespace, pod.name, pod.uid)
        except ClusterError as problem:
            log.warning("the pod %s of a stopped server cannot be deleted: %s", pod.name, problem)

    async def clear_dead_start(self, lease: Lease) -> None:
        """Do nothing. If an earlier start left a pod, KubeSpawner takes this pod over when the server starts again."""

    # -------------------------------------------------------------- for admins

    def info(self) -> messages.ClusterInfo:
        """Return pools (devices of one kind) and nodes as the cluster was read last, for administrators.

        The pods that the hub no longer knows are included.
        """
        snapshot = self.state.cluster
        forgotten = self.forgotten.info()
        if snapshot is None:
            return messages.ClusterInfo(self.problem, False, "", (), (), (), forgotten)
        left_out = tuple(messages.LeftOutInfo(item.what, item.why, item.because) for item in snapshot.survey.left_out)
        return messages.ClusterInfo(
            problem=self.problem,
            configured=snapshot.survey.configured,
            queue=snapshot.queue,
            pools=presenters.cluster_info(snapshot.survey, snapshot.offers.offers),
            left_out=left_out,
            blocked_offers=tuple(sorted(snapshot.held_up)),
            orphaned_pods=forgotten,
        )

    def forget_hub_state(self) -> None:
        """Forget the hub's server list. No pod counts as forgotten until the hub has answered for a while."""
        self.forgotten.clear()


def _cause(before: Lease, after: Lease, snapshot: ClusterSnapshot | None) -> tuple[str, str]:
    """Return why a lease has changed its state, and the evidence, for the journal (the log of decisions).

    Args:
        before: the server's right to its GPU, as it was before the cluster was read.
        after: the same lease afterwards.
        snapshot: what was read from the cluster. `None` if nothing was read; the node is not known then.
    """
    node = (snapshot.node_of.get(before.id) if snapshot is not None else None) or "not known"
    return {
        LeaseState.ENDING: ("its server is gone", "the API server lists no pod of it"),
        LeaseState.ENDED: ("its pod is gone", "the API server lists no pod of it"),
        LeaseState.LOST: ("the node of its pod does not answer", f"the node {node} is not Ready"),
    }.get(after.state, ("the node of its pod answers again", f"the node {node} is Ready"))


def _prefer(known: dict[Any, PodFacts], key: Any, pod: PodFacts, *, home: str) -> None:
    """Enter a pod under a key, unless another pod with this key is preferred.

    A pod in the hub's own namespace is preferred, then a pod that has not finished.

    Args:
        known: the mapping that is changed.
        key: lease id, or user and server. Nothing is entered if it is empty or `None`.
        pod: what was read of the pod.
        home: the hub's own namespace.
    """
    other = known.get(key) if key else pod
    if other is None or (pod.namespace == home, not pod.over) > (other.namespace == home, not other.over):
        known[key] = pod


def _pool_of(pod: PodFacts, survey: PoolSurvey) -> str | None:
    """Return the pool (devices of one kind) whose resource a pod requests. `None` if no pool matches.

    If several pools have that resource, the pool with the pod's node is returned.

    Args:
        pod: what was read of the pod.
        survey: the pools, as the cluster was read last.
    """
    wanted = [pool for pool in survey.pools.values() if pod.requests.get(pool.resource)]
    here = [pool for pool in wanted if any(node.node == pod.node for node in pool.nodes)]
    return next((pool.id for pool in here or wanted), None)
