"""Close a cluster's nodes to new servers: cordon them as ``kubectl cordon`` does, and store who ordered it and why.

The order is written before the node is cordoned. It is deleted if the cluster refuses the cordon, or if somebody else
uncordons the node.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Protocol

from hub_extensions.adapters.kubernetes.api import ClusterAway, ClusterRefused
from hub_extensions.adapters.store import Changes, JournalRow
from hub_extensions.core.queue.cordons import Cordon, refuse_to_close_node, standing_on_nodes, undone_elsewhere
from hub_extensions.core.text.reasons import Reason, explain
from hub_extensions.hub_service.engine.state.errors import Refused
from hub_extensions.hub_service.engine.state.meta import CORDONS, write_cordons
from hub_extensions.hub_service.engine.state.state import State
from hub_extensions.hub_service.engine.state.transaction import SERVICE, Transaction, Transactions

log = logging.getLogger("hub_extensions.hub_service")
REFUSED, UNDONE = "opened-refused", "opened-elsewhere"


class Cordoner(Protocol):
    """Cordons nodes (closes them to new pods): ``adapters.kubernetes.ClusterWatch``, or a fake in a test."""

    async def cordon(self, node: str, closed: bool) -> None:
        """Cordon a node, or uncordon it if `closed` is false.

        Raises:
            ClusterAway: the API server did not answer.
            ClusterRefused: the API server refused it.
        """


class NodeDrains:
    """Cordons and uncordons nodes on administrators' orders.

    Args:
        state: the state, in which the orders are stored.
        transaction: changes the state.
        cluster: cordons nodes at the API server.
        allowed: whether the site's configuration lets this service cordon nodes.
    """

    def __init__(self, state: State, transaction: Transactions, cluster: Cordoner, allowed: bool) -> None:
        self.state = state
        self.transaction = transaction
        self.cluster = cluster
        self.allowed = allowed

    def nodes(self) -> Mapping[str, bool]:
        """Return node -> whether it is cordoned, for each node with devices, as the cluster was last read."""
        snapshot = self.state.cluster
        return {} if snapshot is None else {name: node.cordoned for name, node in snapshot.nodes.items()}

    def standing(self) -> tuple[Cordon, ...]:
        """Return the administrators' orders to drain nodes that are in force, because their nodes are cordoned."""
        return standing_on_nodes(self.state.cordons, self.nodes())

    async def drain(self, node: str, why: str, admin: str) -> None:
        """Cordon a node, so that no new pods are placed on it, and record who ordered it and why.

        Args:
            node: name of the node.
            why: the administrator's reason.
            admin: name of the administrator.

        Raises:
            Refused: 409: not allowed, unknown node, cordoned already, or refused by the cluster. 503: it is not known
                whether the node was cordoned.
        """
        async with self.transaction() as transaction:
            refusal = refuse_to_close_node(node, self.nodes(), may_cordon=self.allowed)
            if refusal is not None:
                raise Refused.because(409, refusal, "place")
            order = Cordon(node, admin, why, self.state.clock.utc_now())
            others = tuple(each for each in self.state.cordons if each.place != node)
            reason = explain("closed-place", place=node, why=why)
            await self._write(transaction, (*others, order), (self._row("drained-card", reason, f"admin {admin}"),))
        try:
            await self._cordon(node, True)
        except Refused as problem:
            if problem.status == 409:
                await self._take_back((order,), REFUSED)
            raise

    async def undrain(self, node: str, why: str, admin: str) -> None:
        """Uncordon a node that was cordoned by `drain`.

        Args:
            node: name of the node.
            why: the administrator's reason.
            admin: name of the administrator.

        Raises:
            Refused: 409: not allowed, not cordoned by an order of this service, or refused by the cluster. 503: it is
                not known whether the node was uncordoned.
        """
        if not self.allowed:
            raise Refused.because(409, explain("cordon-on-cluster", node=node), "place")
        if all(each.place != node for each in self.standing()):
            raise Refused.because(409, explain("not-cordoned"), "place")
        await self._cordon(node, False)
        async with self.transaction(admit=True) as transaction:
            left = tuple(each for each in self.state.cordons if each.place != node)
            reason = explain("opened-place", place=node, why=why)
            await self._write(transaction, left, (self._row("undrained-card", reason, f"admin {admin}"),))

    async def notice_undone(self, transaction: Transaction) -> None:
        """End the administrators' orders to drain nodes that somebody else has uncordoned."""
        undone = undone_elsewhere(self.state.cordons, self.nodes(), self.state.clock.utc_now())
        if undone:
            await self._end(transaction, undone, UNDONE)

    async def _take_back(self, orders: tuple[Cordon, ...], why: str) -> None:
        async with self.transaction() as transaction:
            await self._end(transaction, orders, why)

    async def _end(self, transaction: Transaction, orders: tuple[Cordon, ...], why: str) -> None:
        left = tuple(each for each in self.state.cordons if each not in orders)
        reasons = (explain(why, place=each.place) for each in orders)
        await self._write(transaction, left, tuple(self._row("undrained-card", each, SERVICE) for each in reasons))

    async def _write(
        self, transaction: Transaction, cordons: tuple[Cordon, ...], journal: tuple[JournalRow, ...]
    ) -> None:
        await transaction.write(Changes(journal=journal, meta={CORDONS: write_cordons(cordons)}))

    def _row(self, kind: str, reason: Reason, actor: str) -> JournalRow:
        log.info("%s: %s", kind, reason.message)
        return JournalRow.because(self.state.clock.utc_now(), kind, (None, None, None), [reason], actor)

    async def _cordon(self, node: str, closed: bool) -> None:
        try:
            await self.cluster.cordon(node, closed)
        except ClusterRefused as problem:
            raise Refused.because(409, explain("cordon-refused", why=problem.message), "place") from problem
        except ClusterAway as problem:
            raise Refused.because(503, explain("cordon-not-known", why=problem.message), "place") from problem
