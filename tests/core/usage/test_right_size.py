"""Right-sizing as a table: of which finished use one can say that a smaller GPU would have been enough."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from hub_extensions.core.gpu.devices import Device
from hub_extensions.core.messages import UsageRecord
from hub_extensions.core.offers.model import GpuOffer, OfferConfig, derive_offers
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.text.reasons import as_text
from hub_extensions.core.usage.right_size import (
    ENOUGH,
    ENOUGH_WAS_FREE,
    EVERY,
    LARGER,
    UNUSED,
    SizeVerdict,
    advice_text,
    may_advise,
    right_size,
)

GIB = 1 << 30
NOON = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)
SMALL, MEDIUM, LARGE, HALF = map(OfferId, ("mig-1g.5gb", "mig-2g.10gb", "mig-3g.20gb", "gpu-0.5"))


def device(profile: str | None, gib: float, sms: int) -> Device:
    """A device of an A100, with the memory of a device of that profile."""
    return Device(f"U-{profile}", "NVIDIA A100-PCIE-40GB", profile=profile, memory_bytes=int(gib * GIB), sm_count=sms,
                  gpu_instance_id=None if profile is None else 1)  # fmt: skip


A100 = (device("1g.5gb", 4.75, 14), device("2g.10gb", 9.75, 28), device("3g.20gb", 19.6, 42), device(None, 39.4, 98))
OFFERS = derive_offers(A100, OfferConfig(fractions={"gpu": (0.5,)}))
SMALL_OF_OTHERS = derive_offers(A100, OfferConfig(groups={SMALL: ("other",), MEDIUM: ("other",)}))


def use(peak: float | None, offer: OfferId = LARGE, **changed: object) -> UsageRecord:
    """A use of an hour; `peak`: the most memory in GiB."""
    known = UsageRecord(
        "l1", "ada", "", offer, offer, 1000, NOON, "user", admitted=NOON - timedelta(hours=1),
        ready=NOON - timedelta(hours=1), waited_seconds=0.0, held_seconds=3600.0, ran_seconds=3600.0,
        mean_use_percent=20.0, highest_use_percent=90.0, use_measured=1.0, memory_measured=1.0,
        peak_memory_bytes=None if peak is None else int(peak * GIB),
    )  # fmt: skip
    return replace(known, **changed)  # type: ignore[arg-type]


NOTHING, NONE = SizeVerdict(), SizeVerdict("none")


@pytest.mark.parametrize(
    ("record", "verdict"),
    [
        (use(3.1), SizeVerdict(SMALL, ENOUGH)),
        (use(4.4), SizeVerdict(MEDIUM, ENOUGH)),
        (use(18.9), NOTHING),
        (use(9.0), NONE),
        (use(9.0, MEDIUM), NOTHING),
        (use(4.4, MEDIUM), NONE),
        (use(3.0, SMALL), NONE),
        (use(17.0, OfferId("gpu")), SizeVerdict(LARGE, ENOUGH)),
        (use(0.02, highest_use_percent=0.0), SizeVerdict(CPU, UNUSED)),
        (use(0.02, highest_use_percent=None, mean_use_percent=None), SizeVerdict(CPU, UNUSED)),
        (use(0.02, highest_use_percent=60.0), NOTHING),
        (use(0.06), SizeVerdict(SMALL, ENOUGH)),
        (use(3.1, memory_measured=0.3), NOTHING),
        (use(3.1, memory_measured=0.79), NOTHING),
        (use(3.1, memory_measured=0.8), SizeVerdict(SMALL, ENOUGH)),
        (use(3.1, memory_measured=None), NOTHING),
        (use(3.1, ran_seconds=360.0), NOTHING),
        (use(3.1, ran_seconds=599.0), NOTHING),
        (use(3.1, ran_seconds=600.0), SizeVerdict(SMALL, ENOUGH)),
        (use(3.1, ran_seconds=None, ready=None, end="failed"), NOTHING),
        (use(3.1, adopted=True), NOTHING),
        (use(3.1, source="csv"), NOTHING),
        (use(3.1, devices=2), NOTHING),
        (use(3.1, CPU, devices=0, share=0), NOTHING),
        (use(3.1, HALF, share=500), NOTHING),
        (use(3.1, OfferId("mig-7g.40gb")), NOTHING),
        (use(None), NOTHING),
        (use(18.9, end="failed"), SizeVerdict(None, LARGER)),
        (use(38.0, OfferId("gpu"), end="failed"), NOTHING),
        (use(3.1, end="idle"), SizeVerdict(SMALL, ENOUGH)),
    ],
)  # fmt: skip
def test_a_smaller_offer_would_have_been_enough_if_that_is_known(record: UsageRecord, verdict: SizeVerdict) -> None:
    assert right_size(record, OFFERS, None) == verdict


def test_an_offer_of_another_group_is_not_named() -> None:
    assert right_size(use(3.1), SMALL_OF_OTHERS, None) == NONE
    assert right_size(use(3.1, groups=("other",)), SMALL_OF_OTHERS, None) == SizeVerdict(SMALL, ENOUGH)
    assert (
        advice_text(use(3.1, smaller_would_do=SMALL, advice=ENOUGH), [each for each in OFFERS if each.id != SMALL])
        == ()
    )


def test_an_offer_of_unknown_memory_may_be_enough_or_not() -> None:
    unknown = [replace(each, memory_bytes=None) if each.id == SMALL else each for each in OFFERS]
    assert right_size(use(8.0, MEDIUM), unknown, None) == NOTHING
    assert right_size(use(3.1), unknown, None) == SizeVerdict(MEDIUM, ENOUGH)


def test_that_one_was_free_is_known_only_from_when_the_user_asked() -> None:
    assert right_size(use(3.1), OFFERS, (SMALL, MEDIUM)).advice == ENOUGH_WAS_FREE
    assert right_size(use(3.1), OFFERS, (MEDIUM,)).advice == ENOUGH
    assert right_size(use(3.1), OFFERS, ()).advice == ENOUGH


ENOUGH_SMALL = {"smaller_would_do": SMALL, "advice": ENOUGH}
WAS_FREE = {"smaller_would_do": SMALL, "advice": ENOUGH_WAS_FREE}


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (use(3.1), ""),
        (use(3.1, **ENOUGH_SMALL), "At most 3.1 of 19.6 GiB. A small GPU (4.75 GiB) would have been enough."),
        (
            use(3.1, **WAS_FREE),
            "At most 3.1 of 19.6 GiB. A small GPU (4.75 GiB) would have been enough. One was free when you asked.",
        ),
        (
            use(3.1, waited_seconds=725.0, **WAS_FREE),
            "At most 3.1 of 19.6 GiB. A small GPU (4.75 GiB) would have been enough. "
            "You would have waited 12 min less.",
        ),
        (
            use(3.1, mean_use_percent=88.2, **ENOUGH_SMALL),
            "At most 3.1 of 19.6 GiB. A small GPU (4.75 GiB) would have been enough. "
            "It was busy 88 % of the time; on a smaller one it takes longer.",
        ),
        (
            use(4.4, smaller_would_do=MEDIUM, advice=ENOUGH),
            "At most 4.4 of 19.6 GiB. A medium GPU (9.75 GiB) would have been enough.",
        ),
        (use(0.02, smaller_would_do=CPU, advice=UNUSED), "Its GPU was not used; CPU only would have been enough."),
        (
            use(9.3, MEDIUM, advice=LARGER),
            "At most 9.3 of 9.75 GiB. A large GPU (19.6 GiB) is the next to ask for: "
            "the memory was full when the server broke down.",
        ),
        (use(4.4, **ENOUGH_SMALL), ""),  # the offer has become smaller since
        (use(3.1, OfferId("mig-7g.40gb"), **ENOUGH_SMALL), ""),
    ],
)
def test_the_advice_in_words(record: UsageRecord, text: str) -> None:
    assert as_text(advice_text(record, OFFERS)) == text


def test_an_offer_with_a_title_of_the_site_is_named_by_it() -> None:
    offers = derive_offers(A100, OfferConfig(titles={SMALL: "Course GPU"}))
    assert "Course GPU (4.75 GiB)" in as_text(advice_text(use(3.1, **ENOUGH_SMALL), offers))


@pytest.mark.parametrize(
    ("earlier", "may"), [([], True), (["", ""], True), (["enough"], False), (["", "enough"], False),
                         (["", "", "enough"], True)],
)  # fmt: skip
def test_of_three_uses_in_a_row_at_most_one_brings_advice(earlier: list[str], may: bool) -> None:
    assert may_advise(earlier) is may


def test_no_advice_is_too_small_and_nine_of_ten_that_fit_are_told() -> None:
    """Simulated uses of 200 people. What fits is counted by the true need; the record has what was measured."""
    random_numbers = random.Random(7)
    sizes = {each.id: each for each in OFFERS if each.memory_enforced and each.id != CPU}
    fit = told = 0
    for _ in range(200):
        earlier: list[str] = []
        for _ in range(12):
            own = random_numbers.choice([MEDIUM, LARGE, OfferId("gpu")])
            need = min(random_numbers.lognormvariate(1.0, 1.0), (sizes[own].memory_bytes or 0) / GIB)
            takes_all = random_numbers.random() < 0.2
            peak = 0.95 * (sizes[own].memory_bytes or 0) / GIB if takes_all else need
            ran = random_numbers.lognormvariate(8.5, 1.2)
            measured = 1.0 if random_numbers.random() < 0.95 else random_numbers.random()
            record = use(peak, own, ran_seconds=ran, memory_measured=measured)
            verdict = right_size(record, OFFERS, None)
            advice = verdict.advice if may_advise(earlier) else ""
            if advice in (ENOUGH, ENOUGH_WAS_FREE):
                named: GpuOffer = sizes[OfferId(verdict.would_do or "")]
                assert (named.memory_bytes or 0) >= 1.1 * (record.peak_memory_bytes or 0)
                assert (named.memory_bytes or 0) < (sizes[own].memory_bytes or 0)
            smaller = [each for each in sizes.values() if (each.memory_bytes or 0) < (sizes[own].memory_bytes or 0)]
            fits = any((each.memory_bytes or 0) >= 1.1 * need * GIB for each in smaller)
            if fits and ran >= 600 and not takes_all and need >= 0.05 and may_advise(earlier):
                fit += 1
                told += advice != ""
            earlier.insert(0, advice)
            assert sum(map(bool, earlier[:EVERY])) <= 1
    assert fit > 300
    assert told >= 0.9 * fit, f"{told} of {fit}"
