"""A server whose GPU was taken back comes back as CPU only, over kills of the service, and its user reads it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from hub_extensions.adapters.hub.jupyterhub_api import HubAway, HubServer, StartRefused, StopAnswer
from hub_extensions.core.messages import Ask, SignedOut, Started, Stopped
from hub_extensions.hub_service.engine.state.errors import Refused
from hub_extensions.hub_service.engine.stops import runner
from tests.fakes.machine import HubAsTold, small
from tests.hub_service.engine.room import Hands, Room, is_stopped, room, settings
from tests.hub_service.engine.stops.test_culler import OPEN, minutes, one_turn, stops_finish
from tests.patience import soon

pytestmark = pytest.mark.programs
SMALL = "mig-1g.5gb"
OPTIONS = {"offer": SMALL, "profile": "torch", "notify_when_ready": True}


class HubThatStartsNothing(HubAsTold):
    """It refuses each start, with this status."""

    def __init__(self, status: int) -> None:
        super().__init__()
        self.status, self.asked = status, 0

    async def start(self, user: str, server: str, options: Any, *, returns: bool = False) -> bool:
        assert returns, "the hub may have to refuse it"
        self.asked += 1
        raise StartRefused(self.status, "You have as many servers as you may.")


class HubThatFallsSilent(HubAsTold):
    """It stops a server where it hears of it, and its answer is lost."""

    hears = True

    async def stop(self, user: str, server: str) -> StopAnswer:
        if self.hears:
            await super().stop(user, server)
        raise HubAway("nothing within 10 s")


class HubWithAnotherStop(HubAsTold):
    """Its user's own stop comes first."""

    async def stop(self, user: str, server: str) -> StopAnswer:
        self.running[user, server] = replace(self.running[user, server], ready=False, pending="stop")
        return await super().stop(user, server)


class HubThatSaysNothing(HubAsTold):
    """While `silent`, nobody hears anything about a server; or the answer is `wrong`."""

    silent, asked = False, 0
    wrong: Exception | None = None

    async def server(self, user: str, server: str) -> HubServer | None:
        if self.wrong is not None:
            raise self.wrong
        if self.silent:
            self.asked += 1
            try:
                await asyncio.Event().wait()
            finally:
                self.asked -= 1
        return await super().server(user, server)


@asynccontextmanager
async def soft(path: Path, hub: HubAsTold | None = None, hands: Hands | None = None) -> AsyncIterator[Room]:
    """A service whose servers come back."""
    culling = replace(settings(path).culling, restart_on_cpu=True)
    async with room(path, small(0), culling=culling, hub=hub, hands=hands) as r:
        yield r


async def idle_end(r: Room) -> str:
    """Ada's server runs, is idle, and its end begins; its lease."""
    state, _ = await r.run("ada", SMALL)
    r.hub.running["ada", ""] = replace(r.hub.running["ada", ""], user_options=OPTIONS)
    await one_turn(r)
    await minutes(r, 3)
    assert state.grant is not None
    return state.grant.lease


@asynccontextmanager
async def culled(path: Path, hub: HubAsTold | None = None, hands: Hands | None = None) -> AsyncIterator[Room]:
    """Ada's server was stopped as idle, and its process lives still."""
    async with soft(path, hub, hands) as r:
        if not r.engine.state.returns:
            await idle_end(r)
            await stops_finish(r)
            assert r.hub.stopped == [("ada", "")]
        yield r


async def is_free(r: Room) -> None:
    for child in r.children:
        child.kill()
        child.wait()
    await r.engine.watcher.refresh()
    assert not r.engine.state.leases


async def starts(r: Room) -> None:
    """What the hub does with an asked start."""
    asked = r.hub.started[-1]
    state = await r.engine.ask(Ask("ada", "", ("cpu",), dict(asked[2])))
    assert state.answer == "admit"
    await r.engine.started(state.ticket, Started(state.attempt, ready=True))
    r.hub.run("ada")


def told(r: Room) -> list[str]:
    return [notice.text for notice in r.engine.form("ada", "", (), False).notices]


async def test_it_comes_back_once_its_gpu_is_free_with_its_own_options_and_its_user_reads_it(tmp_path: Path) -> None:
    async with culled(tmp_path) as r:
        await r.engine.stop_runner.go_on()
        assert r.hub.started == [], "the stop is not proved yet"
        assert r.engine.stop_runner.next_turn() == 2.0, "its user waits for it"
        await is_free(r)
        await r.engine.stop_runner.go_on()
        await r.engine.stop_runner.go_on()
        assert r.hub.started == [("ada", "", {"profile": "torch", "offer": "cpu"})]
        await starts(r)
        await r.engine.stop_runner.go_on()
        shown = r.engine.server_state("ada", "")
        assert shown is not None and shown.share == 0.0
        assert r.engine.stop_runner.next_turn() == 5.0
        assert [warning.reason for warning in shown.warnings] == ["runs-without-gpu"]
        assert told(r) == [
            "Your server was stopped. Idle for 3 min. Your files are kept.",
            "Your server runs again, without a GPU.",
        ]
        assert [row.user for row in await r.engine.store.journal() if row.kind == "returned"] == ["ada"]
        r.engine.state.facts.clear()
        await r.engine.stop_runner.go_on()
        assert not r.engine.state.returns


