"""What a spawner's own settings say of its pods, as the service has it."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes_asyncio.client.models import V1NodeSelectorRequirement, V1NodeSelectorTerm
from traitlets.config import Config

from hub_extensions.core.cluster.model import ClusterConfig, Requirement
from hub_extensions.spawner.config.pod_settings import cluster_config

USER = {"key": "hub.jupyter.org/node-purpose", "operator": "In", "values": ["user"]}
USERS = (Requirement("hub.jupyter.org/node-purpose", "In", ("user",)),)
OF_A = (Requirement("metadata.name", "In", ("a",), of_field=True),)


def read(**sections: Any) -> ClusterConfig:
    return cluster_config(Config(sections), ClusterConfig(), "http://proxy/services/gpu")


@pytest.mark.parametrize(
    ("wanted", "terms"),
    [
        ([], None),
        ([{"matchExpressions": [USER]}], (USERS,)),
        ([{"match_expressions": [USER]}], (USERS,)),
        ([V1NodeSelectorTerm(match_expressions=[V1NodeSelectorRequirement(**USER)])], (USERS,)),
        ({"z": {"matchExpressions": [USER]}, "a": {}}, (USERS, ())),
        ([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}], (OF_A,)),
        ([{"matchExpressions": [{"operator": "In"}]}], None),
        (["pool"], None),
    ],
)
def test_required_node_affinity_is_read_as_kubespawner_takes_it(wanted: Any, terms: Any) -> None:
    assert read(KubeSpawner={"node_affinity_required": wanted}).node_terms == terms
    assert read().node_terms is None


def test_our_own_section_comes_first_and_what_a_chart_appends_is_there() -> None:
    stock = {"node_affinity_required": [{"matchExpressions": [USER]}], "tolerations": [{"key": "x"}]}
    ours: dict[str, Any] = {"node_affinity_required": [], "tolerations": []}
    found = read(KubeSpawner=stock, GpuKubeSpawner=ours)
    assert (found.node_terms, found.tolerated) == (None, ())
    c = Config()
    c.KubeSpawner.node_affinity_required.append({"matchExpressions": [USER]})
    c.KubeSpawner.tolerations.append({"key": "x", "operator": "Exists"})
    found = cluster_config(c, ClusterConfig(), "")
    assert (found.node_terms, found.tolerated) == ((USERS,), ("x",))
