"""The lease or device of each series of dcgm-exporter, from recorded texts in both dialects of several versions."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from hub_extensions.core.gpu.dcgm import MIB, WHY, Measured, MetricSeries, PodGpu, describe, join_pods, measures
from tests.fakes.dcgm_text import OF_THE_EXPORTER, recorded, scraped

NOW = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)
AT = NOW - timedelta(seconds=5)
H100 = "gsrh100-074"
NODES = {H100, "ip-10-0-1-7", "sc-starwars-mab9-b00", "another"}
STAGE = "model-playground-stg"
TTS = PodGpu("lease-tts", STAGE, "tts-predictor-8j8pl", H100, profile="1g.10gb")
EMBEDDING = PodGpu("lease-embedding", STAGE, "text-embedding-predictor-vdtjl", H100, profile="1g.10gb")

dialects = pytest.mark.parametrize("honoured", [True, False])
generations = pytest.mark.parametrize("since_4_9", [False, True])


def lines(pod: PodGpu, **told: object) -> list[MetricSeries]:
    """The series of one device of a pod, with changes such as ``engine=0.5``, ``labels={…}``, ``at=…``, ``names=…``."""
    names = {
        "engine": "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        "card": "DCGM_FI_DEV_GPU_UTIL",
        "sm": "DCGM_FI_PROF_SM_ACTIVE",
        "memory": "DCGM_FI_DEV_FB_USED",
    }
    labels = {
        "UUID": "GPU-1",
        "Hostname": pod.node,
        "namespace": pod.namespace,
        "pod": pod.pod,
        "container": "notebook",
    }
    if pod.profile is not None:
        labels |= {"GPU_I_ID": "7", "GPU_I_PROFILE": pod.profile}
    changes = told.pop("labels", {})
    assert isinstance(changes, dict)
    labels = {name: text for name, text in (labels | changes).items() if text is not None}
    at = told.pop("at", AT)
    assert isinstance(at, datetime)
    return [MetricSeries(names.get(name, name), labels, at, value) for name, value in told.items()]  # type: ignore[arg-type]


def of(pod: PodGpu, *series: MetricSeries, nodes: object = NODES):  # type: ignore[no-untyped-def]
    """Return the use of this pod's GPU, or why it is not known."""
    joined = join_pods(series, [pod], nodes, NOW)  # type: ignore[arg-type]
    assert joined.uses.keys() | joined.missing.keys() == {pod.lease}
    return joined.uses.get(pod.lease) or joined.missing[pod.lease]


# ------------------------------------------------------------------ as it was recorded


@generations
@dialects
def test_each_pod_on_a_card_cut_into_instances_has_its_own_figures(honoured: bool, since_4_9: bool) -> None:
    text = recorded("mig").replace('tts-predictor-8j8pl"} 0.000000', 'tts-predictor-8j8pl"} 0.42')
    series = scraped(text, AT, honoured=honoured, since_4_9=since_4_9)
    joined = join_pods(series, [TTS, EMBEDDING], NODES, NOW)
    assert joined.missing == {}
    tts, embedding = joined.uses["lease-tts"], joined.uses["lease-embedding"]
    assert tts.used_percent == pytest.approx(42.0) and tts.memory_bytes == 4384 * MIB
    assert embedding.used_percent == 0.0 and embedding.memory_bytes is None, "its busy neighbour is not its own use"
    assert (tts.at, tts.source, tts.uuid) == (AT, "dcgm", ""), "a MIG device's UUID is in no label"


@generations
@dialects
def test_what_a_card_shared_over_time_does_is_no_pods_own_use(honoured: bool, since_4_9: bool) -> None:
    series = scraped(recorded("time_sliced"), AT, honoured=honoured, since_4_9=since_4_9)
    pods = [
        PodGpu(f"lease-{n}", "default", f"gpu-workload-{n}", "ip-10-0-1-7", uid=f"uid-{n}", shared=True)
        for n in (1, 2, 3)
    ]
    for wanted in (pods, [replace(pod, shared=False) for pod in pods]):
        joined = join_pods(series, wanted, NODES, NOW)
        assert joined.missing == {}
        for pod in pods:
            use = joined.uses[pod.lease]
            assert (use.used_percent, use.memory_bytes) == (None, None)
            assert use.card_percent == pytest.approx(71.4), "and 0 of programs that were not found says nothing"


