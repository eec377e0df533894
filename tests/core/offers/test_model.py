"""The offers of the spawn form, from the devices of a machine and the administrator's settings."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_extensions.adapters.files.mig_tables import sm_of_product
from hub_extensions.core.gpu.devices import Device
from hub_extensions.core.offers.model import (
    Access,
    GpuOffer,
    OfferConfig,
    OfferConfigError,
    OfferKind,
    Separation,
    check_config,
    config_warnings,
    derive_offers,
    share_of,
)
from hub_extensions.core.offers.offer_id import OfferId, OfferIdError
from hub_extensions.core.queue.alternatives import smaller_free
from hub_extensions.core.queue.model import Availability
from hub_extensions.core.queue.wait_bound import WaitForecast

MIB = 2**20
A100 = "NVIDIA A100-PCIE-40GB"


def mig(number: int, profile: str, memory_mib: int | None, sm: int | None, product: str = A100) -> Device:
    return Device(f"MIG-{number}", product, profile, memory_bytes=memory_mib and memory_mib * MIB, sm_count=sm)


def whole(number: int, memory_mib: int | None = 32510, product: str = "Tesla V100-SXM2-32GB") -> Device:
    return Device(f"GPU-{number}", product, memory_bytes=memory_mib and memory_mib * MIB, sm_count=80)


LAB = (*(mig(number, "1g.5gb", 4864, 14) for number in range(5)), mig(5, "2g.10gb", 9984, 28))


def by_id(offers: tuple[GpuOffer, ...]) -> dict[str, GpuOffer]:
    return {offer.id: offer for offer in offers}


def test_the_lab_machine_has_two_mig_offers_and_cpu_only() -> None:
    offers = derive_offers(LAB, OfferConfig(), sm_of_product=sm_of_product)
    assert [offer.id for offer in offers] == ["mig-1g.5gb", "mig-2g.10gb", "cpu"]
    small = offers[0]
    assert (small.title, small.pool, small.share, small.product) == ("MIG 1g.5gb", "mig-1g.5gb", 1000, A100)
    assert (small.memory_bytes, small.sm_count, small.sm_total) == (4864 * MIB, 14, 98)
    assert small.memory_enforced


SMALL, MEDIUM, LARGE, LARGER = "Small GPU", "Medium GPU", "Large GPU", "Extra large GPU"


@pytest.mark.parametrize(
    ("sizes", "names"),
    [
        (["1g.5gb"], [SMALL]),
        (["1g.5gb", "2g.10gb"], [SMALL, MEDIUM]),  # 2/7 of a card is not large, though nothing larger is offered
        (["1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb"], [SMALL, MEDIUM, LARGE, LARGER]),
        (["1g.5gb", "1g.10gb", "3g.20gb"], ["MIG 1g.5gb", "MIG 1g.10gb", LARGE]),
    ],
)
def test_parts_of_a_card_are_named_by_their_size_and_no_two_alike(sizes: list[str], names: list[str]) -> None:
    cut = [mig(number, size, 4000 * (number + 1), 14) for number, size in enumerate(sizes)]
    offers = derive_offers([*cut, whole(9)], OfferConfig())
    assert [offer.plain_name for offer in offers] == [*names, "Whole GPU", "CPU only"]
    own = derive_offers([*cut, whole(9)], OfferConfig(titles={"mig-1g.5gb": "Course", "gpu": "The big one"}))
    assert [offer.plain_name for offer in own] == ["Course", *names[1:], "The big one", "CPU only"]


def test_an_offer_says_the_devices_real_memory_not_the_names_figure() -> None:
    (offer, _) = derive_offers([mig(1, "1g.18gb", 16384, 16, "NVIDIA H200")], OfferConfig())
    assert offer.memory_bytes == 16 * 2**30


def test_every_offer_carries_its_isolation_of_memory_fault_compute_and_access() -> None:
    offers = by_id(derive_offers((*LAB, whole(1)), OfferConfig(fractions={"gpu": (0.5,), "mig-2g.10gb": (0.5,)})))
    for offer in offers.values():
        separations = {offer.isolation.memory, offer.isolation.fault, offer.isolation.compute}
        own = offer.kind in (OfferKind.MIG, OfferKind.WHOLE)
        assert separations == {Separation.HARDWARE if own else Separation.NONE}
        expected = Access.NOT_APPLICABLE if offer.id == "cpu" else Access.BY_AGREEMENT
        assert offer.isolation.access is expected


def test_a_fraction_is_shared_and_its_memory_is_a_share_of_the_least_device() -> None:
    """2-5: half of a V100's 32,510 MiB is 16,255 MiB."""
    devices = (whole(1), whole(2, 32768))
    half = by_id(derive_offers(devices, OfferConfig(fractions={"gpu": (0.5,)})))["gpu-0.5"]
    assert (half.kind, half.title, half.pool, half.share) == (OfferKind.FRACTION, "Half of a GPU", "gpu", 500)
    assert half.memory_bytes == 16255 * MIB
    assert not half.memory_enforced
    assert (half.sm_count, half.sm_total) == (None, None)
    assert "no memory or fault isolation" in half.description


