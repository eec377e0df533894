"""What past uses say of the next one."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from hub_extensions.adapters.store import Changes
from hub_extensions.core.messages import UsageRecord
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.hub_service.engine.forecasts.past_uses import PEAKS, STARTS, PastUses

NOW = datetime(2026, 11, 2, 9, tzinfo=timezone.utc)
GPU = OfferId("gpu")


def used(seconds: float | None, peak: int | None = None, *, adopted: bool = False) -> UsageRecord:
    ready = None if seconds is None else NOW + timedelta(seconds=seconds)
    return UsageRecord("k", "ada", "", GPU, "gpu", 1000, NOW, "user", admitted=NOW, ready=ready, adopted=adopted,
                       peak_memory_bytes=peak)  # fmt: skip


def test_a_start_usually_takes_the_median_of_the_last_and_of_few_nothing_is_said() -> None:
    past = PastUses()
    past.learn([used(20), used(None), used(500, adopted=True), used(10)])
    assert past.usual_start(GPU) is None, "two are few"
    past.learn([used(40)])
    assert past.usual_start(GPU) == 20 and past.usual_start(OfferId("cpu")) is None
    past.learn([used(7)] * STARTS)
    assert past.usual_start(GPU) == 7, "the last ones count"


def test_the_most_memory_of_the_last_uses_is_known_of_their_own_user_alone() -> None:
    past = PastUses()
    past.remember(Changes(usage=(used(1, 9),)))
    assert (past.peak_of("ada"), past.peak_of("ben")) == (9, None)
    past.remember(Changes(usage=(used(1, 3), used(1, 5), used(1, None), used(1, 4))))
    assert past.peak_of("ada") == 5 and PEAKS == 3
    past.forget("ada")
    assert past.peak_of("ada") is None
