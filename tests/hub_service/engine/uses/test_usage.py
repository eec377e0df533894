"""The records of a running service: of each kind of end, on one machine and on a cluster, over outage and restart."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from hub_extensions.adapters.store import Changes
from hub_extensions.core.culling import ServerFacts
from hub_extensions.core.gpu.samples import DeviceSample
from hub_extensions.core.messages import Ended, Report, Started, Stopped, UsageRecord
from hub_extensions.core.offers.offer_id import CPU
from hub_extensions.core.queue.model import LeaseState
from hub_extensions.core.usage import Figure, Minute, UseEnd
from hub_extensions.hub_service.engine.line.reconcile import MISSING
from tests.fakes.machine import HubAsTold, large, small
from tests.hub_service.engine.pod_room import PodRoom, pod_room
from tests.hub_service.engine.room import Hands, Room, is_stopped, room

pytestmark = pytest.mark.slow

SMALL = "mig-1g.5gb"


async def records(r: Room) -> dict[str, UsageRecord]:
    """The last of each user."""
    return {record.user: record for record in reversed((await r.engine.store.usage()).uses)}


async def over(r: Room, user: str) -> UsageRecord:
    await r.engine.watcher.refresh()
    await r.engine.watcher.refresh()
    return (await records(r))[user]


@pytest.mark.programs
async def test_a_record_says_who_waited_for_what_how_long_and_who_ended_it(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.engine.reconciler.reconcile()
        _, child = await r.run("ada", SMALL)
        ben = await r.ask("ben", SMALL)
        r.hands.pass_time(timedelta(minutes=20))
        child.kill()
        child.wait()
        await r.engine.stopped(Stopped("ada", "", asked=True))
        ada = await over(r, "ada")
        assert (ada.end, ada.ran_seconds, ada.waited_seconds, ada.device) == ("user", 1200.0, 0.0, "MIG-small-0")
        assert (ada.lifetime_seconds, ada.adopted, ada.offer, ada.devices) == (1800.0, False, SMALL, 1)
        assert ada.device_class.startswith("NVIDIA")
        assert ada.ended - ada.ready == timedelta(minutes=20) if ada.ready else False
        await r.engine.ended(ben.ticket, Ended(ben.attempt, "failed", "no such image", "image"))
        record = await over(r, "ben")
        assert (record.end, record.ready, record.waited_seconds) == ("failed", None, 1200.0)
        assert (record.ran_seconds, record.asked) == (None, r.hands.wall - timedelta(minutes=20))


@pytest.mark.programs
@pytest.mark.parametrize("seen_first", [True, False])
async def test_a_stop_that_the_hub_carried_out_for_a_sign_out_is_recorded_as_that(
    tmp_path: Path, seen_first: bool
) -> None:
    """The service was away, so the hub stopped the server by itself and reports that."""
    async with room(tmp_path, small(0)) as r:
        await r.engine.reconciler.reconcile()
        _, child = await r.run("ada", SMALL)
        child.kill()
        child.wait()
        if seen_first:
            assert (await over(r, "ada")).end == "unknown"
        await r.engine.stopped(Stopped("ada", "", reason="signed-out", asked=True))
        assert (await over(r, "ada")).end == "signed-out"


@pytest.mark.programs
async def test_a_use_whose_stop_failed_has_no_end_and_one_that_ends_says_why(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.engine.reconciler.reconcile()
        await r.run("ada", SMALL)
        state = r.engine.state
        (lease,) = state.leases.values()
        assert state.uses[lease.id].end is None
        await r.engine.stopped(Stopped("ada", "", asked=True))
        assert state.leases[lease.id].state is LeaseState.ENDING
        assert state.uses[lease.id].end is UseEnd.USER
        async with r.engine.queue.transaction() as transaction:
            await transaction.write(Changes(leases=(replace(lease, state=LeaseState.RUNNING),)))
        assert state.uses[lease.id].end is None


async def test_a_start_that_is_given_up_for_another_is_one_that_its_user_left(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.engine.reconciler.reconcile()
        await r.ask("ada", SMALL)
        state = r.engine.state
        (lease,) = state.leases.values()
        async with r.engine.queue.transaction() as transaction:
            await transaction.write(Changes(leases=(replace(lease, state=LeaseState.ENDING),)))
        assert (lease.state, state.uses[lease.id].end) == (LeaseState.STARTING, UseEnd.LEFT)


@pytest.mark.programs
async def test_an_end_that_is_seen_before_the_hub_says_who_ended_it_is_told_right_in_the_end(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.engine.reconciler.reconcile()
        _, child = await r.run("ada", SMALL)
        child.kill()
        child.wait()
        assert (await over(r, "ada")).end == "unknown"
        await r.engine.stopped(Stopped("ada", "", asked=True))
        assert [record.end for record in (await r.engine.store.usage()).uses] == ["user"], "the same row"
        await r.engine.stopped(Stopped("ada", "", "It broke down.", "crashed"))
        assert (await records(r))["ada"].end == "user", "said once"


@pytest.mark.programs
async def test_a_stop_of_the_culler_is_told_by_its_cause_whoever_reports_the_end(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.engine.reconciler.reconcile()
        _, child = await r.run("ada", SMALL)
        r.engine.state.samples = {"MIG-small-0": sample(r, 0.0)}
        while not is_stopped(r):
            await r.engine.stop_runner.decide_all()
            r.hands.pass_time(timedelta(minutes=1))
            r.engine.state.read_at = r.engine.state.clock.now()
        child.kill()
        child.wait()
        await r.engine.stopped(Stopped("ada", "", asked=True))
        record = await over(r, "ada")
        assert (record.end, record.warnings, record.keeps) == ("idle", 1, 0)
        assert record.mean_use_percent == 0.0 and record.use_measured is not None


def sample(r: Room, used: float | None, memory: int | None = None) -> DeviceSample:
    return DeviceSample("MIG-small-0", r.hands.wall, used, memory, (), "gpm" if used is not None else "none")


@pytest.mark.programs
async def test_who_did_not_need_so_much_is_told_after_the_use_but_not_after_the_next_two(tmp_path: Path) -> None:
    hub, hands = HubAsTold(), Hands()
    enough = "A small GPU (4.75 GiB) would have been enough. One was free when you asked."
    found: list[tuple[str | None, str, bool, bool]] = []
    for _ in range(4):
        async with room(tmp_path, small(0), large(), hub=hub, hands=hands) as r:  # each on a restarted service
            await r.engine.reconciler.reconcile()
            _, child = await r.run("ada", "mig-2g.10gb")
            while not is_stopped(r):  # by its lifetime of 30 min
                now = DeviceSample("MIG-large-0", hands.wall, 20.0, 2 * 2**30, (), "gpm")
                r.engine.state.samples = {"MIG-large-0": now}
                r.engine.state.read_at = r.engine.state.clock.now()
                await r.engine.stop_runner.decide_all()
                hands.pass_time(timedelta(seconds=20))
            state = r.engine.server_state("ada", "")
            shown = state is not None and enough in state.size
            child.kill()
            child.wait()
            await r.engine.stopped(Stopped("ada", "", asked=True))
            hub.running.clear()
            record = await over(r, "ada")
            notice = r.engine.form("ada", "", (), False).notices[-1]
            found.append((record.smaller_would_do, record.advice, enough in notice.text, shown))
            hands.pass_time(timedelta(minutes=5))
    told, silent = (SMALL, "enough-was-free", True, True), (SMALL, "", False, False)
    assert found == [told, silent, silent, told]


@pytest.mark.programs
async def test_figures_are_kept_by_the_minute_and_in_the_record_over_a_restart(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        _, child = await r.run("ada", SMALL)
        hands, hub = r.hands, r.hub
        (lease,) = r.engine.state.leases
        for used in (None, 40.0, 80.0, None):
            r.engine.state.samples = {"MIG-small-0": sample(r, used, None if used is None else 2**30)}
            for _ in range(4):
                await r.engine.stop_runner.decide_all()
                hands.pass_time(timedelta(seconds=15))
                r.engine.state.read_at = r.engine.state.clock.now()
        await r.engine.stop_runner.decide_all()
        rows = await r.engine.store.samples(lease, hands.wall - timedelta(hours=1))
        begin = rows[0].at - timedelta(minutes=1)
        assert [(row.used_percent, row.memory_bytes, row.source) for row in rows] == [
            (40.0, 2**30, "gpm"),
            (80.0, 2**30, "gpm"),
        ], "of a minute in which nobody measured there is no row"
        assert rows[0] == Minute(lease, begin + timedelta(minutes=1), "MIG-small-0", "gpm", 40.0, 40.0, 2**30, 60.0)
        r.children.clear()  # it lives on
    async with room(tmp_path, small(0), hub=hub, hands=hands) as r:
        r.hands.pass_time(timedelta(minutes=4))
        child.kill()
        child.wait()
        record = await over(r, "ada")
        assert (record.mean_use_percent, record.highest_use_percent, record.peak_memory_bytes) == (60.0, 80.0, 2**30)
        assert record.use_measured == pytest.approx(120 / 480, abs=0.01)
        assert record.first_used == begin + timedelta(minutes=1)
        assert record.end == "hub-stopped", "nobody has compared with the hub yet"


@pytest.mark.programs
async def test_a_server_without_a_gpu_has_a_row_and_an_outage_lengthens_no_time(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.engine.reconciler.reconcile()
        state = await r.ask("ada", "cpu")
        await r.ready(state)
        r.hands.pass_time(timedelta(minutes=30))
        r.engine.state.clock.pause()
        r.hands.pass_time(timedelta(hours=3))
        r.engine.state.clock.resume()
        r.hands.pass_time(timedelta(minutes=30))
        await r.engine.stopped(Stopped("ada", "", asked=True))
        (record,) = (await r.engine.store.usage()).uses
        assert (record.offer, record.devices, record.end, record.ticket) == ("cpu", 0, "user", state.ticket)
        assert (record.ran_seconds, record.outage_seconds) == (3600.0, 3 * 3600.0)
        assert r.engine.state.uses == {} and (await r.engine.store.load()).uses == ()


async def test_a_place_in_line_that_is_left_is_no_use_and_a_start_that_is_left_is_one_without_a_server(
    tmp_path: Path,
) -> None:
    async with room(tmp_path, small(0)) as r:
        ada, ben = await r.ask("ada", SMALL), await r.ask("ben", SMALL)
        await r.left(ben)
        await r.left(ada)
        await over(r, "ada")
        assert {user: (record.end, record.ready) for user, record in (await records(r)).items()} == {
            "ada": ("left", None)
        }


async def test_on_a_cluster_a_record_has_its_node_and_a_lost_one_is_told_apart_from_one_given_up(
    tmp_path: Path,
) -> None:
    async with pod_room(tmp_path) as r:
        ada = await r.run("ada")
        await r.engine.stop_runner.decide_all()
        r.cluster.set_node("a", ready=False)
        await r.refresh()
        await r.engine.give_up(ada.id, "root")
        await r.refresh()
        await r.refresh(after=1.1)
        record = (await r.engine.store.usage()).uses[0]
        assert (record.end, record.node, record.user) == ("admin", "a", "ada")
        rows = await r.engine.store.journal(20)
        (given,) = [row for row in rows if row.kind == "given-up"]
        assert (given.actor, given.evidence) == ("admin root", "the node a does not answer")


async def test_on_a_cluster_minutes_are_kept_by_the_lease_though_no_device_is_known(tmp_path: Path) -> None:
    async with pod_room(tmp_path) as r:
        lease = await r.run("ada")
        r.engine.stop_runner.figure_of = lambda _: Figure(30.0, 2**30, "dcgm")  # type: ignore[method-assign]
        for _ in range(9):
            await r.engine.stop_runner.decide_all()
            r.hands.pass_time(timedelta(seconds=10))
        rows = await r.engine.store.samples(lease.id, r.hands.wall - timedelta(hours=1))
        assert [(row.key, row.device, row.used_percent, row.source) for row in rows] == [(lease.id, "", 30.0, "dcgm")]


async def test_of_many_servers_without_a_gpu_each_has_its_own_use(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        async with r.engine.queue.transaction() as transaction:
            facts = tuple(ServerFacts(f"u{number}", "", CPU, r.engine.state.clock.now()) for number in range(50))
            await transaction.write(Changes(facts=facts))
            warned = tuple(replace(each, warned=each.started) for each in facts)
            await transaction.write(Changes(facts=warned))
            assert len(r.engine.state.uses) == 50
            await transaction.write(Changes(gone_facts=tuple((each.user, "") for each in facts), end=UseEnd.USER))
        found = (await r.engine.store.usage()).uses
        assert {(record.user, record.end, record.warnings) for record in found} == {
            (f"u{number}", "user", 1) for number in range(50)
        }


async def missed(r: Room) -> None:
    """The hub's lists have lacked it for as long as it takes to be forgotten."""
    await r.engine.reconciler.reconcile()
    r.hands.pass_time(MISSING)
    await r.engine.reconciler.reconcile()


