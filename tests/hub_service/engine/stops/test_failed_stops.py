"""A stop that does not end is an alarm, and is tried again: refused, hanging, or done by the hub's word alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from hub_extensions.adapters.hub.jupyterhub_api import StopRefused
from hub_extensions.adapters.linux import procfs
from hub_extensions.adapters.store import JournalFilter
from hub_extensions.core.messages import Stopped
from hub_extensions.hub_service.engine.state.errors import Refused
from tests.fakes.machine import StoreThatIsFull, small
from tests.hub_service.engine.pod_room import PodRoom, pod_room
from tests.hub_service.engine.room import Room, is_stopped, room
from tests.hub_service.engine.stops.test_culler import minutes, one_turn, stops_finish
from tests.patience import soon

pytestmark = pytest.mark.programs

MINUTE = timedelta(minutes=1)
DEADLINE = 5


async def alarms(r: Room | PodRoom) -> list[tuple[str, str, int]]:
    """Who has one, why, and after how many tries."""
    await r.engine.stop_runner.decide_all()
    await r.engine.stop_runner.go_on()
    return [(each.user, each.fault, each.tries) for each in (await r.engine.culling()).failed_stops]


async def noted(r: Room | PodRoom) -> list[tuple[str | None, str]]:
    rows = await r.engine.store.journal(10, JournalFilter(kinds=("stop-failed",)))
    return [(row.user, row.evidence.partition(" ")[0]) for row in rows]


def failures(r: Room) -> int:
    """How many tries of the one stop have failed in a row."""
    (stop,) = r.engine.state.stops.values()
    return 0 if stop.pause is None else stop.pause.failures


async def pass_minutes(r: Room, count: int) -> None:
    r.hands.pass_time(count * MINUTE)
    await r.engine.reconciler.reconcile()
    await r.engine.watcher.refresh()


async def culled(r: Room) -> None:
    """Ada's server was idle, and the hub says that it stopped it; its process lives."""
    await r.run("ada", "mig-1g.5gb")
    await one_turn(r)
    await minutes(r, 3, None)
    await stops_finish(r)
    assert r.hub.stopped == [("ada", "")]
    assert await alarms(r) == []