@pytest.mark.parametrize("cpu", [True, False])
async def test_who_gives_the_gpu_back_is_stopped_at_once_and_comes_back_only_where_that_is_asked(
    tmp_path: Path, cpu: bool
) -> None:
    """Without any limit of culling, and where servers do not come back by themselves."""
    off = replace(settings(tmp_path).culling, enabled=False, restart_on_cpu=False)
    async with room(tmp_path, small(0), culling=off) as r:
        await r.run("ada", SMALL)
        r.hub.running["ada", ""] = replace(r.hub.running["ada", ""], user_options=OPTIONS)
        shown = await r.engine.give_back("ada", "", cpu)
        assert shown.countdown is not None and shown.countdown.cause == "given-back"
        await one_turn(r, replace(OPEN, saved=True))
        await stops_finish(r)
        assert r.hub.stopped == [("ada", "")]
        with pytest.raises(Refused, match="not known to run"):
            await r.engine.give_back("ada", "", cpu)
        await is_free(r)
        await r.engine.stop_runner.go_on()
        assert [options for _, _, options in r.hub.started] == [{"profile": "torch", "offer": "cpu"}] * cpu
        [record] = (await r.engine.usage(None, None)).uses
        assert record.end == "user"
        if cpu:
            await starts(r)
            await r.engine.stop_runner.go_on()
        why = "You gave its GPU back. It starts again without one." if cpu else "You gave its GPU back."
        back = ["Your server runs again, without a GPU."] * cpu
        assert told(r) == [f"Your server was stopped. {why} Your files are kept.", *back], "nobody lost a GPU"
        assert [row.user for row in await r.engine.store.journal() if row.kind == "given-back"] == ["ada"]


async def test_a_kill_at_any_moment_starts_it_all_the_same_and_only_once(tmp_path: Path) -> None:
    async with culled(tmp_path) as r:
        hub, hands, child = r.hub, r.hands, r.children.pop()
    child.kill()
    child.wait()
    async with culled(tmp_path, hub, hands) as r:  # killed between the stop and the start
        await r.engine.watcher.refresh()
        await r.engine.stop_runner.go_on()
        assert len(hub.started) == 1
    async with culled(tmp_path, hub, hands) as r:  # killed after it had asked
        hands.pass_time(timedelta(minutes=1))
        await r.engine.stop_runner.go_on()
        assert len(hub.started) == 1
        await starts(r)
        await r.engine.stop_runner.go_on()
    async with culled(tmp_path, hub, hands) as r:
        await r.engine.stop_runner.go_on()
        shown = r.engine.server_state("ada", "")
        assert shown is not None and [warning.reason for warning in shown.warnings] == ["runs-without-gpu"]
        assert len(hub.started) == 1


@pytest.mark.parametrize(("status", "asked", "why"), [(403, 1, "as many servers as you may"), (429, 2, "no room")])
async def test_where_there_is_no_room_for_it_its_user_reads_that(
    tmp_path: Path, status: int, asked: int, why: str
) -> None:
    hub = HubThatStartsNothing(status)
    async with culled(tmp_path, hub) as r:
        await is_free(r)
        for _ in range(5):
            await r.engine.stop_runner.go_on()
            r.hands.pass_time(timedelta(seconds=30))
        assert hub.asked == asked and not r.engine.state.returns
        assert any("could not come back without a GPU" in text and why in text for text in told(r))


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_hub_that_fails_is_asked_again_when_a_server_is_to_come_back(tmp_path: Path, status: int) -> None:
    hub = HubThatStartsNothing(status)
    async with culled(tmp_path, hub) as r:
        await is_free(r)
        await r.engine.stop_runner.go_on()
        assert hub.asked == 1 and [back.user for back in r.engine.state.returns.values()] == ["ada"]


async def test_who_starts_a_server_meanwhile_has_that_one(tmp_path: Path) -> None:
    async with culled(tmp_path) as r:
        await is_free(r)
        await r.run("ada", SMALL)
        await r.engine.stop_runner.go_on()
        r.hands.pass_time(timedelta(minutes=1))
        await r.engine.stop_runner.go_on()
        assert r.hub.started == [] and not r.engine.state.returns


async def test_while_the_hub_still_stops_it_its_start_waits(tmp_path: Path) -> None:
    """The GPU is free before the hub's own stop has ended."""
    async with culled(tmp_path) as r:
        r.hub.run("ada")
        r.hub.running["ada", ""] = replace(r.hub.running["ada", ""], ready=False, pending="stop")
        await is_free(r)
        await r.engine.stop_runner.go_on()
        assert r.hub.started == [] and r.engine.state.returns
        del r.hub.running["ada", ""]
        await r.engine.stop_runner.go_on()
        assert len(r.hub.started) == 1


