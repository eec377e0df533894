"""Has a server that does not run a place in line? After a restart of the hub its page says so, and leads on.

Not here: the page itself (``templates/not_running.html``), and the line (the service keeps it).
"""

from __future__ import annotations

from typing import Any

from hub_extensions.adapters.gpu_service import ServiceAway, ServiceRefused, gpu_service
from hub_extensions.core.offers.offer_id import CPU
from hub_extensions.spawner.pages.spawn_form import last_offers

KEPT = "kept"
UNKNOWN = "unknown"
NONE = ""


async def queue_place(spawner: Any) -> str:
    """KEPT, NONE, or UNKNOWN: a GPU was chosen last, and the service does not answer."""
    service = gpu_service(spawner.gpu_service_url, spawner.gpu_hub_secret, spawner.gpu_service_account)
    try:
        state = await service.form(spawner.user.name, spawner.name, spawner.gpu_groups, admin=False)
    except ServiceAway:
        return UNKNOWN if any(offer != CPU for offer in last_offers(spawner)) else NONE
    except ServiceRefused as error:
        spawner.log.warning("%s: whether it has a place in line is not known: %s", spawner._log_name, error)
        return NONE
    return KEPT if spawner.name in state.in_line else NONE
