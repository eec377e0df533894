"""What one start told its waiting page: one event for each change, bounded, and never of another start."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

from hub_extensions.adapters.service.gpu_service import ServiceCannotWrite
from hub_extensions.core.cluster.pod_status import PodState
from hub_extensions.core.messages import Problem, TicketStatus, Wait
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.offers.user_options import UserOptions
from hub_extensions.core.text.reasons import explain
from hub_extensions.spawner.pages.start_progress import LOG_EVENTS, Start, report_pod, report_unanswered, report_waiting
from tests.fakes.reasons import because
from tests.fakes.service import an_offer
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
    start = Start(UserOptions((OfferId("gpu"),)))
    for seconds in (5000.0, 4999.0, 4000.0):
        report_waiting(start, replace(STATE, wait=replace(STATE.wait, at_most_seconds=seconds)), {})  # type: ignore[type-var]
    report_waiting(start, replace(STATE, position=2, ahead=1), {"gpu": "Whole <GPU>"})
    events = await heard(start, 2)
    assert [event["gpu"]["position"] for event in events] == [3, 2]  # type: ignore[index]
    assert events[1]["message"] == "You are 2nd in line for Whole <GPU>. <in use>"
    assert events[1]["html_message"] == "You are 2nd in line for Whole &lt;GPU&gt;. &lt;in use&gt;"


async def test_a_likely_range_that_moves_is_an_event_and_its_time_only_every_five_minutes() -> None:
    start = Start(UserOptions((OfferId("gpu"),)))
    wait = Wait(False, 1500.0, 2400.0, 4200.0, 7800.0, explain("limits-ahead"), STATE.since, (0.1, 0.6, 1.0))
    for moved in (
        wait,
        replace(wait, as_of=STATE.since + timedelta(seconds=30), p50_seconds=2700.0),
        replace(wait, p90_seconds=3900.0),
        replace(wait, p90_seconds=3900.0, as_of=STATE.since + timedelta(minutes=6)),
        replace(wait, p90_seconds=3900.0, note="rough"),
        replace(wait, p10_seconds=None, p50_seconds=None, p90_seconds=None, note="few-data"),
    ):
        report_waiting(start, replace(STATE, wait=moved), {})
    events = await heard(start, 5)
    assert [event["gpu"]["likely"] for event in events] == [  # type: ignore[index]
        "likely 25 min to 1 h 10 min",
        "likely 25 min to 1 h 5 min",
        "likely 25 min to 1 h 5 min",
        "likely 25 min to 1 h 5 min (rough)",
        "not enough data yet",
    ]
    assert "not enough data yet" in json.dumps(events), "the hub writes them as JSON"
    assert events[0]["gpu"]["wait"]["as_of"] == "2026-01-01T00:00:00Z"  # type: ignore[index]


async def test_what_holds_a_pod_is_said_in_every_language() -> None:
    start = Start(UserOptions((OfferId("gpu"),)))
    reasons = explain("kai-hands-out"), explain("machines-silent", machines=2)
    for word in ("waiting-for-queue", "waiting-for-queue", "creating"):
        report_pod(start, PodState(word, reasons if word != "creating" else ()), {"gpu": "Whole GPU"})
    report_pod(start, PodState("image", (explain("image-not-pulled", image="<lab>"),)), {})
    held, image = await heard(start, 2)
    gpu: Any = held["gpu"]
    assert (gpu["state"], gpu["reason"]) == ("held", "KAI hands out the GPUs here. 2 machines do not answer.")
    assert gpu["said"]["fi-FI"]["reason"] == "KAI jakaa täällä GPU:t. 2 konetta ei vastaa."
    assert gpu["said"]["ja-JP"]["reason"] == "ここでは KAI が GPU を配っています。 2 台のマシンが応答しません。"
    assert str(image["html_message"]).endswith("The image &lt;lab&gt; cannot be pulled.")


async def test_a_service_that_cannot_write_says_so_in_every_language() -> None:
    start, detail = Start(UserOptions((OfferId("gpu"),))), " (The disk is full.)"
    text = f"{explain('store-unavailable').message}{detail}"
    report_unanswered(start, ServiceCannotWrite(Problem(text, reason="store-unavailable"), STATE.since))
    [event] = await heard(start, 1)
    gpu: Any = event["gpu"]
    assert (gpu["state"], gpu["reason"]) == ("held-up", text)
    assert gpu["said"]["fi-FI"]["reason"].startswith("GPU-palvelu ei voi nyt kirjoittaa")


async def test_an_event_says_the_same_in_every_language() -> None:
    start = Start(UserOptions((OfferId("gpu"),)))
    other = an_offer("mig-1g.5gb", free=0, total=1, wait=Wait(False, 300.0, 420.0, 600.0, None, None))
    reason = explain("in-use", total=2, title="T", ahead=2)
    report_waiting(start, replace(STATE, reason=reason, alternatives=(other,)), {"gpu": "Whole GPU"})
    [event] = await heard(start, 1)
    gpu: Any = event["gpu"]
    assert gpu["alternatives"][0]["when"] == "likely 5–10 min"
    assert sorted(gpu["said"]) == ["fi-FI", "ja-JP"]
    for said in gpu["said"].values():
        assert said.keys() == {key for key in gpu if key in said} and said["message"] != event["message"]
    finnish = gpu["said"]["fi-FI"]
    assert finnish["message"] == (
        "Olet jonossa sijalla 3: Kokonainen GPU. T: kaikki 2 ovat varattuina. 2 henkilöä on edelläsi."
    )
    assert finnish["alternatives"][0]["when"] == "todennäköisesti 5–10 min"
    assert finnish["at_most"] == "odotus enintään 1 h 24 min"


async def test_the_log_is_bounded_and_keeps_the_first_event() -> None:
    start = Start(UserOptions((OfferId("gpu"),)))
    for position in range(1000, 0, -1):
        report_waiting(start, replace(STATE, position=position), {})
    events = await heard(start, LOG_EVENTS)
    assert [event["gpu"]["position"] for event in events][:3] == [1000, 199, 198]  # type: ignore[index]
    assert events[-1]["gpu"]["position"] == 1  # type: ignore[index]


async def test_every_tab_hears_everything_from_the_start() -> None:
    start = Start(UserOptions((OfferId("gpu"),)))
    report_waiting(start, STATE, {})
    first = asyncio.ensure_future(heard(start, 2))
    await asyncio.sleep(0)
    report_waiting(start, replace(STATE, position=2), {})
    second = await heard(start, 2)
    assert await first == second
