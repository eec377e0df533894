"""Who looks at a thousand leases lets the others have their turn; what ends meanwhile is told to nobody."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hub_extensions.core.messages import Started
from hub_extensions.hub_service.engine.state.batches import in_batches
from tests.fakes.machine import small
from tests.hub_service.engine.room import room


async def test_others_have_a_turn_between_slices() -> None:
    seen = list[int]()

    async def look() -> None:
        async for each in in_batches(range(250)):
            seen.append(each)

    task = asyncio.ensure_future(look())
    lengths = list[int]()
    while not task.done():
        await asyncio.sleep(0)
        lengths.append(len(seen))
    assert lengths[:3] == [100, 200, 250] and seen == list(range(250))


@pytest.mark.parametrize("what", ("leases", "culling"))
async def test_what_ends_while_an_admin_asks_is_left_out(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_batches, "__defaults__", (1,))
    async with room(tmp_path, small(0), small(1)) as r:
        for user in ("ada", "ben"):
            ticket = await r.ask(user, "mig-1g.5gb")
            await r.engine.started(ticket.ticket, Started(ticket.attempt, ready=True))
        asked = asyncio.ensure_future(getattr(r.engine, what)())
        await asyncio.sleep(0)
        lease, state = r.engine.state.lease_of("ada", ""), r.engine.state
        assert lease is not None and not asked.done(), "the other has not been looked at"
        state.leases = {key: each for key, each in state.leases.items() if key != lease.id}
        state.facts = {key: each for key, each in state.facts.items() if key != ("ada", "")}
        answer = await asked
        assert [each.user for each in (answer if what == "leases" else answer.servers)] == ["ben"]