@pytest.mark.parametrize("how", ["outage", "restart", "neither", "back in between"])
async def test_a_server_without_a_gpu_that_went_in_an_outage_was_ended_by_the_hub(tmp_path: Path, how: str) -> None:
    async with room(tmp_path, small(0)) as r:
        ticket = await r.ask("ada", "cpu")
        await r.engine.started(ticket.ticket, Started(ticket.attempt, ready=True))
        r.hub.run("ada")
        r.hands.pass_time(timedelta(minutes=1))
        await r.engine.reconciler.reconcile()
        if how != "restart":
            r.hub.away = "" if how == "neither" else "no answer"
            await r.engine.reconciler.reconcile()
            there = r.hub.running.pop(("ada", ""))
            r.hub.away = ""
            await r.engine.reconciler.reconcile()
            if how == "back in between":
                r.hub.running["ada", ""] = there
                await r.engine.reconciler.reconcile()
                del r.hub.running["ada", ""]
            await missed(r)
            assert (await records(r))["ada"].end == ("hub-stopped" if how == "outage" else "unknown")
            return
        hub, hands = r.hub, r.hands
        del hub.running["ada", ""]
    async with room(tmp_path, small(0), hub=hub, hands=hands) as r:
        await missed(r)
        assert (await records(r))["ada"].end == "hub-stopped"


