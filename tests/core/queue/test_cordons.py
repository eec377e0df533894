"""Cards that an administrator drains: no new server gets a part of them, and waiting users see why."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from hub_extensions.core.gpu.devices import Device, DeviceState
from hub_extensions.core.queue.admission import admit, availability, standing
from hub_extensions.core.queue.cordons import (
    MACHINE,
    SEEN_LATE,
    Closing,
    Cordon,
    closed_devices,
    closings,
    closings_of_nodes,
    cordon_of,
    refuse_to_close,
    refuse_to_close_node,
    standing_on_nodes,
    undone_elsewhere,
)
from hub_extensions.core.queue.model import QueueSnapshot
from tests.core.queue.test_admission import NOW, lease, ticket
from tests.core.queue.test_admission import snapshot as as_usual


def piece(card: str, n: int) -> DeviceState:
    return DeviceState(Device(f"MIG-{card}{n}", "A100", profile="1g.5gb", gpu_instance_id=n, parent_uuid=f"GPU-{card}"))


A1, A2, B1 = piece("a", 1), piece("a", 2), piece("b", 1)
CARD_A = Cordon("GPU-a", "root", "a new fan", NOW)


def snapshot(*devices: DeviceState, closed: frozenset[str], **more: Any) -> QueueSnapshot:
    line = {name: tuple(each) if isinstance(each, list) else each for name, each in more.items()}
    return replace(as_usual(devices, **line), closed=closed)


def closed(*cordons: Cordon) -> frozenset[str]:
    return closed_devices(cordons, (A1, A2, B1))


def test_a_drained_card_closes_its_devices_and_a_drained_machine_all() -> None:
    assert closed() == frozenset()
    assert closed(CARD_A) == {A1.device.identity, A2.device.identity}
    assert closed(Cordon(MACHINE, "root", "move", NOW)) == {each.device.identity for each in (A1, A2, B1)}
    whole = Cordon(MACHINE, "root", "move", NOW)
    assert [cordon_of({MACHINE: whole, "GPU-a": CARD_A}, card) for card in ("GPU-a", "GPU-b")] == [CARD_A, whole]
    assert cordon_of({"GPU-a": CARD_A}, "GPU-b") is None


def test_nobody_new_is_given_a_part_of_a_drained_card_also_when_who_is_on_it_leaves() -> None:
    line = snapshot(A1, A2, B1, tickets=[ticket(1, "mig-1g.5gb"), ticket(2, "mig-1g.5gb")], closed=closed(CARD_A))
    assert [(each.ticket, each.device) for each in admit(line)] == [("t1", B1.device.identity)]
    nobody = snapshot(A1, A2, tickets=[ticket(1, "mig-1g.5gb")], closed=closed(CARD_A))
    assert admit(nobody) == ()


def test_the_form_has_no_free_one_on_it_and_who_waits_is_told_why() -> None:
    line = snapshot(
        A1, A2, B1,
        tickets=[ticket(1, "mig-1g.5gb")],
        leases=[lease(B1, ends=NOW + timedelta(hours=1)), lease(A1, n=2, ends=NOW + timedelta(minutes=10))],
        lifetime=timedelta(hours=12),
        closed=closed(CARD_A),
    )  # fmt: skip
    stands = next(each for each in availability(line, NOW) if each.offer.id == "mig-1g.5gb")
    assert (stands.free, stands.total, stands.held) == (0, 3, 2)
    verdict = standing(line, NOW)["t1"]
    assert verdict.reason.reason == "closed-by-admin"
    assert verdict.reason.message.startswith(
        "MIG 1g.5gb: an administrator lets nothing new start on 2 of 3, and no other is free."
    )
    # what is on the drained card gives nobody a turn: the one open device alone does
    assert verdict.forecast is not None and verdict.forecast.at_most is not None
    assert verdict.forecast.at_most >= timedelta(hours=1)


def test_of_one_card_alone_who_waits_reads_that_it_is_emptied() -> None:
    line = snapshot(A1, tickets=[ticket(1, "mig-1g.5gb")], closed=closed(CARD_A))
    reason = standing(line, NOW)["t1"].reason
    assert reason.message.startswith("MIG 1g.5gb: an administrator lets nothing new start on 1 of 1")


@pytest.mark.parametrize(
    ("place", "cordons", "why"),
    [
        ("GPU-a", (), None),
        (MACHINE, (CARD_A,), None),
        ("GPU-a", (CARD_A,), "cordoned-already"),
        ("GPU-z", (), "no-such-card"),
    ],
)
def test_a_place_that_cannot_be_drained_says_why(place: str, cordons: tuple[Cordon, ...], why: str | None) -> None:
    refusal = refuse_to_close(place, cordons, (A1, B1))
    assert (refusal.reason if refusal else None) == why


@pytest.mark.parametrize(
    ("node", "may_cordon", "why"),
    [
        ("open", True, None),
        ("closed", True, "cordoned-already"),
        (MACHINE, True, "no-such-node"),
        ("gone", True, "no-such-node"),
        ("open", False, "cordon-on-cluster"),
    ],
)
def test_a_node_that_cannot_be_drained_says_why(node: str, may_cordon: bool, why: str | None) -> None:
    refusal = refuse_to_close_node(node, {"open": False, "closed": True}, may_cordon=may_cordon)
    assert (refusal.reason if refusal else None) == why
    if not may_cordon:
        assert refusal is not None and "kubectl cordon open" in refusal.message


@pytest.mark.parametrize(
    ("cordoned", "later", "stands", "undone"),
    [
        (True, SEEN_LATE * 2, True, False),
        (False, SEEN_LATE, False, False),  # what was seen may be older than the order
        (False, SEEN_LATE * 2, False, True),
        (None, SEEN_LATE * 2, False, False),  # its node is not seen: nobody knows
    ],
)
def test_an_order_on_a_node_stands_as_long_as_the_node_is_cordoned(
    cordoned: bool | None, later: timedelta, stands: bool, undone: bool
) -> None:
    order, nodes = Cordon("gpu-1", "root", "a new fan", NOW), {} if cordoned is None else {"gpu-1": cordoned}
    assert bool(standing_on_nodes([order], nodes)) == stands
    assert bool(undone_elsewhere([order], nodes, NOW + later)) == undone


def test_what_is_closed_of_a_pool_is_said_with_the_oldest_orders_time_and_words() -> None:
    pool, later = A1.device.pool, Cordon("GPU-b", "root", "a new disk", NOW + timedelta(hours=1))
    assert closings((), (A1, A2, B1)) == {}
    assert closings((CARD_A,), (A1, A2, B1)) == {pool: Closing(2, NOW, "a new fan")}
    assert closings((later, CARD_A), (A1, A2, B1)) == {pool: Closing(3, NOW, "a new fan")}
    gone = replace(A1, present=False)
    assert closings((CARD_A,), (gone, A2, B1)) == {pool: Closing(1, NOW, "a new fan")}, (
        "what is not there is not closed"
    )
    nodes = (("gpu", "a", 8), ("gpu", "b", 4), ("mig", "b", 7))
    assert closings_of_nodes((), nodes) == {"gpu": Closing(12, None, ""), "mig": Closing(7, None, "")}, "by kubectl"
    assert closings_of_nodes((Cordon("a", "root", "a fan", NOW),), nodes)["gpu"] == Closing(12, NOW, "a fan")
