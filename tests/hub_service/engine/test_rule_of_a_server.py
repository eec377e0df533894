"""What a server is told about when it stops by itself, while nothing is counted down: no more than what is enforced."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from tests.fakes.machine import small
from tests.hub_service.engine.room import Room, room, settings

pytestmark = pytest.mark.programs

DEVICE = "MIG-small-0"


async def rule(r: Room, used: float | None = 90.0) -> str:
    await r.run("ada", "mig-1g.5gb")
    r.gpus.used[DEVICE] = used
    await r.engine.watcher.refresh()
    state = r.engine.server_state("ada", "")
    assert state is not None and state.countdown is None
    return "" if state.rule is None else state.rule.message


async def test_a_server_whose_gpu_works_is_told_when_it_would_stop(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        assert (
            await rule(r)
            == "Stops when its GPU is idle for 3 min (you are warned 1 min before); it runs at most 30 min."
        )


async def test_a_server_is_told_the_limit_of_its_own_offer(tmp_path: Path) -> None:
    own = replace(settings(tmp_path).culling, idle_by_offer={"mig-1g.5gb": timedelta(minutes=7)}, lifetime=None)
    async with room(tmp_path, small(0), culling=own) as r:
        assert await rule(r) == "Stops when its GPU is idle for 7 min (you are warned 1 min before)."


async def test_a_gpu_that_cannot_be_measured_is_not_said_to_stop_when_idle(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        said = await rule(r, None)
        assert said == "The use of its GPU is not known now, so it is not stopped for being idle."


async def test_a_dry_run_promises_no_stop(tmp_path: Path) -> None:
    dry = replace(settings(tmp_path).culling, enabled=False)
    async with room(tmp_path, small(0), culling=dry) as r:
        assert await rule(r) == ""


async def test_a_server_without_a_gpu_is_told_its_own_limit(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ben", "cpu")
        state = r.engine.server_state("ben", "")
        assert (
            state is not None and state.rule is not None and state.rule.message == "Stops after 12 h without activity."
        )
