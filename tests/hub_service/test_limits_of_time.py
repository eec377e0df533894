"""Every time that a rule of the service waits for: what holds at the limit itself, and what after it."""

from __future__ import annotations

import logging
import signal
from datetime import timedelta
from pathlib import Path

import pytest

from hub_extensions.adapters.linux import procfs
from hub_extensions.core.messages import Report
from hub_extensions.core.queue.model import LeaseState, QueueLimits
from tests.fakes.cluster_table import HOME, pod
from tests.fakes.machine import small
from tests.hub_service.engine.pod_room import SMALL, pod_room
from tests.hub_service.engine.room import room, settings
from tests.hub_service.engine.stops.test_culler import one_turn

pytestmark = pytest.mark.slow

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(("seconds", "refused"), [(29, False), (30, False), (31, True)])
async def test_the_hubs_word_on_a_users_rights_holds_for_30_s(tmp_path: Path, seconds: int, refused: bool) -> None:
    async with room(tmp_path, small(0)) as r:
        ada = await r.ask("ada", "mig-1g.5gb")
        await r.ask("ben", "mig-1g.5gb")
        r.engine.queue.rights.remember("ben", ())
        r.hub.deleted.add("ben")
        r.hands.pass_time(seconds * SECOND)
        await r.left(ada)
        await r.engine.watcher.refresh()
        assert (r.engine.state.counts.get(("ended", "refused"), 0) == 1) is refused
        assert r.engine.state.tickets.keys() == {lease.ticket for lease in r.engine.state.leases.values()}


async def test_what_is_remembered_of_many_users_goes_when_it_is_older_than_30_s(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        rights = r.engine.queue.rights
        rights.remember("old", ())
        r.hands.pass_time(SECOND)
        for number in range(1000):
            rights.remember(f"u{number}", ())
        r.hands.pass_time(30 * SECOND)
        rights.remember("new", ())
        assert rights._groups.keys() == {f"u{number}" for number in range(1000)} | {"new"}


@pytest.mark.programs
@pytest.mark.parametrize(("seconds", "positions"), [(3599, {"ben": 1}), (3600, {"ben": 1}), (3601, {})])
async def test_a_wait_ends_after_the_longest_and_not_at_it(
    tmp_path: Path, seconds: int, positions: dict[str, int]
) -> None:
    async with room(tmp_path, small(0), queue=QueueLimits(max_wait=timedelta(hours=1))) as r:
        await r.run("ada", "mig-1g.5gb")
        await r.ask("ben", "mig-1g.5gb")
        r.hands.pass_time(seconds * SECOND)
        await r.engine.watcher.refresh()
        await r.engine.reconciler.reconcile()
        assert r.positions() == positions


@pytest.mark.programs
@pytest.mark.parametrize(("seconds", "positions"), [(119, {"ben": 1}), (120, {"ben": 1}), (121, {})])
async def test_a_place_without_a_start_ends_after_120_s_and_not_at_them(
    tmp_path: Path, seconds: int, positions: dict[str, int]
) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        await r.ask("ben", "mig-1g.5gb")
        r.hands.pass_time(SECOND)  # what was asked before a listing is in it
        await r.engine.reconciler.reconcile()
        del r.hub.running[("ben", "")]
        await r.engine.reconciler.reconcile()
        r.hands.pass_time(seconds * SECOND)
        await r.engine.reconciler.reconcile()
        assert r.positions() == positions


@pytest.mark.parametrize(("seconds", "kept"), [(0.9, True), (1.0, False)])
async def test_the_lease_of_a_pod_that_was_there_ends_when_it_was_gone_for_a_second(
    tmp_path: Path, seconds: float, kept: bool
) -> None:
    async with pod_room(tmp_path) as r:
        await r.run("ada")
        r.cluster.remove("jupyter-ada")
        await r.refresh()
        await r.refresh(after=seconds)
        assert r.holds("ada") is kept


@pytest.mark.parametrize(("seconds", "kept"), [(29.9, True), (30, False)])
async def test_the_lease_of_a_pod_that_nobody_saw_ends_after_30_s(tmp_path: Path, seconds: float, kept: bool) -> None:
    async with pod_room(tmp_path) as r:
        await r.ready(await r.ask("ada"))
        await r.refresh()
        await r.refresh(after=seconds)
        assert r.holds("ada") is kept


@pytest.mark.parametrize(("seconds", "held_up"), [(29, ()), (30, ()), (31, (SMALL,))])
async def test_an_offer_is_held_up_after_30_s_without_a_place_and_not_at_them(
    tmp_path: Path, seconds: float, held_up: tuple[str, ...]
) -> None:
    async with pod_room(tmp_path) as r:
        state = await r.ask("ada")
        why = "0/1 nodes are available: 1 Insufficient nvidia.com/mig-1g.5gb."
        r.cluster.put(r.pod_for(state, unscheduled="Unschedulable", unscheduled_why=why))
        await r.refresh()
        await r.refresh(after=seconds)
        assert r.pods.info().blocked_offers == held_up


@pytest.mark.parametrize(("seconds", "asked"), [(299, 0), (300, 1), (359, 1), (360, 2)])
async def test_a_forgotten_pod_is_removed_at_its_time_and_again_a_minute_after_a_refusal(
    tmp_path: Path, seconds: float, asked: int
) -> None:
    async with pod_room(tmp_path, delete_orphaned_pods=True, forgotten_after=timedelta(minutes=5)) as r:
        r.cluster.refuses = (403, "pods is forbidden")
        r.cluster.put(pod("jupyter-eve", "a", asks=SMALL, namespace=HOME, user="eve", lease="of-another-time"))
        await r.engine.reconciler.reconcile()
        await r.refresh()
        await r.refresh(after=min(seconds, 300))
        await r.refresh(after=seconds - min(seconds, 300))
        assert r.cluster.asked == asked
        assert [item.seconds for item in r.pods.info().orphaned_pods] == [seconds]


@pytest.mark.programs
@pytest.mark.parametrize(("seconds", "last"), [(9.9, signal.SIGTERM), (10.0, signal.SIGKILL)])
async def test_left_overs_are_asked_to_end_once_and_are_killed_10_s_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, last: int
) -> None:
    sent: list[int] = []
    monkeypatch.setattr(procfs, "send_signal", lambda pid, started, number: sent.append(number))
    async with room(tmp_path, small(0)) as r:
        state, server = await r.run("ada", "mig-1g.5gb")
        r.process(state)
        server.kill()
        server.wait()
        await r.engine.watcher.refresh()
        r.hands.pass_time(5 * SECOND)
        await r.engine.watcher.refresh()
        assert sent == [signal.SIGTERM], "once"
        r.hands.pass_time((seconds - 5) * SECOND)
        await r.engine.watcher.refresh()
        assert sent[-1] == last and len(sent) == (1 if last == signal.SIGTERM else 2)


