"""What is known to go wrong with an ask is refused before a cluster sees it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hub_extensions.core.offers.pod_request import AskError, Mechanism, PodAsk, check_ask, label_value

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
def test_what_a_cluster_takes_passes(ask: PodAsk) -> None:
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
def test_what_exclude_one_another_or_is_missing_is_refused_and_the_field_named(ask: PodAsk, field: str) -> None:
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