@dialects
def test_the_series_of_the_card_that_a_claimed_mig_device_is_cut_from_are_not_its_own(honoured: bool) -> None:
    series = scraped(recorded("claims"), AT, honoured=honoured)
    pod = PodGpu("lease", "gpu-test4", "pod-56dbf5cf44-xnfk5", "sc-starwars-mab9-b00", profile="1g.12gb")
    assert of(pod, *series) == "whole-card"
    whole = of(replace(pod, profile=None), *series)
    assert (whole.used_percent, whole.uuid) == (0.0, "GPU-a4f34abc-7715-3560-dcea-7238b9611a45"), "a claimed whole card"


# ------------------------------------------------------------------ what an administrator is told of the labels

USE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
A_POD = {"namespace": "jhub", "pod": "jupyter-ada"}


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        (
            {"UUID": "GPU-1", "gpu": "0", "Hostname": "node-a", **A_POD},
            f"{USE} can be used: the pod is in pod, its namespace in namespace, the card in UUID; the node is in "
            "Hostname",
        ),
        (
            {
                "UUID": "GPU-1",
                "exported_pod": "jupyter-ada",
                "exported_namespace": "jhub",
                "pod": "nvidia-dcgm-exporter-x",
            },
            "can be used: the pod is in exported_pod, its namespace in exported_namespace",
        ),
        (
            {"gpu_uuid": "GPU-1", "k8s_pod_name": "jupyter-ada", "k8s_namespace_name": "jhub", "k8s_node_name": "n"},
            "the pod is in k8s_pod_name, its namespace in k8s_namespace_name, the card in gpu_uuid; the node is in "
            "k8s_node_name",
        ),
        (
            {"gpu_uuid": "GPU-1", "pod_name": "jupyter-ada", "kube_namespace": "jhub", "kube_node": "n"},
            "the pod is in pod_name, its namespace in kube_namespace, the card in gpu_uuid; the node is in kube_node",
        ),
        ({"hw_id": "GPU-1", **A_POD}, "the card in hw_id; no label is the node"),
        (
            {"hw_id": "0", "gpu": "0", **A_POD},
            "with the labels gpu, hw_id, namespace, pod cannot be used: no label is the UUID of the card",
        ),
        ({"device": "nvidia0", **A_POD}, "no label is the UUID of the card"),
        (
            {"UUID": "GPU-1", "Hostname": "node-a"},
            "with the labels Hostname, UUID has no pod: either nobody uses the card, or dcgm-exporter lacks "
            "DCGM_EXPORTER_KUBERNETES=true",
        ),
        ({"UUID": "GPU-1", "k8s_pod_name": "jupyter-ada"}, "cannot be used: k8s_pod_name is a pod, and no label its"),
        ({"UUID": "GPU-1", "pod_name": "jupyter-ada"}, "cannot be used: pod_name is a pod, and no label its"),
        (
            {"UUID": "GPU-1", "k8s_pod_name": "nvidia-dcgm-exporter-x", "k8s_namespace_name": "gpu-operator"},
            "has the exporter's own pod in k8s_pod_name: either nobody uses the card, or dcgm-exporter lacks",
        ),
        (
            {"__name__": "hw_gpu_utilization_ratio", "hw_id": "GPU-1", "host_name": "node-a"},
            "with the labels host_name, hw_id cannot be used: OpenTelemetry's collector of GPUs writes it",
        ),
        ({"__name__": "dcgm_gpu_utilization", "gpu_uuid": "GPU-1"}, "cannot be used: Datadog's check of dcgm-exporter"),
        ({"__name__": "nvidia_smi_utilization_gpu_ratio", "uuid": "1"}, "cannot be used: nvidia_gpu_exporter"),
    ],
)
def test_the_labels_that_a_pipeline_writes_are_described_and_whether_they_can_be_used(
    labels: dict[str, str], text: str
) -> None:
    (found,) = describe([{"__name__": USE, **labels}, {"__name__": USE, **labels}])
    assert text in found and found.endswith("(2 series).")


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        ({"UUID": "GPU-1", **A_POD}, "can be used"),
        ({"device": "nvidia0", **A_POD}, "no label is the UUID of the card"),
        ({"UUID": "GPU-1", "pod_name": "jupyter-ada"}, "pod_name is a pod, and no label its namespace"),
    ],
)
def test_a_card_that_nobody_uses_is_no_finding_beside_one_that_a_pod_uses(labels: dict[str, str], text: str) -> None:
    free, used = {"__name__": USE, "UUID": "GPU-2"}, {"__name__": USE, **labels}
    assert len(describe([free])) == 1
    (found,) = describe([free, used])
    assert text in found


