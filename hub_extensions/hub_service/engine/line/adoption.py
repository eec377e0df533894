"""The lease of a server that ran before this product did: it holds what it holds, and is treated as any other.

Not here: how it is found out what it holds (``reconcile.py`` on one machine, ``cluster_leases.py`` on a cluster).
"""

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
    """The lease over a whole device, or over one of a cluster's pool (by the pool's id)."""
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
