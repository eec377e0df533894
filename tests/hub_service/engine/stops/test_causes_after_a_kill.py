"""The causes of an end are read back as they were, whenever the service was killed."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hub_extensions.core.messages import SignedOut
from hub_extensions.core.stops import Cause, StopKey, StopRecord, StopState, Withdrawal
from hub_extensions.hub_service.engine.state.state import State
from tests.fakes.empty_store import open_store
from tests.fakes.machine import small
from tests.hub_service.engine.room import Room, is_stopped, room, settings
from tests.hub_service.engine.stops.test_culler import MINUTE, minutes, one_turn, stops_finish

pytestmark = pytest.mark.programs

Step = Callable[[Room, str], Awaitable[None]]
SMALL = "mig-1g.5gb"


async def read_after_a_kill(r: Room, copy: Path) -> dict[StopKey, StopRecord]:
    """What another service reads from the files of this one, which it has not closed."""
    shutil.copytree(r.path, copy)
    made = settings(copy)
    store = open_store(made.store_url)
    try:
        return (await State.open(store, made.queue, made.culling, made.offers)).stops
    finally:
        store.close()


async def is_announced(r: Room, lease: str) -> None:
    await minutes(r, 2)


async def is_ordered(r: Room, lease: str) -> None:
    await minutes(r, 1)
    await r.engine.admin_orders.stop(lease, 15, "the course begins", "root")


async def is_ordered_twice(r: Room, lease: str) -> None:
    await is_ordered(r, lease)
    await r.engine.signed_out(SignedOut("ada", "", lease, 600.0, "disabled"))
    await minutes(r, 1)


async def is_undone(r: Room, lease: str) -> None:
    await is_ordered_twice(r, lease)
    await r.engine.admin_orders.undo_stop(lease, "root")


async def is_kept(r: Room, lease: str) -> None:
    await minutes(r, 2)
    await r.engine.keep("ada", "")


async def is_kept_beside_an_order(r: Room, lease: str) -> None:
    await r.engine.admin_orders.stop(lease, 15, "the course begins", "root")
    await is_kept(r, lease)


async def drains(r: Room, lease: str) -> None:
    await is_ordered(r, lease)
    await minutes(r, 2)
    assert is_stopped(r)


async def drains_for_an_order(r: Room, lease: str) -> None:
    await r.engine.admin_orders.stop(lease, 0, "the course begins", "root")
    await one_turn(r)
    await r.engine.state_for_server("ada", "")


ANNOUNCED, DRAINING = StopState.ANNOUNCED, StopState.DRAINING
IDLE, LIFETIME, ADMIN = (Cause.IDLE, Withdrawal.KEEP), (Cause.LIFETIME, None), (Cause.ADMIN, Withdrawal.UNDO)
SIGN_OUT = (Cause.SIGNED_OUT, None)


@pytest.mark.whole
@pytest.mark.parametrize(
    ("step", "state", "causes"),
    [
        (is_announced, ANNOUNCED, [IDLE, LIFETIME]),
        (is_ordered, ANNOUNCED, [ADMIN]),
        (is_ordered_twice, ANNOUNCED, [IDLE, SIGN_OUT, ADMIN, LIFETIME]),
        (is_undone, ANNOUNCED, [IDLE, SIGN_OUT, LIFETIME]),
        (is_kept, None, []),
        (is_kept_beside_an_order, ANNOUNCED, [IDLE, ADMIN, LIFETIME]),
        (drains, DRAINING, [IDLE, ADMIN, LIFETIME]),
        (drains_for_an_order, DRAINING, [ADMIN, IDLE, LIFETIME]),
    ],
)
async def test_a_service_that_is_killed_reads_the_causes_back_as_they_were(
    tmp_path: Path, step: Step, state: StopState | None, causes: list[tuple[Cause, Withdrawal | None]]
) -> None:
    async with room(tmp_path, small(0)) as r:
        asked, _ = await r.run("ada", SMALL)
        assert asked.grant is not None
        await one_turn(r)
        await step(r, asked.grant.lease)
        known = r.engine.state.stops
        assert [each.state for each in known.values()] == [state] * (state is not None)
        assert [(each.cause, each.withdrawn_by) for stop in known.values() for each in stop.causes] == causes
        assert await read_after_a_kill(r, tmp_path.with_name(f"{tmp_path.name}-after")) == known


async def test_an_announced_end_does_not_jump_while_its_cause_is_found_again(tmp_path: Path) -> None:
    policy = replace(settings(tmp_path).culling, idle=10 * MINUTE, warn=5 * MINUTE)
    async with room(tmp_path, small(0), culling=policy) as r:
        await r.run("ada", SMALL)
        await one_turn(r)
        await minutes(r, 6)
        (first,) = r.engine.state.stops.values()
        await minutes(r, 3)
        assert list(r.engine.state.stops.values()) == [first], "nothing is written anew each turn"
        assert first.causes[0].warned == r.engine.state.facts["ada", ""].warned
        await minutes(r, 1)
        await stops_finish(r)
        assert r.hub.stopped == [("ada", "")]


async def test_an_announced_end_goes_with_its_causes_and_with_its_server(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        _, child = await r.run("ada", SMALL)
        await one_turn(r)
        await minutes(r, 2)
        assert r.engine.state.stops
        r.gpus.used["MIG-small-0"] = 80.0
        await minutes(r, 1)
        assert not r.engine.state.stops, "its GPU works"
        r.gpus.used["MIG-small-0"] = 0.0
        await minutes(r, 3)
        assert r.engine.state.stops
        child.kill()
        child.wait()
        await r.engine.watcher.refresh()
        await one_turn(r, None)
        assert not r.engine.state.facts and not r.engine.state.stops