@pytest.mark.parametrize("reported", [True, False])
async def test_a_stop_whose_answer_was_lost_brings_it_back_all_the_same(tmp_path: Path, reported: bool) -> None:
    async with soft(tmp_path, HubThatFallsSilent()) as r:
        await idle_end(r)
        await stops_finish(r)
        await r.engine.stop_runner.go_on()
        assert r.hub.started == [], "its stop is not proved"
        if reported:
            await r.engine.stopped(Stopped("ada", "", asked=True))
        else:
            await minutes(r, 2)
            await stops_finish(r)
        assert [row.user for row in await r.engine.store.journal() if row.kind == "culled"] == ["ada"]
        assert any("was stopped" in text for text in told(r))
        await is_free(r)
        await r.engine.stop_runner.go_on()
        assert len(r.hub.started) == 1


@pytest.mark.whole
async def test_a_kill_right_after_the_hub_was_asked_for_the_stop_loses_neither_return_nor_row(tmp_path: Path) -> None:
    hub, hands = HubThatFallsSilent(), Hands()
    async with soft(tmp_path, hub, hands) as r:
        await idle_end(r)
        r.engine.stop_runner._put_off = never  # type: ignore[method-assign]
        await stops_finish(r)
        child = r.children.pop()
    try:
        async with soft(tmp_path, hub, hands) as r:
            await minutes(r, 1, None)
            await stops_finish(r)
            assert [row.user for row in await r.engine.store.journal() if row.kind == "culled"] == ["ada"]
            child.kill()
            child.wait()
            await is_free(r)
            await r.engine.stop_runner.go_on()
            assert len(hub.started) == 1
    finally:
        child.kill()
        child.wait()


async def never(*_: Any, **__: Any) -> None:
    """As of a service that was killed before."""


async def test_a_stop_that_the_hub_never_heard_of_leaves_no_return(tmp_path: Path) -> None:
    hub = HubThatFallsSilent()
    hub.hears = False
    async with soft(tmp_path, hub) as r:
        await idle_end(r)
        await stops_finish(r)
        assert r.engine.state.returns
        await r.engine.stop_runner.go_on()
        assert not r.engine.state.returns, "it runs on, so whoever stops it now is its user"


async def test_what_its_user_stops_in_that_moment_does_not_come_back(tmp_path: Path) -> None:
    async with soft(tmp_path, HubWithAnotherStop()) as r:
        await idle_end(r)
        await stops_finish(r)
        assert not r.engine.state.returns and r.hub.stopped == []
        assert [row for row in await r.engine.store.journal() if row.kind == "culled"] == [] == told(r)


@pytest.mark.parametrize("when", ["before", "while it saves", "stopped"])
async def test_who_is_signed_out_starts_nothing(tmp_path: Path, when: str) -> None:
    """Also where its GPU was idle, and that end comes first."""
    async with soft(tmp_path) as r:
        order = SignedOut("ada", "", "", 1800.0, "logout")
        if when == "before":
            state, _ = await r.run("ada", SMALL)
            assert state.grant is not None
            await r.engine.signed_out(replace(order, lease=state.grant.lease))
            await one_turn(r)
            await minutes(r, 3)
        else:
            lease = await idle_end(r)
        if when == "while it saves":
            await r.engine.signed_out(replace(order, lease=lease))
        await stops_finish(r)
        assert r.hub.stopped == [("ada", "")]
        if when == "stopped":
            assert r.engine.state.returns
            await r.engine.signed_out(replace(order, lease=lease))
            assert any("could not come back" in text and "signed out" in text for text in told(r))
        assert not r.engine.state.returns


async def test_who_is_no_user_of_the_hub_any_more_starts_nothing(tmp_path: Path) -> None:
    async with culled(tmp_path) as r:
        await is_free(r)
        r.hub.deleted.add("ada")
        await r.engine.stop_runner.go_on()
        assert r.hub.started == [] and not r.engine.state.returns
        assert any("could not come back" in text for text in told(r))


async def test_a_return_that_waits_for_the_hub_delays_no_other_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "EVERY", 0.01)
    hub = HubThatSaysNothing()
    async with room(tmp_path, small(0), small(1), hub=hub) as r:
        await r.run("ada", SMALL)
        ben, _ = await r.run("ben", SMALL)
        await r.engine.give_back("ada", "", True)
        await one_turn(r)
        await stops_finish(r)
        assert r.engine.state.returns and ben.grant is not None
        hub.silent = True
        turns = asyncio.ensure_future(r.engine.stop_runner.run())
        await soon(lambda: hub.asked)
        await r.engine.admin_orders.stop(ben.grant.lease, 0, "the course begins", "root")
        await soon(lambda: is_stopped(r, "ben"))
        turns.cancel()
        await soon(lambda: turns.done() and not hub.asked)


async def test_an_error_that_nobody_expected_ends_the_turns_so_that_the_service_reports_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "EVERY", 0.01)
    hub = HubThatSaysNothing()
    async with culled(tmp_path, hub) as r:
        hub.wrong = RuntimeError("no such thing")
        with pytest.raises(RuntimeError, match="no such thing"):
            await asyncio.wait_for(r.engine.stop_runner.run(), 5)
