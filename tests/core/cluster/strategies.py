"""Random clusters for tests: nodes of every kind, with pods of this hub and of others."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from hub_extensions.core.cluster.model import ClusterView, NodeFacts, PodFacts, Taint
from tests.fakes.cluster_table import HOME, node, pod

PRODUCTS = ("NVIDIA-A100-SXM4-40GB", "NVIDIA-H100-80GB-HBM3", "Tesla-T4", "")
RESOURCES = ("gpu", "gpu.shared", "mig-1g.5gb", "mig-2g.10gb", "mig-1g.10gb.me")
LABELS = (
    {},
    {"nvidia.com/gpu.sharing-strategy": "time-slicing", "nvidia.com/gpu.replicas": "4"},
    {"nvidia.com/gpu.sharing-strategy": "mps", "nvidia.com/gpu.replicas": "2"},
    {"nvidia.com/mig.config.state": "pending"},
)


@st.composite
def nodes(draw: st.DrawFn, name: str) -> NodeFacts:
    resources = draw(st.lists(st.tuples(st.sampled_from(RESOURCES), st.integers(0, 8)), max_size=3))
    made = node(name, *resources, product=draw(st.sampled_from(PRODUCTS)), labels=draw(st.sampled_from(LABELS)))
    taints = draw(st.sampled_from(((), (), (Taint("team", "a", "NoSchedule"),))))
    return replace(made, taints=taints, cordoned=draw(st.integers(0, 9)) == 0, ready=draw(READY))


READY = st.sampled_from((True, True, True, True, False, None))


@st.composite
def pods(draw: st.DrawFn, number: int, on: tuple[str, ...]) -> PodFacts:
    lease = draw(st.sampled_from(("", f"lease-{number}")))
    return pod(
        f"pod-{number}",
        draw(st.sampled_from(("", *on))),
        asks=draw(st.sampled_from(RESOURCES)),
        count=draw(st.integers(1, 2)),
        phase=draw(st.sampled_from(("Pending", "Running", "Running", "Succeeded", "Failed"))),
        lease=lease,
        namespace=HOME if lease else "others",
    )


@st.composite
def views(draw: st.DrawFn) -> ClusterView:
    names = [f"n{number}" for number in range(draw(st.integers(0, 4)))]
    there = {name: draw(nodes(name)) for name in names}
    running = [draw(pods(number, tuple(names))) for number in range(draw(st.integers(0, 8)))]
    return ClusterView(there, {each.uid: each for each in running}, namespace=HOME)