def test_the_forms_order_is_mig_fractions_whole_and_cpu_last() -> None:
    config = OfferConfig(fractions={"gpu": (0.5, 0.25), "mig-3g.20gb": (0.5,)})
    devices = (whole(1), mig(1, "3g.20gb", 19968, 42), *LAB)
    assert [offer.id for offer in derive_offers(devices, config)] == [
        "mig-1g.5gb",
        "mig-2g.10gb",
        "mig-3g.20gb",
        "gpu-0.25",
        "mig-3g.20gb-0.5",
        "gpu-0.5",
        "gpu",
        "cpu",
    ]


def test_cpu_only_is_offered_without_any_gpu_and_whatever_is_declared() -> None:
    assert [offer.id for offer in derive_offers((), OfferConfig(fractions={"gpu": (0.5,)}))] == ["cpu"]
    with pytest.raises(OfferConfigError, match="cannot be hidden"):
        derive_offers((), OfferConfig(hidden=("cpu",)))
    with pytest.raises(OfferConfigError, match="to everybody"):
        derive_offers((), OfferConfig(groups={"cpu": ("course-a",)}))


def test_a_gpu_instance_without_a_compute_instance_makes_no_offer() -> None:
    broken = replace(mig(1, "1g.5gb", 4864, 14), usable=False, reason="no compute instance")
    assert [offer.id for offer in derive_offers([broken], OfferConfig())] == ["cpu"]


def test_what_one_device_does_not_tell_is_not_known_of_the_offer() -> None:
    (offer, _) = derive_offers([mig(1, "1g.5gb", 4864, 14), mig(2, "1g.5gb", None, None)], OfferConfig())
    assert (offer.memory_bytes, offer.sm_count, offer.sm_total) == (None, None, None)


def test_two_models_in_one_pool_show_the_least_and_no_product() -> None:
    devices = [mig(1, "1g.10gb", 9728, 14), mig(2, "1g.10gb", 9984, 16, "NVIDIA H100 80GB HBM3")]
    (offer, _) = derive_offers(devices, OfferConfig(), sm_of_product=sm_of_product)
    assert (offer.memory_bytes, offer.sm_count, offer.sm_total, offer.product) == (9728 * MIB, 14, None, "")


def test_an_offer_of_simulated_devices_says_so() -> None:
    offers = by_id(derive_offers([replace(device, simulated=True) for device in LAB], OfferConfig()))
    assert offers["mig-1g.5gb"].simulated
    assert not offers["cpu"].simulated


def test_the_admins_words_groups_and_hidden_offers_are_followed() -> None:
    config = OfferConfig(
        fractions={"gpu": (0.5,)},
        titles={"mig-1g.5gb": "Small"},
        descriptions={"cpu": "For everything else"},
        groups={"mig-2g.10gb": ("course-a",)},
        hidden=("gpu",),
    )
    offers = by_id(derive_offers((*LAB, whole(1)), config))
    assert offers["mig-1g.5gb"].title == "Small"
    assert offers["cpu"].description == "For everything else"
    assert offers["mig-2g.10gb"].groups == ("course-a",)
    assert "gpu" not in offers
    assert "gpu-0.5" in offers


