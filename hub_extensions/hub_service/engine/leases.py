"""Who looks whether leases still hold: one machine's processes (``local_leases.py``), or a cluster's pods.

Both look again and again, end a lease with proof only (``core/queue/lifecycle.py``), and know of a server that they did
not start what it holds.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Protocol

from hub_extensions.adapters.jupyterhub_api import HubServer
from hub_extensions.adapters.procfs import Process
from hub_extensions.core.queue.model import Lease


class LeaseWatcher(Protocol):
    """Looks at what the leases are of.

    Attributes:
        leftovers: lease id -> its processes still there, for the admin's page.
        trespassers: `Device.identity` -> a server uses it that has no lease of it.
        problem: why nothing can be looked at now; "" when it can.
        sampled: set with every look that could be taken.
    """

    leftovers: dict[str, tuple[Process, ...]]
    trespassers: dict[str, bool]
    problem: str
    sampled: asyncio.Event

    async def keep_looking(self) -> None:
        """Look until cancelled."""

    async def look(self) -> None:
        """Look once, take it in, end what has ended."""

    def look_soon(self) -> None:
        """Somebody expects a change."""

    def lease_of_a_stranger(self, server: HubServer, now: datetime) -> Lease | None:
        """What a server holds that the state does not know; None: nothing."""

    def is_going(self, server: HubServer) -> bool:
        """It is being stopped, whatever the hub says of it."""

    def lives(self, lease: Lease) -> bool:
        """Its server runs."""

    def hub_is_away(self) -> None:
        """What the hub has is not known any more."""

    async def clear_a_dead_start(self, lease: Lease) -> None:
        """End what a start left behind that the hub no longer knows."""