async def end_on_a_cluster(r: PodRoom) -> str:
    """Of the last record, once its pod is surely gone."""
    await r.refresh()
    await r.refresh(after=1.1)
    return (await r.engine.store.usage()).uses[0].end


async def test_on_a_cluster_a_hub_that_ends_with_its_servers_ended_them(tmp_path: Path) -> None:
    """It says so itself, its list lacks them after the outage, or their pods go while it is away."""
    async with pod_room(tmp_path) as r:
        await r.engine.reconciler.reconcile()
        await r.run("ada")
        await r.engine.stopped(Stopped("ada", "", asked=True, closing=True))
        r.cluster.remove("jupyter-ada")
        assert await end_on_a_cluster(r) == "hub-stopped"
        await r.run("ben")
        r.hub.away = "it is being restarted"
        await r.engine.reconciler.reconcile()
        r.cluster.remove("jupyter-ben")
        assert await end_on_a_cluster(r) == "hub-stopped"
        r.hub.away = ""
        await r.engine.reconciler.reconcile()
        await r.run("cem")
        r.cluster.remove("jupyter-cem")
        assert await end_on_a_cluster(r) == "unknown", "nobody was away"


async def test_a_pod_that_goes_with_its_machine_is_lost_with_it(tmp_path: Path) -> None:
    async with pod_room(tmp_path) as r:
        await r.engine.reconciler.reconcile()
        await r.run("ada")
        r.cluster.set_node("a", ready=False)
        await r.refresh()
        r.cluster.remove("jupyter-ada")
        assert await end_on_a_cluster(r) == "node-lost"


@pytest.mark.programs
async def test_a_server_that_nobody_opens_ends_unopened(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.engine.reconciler.reconcile()
        _, child = await r.run("ada", SMALL)
        while not is_stopped(r):
            await r.engine.report("ada", "", Report(False, 0, 0, None))
            await r.engine.stop_runner.decide_all()
            r.hands.pass_time(timedelta(seconds=40))
        child.kill()
        child.wait()
        assert (await over(r, "ada")).end == "unopened"


async def test_the_use_of_an_adopted_server_goes_on_until_it_holds_a_gpu(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        r.hub.run("ada")
        await r.engine.reconciler.reconcile()
        state = r.engine.state
        (use,) = state.uses.values()
        facts = state.facts["ada", ""]
        assert (use.offer, facts.lease) == (CPU, None)
        async with r.engine.queue.transaction() as transaction:
            await transaction.write(Changes(facts=(replace(facts, opened=state.clock.now()),)))
        assert list(state.uses) == [use.key]
        async with r.engine.queue.transaction() as transaction:
            await transaction.write(Changes(facts=(replace(facts, lease="l-1"),)))
        assert use.key not in state.uses