# ------------------------------------------------------------------ each trap


ADA = PodGpu("ada", "jhub", "jupyter-ada", "node-a", uid="u1", since=NOW - timedelta(hours=1), profile="1g.5gb")
CARD = replace(ADA, profile=None)
HERE = {"node-a", "node-b"}


@pytest.mark.parametrize(
    ("pod", "labels", "why"),
    [
        (replace(ADA, node=""), {}, "no-pod"),
        (ADA, {"pod": "jupyter-ben"}, "pod-not-named"),
        (ADA, {"namespace": "other"}, "pod-not-named"),
        (ADA, {"pod": None}, "pod-not-named"),
        (ADA, {"pod_uid": "u0"}, "older-pod"),
        (ADA, {"Hostname": "node-b"}, "other-node"),
        (ADA, {"Hostname": None, "hostname": "node-b"}, "other-node"),
        (ADA, {"Hostname": "exporter-x", "node": "node-b"}, "other-node"),
        (ADA, {"GPU_I_PROFILE": "2g.10gb"}, "other-profile"),
        (ADA, {"GPU_I_ID": None, "GPU_I_PROFILE": None}, "whole-card"),
        (CARD, {"GPU_I_ID": "7", "GPU_I_PROFILE": "1g.5gb"}, "other-profile"),
        (replace(CARD, devices=2), {}, "partly"),
        (CARD, {"UUID": None}, "no-card"),
        (CARD, {"UUID": None, "hw_id": "0", "gpu": "0", "device": "nvidia0"}, "no-card"),
        (ADA, {"Hostname": None, "k8s_node_name": "node-b"}, "other-node"),
        (ADA, {"Hostname": None, "kube_node": "node-b"}, "other-node"),
        (ADA, {"pod": None, "pod_name": "jupyter-ada", "kube_namespace": "other"}, "pod-not-named"),
        (ADA, {"pod": None, "k8s_pod_name": "jupyter-ada"}, "pod-not-named"),
        (ADA, {"pod": None, "pod_name": "jupyter-ada"}, "pod-not-named"),
        (replace(ADA, factor=None), {}, "no-scale"),
    ],
)
def test_a_series_that_names_the_pod_but_not_its_gpu_is_ignored(pod: PodGpu, labels: dict[str, str], why: str) -> None:
    assert of(pod, *lines(pod, engine=0.0, labels=labels), nodes=HERE) == why
    assert WHY[why]


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"pod_uid": "u1"},
        {"Hostname": None, "hostname": "node-a"},
        {"Hostname": "nvidia-dcgm-exporter-lb6zk"},
        {"Hostname": "nvidia-dcgm-exporter-lb6zk", "node": "node-a"},
        {"container": "another"},
        {"GPU_I_PROFILE": "1G.5GB"},
        {"GPU_I_PROFILE": "MIG 1g.5gb"},
        {"GPU_I_PROFILE": None},
        {"GPU_I_PROFILE": ""},
        {"Hostname": "NODE-A"},
        {"Hostname": "node-a.example.org"},
        {"Hostname": None, "kubernetes_node": "node-a"},
        {"Hostname": "nvidia-dcgm-exporter-lb6zk", "instance": "node-a:9400"},
        {"Hostname": "nvidia-dcgm-exporter-lb6zk", "nodename": "node-a"},
        {"pod": None, "namespace": None, "pod_name": "jupyter-ada", "pod_namespace": "jhub"},
        {"pod": None, "namespace": None, "pod_name": "jupyter-ada", "kube_namespace": "jhub", "kube_node": "node-a"},
        {"pod": None, "namespace": None, "k8s_pod_name": "jupyter-ada", "k8s_namespace_name": "jhub"},
        {"k8s_pod_name": "nvidia-dcgm-exporter-lb6zk", "k8s_namespace_name": "gpu-operator"},
        {"UUID": None, "gpu_uuid": "GPU-1", "Hostname": None, "k8s_node_name": "node-a"},
        {"UUID": None, "hw_id": "GPU-1", "Hostname": None, "host_name": "node-a"},
        {"hw_id": "0"},
        {
            "UUID": None,
            "uuid": "GPU-1",
            "GPU_I_ID": None,
            "gpu_i_id": "7",
            "GPU_I_PROFILE": None,
            "gpu_i_profile": "1g.5gb",
        },
    ],
)
def test_a_series_that_cannot_be_distinguished_from_the_pods_own_counts_as_its_own(labels: dict[str, str]) -> None:
    assert of(ADA, *lines(ADA, engine=0.25, labels=labels), nodes=HERE).used_percent == 25.0


