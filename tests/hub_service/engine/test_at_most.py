""" "At most" where it hangs on what the service does with the server ahead: its limits change, its stop fails."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from hub_extensions.adapters.hub.jupyterhub_api import HubRefused, StopAnswer
from hub_extensions.core.queue.wait_bound import RELEASE_ALLOWANCE, START_ALLOWANCE
from tests.fakes.cluster_table import ClusterTable, node
from tests.fakes.machine import HubAsTold, small
from tests.hub_service.engine.pod_room import PodRoom, pod_room
from tests.hub_service.engine.room import Room, room, settings
from tests.hub_service.engine.stops.test_culler import minutes, one_turn
from tests.patience import soon

pytestmark = pytest.mark.programs

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
SMALL = "mig-1g.5gb"
AFTER = RELEASE_ALLOWANCE + START_ALLOWANCE


class HubThatRefusesStops(HubAsTold):
    """It answers, and stops nothing."""

    async def stop(self, user: str, server: str) -> StopAnswer:
        self.stopped.append((user, server))
        raise HubRefused(500, "no")


def at_most(r: Room | PodRoom, user: str) -> timedelta | None:
    (state,) = (each for each in r.engine.queue.states() if each.user == user)
    assert state.wait is not None
    return None if state.wait.at_most_seconds is None else timedelta(seconds=state.wait.at_most_seconds)


async def test_a_server_that_is_over_a_new_limit_is_warned_first_and_so_long_the_next_one_waits(tmp_path: Path) -> None:
    without = replace(settings(tmp_path).culling, idle=20 * HOUR, warn=10 * MINUTE, lifetime=None)
    async with room(tmp_path, small(0), culling=without) as r:
        _, child = await r.run("ada", SMALL)
        await r.ask("ben", SMALL)
        r.hands.pass_time(3 * HOUR)
        await one_turn(r)
        assert at_most(r, "ben") is None
        hub, hands = r.hub, r.hands
        r.children.clear()
    try:
        async with room(tmp_path, small(0), hub=hub, hands=hands, culling=replace(without, lifetime=HOUR)) as r:
            assert at_most(r, "ben") == 10 * MINUTE + AFTER
            await one_turn(r)
            assert r.engine.server_state("ada", "").countdown.warn  # type: ignore[union-attr]
            for left in range(9, 0, -1):
                await minutes(r, 1)
                assert at_most(r, "ben") == left * MINUTE + AFTER
            assert not r.engine.server_state("ada", "").save  # type: ignore[union-attr]
            await minutes(r, 1)
            assert r.engine.server_state("ada", "").save  # type: ignore[union-attr]
    finally:
        child.kill()
        child.wait()


async def test_a_server_that_was_shown_its_end_keeps_it_under_a_shorter_limit_and_so_long_the_next_one_waits(
    tmp_path: Path,
) -> None:
    long = replace(settings(tmp_path).culling, idle=20 * HOUR, warn=10 * MINUTE, lifetime=12 * HOUR)
    async with room(tmp_path, small(0), culling=long) as r:
        _, child = await r.run("ada", SMALL)
        await r.ask("ben", SMALL)
        r.hands.pass_time(3 * HOUR)
        await one_turn(r)
        assert at_most(r, "ben") == 9 * HOUR + AFTER
        ends = r.engine.server_state("ada", "").ends_at  # type: ignore[union-attr]
        hub, hands = r.hub, r.hands
        r.children.clear()
    try:
        async with room(tmp_path, small(0), hub=hub, hands=hands, culling=replace(long, lifetime=HOUR)) as r:
            await one_turn(r)
            shown, wait = r.engine.server_state("ada", ""), at_most(r, "ben")
            assert shown is not None and shown.countdown is None and shown.ends_at is not None and ends is not None
            assert abs(shown.ends_at - ends) < timedelta(seconds=1)
            assert wait is not None and abs(wait - (9 * HOUR + AFTER)) < timedelta(seconds=1)
    finally:
        child.kill()
        child.wait()


@pytest.mark.whole
async def test_while_the_hub_refuses_the_stop_it_is_not_known_how_long_the_next_one_waits(tmp_path: Path) -> None:
    limits = replace(settings(tmp_path).culling, idle=20 * HOUR)
    async with room(tmp_path, small(0), culling=limits, hub=HubThatRefusesStops()) as r:
        await r.run("ada", SMALL)
        await r.ask("ben", SMALL)
        await minutes(r, 29)
        assert at_most(r, "ben") == MINUTE + AFTER
        await minutes(r, 1)
        for _ in range(30):
            r.hands.pass_time(timedelta(seconds=1))
            await asyncio.sleep(0)
        await soon(lambda: r.hub.stopped)
        await minutes(r, 2)
        assert at_most(r, "ben") is None
        await minutes(r, 60)
        assert at_most(r, "ben") is None
        (state,) = (each for each in r.engine.queue.states() if each.user == "ben")
        assert state.wait is not None and state.wait.reason is not None
        assert state.wait.reason.reason == "one-without-limit"


@pytest.mark.parametrize("missing", [1, 61])
async def test_a_server_that_fell_out_of_the_hubs_list_and_is_back_ends_when_it_was_to_end(
    tmp_path: Path, missing: int
) -> None:
    async with pod_room(tmp_path, ClusterTable(node("a", (SMALL, 1)))) as r:
        began = r.engine.state.clock.now()
        ends = (await r.run("ada")).ends_at
        assert ends == began + 30 * MINUTE
        await r.ask("ben")
        await r.refresh(after=600)
        there = r.hub.running.pop(("ada", ""))
        await r.engine.reconciler.reconcile()
        await r.refresh(after=missing)
        await r.engine.reconciler.reconcile()
        assert r.lease("ada").state.value == ("running" if missing < 60 else "ending")
        r.hub.running["ada", ""] = there
        await r.engine.reconciler.reconcile()
        lease, facts = r.lease("ada"), r.engine.state.facts["ada", ""]
        assert (lease.state.value, lease.ends_at, facts.lease, facts.started) == ("running", ends, lease.id, began)
        assert r.engine.stop_runner.decision(facts).ends_at == ends
        assert at_most(r, "ben") == ends - r.engine.state.clock.now() + AFTER