@pytest.mark.parametrize(
    ("config", "field", "words"),
    [
        (OfferConfig(fractions={"gpu": (1.5,)}), "fractions['gpu']", "above 0 and below 1, not 1.5"),
        (OfferConfig(fractions={"gpu": (1,)}), "fractions['gpu']", "the whole device, which is offered anyway"),
        (OfferConfig(fractions={"gpu": (0,)}), "fractions['gpu']", "above 0"),
        (OfferConfig(fractions={"gpu": (-0.5,)}), "fractions['gpu']", "above 0"),
        (OfferConfig(fractions={"gpu": (float("nan"),)}), "fractions['gpu']", "above 0"),
        (OfferConfig(fractions={"gpu": (0.3333,)}), "fractions['gpu']", "at most three decimals"),
        (OfferConfig(fractions={"gpu": (0.5, 0.50)}), "fractions['gpu']", "two offers would have one id"),
        (OfferConfig(fractions={"gpu": ()}), "fractions['gpu']", "a list of shares"),
        (OfferConfig(fractions={"gpu": 0.5}), "fractions['gpu']", "a list of shares"),  # type: ignore[dict-item]
        (OfferConfig(fractions={"cpu": (0.5,)}), "fractions['cpu']", "use gpu or a MIG profile"),
        (OfferConfig(fractions={"gpu-0.5": (0.5,)}), "fractions['gpu-0.5']", "use gpu or a MIG profile"),
        (OfferConfig(fractions={"big": (0.5,)}), "fractions['big']", "is no offer"),
        (OfferConfig(fractions={"mig-1g.10gb+me": (0.5,)}), "fractions['mig-1g.10gb+me']", "write mig-1g.10gb.me"),
        (
            OfferConfig(memory_gib={"mig-3g.20gb": (8,)}),
            "memory_gib['mig-3g.20gb']",
            "parts by memory are of whole GPUs",
        ),
        (OfferConfig(memory_gib={"gpu-0.5": (8,)}), "memory_gib['gpu-0.5']", "parts by memory are of whole GPUs"),
        (OfferConfig(memory_gib={"gpu.shared": (8,)}), "memory_gib['gpu.shared']", "parts by memory are of whole GPUs"),
        (OfferConfig(memory_gib={"big": (8,)}), "memory_gib['big']", "is no offer"),
        (OfferConfig(memory_gib={"gpu": ()}), "memory_gib['gpu']", "a list of GiB"),
        (OfferConfig(memory_gib={"gpu": 8}), "memory_gib['gpu']", "a list of GiB"),  # type: ignore[dict-item]
        (OfferConfig(memory_gib={"gpu": (0,)}), "memory_gib['gpu']", "a whole number of GiB above 0"),
        (OfferConfig(memory_gib={"gpu": (8.5,)}), "memory_gib['gpu']", "a whole number of GiB"),  # type: ignore[dict-item]
        (OfferConfig(memory_gib={"gpu": (True,)}), "memory_gib['gpu']", "a whole number of GiB"),
        (OfferConfig(memory_gib={"gpu": (8, 8)}), "memory_gib['gpu']", "two offers would have one id"),
        (OfferConfig(hidden=("mig-3g.20gb-8gib",)), "hidden", "write gpu-8gib"),
        (OfferConfig(hidden=("gpu-08gib",)), "hidden", "is no offer"),
        (OfferConfig(default_offer="1g.5gb"), "default_offer", "write mig-1g.5gb"),
        (OfferConfig(default_offer="gpu", hidden=("gpu",)), "default_offer", "gpu is hidden"),
        (OfferConfig(default_offer="gpu@tesla-t4", hidden=("gpu",)), "default_offer", "gpu@tesla-t4 is hidden"),
        (OfferConfig(titles={"gpu": " "}), "titles['gpu']", "a text is needed"),
        (OfferConfig(titles={"1g.5gb": "x"}), "titles['1g.5gb']", "write mig-1g.5gb"),
        (OfferConfig(groups={"gpu": "course-a"}), "groups['gpu']", "a list of group names"),  # type: ignore[dict-item]
        (OfferConfig(hidden=("gpu-1.5",)), "hidden", "above 0 and at most 1"),
        (OfferConfig(hidden="gpu"), "hidden", "a list of offer ids"),  # type: ignore[arg-type]
    ],
)
def test_an_invalid_setting_names_the_field_and_a_valid_value(config: OfferConfig, field: str, words: str) -> None:
    with pytest.raises(OfferConfigError) as caught:
        check_config(config)
    assert caught.value.field == field
    assert words in caught.value.text


def test_a_declaration_without_a_device_is_a_warning() -> None:
    config = OfferConfig(
        fractions={"gpu": (0.5,), "mig-2g.10gb": (0.5,)},
        titles={"gpu": "Big", "mig-1g.5gb": "Small"},
        hidden=("gpu-0.5",),
    )
    check_config(config)
    assert config_warnings(LAB, config) == (
        "fractions['gpu']: this machine has no such device (it has mig-1g.5gb, mig-2g.10gb).",
        "titles['gpu']: there is no such offer.",
    )


