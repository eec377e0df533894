"""Who checks that leases still hold: one machine's processes (``local_leases.py``), or a cluster's pods.

Both refresh again and again, end a lease with proof only (``core/queue/lifecycle.py``), and know of a server that they
did not start what it holds.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Protocol

from hub_extensions.adapters.hub.jupyterhub_api import HubServer
from hub_extensions.adapters.linux.procfs import Process
from hub_extensions.core.queue.model import Lease
from hub_extensions.core.text.reasons import Reason


class LeaseWatcher(Protocol):
    """Refreshes leases from what holds them.

    Attributes:
        trespassers: `Device.identity` -> a server uses it that has no lease of it.
        unproved: lease id -> why nothing proves that it is over, though it seems to be; of one machine only.
        problem: why nothing can be read now; "" when it can.
        sampled: set with every reading that was taken in.
    """

    trespassers: dict[str, bool]
    unproved: dict[str, Reason]
    problem: str
    sampled: asyncio.Event

    async def run(self) -> None:
        """Refresh until cancelled."""

    async def refresh(self) -> None:
        """Read once, take it in, end what has ended."""

    def refresh_soon(self) -> None:
        """Somebody expects a change."""

    def lease_of_unknown_server(self, server: HubServer, now: datetime) -> Lease | None:
        """What a server holds that the state does not know; None: nothing."""

    def may_be(self, server: HubServer) -> bool:
        """What the hub says of a server is not proved wrong by what is there."""

    def hear_stop(self, user: str, server: str, polled: bool | None) -> None:
        """The hub says that a server has stopped; `polled`: what its spawner's own poll says; None: not asked."""

    def is_stopping(self, server: HubServer) -> bool:
        """It is being stopped, whatever the hub says of it."""

    def lives(self, lease: Lease) -> bool:
        """Its server runs."""

    def has_started(self, lease: Lease) -> bool:
        """The hub's word that its server is ready is not all there is: something of it runs."""

    def forget_hub_state(self) -> None:
        """What the hub has is not known any more."""

    async def give_up(self, lease_id: str, admin: str, why: str) -> None:
        """An admin ends a lease of whose end there is no proof. Raises Refused."""

    async def clear_dead_start(self, lease: Lease) -> None:
        """End what a start left behind that the hub no longer knows."""

    def what_is_left(self, lease: Lease) -> str:
        """What is there of a lease's server, for an admin; "": nothing is known of it."""

    def processes(self, lease: Lease) -> tuple[Process, ...]:
        """What still holds a lease whose server ends, on one machine; of a cluster none is known."""

    async def end_again(self, lease: Lease) -> None:
        """End what is left of a server that the hub calls stopped."""
