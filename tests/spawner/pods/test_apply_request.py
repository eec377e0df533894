"""What each mechanism does to the pod that KubeSpawner made: that, and nothing else."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes_asyncio.client import ApiClient, Configuration
from kubespawner.objects import make_pod

from hub_extensions.core.offers.pod_request import LEASE_LABEL, OFFER_LABEL, AskError, Mechanism, PodAsk
from hub_extensions.spawner.pods.apply_request import CPU_ASK, apply
from tests.examples import many

MIG = PodAsk(Mechanism.MIG, limits={"nvidia.com/mig-1g.5gb": "1"}, tolerations=("nvidia.com/gpu",))
KAI = PodAsk(
    Mechanism.KAI_FRACTION,
    annotations={"gpu-fraction": "0.5", "gpu-fraction-container-name": "notebook"},
    labels={"kai.scheduler/queue": "lab"},
    scheduler="kai-scheduler",
    queue="KAI",
)
KAI_MEMORY = replace(
    KAI,
    mechanism=Mechanism.KAI_MEMORY,
    annotations={"gpu-memory": "8192"},
    environment={"TF_FORCE_GPU_ALLOW_GROWTH": "true"},
)
HAMI = PodAsk(
    Mechanism.HAMI,
    limits={"nvidia.com/gpu": "1", "nvidia.com/gpumem": "4096", "nvidia.com/gpucores": "30"},
    scheduler="default-scheduler",
)
MPS = PodAsk(Mechanism.MPS, limits={"nvidia.com/gpu.shared": "1"}, forbids_shm=True)
DRA = PodAsk(Mechanism.DRA, claim_template="mig-1g-10gb")
SHM = [{"name": "shm", "mountPath": "/dev/shm/"}]


@pytest.fixture(scope="module")
def as_json() -> Iterator[Any]:
    """A pod as it goes to the API server."""
    serialize = ApiClient.sanitize_for_serialization
    client = object.__new__(ApiClient)
    client.configuration = Configuration()
    yield lambda pod: serialize(client, pod)


def a_pod(**more: Any) -> Any:
    facts: dict[str, Any] = {
        "name": "jupyter-ada",
        "image": "lab:1",
        "image_pull_policy": "IfNotPresent",
        "cmd": ["jupyterhub-singleuser"],
        "port": 8888,
        "env": {"HOME": "/home/ada"},
        "labels": {"component": "singleuser-server"},
        "mem_limit": 2**30,
        "cpu_limit": 2,
    }
    return make_pod(**{**facts, **more})


def applied(ask: PodAsk, pod: Any, shm: str = "") -> Any:
    return apply(ask, pod, lease="l1", offer="mig-1g.5gb", shm=shm)


def difference(before: Any, after: Any, path: str = "") -> dict[str, Any]:
    """What is new or other in `after`; what was taken away is None."""
    if isinstance(before, dict) and isinstance(after, dict):
        found: dict[str, Any] = {}
        for key in sorted({*before, *after}):
            found |= difference(before.get(key), after.get(key), f"{path}.{key}")
        return found
    return {} if before == after else {path.lstrip("."): after}


def changes(as_json: Any, ask: PodAsk, pod: Any, shm: str = "") -> dict[str, Any]:
    before = as_json(pod)
    after = as_json(applied(ask, pod, shm).pod)
    assert as_json(pod) == before, "the pod it was given is left as it was"
    for each in (before, after):
        each["spec"]["container"] = each["spec"].pop("containers")[0]
    return difference(before, after)


LABELS = {
    f"metadata.labels.{LEASE_LABEL}": "l1",
    f"metadata.labels.{OFFER_LABEL}": "mig-1g.5gb",
    "spec.container.terminationMessagePolicy": "FallbackToLogsOnError",
}
ENV = [{"name": "HOME", "value": "/home/ada"}]


def test_mig_changes_limits_tolerations_labels_and_what_is_kept_of_a_log_and_nothing_else(as_json: Any) -> None:
    assert changes(as_json, MIG, a_pod()) == {
        **LABELS,
        "spec.container.resources.limits.nvidia.com/mig-1g.5gb": "1",
        "spec.tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    }


@pytest.mark.parametrize(
    ("ask", "wanted"),
    [
        (
            PodAsk(Mechanism.WHOLE, limits={"nvidia.com/gpu": "1"}, runtime_class="nvidia"),
            {"spec.container.resources.limits.nvidia.com/gpu": "1", "spec.runtimeClassName": "nvidia"},
        ),
        (
            PodAsk(
                Mechanism.MIG_SINGLE,
                limits={"nvidia.com/gpu": "1"},
                node_labels={"nvidia.com/gpu.product": ("NVIDIA-A100-MIG-1g.5gb",)},
            ),
            {
                "spec.container.resources.limits.nvidia.com/gpu": "1",
                "spec.affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {
                                    "matchExpressions": [
                                        {
                                            "key": "nvidia.com/gpu.product",
                                            "operator": "In",
                                            "values": ["NVIDIA-A100-MIG-1g.5gb"],
                                        }
                                    ]
                                }
                            ]
                        }
                    }
                },
            },
        ),
        (
            PodAsk(
                Mechanism.TIME_SLICING,
                limits={"nvidia.com/gpu.shared": "1"},
                environment={"TF_FORCE_GPU_ALLOW_GROWTH": "true"},
            ),
            {
                "spec.container.resources.limits.nvidia.com/gpu.shared": "1",
                "spec.container.env": [*ENV, {"name": "TF_FORCE_GPU_ALLOW_GROWTH", "value": "true"}],
            },
        ),
        (MPS, {"spec.container.resources.limits.nvidia.com/gpu.shared": "1"}),
        (
            HAMI,
            {
                "spec.container.resources.limits.nvidia.com/gpu": "1",
                "spec.container.resources.limits.nvidia.com/gpumem": "4096",
                "spec.container.resources.limits.nvidia.com/gpucores": "30",
            },
        ),
        (
            KAI,
            {
                "metadata.annotations.gpu-fraction": "0.5",
                "metadata.annotations.gpu-fraction-container-name": "notebook",
                "metadata.labels.kai.scheduler/queue": "lab",
                "spec.schedulerName": "kai-scheduler",
            },
        ),
        (
            KAI_MEMORY,
            {
                "metadata.annotations.gpu-memory": "8192",
                "metadata.labels.kai.scheduler/queue": "lab",
                "spec.container.env": [*ENV, {"name": "TF_FORCE_GPU_ALLOW_GROWTH", "value": "true"}],
                "spec.schedulerName": "kai-scheduler",
            },
        ),
        (
            DRA,
            {
                "spec.resourceClaims": [{"name": "jupyterhub-gpu", "resourceClaimTemplateName": "mig-1g-10gb"}],
                "spec.container.resources.claims": [{"name": "jupyterhub-gpu"}],
            },
        ),
        (
            replace(MIG, tolerations=(), labels={"kueue.x-k8s.io/queue-name": "lab"}, queue="Kueue"),
            {
                "metadata.labels.kueue.x-k8s.io/queue-name": "lab",
                "spec.container.resources.limits.nvidia.com/mig-1g.5gb": "1",
            },
        ),
    ],
    ids=lambda value: value.mechanism.value if isinstance(value, PodAsk) else "",
)
def test_every_mechanism_changes_what_it_has_to_and_nothing_else(
    as_json: Any, ask: PodAsk, wanted: dict[str, Any]
) -> None:
    assert changes(as_json, ask, a_pod()) == {**LABELS, **wanted}


def test_cpu_only_sees_no_gpu_whatever_the_image_or_a_profile_says(as_json: Any) -> None:
    pod = a_pod(
        env={"NVIDIA_VISIBLE_DEVICES": "all"},
        extra_resource_limits={"nvidia.com/gpu": "1", "example.com/fpga": "1"},
        extra_resource_guarantees={"nvidia.com/gpu": "1"},
    )
    done = apply(CPU_ASK, pod, lease="", offer="cpu", shm="")
    container = as_json(done.pod)["spec"]["containers"][0]
    assert {e["name"]: e["value"] for e in container["env"]} == {
        "NVIDIA_VISIBLE_DEVICES": "void",
        "CUDA_VISIBLE_DEVICES": "void",
    }
    assert container["resources"]["limits"] == {"cpu": 2, "memory": 2**30, "example.com/fpga": "1"}
    assert container["resources"]["requests"] == {}
    assert LEASE_LABEL not in done.pod.metadata.labels
    assert done.notes == (
        "nvidia.com/gpu=1 of your own limits is left out: the GPU comes with the offer",
        "nvidia.com/gpu=1 of your own requests is left out: the GPU comes with the offer",
    )


def test_a_gpu_of_a_profile_gives_way_to_the_offers(as_json: Any) -> None:
    pod = a_pod(
        env={"CUDA_VISIBLE_DEVICES": "0", "NVIDIA_VISIBLE_DEVICES": "all"},
        extra_resource_limits={"nvidia.com/gpu": "2", "nvidia.com/hostdev": "1"},
        annotations={"gpu-fraction": "0.5"},
    )
    done = applied(MIG, pod)
    container = as_json(done.pod)["spec"]["containers"][0]
    assert container["resources"]["limits"] == {
        "cpu": 2,
        "memory": 2**30,
        "nvidia.com/hostdev": "1",
        "nvidia.com/mig-1g.5gb": "1",
    }
    assert container["env"] == [], "which devices are visible is the cluster's word alone"
    assert done.pod.metadata.annotations == {}
    assert len(done.notes) == 2


def test_a_gpu_of_a_side_container_is_left_and_named() -> None:
    pod = a_pod(extra_containers=[{"name": "side", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}])
    done = applied(MIG, pod)
    assert done.notes == ("container side asks for a GPU of its own, outside of every lease",)


def test_affinity_is_anded_to_every_term_an_admin_has(as_json: Any) -> None:
    zones = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]} for zone in ("a", "b")] + [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
        {},
    ]
    ask = replace(MIG, node_labels={"nvidia.com/gpu.product": ("A100", "A30"), "nvidia.com/mps.capable": ()})
    pod = as_json(applied(ask, a_pod(node_affinity_required=zones)).pod)
    terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    ours = [
        {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["A100", "A30"]},
        {"key": "nvidia.com/mps.capable", "operator": "DoesNotExist"},
    ]
    assert [term.get("matchExpressions") for term in terms[:2]] == [
        [*zones[0]["matchExpressions"], *ours],
        [*zones[1]["matchExpressions"], *ours],
    ]
    assert terms[2] == {**zones[2], "matchExpressions": ours}
    assert terms[3] == {}, "an empty term matches nothing, and goes on doing so"


def test_affinity_given_as_plain_pod_config_is_kept(as_json: Any) -> None:
    pod = a_pod(
        extra_pod_config={
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "Exists"}]}]
                    }
                },
                "podAffinity": {"x": 1},
            }
        }
    )
    affinity = as_json(applied(replace(MIG, node_labels={"a": ("b",)}), pod).pod)["spec"]["affinity"]
    term = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"][0]
    assert [one["key"] for one in term["matchExpressions"]] == ["pool", "a"]
    assert affinity["podAffinity"] == {"x": 1}


def test_a_toleration_is_there_once(as_json: Any) -> None:
    mine = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert as_json(applied(MIG, a_pod(tolerations=mine)).pod)["spec"]["tolerations"] == mine
    everything = [{"operator": "Exists"}]
    assert as_json(applied(MIG, a_pod(tolerations=everything)).pod)["spec"]["tolerations"] == everything
    other = [{"key": "nvidia.com/gpu", "operator": "Equal", "value": "x", "effect": "NoSchedule"}]
    assert len(applied(MIG, a_pod(tolerations=other)).pod.spec.tolerations) == 2


def test_shm_is_sized_where_nobody_mounted_it(as_json: Any) -> None:
    pod = as_json(applied(MIG, a_pod(), shm="2Gi").pod)
    assert pod["spec"]["volumes"] == [
        {"name": "jupyterhub-gpu-shm", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}}
    ]
    assert pod["spec"]["containers"][0]["volumeMounts"] == [{"name": "jupyterhub-gpu-shm", "mountPath": "/dev/shm"}]
    own = a_pod(volumes=[{"name": "shm", "emptyDir": {"medium": "Memory"}}], volume_mounts=SHM)
    assert changes(as_json, replace(MIG, tolerations=()), own, shm="2Gi") == {
        **LABELS,
        "spec.container.resources.limits.nvidia.com/mig-1g.5gb": "1",
    }


def test_mps_drops_a_mount_of_shm_and_its_volume_unless_another_container_has_it(as_json: Any) -> None:
    volumes = [{"name": "shm", "emptyDir": {"medium": "Memory"}}, {"name": "home", "emptyDir": {}}]
    done = applied(MPS, a_pod(volumes=volumes, volume_mounts=SHM), shm="1Gi")
    pod = as_json(done.pod)
    assert pod["spec"]["containers"][0]["volumeMounts"] == []
    assert [volume["name"] for volume in pod["spec"]["volumes"]] == ["home"]
    assert done.notes == ("your own mount of /dev/shm is left out: this offer brings one",)
    side = [{"name": "side", "image": "x", "volumeMounts": SHM}]
    shared = as_json(applied(MPS, a_pod(volumes=volumes, volume_mounts=SHM, extra_containers=side)).pod)
    assert [volume["name"] for volume in shared["spec"]["volumes"]] == ["shm", "home"]


def test_hami_takes_another_scheduler_away_and_kai_puts_its_own(as_json: Any) -> None:
    pod = a_pod(scheduler_name="jhub-user-scheduler")
    assert "schedulerName" not in as_json(applied(HAMI, pod).pod)["spec"]
    assert applied(KAI, pod).pod.spec.scheduler_name == "kai-scheduler"
    assert applied(MIG, pod).pod.spec.scheduler_name == "jhub-user-scheduler"


def test_a_claim_stands_beside_an_admins_own(as_json: Any) -> None:
    pod = a_pod(extra_pod_config={"resource_claims": [{"name": "nic", "resourceClaimTemplateName": "nic"}]})
    spec = as_json(applied(DRA, pod).pod)["spec"]
    assert [claim["name"] for claim in spec["resourceClaims"]] == ["nic", "jupyterhub-gpu"]


def test_the_servers_container_is_found_wherever_it_stands() -> None:
    pod = a_pod(extra_containers=[{"name": "side", "image": "x"}])
    pod.spec.containers.reverse()
    done = applied(MIG, pod).pod
    assert "nvidia.com/mig-1g.5gb" in done.spec.containers[1].resources.limits
    assert not done.spec.containers[0].resources


@pytest.mark.parametrize(
    "ask",
    [
        replace(MIG, limits={"nvidia.com/mig-1g.5gb": "2"}),
        replace(MIG, limits={"nvidia.com/mig-1g.5gb": "0.5"}),
        replace(KAI, limits={"nvidia.com/gpu": "1"}),
        replace(KAI, annotations={"gpu-fraction": "1.5"}),
        replace(KAI_MEMORY, annotations={"gpu-memory": "8Gi"}),
        replace(KAI_MEMORY, annotations={"gpu-memory": "0"}),
        replace(KAI_MEMORY, annotations={"gpu-memory": "8192", "gpu-fraction": "0.5"}),
        replace(KAI_MEMORY, limits={"nvidia.com/mig-1g.5gb": "1"}),
        replace(KAI_MEMORY, scheduler=""),
        replace(MPS, forbids_shm=False),
        replace(HAMI, scheduler="kai-scheduler"),
        replace(DRA, claim_template=""),
        PodAsk(Mechanism.CPU),
    ],
    ids=lambda ask: ask.mechanism.value,
)
def test_an_ask_that_is_known_to_go_wrong_never_reaches_the_cluster(ask: PodAsk) -> None:
    with pytest.raises(AskError):
        applied(ask, a_pod())


RESOURCES = st.sampled_from(["nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-2g.10gb", "example.com/nic"])


@many(60)
@given(
    limits=st.dictionaries(RESOURCES, st.sampled_from(["1", "2"])),
    env=st.dictionaries(st.sampled_from(["CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "A"]), st.just("all")),
    ask=st.sampled_from([MIG, KAI, HAMI, MPS, DRA, CPU_ASK]),
)
def test_whatever_an_admin_set_the_pod_holds_the_offers_gpu_and_no_other(
    limits: dict[str, str], env: dict[str, str], ask: PodAsk
) -> None:
    pod = a_pod(extra_resource_limits=copy.deepcopy(limits), env=dict(env))
    container = applied(ask, pod).pod.spec.containers[0]
    devices = {k: v for k, v in container.resources.limits.items() if k.startswith("nvidia.com/")}
    assert devices == dict(ask.limits)
    visible = {e.value for e in container.env if e.name.endswith("VISIBLE_DEVICES")}
    assert visible == ({"void"} if ask is CPU_ASK else set())
    assert ("example.com/nic" in container.resources.limits) is ("example.com/nic" in limits)