@given(st.integers(1, 999))
def test_every_share_of_thousandths_is_exact_and_its_id_reads_back(share: int) -> None:
    offer = OfferId("gpu").part(share)
    assert (OfferId(str(offer)), offer.pool, offer.share) == (offer, "gpu", share)
    assert share_of(float(str(offer).removeprefix("gpu-"))) == share


@pytest.mark.parametrize(("text", "offer"), [("gpu-8gib", ("gpu", 8)), ("gpu-16gib@tesla-t4", ("gpu@tesla-t4", 16))])
def test_a_part_by_memory_has_its_size_in_the_id(text: str, offer: tuple[str, int]) -> None:
    found = OfferId(text)
    assert (found.pool, found.gib, found.share) == (*offer, 0)
    assert str(found) == text


def test_a_preselected_offer_that_is_not_there_is_a_warning() -> None:
    assert config_warnings((whole(1),), OfferConfig(default_offer="cpu")) == ()
    assert config_warnings((whole(1),), OfferConfig(default_offer="mig-1g.5gb")) == (
        "default_offer: there is no offer mig-1g.5gb.",
    )


def test_parts_by_memory_on_one_machine_are_a_warning() -> None:
    config = OfferConfig(memory_gib={"gpu": (8,)})
    assert [offer.id for offer in derive_offers((whole(1),), config)] == ["gpu", "cpu"]
    assert "KAI does, on a cluster" in config_warnings((whole(1),), config)[0]


@given(
    st.text(max_size=20)
    | st.from_regex(r"(gpu|mig-[1-7]g\.[0-9]{1,2}gb(-me)?)(-[0-9.]{1,5}|-[0-9]{1,4}gib)?(@[a-z]{1,3})?", fullmatch=True)
)
def test_any_text_is_an_offers_id_or_refused(text: str) -> None:
    try:
        found = OfferId(text)
    except OfferIdError:
        return
    assert str(found) == text


@given(st.lists(st.sampled_from([*LAB, whole(1), whole(2), mig(9, "1g.10gb+me", None, None)]), unique=True))
def test_there_is_one_offer_a_pool_and_cpu_only_comes_last(devices: list[Device]) -> None:
    offers = derive_offers(devices, OfferConfig())
    assert offers[-1].id == "cpu"
    assert sorted(offer.id for offer in offers[:-1]) == sorted({device.pool for device in devices})


def test_smaller_offers_that_would_start_now_are_suggested_largest_first() -> None:
    devices = (whole(1, 40000), mig(1, "1g.10gb", 9984, 14), *LAB)
    offers = by_id(derive_offers(devices, OfferConfig(fractions={"gpu": (0.5,)})))
    free = {"mig-1g.5gb": 2, "mig-1g.10gb": 1, "mig-2g.10gb": 0, "gpu": 1, "gpu-0.5": None, "cpu": 9}
    stand = [available(offers[name], count) for name, count in free.items()]
    assert [offer.id for offer in smaller_free(offers["mig-2g.10gb"], stand)] == ["mig-1g.10gb", "mig-1g.5gb"]
    assert smaller_free(offers["mig-1g.5gb"], stand) == ()
    assert smaller_free(offers["cpu"], stand) == ()


def test_a_smaller_one_that_others_wait_for_is_not_suggested() -> None:
    offers = by_id(derive_offers(LAB, OfferConfig()))
    assert smaller_free(offers["mig-2g.10gb"], [available(offers["mig-1g.5gb"], 1, now=False)]) == ()


def test_without_known_memory_only_what_is_surely_smaller_is_suggested() -> None:
    devices = [mig(1, "1g.5gb", None, None), mig(2, "2g.10gb", None, None), whole(1, None)]
    offers = by_id(derive_offers(devices, OfferConfig(fractions={"gpu": (0.5,)})))
    stand = [available(offer, 1) for offer in offers.values()]
    assert [offer.id for offer in smaller_free(offers["mig-2g.10gb"], stand)] == ["mig-1g.5gb"]
    assert [offer.id for offer in smaller_free(offers["gpu"], stand)] == ["gpu-0.5"]


def available(offer: GpuOffer, free: int | None, now: bool = True) -> Availability:
    forecast = WaitForecast(now=now, p10=None, p50=None, p90=None, at_most=None, reason="")
    return Availability(offer, free=free, total=free, held=0, foreign=0, lost=0, waiting=0, wait=forecast)
