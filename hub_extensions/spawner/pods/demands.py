"""Find what the pod of a start requires of a node, before the start joins the line.

With the requirements, the service assigns the start only GPUs on nodes that the pod may use. To find them, KubeSpawner
builds the manifest as it does at the launch, with the overrides of profile and group and the administrator's hooks.
Nothing is created in the cluster.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from jupyterhub.utils import maybe_future

from hub_extensions.adapters.linux.timeouts import with_timeout
from hub_extensions.core.cluster.placement import PodDemands, demands_of
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.offers.pod_request import OFFER_LABEL, label_value

if TYPE_CHECKING:
    from hub_extensions.spawner.pods.pod_spawner import PodSpawner

LONGEST_SECONDS = 10.0
"""Time limit for building the manifest, including the administrator's hooks."""


async def pod_demands(spawner: PodSpawner, offer: OfferId) -> PodDemands | None:
    """Return what the pod of a start with this offer will require of a node, such as labels and tolerations.

    None if that cannot be found, because a hook fails or takes too long. The start then waits for any node.
    """
    try:
        return await with_timeout(LONGEST_SECONDS, _described(spawner, offer))
    except asyncio.TimeoutError:
        why = f"it takes longer than {LONGEST_SECONDS:g} s to describe it"
    except Exception as error:  # noqa: BLE001  hooks may raise anything, and the start itself will report it again
        why = f"{type(error).__name__}: {error}"
    spawner.log.warning(
        "%s: which nodes its pod may use is not known before its start, so it waits for any: %s", spawner._log_name, why
    )
    return None


async def _described(spawner: PodSpawner, offer: OfferId) -> PodDemands:
    await spawner.load_user_options()
    pod = await spawner.gpu_plain_manifest()
    pod.metadata.labels = {**(pod.metadata.labels or {}), OFFER_LABEL: label_value(offer)}
    if spawner.modify_pod_hook:
        pod = await maybe_future(spawner.modify_pod_hook(spawner, pod))
    described = spawner.api.api_client.sanitize_for_serialization(pod)
    return demands_of(described, described["metadata"].get("namespace") or spawner.namespace)
