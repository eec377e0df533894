"""Requests that are known to fail are refused before they reach the cluster."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from hub_extensions.core.offers.pod_request import (
    AskError,
    Mechanism,
    PodAsk,
    check_ask,
    gpu_differences,
    is_gpu_resource,
    label_value,
)

GPU = {"nvidia.com/gpu": "1"}
KAI = PodAsk(Mechanism.KAI_FRACTION, annotations={"gpu-fraction": "0.5"}, scheduler="kai-scheduler")
HAMI = PodAsk(Mechanism.HAMI, limits={**GPU, "nvidia.com/gpumem-percentage": "50"}, scheduler="hami-scheduler")
DRA = PodAsk(Mechanism.DRA, claim_template="small")
MPS = PodAsk(Mechanism.MPS, limits={"nvidia.com/gpu.shared": "1"}, forbids_shm=True)
CPU = PodAsk(Mechanism.CPU, environment={"NVIDIA_VISIBLE_DEVICES": "void"})


@pytest.mark.parametrize(
    "ask",
    [
        CPU,
        PodAsk(Mechanism.WHOLE, limits=GPU),
        PodAsk(Mechanism.WHOLE, limits={"nvidia.com/gpu": "8"}),
        PodAsk(Mechanism.MIG, limits={"nvidia.com/mig-1g.10gb.me": "1"}),
        PodAsk(Mechanism.MIG_SINGLE, limits=GPU),
        PodAsk(Mechanism.TIME_SLICING, limits={"nvidia.com/mig-1g.5gb.shared": "1"}),
        MPS,
        KAI,
        replace(KAI, annotations={"gpu-fraction": "0.25"}),
        PodAsk(Mechanism.KAI_MEMORY, annotations={"gpu-memory": "2000"}, scheduler="kai-scheduler"),
        HAMI,
        replace(HAMI, scheduler="default-scheduler"),
        replace(HAMI, limits={**GPU, "nvidia.com/gpumem": "4096"}),
        DRA,
    ],
)
def test_valid_requests_are_accepted(ask: PodAsk) -> None:
    check_ask(ask)
    assert ask.mechanism in Mechanism


@pytest.mark.parametrize("quantity", ["0", "0.5", "-1", "1Gi", "", "1 ", "one"])
def test_a_quantity_that_is_no_whole_number_is_refused(quantity: str) -> None:
    with pytest.raises(AskError) as refused:
        check_ask(PodAsk(Mechanism.WHOLE, limits={"nvidia.com/gpu": quantity}))
    assert refused.value.field == "limits['nvidia.com/gpu']"


@pytest.mark.parametrize("mechanism", [Mechanism.MIG, Mechanism.MIG_SINGLE, Mechanism.TIME_SLICING, Mechanism.MPS])
def test_more_than_one_share_or_mig_device_is_refused(mechanism: Mechanism) -> None:
    with pytest.raises(AskError, match="gives exactly one"):
        check_ask(PodAsk(mechanism, limits={"nvidia.com/gpu": "2"}, forbids_shm=True))


@pytest.mark.parametrize("fraction", ["1", "0", "0.0", "0.00", "1.5", "0.125", ".5", "0,5", "50%", "-0.5", ""])
def test_a_fraction_that_kai_does_not_read_is_refused(fraction: str) -> None:
    with pytest.raises(AskError) as refused:
        check_ask(replace(KAI, annotations={"gpu-fraction": fraction}))
    assert refused.value.field == "gpu-fraction"


@pytest.mark.parametrize("memory", ["2000Mi", "0", "2.5", "-1", ""])
def test_memory_with_a_unit_is_refused(memory: str) -> None:
    with pytest.raises(AskError) as refused:
        check_ask(replace(KAI, mechanism=Mechanism.KAI_MEMORY, annotations={"gpu-memory": memory}))
    assert refused.value.field == "gpu-memory"


@pytest.mark.parametrize(
    ("ask", "field"),
    [
        (PodAsk(Mechanism.WHOLE, limits={**GPU, "nvidia.com/mig-1g.5gb": "1"}), "limits"),
        (replace(KAI, limits=GPU), "annotations"),
        (replace(KAI, limits={"nvidia.com/mig-1g.5gb": "1"}), "annotations"),
        (replace(KAI, annotations={"gpu-fraction": "0.5", "gpu-memory": "2000"}), "annotations"),
        (replace(KAI, annotations={}), "annotations"),
        (replace(KAI, scheduler=""), "scheduler"),
        (replace(KAI, scheduler="default-scheduler"), "scheduler"),
        (replace(HAMI, limits=GPU), "limits"),
        (replace(HAMI, limits={"nvidia.com/gpumem": "4096"}), "limits"),
        (replace(HAMI, scheduler=""), "scheduler"),
        (replace(HAMI, scheduler="kai-scheduler"), "scheduler"),
        (replace(DRA, limits=GPU), "claim_template"),
        (replace(DRA, claim_template=""), "claim_template"),
        (PodAsk(Mechanism.WHOLE, limits=GPU, claim_template="small"), "claim_template"),
        (replace(CPU, environment={}), "environment"),
        (replace(CPU, environment={"NVIDIA_VISIBLE_DEVICES": "all"}), "environment"),
        (replace(MPS, forbids_shm=False), "forbids_shm"),
    ],
)
def test_conflicting_or_missing_fields_are_refused_by_name(ask: PodAsk, field: str) -> None:
    with pytest.raises(AskError) as refused:
        check_ask(ask)
    assert refused.value.field == field
    assert str(refused.value).startswith(f"{field}: ")


def test_ids_are_written_as_labels_can_hold_them() -> None:
    assert label_value("gpu@h200-0.5") == "gpu_h200-0.5"
    assert label_value("mig-1g.10gb.me") == "mig-1g.10gb.me"


def test_a_label_holds_63_letters_and_begins_and_ends_with_one() -> None:
    assert label_value("a" * 63) == label_value("a" * 64) == "a" * 63
    assert label_value("@gpu@") == "gpu"
    assert label_value("a" * 62 + "@b") == "a" * 62


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("nvidia.com/gpu", True),
        ("nvidia.com/gpu.shared", True),
        ("nvidia.com/mig-1g.10gb.me.shared", True),
        ("nvidia.com/a100", True),
        ("nvidia.com/rtxa6000", True),
        ("nvidia.com/GA102GL_A10", True),
        ("nvidia.com/GRID_T4-8Q", True),
        ("nvidia.com/gpumem-percentage", True),
        ("amd.com/gpu", True),
        ("amd.com/cpx_nps4", True),
        ("gpu.intel.com/i915", True),
        ("gpu.intel.com/xe", True),
        ("aliyun.com/gpu-mem", True),
        ("volcano.sh/vgpu-number", True),
        ("example.com/gpu", True),
        ("nvidia.com/hostdev", False),
        ("nvidia.com/rdma_shared_device_a", False),
        ("nvidia.com/mlnxnics", False),
        ("nvidia.com/cx6dx_sriov_switchdev", False),
        ("nvidia.com/sriov-vf", False),
        ("rdma/hca_shared_devices_a", False),
        ("amd.com/xilinx_u250", False),
        ("example.com/fpga", False),
        ("smarter-devices/fuse", False),
        ("cpu", False),
    ],
)
def test_a_resource_that_hands_out_gpus_is_known_by_its_name(name: str, is_one: bool) -> None:
    assert is_gpu_resource(name) is is_one


ONE = PodAsk(Mechanism.WHOLE, limits=GPU)
NO_GPU = PodAsk(Mechanism.CPU, environment={"NVIDIA_VISIBLE_DEVICES": "void", "CUDA_VISIBLE_DEVICES": "void"})
VOID = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]


def a_pod(ask: PodAsk) -> dict[str, Any]:
    """The pod of this offer as it is sent to the API server, with a sidecar and an init container."""
    claims = [{"name": "jupyterhub-gpu", "resourceClaimTemplateName": ask.claim_template}] if ask.claim_template else []
    server = {
        "name": "notebook",
        "env": [{"name": name, "value": value} for name, value in ask.environment.items()],
        "resources": {"limits": {"cpu": 2, **ask.limits}, "requests": {"cpu": 1}},
    }
    return {
        "metadata": {"annotations": dict(ask.annotations)},
        "spec": {
            "containers": [server, {"name": "side", "image": "x"}],
            "initContainers": [{"name": "first", "image": "x"}],
            "resourceClaims": claims,
        },
    }


@pytest.mark.parametrize("ask", [NO_GPU, ONE, MPS, KAI, HAMI, DRA, replace(ONE, limits={"nvidia.com/a100": "1"})])
def test_a_pod_as_its_offer_asks_has_no_other_gpus(ask: PodAsk) -> None:
    assert gpu_differences(ask, a_pod(ask)) == ()


@pytest.mark.parametrize(
    ("ask", "path", "value", "said"),
    [
        (NO_GPU, "spec.containers.0.resources.limits", GPU, "asks for nvidia.com/gpu=1"),
        (NO_GPU, "spec.containers.0.resources.limits", {"nvidia.com/gpu": 1}, "asks for nvidia.com/gpu=1"),
        (NO_GPU, "spec.containers.0.resources.requests", {"nvidia.com/a100": "1"}, "asks for nvidia.com/a100=1"),
        (NO_GPU, "spec.containers.0.resources.limits", {"amd.com/gpu": "1"}, "asks for amd.com/gpu=1"),
        (NO_GPU, "spec.containers.0.resources.limits", {"gpu.intel.com/i915": "1"}, "asks for gpu.intel.com/i915=1"),
        (ONE, "spec.containers.0.resources.limits", {"nvidia.com/gpu": "2"}, "its lease gives nvidia.com/gpu=1"),
        (ONE, "spec.containers.0.resources.limits", {"nvidia.com/gpu": "0"}, "does not ask for nvidia.com/gpu=1"),
        (ONE, "spec.containers.0.resources", {"limits": {}}, "does not ask for nvidia.com/gpu=1"),
        (ONE, "spec.containers.1.resources", {"limits": GPU}, "container side asks for nvidia.com/gpu=1"),
        (ONE, "spec.initContainers.0.resources", {"requests": GPU}, "container first asks for nvidia.com/gpu=1"),
        (ONE, "spec.resourceClaims", [{"name": "mine", "resourceClaimTemplateName": "big"}], "the claim mine of big"),
        (ONE, "spec.resourceClaims", [{"name": "mine", "resourceClaimName": "all"}], "the claim mine of all"),
        (DRA, "spec.resourceClaims", [], "lost the claim of the template small"),
        (DRA, "spec.resourceClaims", [{"name": "jupyterhub-gpu", "resourceClaimTemplateName": "b"}], "of b, and"),
        (NO_GPU, "metadata.annotations", {"gpu-fraction": "0.5"}, "its annotation gpu-fraction is 0.5"),
        (NO_GPU, "metadata.annotations", {"gpu-memory": "2000"}, "its annotation gpu-memory is 2000"),
        (KAI, "metadata.annotations.gpu-fraction", "1", "gpu-fraction is 1, and its lease gives 0.5"),
        (NO_GPU, "spec.containers.0.env", [], "lost NVIDIA_VISIBLE_DEVICES=void"),
        (ONE, "spec.containers.0.env", [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}], "sees GPUs that it does"),
        (NO_GPU, "spec.containers.0.env", [*VOID, {"name": "NVIDIA_VISIBLE_DEVICES", "value": "0"}], "=0: it sees"),
        (NO_GPU, "spec.containers.1.env", [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}], "container side has"),
        (NO_GPU, "spec.containers.1.env", [{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {}}], ""),
    ],
)
def test_gpus_beside_those_of_the_offer_are_named(ask: PodAsk, path: str, value: Any, said: str) -> None:
    pod = a_pod(ask)
    *way, last = path.split(".")
    place: Any = pod
    for step in way:
        place = place[int(step)] if step.isdecimal() else place[step]
    place[last] = value
    before = copy.deepcopy(pod)
    found = gpu_differences(ask, pod)
    assert said in "; ".join(found) and bool(found) is bool(said)
    assert pod == before
