"""The input of the wait forecast from a usage record."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from hub_extensions.core.forecast.results import Stay
from hub_extensions.core.messages import UsageRecord
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.usage.stays import stay_of

NOON = datetime(2026, 11, 1, 12, tzinfo=timezone.utc)
USE = UsageRecord(
    key="l1",
    user="ada",
    server="",
    offer=OfferId("gpu-0.5"),
    pool="gpu",
    share=500,
    ended=NOON + timedelta(hours=2),
    end="user",
    asked=NOON,
    admitted=NOON + timedelta(minutes=30),
    ready=NOON + timedelta(minutes=31),
    lifetime_seconds=7200.0,
    held_seconds=5000.0,
)


def test_a_use_is_as_long_as_it_held_its_gpu() -> None:
    assert stay_of(USE) == Stay("l1", "ada", "gpu", 1, 500, NOON.timestamp(), 5000.0, False, 60.0)


def test_without_a_duration_it_is_from_admission_to_end() -> None:
    found = stay_of(replace(USE, held_seconds=None))
    assert found is not None and found.lasted == 5400.0


@pytest.mark.parametrize(
    "changes",
    [
        {"devices": 0},
        {"share": 0},
        {"end": "left"},
        {"end": "lost"},
        {"end": "node-lost"},
        {"ready": None},
        {"held_seconds": None, "admitted": None, "ready": None, "asked": None, "source": "csv"},
        {"held_seconds": -1.0},
    ],
)
def test_what_was_no_use_teaches_nothing(changes: dict[str, object]) -> None:
    assert stay_of(replace(USE, **changes)) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "at_limit"),
    [
        ({"end": "lifetime"}, True),
        ({"held_seconds": 7200.0}, True),
        ({"held_seconds": 7199.0}, False),
        ({"lifetime_seconds": None, "held_seconds": 1e6}, False),
        ({"end": "idle"}, False),
    ],
)
def test_who_used_the_time_to_the_full_was_ended_by_the_limit(changes: dict[str, object], at_limit: bool) -> None:
    found = stay_of(replace(USE, **changes))  # type: ignore[arg-type]
    assert found is not None and found.at_limit is at_limit


@pytest.mark.parametrize(
    ("changes", "lasted"),
    [
        ({"held_seconds": 0.0}, 0.0),
        ({"held_seconds": None, "admitted": None}, 89 * 60.0),
        ({"held_seconds": None, "admitted": None, "ready": None, "source": "csv"}, 7200.0),
        ({"held_seconds": None, "adopted": True, "ready": None}, 5400.0),
    ],
)
def test_a_use_lasted_from_the_first_that_is_known_of_it(changes: dict[str, object], lasted: float) -> None:
    found = stay_of(replace(USE, **changes))  # type: ignore[arg-type]
    assert found is not None and found.lasted == lasted


def test_an_imported_row_and_an_adopted_server_have_no_start() -> None:
    for changes in ({"source": "sacct", "ready": None}, {"adopted": True}):
        found = stay_of(replace(USE, **changes))  # type: ignore[arg-type]
        assert found is not None and found.starting is None and found.lasted == 5000.0
