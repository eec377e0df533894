"""Cards, their pieces, the totals, and when a card is empty: tables."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from hub_extensions.core.gpu.devices import WHOLE, Device, DeviceState, Foreign, Placement
from hub_extensions.core.messages import NodePart, PoolInfo
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.overview.cards import (
    Emptying,
    PieceHolder,
    PieceState,
    cards_of_cluster,
    cards_of_machine,
    emptying,
    holders_on,
    state_of,
)
from hub_extensions.core.overview.totals import totals_of
from hub_extensions.core.overview.view import Asked, chosen, paged
from hub_extensions.core.queue.cordons import MACHINE, Cordon

NOW = datetime(2026, 1, 5, 12, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)


def piece(n: int, slices: int, card: str = "GPU-a") -> DeviceState:
    place = Placement(n, slices)
    device = Device(f"MIG-{n}", "A100", profile=f"{slices}g", gpu_instance_id=n, placement=place, parent_uuid=card,
                    compute_slices=slices)  # fmt: skip
    return DeviceState(device)


def holder(user: str, place: str | tuple[str, str], share: int = WHOLE, **changes: object) -> PieceHolder:
    plain = PieceHolder(f"l-{user}", user, "", OfferId("gpu"), place, share, "running", NOW, 50.0, 5.0, NOW + HOUR)
    return replace(plain, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "use", "seen"),
    [
        ("running", 50.0, PieceState.BUSY),
        ("running", 5.0, PieceState.BUSY),
        ("running", 4.9, PieceState.IDLE),
        ("running", None, PieceState.USE_UNKNOWN),
        ("starting", None, PieceState.STARTING),
        ("ending", 50.0, PieceState.ENDING),
        ("lost", None, PieceState.LOST),
    ],
)
def test_what_is_held_is_busy_idle_or_not_known_and_unknown_is_never_idle(
    state: str, use: float | None, seen: PieceState
) -> None:
    assert state_of(holder("ada", "d", state=state, use_percent=use)) is seen


def test_a_cut_card_shows_its_pieces_as_they_lie_on_it_with_their_widths() -> None:
    second, first = piece(4, 3), piece(0, 4)
    cards = cards_of_machine((second, first), (holder("ada", second.device.identity),), ())
    assert [card.uuid for card in cards] == ["GPU-a"]
    found = [(each.name, each.state, each.width, each.holder and each.holder.user) for each in cards[0].pieces]
    assert found == [("4g", PieceState.FREE, 571, None), ("3g", PieceState.BUSY, 428, "ada")]


def test_of_a_shared_card_each_part_is_a_piece_and_what_is_left_is_free() -> None:
    whole = DeviceState(Device("GPU-b", "T4"))
    shares = [holder(user, whole.device.identity, 250, since=NOW + n * HOUR) for n, user in enumerate(("ben", "ada"))]
    (card,) = cards_of_machine((whole,), reversed(shares), ())
    assert [(each.holder and each.holder.user, each.width) for each in card.pieces] == [
        ("ben", 250), ("ada", 250), (None, 500),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("state", "held", "seen"),
    [
        (DeviceState(Device("GPU-c", "T4")), False, [PieceState.FREE]),
        (DeviceState(Device("GPU-c", "T4"), Foreign.SOME), False, [PieceState.OTHERS]),
        (DeviceState(Device("GPU-c", "T4"), Foreign.UNKNOWN), False, [PieceState.FREE]),
        (DeviceState(Device("GPU-c", "T4", usable=False)), False, [PieceState.UNUSABLE]),
        (DeviceState(Device("GPU-c", "T4"), present=False), True, [PieceState.LOST]),
    ],
)
def test_devices_without_our_leases_are_free_closed_or_used_by_others(
    state: DeviceState, held: bool, seen: list[PieceState]
) -> None:
    holders = (holder("ada", state.device.identity, state="lost"),) if held else ()
    (card,) = cards_of_machine((state,), holders, ())
    assert [each.state for each in card.pieces] == seen
    cordon = Cordon(MACHINE, "root", "it moves", NOW)
    (drained,) = cards_of_machine((state,), holders, (cordon,))
    closed = [PieceState.CLOSED if each is PieceState.FREE else each for each in seen]
    assert drained.cordon == cordon and [each.state for each in drained.pieces] == closed


def test_a_node_of_a_cluster_is_a_row_of_equal_devices_ours_others_free_and_barred() -> None:
    parts = (NodePart("b", 2, 0, "it is cordoned"), NodePart("a", 4, 1, ""))
    pool = PoolInfo("mig-1g", "mig", "r", "A100", 6, 1, 0, (), parts)
    ada = holder("ada", ("a", "mig-1g"))
    first, second = cards_of_cluster((pool,), (ada, holder("ben", ("b", "mig-1g"))))
    assert [each.state for each in first.pieces] == [
        PieceState.BUSY,
        PieceState.OTHERS,
        PieceState.OTHERS,
        PieceState.FREE,
    ]
    assert second.barred is not None and (second.place, second.barred.message) == ("b", "it is cordoned")
    assert [each.state for each in second.pieces] == [PieceState.BUSY, PieceState.CLOSED]
    (unknown,) = cards_of_cluster((replace(pool, free=None, nodes=(NodePart("a", 2, 2, ""),)),), ())
    assert {each.state for each in unknown.pieces} == {PieceState.NOT_KNOWN}


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ((), Emptying(0, None)),
        ((NOW,), Emptying(1, NOW)),
        ((NOW + HOUR, NOW), Emptying(2, NOW + HOUR)),
        ((NOW, None), Emptying(2, None)),
    ],
)
def test_a_card_is_empty_when_the_last_ends_and_nobody_knows_if_one_has_no_end(
    ends: tuple[datetime | None, ...], expected: Emptying
) -> None:
    assert emptying(holder(f"u{n}", "d", ends_at=end) for n, end in enumerate(ends)) == expected


def test_every_piece_is_counted_once() -> None:
    states = [piece(n, 1) for n in range(6)]
    held = [
        holder("ada", states[0].device.identity),
        holder("ben", states[1].device.identity, use_percent=0.0),
        holder("cem", states[2].device.identity, use_percent=None),
        holder("dan", states[3].device.identity, state="ending"),
    ]
    states[4] = replace(states[4], foreign=Foreign.SOME)
    found = totals_of(cards_of_machine(states, held, ()))
    assert (found.cards, found.cards_held, found.pieces, found.held, found.free, found.others) == (1, 1, 6, 4, 1, 1)
    assert totals_of(cards_of_machine(states, (), ())).cards_held == 0
    assert found.busy + found.idle + found.use_unknown + found.changing == found.held
    rest = found.free + found.closed + found.others + found.unusable + found.unknown
    assert found.held + rest == found.pieces


def test_cards_are_found_by_whoever_is_on_them_and_by_what_they_are() -> None:
    cards = cards_of_machine(
        (piece(0, 1), piece(1, 1, "GPU-b")), (holder("Ada", piece(0, 1).device.identity, use_percent=0.0),), ()
    )
    for asked, found in (
        (Asked("ada"), ["GPU-a"]), (Asked("mig-1"), ["GPU-b"]), (Asked("a100"), ["GPU-a", "GPU-b"]),
        (Asked(show="idle"), ["GPU-a"]), (Asked(show="free"), ["GPU-b"]), (Asked("ada", "free"), []),
    ):  # fmt: skip
        assert [card.uuid for card in chosen(cards, asked)] == found, asked
    assert [each.user for each in holders_on(cards, MACHINE)] == ["Ada"] and holders_on(cards, "GPU-b") == ()


@pytest.mark.parametrize(("page", "shown", "pages"), [(1, (0, 1), 3), (3, (4,), 3), (0, (0, 1), 3), (99, (4,), 3)])
def test_a_missing_page_is_replaced_by_the_nearest(page: int, shown: tuple[int, ...], pages: int) -> None:
    found = paged(range(5), page, 2)
    assert (found.shown, found.found, found.pages) == (shown, 5, pages)
    assert paged((), 1, 2).pages == 1
