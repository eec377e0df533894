"""Free parts of cards that KAI or HAMi share."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_extensions.core.cluster.model import ClusterConfig, ClusterView, PodFacts
from hub_extensions.core.cluster.pools import PoolSurvey, survey_pools
from hub_extensions.core.cluster.shared_gpus import KAI_RESERVATIONS, MIB, hami_cards, kai_room, kai_share
from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.offers.model import OfferConfig
from hub_extensions.core.offers.pod_request import NODE_PRODUCT, Mechanism
from tests.fakes.cluster_table import A100, HOME, node, pod

CARD = {
    "id": "GPU-0",
    "count": 10,
    "devmem": 40960,
    "devcore": 100,
    "type": "NVIDIA A100",
    "mode": "hami-core",
    "health": True,
}
KAI = ClusterConfig(kai_queue="team-a", fraction_scheduler="kai")


def registered(*changes: dict[str, object]) -> str:
    return json.dumps([{**CARD, "id": f"GPU-{number}", **change} for number, change in enumerate(changes)])


def under_hami(text: str, *pods: PodFacts, ours: tuple[str, ...] = ()) -> tuple[int, dict[int, int], int] | None:
    found = hami_cards(node("a", ("gpu", 20), hami=text), pods, ours)
    return None if found is None else (found[0], dict(found[1]), found[2])


def part(name: str, text: str) -> PodFacts:
    return pod(name, "a", asks="gpu", hami=text)


def sharer(name: str, group: str, fraction: str = "", memory: str = "") -> PodFacts:
    return pod(name, "a", gpu_group=group, fraction=fraction, memory_mib=memory)


# ------------------------------------------------------------------ HAMi


def test_cards_under_hami_are_counted_by_their_list_and_not_by_the_split_count_of_the_node() -> None:
    assert under_hami(registered({}, {})) == (2, {WHOLE: 2}, 0)


def test_a_part_of_a_cards_memory_leaves_the_rest_of_it() -> None:
    assert under_hami(registered({}, {}), part("p", "GPU-0,NVIDIA,10240,30:;")) == (2, {750: 1, WHOLE: 1}, 1)


def test_a_pod_with_two_containers_and_two_cards_takes_of_both() -> None:
    text = "GPU-0,NVIDIA,20480,0:GPU-1,NVIDIA,4096,0:;GPU-1,NVIDIA,4096,0:;"
    assert under_hami(registered({}, {}), part("p", text)) == (2, {500: 1, 800: 1}, 2)


def test_a_card_of_our_own_server_is_not_said_to_be_somebody_elses() -> None:
    assert under_hami(registered({}), part("p", "GPU-0,NVIDIA,4096,0:;"), ours=("uid-p",)) == (1, {900: 1}, 0)


@pytest.mark.parametrize("change", [{"health": False}, {"mode": "mig"}, {"mode": "mps"}, {"devmem": 0}])
def test_a_card_that_is_ill_or_in_another_mode_does_not_count(change: dict[str, object]) -> None:
    assert under_hami(registered({}, change)) == (1, {WHOLE: 1}, 0)


def test_a_card_whose_cores_are_all_taken_has_no_room_however_much_memory_is_left() -> None:
    assert under_hami(registered({}), part("p", "GPU-0,NVIDIA,1024,100:;")) == (1, {}, 1)


def test_a_card_that_as_many_use_as_may_has_no_room() -> None:
    few = registered({"count": 2})
    assert under_hami(few, part("p", "GPU-0,NVIDIA,1024,0:;"), part("q", "GPU-0,NVIDIA,1024,0:;")) == (1, {}, 1)


@pytest.mark.parametrize("text", ["not json", "[1]", '[{"id": "GPU-0"}]', "null", '[{"id": 1, "devmem": "x"}]'])
def test_cards_are_unknown_if_the_list_of_a_node_cannot_be_parsed(text: str) -> None:
    assert under_hami(text) is None
    found = survey(node("a", ("gpu", 20), hami=text))
    assert found.pools["gpu"].unknown
    assert "cannot be read" in found.pools["gpu"].nodes[0].why


@pytest.mark.whole
@pytest.mark.slow
@given(st.text(max_size=40))
def test_no_text_of_a_pod_breaks_the_count(text: str) -> None:
    assert under_hami(registered({}), part("p", text)) is not None


def survey(*nodes: object, pods: tuple[PodFacts, ...] = (), config: ClusterConfig | None = None) -> PoolSurvey:
    view = ClusterView({each.name: each for each in nodes}, {each.uid: each for each in pods}, namespace=HOME)  # type: ignore[attr-defined]
    return survey_pools(view, OfferConfig(), config or ClusterConfig(), names={}, leases=())


def test_nodes_with_and_without_hami_are_two_pools_told_apart_by_hamis_label() -> None:
    found = survey(node("a", ("gpu", 20), hami=registered({}, {}), labels={"gpu": "on"}), node("b", ("gpu", 8)))
    by_mechanism = {each.mechanism: each for each in found.pools.values()}
    hami, whole = by_mechanism[Mechanism.HAMI], by_mechanism[Mechanism.WHOLE]
    assert (hami.total, whole.total) == (2, 8)
    assert hami.node_labels == {NODE_PRODUCT: (A100,), "gpu": ("on",)}
    assert whole.node_labels == {NODE_PRODUCT: (A100,), "gpu": ()}


# ------------------------------------------------------------------ KAI


def test_what_is_left_of_a_card_is_what_its_sharers_leave() -> None:
    pods = (sharer("a", "g1", "0.5"), sharer("b", "g1", "0.3"), sharer("c", "g2", "0.25"))
    assert kai_room(pods, None) == {200: 1, 750: 1}


def test_a_card_that_is_full_has_no_room() -> None:
    assert kai_room((sharer("a", "g", "0.6"), sharer("b", "g", "0.4")), None) == {}


def test_memory_is_a_part_of_the_card_rounded_up() -> None:
    assert kai_room((sharer("a", "g", memory="2000"),), 46068 * MIB) == {WHOLE - 44: 1}


def test_kai_counts_a_card_in_full_hundreds_of_mib() -> None:
    assert kai_share(7680, 15360 * MIB) == 502, "a half of 15360, but KAI has 15300"
    assert kai_share(15301, 15360 * MIB) > WHOLE
    assert kai_share(1, 99 * MIB) == WHOLE, "so small a card is not known to KAI"


def test_a_fraction_of_several_cards_takes_of_each() -> None:
    assert kai_room((sharer("a", "g1,g2", "0.5"),), None) == {500: 2}


@pytest.mark.parametrize("fraction", ["a half", "", "nan", "inf", "-0.5", "0"])
def test_a_part_that_cannot_be_read_takes_the_rest_of_its_card(fraction: str) -> None:
    assert kai_room((sharer("a", "g", fraction),), None) == {}


def test_memory_of_a_card_whose_size_is_not_known_takes_all_of_it() -> None:
    assert kai_room((sharer("a", "g", memory="2000"),), None) == {}


def test_a_reservation_pod_holds_the_card_and_those_who_share_it_hold_their_parts() -> None:
    pods = (
        pod("reservation", "a", asks="gpu", namespace=KAI_RESERVATIONS, gpu_group="g1"),
        sharer("ours", "g1", "0.5"),
        pod("other", "a", asks="gpu"),
    )
    found = survey(node("a", ("gpu", 4)), pods=pods, config=KAI).pools["gpu"]
    assert (found.total, dict(found.room), found.foreign) == (4, {WHOLE: 2, 500: 1}, 1)


def test_without_kai_in_the_settings_a_shared_card_is_a_taken_one() -> None:
    held = pod("reservation", "a", asks="gpu", namespace=KAI_RESERVATIONS, gpu_group="g1")
    pods = (held, sharer("other", "g1", "0.5"))
    assert dict(survey(node("a", ("gpu", 4)), pods=pods).pools["gpu"].room) == {WHOLE: 3}


@pytest.mark.parametrize(
    ("text", "room"),
    [
        ("GPU-0,NVIDIA,10240", {750: 1}),
        ("GPU-0,NVIDIA", {WHOLE: 1}),
        ("GPU-0,NVIDIA,much,30:;", {WHOLE: 1}),
        ("GPU-0,NVIDIA,10240,half:;", {750: 1}),
        ("GPU-0,NVIDIA,10240,99:;", {750: 1}),
        ("GPU-0,NVIDIA,10240,101:;", {}),
        ("GPU-0,NVIDIA,40920,0:;", {}),
        ("GPU-0,NVIDIA,40919,0:;", {1: 1}),
        ("GPU-0,NVIDIA,50000,0:;", {}),
        ("GPU-9,NVIDIA,10240,30:;", {WHOLE: 1}),
    ],
)
def test_what_a_pod_took_of_a_card_is_read_as_hami_writes_it(text: str, room: dict[int, int]) -> None:
    found = under_hami(registered({}), part("p", text))
    assert found is not None
    assert (found[0], found[1]) == (1, room)


def test_a_card_under_hami_is_of_one_user_and_all_its_cores_where_the_list_does_not_say() -> None:
    bare = json.dumps([{"id": "GPU-0", "devmem": 40960}])
    assert under_hami(bare) == (1, {WHOLE: 1}, 0)
    assert under_hami(bare, part("p", "GPU-0,NVIDIA,1024,0:;")) == (1, {}, 1)
    assert under_hami(json.dumps([{"id": "GPU-0", "devmem": 40960, "count": 0}])) == (1, {}, 0), "nobody may use it"
    shared = json.dumps([{"id": "GPU-0", "devmem": 40960, "count": 3}])
    assert under_hami(shared, part("p", "GPU-0,NVIDIA,10240,99:;")) == (1, {750: 1}, 1)
    assert under_hami(shared, part("p", "GPU-0,NVIDIA,10240,100:;")) == (1, {}, 1)


def test_a_sharer_of_kais_takes_the_larger_word_and_at_most_its_card() -> None:
    assert kai_room((sharer("a", "g", "0.5", "100"),), 40960 * MIB) == {500: 1}
    assert kai_room((sharer("a", "g", "0.0001"),), None) == {999: 1}
    assert kai_room((sharer("a", "g", "1"),), None) == {}
    assert kai_room((sharer("a", "g", memory="20450"),), 40960 * MIB) == {500: 1}
    assert kai_room((sharer("a", "", "0.5"), sharer("b", "g", "0.5")), None) == {500: 1}
