"""A service that is upgraded together with a restart of its machine: the line of before goes on by the rules of now."""

from __future__ import annotations

import asyncio
from pathlib import Path

from hub_extensions.core.queue.model import LeaseState
from tests.adapters.store.filled_store import write_filled_store
from tests.fakes.machine import HubAsTold, large, small
from tests.hub_service.engine.room import room, settings


async def test_who_was_in_line_under_the_last_release_keeps_place_promise_and_options(tmp_path: Path) -> None:
    write_filled_store(settings(tmp_path).store_url)
    hub = HubAsTold()
    async with room(tmp_path, small(0), large(), hub=hub) as r:
        state = r.engine.state
        await r.engine.reconciler.reconcile()
        for _ in range(20):
            await asyncio.sleep(0)
        leases = {each.user: (each.state, each.uuid) for each in state.leases.values() if each.uuid}
        assert leases == {
            "ada": (LeaseState.STARTING, "MIG-small-0"),  # promised then
            "Åsa": (LeaseState.STARTING, "MIG-large-0"),  # before kim, whose place for it is a later one
        }
        assert r.positions() == {"ada": 0, "joe": 0, "Åsa": 0, "kim": 1}
        assert hub.started == [
            ("ada", "", {"offers": ["mig-1g.5gb"]}),
            ("joe", "", {"offer": "cpu"}),
            ("Åsa", "näyte", {"offer": "mig-2g.10gb"}),
            ("kim", "", {"offers": ["mig-1g.5gb", "mig-2g.10gb"], "profile": "torch", "n": [1, None, True]}),
        ]
        records = {record.key: record for record in (await state.store.usage()).uses}
        ends = {records[f"l-{number}"].user: records[f"l-{number}"].end for number in (1, 2, 3, 4)}
        assert ends == {"bea": "hub-stopped", "cid": "lifetime", "dan": "hub-stopped", "eve": "failed"}, "none is there"
        assert (records["l-1"].ticket, records["l-1"].keeps, records["l-3"].adopted) == ("t-1", 1, True)
