"""Devices that are created on demand on a card: the available number is right whichever device the scheduler
allocates.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_extensions.adapters.kubernetes.parse import SliceFacts, counters_of, newest, slice_of, template_of
from hub_extensions.core.cluster.model import ClaimFacts, ClusterConfig, ClusterView
from hub_extensions.core.cluster.offers import derive_cluster_offers
from hub_extensions.core.cluster.pools import PoolSurvey, survey_pools
from hub_extensions.core.cluster.shared_counters import (
    CounterDraws,
    available_count,
    most_blocked,
    own_counter,
    shape_of,
)
from hub_extensions.core.offers.model import OfferConfig
from hub_extensions.core.queue.admission import admit, availability, standing
from hub_extensions.core.queue.model import QueueLimits
from tests.core.queue.test_counted_pools import lease, snapshot, ticket
from tests.examples import many
from tests.fakes.cluster_table import HOME, node, pod
from tests.fakes.partitions import DRIVER, PROFILES, claim_template, resource_slices

TEMPLATES = {"small": "1g.5gb", "wide": "1g.10gb", "half": "3g.20gb", "whole": ""}
IDS = {"small": "mig-1g.5gb@small", "wide": "mig-1g.10gb@wide", "half": "mig-3g.20gb@half", "whole": "gpu@whole"}


def slices(cards: int = 1, *, together: bool = False) -> list[SliceFacts]:
    return [found for raw in resource_slices("a", cards, together=together) if (found := slice_of(raw)) is not None]


def cut(number: int, profile: str, start: int) -> str:
    return f"gpu-{number}-mig-{profile.replace('.', '')}-{PROFILES[profile][0]}-{start}"


def view(*devices: str, facts: list[SliceFacts] | None = None, ours: tuple[str, ...] = ()) -> ClusterView:
    """A cluster in which each of these devices is claimed by a pod of its own. Those in `ours` belong to this hub's
    servers.
    """
    facts = slices() if facts is None else facts
    claims = [ClaimFacts(HOME, f"c-{name}", ((DRIVER, "a", name),), f"pod-{name}") for name in devices]
    pods = [
        pod(f"pod-{name}", "a", namespace=HOME, claims=(f"c-{name}",), lease=f"l-{name}" if name in ours else "")
        for name in devices
    ]
    found = [template_of(claim_template(name, profile)) for name, profile in TEMPLATES.items()]
    return ClusterView(
        {"a": node("a")},
        {each.uid: each for each in pods},
        namespace=HOME,
        slices=newest(facts),
        counters=counters_of(facts),
        claims=tuple(claims),
        templates=tuple(each for each in found if each is not None),
    )


def survey(seen: ClusterView) -> PoolSurvey:
    leases = [each.lease for each in (seen.pods or {}).values() if each.lease]
    return survey_pools(seen, OfferConfig(), ClusterConfig(), names={}, leases=leases)


def free(seen: ClusterView) -> dict[str, int]:
    found = survey(seen).pools
    return {name: found[pool].free for name, pool in IDS.items()}


# ------------------------------------------------------------------ an A100


@pytest.mark.parametrize("together", [False, True], ids=["counters in a slice of their own", "as on 1.34"])
def test_of_an_empty_card_every_profile_has_as_many_as_it_can_be_cut_into(together: bool) -> None:
    found = survey(view(facts=slices(2, together=together))).pools
    counts = {name: (found[pool].total, found[pool].free) for name, pool in IDS.items()}
    assert counts == {"small": (14, 14), "wide": (8, 8), "half": (4, 4), "whole": (2, 2)}


@pytest.mark.parametrize(
    ("taken", "left"),
    [
        ((cut(0, "1g.5gb", 0),), {"small": 6, "wide": 3, "half": 1, "whole": 0}),
        ((cut(0, "1g.5gb", 0), cut(0, "1g.5gb", 5)), {"small": 5, "wide": 2, "half": 0, "whole": 0}),
        ((cut(0, "3g.20gb", 4),), {"small": 4, "wide": 2, "half": 1, "whole": 0}),
        ((cut(0, "4g.20gb", 0), cut(0, "3g.20gb", 4)), {"small": 0, "wide": 0, "half": 0, "whole": 0}),
        (("gpu-0",), {"small": 0, "wide": 0, "half": 0, "whole": 0}),
        ((cut(0, "1g.10gb", 6),), {"small": 6, "wide": 3, "half": 1, "whole": 0}),
    ],
)
def test_what_is_claimed_of_a_card_is_missing_to_every_profile(taken: tuple[str, ...], left: dict[str, int]) -> None:
    assert free(view(*taken)) == left


def test_a_card_in_pieces_has_room_for_small_ones_and_none_for_a_large_one() -> None:
    pieces = tuple(cut(0, "1g.10gb", start) for start in (0, 4))
    assert free(view(*pieces)) == {"small": 3, "wide": 2, "half": 0, "whole": 0}


def test_what_others_took_is_told_apart_from_what_ours_have() -> None:
    mine, theirs = cut(0, "1g.5gb", 0), cut(0, "3g.20gb", 4)
    pool = survey(view(mine, theirs, ours=(mine,))).pools[IDS["small"]]
    assert (pool.total, pool.free, pool.foreign) == (7, 3, 3)


def test_a_claimed_device_that_is_tainted_goes_on_using_its_card() -> None:
    raw = resource_slices("a")
    sick = next(each for each in raw[1]["spec"]["devices"] if each["name"] == cut(0, "3g.20gb", 4))
    sick["taints"] = [{"key": "sick", "effect": "NoSchedule"}]
    facts = [found for each in raw if (found := slice_of(each)) is not None]
    assert free(view(facts=facts)) == {"small": 7, "wide": 4, "half": 1, "whole": 1}
    assert free(view(sick["name"], facts=facts)) == {"small": 4, "wide": 2, "half": 1, "whole": 0}


@pytest.mark.parametrize("missing", [0, 1])
def test_nothing_is_there_of_a_pool_whose_slices_are_not_all_there(missing: int) -> None:
    facts = slices()
    del facts[missing]
    assert free(view(facts=facts)) == dict.fromkeys(IDS, 0)


def test_counters_of_an_older_generation_do_not_count() -> None:
    old = [replace(each, generation=0, counters=tuple((a, b, 9) for a, b, _ in each.counters)) for each in slices()]
    assert free(view(facts=[*old, *slices()]))["small"] == 7
    assert free(view(facts=[*slices(), *old]))["small"] == 7


@pytest.mark.parametrize("value", ["lots", "0.5", None])
def test_a_counter_that_cannot_be_read_promises_nothing(value: str | None) -> None:
    raw = resource_slices("a")
    raw[0]["spec"]["sharedCounters"][0]["counters"]["multiprocessors"]["value"] = value
    facts = [found for each in raw if (found := slice_of(each)) is not None]
    assert free(view(facts=facts)) == dict.fromkeys(IDS, 0)


def test_several_nodes_are_counted_apart_and_one_that_takes_nothing_does_not_count() -> None:
    found = survey(replace(view(), nodes={"a": node("a", cordoned=True)})).pools[IDS["small"]]
    assert (found.total, found.free) == (0, 0)
    assert (found.nodes[0].total, found.nodes[0].why) == (7, "it is cordoned: nothing new is placed there")


# ------------------------------------------------------------------ promises


OFFERS = tuple(IDS.values())


def admitted(seen: ClusterView, wanted: list[str], held: tuple[str, ...] = ()) -> list[str]:
    """Return the offers of the admitted tickets. `held` are offers of leases whose claim is not allocated yet."""
    found = survey(seen)
    offers = derive_cluster_offers(found.pools, OfferConfig(), ClusterConfig()).offers
    tickets = tuple(ticket(number, offer) for number, offer in enumerate(wanted))
    leases = tuple(lease(number, offer) for number, offer in enumerate(held))
    now = replace(
        snapshot(*found.pools.values(), tickets=tickets, leases=leases, config=QueueLimits(max_starting=500)),
        offers=offers,
    )
    return [each.offer for each in admit(now)]


def test_a_promise_to_one_profile_is_missing_to_the_others_at_its_worst() -> None:
    small, half, whole = IDS["small"], IDS["half"], IDS["whole"]
    assert admitted(view(), [whole, small]) == [whole]
    assert admitted(view(), [small, whole]) == [small]
    assert admitted(view(), [small, half]) == [small, half], "one may spoil one of the two halves, not both"
    assert admitted(view(), [half], held=(small, small)) == [], "two of them may lie in both halves"


def test_the_first_ticket_is_served_first_even_if_a_later_one_wants_a_smaller_device() -> None:
    small, whole = IDS["small"], IDS["whole"]
    assert admitted(view(cut(0, "1g.5gb", 0), ours=(cut(0, "1g.5gb", 0),)), [small, whole, small, small]) == [small]
    found = survey(view(cut(0, "1g.5gb", 0), ours=(cut(0, "1g.5gb", 0),)))
    offers = derive_cluster_offers(found.pools, OfferConfig(), ClusterConfig()).offers
    now = replace(snapshot(*found.pools.values(), tickets=(ticket(0, whole), ticket(1, small))), offers=offers)
    said = standing(now, now.tickets[0].joined)
    assert "in use or cut in another way" in said["t0"].reason.message
    assert said["t1"].reason.message.startswith("Somebody who came before you waits for a GPU that yours would be cut")
    stands = {each.offer.id: each for each in availability(now, now.tickets[0].joined)}
    assert stands[small].free == 6 and not stands[small].wait.now


def test_who_waits_for_what_others_pods_are_in_the_way_of_holds_up_nobody() -> None:
    small, whole = IDS["small"], IDS["whole"]
    assert admitted(view(cut(0, "1g.5gb", 0)), [whole, small, small]) == [small, small]


def test_two_templates_for_some_of_the_same_whole_devices_are_not_both_promised_them() -> None:
    any_card = template_of(claim_template("any"))
    named = template_of(claim_template("named"))
    assert any_card is not None and named is not None
    named = replace(named, selectors=(f"device.attributes['{DRIVER}'].productName == 'NVIDIA A100-SXM4-40GB'",))
    raw = resource_slices("a", 2, together=True)[0]
    raw["spec"]["devices"] = [
        {key: value for key, value in each.items() if key != "consumesCounters"}
        for each in raw["spec"]["devices"]
        if each["name"] in ("gpu-0", "gpu-1")
    ]
    del raw["spec"]["sharedCounters"]
    facts = slice_of(raw)
    assert facts is not None
    seen = replace(view(facts=[facts]), templates=(any_card, named))
    assert {key: each.free for key, each in survey(seen).pools.items()} == {"gpu@any": 2, "gpu@named": 2}
    assert admitted(seen, ["gpu@any", "gpu@named", "gpu@named"]) == ["gpu@any", "gpu@named"]


@pytest.mark.whole
@pytest.mark.slow
@many(300)
@given(
    cards=st.integers(1, 2),
    before=st.lists(st.sampled_from(tuple(TEMPLATES)), max_size=6),
    held=st.lists(st.sampled_from(tuple(TEMPLATES)), max_size=3),
    wanted=st.lists(st.sampled_from(tuple(TEMPLATES)), max_size=20),
    luck=st.randoms(use_true_random=False),
)
def test_whoever_is_let_in_gets_a_device_however_the_scheduler_chooses(
    cards: int, before: list[str], held: list[str], wanted: list[str], luck: Random
) -> None:
    scheduler = Scheduler(cards, luck)
    for template in before:
        scheduler.place(template)
    seen = view(*scheduler.taken, facts=slices(cards))
    # leases from before are there as far as they were let in themselves
    promised = [{key: name for name, key in IDS.items()}[each] for each in admitted(seen, [IDS[name] for name in held])]
    let_in = admitted(seen, [IDS[name] for name in wanted], tuple(IDS[name] for name in promised))
    everybody = promised + [{key: name for name, key in IDS.items()}[each] for each in let_in]
    luck.shuffle(everybody)
    for template in everybody:
        assert scheduler.place(template), f"{template} of {everybody} finds nothing beside {scheduler.taken}"


@pytest.mark.whole
@pytest.mark.slow
@many(200)
@given(
    cards=st.integers(1, 2),
    before=st.lists(st.sampled_from(tuple(TEMPLATES)), max_size=8),
    template=st.sampled_from(tuple(TEMPLATES)),
    luck=st.randoms(use_true_random=False),
)
def test_what_is_free_of_a_profile_is_just_what_the_scheduler_can_place(
    cards: int, before: list[str], template: str, luck: Random
) -> None:
    scheduler = Scheduler(cards, luck)
    for each in before:
        scheduler.place(each)
    said = free(view(*scheduler.taken, facts=slices(cards)))[template]
    placed = 0
    while scheduler.place(template):
        placed += 1
    assert placed == said


class Scheduler:
    """Allocates a random device that fits."""

    def __init__(self, cards: int, luck: Random) -> None:
        facts = slices(cards)
        self._luck = luck
        self._devices = newest(facts)
        counters = counters_of(facts)[0].counters
        self._left = {(counter_set, name): value for counter_set, name, value in counters}
        self.taken: list[str] = []

    def place(self, template: str) -> bool:
        profile = TEMPLATES[template]
        fitting = [
            each
            for each in self._devices
            if (each.kind, each.profile) == ("mig" if profile else "gpu", profile)
            and each.name not in self.taken
            and all(self._left[counter_set, name] >= amount for counter_set, name, amount in each.draws)
        ]
        if not fitting:
            return False
        chosen = self._luck.choice(fitting)
        self.taken.append(chosen.name)
        for counter_set, name, amount in chosen.draws:
            self._left[counter_set, name] -= amount
        return True


# ------------------------------------------------------------------ cards of any kind


AMOUNTS = st.lists(st.integers(0, 3), min_size=4, max_size=4)


@pytest.mark.whole
@pytest.mark.slow
@many(400)
@given(
    wanted=st.lists(AMOUNTS, min_size=1, max_size=6),
    given_=st.lists(AMOUNTS, min_size=1, max_size=3),
    full=st.lists(st.integers(0, 9), min_size=4, max_size=4),
    luck=st.randoms(use_true_random=False),
)
def test_of_whatever_devices_no_more_is_said_than_there_is_and_one_costs_no_more_than_is_said(
    wanted: list[list[int]], given_: list[list[int]], full: list[int], luck: Random
) -> None:
    devices = tuple(draws(f"w{number}", amounts) for number, amounts in enumerate(wanted))
    others = tuple(draws(f"g{number}", amounts) for number, amounts in enumerate(given_))
    left = {("card", str(number)): value for number, value in enumerate(full)}
    left |= {own_counter(name): 1 for name in (*(f"w{n}" for n in range(6)), *(f"g{n}" for n in range(3)))}
    for other in luck.sample(others, len(others)):
        said = available_count(devices, left)
        assert 0 <= said <= len(devices)
        assert said <= placed_by_chance(devices, dict(left), luck)
        if not fits(other, left):
            break
        draw(other, left)
        assert said - available_count(devices, left) <= most_blocked((other,), devices)


def draws(name: str, amounts: list[int]) -> CounterDraws:
    said = [("card", str(number), amount) for number, amount in enumerate(amounts) if amount]
    return ((*own_counter(name), 1), *said)


def fits(device: CounterDraws, left: dict[tuple[str, str], int]) -> bool:
    return all(left[counter_set, counter] >= amount for counter_set, counter, amount in device)


def draw(device: CounterDraws, left: dict[tuple[str, str], int]) -> None:
    for counter_set, counter, amount in device:
        left[counter_set, counter] -= amount


def placed_by_chance(devices: tuple[CounterDraws, ...], left: dict[tuple[str, str], int], luck: Random) -> int:
    count = 0
    while fitting := [each for each in devices if fits(each, left)]:
        draw(luck.choice(fitting), left)
        count += 1
    return count


def test_devices_that_differ_only_in_where_they_lie_are_counted_exactly() -> None:
    shape = shape_of(
        tuple(draws(str(number), [1 if number == at else 0 for at in range(3)] + [2]) for number in range(3))
    )
    assert (shape.common, shape.widths) == ({("card", "3"): 2}, (1, 1, 1))


def test_each_group_has_the_width_of_its_own_devices() -> None:
    alone, pair = (("", "a", 1), ("card", "x", 1)), [(("", name, 1), ("card", "y", 1)) for name in "bc"]
    shape = shape_of((alone, *pair))
    assert (shape.groups, shape.widths) == ((0, 1, 1), (1, 2))
    left = {("", "a"): 1, ("", "b"): 1, ("", "c"): 1, ("card", "x"): 1, ("card", "y"): 1}
    assert available_count((alone, *pair), left) == 2, "the one, and one of the two"


TWO = ((("", "a", 1), ("card", "slice", 1)), (("", "b", 1), ("card", "slice", 1)))


@pytest.mark.parametrize(
    ("left", "count"),
    [
        ({}, 0),
        ({("", "a"): 1, ("", "b"): 1}, 0),
        ({("", "a"): 1, ("", "b"): 1, ("card", "slice"): 1}, 1),
        ({("", "a"): 1, ("", "b"): 1, ("card", "slice"): 2}, 2),
        ({("", "a"): 1, ("card", "slice"): 2}, 1),
        ({("", "a"): 0, ("", "b"): 0, ("card", "slice"): 2}, 0),
        ({("", "a"): 1, ("", "b"): 1, ("card", "slice"): -1}, 0),
    ],
)
def test_a_missing_counter_has_nothing_left(left: dict[tuple[str, str], int], count: int) -> None:
    assert available_count(TWO, left) == count


def test_a_device_that_draws_nothing_of_a_counter_needs_nothing_of_it() -> None:
    draws = ((("", "a", 0), ("card", "slice", 1)), (("", "b", 0), ("card", "slice", 1)))
    assert available_count(draws, {("card", "slice"): 2}) == 2


def test_devices_that_are_not_there_are_none_and_lose_nothing() -> None:
    assert (available_count((), {}), most_blocked((), TWO), most_blocked(TWO, ())) == (0, 0, 0)
    assert most_blocked(TWO, TWO) == 1
    wide = ((("", "w", 1), ("card", "slice", 3)),)
    assert (most_blocked(wide, TWO), most_blocked(TWO, wide)) == (3, 1)
