"""What a spawner's own settings say of its pods, for the service that counts the cluster's GPUs.

Not here: ``c.GpuCluster`` (``core/cluster/model.py``), and whether its values are right (``loader.py``).
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
    """`config` with what the spawner's own settings say of its pods. `servers_url`: where the admin names none."""
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
    """A toleration as `ClusterConfig.tolerated` has it; without a key it is for all taints."""
    key, value, effect = (str(each.get(name) or "") for name in ("key", "value", "effect"))
    by_value = key and each.get("operator", "Equal") == "Equal"
    return f"{key or '*'}{f'={value}' if by_value else ''}{f':{effect}' if effect else ''}"


def _terms(wanted: Any) -> tuple[Term, ...] | None:
    """The required node affinity; None: there is none, or none that KubeSpawner could send."""
    try:
        listed = [_term(each) for each in (wanted.values() if isinstance(wanted, Mapping) else wanted)]
        return terms_of({"nodeSelectorTerms": listed}) if listed else None
    except (AttributeError, KeyError, TypeError):
        return None


def _term(term: Any) -> Mapping[str, Any]:
    """A NodeSelectorTerm as JSON: an admin writes it so, with the names of Python, or as an object of its client."""
    plain = _plain(term)
    names = {"matchExpressions": "match_expressions", "matchFields": "match_fields"}
    return {key: [*map(_plain, plain.get(key) or plain.get(other) or ())] for key, other in names.items()}


def _plain(value: Any) -> Any:
    return value.to_dict() if hasattr(value, "to_dict") else value


def _of_pods(c: Any, key: str, unset: Any) -> Any:
    """A setting of the spawner: our own section wins over the stock one's, as traitlets has it."""
    ours = value_of(c, "GpuKubeSpawner", key, unset)
    found = value_of(c, "KubeSpawner", key, unset) if ours is unset else ours
    return unset if found is None else found
