"""Read the KubeSpawner settings that decide on which nodes its pods run.

The GPU service needs them to count only the GPUs that servers can get.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hub_extensions.adapters.hub.hub_config import value_of
from hub_extensions.core.cluster.model import ClusterConfig, Term
from hub_extensions.core.cluster.placement import terms_of
from hub_extensions.spawner.config.loader import check_cluster


def cluster_config(c: Any, config: ClusterConfig, servers_url: str) -> ClusterConfig:
    """Return the settings of ``c.GpuCluster``, completed with KubeSpawner's settings for the pods of servers.

    The latter are the namespace, the node selector, the required node affinity and the tolerations.

    Args:
        c: the hub's configuration.
        config: the settings of ``c.GpuCluster``.
        servers_url: the address at which pods reach the GPU service, unless the administrator has set one.
    """
    check_cluster(config)
    tolerations = _of_pods(c, "tolerations", [])
    listed = tolerations.values() if isinstance(tolerations, Mapping) else tolerations
    return replace(
        config,
        namespace=str(_of_pods(c, "namespace", "")),
        node_labels={str(key): str(value) for key, value in _of_pods(c, "node_selector", {}).items()},
        node_terms=_terms(_of_pods(c, "node_affinity_required", [])),
        tolerated=tuple(_toleration(each) for each in listed if isinstance(each, Mapping)),
        servers_url=config.servers_url or servers_url,
    )


def _toleration(each: Mapping[str, Any]) -> str:
    """Return a toleration of Kubernetes as the text ``key``, ``key=value`` or ``key:effect``.

    The key ``*`` stands for a toleration without a key, which tolerates all taints.

    Args:
        each: the toleration, with the fields of Kubernetes.
    """
    key, value, effect = (str(each.get(name) or "") for name in ("key", "value", "effect"))
    by_value = key and each.get("operator", "Equal") == "Equal"
    return f"{key or '*'}{f'={value}' if by_value else ''}{f':{effect}' if effect else ''}"


def _terms(wanted: Any) -> tuple[Term, ...] | None:
    """Return the node affinity that pods require.

    None if it is not set, or is so wrong that KubeSpawner could not send it.

    Args:
        wanted: KubeSpawner's setting ``node_affinity_required``, a list or dict of NodeSelectorTerms. Each can be
            written as JSON, with Python's names, or as an object of the Kubernetes client.
    """

    def plain(value: Any) -> Any:
        return value.to_dict() if hasattr(value, "to_dict") else value

    names = {"matchExpressions": "match_expressions", "matchFields": "match_fields"}
    try:
        terms = [plain(each) for each in (wanted.values() if isinstance(wanted, Mapping) else wanted)]
        listed = [
            {key: [*map(plain, term.get(key) or term.get(other) or ())] for key, other in names.items()}
            for term in terms
        ]
        return terms_of({"nodeSelectorTerms": listed}) if listed else None
    except (AttributeError, KeyError, TypeError):
        return None


def _of_pods(c: Any, key: str, unset: Any) -> Any:
    """Return a setting of the spawner from ``c.GpuKubeSpawner`` or else from ``c.KubeSpawner``.

    Args:
        c: the hub's configuration.
        key: name of the setting.
        unset: returned if the setting is in neither section, or is None.
    """
    ours = value_of(c, "GpuKubeSpawner", key, unset)
    found = value_of(c, "KubeSpawner", key, unset) if ours is unset else ours
    return unset if found is None else found
