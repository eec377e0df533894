"""Which stops the hub leaves to the GPU service, and when it stops a server itself all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from hub_extensions.adapters.store.sign_on import PendingStop
from hub_extensions.core.messages import DrainState
from hub_extensions.core.sign_on import SignOnConfig
from tests.patience import patient

pytestmark = pytest.mark.programs  # JupyterHub starts one while it is imported

NOON = datetime(2026, 11, 24, 12, tzinfo=timezone.utc)
TEN = PendingStop(1, "", NOON, NOON + timedelta(minutes=10), "disabled")
AWAY, NOT_OURS, BROKEN = "away", "not ours", "locked"


class Servers:
    """The person's one server. `answers`: until which minute the service gives it, each time; the last one goes on."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[float, str]] = []
        self.stopped: list[str] = []
        self.reported: list[str] = []
        self.now = NOON

    async def hand_over(self, spawner: Any, left: timedelta, cause: str) -> DrainState:
        from hub_extensions.adapters.service.gpu_service import ServiceAway

        self.asked.append((left / timedelta(minutes=1), cause))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer == AWAY:
            raise ServiceAway("silent", NOON)
        if answer == BROKEN:
            raise OSError("database is locked")
        if not isinstance(answer, float):
            return DrainState(None)
        return DrainState((NOON + timedelta(minutes=answer) - self.now).total_seconds())

    def stop_report(self, spawner: Any) -> Callable[[], Awaitable[None]] | None:
        if NOT_OURS in self.answers:
            return None

        async def report() -> None:
            from hub_extensions.adapters.service.gpu_service import ServiceAway

            if self.answers[0] == AWAY:
                raise ServiceAway("silent", NOON)
            self.reported.append(spawner.name)

        return report

    async def stop(self, user: Any, name: str) -> None:
        self.stopped.append(name)
        user.spawners[name].active = False


@pytest.mark.parametrize(
    ("minutes", "answers", "stopped"),
    [
        # minute by minute: when the hub stops it itself; None: the service has it in its hands
        ([0, 9.9, 10], [NOT_OURS], [False, False, True]),
        ([0, 9.9, 10], [AWAY], [False, False, True]),
        ([0, 9.9, 10], [BROKEN], [False, False, True]),
        ([0, 10, 10.9, 11], [10.0], [False, False, False, True]),
        ([0, 10, 11], [10.0, AWAY], [False, False, True]),
        ([0, 10, 12, 13], [10.0, 12.0], [False, False, False, True]),  # an outage moved it
        ([0, 9.9, 10], [10.0, NOT_OURS], [False, False, True]),  # the lease is not there any more
    ],
)
async def test_the_hub_stops_what_the_service_does_not(
    monkeypatch: pytest.MonkeyPatch, minutes: list[float], answers: list[object], stopped: list[bool]
) -> None:
    import hub_extensions.authenticator.session_ender as ending

    turns: list[asyncio.Future[None]] = []

    async def sleep(seconds: float) -> None:
        turns.append(asyncio.get_running_loop().create_future())
        await turns[-1]

    servers, written = Servers(*answers), list[PendingStop]()
    ender = an_ender(ending, servers, written, lambda: servers.now)
    real_sleep = asyncio.sleep
    monkeypatch.setattr(ending.asyncio, "sleep", sleep)
    task = asyncio.ensure_future(ender._stop(TEN))

    async def settled() -> None:
        while not task.done() and not (turns and not turns[-1].done()):
            await real_sleep(0)

    found = []
    for minute in minutes:
        servers.now = NOON + timedelta(minutes=minute)
        if turns and not turns[-1].done():
            turns[-1].set_result(None)
            await real_sleep(0)
        await asyncio.wait_for(settled(), patient(10))
        found.append(bool(servers.stopped))
    assert found == stopped
    servers.answers = [10.0]
    if not turns[-1].done():
        turns[-1].set_result(None)  # the service answers again, and hears of the stop
    await asyncio.wait_for(task, patient(10))
    assert servers.asked[0] == (10.0, "disabled")
    assert [each.at for each in written] == ([NOON + timedelta(minutes=12)] if 12.0 in answers else [])


