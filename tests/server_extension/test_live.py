"""Who is told what and when, and who is not told any more."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hub_extensions.core.messages import Report
from hub_extensions.server_extension.live import MOST_LISTENERS, Live
from hub_extensions.server_extension.sampler import Sampler
from hub_extensions.server_extension.service import ServiceLink
from tests.fakes.gpu_readers import UUID, OneGpu
from tests.fakes.panel_service import a_state


class PanelThatListens:
    """Takes everything it is told."""

    def __init__(self, *, watching: bool = True) -> None:
        self.watching = watching
        self.heard: list[dict[str, Any]] = []
        self.dropped: int | None = None

    def push(self, text: str) -> asyncio.Future[None] | None:
        self.heard.append(json.loads(text))
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.set_result(None)
        return future

    def drop(self, code: int, reason: str) -> None:
        self.dropped = code


class PanelThatDoesNotRead(PanelThatListens):
    """Its connection is open, and nothing leaves it."""

    def push(self, text: str) -> asyncio.Future[None] | None:
        self.heard.append(json.loads(text))
        return asyncio.get_running_loop().create_future()


class PanelThatIsGone(PanelThatListens):
    """Its connection is closed, and nobody has noticed yet."""

    def push(self, text: str) -> asyncio.Future[None] | None:
        return None


async def no_report() -> Report:
    return Report(False, None, None)


@asynccontextmanager
async def a_live(reader: OneGpu | None = None) -> AsyncIterator[tuple[Live, ServiceLink, Sampler]]:
    used = reader or OneGpu()
    sampler = Sampler(lambda: used, (UUID,), watched_seconds=0.02, unwatched_seconds=60)
    live = Live(sampler, tick_seconds=0.02, unread_seconds=0.2)
    link = ServiceLink(None, no_report)
    live.use(link)
    sampler.start()
    try:
        yield live, link, sampler
    finally:
        live.stop()
        sampler.stop()


async def until(true: Callable[[], object], seconds: float = 5.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come"
        await asyncio.sleep(0.01)


async def test_a_panel_is_told_at_once_and_only_what_changed() -> None:
    async with a_live() as (live, link, sampler):
        await until(lambda: sampler.latest().state == "ok")
        panel = PanelThatListens()
        live.join(panel)
        assert len(panel.heard) == 1
        await asyncio.sleep(0.3)  # fifteen ticks in which nothing changes: that is what is measured
        quiet = len(panel.heard)
        assert quiet <= 2
        link.state = a_state(title="changed")
        await until(lambda: panel.heard[-1]["server"] and panel.heard[-1]["server"]["title"] == "changed")
        assert len(panel.heard) == quiet + 1


async def test_a_page_nobody_sees_does_not_make_the_server_sample() -> None:
    reader = OneGpu()
    async with a_live(reader) as (live, link, sampler):
        await until(lambda: sampler.latest().state == "ok")
        hidden = PanelThatListens(watching=False)
        live.join(hidden)
        link.state = a_state(save=True)
        await until(lambda: hidden.heard[-1]["server"] and hidden.heard[-1]["server"]["save"])
        assert reader.reads == 1


async def test_numbers_that_move_go_to_those_who_watch_only() -> None:
    reader = OneGpu()
    async with a_live(reader) as (live, _, sampler):
        await until(lambda: sampler.latest().state == "ok")
        seen, hidden = PanelThatListens(), PanelThatListens(watching=False)
        live.join(seen)
        live.join(hidden)
        await until(lambda: len(seen.heard) >= 2)
        before = len(hidden.heard)
        reader.used_percent = 12.0
        await until(lambda: seen.heard[-1]["gpus"][0]["used_percent"] == 12.0)
        assert len(hidden.heard) == before


async def test_a_panel_that_does_not_read_is_dropped_and_holds_one_message_at_most() -> None:
    async with a_live() as (live, link, _):
        deaf, other = PanelThatDoesNotRead(), PanelThatListens()
        live.join(deaf)
        live.join(other)
        link.state = a_state()
        await until(lambda: deaf.dropped)
        assert deaf.dropped == 1008
        assert len(deaf.heard) == 1
        assert other.dropped is None


async def test_a_panel_that_is_gone_is_forgotten() -> None:
    reader = OneGpu()
    async with a_live(reader) as (live, _, sampler):
        await until(lambda: sampler.latest().state == "ok")
        live.join(PanelThatIsGone())
        reads = reader.reads
        await asyncio.sleep(0.2)  # ten watched periods: nobody watches, so nothing is read again
        assert reader.reads <= reads + 1


async def test_one_panel_too_many_is_turned_away() -> None:
    async with a_live() as (live, _, _):
        panels = [PanelThatListens() for _ in range(MOST_LISTENERS + 1)]
        for panel in panels:
            live.join(panel)
        assert [panel.dropped for panel in panels] == [None] * MOST_LISTENERS + [1013]


async def test_the_end_of_the_server_closes_every_panel() -> None:
    panel = PanelThatListens()
    async with a_live() as (live, _, _):
        live.join(panel)
    assert panel.dropped == 1001


@pytest.mark.parametrize("watching", [True, False])
async def test_joining_means_that_the_server_was_opened(watching: bool) -> None:
    async with a_live() as (live, _, _):
        assert not live.opened
        live.join(PanelThatListens(watching=watching))
        assert live.opened
