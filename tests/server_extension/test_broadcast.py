"""Who is told what and when, and who is not told any more."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from hub_extensions.core.messages import Figures, History, Report, Series
from hub_extensions.server_extension.broadcast import MAX_LISTENERS, Broadcast
from hub_extensions.server_extension.codec import PROTOCOL_VERSION, encode
from hub_extensions.server_extension.sampler import Paces, Reader, Sampler
from hub_extensions.server_extension.service_client import ServiceLink
from tests.fakes.gpu_readers import GIB, UUID, GpuThatHangs, GpuWithoutDriver, ManyGpus, OneGpu
from tests.fakes.panel_service import a_state
from tests.patience import patient, soon
from tests.server_extension.test_trainings import Place


class PanelThatListens:
    """Takes everything it is told."""

    def __init__(self, *, every: float = 0.02) -> None:
        self.every_seconds = every
        self.texts: list[str] = []
        self.heard: list[dict[str, Any]] = []
        self.dropped: int | None = None

    def push(self, text: str) -> asyncio.Future[None] | None:
        self.texts.append(text)
        self.heard.append(json.loads(text))
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.set_result(None)
        return future

    def drop(self, code: int, reason: str) -> None:
        self.dropped = code

    def snapshots(self) -> list[dict[str, Any]]:
        return [message["snapshot"] for message in self.heard if message["snapshot"]]

    def numbers(self) -> list[dict[str, Any]]:
        return [numbers for message in self.heard for numbers in message["numbers"]]


class PanelThatDoesNotRead(PanelThatListens):
    """Its connection is open, and nothing leaves it."""

    def push(self, text: str) -> asyncio.Future[None] | None:
        self.heard.append(json.loads(text))
        return asyncio.get_running_loop().create_future()


class PanelThatIsSlow(PanelThatListens):
    """Takes a message only when `take` is called."""

    def __init__(self) -> None:
        super().__init__()
        self.under_way: list[asyncio.Future[None]] = []

    def push(self, text: str) -> asyncio.Future[None] | None:
        self.heard.append(json.loads(text))
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.under_way.append(future)
        return future

    def take(self) -> None:
        self.under_way[-1].set_result(None)


class PanelThatIsGone(PanelThatListens):
    """Its connection is closed, and nobody has noticed yet."""

    def push(self, text: str) -> asyncio.Future[None] | None:
        return None


async def no_report(since: float) -> Report:
    return Report(False, None, None)


class QuickSampler(Sampler):
    """However slow the machine is, its looks lengthen no period: that would be one more snapshot."""

    def _pace(self) -> float:
        return self._period()


@asynccontextmanager
async def a_live(
    reader: Reader | None = None, *, quiet: float = 60.0, **options: Any
) -> AsyncIterator[tuple[Broadcast, ServiceLink, Sampler]]:
    used = reader or OneGpu()
    paces = Paces(shortest=0.005, unwatched=30.0, hung_after=patient(0.3))
    sampler = QuickSampler(lambda: used, getattr(used, "uuids", (UUID,)), paces=paces)
    live = Broadcast(sampler, tick_seconds=0.02, unread_seconds=0.2, quiet_seconds=quiet, **options)
    link = ServiceLink(None, no_report)
    live.use(link)
    sampler.use(server=lambda: link.state, after_reading=live.wake)
    sampler.start()
    try:
        yield live, link, sampler
    finally:
        live.stop()
        sampler.stop()


async def test_the_first_message_has_everything_and_the_last_ten_minutes() -> None:
    async with a_live() as (live, _, sampler):
        sampler.watch("somebody before", 0.01)
        await soon(lambda: len(sampler.history()[0].ages_seconds) >= 5)
        panel = PanelThatListens()
        live.join(panel)
        (first,) = panel.heard
    assert first["version"] == first["snapshot"]["version"] == PROTOCOL_VERSION
    assert first["snapshot"]["state"] == "ok"
    assert first["snapshot"]["gpus"][0]["used_percent"] == 84.0
    (series,) = first["history"]
    assert len(series["ages_seconds"]) == len(series["used_percent"]) == len(series["memory_bytes"]) >= 5
    assert first["numbers"] == []


async def test_numbers_come_with_every_look_even_unchanged_and_nothing_else_does() -> None:
    async with a_live() as (live, _, sampler):
        await soon(lambda: sampler.latest().state == "ok")
        panel = PanelThatListens()
        live.join(panel)
        await soon(lambda: len(panel.numbers()) >= 5)
    assert {numbers["used_percent"] for numbers in panel.numbers()} == {84.0}
    times = [numbers["at"] for numbers in panel.numbers()]
    assert times == sorted(times) and len(set(times)) >= 4
    assert len(panel.snapshots()) == 1
    assert [message["history"] is None for message in panel.heard] == [False] + [True] * (len(panel.heard) - 1)


async def test_numbers_that_move_are_no_new_snapshot() -> None:
    reader = OneGpu()
    async with a_live(reader) as (live, _, sampler):
        await soon(lambda: sampler.latest().state == "ok")
        panel = PanelThatListens()
        live.join(panel)
        reader.used_percent, reader.memory_bytes = 12.0, 4 * GIB
        await soon(lambda: panel.numbers() and panel.numbers()[-1]["used_percent"] == 12.0)
    assert panel.numbers()[-1]["memory_used_bytes"] == 4 * GIB
    assert len(panel.snapshots()) == 1


async def test_what_the_service_says_anew_is_one_more_snapshot() -> None:
    async with a_live() as (live, link, sampler):
        live.join(PanelThatListens())  # else it is looked seldom
        link.state = a_state()
        # its share says whose the line of the GPU is, from the next look on: that is a snapshot of its own
        await soon(lambda: [gpu.shared for gpu in sampler.latest().gpus] == [False])
        panel = PanelThatListens()
        live.join(panel)
        link.state = replace(link.state, title="changed")
        await soon(lambda: len(panel.snapshots()) == 2)
        link.state = a_state(title="changed", ends_at=link.state.ends_at)
        before = len(panel.numbers())
        await soon(lambda: len(panel.numbers()) >= before + 5)
    assert panel.snapshots()[-1]["server"]["title"] == "changed"
    assert len(panel.snapshots()) == 2


async def test_a_training_that_moves_is_one_more_snapshot_and_one_that_does_not_is_none(tmp_path: Path) -> None:
    place = Place(tmp_path)
    async with a_live() as (live, link, sampler):
        live.use(link, place.trainings)
        await soon(lambda: sampler.latest().state == "ok")
        panel = PanelThatListens()
        live.join(panel)
        assert panel.snapshots()[0]["trainings"] == []
        for steps in (70, 71):
            place.write(1, os.getpid(), steps=steps)
            for _ in range(3):
                place.look()
                live.wake()
                await asyncio.sleep(0.05)
    assert [[each["steps"] for each in one["trainings"]] for one in panel.snapshots()] == [[], [70], [71]]


async def test_figures_from_elsewhere_are_one_snapshot_each_with_their_time() -> None:
    """Else the page would say that they grow older and older."""
    async with a_live(OneGpu(used_percent=None)) as (live, link, _):
        now = datetime.now(timezone.utc)
        link.state = a_state(uuid=UUID, figures=Figures(UUID, now, 40.0, "dcgm"))
        panel = PanelThatListens()
        live.join(panel)
        await soon(lambda: panel.numbers() and panel.numbers()[-1]["used_percent"] == 40.0)
        told = len(panel.snapshots())
        link.state = replace(link.state, figures=Figures(UUID, now + timedelta(seconds=1), 55.0, "dcgm"))
        await soon(lambda: panel.numbers()[-1]["used_percent"] == 55.0)
        numbers = len(panel.numbers())
        await soon(lambda: len(panel.numbers()) >= numbers + 3)
    assert len(panel.snapshots()) == told + 1
    before, after = (snapshot["server"]["figures"]["at"] for snapshot in panel.snapshots()[-2:])
    assert before < after


async def test_when_a_line_becomes_one_of_the_other_kind_the_history_comes_anew() -> None:
    async with a_live() as (live, link, sampler):
        await soon(lambda: sampler.latest().state == "ok")
        panel = PanelThatListens()
        live.join(panel)
        link.state = a_state(uuid=UUID, share=1.0)
        await soon(lambda: panel.snapshots()[-1]["gpus"][0]["shared"] is False)
        numbers = len(panel.numbers())
        await soon(lambda: len(panel.numbers()) >= numbers + 3)
    lines = [message["history"][0]["memory_bytes"] for message in panel.heard if message["history"]]
    assert [set(line) for line in lines] == [{None}, {3 * GIB}]


async def test_a_page_that_wants_numbers_seldom_gets_them_seldom_and_knows_it() -> None:
    async with a_live() as (live, _, sampler):
        await soon(lambda: sampler.latest().state == "ok")
        quick, slow = PanelThatListens(), PanelThatListens(every=0.5)
        live.join(quick)
        live.join(slow)
        await soon(lambda: len(slow.numbers()) >= 1 and len(quick.numbers()) >= 8)
    assert len(slow.numbers()) <= 2
    assert slow.snapshots()[0]["period_seconds"] == 0.5


async def test_a_page_that_is_told_nothing_for_long_is_told_that() -> None:
    async with a_live(GpuWithoutDriver(), quiet=0.1) as (live, _, sampler):
        await soon(lambda: sampler.latest().state == "driver-not-loaded")
        panel = PanelThatListens()
        live.join(panel)
        await soon(lambda: len(panel.heard) >= 3)
    assert panel.heard[-1]["snapshot"] is None
    assert (panel.heard[-1]["history"], panel.heard[-1]["numbers"]) == (None, [])


async def test_a_message_is_written_once_for_all_who_take_it() -> None:
    """The very same text object: with fifty panels it is encoded once, not fifty times."""
    reader = ManyGpus(8)
    async with a_live(reader) as (live, link, sampler):
        await soon(lambda: sampler.latest().state == "ok")
        panels = [PanelThatListens(every=0.1) for _ in range(MAX_LISTENERS)]
        looks = reader.reads
        for panel in panels:
            live.join(panel)
        assert len({id(panel.texts[0]) for panel in panels}) <= 1 + (reader.reads - looks), "looks come between"
        link.state = a_state(title="told to all")
        texts = await soon(lambda: [text for panel in panels for text in panel.texts if "told to all" in text])
        assert len(texts) == MAX_LISTENERS
        assert len({id(text) for text in texts}) <= 2, "with numbers, and without for who has them"


@pytest.mark.slow
async def test_a_slow_panel_has_one_message_under_way_and_then_gets_the_newest() -> None:
    reader = OneGpu()
    async with a_live(reader) as (live, link, sampler):
        await soon(lambda: sampler.latest().state == "ok")
        slow = PanelThatIsSlow()
        live.join(slow)
        link.state = a_state(title="first")
        reads = reader.reads
        await soon(lambda: reader.reads >= reads + 3)
        link.state, reader.used_percent = a_state(title="newest"), 7.0
        reads = reader.reads
        await soon(lambda: reader.reads >= reads + 2)
        assert len(slow.heard) == 1
        slow.take()
        await soon(lambda: len(slow.heard) == 2)
    assert slow.heard[1]["snapshot"]["server"]["title"] == "newest"
    assert slow.heard[1]["numbers"][0]["used_percent"] == 7.0


async def test_a_jump_of_the_wall_clock_makes_no_reading_older() -> None:
    clock = [datetime(2026, 11, 21, 12, 0, tzinfo=timezone.utc)]
    async with a_live(wall=lambda: clock[0]) as (live, _, sampler):
        await soon(lambda: sampler.latest().state == "ok")
        for jump in (timedelta(0), timedelta(days=30), timedelta(days=-90)):
            clock[0] += jump
            snapshot = live.snapshot()
            assert snapshot.at == clock[0]
            assert timedelta(0) <= snapshot.at - snapshot.gpus[0].at < timedelta(seconds=5)
            assert max(live.history().series[0].ages_seconds) < 5


@pytest.mark.whole
@pytest.mark.slow
async def test_a_hung_driver_is_told_once_with_the_last_numbers() -> None:
    reader = GpuThatHangs()
    async with a_live(reader) as (live, _, sampler):
        await soon(lambda: sampler.latest().state == "ok")
        panel = PanelThatListens()
        live.join(panel)
        await soon(lambda: panel.snapshots()[-1]["state"] == "not-answering")
        told = len(panel.heard)
        await asyncio.sleep(0.2)  # ten ticks without news: that is what is measured
        assert len(panel.heard) == told
        reader.release.set()
        await soon(lambda: panel.snapshots()[-1]["state"] == "ok")
    assert panel.snapshots()[-2]["gpus"][0]["used_percent"] == 84.0


async def test_sixty_four_gpus_make_a_message_a_page_can_take() -> None:
    async with a_live(ManyGpus(64)) as (live, _, sampler):
        await soon(lambda: sampler.latest().state == "ok")
        panel = PanelThatListens()
        live.join(panel)
        await soon(panel.numbers)
    print(f"64 GPUs: first {len(panel.texts[0])} B, numbers {len(panel.texts[-1])} B")
    assert len(panel.texts[-1]) < 64 * 250


def test_ten_minutes_of_eight_gpus_are_a_message_a_page_can_take() -> None:
    ages, used = tuple(index + 0.1 for index in range(600)), tuple(index % 100 + 0.5 for index in range(600))
    series = Series(UUID, ages, used, (70 * GIB,) * 600)
    text = encode(History(2, datetime.now(timezone.utc), (series,) * 8))
    print(f"8 GPUs x 600 points: {len(text)} B")
    assert len(text) < 130_000


async def test_a_panel_that_does_not_read_is_dropped_and_holds_one_message_at_most() -> None:
    async with a_live() as (live, link, _):
        deaf, other = PanelThatDoesNotRead(), PanelThatListens()
        live.join(deaf)
        live.join(other)
        link.state = a_state()
        await soon(lambda: deaf.dropped)
        assert deaf.dropped == 1008
        assert len(deaf.heard) == 1
        assert other.dropped is None


async def test_a_panel_that_is_gone_is_forgotten() -> None:
    reader = OneGpu()
    async with a_live(reader) as (live, _, sampler):
        await soon(lambda: sampler.latest().state == "ok")
        live.join(PanelThatIsGone())
        assert sampler.latest().period_seconds == 30.0, "nobody watches"


async def test_one_panel_too_many_is_turned_away() -> None:
    async with a_live() as (live, _, _):
        panels = [PanelThatListens() for _ in range(MAX_LISTENERS + 1)]
        for panel in panels:
            live.join(panel)
        assert [panel.dropped for panel in panels] == [None] * MAX_LISTENERS + [1013]


async def test_the_end_of_the_server_closes_every_panel() -> None:
    panel = PanelThatListens()
    async with a_live() as (live, _, _):
        live.join(panel)
    assert panel.dropped == 1001


class PanelThatBreaks(PanelThatListens):
    """Its connection raises what no connection should, from the second message on."""

    def push(self, text: str) -> asyncio.Future[None] | None:
        if self.heard:
            raise ValueError("a bug in the connection")
        return super().push(text)


async def test_a_connection_with_a_fault_is_closed_alone_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async with a_live() as (live, _, _):
        other = PanelThatListens()
        live.join(other)
        for _ in range(3):
            broken = PanelThatBreaks()
            live.join(broken)
            await soon(lambda broken=broken: broken.dropped == 1011)
        heard = len(other.numbers())
        await soon(lambda: len(other.numbers()) > heard)
        assert other.dropped is None
    assert len([line for line in caplog.messages if "has a fault" in line]) == 1


async def test_a_fault_of_ours_costs_no_connection_and_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Pages that are closed come again each second, for all of the history, and meet the same fault."""
    async with a_live() as (live, link, sampler):
        await soon(lambda: sampler.latest().state == "ok")
        first, late = PanelThatListens(), PanelThatListens()
        live.join(first)
        link.state = a_state(title=object())  # no message can be made of it
        reads = sampler.latest().number
        await soon(lambda: sampler.latest().number >= reads + 5)
        live.join(late)
        link.state = a_state(title="well again")
        await soon(lambda: late.snapshots() and first.snapshots()[-1]["server"]["title"] == "well again")
        await soon(late.numbers)
        assert (first.dropped, late.dropped) == (None, None)
    assert late.heard[0]["history"] and late.heard[0]["snapshot"]["server"]["title"] == "well again"
    assert len([line for line in caplog.messages if "cannot be told" in line]) == 1


async def test_joining_means_that_the_server_was_opened() -> None:
    async with a_live() as (live, _, _):
        assert not live.opened
        live.join(PanelThatListens())
        assert live.opened
