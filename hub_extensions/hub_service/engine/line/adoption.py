"""Leases of servers that ran before this product did."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from hub_extensions.adapters.hub.jupyterhub_api import HubServer
from hub_extensions.core.gpu.devices import Device
from hub_extensions.core.queue import lifecycle
from hub_extensions.core.queue.model import Lease


def adopted_lease(
    server: HubServer,
    held: Device | str,
    now: datetime,
    end_of: Callable[[Lease], datetime | None],
    pid_started: int | None = None,
) -> Lease:
    """Create the lease of an adopted server.

    Args:
        held: the whole device that it uses, or, on a cluster, the pool of one device.
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
