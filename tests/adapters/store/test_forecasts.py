"""Forecasts that were given are kept without names until they came true, and a year; on both databases alike."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from hub_extensions.adapters.store import Changes, Store
from hub_extensions.adapters.store.forecasts import FORECASTS
from hub_extensions.core.forecast.interval import Interval
from hub_extensions.core.forecast.results import Given
from hub_extensions.core.offers.offer_id import OfferId

pytestmark = pytest.mark.slow

NOON = datetime(2026, 11, 1, 12, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)
SOON = (0.1, 0.55, 1.0)
OPEN = Given(
    "f1",
    "t1",
    "gpu",
    OfferId("gpu-0.5"),
    0,
    NOON,
    NOON - HOUR,
    2,
    Interval(60.0, 600.0, 1200.0, SOON),
    Interval(30.0, 600.0, 1800.5, SOON),
    2400.0,
    True,
)


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    opened = Store.open(url)
    yield opened
    opened.close()


def over(given: Given, minutes: int = 60, end: str = "started", **changes: object) -> Given:
    waited = 60.0 * minutes if end == "started" else None
    found = replace(given, end=end, waited=waited, over=given.at + minutes * timedelta(minutes=1))
    return replace(found, **changes)  # type: ignore[arg-type]


async def test_what_was_given_is_read_as_it_was_written(store: Store) -> None:
    bare = replace(OPEN, id="f2", ticket="t2", at_most=None, rough=False, at=NOON + HOUR)
    await store.commit(Changes(forecasts=(OPEN, bare)))
    assert (await store.load()).forecasts == (OPEN, bare)
    assert await store.matured_forecasts() == ()


async def test_what_came_true_has_no_ticket_any_more(store: Store) -> None:
    await store.commit(Changes(forecasts=(OPEN,)))
    await store.commit(Changes(forecasts=(over(OPEN),)))
    assert (await store.load()).forecasts == ()
    assert await store.matured_forecasts() == (over(OPEN, ticket=""),)


@pytest.mark.parametrize("end", ["left", "changed"])
async def test_of_who_left_nothing_came_true(store: Store, end: str) -> None:
    await store.commit(Changes(forecasts=(OPEN, over(OPEN, end=end))))
    assert (await store.load()).forecasts == () and await store.matured_forecasts() == ()


@pytest.mark.whole
async def test_of_each_pool_the_last_2000_count_and_the_last_2000_joins(store: Store) -> None:
    joins = [over(replace(OPEN, id=f"j{n:04}", at=NOON + n * timedelta(seconds=1))) for n in range(2010)]
    hours = [over(replace(OPEN, id=f"h{n:04}", hour=1, at=NOON + n * HOUR)) for n in range(1, 2011)]
    other = over(replace(OPEN, id="other", pool="mig-1g.5gb", at=NOON - 100 * HOUR))
    await store.commit(Changes(forecasts=(*joins, *hours, other)))
    found = [given.id for given in await store.matured_forecasts()]
    assert found == ["other", *(f"j{n:04}" for n in range(10, 2010)), *(f"h{n:04}" for n in range(11, 2011))]


async def test_a_year_later_they_are_gone(store: Store) -> None:
    await store.commit(Changes(forecasts=(over(OPEN), over(replace(OPEN, id="f2", at=NOON + HOUR)))))
    await store.prune(NOON + timedelta(days=365, minutes=30))
    assert [given.id for given in await store.matured_forecasts()] == ["f2"]


async def test_the_table_has_no_column_for_a_name(store: Store) -> None:
    assert not {"user", "server", "groups", "name"} & {column.name for column in FORECASTS.columns}
    await store.commit(Changes(forecasts=(OPEN,)))
    await store.forget_user("ada")
    assert (await store.load()).forecasts == (OPEN,)