@pytest.mark.parametrize("name", ["node-a", "Node-A", "node-a.example.org"])
@pytest.mark.parametrize("label", ["Hostname", "hostname", "node", "kubernetes_node", "node_name", "exported_node"])
def test_a_node_is_known_under_each_label_and_spelling_of_its_name(label: str, name: str) -> None:
    """With exporters that name other nodes too: a spelling of its own was told as another node."""
    ben = replace(ADA, lease="ben", pod="jupyter-ben", node="node-b")
    series = [
        *lines(ADA, engine=0.5, labels={"Hostname": None, label: name}),
        *lines(ben, engine=0.0, labels={"UUID": "GPU-2"}),
    ]
    joined = join_pods(series, [ADA, ben], HERE, NOW)
    assert joined.missing == {} and joined.uses["ada"].used_percent == 50.0
    full = replace(ADA, node="node-a.example.org")
    assert join_pods(series, [full], {"node-a.example.org", "node-b"}, NOW).missing == {}
    assert join_pods(series, [replace(ADA, node="node-c")], {*HERE, "node-c"}, NOW).missing == {"ada": "other-node"}


def test_a_pod_of_the_same_name_in_another_cluster_is_another_pod() -> None:
    """One Prometheus may read several clusters: where exporters write their nodes' names, others are not of here."""
    own = lines(ADA, engine=0.75)
    others = lines(ADA, engine=0.0, labels={"Hostname": "node-of-another-cluster", "UUID": "GPU-2"})
    assert of(ADA, *own, *others, nodes=HERE).used_percent == 75.0
    ben = replace(ADA, lease="ben", pod="jupyter-ben")
    joined = join_pods([*own, *lines(ben, engine=0.0, labels={"Hostname": "elsewhere"})], [ADA, ben], HERE, NOW)
    assert joined.missing == {"ben": "other-node"}


@pytest.mark.parametrize(
    ("labels", "named", "why"),
    [
        ({"Hostname": "node-of-another-cluster"}, True, "other-node"),
        ({"Hostname": "node-of-another-cluster", "pod_uid": "u1"}, True, "other-node"),
        ({"Hostname": "node-of-another-cluster"}, False, None),
        ({"Hostname": "exporter-x", "node": "node-a"}, True, None),
    ],
)
def test_while_its_own_exporters_are_away_another_clusters_figure_says_nothing_where_they_wrote_their_nodes_names(
    labels: dict[str, str], named: bool, why: str | None
) -> None:
    joined = join_pods(lines(ADA, engine=0.0, labels=labels), [ADA], HERE, NOW, named=named)
    assert joined.missing.get("ada") == why and ("ada" in joined.uses) is (why is None)


@pytest.mark.parametrize(
    ("labels", "named"), [({}, True), ({"Hostname": "exporter-x"}, False), ({"Hostname": "elsewhere"}, False)]
)
def test_that_exporters_write_their_nodes_names_is_seen_by_one_name_of_ours(
    labels: dict[str, str], named: bool
) -> None:
    assert join_pods(lines(ADA, engine=0.0, labels=labels), [ADA], HERE, NOW).named is named


