"""Rules about the ids of offers in values, which are compared with the devices of a cluster's nodes.

An offer is one choice of a GPU, or of a part of one, in the spawn form.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from hub_extensions.tools.helm_check.model import Findings, Release, Severity
from hub_extensions.tools.helm_check.trees import listed

_NAMING: Mapping[str, Severity] = {
    "hub.config.GpuOffers.fractions": "problem",
    "hub.config.GpuOffers.groups": "look at",
    "hub.config.GpuOffers.hidden": "look at",
    "hub.config.GpuCulling.idle_minutes_by_offer": "look at",
    "hub.config.GpuCluster.capacity": "look at",
}
"""Settings with ids of offers -> severity of an unknown id. Titles are not checked: they may be for future cards."""


def check_offers(release: Release, known: Collection[str], resources: Collection[str] = ()) -> Findings:
    """Report ids and resources that no node of the cluster has, and GPU resources that no setting maps to an offer.

    Args:
        known: the ids of all offers that the nodes can have, and ``cpu``, the offer without a GPU.
        resources: the nodes' GPU resources whose names are not NVIDIA's.
    """
    key = "hub.config.GpuOffers.resources"
    mapped = set(release.tree(key))
    fix = f"There are {listed(resources)}." if resources else "Its GPUs have the names that are known: leave it out."
    for name in mapped - set(resources):
        text = f"No node of this cluster has {name}."
        yield release.found("no-such-resource", (*key.split("."), name), text, fix, "look at")
    for name in sorted(set(resources) - mapped):
        text = f"Nodes of this cluster have GPUs as {name}, which no offer is made of."
        fix = f"Say which offer it is: {{{name}: gpu}}; or leave it to virtual machines."
        yield release.found("unknown-resource", key, text, fix, "look at")
    for key, severity in _NAMING.items():
        ids = release.at(key)
        for name in ids if isinstance(ids, (list, Mapping)) else ():
            if name not in known:
                path = (*key.split("."), name) if isinstance(ids, Mapping) else key
                text = f"No node of this cluster has {name}."
                yield release.found("no-such-offer", path, text, f"There are {listed(known)}.", severity)
