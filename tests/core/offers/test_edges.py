"""Edge cases of offers: sizes and shares, order of the form, comparison of sizes, and figures of a node."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import pytest

from hub_extensions.core.cluster.model import ClusterConfig, NodeFacts
from hub_extensions.core.cluster.nodes import LeftOut, NodeReadings, read_node
from hub_extensions.core.cluster.unschedulable import why_unschedulable
from hub_extensions.core.offers.model import (
    GpuOffer,
    OfferConfig,
    OfferConfigError,
    OfferKind,
    Separation,
    arranged,
    check_config,
    cpu_offer,
    fraction_text,
    named_offer,
    share_of,
)
from hub_extensions.core.offers.offer_id import OfferId, OfferIdError, share_text
from hub_extensions.core.queue.alternatives import smaller_free
from hub_extensions.core.queue.model import Availability, QueueSnapshot, Ticket, TicketState, WantedOffer
from hub_extensions.core.queue.wait_bound import WaitForecast
from tests.core.queue.test_admission import NOW
from tests.fakes.cluster_table import node, pod

GIB = 1 << 30
MIG_1, MIG_2 = "mig-1g.5gb", "mig-2g.10gb"


def offer(name: str, memory: int | None = None, sms: int | None = None, kind: OfferKind | None = None) -> GpuOffer:
    found = OfferId(name)
    known = kind or (
        OfferKind.MIG if name.startswith("mig") else OfferKind.FRACTION if found.share != 1000 else OfferKind.WHOLE
    )
    bare = replace(cpu_offer(), id=found, kind=known, pool=found.pool, share=found.share or 200)
    return replace(bare, memory_bytes=memory, sm_count=sms)


@pytest.mark.parametrize(("size", "fits"), [(0, False), (1, True), (9999, True), (10_000, False), (-1, False)])
def test_a_part_by_memory_has_from_1_to_9999_gib(size: int, fits: bool) -> None:
    if fits:
        check_config(OfferConfig(memory_gib={"gpu": (size,)}))
        return
    with pytest.raises(OfferConfigError):
        check_config(OfferConfig(memory_gib={"gpu": (size,)}))


@pytest.mark.parametrize(
    ("value", "share"),
    [
        (0.001, 1),
        (0.999, 999),
        (0.5, 500),
        (0, None),
        (1, None),
        (0.0004, None),
        (0.5005, None),
        (True, None),
        ("1", None),
    ],
)
def test_a_share_has_from_1_to_999_thousandths(value: object, share: int | None) -> None:
    if share is not None:
        assert share_of(value) == share  # type: ignore[arg-type]
        return
    with pytest.raises(OfferConfigError):
        share_of(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("cpu", ("", 0, 0)),
        ("gpu", ("gpu", 1000, 0)),
        ("gpu.shared", ("gpu.shared", 1000, 0)),
        ("gpu-0.001", ("gpu", 1, 0)),
        ("gpu-8gib@l4", ("gpu@l4", 0, 8)),
        ("gpu-0.25@tesla-t4", ("gpu@tesla-t4", 250, 0)),
        (f"{MIG_1}-0.5", (MIG_1, 500, 0)),
        ("gpu-0", None),
        ("gpu-1", None),
        ("gpu-0.50", None),
        ("gpu-0.0000000000001", None),
        ("gpu@", None),
        ("gpu@UPPER", None),
        (f"{MIG_1}-8gib", None),
    ],
)
def test_an_id_is_read_into_its_parts_and_written_the_same(text: str, parts: tuple[str, int, int] | None) -> None:
    if parts is None:
        with pytest.raises(OfferIdError):
            OfferId(text)
        return
    found = OfferId(text)
    assert ((found.pool, found.share, found.gib), str(found)) == (parts, text)
    named = named_offer(found)
    assert (named.id, named.pool, named.share) == (text, parts[0], parts[1] or (1000 if parts[0] else 0))
    assert named.kind is (OfferKind.WHOLE if parts[0] else OfferKind.CPU)


def test_an_id_that_cannot_be_read_is_shown_by_its_first_60_letters() -> None:
    for text in ("x" * 80, "gpu@" + "X" * 80):
        with pytest.raises(OfferIdError) as refused:
            OfferId(text)
        assert repr(text[:60]) in str(refused.value)


def test_shares_are_written_as_words() -> None:
    assert [fraction_text(share) for share in (500, 250, 750, 200, 300, 125, 1)] == [
        "Half", "A quarter", "Three quarters", "A fifth", "0.3", "0.125", "0.001",
    ]  # fmt: skip
    assert [share_text(share) for share in (1000, 500, 10, 1)] == ["1", "0.5", "0.01", "0.001"]


@pytest.mark.parametrize(
    "config",
    [
        OfferConfig(groups={"cpu": ("a",)}),
        OfferConfig(hidden=("cpu",)),
        OfferConfig(hidden=(7,)),  # type: ignore[arg-type]
        OfferConfig(hidden=("",)),
        OfferConfig(groups={"gpu": ("a", "")}),
        OfferConfig(groups={"gpu": ("a", 7)}),  # type: ignore[arg-type]
        OfferConfig(titles={"gpu": 7}),  # type: ignore[dict-item]
        OfferConfig(descriptions={"gpu": ""}),
        OfferConfig(fractions={7: (0.5,)}),  # type: ignore[dict-item]
        OfferConfig(fractions={"gpu": "0.5"}),  # type: ignore[dict-item]
        OfferConfig(memory_gib={"gpu": "8"}),  # type: ignore[dict-item]
        OfferConfig(memory_gib={"cpu": (8,)}),
    ],
)
def test_an_invalid_setting_is_refused(config: OfferConfig) -> None:
    with pytest.raises(OfferConfigError):
        check_config(config)


def test_all_settings_together_take_effect() -> None:
    everything = OfferConfig(
        fractions={"gpu": (0.5, 0.25), "mig-3g.20gb": [0.5]},  # type: ignore[dict-item]
        memory_gib={"gpu": (8, 16), "gpu@tesla-t4": (4,)},
        titles={"cpu": "No GPU"},
        descriptions={"gpu": "Big"},
        groups={"gpu": ("a", "b"), "gpu-0.5": ()},
        hidden=("gpu",),
    )
    check_config(everything)
    with pytest.raises(OfferConfigError):  # each of them counts
        check_config(replace(everything, groups={"no such offer!": ("a",)}))


def test_the_form_has_mig_by_size_then_parts_then_cards_and_cpu_only_last() -> None:
    whole, half, quarter = offer("gpu", 40 * GIB), offer("gpu-0.5", 20 * GIB), offer("gpu-0.25", 10 * GIB)
    migs = [offer("mig-1g.5gb"), offer("mig-1g.10gb"), offer("mig-2g.10gb"), offer("mig-3g.20gb", 1)]
    wanted = ["mig-3g.20gb", "mig-1g.5gb", "mig-1g.10gb", "mig-2g.10gb", "gpu-0.25", "gpu-0.5", "gpu", "cpu"]
    for given in ([cpu_offer(), whole, half, quarter, *migs], [*reversed(migs), quarter, half, cpu_offer(), whole]):
        assert [each.id for each in arranged(given, OfferConfig())] == wanted
    unknown = [replace(each, memory_bytes=None) for each in (half, quarter)]
    assert [each.id for each in arranged(unknown, OfferConfig())] == ["gpu-0.25", "gpu-0.5"]


def stands(each: GpuOffer, free: int | None = 1, now: bool = True) -> Availability:
    return Availability(each, free, 1, 0, 0, 0, 0, WaitForecast(now, None, None, None, None, ""))


@pytest.mark.parametrize(
    ("small", "wanted", "smaller"),
    [
        (offer("gpu-0.25"), offer("gpu-0.5"), True),
        (offer("gpu-0.5"), offer("gpu-0.5"), False),
        (offer("gpu-0.5"), offer("gpu-0.25"), False),
        (offer(MIG_1, 5 * GIB), offer(MIG_2, 10 * GIB), True),
        (offer(MIG_2, 10 * GIB), offer(MIG_1, 5 * GIB), False),
        (offer("mig-1g.10gb", 10 * GIB, 14), offer(MIG_2, 10 * GIB, 28), True),
        (offer("mig-1g.10gb", 10 * GIB, 28), offer(MIG_2, 10 * GIB, 28), False),
        (offer("mig-1g.10gb", 10 * GIB, None), offer(MIG_2, 10 * GIB, 28), False),
        (offer("mig-1g.10gb", 10 * GIB, 14), offer(MIG_2, 10 * GIB, None), False),
        (offer(MIG_1), offer(MIG_2), True),
        (offer(MIG_1, 5 * GIB), offer(MIG_2), True),
        (offer("mig-1g.10gb"), offer(MIG_2), True),
        (offer("mig-1g.20gb"), offer(MIG_2), False),
        (offer(MIG_1), offer("mig-1g.5gb@a100"), False),
        (offer(MIG_1), offer("gpu"), False),
        (offer("gpu"), offer(MIG_1), False),
        (cpu_offer(), offer("gpu", GIB), False),
        (offer("gpu-8gib"), offer("gpu-0.5"), False),
        (offer("gpu-0.5"), offer("gpu-8gib"), False),
        (offer("gpu-8gib", 8 * GIB), offer("gpu-0.5", 10 * GIB), True),
    ],
)
def test_what_is_smaller_is_suggested_and_what_cannot_be_compared_is_not(
    small: GpuOffer, wanted: GpuOffer, smaller: bool
) -> None:
    assert smaller_free(wanted, [stands(small)]) == ((small,) if smaller else ())
    assert smaller_free(wanted, [stands(small, 0)]) == smaller_free(wanted, [stands(small, None)]) == ()
    assert smaller_free(wanted, [stands(small, 1, now=False)]) == ()


def test_cpu_only_has_no_isolation_and_no_share() -> None:
    cpu = cpu_offer()
    assert (cpu.pool, cpu.share, cpu.isolation.memory, cpu.memory_enforced) == ("", 0, Separation.NONE, True)


def test_the_start_brake_counts_those_that_are_admitted_and_not_held_back() -> None:
    def one(name: str, state: TicketState, *offers: str) -> Ticket:
        return Ticket(name, name, "", tuple(WantedOffer(each, 1) for each in offers or ("gpu",)), NOW, state)

    tickets = (
        one("a", TicketState.ADMITTED),
        one("b", TicketState.ADMITTED),
        one("c", TicketState.WAITING),
        one("d", TicketState.ENDED),
    )
    subject = QueueSnapshot((), (), tickets, ())
    assert (subject.starting, replace(subject, held_back=frozenset({"a", "c"})).starting) == (2, 1)
    assert [one("x", TicketState.WAITING, *names).is_cpu for names in (("cpu",), ("cpu", "gpu"), ("gpu",))] == [
        True, False, False,
    ]  # fmt: skip


# ------------------------------------------------------------------ nodes


def read(subject: NodeFacts, *pods: object, ours: tuple[str, ...] = (), **config: object) -> tuple[object, ...]:
    found = read_node(subject, pods, ours, ClusterConfig(**config))  # type: ignore[arg-type]
    (part,) = found.parts
    return part.count.total, part.count.free, dict(part.room), part.foreign, part.unknown, part.closed


@pytest.mark.parametrize(
    ("asked", "free", "foreign"), [((), 2, 0), ((1,), 1, 1), ((1, 1), 0, 2), ((2,), 0, 2), ((2, 1), 0, 2), ((5,), 0, 2)]
)
def test_a_node_has_what_its_pods_leave_and_others_hold_at_most_all(
    asked: tuple[int, ...], free: int, foreign: int
) -> None:
    pods = [pod(f"p{n}", "a", asks=MIG_1, count=count) for n, count in enumerate(asked)]
    assert read(node("a", (MIG_1, 2)), *pods) == (2, free, {1000: free}, foreign, False, False)
    ours = tuple(each.uid for each in pods)
    assert read(node("a", (MIG_1, 2)), *pods, ours=ours) == (2, free, {1000: free}, 0, False, False)


@pytest.mark.parametrize(
    ("changes", "why", "unknown"),
    [
        ({"ready": None}, "its kubelet has not been heard of: it does not answer", False),
        ({"ready": False}, "it is not ready", False),
        ({"cordoned": True}, "it is cordoned: nothing new is placed there", False),
        ({"labels": {"nvidia.com/mig.config.state": "pending"}}, "its GPUs are being cut anew", True),
    ],
)
def test_a_node_that_gives_nothing_has_its_devices_and_none_free(
    changes: dict[str, object], why: str, unknown: bool
) -> None:
    subject = node("a", (MIG_1, 2), **changes)
    assert read(subject, pod("p", "a", asks=MIG_1)) == (2, 0, {}, 0, unknown, False)
    found = read_node(subject, (), (), ClusterConfig())
    assert found.left_out == (LeftOut("node a", found.parts[0].count.why, found.parts[0].count.because),)
    assert found.left_out[0].why.startswith(why)


def test_a_shared_cards_memory_is_divided_and_its_cores_are_nobodys() -> None:
    labels = {
        "nvidia.com/gpu.memory": "40960", "nvidia.com/gpu.multiprocessors": "98", "nvidia.com/gpu.replicas": "4",
        "nvidia.com/gpu.sharing-strategy": "time-slicing",
    }  # fmt: skip
    (shared,) = read_node(node("a", ("gpu.shared", 4), labels=labels), (), (), ClusterConfig()).parts
    assert (shared.memory_bytes, shared.sm_count, shared.kind.replicas) == (10 * GIB, None, 4)
    plain = {**labels, "nvidia.com/gpu.sharing-strategy": "none"}
    (whole,) = read_node(node("a", ("gpu", 4), labels=plain), (), (), ClusterConfig()).parts
    assert (whole.memory_bytes, whole.sm_count, whole.kind.replicas) == (40 * GIB, 98, 1)
    bad = {**plain, "nvidia.com/gpu.memory": "much"}
    assert read_node(node("a", ("gpu", 4), labels=bad), (), (), ClusterConfig()).parts[0].memory_bytes is None


def test_a_node_is_counted_anew_when_anything_about_it_is_another_object() -> None:
    readings, config = NodeReadings(), ClusterConfig()
    subject, pods = node("a", (MIG_1, 2)), [pod("p", "a", asks=MIG_1)]
    first = readings.read(subject, pods, frozenset(), config)
    assert readings.read(subject, list(pods), frozenset(), config) is first
    for again in (
        readings.read(replace(subject), pods, frozenset(), config),
        readings.read(subject, [replace(pods[0])], frozenset(), config),
        readings.read(subject, [], frozenset(), config),
        readings.read(subject, pods, frozenset({"uid-p"}), config),
        readings.read(subject, pods, frozenset({"uid-p"}), ClusterConfig(kai_queue="q")),
    ):
        assert again is not first
    readings.forget_other_nodes([])
    assert readings._kept == {}


# ------------------------------------------------------------------ why there is no machine

NO = "Insufficient nvidia.com/mig-1g.5gb"


class Lacks(NamedTuple):
    """What is missing, as an English reader sees it."""

    message: str
    lacks_device: bool = False
    lacks_other: bool = False


CLOSED = "1 node(s) were unschedulable"


@pytest.mark.parametrize(
    ("reasons", "found"),
    [
        (f"0/1 nodes are available: 1 {NO}.", Lacks("MIG 1g.5gb is not free now.", lacks_device=True)),
        (
            f"0/3 nodes are available: 1 {NO}, 2 node(s) had untolerated taint {{node.kubernetes.io/not-ready: }}.",
            Lacks("MIG 1g.5gb is not free now. 2 machines do not answer.", lacks_device=True),
        ),
        (
            f"0/4 nodes are available: 1 {NO}, {CLOSED}, 2 node(s) had untolerated taint "
            "{node.kubernetes.io/unreachable: }.",
            Lacks(
                "MIG 1g.5gb is not free now. 2 machines do not answer. 1 machine is closed by an admin.",
                lacks_device=True,
            ),
        ),
        (
            f"0/2 nodes are available: 1 {NO}, 1 Insufficient cpu.",
            Lacks(
                "The machines with a free MIG 1g.5gb do not have enough free processors for it now.", lacks_other=True
            ),
        ),
        (
            f"0/2 nodes are available: 2 {NO}, 2 Insufficient cpu.",
            Lacks("MIG 1g.5gb is not free now.", lacks_device=True),
        ),
        (
            f"0/2 nodes are available: 1 {NO}, 1 Too many pods.",
            Lacks("The machines with a free MIG 1g.5gb are full now.", lacks_other=True),
        ),
        (
            f"0/2 nodes are available: 1 {NO}, 1 node(s) had volume node affinity conflict.",
            Lacks("The machines with a free MIG 1g.5gb cannot reach its files.", lacks_other=True),
        ),
        (
            f"0/2 nodes are available: 1 {NO}, 1 node(s) didn't satisfy existing pods anti-affinity rules.",
            Lacks("The machines with a free MIG 1g.5gb cannot take it now.", lacks_other=True),
        ),
        (
            f"0/2 nodes are available: 1 {NO}, 1 node(s) didn't match Pod's node affinity/selector.",
            Lacks("MIG 1g.5gb is not free now.", lacks_device=True),
        ),
        (
            "0/2 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 2 Insufficient ephemeral-storage.",
            Lacks("No machine has enough free processors and memory and disk space for it now.", lacks_other=True),
        ),
        ("0/1 nodes are available: 1 Too many pods.", Lacks("The machines are full now.", lacks_other=True)),
        (
            f"0/1 nodes are available: {CLOSED}.",
            Lacks("No machine can take it now. 1 machine is closed by an admin."),
        ),
        (
            "0/2 nodes are available: 2 node(s) had untolerated taint {node.kubernetes.io/unreachable: }.",
            Lacks("No machine can take it now. 2 machines do not answer."),
        ),
        (
            "0/2 nodes are available: 2 node(s) had untolerated taint(s).",
            Lacks("No machine can take it now.", lacks_other=True),
        ),
        (
            "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.",
            Lacks("No machine is of the kind that was asked for.", lacks_other=True),
        ),
        (
            "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.shared.",
            Lacks("A share of a GPU is not free now.", lacks_device=True),
        ),
        ("", Lacks("No machine was found for it yet.")),
        ("something", Lacks("No machine was found for it yet.", lacks_other=True)),
    ],
)
def test_the_complete_reason_why_no_node_was_found(reasons: str, found: Lacks) -> None:
    why = why_unschedulable(reasons)
    assert (why.message, why.lacks_device, why.lacks_other) == found
    assert why_unschedulable(
        f"{reasons} preemption: 0/9 nodes are available: 9 Insufficient nvidia.com/gpu."
    ) == why or (not reasons.endswith("."))