def test_an_exporter_in_the_namespace_of_the_servers_is_not_taken_for_one() -> None:
    labels = {**OF_THE_EXPORTER, "namespace": "jhub", "pod": "jupyter-ada", "exported_namespace": "jhub"}
    assert of(ADA, *lines(ADA, engine=0.0, labels={**labels, "exported_pod": "jupyter-ben"})) == "pod-not-named"


def test_a_profile_with_media_engines_is_written_with_a_plus_or_a_dot() -> None:
    pod = replace(ADA, profile="1g.10gb.me")
    assert of(pod, *lines(pod, engine=0.5, labels={"GPU_I_PROFILE": "1g.10gb+me"})).used_percent == 50.0


def test_a_sample_from_before_a_pod_was_made_is_of_an_older_pod_of_its_name() -> None:
    young = replace(ADA, since=NOW - timedelta(seconds=3))
    assert of(young, *lines(young, engine=0.0), nodes=HERE) == "older-pod"
    assert of(young, *lines(young, engine=0.0, at=NOW), nodes=HERE).used_percent == 0.0
    assert of(young, *lines(young, engine=0.0, at=young.since), nodes=HERE).used_percent == 0.0, "of its first moment"


def test_a_device_that_several_pods_have_is_shared_though_nothing_says_so() -> None:
    ben = replace(ADA, lease="ben", pod="jupyter-ben", uid="u2")
    series = [*lines(ADA, engine=0.9), *lines(ben, engine=0.9)]
    joined = join_pods(series, [ADA, ben], HERE, NOW)
    assert [(use.used_percent, use.card_percent) for use in joined.uses.values()] == [(None, 90.0), (None, 90.0)]
    gone = [*lines(ADA, engine=0.9), *lines(ben, engine=0.9, at=NOW - timedelta(seconds=90))]
    assert join_pods(gone, [ADA], HERE, NOW).uses["ada"].used_percent == 90.0, "who had it before is no neighbour"


def test_a_place_on_a_card_is_shared_though_its_neighbours_are_in_a_namespace_nobody_asked_about() -> None:
    use = of(CARD, *lines(CARD, engine=0.8, labels={"vgpu": "2"}))
    assert (use.used_percent, use.card_percent) == (None, 80.0)


def test_several_cards_of_a_pod_are_as_busy_as_the_busiest_and_their_memory_is_added() -> None:
    two = replace(CARD, devices=2)
    first = lines(two, engine=0.0, memory=100.0)
    second = lines(two, engine=0.3, memory=50.0, labels={"UUID": "GPU-2"})
    use = of(two, *first, *second)
    assert (use.used_percent, use.memory_bytes, use.uuid) == (30.0, 150 * MIB, "")
    assert of(two, *first, *lines(two, memory=50.0, labels={"UUID": "GPU-2"})) == "none"


# ------------------------------------------------------------------ units, generations, and what is no figure


@pytest.mark.parametrize(
    ("told", "percent"),
    [
        ({"engine": 0.5}, 50.0),
        ({"DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO": 0.5}, 50.0),
        ({"engine": 0.2, "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO": 0.5}, 50.0),
        ({"engine": 0.0, "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO": 0.9}, 90.0),
        ({"card": 0.0, "DCGM_FI_DEV_GPU_UTIL_RATIO": 0.9}, 90.0),
        ({"engine": 0.0, "card": 99.0}, 99.0),
        ({"engine": 0.4, "card": 1.0}, 40.0),
        ({"card": 1.0}, 1.0),
        ({"DCGM_FI_DEV_GPU_UTIL_RATIO": 0.01}, 1.0),
        ({"engine": 0.02, "sm": 1.3}, 100.0),
    ],
)
def test_both_generations_and_units_are_percent_and_the_greatest_counts(told: dict[str, float], percent: float) -> None:
    assert of(CARD, *lines(CARD, **told)).used_percent == pytest.approx(percent)


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"sm": 0.0, "memory": 5.0}, "none"),
        ({"engine": None}, "no-number"),
        ({"engine": -0.1}, "no-number"),
        ({"engine": 140737488355328.0}, "no-number"),
        ({"DCGM_FI_DEV_GPU_UTIL_RATIO": 37.0}, "no-number"),
        ({"card": 0.9}, "no-number"),  # a ratio under the name of percents: it is no idle card
        ({"engine": 37.0}, "no-number"),
        ({"engine": 0.0, "at": NOW - timedelta(seconds=61)}, "old"),
        ({"engine": 0.0, "at": NOW + timedelta(seconds=61)}, "old"),
        ({"card": 0.0, "labels": {"pod_uid": "u1"}}, "none"),
    ],
)
def test_a_value_that_is_not_current_is_unknown(told: dict[str, object], why: str) -> None:
    assert of(CARD, *lines(CARD, **told)) == why


