"""Faults around a stop, one machine and cluster alike: docs/explanation/culling.md names each with its test."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from hub_extensions.adapters.hub.jupyterhub_api import HubApi
from hub_extensions.core.messages import Stopped
from tests.fakes.hub import FakeServer, FakeUser, HubWhosePageFails
from tests.fakes.machine import small
from tests.hub_service.engine.room import Room, room, settings
from tests.hub_service.engine.stops.test_culler import OPEN, minutes, one_turn, stops_finish
from tests.hub_service.engine.test_dcgm_of_pods import Pods, pods

pytestmark = pytest.mark.programs


async def test_of_a_list_of_which_the_third_page_fails_nothing_is_used(tmp_path: Path) -> None:
    """F2: three of four pages are no list. Nobody is judged by them or forgotten; the clock stands until the next."""
    async with room(tmp_path, small(0)) as r, HubWhosePageFails(3, page_limit=2) as fake:
        api = HubApi(fake.url, fake.token)
        fake.users.update((f"u{number}", FakeUser(servers={"": FakeServer()})) for number in range(8))
        r.engine.reconciler.hub = api
        await r.engine.reconciler.reconcile()
        assert r.engine.state.hub_view.listed is None and r.engine.state.clock.paused and r.engine.state.facts == {}
        await r.engine.reconciler.reconcile()
        assert len(r.engine.state.hub_view.listed or ()) == len(r.engine.state.facts) == 8
        assert not r.engine.state.clock.paused
        api.close()


async def test_a_restarted_proxy_moves_no_idle_clock_of_a_gpu(tmp_path: Path) -> None:
    """F13: it calls every server active now, as a hub that was restarted does."""
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        await one_turn(r)
        await minutes(r, 2)
        before = r.engine.server_state("ada", "").countdown  # type: ignore[union-attr]
        r.hub.was_active("ada", timedelta(0))
        await r.engine.reconciler.reconcile()
        await minutes(r, 1)
        assert before is not None and r.engine.server_state("ada", "").save  # type: ignore[union-attr]


async def test_a_restarted_proxy_moves_no_idle_clock_of_a_server_without_a_gpu(tmp_path: Path) -> None:
    """F13: with hub, proxy and service started anew all three are active now to the hub, and one is to us."""
    policy, people = replace(settings(tmp_path).culling, cpu_idle=timedelta(hours=1)), ("ada", "ben", "cy")
    async with room(tmp_path, small(0), culling=policy) as r:
        for user in people:
            await r.run(user, "cpu")
        begun = r.hub.running["ada", ""].last_activity
        assert begun is not None
        r.hands.wall = begun
        await listed_and_decided(r, people, begun)
        r.hands.pass_time(timedelta(minutes=30))
        await listed_and_decided(r, people, begun)
    async with room(tmp_path, small(0), culling=policy, hub=r.hub, hands=r.hands) as again:
        r.hands.pass_time(timedelta(minutes=1))
        renewed = r.hands.wall
        await listed_and_decided(again, people, renewed)
        assert again.engine.state.hub_view.activity["ada", ""] > again.engine.state.facts["ada", ""].idle_since  # type: ignore[operator]
        r.hands.pass_time(timedelta(minutes=16))
        r.hub.running["ben", ""] = replace(r.hub.running["ben", ""], last_activity=r.hands.wall)
        await listed_and_decided(again, ("ada", "cy"), renewed)
        r.hands.pass_time(timedelta(minutes=14))
        await minutes(again, 2, None)
        await stops_finish(again)
        assert sorted(r.hub.stopped) == [("ada", ""), ("cy", "")]


async def listed_and_decided(r: Room, people: tuple[str, ...], active: datetime) -> None:
    """The hub's list says that these were active then."""
    for user in people:
        r.hub.running[user, ""] = replace(r.hub.running[user, ""], last_activity=active)
    await r.engine.reconciler.reconcile()
    await one_turn(r, None)


@pytest.mark.whole
async def test_a_busy_terminal_protects_a_server_without_a_gpu_as_a_busy_kernel_does(tmp_path: Path) -> None:
    """A training in a terminal prints to nobody once its page is closed: to the hub its server is idle."""
    policy = replace(settings(tmp_path).culling, cpu_idle=timedelta(hours=1))
    async with room(tmp_path, small(0), culling=policy) as r:
        await r.run("ada", "cpu")
        r.hub.was_active("ada", timedelta(0))
        r.hands.wall = r.hub.running["ada", ""].last_activity or r.hands.wall
        await r.engine.reconciler.reconcile()
        await minutes(r, 90, replace(OPEN, busy_terminals=1))
        assert r.hub.stopped == [] and r.engine.server_state("ada", "").countdown is None  # type: ignore[union-attr]
        await minutes(r, 3, replace(OPEN, busy_terminals=0))
        await stops_finish(r)
        assert r.hub.stopped == [("ada", "")]


async def about_to_stop(lab: Pods) -> None:
    """Ada's pod is idle and due; its drain has begun."""
    await lab.room.run("ada")
    lab.measures("ada", 0.0)
    await lab.turn(OPEN)
    await lab.minutes(3, OPEN)
    assert lab.engine.state.is_being_stopped("ada", "")


async def test_whoever_comes_back_to_a_pod_between_decision_and_stop_keeps_it(tmp_path: Path) -> None:
    """F9: Prometheus is asked once more."""
    async with pods(tmp_path) as lab:
        await about_to_stop(lab)
        lab.measures("ada", 0.7)
        await stops_finish(lab.room)  # type: ignore[arg-type]
        assert lab.room.hub.stopped == []
        assert not lab.engine.state.is_being_stopped("ada", "")


async def test_a_pod_that_was_started_anew_between_decision_and_stop_is_not_stopped(tmp_path: Path) -> None:
    """F9: it has the name of the one that was idle, and not its uid."""
    async with pods(tmp_path) as lab:
        await about_to_stop(lab)
        await lab.engine.stopped(Stopped("ada", ""))
        lab.room.cluster.remove("jupyter-ada")
        await lab.room.refresh(2)
        await lab.room.run("ada")
        await stops_finish(lab.room)  # type: ignore[arg-type]
        assert lab.room.hub.stopped == []


async def test_a_pod_whose_start_is_pending_is_not_stopped(tmp_path: Path) -> None:
    """F10: a stop would cancel the start."""
    async with pods(tmp_path) as lab:
        await about_to_stop(lab)
        lab.room.hub.run("ada", ready=False)
        await stops_finish(lab.room)  # type: ignore[arg-type]
        assert lab.room.hub.stopped == []
