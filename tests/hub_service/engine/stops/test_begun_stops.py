"""A stop of ours in which the hub or the service was killed stands in the audit once, and its user reads it.

``python -m benchmarks.culling kills`` shows it with real ones.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from hub_extensions.adapters.hub.jupyterhub_api import HubServer, StopAnswer
from hub_extensions.core.messages import Stopped
from tests.fakes.machine import HubAsTold, small
from tests.hub_service.engine.room import Hands, Room, is_stopped, room, settings
from tests.hub_service.engine.stops.test_culler import minutes, stops_finish
from tests.hub_service.engine.stops.test_returns import HubThatFallsSilent, idle_end, is_free, never, told

pytestmark = pytest.mark.programs


class HubThatReportsFirst(HubThatFallsSilent):
    """It tells the service of a stop before it answers whoever asked for it, or asks about the server.

    Attributes:
        report: tells it, once; None: it has, or nothing has stopped yet. of: with the answer to what.
    """

    report: Callable[[Stopped], Awaitable[None]] | None = None

    def __init__(self, of: str) -> None:
        super().__init__()
        self.of = of

    async def stop(self, user: str, server: str) -> StopAnswer:
        if self.of != "a stop":
            return await super().stop(user, server)  # the answer is lost
        answer = await HubAsTold.stop(self, user, server)
        await self._reported(user, server)
        return answer

    async def server(self, user: str, server: str) -> HubServer | None:
        found = await super().server(user, server)
        if self.of == "a look" and found is None:
            await self._reported(user, server)
        return found

    async def _reported(self, user: str, server: str) -> None:
        report, self.report = self.report, None
        if report is not None:
            await report(Stopped(user, server, asked=True))


async def is_written_once(r: Room) -> str:
    """With what evidence."""
    rows = [row for row in await r.engine.store.journal() if row.kind == "culled"]
    assert [row.user for row in rows] == ["ada"] and "idle" in rows[0].text.lower()
    assert [text.partition(". ")[0] for text in told(r)] == ["Your server was stopped"]
    [record] = (await r.engine.usage(None, None)).uses
    assert record.end == "idle"
    return rows[0].evidence


@pytest.mark.parametrize("of", ["a stop", "a look"])
async def test_a_stop_that_the_hub_reports_before_it_answers_is_written_once(tmp_path: Path, of: str) -> None:
    hub = HubThatReportsFirst(of)
    async with room(tmp_path, small(0), culling=settings(tmp_path).culling, hub=hub) as r:
        await idle_end(r)
        hub.report = r.engine.stopped if of == "a stop" else None
        await stops_finish(r)
        if of == "a look":
            hub.report = r.engine.stopped
            await minutes(r, 2)
            await stops_finish(r)
        assert hub.report is None, "it has told"
        await is_free(r)
        evidence = await is_written_once(r)
        assert "use 0 %" in evidence, "what is known of it is not lost"


@pytest.mark.whole
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


@pytest.mark.whole
@pytest.mark.parametrize("looks", [True, False], ids=["it looks first", "the hub reports first"])
async def test_a_service_that_was_killed_once_it_had_asked_for_the_stop_still_writes_it(
    tmp_path: Path, looks: bool
) -> None:
    hub, hands, limits = HubThatFallsSilent(), Hands(), settings(tmp_path).culling
    async with room(tmp_path, small(0), culling=limits, hub=hub, hands=hands) as r:
        await idle_end(r)
        r.engine.stop_runner._put_off = never  # type: ignore[method-assign]
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
        assert not is_stopped(r)
        assert [row for row in await r.engine.store.journal() if row.kind == "culled"] == [] == told(r)