def test_the_card_figure_of_a_mig_device_is_always_0_and_says_nothing() -> None:
    """NVIDIA/dcgm-exporter#216."""
    assert of(ADA, *lines(ADA, card=0.0)) == "none"


@pytest.mark.parametrize(
    ("labels", "engine", "expected"),
    [
        ({"namespace": "tenant", "UUID": "GPU-2"}, 0.0, 75.0),  # a pod of the same name that is not ours
        ({"namespace": "tenant"}, 0.0, None),  # and is on the same device, as it says: whose work it is nobody knows
        ({"namespace": "tenant", "exported_namespace": "jhub", "exported_pod": "jupyter-ada"}, 0.0, "differ"),
        ({"instance": "forged"}, 0.0, "differ"),
        ({"instance": "forged"}, 1.0, "differ"),
        ({"instance": "a-twin"}, 0.75, 75.0),
    ],
)
def test_a_series_of_another_tenant_makes_nobody_idle(
    labels: dict[str, str], engine: float, expected: float | str | None
) -> None:
    use = of(ADA, *lines(ADA, engine=0.75), *lines(ADA, engine=engine, labels=labels))
    assert (use if isinstance(use, str) else use.used_percent) == expected


def test_two_exporters_that_disagree_are_not_believed() -> None:
    twice = [*lines(ADA, engine=0.0), *lines(ADA, engine=0.5, labels={"instance": "2"})]
    assert of(ADA, *twice) == "differ"


@pytest.mark.parametrize(("memory", "size"), [(140737488355328.0, None), (None, None), (0.0, 0)])
def test_an_empty_memory_value_is_unknown(memory: float | None, size: int | None) -> None:
    assert of(ADA, *lines(ADA, engine=0.0, memory=memory)).memory_bytes == size
    new = lines(ADA, engine=0.0, DCGM_FI_DEV_FB_USED_BYTES=512.0 * MIB)
    assert of(ADA, *new).memory_bytes == 512 * MIB


# ------------------------------------------------------------------ before anybody has one


@pytest.mark.parametrize(
    ("profile", "nodes", "expected"),
    [
        ("1g.5gb", {"a"}, True),
        ("1g.5gb", {"b"}, False),
        ("2g.10gb", {"a"}, False),
        (None, {"b"}, True),
        ("1g.5gb", {"c"}, False),
    ],
)
def test_whether_a_kind_of_gpu_is_measured_is_known_before_anybody_has_one(
    profile: str | None, nodes: set[str], expected: bool
) -> None:
    kinds = {Measured(frozenset({"a"}), "1g.5gb"), Measured(frozenset({"b"}), "")}
    assert measures(kinds, profile, nodes, {"a", "b", "c"}) is expected
    assert not measures((), profile, nodes)


def test_one_node_that_an_exporter_names_is_enough_to_compare_nodes() -> None:
    kinds = {Measured(frozenset({"a"}), "1g.5gb"), Measured(frozenset({"nvidia-dcgm-exporter-lb6zk"}), "1g.5gb")}
    assert measures(kinds, "1g.5gb", {"a"}, {"a", "b"}) and not measures(kinds, "1g.5gb", {"b"}, {"a", "b"})


def test_where_exporters_write_names_of_their_own_any_of_them_may_be_on_the_node() -> None:
    kinds = {Measured(frozenset({"nvidia-dcgm-exporter-lb6zk"}), "1g.5gb")}
    assert measures(kinds, "1g.5gb", {"a"}, {"a", "b"}) and not measures(kinds, None, {"a"}, {"a", "b"})
