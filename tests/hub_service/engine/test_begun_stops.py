"""A stop of ours in which the hub or the service was killed stands in the audit once, and its user reads it.

``python -m benchmarks.culling kills`` shows it with real ones.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from hub_extensions.core.messages import Stopped
from tests.fakes.machine import small
from tests.hub_service.engine.room import Hands, Room, room, settings
from tests.hub_service.engine.test_culler import minutes, stops_finish
from tests.hub_service.engine.test_returns import HubThatFallsSilent, idle_end, is_free, never, told

pytestmark = pytest.mark.programs


async def is_written_once(r: Room) -> None:
    rows = [row for row in await r.engine.store.journal() if row.kind == "culled"]
    assert [row.user for row in rows] == ["ada"] and "idle" in rows[0].text.lower()
    assert [text.partition(". ")[0] for text in told(r)] == ["Your server was stopped"]
    [record] = (await r.engine.usage(None, None)).uses
    assert record.end == "idle"


@pytest.mark.parametrize("seen_by", ["the hub's report", "its process", "our next look"])
async def test_a_stop_whose_answer_was_lost_is_written_by_whoever_sees_its_end(tmp_path: Path, seen_by: str) -> None:
    async with room(tmp_path, small(0), culling=settings(tmp_path).culling, hub=HubThatFallsSilent()) as r:
        await idle_end(r)
        await stops_finish(r)
        if seen_by == "the hub's report":
            await r.engine.stopped(Stopped("ada", "", asked=True))
        elif seen_by == "our next look":
            await minutes(r, 2)
            await stops_finish(r)
        await is_free(r)
        await minutes(r, 2)
        await stops_finish(r)
        await is_written_once(r)


@pytest.mark.parametrize("looks", [True, False], ids=["it looks first", "the hub reports first"])
async def test_a_service_that_was_killed_once_it_had_asked_for_the_stop_still_writes_it(
    tmp_path: Path, looks: bool
) -> None:
    hub, hands, limits = HubThatFallsSilent(), Hands(), settings(tmp_path).culling
    async with room(tmp_path, small(0), culling=limits, hub=hub, hands=hands) as r:
        await idle_end(r)
        r.engine.culler._cancel_stop = never  # type: ignore[method-assign]
        await stops_finish(r)
        child = r.children.pop()
    async with room(tmp_path, small(0), culling=limits, hub=hub, hands=hands) as r:
        r.children.append(child)
        if looks:
            await minutes(r, 1, None)
            await stops_finish(r)
        else:
            await r.engine.stopped(Stopped("ada", "", asked=True))
        await is_free(r)
        await is_written_once(r)


async def test_a_stop_that_the_hub_never_heard_of_is_given_up_once_its_gpu_works(tmp_path: Path) -> None:
    hub = HubThatFallsSilent()
    hub.hears = False
    async with room(tmp_path, small(0), culling=settings(tmp_path).culling, hub=hub) as r:
        await idle_end(r)
        await stops_finish(r)
        r.gpus.used["MIG-small-0"] = 80.0
        await minutes(r, 1)
        await stops_finish(r)
        assert r.engine.state.facts["ada", ""].stopping is None
        assert [row for row in await r.engine.store.journal() if row.kind == "culled"] == [] == told(r)
