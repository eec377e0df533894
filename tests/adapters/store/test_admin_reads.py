"""What the admins' pages read of the store: uses of the last days, and the journal by its words."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from hub_extensions.adapters.store import Changes, JournalFilter, JournalRow, Store
from hub_extensions.core.messages import UsageRecord
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.text.reasons import explain
from hub_extensions.core.usage.right_size import FittingHours

NOW = datetime(2026, 1, 5, 12, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)
USE = UsageRecord("a", "ada", "", OfferId("gpu-0.5"), "gpu", 500, NOW, "idle", groups=("ml",), asked=NOW - 3 * HOUR,
                  admitted=NOW - 2 * HOUR, ready=NOW - 2 * HOUR, waited_seconds=3600.0)  # fmt: skip


@pytest.fixture
def store() -> Store:
    return Store.open("sqlite://")


async def test_uses_of_gpus_are_counted_from_their_admission_and_by_their_share(store: Store) -> None:
    others = (
        replace(USE, key="old", ended=NOW - 30 * HOUR),
        replace(USE, key="cpu", offer=CPU, devices=0, share=0),
        replace(USE, key="failed", ready=None, end="failed"),
    )
    await store.commit(Changes(usage=(USE, *others)))
    found = sorted(await store.uses_since(NOW - 24 * HOUR), key=lambda each: each.end)
    assert [(each.end, each.ready) for each in found] == [("failed", False), ("idle", True)]
    one = found[1]
    assert (one.began, one.ended, one.devices, one.groups, one.waited_seconds) == (
        NOW - 2 * HOUR, NOW, 0.5, ("ml",), 3600.0,
    )  # fmt: skip
    store.close()


async def test_the_hours_that_fitted_a_smaller_offer_are_summed_by_pool(store: Store) -> None:
    """Unknown, imported, old and few uses are not in the sum; a busy use fitted no smaller offer."""
    large = replace(USE, offer=OfferId("gpu"), share=1000, held_seconds=3600.0)
    changed: tuple[dict[str, object], ...] = (
        {"smaller_would_do": "mig-1g.5gb", "held_seconds": 7200.0},
        {"smaller_would_do": "mig-1g.5gb", "share": 500, "mean_use_percent": 20.0},
        {"smaller_would_do": "mig-1g.5gb", "mean_use_percent": 88.0},
        {"smaller_would_do": "cpu"},
        {"smaller_would_do": "none", "held_seconds": 18000.0},
        {"smaller_would_do": None, "held_seconds": 1e6},
        {"smaller_would_do": "mig-1g.5gb", "ended": NOW - 31 * 24 * HOUR},
        {"smaller_would_do": "mig-1g.5gb", "pool": "mig-2g.10gb"},
    )
    uses = tuple(replace(large, key=f"u{at}", **each) for at, each in enumerate(changed))  # type: ignore[arg-type]
    await store.commit(Changes(usage=uses))
    assert await store.fitting_hours(NOW - 30 * 24 * HOUR) == (FittingHours("gpu", 5, 9.5, 2.5, 1.0),)
    store.close()


async def test_the_journal_is_searched_by_any_of_its_words_in_any_case(store: Store) -> None:
    rows = (
        JournalRow(NOW, "culled", None, None, "ada", "thesis", "Idle for 30 min.", "service", "use 0 % by nvml"),
        JournalRow(NOW, "drained-card", None, None, None, None, "A new 100% fan_", "admin root", ""),
    )
    await store.commit(Changes(journal=rows))
    for words, kinds in (
        ("IDLE", ["culled"]), ("thes", ["culled"]), ("NVML", ["culled"]), ("root", ["drained-card"]),
        ("100%", ["drained-card"]), ("fan_", ["drained-card"]), ("%", ["drained-card", "culled"]), ("nobody", []),
    ):  # fmt: skip
        found = await store.journal(10, JournalFilter(words=words))
        assert [row.kind for row in found] == kinds, words
    store.close()


async def test_the_journal_is_searched_by_what_a_reader_of_another_language_sees(store: Store) -> None:
    about = (None, "ada", "")
    rows = (
        JournalRow.because(NOW, "culled", about, [explain("idle", idle=60.0)], "service", [explain("seen-no-use")]),
        JournalRow.because(NOW, "failed", about, [explain("idle-at-first", idle=60.0, grace=60.0)], "service"),
        JournalRow(NOW, "warned", None, None, "ben", "", "joutilaana", "service"),
    )
    await store.commit(Changes(journal=rows))
    for codes, kinds in ((("idle",), ["warned", "culled"]), (("seen-no-use", "none"), ["warned", "culled"])):
        found = await store.journal(10, JournalFilter(words="joutilaana", codes=codes))
        assert [row.kind for row in found] == kinds, codes
    store.close()