async def test_what_the_hub_calls_stopped_and_lives_is_an_alarm_and_is_ended_by_the_service(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with room(tmp_path, small(0)) as r:
        await culled(r)
        (child,) = r.children
        await pass_minutes(r, DEADLINE - 1)
        assert await alarms(r) == [] and child.poll() is None, "a stop may take its time"
        await pass_minutes(r, 1)
        assert await alarms(r) == [("ada", "alive", 1)]
        (shown,) = (await r.engine.culling()).failed_stops
        assert f"(pid {child.pid}," in shown.text and shown.to_do and shown.next_try is not None
        assert r.engine.health().stops_failed == 1
        assert await noted(r) == [("ada", "alive")]
        assert "a stop has failed (alive)" in caplog.text

        async def released() -> bool:
            await r.engine.watcher.refresh()
            return child.poll() is not None and not r.engine.state.leases

        await soon(released)
        assert await alarms(r) == [] and r.engine.health().stops_failed == 0
        assert await noted(r) == [("ada", "alive")], "one row for each"


async def test_an_alarm_that_cannot_be_written_is_shown_and_written_once_the_store_takes_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with room(tmp_path, small(0)) as r:
        await culled(r)
        monkeypatch.setattr(procfs, "send_signal", lambda *_: None)
        await pass_minutes(r, DEADLINE)
        store, r.engine.state.store = r.engine.state.store, StoreThatIsFull()  # type: ignore[assignment]
        for _ in range(2):
            with pytest.raises(Refused):
                await r.engine.stop_runner.decide_all()
        assert [each.fault for each in r.engine.failed_stops()] == ["alive"]
        r.engine.state.store = store
        assert await noted(r) == []
        assert await alarms(r) == [("ada", "alive", 1)] and await noted(r) == [("ada", "alive")]
        assert caplog.text.count("a stop has failed") == 1


async def test_a_server_that_comes_back_while_its_alarm_is_noted_is_not_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with room(tmp_path, small(0)) as r:
        await culled(r)
        await pass_minutes(r, DEADLINE)
        ended = list[int]()
        await r.engine.stop_runner.decide_all()
        assert await noted(r) == [("ada", "alive")]
        r.hub.run("ada", pid=r.children[0].pid)
        await r.engine.reconciler.reconcile()
        with monkeypatch.context() as patch:
            patch.setattr(procfs, "send_signal", lambda pid, *_: ended.append(pid))
            await r.engine.stop_runner.go_on()
        assert [each.state for each in await r.engine.leases()] == ["running"]
        assert ended == [] and await alarms(r) == []


async def test_a_server_that_came_back_and_is_then_only_forgotten_is_no_stop(tmp_path: Path) -> None:
    async with pod_room(tmp_path) as r:
        lease = await r.run("ada")
        r.hub.running.clear()
        await r.engine.stopped(Stopped("ada", ""))
        r.hands.pass_time(MINUTE)
        r.hub.run("ada")
        await r.engine.reconciler.reconcile()
        assert [each.state for each in await r.engine.leases()] == ["running"]
        await alarms(r)
        r.hub.running.clear()
        for _ in range(4):
            await r.refresh(after=61)
            await r.engine.reconciler.reconcile()
        assert [(each.lease, each.state) for each in await r.engine.leases()] == [(lease.id, "ending")]
        await alarms(r)
        await r.refresh(after=DEADLINE * 60)
        await r.engine.reconciler.reconcile()
        assert await alarms(r) == [] and r.cluster.asked == 0


async def test_a_stop_that_hangs_in_the_hub_is_an_alarm_and_its_process_is_left_to_the_hub(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await culled(r)
        r.hub.run("ada", ready=False, pid=r.children[0].pid)
        r.hub.running["ada", ""] = replace(r.hub.running["ada", ""], pending="stop")
        await pass_minutes(r, DEADLINE)
        assert await alarms(r) == [("ada", "hangs", 0)]
        assert r.children[0].poll() is None
        r.hub.away = "no answer"
        await pass_minutes(r, 1)
        assert await alarms(r) == [("ada", "hangs", 0)], "nobody can tell"
        assert r.children[0].poll() is None
        r.hub.away = ""
        await pass_minutes(r, 1)
        assert await alarms(r) == [("ada", "hangs", 0)]
        assert await noted(r) == [("ada", "hangs")], "it is the same alarm"


async def test_an_alarm_of_what_lives_keeps_its_pause_while_the_hub_is_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with room(tmp_path, small(0)) as r:
        await culled(r)
        monkeypatch.setattr(procfs, "send_signal", lambda *_: None)
        await pass_minutes(r, DEADLINE)
        assert await alarms(r) == [("ada", "alive", 1)]
        r.hub.away = "no answer"
        await pass_minutes(r, 1)
        assert await alarms(r) == [("ada", "alive", 1)], "and nothing is ended"
        r.hub.away = ""
        await pass_minutes(r, 1)
        assert await alarms(r) == [("ada", "alive", 2)] and await noted(r) == [("ada", "alive")]
        assert "is over" not in caplog.text


@pytest.mark.parametrize("offer", ["mig-1g.5gb", "cpu"])
async def test_what_lives_is_ended_also_where_its_user_asks_for_the_same_server_again(
    tmp_path: Path, offer: str
) -> None:
    async with room(tmp_path, small(0)) as r:
        await culled(r)
        child = r.children[0]
        again = await r.ask("ada", offer)
        if offer == "cpu":
            await r.ready(again)
        await pass_minutes(r, DEADLINE)
        assert await alarms(r) == [("ada", "alive", 1)]
        await soon(lambda: child.poll() is not None)
        assert all(each.poll() is None for each in r.children[1:])


@pytest.mark.whole
async def test_a_stop_that_the_hub_refuses_until_its_deadline_is_an_alarm_until_it_goes_through(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        await one_turn(r)
        r.hub.refuses_stops = StopRefused(500, "locked")
        await minutes(r, 3, None)
        await stops_finish(r)
        assert await alarms(r) == []
        for _ in range(DEADLINE):
            await minutes(r, 1, None)
            await stops_finish(r)
        ((user, fault, tries),) = await alarms(r)
        assert (user, fault) == ("ada", "refused") and tries == len(r.hub.refused) > 2
        assert "500: locked" in (await r.engine.culling()).failed_stops[0].text
        r.gpus.used["MIG-small-0"] = 90.0
        await minutes(r, 1, None)
        assert await alarms(r) == [], "it works again, so nobody wants to stop it"
        r.gpus.used["MIG-small-0"] = 0.0
        r.hub.refuses_stops = None
        for _ in range(9):
            await minutes(r, 1, None)
            await stops_finish(r)
        assert r.hub.stopped == [("ada", "")] and await noted(r) == [("ada", "refused")]


async def test_a_stop_that_failed_before_its_user_worked_again_is_no_alarm_of_the_next_one(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        await one_turn(r)
        r.hub.refuses_stops = StopRefused(429, "too many")
        await minutes(r, 3, None)
        await stops_finish(r)
        assert failures(r) == 1
        r.gpus.used["MIG-small-0"] = 90.0
        await minutes(r, DEADLINE + 1)
        r.gpus.used["MIG-small-0"] = 0.0
        await minutes(r, 5)
        assert is_stopped(r) and len(r.hub.refused) == 1, "it is asked to save first"
        assert await alarms(r) == [] and await noted(r) == []
        await stops_finish(r)
        assert len(r.hub.refused) == 2 and failures(r) == 1


async def test_a_pod_that_the_hub_calls_stopped_is_deleted_and_again_after_longer_and_longer(tmp_path: Path) -> None:
    async with pod_room(tmp_path) as r:
        await r.run("ada")
        r.hub.running.clear()
        await r.engine.stopped(Stopped("ada", ""))
        r.cluster.refuses = (403, "may not delete pods")
        assert await alarms(r) == [] and [each.state for each in await r.engine.leases()] == ["ending"]
        await r.refresh(after=300)
        await r.engine.reconciler.reconcile()
        assert await alarms(r) == [("ada", "alive", 1)] and r.cluster.asked == 1
        assert "its pod jupyter-ada on a is still there" in (await r.engine.culling()).failed_stops[0].text
        assert await alarms(r) == [("ada", "alive", 1)], "5 s have to pass"
        await r.refresh(after=5)
        assert await alarms(r) == [("ada", "alive", 2)]
        r.cluster.refuses = None
        await r.refresh(after=10)
        await alarms(r)
        assert [name for _, name, _, _ in r.cluster.deleted] == ["jupyter-ada"]
        await r.refresh()
        await r.refresh(after=1.1)
        assert await alarms(r) == [] and (await r.engine.leases()) == ()


@pytest.mark.parametrize(
    ("whose", "ready", "deleted"), [("ada", False, True), ("ada2", True, False), ("ada2", False, False)]
)
async def test_the_pod_of_a_failed_stop_is_deleted_though_its_users_next_start_has_its_name(
    tmp_path: Path, whose: str, ready: bool, deleted: bool
) -> None:
    """The next start waits for the very GPU that the pod holds. Of somebody who was renamed the pod may be in use."""
    async with pod_room(tmp_path) as r:
        await r.run("ada")
        r.hub.running.clear()
        await r.engine.stopped(Stopped("ada", ""))
        await r.ask(whose)
        r.hub.run(whose, ready=ready)
        r.hub.running[whose, ""] = replace(r.hub.running[whose, ""], pod="jupyter-ada")
        await r.refresh()
        assert await alarms(r) == []
        await r.refresh(after=300)
        await r.engine.reconciler.reconcile()
        assert await alarms(r) == [("ada", "alive", 1)]
        assert [name for _, name, _, _ in r.cluster.deleted] == ["jupyter-ada"] * deleted


async def test_a_pod_that_the_hub_has_only_forgotten_is_no_stop_and_goes_on(tmp_path: Path) -> None:
    async with pod_room(tmp_path) as r:
        await r.run("ada")
        r.hub.running.clear()
        for _ in range(4):
            await r.refresh(after=61)
            await r.engine.reconciler.reconcile()
        assert [each.state for each in await r.engine.leases()] == ["ending"]
        await alarms(r)
        await r.refresh(after=DEADLINE * 60)
        await r.engine.reconciler.reconcile()
        assert await alarms(r) == [] and r.cluster.asked == 0


async def test_what_was_stopped_before_a_restart_of_the_service_is_still_known_to_be_a_stop(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await culled(r)
        hub, hands, (child,) = r.hub, r.hands, r.children
        r.children.clear()
    try:
        async with room(tmp_path, small(0), hub=hub, hands=hands) as r:
            await pass_minutes(r, 1)
            assert await alarms(r) == []
            await pass_minutes(r, DEADLINE)
            assert await alarms(r) == [("ada", "alive", 1)]
    finally:
        child.kill()
        child.wait()
