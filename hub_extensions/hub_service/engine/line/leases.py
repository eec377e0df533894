"""The interface of the lease watchers: of one machine (``local_leases.py``) and of a cluster (``cluster_leases.py``).

A lease is a server's right to its GPU. Both watchers refresh periodically, and end a lease only if it is proved that
nothing of the server is left. A running server that the state does not know is adopted, because it was started before
this product was installed or during an outage of the service: the watcher finds out which device it uses and creates a
lease for it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from hub_extensions.adapters.hub.jupyterhub_api import HubServer
from hub_extensions.adapters.linux.procfs import Process
from hub_extensions.core.gpu.devices import Device
from hub_extensions.core.queue import lifecycle
from hub_extensions.core.queue.model import Lease
from hub_extensions.core.text.reasons import Reason


class LeaseWatcher(Protocol):
    """Refreshes leases (servers' rights to their GPUs) from the processes or pods that hold them, and ends them.

    `LocalLeases` implements it for one machine, `ClusterLeases` for a cluster.

    Attributes:
        trespassers: `Device.identity` (the key by which leases name a device) -> whether a server uses this device
            although its lease is of another device.
        unproved: lease id -> why its end cannot be proved, though it seems to be over; on one machine only.
        problem: why machine or cluster cannot be read now; "" if they can be.
        sampled: event that is set each time the devices have been read.
    """

    trespassers: dict[str, bool]
    unproved: dict[str, Reason]
    problem: str
    sampled: asyncio.Event

    async def run(self) -> None:
        """Call `refresh` again and again, until cancelled."""

    async def refresh(self) -> None:
        """Read the machine or cluster once, and end leases (servers' rights to their GPUs) that are over.

        A lease is over when it is proved that no process or pod of its server is left.
        """

    def refresh_soon(self) -> None:
        """Have `run` call `refresh` at once, because a change of a lease (a server's right to its GPU) is expected."""

    def lease_of_unknown_server(self, server: HubServer, now: datetime) -> Lease | None:
        """Create the lease (right to a GPU) of a running server that the state does not know.

        The new lease is only returned, not stored.

        Args:
            server: the server, as the hub lists it.
            now: by the running clock, which stands still while the hub is away.

        Returns:
            `None` if the server uses no device.
        """

    def may_be(self, server: HubServer) -> bool:
        """Return whether the hub's entry for a server can be right, by the processes or pods that were read last.

        False if the process that the entry names does not exist, or belongs to another user's server.
        """

    def hear_stop(self, user: str, server: str, polled: bool | None) -> None:
        """Record that the hub reports a server as stopped.

        Args:
            user, server: name of the user and of the server.
            polled: whether the spawner's poll after the stop found the server ended. `None` if the hub did not poll.
        """

    def is_stopping(self, server: HubServer) -> bool:
        """Whether the server is being stopped, although the hub may list it as ready."""

    def lives(self, lease: Lease) -> bool:
        """Whether the process or pod of the server of this lease (right to a GPU) is alive."""

    def has_started(self, lease: Lease) -> bool:
        """Whether a process or pod confirms the hub's report that the server is ready."""

    def forget_hub_state(self) -> None:
        """Forget which servers the hub listed and which stops it reported, because the hub does not answer any more."""

    async def give_up(self, lease_id: str, admin: str, why: str) -> None:
        """End a lease (right to a GPU) on an administrator's order, without proof that nothing of its server is left.

        Args:
            lease_id: the lease.
            admin: name of the administrator, for the journal (the log of decisions).
            why: the administrator's reason; "" if none is given.

        Raises:
            Refused: the lease cannot be ended in this way.
        """

    async def clear_dead_start(self, lease: Lease) -> None:
        """End the processes of a start that the hub no longer knows, before the hub starts the server again."""

    def what_is_left(self, lease: Lease) -> str:
        """Describe for administrators the processes or the pod that are left of the server of a lease (right to a GPU).

        "" if none are known.
        """

    def processes(self, lease: Lease) -> tuple[Process, ...]:
        """Return the processes that still hold an ending lease (right to a GPU); always empty on a cluster."""

    async def end_again(self, lease: Lease) -> None:
        """End the processes or the pod that are left of a server that the hub reports as stopped."""


def adopted_lease(
    server: HubServer,
    held: Device | str,
    now: datetime,
    end_of: Callable[[Lease], datetime | None],
    pid_started: int | None = None,
) -> Lease:
    """Create the lease (right to a GPU) of an adopted server, which the service found already running.

    Args:
        server: the server, as the hub lists it.
        held: the whole device that it uses. On a cluster, the name of the device's pool (devices of one kind).
        now: by the running clock, which stands still while the hub is away.
        end_of: returns when a lease ends at the latest. `None` if no end is enforced.
        pid_started: start time of the server's process. `None` on a cluster.
    """
    device = held if isinstance(held, Device) else None
    pool = held if isinstance(held, str) else held.pool
    lease = lifecycle.adopt(
        server.user,
        server.server,
        now,
        lease_id=secrets.token_hex(8),
        pool=pool,
        device=device.identity if device else pool,
        uuid=device.uuid if device else "",
        pid=server.pid if device else None,
        pid_started=pid_started,
    )
    return replace(lease, ends_at=end_of(lease))