@pytest.mark.programs
@pytest.mark.parametrize(("seconds", "used"), [(45, 40.0), (46, None)])
async def test_what_a_server_said_of_its_use_counts_for_45_s(tmp_path: Path, seconds: int, used: float | None) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        r.gpus.used["MIG-small-0"] = None
        await r.engine.report("ada", "", Report(opened=True, kernels=1, busy_kernels=0, used_percent=40.0))
        r.hands.pass_time(seconds * SECOND)
        await r.engine.watcher.refresh()
        (lease,) = r.engine.state.leases.values()
        assert r.engine.stop_runner.use_of(lease) == used


@pytest.mark.programs
@pytest.mark.parametrize(("seconds", "used"), [(30, 80.0), (31, None)])
async def test_what_a_device_was_used_is_known_for_30_s(tmp_path: Path, seconds: int, used: float | None) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        r.gpus.used["MIG-small-0"] = 80.0
        await r.engine.watcher.refresh()
        r.hands.pass_time(seconds * SECOND)
        (lease,) = r.engine.state.leases.values()
        assert r.engine.stop_runner.use_of(lease) == used


@pytest.mark.programs
@pytest.mark.parametrize(("hours", "lines"), [(24, 1), (25, 2)])
async def test_a_dry_run_says_once_a_day_what_it_would_have_stopped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, hours: int, lines: int
) -> None:
    caplog.set_level(logging.INFO)
    dry = settings(tmp_path).culling
    dry = type(dry)(**{**vars(dry), "enabled": False})
    async with room(tmp_path, small(0), culling=dry) as r:
        await r.run("ada", "mig-1g.5gb")
        r.hands.pass_time(timedelta(hours=2))
        await one_turn(r, None)
        r.hands.pass_time(timedelta(hours=hours))
        await one_turn(r, None)
        assert sum("would stop this server" in record.getMessage() for record in caplog.records) == lines


@pytest.mark.programs
async def test_a_lease_whose_server_is_starting_is_no_left_over(tmp_path: Path) -> None:
    """What it runs already is its own start; only `restart` clears it."""
    async with room(tmp_path, small(0)) as r:
        state = await r.ask("ada", "mig-1g.5gb")
        child = r.process(state, "import time; time.sleep(60)")
        r.hands.pass_time(60 * SECOND)
        await r.engine.watcher.refresh()
        assert child.poll() is None
        assert [lease.state for lease in r.engine.state.leases.values()] == [LeaseState.STARTING]
