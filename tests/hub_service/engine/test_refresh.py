"""What a refresh of the leases changes and what it logs, where no process has to run for it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest

from hub_extensions.core.queue.model import LeaseState
from hub_extensions.hub_service.engine.line.local_leases import LocalLeases, _cause
from tests.fakes.machine import small
from tests.hub_service.engine.pod_room import pod_room
from tests.hub_service.engine.room import room

pytestmark = pytest.mark.slow

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("visible", "device"),
    [
        ("MIG-small-1", 1),
        ("MIG-small-1,MIG-small-0", 1),
        (" MIG-small-0 , MIG-small-1", 0),
        ("MIG-small-2", None),
        ("MIG-small-9", None),
        ("", None),
        (None, None),
    ],
)
async def test_a_server_is_on_the_first_device_that_its_environment_names_and_that_is_there(
    tmp_path: Path, visible: str | None, device: int | None
) -> None:
    async with room(tmp_path, small(0), small(1), small(2)) as r:
        there = r.engine.state.devices
        there[small(2).identity] = replace(there[small(2).identity], present=False)
        found = cast(LocalLeases, r.engine.watcher)._named(visible)
        assert found == (None if device is None else small(device))


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (LeaseState.ENDING, "its server is gone"),
        (LeaseState.ENDED, "device MIG-small-0 is free"),
        (LeaseState.LOST, "device MIG-small-0 is gone"),
        (LeaseState.RUNNING, "device MIG-small-0 is back"),
    ],
)
async def test_the_journal_says_what_became_of_a_lease(tmp_path: Path, state: LeaseState, words: str) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.ask("ada", "mig-1g.5gb")
        (lease,) = r.engine.state.leases.values()
        why, evidence = _cause(lease, replace(lease, state=state))
        assert why == words and evidence
        assert not r.engine.watcher.lives(lease), "it has no process yet"


async def test_a_look_that_finds_nothing_new_changes_nothing_but_its_time(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        before = r.engine.state.revision
        r.hands.pass_time(SECOND)
        assert r.engine.state.inventory_age() == SECOND
        await r.engine.watcher.refresh()
        assert (r.engine.state.revision, r.engine.state.inventory_age()) == (before, timedelta(0))
        r.gpus.devices.append(small(1))
        await r.engine.watcher.refresh()
        assert r.engine.state.revision == before + 1
        assert len(r.engine.state.known_devices() or ()) == 2


async def test_a_look_at_a_cluster_that_finds_nothing_new_changes_nothing_but_its_time(tmp_path: Path) -> None:
    async with pod_room(tmp_path) as r:
        before = r.engine.state.revision
        r.hands.pass_time(SECOND)
        assert r.engine.state.inventory_age() == SECOND
        await r.refresh()
        assert (r.engine.state.revision, r.engine.state.inventory_age()) == (before, timedelta(0))
        r.cluster.set_node("a", cordoned=True)
        await r.refresh()
        assert r.engine.state.revision == before + 1


async def test_a_round_in_which_nothing_changed_is_told_to_nobody(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        queue = r.engine.queue
        for changes in (False, True, False):
            await queue.publish_changed()
            queue._changed.clear()
            if changes:
                await r.ask("ada", "mig-1g.5gb")
            async with queue.transaction(admit=True):
                pass
            assert queue._changed.is_set() is changes
        assert r.engine.state.last_admission_seconds > 0


async def test_whoever_asks_again_is_still_the_admin_that_the_hub_said(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        r.engine.state.hub_view = replace(r.engine.state.hub_view, people={"ada": (("old",), True)})
        await r.ask("ada", "mig-1g.5gb")
        await r.ask("ben", "cpu")
        assert r.engine.state.hub_view.people == {"ada": ((), True), "ben": ((), False)}


@pytest.mark.parametrize(("ago", "ready"), [(None, True), (14.0, False), (16.0, True)])
async def test_a_loop_that_failed_is_shown_until_it_has_gone_on_for_a_while(
    tmp_path: Path, ago: float | None, ready: bool
) -> None:
    async with room(tmp_path, small(0)) as r:
        assert not r.engine.health().ready, "no loop runs yet"
        r.engine._loops = [asyncio.ensure_future(asyncio.sleep(0))]
        r.engine._failed_at = None if ago is None else asyncio.get_running_loop().time() - ago
        assert r.engine.health().ready is ready
