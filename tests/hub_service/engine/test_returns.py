"""A server whose GPU was taken back comes back as CPU only, over kills of the service, and its user reads it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from hub_extensions.adapters.jupyterhub_api import StartRefused
from hub_extensions.core.messages import Ask, Started
from tests.fakes.machine import HubAsTold, small
from tests.hub_service.engine.room import Hands, Room, room, settings
from tests.hub_service.engine.test_culler import minutes, one_turn, stops_finish

pytestmark = pytest.mark.programs
SMALL = "mig-1g.5gb"
OPTIONS = {"offer": SMALL, "profile": "torch", "notify_when_ready": True}


class HubThatStartsNothing(HubAsTold):
    """It refuses each start, with this status."""

    def __init__(self, status: int) -> None:
        super().__init__()
        self.status, self.asked = status, 0

    async def start(self, user: str, server: str, options: Any) -> bool:
        self.asked += 1
        raise StartRefused(self.status, "You have as many servers as you may.")


@asynccontextmanager
async def culled(path: Path, hub: HubAsTold | None = None, hands: Hands | None = None) -> AsyncIterator[Room]:
    """Ada's server was stopped as idle, and its process lives still."""
    culling = replace(settings(path).culling, soft=True)
    async with room(path, small(0), culling=culling, hub=hub, hands=hands) as r:
        if not r.engine.state.returns:
            await r.run("ada", SMALL)
            r.hub.running["ada", ""] = replace(r.hub.running["ada", ""], user_options=OPTIONS)
            await one_turn(r)
            await minutes(r, 3)
            await stops_finish(r)
            assert r.hub.stopped == [("ada", "")]
        yield r


async def is_free(r: Room) -> None:
    for child in r.children:
        child.kill()
        child.wait()
    await r.engine.watcher.refresh()
    assert not r.engine.state.leases


async def starts(r: Room) -> None:
    """What the hub does with an asked start."""
    asked = r.hub.started[-1]
    state = await r.engine.ask(Ask("ada", "", ("cpu",), dict(asked[2])))
    assert state.answer == "admit"
    await r.engine.started(state.ticket, Started(state.attempt, ready=True))
    r.hub.run("ada")


def told(r: Room) -> list[str]:
    return [notice.text for notice in r.engine.form("ada", "", (), False).notices]


async def test_it_comes_back_once_its_gpu_is_free_with_its_own_options_and_its_user_reads_it(tmp_path: Path) -> None:
    async with culled(tmp_path) as r:
        await r.engine.returns.go_on()
        assert r.hub.started == [], "the stop is not proved yet"
        await is_free(r)
        await r.engine.returns.go_on()
        await r.engine.returns.go_on()
        assert r.hub.started == [("ada", "", {"profile": "torch", "offer": "cpu"})]
        await starts(r)
        await r.engine.returns.go_on()
        shown = r.engine.server_state("ada", "")
        assert shown is not None and shown.share == 0.0
        assert [warning.reason for warning in shown.warnings] == ["runs-without-gpu"]
        assert any("lost its GPU. It runs again, without a GPU." in text for text in told(r))
        assert [row.user for row in await r.engine.store.journal() if row.kind == "returned"] == ["ada"]
        r.engine.state.facts.clear()
        await r.engine.returns.go_on()
        assert not r.engine.state.returns


async def test_a_kill_at_any_moment_starts_it_all_the_same_and_only_once(tmp_path: Path) -> None:
    async with culled(tmp_path) as r:
        hub, hands, child = r.hub, r.hands, r.children.pop()
    child.kill()
    child.wait()
    async with culled(tmp_path, hub, hands) as r:  # killed between the stop and the start
        await r.engine.watcher.refresh()
        await r.engine.returns.go_on()
        assert len(hub.started) == 1
    async with culled(tmp_path, hub, hands) as r:  # killed after it had asked
        hands.pass_time(timedelta(minutes=1))
        await r.engine.returns.go_on()
        assert len(hub.started) == 1
        await starts(r)
        await r.engine.returns.go_on()
    async with culled(tmp_path, hub, hands) as r:
        await r.engine.returns.go_on()
        shown = r.engine.server_state("ada", "")
        assert shown is not None and [warning.reason for warning in shown.warnings] == ["runs-without-gpu"]
        assert len(hub.started) == 1


@pytest.mark.parametrize(("status", "asked", "why"), [(403, 1, "as many servers as you may"), (429, 2, "no room")])
async def test_where_there_is_no_room_for_it_its_user_reads_that(
    tmp_path: Path, status: int, asked: int, why: str
) -> None:
    hub = HubThatStartsNothing(status)
    async with culled(tmp_path, hub) as r:
        await is_free(r)
        for _ in range(5):
            await r.engine.returns.go_on()
            r.hands.pass_time(timedelta(seconds=30))
        assert hub.asked == asked and not r.engine.state.returns
        assert any("could not come back without a GPU" in text and why in text for text in told(r))


async def test_who_starts_a_server_meanwhile_has_that_one(tmp_path: Path) -> None:
    async with culled(tmp_path) as r:
        await is_free(r)
        await r.run("ada", SMALL)
        await r.engine.returns.go_on()
        r.hands.pass_time(timedelta(minutes=1))
        await r.engine.returns.go_on()
        assert r.hub.started == [] and not r.engine.state.returns


async def test_while_the_hub_still_stops_it_its_start_waits(tmp_path: Path) -> None:
    """The GPU is free before the hub's own stop has ended."""
    async with culled(tmp_path) as r:
        r.hub.run("ada")
        r.hub.running["ada", ""] = replace(r.hub.running["ada", ""], ready=False, pending="stop")
        await is_free(r)
        await r.engine.returns.go_on()
        assert r.hub.started == [] and r.engine.state.returns
        del r.hub.running["ada", ""]
        await r.engine.returns.go_on()
        assert len(r.hub.started) == 1
