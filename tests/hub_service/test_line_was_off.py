"""The hub ran without this product for a while: who waited then does not get a server when it is back."""

from __future__ import annotations

from pathlib import Path

import pytest

from hub_extensions.adapters.linux import procfs
from tests.fakes.machine import HubAsTold, small
from tests.hub_service.engine.room import room
from tests.patience import soon

pytestmark = pytest.mark.programs

WORDS = "This hub ran without its line for GPUs for a while"


async def wait_in_line(path: Path, hub: HubAsTold) -> None:
    """Ada has the only device, Ben waits; then the service ends."""
    async with room(path, small(0), hub=hub) as before:
        await before.engine.reconciler.reconcile()
        await before.run("ada", "mig-1g.5gb")
        await before.ask("ben", "mig-1g.5gb")
        assert before.positions()["ben"] == 1
    del hub.running[("ben", "")]  # a hub that starts knows of no spawn


async def test_a_hub_that_ran_without_us_ends_the_old_line_in_words(tmp_path: Path):
    hub = HubAsTold()
    await wait_in_line(tmp_path, hub)
    hub.token_name = "a7"
    async with room(tmp_path, small(0), hub=hub) as after:
        await after.engine.reconciler.reconcile()
        assert after.positions() == {}
        (notice,) = after.engine.state.recent_notices("ben")
        assert notice.text.startswith(WORDS)
        assert hub.started == []


async def test_a_hub_that_was_only_restarted_keeps_the_line(tmp_path: Path):
    hub = HubAsTold()
    await wait_in_line(tmp_path, hub)
    async with room(tmp_path, small(0), hub=hub) as after:
        await after.engine.reconciler.reconcile()
        assert "ben" in after.positions()
        assert after.engine.state.recent_notices("ben") == ()


async def test_a_hub_that_does_not_tell_its_name_for_us_keeps_the_line(tmp_path: Path):
    hub = HubAsTold()
    await wait_in_line(tmp_path, hub)
    hub.token_name = ""
    async with room(tmp_path, small(0), hub=hub) as after:
        await after.engine.reconciler.reconcile()
        assert "ben" in after.positions()


async def test_a_start_that_the_hub_has_already_begun_again_is_not_ended(tmp_path: Path):
    hub = HubAsTold()
    await wait_in_line(tmp_path, hub)
    hub.token_name = "a7"
    hub.run("ben", ready=False)
    async with room(tmp_path, small(0), hub=hub) as after:
        await after.engine.reconciler.reconcile()
        assert "ben" in after.positions()


async def test_a_server_that_became_ready_meanwhile_ends_its_ticket_well(tmp_path: Path):
    hub = HubAsTold()
    async with room(tmp_path, small(0), hub=hub) as before:
        await before.engine.reconciler.reconcile()
        ada = await before.ask("ada", "mig-1g.5gb")
    hub.token_name = "a7"
    hub.run("ada")
    async with room(tmp_path, small(0), hub=hub) as after:
        pid = after.process(ada).pid
        await soon(lambda: any(process.pid == pid for process in procfs.marked()))
        after.hands.seconds += 1
        await after.engine.watcher.refresh()
        await after.engine.reconciler.reconcile()
        assert [lease.state for lease in await after.engine.leases()] == ["running"]
        assert after.engine.state.recent_notices("ada") == ()
