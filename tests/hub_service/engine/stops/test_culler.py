"""Culling as the service does it: evidence from the device, a warning, saved notebooks, a last look, the stop."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from hub_extensions.adapters.hub.jupyterhub_api import StopRefused
from hub_extensions.core.culling import PAGE, reached
from hub_extensions.core.gpu.devices import Device
from hub_extensions.core.messages import DrainState, Report, SignedOut, Stopped, WithoutSession, WithoutSessions
from hub_extensions.core.offers.model import OfferConfig
from hub_extensions.core.overview.view import Asked
from hub_extensions.core.queue.model import QueueLimits
from hub_extensions.core.text.reasons import explain
from hub_extensions.hub_service.engine.state.errors import Refused
from hub_extensions.hub_service.engine.views.lease_view import lease_info
from hub_extensions.hub_service.http.api.answers import problem_of
from tests.fakes.machine import HubAsTold, StoreThatIsFull, small
from tests.hub_service.engine.room import Hands, Room, begin_stop, is_stopped, room, settings
from tests.patience import soon

pytestmark = pytest.mark.programs

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
OPEN = Report(opened=True, kernels=1, busy_kernels=0)


async def minutes(r: Room, count: int, report: Report | None = OPEN, user: str = "ada") -> None:
    """Let minutes pass, with a look, a report and a decision in each."""
    for _ in range(count):
        r.hands.pass_time(MINUTE)
        await one_turn(r, report, user)


async def one_turn(r: Room, report: Report | None = OPEN, user: str = "ada", heard: bool = True) -> None:
    """`heard`: by whatever way, its user hears of each warning."""
    await r.engine.watcher.refresh()
    if report is not None and (user, "") in r.engine.state.facts:
        await r.engine.report(user, "", report)
    if heard:
        reach(r)
    await r.engine.stop_runner.decide_all()
    for _ in range(20):
        await asyncio.sleep(0)


def reach(r: Room) -> None:
    """A page has shown each warning that stands."""
    for key, facts in r.engine.state.facts.items():
        r.engine.state.facts[key] = reached(facts, PAGE)


class Looked(dict[tuple[str, str], Any]):
    """The reports; whoever waits for one looks again and again."""

    count = 0

    def get(self, key: Any, default: Any = None) -> Any:
        self.count += 1
        return super().get(key, default)


async def stops_finish(r: Room) -> None:
    def over() -> bool:
        r.hands.pass_time(timedelta(seconds=1))
        return not r.engine.stop_runner._tries

    await soon(over)


FORGED = replace(OPEN, used_percent=100.0)


async def test_a_forged_report_keeps_no_gpu_that_is_measured_idle_and_admins_see_both(tmp_path: Path) -> None:
    """It held an idle GPU until the end of its lifetime."""
    async with room(tmp_path, small(0), small(1)) as r:
        await r.run("ada", "mig-1g.5gb")
        await r.run("ben", "mig-1g.5gb")
        r.gpus.used["MIG-small-1"] = 60.0
        for _ in range(3):
            await r.engine.watcher.refresh()
            await r.engine.report("ben", "", FORGED)
            await one_turn(r, FORGED)
            r.hands.pass_time(MINUTE)
        await r.engine.report("ada", "", FORGED)
        await r.engine.report("ben", "", FORGED)
        await r.engine.watcher.refresh()
        (ada,) = [lease for lease in r.engine.state.leases.values() if lease.user == "ada"]
        assert (await r.engine.admin_overview(Asked())).contradicted == {ada.id: (100.0, 0.0)}
        await one_turn(r, FORGED)
        await r.engine.report("ada", "", replace(FORGED, saved=True))
        await stops_finish(r)
        assert r.hub.stopped == [("ada", "")]


@pytest.mark.parametrize("measured", ["unknown", "stale", "gone"])
async def test_where_the_use_is_not_freshly_measured_a_report_protects_as_before(tmp_path: Path, measured: str) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        r.gpus.used["MIG-small-0"] = None if measured == "unknown" else 0.0
        for _ in range(8):
            if measured == "gone":
                r.gpus.gone = "the driver does not answer"
            await r.engine.watcher.refresh()
            r.hands.pass_time(timedelta(seconds=20))
            await r.engine.report("ada", "", FORGED)
            await r.engine.stop_runner.decide_all()
            assert (await r.engine.admin_overview(Asked())).contradicted == {}
        assert r.engine.state.facts["ada", ""].idle_since is None and r.hub.stopped == []


async def test_an_idle_gpu_is_warned_about_and_then_stopped_and_its_user_told(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        await one_turn(r)
        await minutes(r, 2)
        state = r.engine.server_state("ada", "")
        assert state is not None and state.countdown is not None
        assert state.countdown.cause == "idle" and state.countdown.warn and state.countdown.can_keep
        await minutes(r, 1)
        assert r.engine.server_state("ada", "").save  # type: ignore[union-attr]
        await r.engine.report("ada", "", replace(OPEN, saved=True))
        await stops_finish(r)
        assert r.hub.stopped == [("ada", "")]
        assert "was stopped" in r.engine.form("ada", "", (), False).notices[0].text


async def test_the_word_saved_of_one_page_leaves_the_others_time_to_save(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        await one_turn(r)
        await minutes(r, 3)
        r.hands.pass_time(timedelta(seconds=4))  # the first page needed them, and the other one may, too
        await r.engine.report("ada", "", replace(OPEN, saved=True))
        began = r.hands.wall
        while not r.hub.stopped:
            assert r.hands.wall - began < timedelta(seconds=8), "it does not wait the full time either"
            await asyncio.sleep(0.25)
            if not r.hub.stopped:
                r.hands.pass_time(timedelta(seconds=1))
        assert r.hands.wall - began >= timedelta(seconds=3)


async def test_a_page_that_is_asked_late_has_its_time_to_save_all_the_same(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        await one_turn(r)
        await minutes(r, 3)
        r.hands.pass_time(timedelta(seconds=9))
        await r.engine.report("ada", "", replace(OPEN, draining=False, asked=True))
        for seconds in (9, 1):
            r.engine.state.reports = looked = Looked(r.engine.state.reports)
            await soon(lambda looked=looked: looked.count >= 2)  # type: ignore[misc]
            assert not r.hub.stopped
            r.hands.pass_time(timedelta(seconds=seconds))
        await stops_finish(r)
        assert r.hub.stopped == [("ada", "")]


async def test_a_busy_gpu_keeps_its_server_until_the_lifetime_ends_it(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        r.gpus.used["MIG-small-0"] = 90.0
        await one_turn(r)
        await minutes(r, 29)
        assert r.engine.server_state("ada", "").countdown.cause == "lifetime"  # type: ignore[union-attr]
        assert r.hub.stopped == []
        await minutes(r, 1)
        await r.engine.report("ada", "", replace(OPEN, saved=True))
        await stops_finish(r)
        assert r.hub.stopped == [("ada", "")]


async def test_short_work_between_two_decisions_is_work(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        await one_turn(r)
        for _ in range(6):
            for used in (60.0, 0.0):  # each look that a decision is made on finds nothing
                r.gpus.used["MIG-small-0"] = used
                await r.engine.watcher.refresh()
            await minutes(r, 1)
        assert r.engine.state.facts[("ada", "")].idle_since is None and r.hub.stopped == []
        await minutes(r, 1)
        assert r.engine.state.facts[("ada", "")].idle_since is not None


async def test_unknown_use_is_never_idle(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        r.gpus.used["MIG-small-0"] = None
        await one_turn(r)
        await minutes(r, 20)
        assert r.engine.server_state("ada", "").countdown is None  # type: ignore[union-attr]
        assert r.hub.stopped == []


async def test_whoever_comes_back_between_the_decision_and_the_stop_keeps_the_server(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        await one_turn(r)
        await minutes(r, 3)
        assert r.engine.server_state("ada", "").save  # type: ignore[union-attr]
        r.gpus.used["MIG-small-0"] = 80.0
        await one_turn(r)
        await stops_finish(r)
        assert r.hub.stopped == []
        state = r.engine.server_state("ada", "")
        assert state is not None and state.countdown is None and not state.save


async def test_keep_moves_the_end_and_its_budget_is_counted(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        await one_turn(r)
        with pytest.raises(Refused) as refused:
            await r.engine.keep("ben", "")
        assert refused.value.status == 404
        await minutes(r, 2)
        for left in (1, 0):
            state = await r.engine.keep("ada", "")
            assert state.keep is not None and state.keep.left == left
            await minutes(r, 3)
        with pytest.raises(Refused) as refused:
            await r.engine.keep("ada", "")
        status, problem = problem_of(refused.value)
        assert (status, problem.field, problem.reason) == (409, "keep", "keep-none-left")
        assert problem.message == explain("keep-none-left", **problem.params).message


async def test_the_keeps_of_a_day_are_the_users_whatever_server_they_were_for(tmp_path: Path) -> None:
    limits, hands = QueueLimits(gpu_leases_per_user=2), Hands()
    hands.wall = datetime.now(timezone.utc) - timedelta(hours=1)  # the store is opened by the machine's clock
    async with room(tmp_path, small(0), small(1), queue=limits, hands=hands) as r:
        await r.run("ada", "mig-1g.5gb")
        await one_turn(r)
        await minutes(r, 2)
        await r.engine.keep("ada", "")
        child = await r.ready(await r.ask("ada", "mig-1g.5gb", server="second"))
        hub = r.hub
        r.children.remove(child)
    try:
        async with room(tmp_path, small(0), small(1), hub=hub, hands=hands, queue=limits) as r:
            state = r.engine.server_state("ada", "second")
            assert state is not None and state.keep is not None and state.keep.left == 1
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("busy", [0, 14])
async def test_a_server_whose_gpu_works_is_not_stopped_as_unopened_also_once_it_is_done(
    tmp_path: Path, busy: int
) -> None:
    unopened = Report(opened=False, kernels=0, busy_kernels=0)
    async with room(tmp_path, small(0), culling=replace(settings(tmp_path).culling, lifetime=None)) as r:
        await r.run("ada", "mig-1g.5gb")
        r.gpus.used["MIG-small-0"] = 90.0
        await one_turn(r, unopened)
        await minutes(r, busy, unopened)
        state = r.engine.server_state("ada", "")
        assert state is not None and (state.countdown is None or state.countdown.cause is None)
        r.gpus.used["MIG-small-0"] = 0.0
        await minutes(r, 2, unopened)
        countdown = r.engine.server_state("ada", "").countdown  # type: ignore[union-attr]
        assert countdown is not None and countdown.cause == "idle"


async def test_a_server_nobody_opened_is_stopped_and_an_opened_one_is_not(tmp_path: Path) -> None:
    quiet = replace(settings(tmp_path).culling, idle=timedelta(hours=5), idle_below_percent=5.0)
    unopened = Report(opened=False, kernels=0, busy_kernels=0)
    async with room(tmp_path, small(0), culling=replace(quiet, lifetime=None)) as r:
        await r.run("ada", "mig-1g.5gb")
        await one_turn(r, unopened)
        await minutes(r, 14, unopened)
        assert r.engine.server_state("ada", "").countdown.cause == "unopened"  # type: ignore[union-attr]
        await minutes(r, 1, unopened)
        await stops_finish(r)
        assert r.hub.stopped == [("ada", "")]


@pytest.mark.whole
async def test_a_dry_run_stops_nothing_and_shows_no_countdown(tmp_path: Path) -> None:
    dry = replace(settings(tmp_path).culling, enabled=False)
    async with room(tmp_path, small(0), culling=dry) as r:
        await r.run("ada", "mig-1g.5gb")
        await one_turn(r)
        await minutes(r, 60)
        state = r.engine.server_state("ada", "")
        assert state is not None and state.countdown is None and state.ends_at is None and state.keep is None
        assert r.hub.stopped == []


async def test_an_outage_moves_every_deadline_by_its_length(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        await one_turn(r)
        await minutes(r, 2)
        r.hub.away = "no answer"
        await r.engine.reconciler.reconcile()
        r.hands.pass_time(timedelta(hours=3))
        r.hub.away = ""
        await r.engine.reconciler.reconcile()
        await one_turn(r)
        assert r.hub.stopped == [] and not r.engine.server_state("ada", "").save  # type: ignore[union-attr]
        await minutes(r, 1)
        await stops_finish(r)
        assert r.hub.stopped == [("ada", "")]


@pytest.mark.parametrize(("away", "seconds", "begins"), [(16, 44, False), (16, 45, True), (15, 1, True)])
async def test_after_an_outage_nobody_is_stopped_before_the_newest_reports_are_there(
    tmp_path: Path, away: int, seconds: int, begins: bool
) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        await one_turn(r)
        await minutes(r, 2)
        r.hands.pass_time(timedelta(seconds=59))
        r.hub.away = "no answer"
        await r.engine.reconciler.reconcile()
        r.hands.pass_time(timedelta(seconds=away))
        r.hub.away = ""
        await r.engine.reconciler.reconcile()
        r.hands.pass_time(timedelta(seconds=seconds))
        await one_turn(r)
        assert r.engine.server_state("ada", "").save is begins  # type: ignore[union-attr]


@pytest.mark.whole
async def test_a_cpu_only_server_is_stopped_by_the_hubs_activity_and_busy_kernels_protect_it(tmp_path: Path) -> None:
    policy = replace(settings(tmp_path).culling, cpu_idle=timedelta(hours=1))
    async with room(tmp_path, small(0), culling=policy) as r:
        state = await r.ask("ada", "cpu")
        await r.ready(state)
        r.hub.was_active("ada", timedelta(0))
        r.hands.wall = r.hub.running[("ada", "")].last_activity or r.hands.wall
        await r.engine.reconciler.reconcile()
        busy = Report(opened=True, kernels=1, busy_kernels=1)
        await one_turn(r, busy)
        await minutes(r, 90, busy)
        assert r.hub.stopped == []
        await minutes(r, 2)  # the warning, and the stop: a further minute would end the time for saving
        assert r.engine.server_state("ada", "").save  # type: ignore[union-attr]
        await r.engine.report("ada", "", replace(OPEN, saved=True))
        await stops_finish(r)
        assert r.hub.stopped == [("ada", "")]


@pytest.mark.whole
async def test_a_cpu_only_server_at_work_is_warned_of_its_lifetime_and_stopped_by_it(tmp_path: Path) -> None:
    policy = replace(settings(tmp_path).culling, cpu_lifetime=timedelta(hours=1))
    async with room(tmp_path, small(0), culling=policy) as r:
        await r.ready(await r.ask("ada", "cpu"))
        busy = Report(opened=True, kernels=1, busy_kernels=1)
        await one_turn(r, busy)
        await minutes(r, 45, busy)
        shown = r.engine.server_state("ada", "")
        assert shown is not None and shown.countdown is None and shown.ends_at is not None
        await minutes(r, 14, busy)
        warned = r.engine.server_state("ada", "")
        assert warned is not None and warned.countdown is not None and warned.countdown.cause == "lifetime"
        assert warned.ends_at == warned.countdown.stops_at == shown.ends_at and not warned.countdown.can_keep
        with pytest.raises(Refused) as refused:
            await r.engine.keep("ada", "")
        assert problem_of(refused.value)[1].reason == "keep-lifetime"
        await minutes(r, 2, busy)
        await r.engine.report("ada", "", replace(OPEN, saved=True))
        await stops_finish(r)
        assert r.hub.stopped == [("ada", "")]


async def test_a_keep_that_cannot_be_written_says_so_and_moves_nothing(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        await one_turn(r)
        await minutes(r, 2)
        before = r.engine.server_state("ada", "")
        r.engine.state.store = StoreThatIsFull()  # type: ignore[assignment]
        with pytest.raises(Refused) as refused:
            await r.engine.keep("ada", "")
        status, problem = problem_of(refused.value)
        assert (status, problem.field, problem.reason) == (503, "keep", "store-unavailable")
        assert problem.message == "Not kept: The disk is full."
        assert r.engine.server_state("ada", "") == before


async def test_a_countdown_and_the_keeps_survive_a_restart_of_the_service(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        _, child = await r.run("ada", "mig-1g.5gb")
        await one_turn(r)
        await minutes(r, 2)
        await r.engine.keep("ada", "")
        hub, hands, before = r.hub, r.hands, r.engine.state.facts[("ada", "")]
        r.children.clear()
    hands.wall += timedelta(hours=2)
    try:
        async with room(tmp_path, small(0), hub=hub, hands=hands) as r:
            after = r.engine.state.facts[("ada", "")]
            assert (after.kept_until, after.keeps) == (before.kept_until, before.keeps)
            await one_turn(r)
            assert not r.engine.server_state("ada", "").save  # type: ignore[union-attr]
    finally:
        child.kill()
        child.wait()


@pytest.mark.whole
@pytest.mark.parametrize("limit", ["idle", "lifetime"])
async def test_a_countdown_is_not_shortened_by_a_restart_with_shorter_limits(tmp_path: Path, limit: str) -> None:
    culling = replace(settings(tmp_path).culling, idle=20 * MINUTE, lifetime=40 * MINUTE)
    shorter = replace(culling, **{limit: 4 * MINUTE})  # type: ignore[arg-type]
    async with room(tmp_path, small(0), culling=culling) as r:
        _, child = await r.run("ada", "mig-1g.5gb")
        await one_turn(r)
        await minutes(r, 5)
        before = r.engine.server_state("ada", "")
        hub, hands = r.hub, r.hands
        r.children.clear()
    try:
        async with room(tmp_path, small(0), hub=hub, hands=hands, culling=shorter) as r:
            await one_turn(r)
            after = r.engine.server_state("ada", "")
            assert before is not None and before.countdown is not None
            assert after is not None and after.countdown is not None
            # the clock stood still between the two
            assert abs(after.countdown.stops_at - before.countdown.stops_at) < timedelta(seconds=1)
            if limit == "lifetime":
                (lease,) = r.engine.state.leases.values()
                assert lease.ends_at == r.engine.state.facts["ada", ""].ends_at == before.ends_at, (
                    "what others are told"
                )
            await minutes(r, 14)
            assert not r.engine.server_state("ada", "").save  # type: ignore[union-attr]
            await minutes(r, 1)
            assert r.engine.server_state("ada", "").save  # type: ignore[union-attr]
    finally:
        child.kill()
        child.wait()


async def test_a_stop_that_a_restart_of_the_service_broke_off_is_carried_out(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        _, child = await r.run("ada", "mig-1g.5gb")
        await one_turn(r)
        await minutes(r, 3)
        assert r.engine.server_state("ada", "").save  # type: ignore[union-attr]
        for stop in r.engine.stop_runner._tries.values():
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


async def test_the_word_saved_of_an_earlier_time_is_not_the_answer_to_this_stop(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        await one_turn(r)
        await minutes(r, 2, replace(OPEN, saved=True))
        await minutes(r, 1, None)
        began = r.hands.wall
        await stops_finish(r)
        assert r.hub.stopped == [("ada", "")]
        assert r.hands.wall - began >= timedelta(seconds=10), "nobody has said since that the notebooks are saved"


@pytest.mark.whole
async def test_a_stop_waits_for_the_users_own_hook_and_no_longer_than_it_may_take(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        await one_turn(r)
        await minutes(r, 3)
        assert r.engine.server_state("ada", "").drain_seconds == 60  # type: ignore[union-attr]
        began = r.hands.wall
        await r.engine.report("ada", "", replace(OPEN, saved=True, draining=True))

        async def over() -> bool:
            r.hands.pass_time(timedelta(seconds=1))
            await r.engine.watcher.refresh()
            return not r.engine.stop_runner._tries

        await soon(over)
        assert r.hub.stopped == [("ada", "")]
        assert r.hands.wall - began >= timedelta(seconds=59)


@pytest.mark.whole
@pytest.mark.parametrize(
    ("before", "report", "stops"),
    [
        ({}, {"hook_ran": True}, True),
        ({}, {}, False),  # without a hook somebody came back
        ({"busy_kernels": 1}, {"hook_ran": True}, False),  # a cell while the pages saved
        ({}, {"hook_ran": True, "busy_kernels": 1}, False),  # one beside the hook
        ({}, {"hook_ran": True, "busy_terminals": None}, False),
    ],
)
async def test_the_hook_that_uses_the_gpu_does_not_undo_its_stop_and_other_work_does(
    tmp_path: Path, before: dict[str, Any], report: dict[str, Any], stops: bool
) -> None:
    calm = replace(OPEN, busy_terminals=0)
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        await one_turn(r, calm)
        await minutes(r, 3, calm)
        assert r.engine.server_state("ada", "").save  # type: ignore[union-attr]
        await r.engine.report("ada", "", replace(calm, draining=True, **before))
        r.gpus.used["MIG-small-0"] = 80.0
        await r.engine.report("ada", "", replace(calm, draining=True, **report))
        await one_turn(r, replace(calm, **{**report, "busy_kernels": 0}, draining=False, saved=True))
        await stops_finish(r)
        assert r.hub.stopped == ([("ada", "")] if stops else [])


@pytest.mark.parametrize(("afterwards", "stops"), [(0.0, True), (80.0, False)])
async def test_a_program_that_uses_the_gpu_after_the_hook_has_ended_undoes_the_stop(
    tmp_path: Path, afterwards: float, stops: bool
) -> None:
    """Neither a kernel nor a terminal is busy: it runs in the background."""
    calm = replace(OPEN, busy_terminals=0)
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        await one_turn(r, calm)
        await minutes(r, 3, calm)
        await r.engine.report("ada", "", replace(calm, draining=True, hook_ran=True))
        r.gpus.used["MIG-small-0"] = 80.0
        await one_turn(r, replace(calm, draining=True, hook_ran=True))
        await one_turn(r, replace(calm, draining=False, hook_ran=True, saved=True))
        r.gpus.used["MIG-small-0"] = afterwards

        async def over() -> bool:
            r.hands.pass_time(timedelta(seconds=1))
            await r.engine.watcher.refresh()
            return not r.engine.stop_runner._tries

        await soon(over)
        assert r.hub.stopped == ([("ada", "")] if stops else [])


async def test_the_next_turn_comes_when_an_end_does(tmp_path: Path) -> None:
    async with room(tmp_path, small(0), small(1)) as r:
        runner = r.engine.stop_runner
        await r.run("ada", "mig-1g.5gb")
        await one_turn(r)
        assert runner.next_turn() == 5.0
        await minutes(r, 2)
        r.hands.pass_time(timedelta(seconds=52))
        await one_turn(r)
        assert runner.next_turn() == 5.0
        r.hands.pass_time(timedelta(seconds=6.5))
        assert runner.next_turn() == pytest.approx(1.5)
        r.hands.pass_time(timedelta(seconds=1.4))
        await one_turn(r)
        assert (runner.next_turn(), is_stopped(r)) == (0.2, False), "never before"
        r.hands.pass_time(timedelta(seconds=0.1))
        await one_turn(r)
        assert is_stopped(r)
        assert runner.next_turn() == 5.0, "what is due already waits for nothing"


async def test_a_stop_that_was_decided_of_one_run_of_a_server_is_not_carried_out_on_the_next(tmp_path: Path) -> None:
    """Both runs are idle and due; the second one has its own time to save."""
    second = timedelta(seconds=1)
    quick = replace(
        settings(tmp_path).culling, idle=3 * second, warn=second, unopened=None, keep=second, lifetime=None
    )  # fmt: skip
    async with room(tmp_path, small(0), culling=quick) as r:
        _, child = await r.run("ada", "mig-1g.5gb")
        for _ in range(5):
            r.hands.pass_time(second)
            await one_turn(r)
        (stop,) = r.engine.stop_runner._tries.values()
        child.kill()
        child.wait()
        await r.engine.stopped(Stopped("ada", ""))
        await r.engine.watcher.refresh()
        await r.run("ada", "mig-1g.5gb")
        for _ in range(10):
            r.hands.pass_time(second)
            await one_turn(r)
        await stop
        assert is_stopped(r), "this run is due as well, and has its own time to save"
        assert r.hub.stopped == []


async def test_the_use_of_a_card_is_that_of_its_server_as_long_as_no_other_shares_it(tmp_path: Path) -> None:
    card = Device("GPU-0", "NVIDIA A100-PCIE-40GB")
    halves = OfferConfig(fractions={"gpu": (0.5,)})

    async def used(r: Room) -> list[tuple[float | None, str]]:
        return [(lease.last_use_percent, lease.use_source) for lease in await r.engine.leases()]

    async with room(tmp_path, card, offers=halves) as r:
        await r.run("ada", "gpu-0.5")
        r.gpus.used["GPU-0"] = 60.0
        await r.engine.watcher.refresh()
        assert await used(r) == [(60.0, "nvml")]
        await r.run("ben", "gpu-0.5")
        assert await used(r) == [(None, "none")] * 2, "one of them, or both"
        r.gpus.used["GPU-0"] = 0.0
        await r.engine.watcher.refresh()
        assert await used(r) == [(0.0, "nvml")] * 2, "none of them"


async def test_in_a_dry_run_no_lease_has_an_end(tmp_path: Path) -> None:
    dry = replace(settings(tmp_path).culling, enabled=False)
    for policy, ends in ((settings(tmp_path).culling, True), (dry, False)):
        (path := tmp_path / str(ends)).mkdir()
        async with room(path, small(0), small(1), culling=policy) as r:
            await r.run("ada", "mig-1g.5gb")
            await r.ask("ben", "mig-1g.5gb")
            assert [lease.ends_at is not None for lease in r.engine.state.leases.values()] == [ends, ends]
            assert (r.engine.state.queue_snapshot().lifetime is not None) is ends


@pytest.mark.parametrize("meanwhile", ["gone", "pending"])
async def test_a_server_that_the_hub_does_not_call_ready_is_not_stopped(tmp_path: Path, meanwhile: str) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        await one_turn(r)
        await minutes(r, 3)
        r.hub.running.clear() if meanwhile == "gone" else r.hub.run("ada", ready=False)
        await stops_finish(r)
        assert r.hub.stopped == []
        assert not is_stopped(r)


async def test_a_stop_that_the_hub_does_not_hear_is_tried_again(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        await one_turn(r)
        await minutes(r, 3)
        r.hub.away = "no answer"
        await stops_finish(r)
        assert not is_stopped(r)
        r.hub.away = ""
        await minutes(r, 2)
        await stops_finish(r)
        assert r.hub.stopped == [("ada", "")]
        assert [lease.state for lease in await r.engine.leases()] == ["ending"]
        assert ("ada", "") not in r.engine.state.facts


@pytest.mark.whole
async def test_a_stop_that_the_hub_refuses_is_sent_again_after_a_pause_that_grows(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        await one_turn(r)
        r.hub.refuses_stops = StopRefused(429, "too many", timedelta(seconds=90))
        await minutes(r, 3, None)
        await stops_finish(r)
        assert len(r.hub.refused) == 1
        for _ in range(14):  # 84 s, a decision each 6 s
            r.hands.pass_time(timedelta(seconds=5))
            await one_turn(r, None)
            await stops_finish(r)
        assert len(r.hub.refused) == 1, "it waits as long as the hub asked"
        r.hub.refuses_stops = StopRefused(500, "locked")
        for _ in range(70):  # 7 minutes, in which it was asked at each turn before
            r.hands.pass_time(timedelta(seconds=5))
            await one_turn(r, None)
            await stops_finish(r)
        assert 4 <= len(r.hub.refused) <= 8
        assert r.engine.state.counts[("stop-failed", "refused")] == len(r.hub.refused)
        r.hub.refuses_stops = None
        for _ in range(61):
            r.hands.pass_time(timedelta(seconds=5))
            await one_turn(r, None)
            await stops_finish(r)
        assert r.hub.stopped == [("ada", "")]


async def test_an_end_that_waits_for_samples_makes_the_culler_no_busier(tmp_path: Path) -> None:
    async with room(tmp_path, small(0), culling=replace(settings(tmp_path).culling, lifetime=None)) as r:
        await r.run("ada", "mig-1g.5gb")
        await one_turn(r)
        r.hub.refuses_stops = StopRefused(429, "too many", timedelta(seconds=90))
        await minutes(r, 3, None)
        await stops_finish(r)
        assert len(r.hub.refused) == 1
        r.gpus.used["MIG-small-0"] = None
        r.hands.pass_time(timedelta(seconds=20))
        await one_turn(r, None)
        state = r.engine.server_state("ada", "")
        assert state is not None and state.countdown is not None, "it is due, and its use is not known"
        assert r.engine.stop_runner.next_turn() == 5.0
        r.gpus.used["MIG-small-0"] = 0.0
        await one_turn(r, None)
        await stops_finish(r)
        assert len(r.hub.refused) == 1, "the hub asked for 90 s all the same"


async def test_a_stop_that_does_not_go_through_uses_up_nobodys_turn(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        await one_turn(r)
        r.hub.run("ada", ready=False)
        await minutes(r, 3, None)
        r.hands.pass_time(timedelta(seconds=20))  # nobody saves, and no more time passes
        await soon(lambda: not r.engine.stop_runner._tries)
        for _ in range(4):
            await one_turn(r, None)
        assert len(r.engine.stop_runner._begun) == 1 and not is_stopped(r), "a pause of 5 s comes first"


@pytest.mark.whole
async def test_a_running_cell_is_work_where_nobody_can_tell_the_use(tmp_path: Path) -> None:
    works = Report(opened=False, kernels=1, busy_kernels=1)
    async with room(tmp_path, small(0), culling=replace(settings(tmp_path).culling, lifetime=None)) as r:
        await r.run("ada", "mig-1g.5gb")
        r.gpus.used["MIG-small-0"] = None
        await one_turn(r, works)
        await minutes(r, 20, works)
        assert r.hub.stopped == []


@pytest.mark.whole
async def test_servers_that_fall_due_together_are_stopped_in_turns(tmp_path: Path) -> None:
    policy = replace(settings(tmp_path).culling, concurrent_stop_limit=2, stops_per_minute=2)
    async with room(tmp_path, *(small(n) for n in range(5)), culling=policy) as r:
        for user in ("ada", "ben", "eve", "kim", "leo"):
            await r.run(user, "mig-1g.5gb")
        for user in ("ada", "ben", "eve", "kim", "leo"):
            await r.engine.report(user, "", OPEN)
        await one_turn(r, None)
        await minutes(r, 3, None)
        waiting = [user for user in ("ada", "ben", "eve", "kim", "leo") if not is_stopped(r, user)]
        assert len(waiting) == 3, "who waits for the turn to be stopped may still come back"
        await stops_finish(r)
        await one_turn(r, None)
        await stops_finish(r)
        assert len(r.hub.stopped) == 4
        await one_turn(r, None)
        assert len(r.hub.stopped) == 4, "two a minute, as a mean of two"
        await minutes(r, 2, None)
        await stops_finish(r)
        assert len(r.hub.stopped) == 5


@pytest.mark.parametrize(
    ("seconds", "used", "busy"), [(30, 60.0, True), (31, None, True), (45, None, True), (46, None, False)]
)
async def test_what_was_measured_is_good_for_30_s_and_what_a_server_said_for_45(
    tmp_path: Path, seconds: int, used: float | None, busy: bool
) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        r.gpus.used["MIG-small-0"] = 60.0
        await one_turn(r, replace(OPEN, busy_kernels=1))
        r.gpus.gone = "the driver does not answer"
        r.hands.pass_time(timedelta(seconds=seconds))
        await r.engine.watcher.refresh()
        assert [lease.last_use_percent for lease in await r.engine.leases()] == [used]
        assert (r.engine.stop_runner.report("ada", "") is not None) is busy


async def test_the_saving_of_notebooks_is_no_activity_of_their_user(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "cpu")
        await r.run("ben", "cpu")
        for saving in (False, True):
            before = dict(r.engine.state.hub_view.activity)
            begin_stop(r, "ada", saves=saving)
            r.hands.pass_time(MINUTE)
            for user in ("ada", "ben"):
                r.hub.running[(user, "")] = replace(r.hub.running[(user, "")], last_activity=r.hands.wall)
            await r.engine.reconciler.reconcile()
            now = r.engine.state.clock.now()
            assert r.engine.state.hub_view.activity == {
                ("ada", ""): before[("ada", "")] if saving else now,
                ("ben", ""): now,
            }


DRAIN_OF = {"user": "ada", "server": "", "left_seconds": 600.0, "cause": "disabled"}


@pytest.mark.whole
@pytest.mark.parametrize(("culls", "hook", "before"), [(True, False, 13 * SECOND), (False, True, 50 * SECOND)])
async def test_who_may_not_sign_in_any_more_is_counted_down_and_stopped_as_at_a_cull(
    tmp_path: Path, culls: bool, hook: bool, before: timedelta
) -> None:
    """Also by a service that was killed meanwhile; the GPU goes to the next in line."""
    said = replace(OPEN, has_hook=hook)
    policy = replace(settings(tmp_path).culling, enabled=culls, lifetime=None, drain=50 * SECOND)
    hub, hands = HubAsTold(), Hands()
    async with room(tmp_path, small(0), hub=hub, hands=hands, culling=policy) as r:
        state, child = await r.run("ada", "mig-1g.5gb")
        assert state.grant is not None
        other = await r.engine.signed_out(SignedOut(**{**DRAIN_OF, "lease": "another run"}))
        assert other == DrainState(None)
        order = SignedOut(**DRAIN_OF, lease=state.grant.lease)
        assert await r.engine.signed_out(order) == DrainState(600.0, 110.0)
        hands.pass_time(MINUTE)
        assert await r.engine.signed_out(replace(order, left_seconds=0.0)) == DrainState(540.0, 110.0), (
            "never shortened"
        )
        await one_turn(r, None)  # the order asks for it; nothing that ends a server later on comes before what it shows
        shown = r.engine.server_state("ada", "")
        assert shown is not None and shown.countdown is not None
        assert (shown.countdown.cause, shown.countdown.warn, shown.countdown.can_keep) == ("signed-out", True, False)
        assert shown.countdown.reason.message == "Your account is disabled."
        assert shown.countdown.stops_at == hands.wall + 9 * MINUTE
        with pytest.raises(Refused, match=r"cannot be moved|nothing to keep"):
            await r.engine.keep("ada", "")
        ben = await r.ask("ben", "mig-1g.5gb")
        assert ben.answer == "wait"
        r.children.clear()  # the server outlives this service
    async with room(tmp_path, small(0), hub=hub, hands=hands, culling=policy) as r:  # as after a kill
        r.children.append(child)
        await minutes(r, 8)
        assert not r.hub.stopped and not r.engine.server_state("ada", "").save  # type: ignore[union-attr]
        promised = hands.wall + MINUTE
        hands.pass_time(MINUTE - before - SECOND)
        await one_turn(r, said)
        assert not r.engine.server_state("ada", "").save  # type: ignore[union-attr]
        hands.pass_time(SECOND)
        await one_turn(r, said)
        assert r.engine.server_state("ada", "").save  # type: ignore[union-attr]
        await r.engine.report("ada", "", replace(said, saved=True))
        hands.pass_time(promised - hands.wall - SECOND)
        r.engine.state.reports = looked = Looked(r.engine.state.reports)
        await soon(lambda: looked.count >= 2)
        assert not r.hub.stopped, "it is saved, and its time has not come"
        hands.pass_time(SECOND)
        await soon(lambda: r.hub.stopped == [("ada", "")])  # at that very time
        await soon(lambda: not r.engine.stop_runner._tries)
        child.kill()
        child.wait()
        await r.engine.watcher.refresh()
        assert r.engine.state.live_ticket("ben", "").state.value == "admitted"  # type: ignore[union-attr]
        [record] = (await r.engine.usage("ada", None)).uses
        assert record.end == "signed-out"
        rows = [(row.kind, row.text) for row in await r.engine.store.journal()]
        assert ("culled", "Your account is disabled.") in rows
        assert [kind for kind, _ in rows].count("drained") == 1


@pytest.mark.parametrize("left", [-1.0, float("nan"), float("inf"), 1e12])
async def test_a_time_that_is_none_is_refused_by_its_field(tmp_path: Path, left: float) -> None:
    async with room(tmp_path, small(0)) as r:
        with pytest.raises(Refused, match="left_seconds") as refused:
            await r.engine.signed_out(SignedOut(**{**DRAIN_OF, "left_seconds": left, "lease": "x"}))
        assert (refused.value.status, refused.value.field) == (400, "left_seconds")


async def test_a_server_that_the_hub_stopped_at_its_time_ended_by_the_sign_out_too(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        state, child = await r.run("ada", "mig-1g.5gb")
        assert state.grant is not None
        await r.engine.signed_out(SignedOut(**{**DRAIN_OF, "left_seconds": 0.0}, lease=state.grant.lease))
        child.kill()
        child.wait()
        await r.engine.stopped(Stopped("ada", "", asked=True))
        await r.engine.watcher.refresh()
        [record] = (await r.engine.usage(None, None)).uses
        assert record.end == "signed-out"


@pytest.mark.whole
@pytest.mark.parametrize("drains", [True, False])
async def test_a_server_that_nobody_is_signed_in_for_is_kept_by_nobody_and_stops_once_it_is_idle(
    tmp_path: Path, drains: bool
) -> None:
    """Also by a service that was killed meanwhile; the administrator sees since when, and who signs in has it again."""
    policy = replace(settings(tmp_path).culling, enabled=False, lifetime=None)  # else idleness alone stops it
    hub, hands = HubAsTold(), Hands()
    async with room(tmp_path, small(0), hub=hub, hands=hands, culling=policy) as r:
        _, child = await r.run("ada", "mig-1g.5gb")
        told = WithoutSessions((WithoutSession("ada", hands.wall),), 3600.0 if drains else None)
        since = hands.wall
        for _ in range(3):  # it is told again and again
            await r.engine.without_session(told)
        with pytest.raises(Refused) as refused:
            await r.engine.keep("ada", "")
        assert problem_of(refused.value)[1].reason == "keep-no-session"
        shown = r.engine.server_state("ada", "")
        assert shown is not None and shown.keep is None
        r.children.clear()
    async with room(tmp_path, small(0), hub=hub, hands=hands, culling=policy) as r:  # as after a kill
        r.children.append(child)
        assert r.engine.state.no_session_since("ada") == since
        [lease] = r.engine.state.leases.values()
        assert lease_info(r.engine.state, r.engine.stop_runner, r.engine.watcher, lease).no_session_since == since
        await minutes(r, 70, replace(OPEN, busy_kernels=1))
        assert not r.hub.stopped and not r.engine.stop_runner._tries, "a cell runs"
        for _ in range(5):
            if not r.engine.stop_runner._tries:  # no time may pass while it asks for the notebooks to be saved
                await minutes(r, 1)
        await r.engine.report("ada", "", replace(OPEN, saved=True))
        await stops_finish(r)
        assert r.hub.stopped == ([("ada", "")] if drains else [])
        await r.engine.without_session(WithoutSessions(()))
        assert r.engine.state.no_session_since("ada") is None
        kinds = [row.kind for row in await r.engine.store.journal()]
        assert (kinds.count("no-session"), kinds.count("session-again")) == (1, 1)
        child.kill()
        child.wait()


async def test_who_presses_keep_while_an_idle_server_saves_keeps_it(tmp_path: Path) -> None:
    """No kernel is interrupted for idleness, so nothing is lost yet."""
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        await one_turn(r)
        await minutes(r, 3)
        told = await r.engine.state_for_server("ada", "")
        assert told is not None and told.save and told.countdown is not None and told.countdown.cause == "idle"
        kept = await r.engine.keep("ada", "")
        assert not kept.save and kept.countdown is not None and not kept.countdown.warn
        await stops_finish(r)
        await minutes(r, 2)
        assert r.hub.stopped == [] and not is_stopped(r)


@pytest.mark.whole
@pytest.mark.parametrize("tries", [1, 3])
async def test_a_restart_of_the_service_forgets_no_pause_and_no_alarm(tmp_path: Path, tries: int) -> None:
    hub, hands = HubAsTold(), Hands()
    async with room(tmp_path, small(0), hub=hub, hands=hands) as r:
        _, child = await r.run("ada", "mig-1g.5gb")
        await one_turn(r)
        hub.refuses_stops = StopRefused(500, "locked")
        await minutes(r, 3, None)
        await stops_finish(r)
        while len(hub.refused) < tries:
            await minutes(r, 1, None)
            await stops_finish(r)
        before = r.engine.state.stops
        r.children.clear()
    async with room(tmp_path, small(0), hub=hub, hands=hands) as r:
        r.children.append(child)
        assert r.engine.state.stops == before
        (stop,) = before.values()
        assert stop.pause is not None and stop.pause.failures == tries and stop.pause.why.startswith("500")
