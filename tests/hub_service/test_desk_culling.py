"""Culling as the service does it: evidence from the device, a warning, saved notebooks, a last look, the stop."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from hub_extensions.core.messages import Report
from hub_extensions.hub_service.desk import Refused
from tests.fakes.machine import small
from tests.hub_service.desk_room import Room, room, settings

MINUTE = timedelta(minutes=1)
OPEN = Report(opened=True, kernels=1, busy_kernels=0)


async def minutes(r: Room, count: int, report: Report | None = OPEN, user: str = "ada") -> None:
    """Let minutes pass, with a look, a report and a decision in each."""
    for _ in range(count):
        r.hands.pass_time(MINUTE)
        await one_turn(r, report, user)


async def one_turn(r: Room, report: Report | None = OPEN, user: str = "ada") -> None:
    await r.desk.releases.look()
    if report is not None and (user, "") in r.desk.book.facts:
        await r.desk.report(user, "", report)
    await r.desk.culler.decide_all()
    for _ in range(20):
        await asyncio.sleep(0)


async def stops_finish(r: Room) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + 10
    while r.desk.culler._stops:
        assert loop.time() < deadline
        r.hands.pass_time(timedelta(seconds=1))
        await asyncio.sleep(0.05)


async def test_an_idle_gpu_is_warned_about_and_then_stopped_and_its_user_told(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        await one_turn(r)
        await minutes(r, 2)
        state = r.desk.server_state("ada", "")
        assert state is not None and state.countdown is not None
        assert state.countdown.cause == "idle" and state.countdown.warn and state.countdown.can_keep
        await minutes(r, 1)
        assert r.desk.server_state("ada", "").save  # type: ignore[union-attr]
        await r.desk.report("ada", "", replace(OPEN, saved=True))
        await stops_finish(r)
        assert r.hub.stopped == [("ada", "")]
        assert "was stopped" in r.desk.form("ada", "", (), False).notices[0].text


async def test_the_word_saved_of_one_page_leaves_the_others_time_to_save(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        await one_turn(r)
        await minutes(r, 3)
        await r.desk.report("ada", "", replace(OPEN, saved=True))
        began = r.hands.wall
        while not r.hub.stopped:
            assert r.hands.wall - began < timedelta(seconds=8), "it does not wait the full time either"
            await asyncio.sleep(0.25)
            if not r.hub.stopped:
                r.hands.pass_time(timedelta(seconds=1))
        assert r.hands.wall - began >= timedelta(seconds=3)


async def test_a_busy_gpu_keeps_its_server_until_the_lifetime_ends_it(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        r.gpus.used["MIG-small-0"] = 90.0
        await one_turn(r)
        await minutes(r, 29)
        assert r.desk.server_state("ada", "").countdown.cause == "lifetime"  # type: ignore[union-attr]
        assert r.hub.stopped == []
        await minutes(r, 1)
        await r.desk.report("ada", "", replace(OPEN, saved=True))
        await stops_finish(r)
        assert r.hub.stopped == [("ada", "")]


async def test_unknown_use_is_never_idle(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        r.gpus.used["MIG-small-0"] = None
        await one_turn(r)
        await minutes(r, 20)
        assert r.desk.server_state("ada", "").countdown is None  # type: ignore[union-attr]
        assert r.hub.stopped == []


async def test_whoever_comes_back_between_the_decision_and_the_stop_keeps_the_server(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        await one_turn(r)
        await minutes(r, 3)
        assert r.desk.server_state("ada", "").save  # type: ignore[union-attr]
        r.gpus.used["MIG-small-0"] = 80.0
        await one_turn(r)
        await stops_finish(r)
        assert r.hub.stopped == []
        state = r.desk.server_state("ada", "")
        assert state is not None and state.countdown is None and not state.save


async def test_keep_moves_the_end_and_its_budget_is_counted(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        await one_turn(r)
        with pytest.raises(Refused) as refused:
            await r.desk.keep("ben", "")
        assert refused.value.status == 404
        await minutes(r, 2)
        for left in (1, 0):
            state = await r.desk.keep("ada", "")
            assert state.keep is not None and state.keep.left == left
            await minutes(r, 3)
        with pytest.raises(Refused) as refused:
            await r.desk.keep("ada", "")
        assert refused.value.status == 409


async def test_a_server_nobody_opened_is_stopped_and_an_opened_one_is_not(tmp_path: Path) -> None:
    quiet = replace(settings(tmp_path).culling, idle=timedelta(hours=5), idle_below_percent=5.0)
    unopened = Report(opened=False, kernels=0, busy_kernels=0)
    async with room(tmp_path, small(0), culling=replace(quiet, lifetime=None)) as r:
        await r.run("ada", "mig-1g.5gb")
        await one_turn(r, unopened)
        await minutes(r, 14, unopened)
        assert r.desk.server_state("ada", "").countdown.cause == "unopened"  # type: ignore[union-attr]
        await minutes(r, 1, unopened)
        await stops_finish(r)
        assert r.hub.stopped == [("ada", "")]


async def test_a_dry_run_stops_nothing_and_shows_no_countdown(tmp_path: Path) -> None:
    dry = replace(settings(tmp_path).culling, enabled=False)
    async with room(tmp_path, small(0), culling=dry) as r:
        await r.run("ada", "mig-1g.5gb")
        await one_turn(r)
        await minutes(r, 60)
        state = r.desk.server_state("ada", "")
        assert state is not None and state.countdown is None and state.ends_at is None and state.keep is None
        assert r.hub.stopped == []


async def test_an_outage_moves_every_deadline_by_its_length(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        await one_turn(r)
        await minutes(r, 2)
        r.hub.away = "no answer"
        await r.desk.reconciler.reconcile()
        r.hands.pass_time(timedelta(hours=3))
        r.hub.away = ""
        await r.desk.reconciler.reconcile()
        await one_turn(r)
        assert r.hub.stopped == [] and not r.desk.server_state("ada", "").save  # type: ignore[union-attr]
        await minutes(r, 1)
        await stops_finish(r)
        assert r.hub.stopped == [("ada", "")]


async def test_a_cpu_only_server_is_stopped_by_the_hubs_activity_and_busy_kernels_protect_it(tmp_path: Path) -> None:
    policy = replace(settings(tmp_path).culling, cpu_idle=timedelta(hours=1))
    async with room(tmp_path, small(0), culling=policy) as r:
        state = await r.ask("ada", "cpu")
        await r.ready(state)
        r.hub.was_active("ada", timedelta(0))
        r.hands.wall = r.hub.running[("ada", "")].last_activity or r.hands.wall
        await r.desk.reconciler.reconcile()
        busy = Report(opened=True, kernels=1, busy_kernels=1)
        await one_turn(r, busy)
        await minutes(r, 90, busy)
        assert r.hub.stopped == []
        await minutes(r, 3)
        await r.desk.report("ada", "", replace(OPEN, saved=True))
        await stops_finish(r)
        assert r.hub.stopped == [("ada", "")]


async def test_a_countdown_and_the_keeps_survive_a_restart_of_the_service(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        _, child = await r.run("ada", "mig-1g.5gb")
        await one_turn(r)
        await minutes(r, 2)
        await r.desk.keep("ada", "")
        hub, hands, before = r.hub, r.hands, r.desk.book.facts[("ada", "")]
        r.children.clear()
    hands.wall += timedelta(hours=2)
    try:
        async with room(tmp_path, small(0), hub=hub, hands=hands) as r:
            after = r.desk.book.facts[("ada", "")]
            assert (after.kept_until, after.keeps) == (before.kept_until, before.keeps)
            await one_turn(r)
            assert not r.desk.server_state("ada", "").save  # type: ignore[union-attr]
    finally:
        child.kill()
        child.wait()


async def test_a_stop_that_a_restart_of_the_service_broke_off_is_carried_out(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        _, child = await r.run("ada", "mig-1g.5gb")
        await one_turn(r)
        await minutes(r, 3)
        assert r.desk.server_state("ada", "").save  # type: ignore[union-attr]
        for stop in r.desk.culler._stops:
            stop.cancel()
        hub, hands = r.hub, r.hands
        r.children.clear()
    try:
        async with room(tmp_path, small(0), hub=hub, hands=hands) as r:
            await one_turn(r)
            await stops_finish(r)
            assert hub.stopped == [("ada", "")]
    finally:
        child.kill()
        child.wait()