@pytest.mark.parametrize(
    ("minutes", "answers", "stopped", "reported"),
    [
        ([0, 0.2, 0.49, 0.5, 0.6], [AWAY], [False, False, False, True, True], []),  # silent for 30 s
        ([0, 0.2, 0.3, 0.4], [AWAY, AWAY, AWAY, NOT_OURS], [False, False, False, True], []),  # it knows no such lease
        ([0, 0.2, 0.4, 0.6, 1.0], [AWAY, AWAY, 0.4, 0.4, 0.4], [False] * 5, []),  # it took the stop over in time
        ([0, 0.5, 0.7], [AWAY, AWAY, 9.0], [False, True, True], [""]),  # back later: the stop is reported
    ],
)
async def test_a_stop_that_is_due_waits_thirty_seconds_for_a_service_that_is_away(
    monkeypatch: pytest.MonkeyPatch,
    minutes: list[float],
    answers: list[object],
    stopped: list[bool],
    reported: list[str],
) -> None:
    import hub_extensions.authenticator.session_ender as ending

    turns: list[asyncio.Future[None]] = []

    async def sleep(seconds: float) -> None:
        turns.append(asyncio.get_running_loop().create_future())
        await turns[-1]

    servers = Servers(*answers)
    ender = an_ender(ending, servers, [], lambda: servers.now)
    real_sleep = asyncio.sleep
    monkeypatch.setattr(ending.asyncio, "sleep", sleep)
    task = asyncio.ensure_future(ender._stop(replace(TEN, at=NOON, cause="sign-out")))

    async def settled() -> None:
        while not task.done() and not (turns and not turns[-1].done()):
            await real_sleep(0)

    found = []
    for minute in minutes:
        servers.now = NOON + timedelta(minutes=minute)
        if turns and not turns[-1].done():
            turns[-1].set_result(None)
            await real_sleep(0)
        await asyncio.wait_for(settled(), patient(10))
        found.append(bool(servers.stopped))
    task.cancel()
    assert (found, servers.reported) == (stopped, reported)
    assert len(servers.stopped) <= 1, "never twice"


async def test_what_the_service_has_stopped_is_over_for_the_hub() -> None:
    import hub_extensions.authenticator.session_ender as ending

    servers, gone = Servers(10.0), list[PendingStop]()
    ender = an_ender(ending, servers, gone, lambda: NOON)
    await asyncio.wait_for(ender._stop(replace(TEN, server="another")), patient(10))
    assert not servers.stopped and not servers.asked


def an_ender(ending: Any, servers: Servers, written: list[PendingStop], now: Any) -> Any:
    orm_spawner = SimpleNamespace(started=NOON.replace(tzinfo=None), server=object())
    user = SimpleNamespace(id=1, name="ada", orm_spawners={"": orm_spawner})
    user.spawners = {"": SimpleNamespace(user=user, name="", active=True, pending=None, orm_spawner=orm_spawner)}
    query = SimpleNamespace(filter_by=lambda id: SimpleNamespace(first=lambda: "ada"))
    db = SimpleNamespace(query=lambda _: query, rollback=lambda: None)
    log = SimpleNamespace(exception=lambda *_: None, info=lambda *_: None)
    store = SimpleNamespace(
        transaction=nullcontext, order_stops=written.extend, remove_stop=lambda _: None, stops=iter_of(written)
    )
    app = SimpleNamespace(db=db, log=log, users={"ada": user})
    ender = ending.SessionEnder(app, SimpleNamespace(store=store), SignOnConfig(), now, lambda _: None)
    ender._servers = servers
    return ender


def iter_of(written: list[PendingStop]) -> Any:
    def stops() -> Iterator[PendingStop]:
        return iter([TEN, *written])

    return stops
