"""The lease of a server that ran before this product did: it holds what it holds, and is treated as any other.

Not here: how it is found out what it holds (``reconcile.py`` on one machine, ``pods.py`` on a cluster).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from hub_extensions.adapters.hub_api import HubServer
from hub_extensions.core.inventory import WHOLE, Device
from hub_extensions.core.line import Lease, LeaseState


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
    lease = Lease(
        id=secrets.token_hex(8),
        ticket="",
        user=server.user,
        server=server.server,
        offer=pool,
        device=device.identity if device else pool,
        uuid=device.uuid if device else "",
        pool=pool,
        share=WHOLE,
        state=LeaseState.RUNNING,
        since=now,
        ready_at=now,
        ends_at=None,
        pid=server.pid if device else None,
        pid_started=pid_started,
        adopted=True,
    )
    return replace(lease, ends_at=end_of(lease))


__all__ = ["adopted_lease"]
