"""What one start told its waiting page: one event for each change, bounded, and never of another start."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timezone

from hub_extensions.core.messages import TicketStatus, Wait
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.spawner.pages.start_progress import LOG_EVENTS, Start, report_waiting
from tests.fakes.reasons import because
from tests.patience import patient

STATE = TicketStatus(
    "t1", 1, "ada", "", "wait", (OfferId("gpu"),), OfferId("gpu"), 3, 2, datetime(2026, 1, 1, tzinfo=timezone.utc),
    because("<in use>"), Wait(False, None, None, None, 5000.0, because("all are in use")),
)  # fmt: skip


async def heard(start: Start, count: int) -> list[dict[str, object]]:
    events = []
    follow = start.follow()
    while len(events) < count:
        events.append(await asyncio.wait_for(follow.__anext__(), patient(5)))
    await follow.aclose()  # type: ignore[attr-defined]
    return events


async def test_a_forecast_that_only_moves_with_the_clock_is_no_event() -> None:
    start = Start((OfferId("gpu"),))
    for seconds in (5000.0, 4999.0, 4000.0):
        report_waiting(start, replace(STATE, wait=replace(STATE.wait, at_most_seconds=seconds)), {})  # type: ignore[type-var]
    report_waiting(start, replace(STATE, position=2, ahead=1), {"gpu": "Whole <GPU>"})
    events = await heard(start, 2)
    assert [event["gpu"]["position"] for event in events] == [3, 2]  # type: ignore[index]
    assert events[1]["message"] == "You are 2nd in line for Whole <GPU>. <in use>"
    assert events[1]["html_message"] == "You are 2nd in line for Whole &lt;GPU&gt;. &lt;in use&gt;"


async def test_the_log_is_bounded_and_keeps_the_first_event() -> None:
    start = Start((OfferId("gpu"),))
    for position in range(1000, 0, -1):
        report_waiting(start, replace(STATE, position=position), {})
    events = await heard(start, LOG_EVENTS)
    assert [event["gpu"]["position"] for event in events][:3] == [1000, 199, 198]  # type: ignore[index]
    assert events[-1]["gpu"]["position"] == 1  # type: ignore[index]


async def test_every_tab_hears_everything_from_the_start() -> None:
    start = Start((OfferId("gpu"),))
    report_waiting(start, STATE, {})
    first = asyncio.ensure_future(heard(start, 2))
    await asyncio.sleep(0)
    report_waiting(start, replace(STATE, position=2), {})
    second = await heard(start, 2)
    assert await first == second
