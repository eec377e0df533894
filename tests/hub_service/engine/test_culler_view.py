"""What the culler knows of each server, and what each is shown of itself."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from hub_extensions.core.culling import CullDecision
from hub_extensions.core.culling.decision import Action
from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.gpu.samples import DeviceSample
from hub_extensions.core.messages import Report, ServerState
from hub_extensions.core.queue.model import LeaseState
from hub_extensions.core.stops import Cause, DueStop, StopPause
from hub_extensions.core.stops.lifecycle import put_off
from hub_extensions.core.text.reasons import as_text, explain
from hub_extensions.hub_service.engine.stops.server_evidence import REPORTS_LAST
from tests.hub_service.engine.room import Room, begin_stop
from tests.hub_service.engine.test_followed_uses import LARGE, SMALL, four, lease

pytestmark = pytest.mark.slow

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
GIB = 2**30


def stop(at: datetime | None) -> CullDecision:
    return CullDecision(Action.STOP, at, Cause.IDLE, explain("left"), False, None)


def shown(r: Room, user: str, trespassed: bool = False) -> ServerState:
    found = r.engine.servers.server_state(user, "", trespassed)
    assert found is not None
    return found


async def test_a_server_is_shown_what_it_has(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        await r.ask("eve", "cpu")
        await r.ask("fay", SMALL)
        found = {user: shown(r, user) for user in ("ada", "ben", "cid", "dan", "eve", "fay")}
        assert {user: (s.offer, s.share, s.uuid, s.lease_state) for user, s in found.items()} == {
            "ada": (SMALL, 1.0, "MIG-small-0", "running"),
            "ben": ("cpu", 0.0, None, "none"),
            "cid": (LARGE, 1.0, "MIG-large-0", "starting"),
            "dan": ("cpu", 0.0, None, "none"),
            "eve": ("cpu", 0.0, None, "none"),
            "fay": ("cpu", 0.0, None, "none"),
        }
        assert [found[user].title for user in ("ada", "ben")] == ["MIG 1g.5gb", "CPU only"]
        assert (found["ada"].memory_bytes, found["ben"].memory_bytes) == (GIB * 19 // 4, None)
        assert r.engine.servers.server_state("nobody", "", False) is None
        assert r.engine.servers.server_state("ada", "other", False) is None
        assert [(sign.kind, sign.value, sign.source, sign.decides) for sign in found["ada"].signs] == [
            ("gpu", "idle", "nvml", True)
        ]
        assert [(sign.kind, sign.value) for sign in found["ben"].signs] == [("activity", "busy")], "it has just started"
        assert [offer.id for offer in found["ada"].waits] == [LARGE, "cpu"]
        assert [offer.id for offer in found["ben"].waits] == [SMALL, LARGE]
        keep = found["ada"].keep
        assert keep is not None and (keep.minutes, keep.left, keep.of) == (3.0, 2, 2)
        assert found["eve"].keep is None, "it does not run yet"
        assert found["ada"].ends_at == r.hands.wall + 29 * MINUTE and found["cid"].ends_at is None
        assert not any((s.save, s.simulated, s.warnings, s.figures) != (False, False, (), None) for s in found.values())
        r.engine.state.offers = tuple(o for o in r.engine.state.offers if o.id != SMALL)
        assert (shown(r, "ada").title, shown(r, "ada").memory_enforced) == (SMALL, True)


async def test_a_server_is_shown_no_offer_that_its_user_may_not_have(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        state = r.engine.state
        state.offers = tuple(replace(o, groups=("ml",)) if o.id == LARGE else o for o in state.offers)
        state.revision += 1
        state.hub_view = replace(state.hub_view, people={})
        assert [offer.id for offer in shown(r, "ada").waits] == ["cpu"]
        for groups, admin in ((("ml",), False), ((), True)):
            state.hub_view = replace(state.hub_view, people={"ada": (groups, admin)})
            assert [offer.id for offer in shown(r, "ada").waits] == [LARGE, "cpu"]


async def test_a_server_is_warned_of_a_lost_device_and_of_a_stranger_on_it(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        state, held = r.engine.state, lease(r.engine.state, "ada")
        assert shown(r, "ada", True).warnings == (explain("other-program"),)
        state.leases[held.id] = replace(held, state=LeaseState.LOST)
        assert shown(r, "ada").warnings == (explain("gpu-lost"),)
        assert shown(r, "ada", True).warnings == (explain("gpu-lost"), explain("other-program"))
        assert shown(r, "ben").warnings == ()
        begin_stop(r, "ada")
        assert shown(r, "ada").save and not shown(r, "ben").save


async def test_without_enforced_limits_there_is_nothing_to_keep_a_server_from(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        r.engine.state.policies.base = replace(r.engine.state.policy, enabled=False)
        both = (shown(r, "ada"), shown(r, "ben"))
        assert {(s.keep, s.rule, s.ends_at, s.signs) for s in both} == {(None, None, None, ())}
        r.engine.state.policies.base = replace(r.engine.state.policy, enabled=True, cpu_idle=None)
        assert shown(r, "ben").rule is None


# ------------------------------------------------------------------ whose turn it is to be stopped


async def test_a_stop_that_is_due_says_what_it_frees_and_who_waits_for_that(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        await r.ask("eve", SMALL)
        await r.ask("fay", LARGE)
        await r.ask("gus", LARGE)
        state, runner, now = r.engine.state, r.engine.stop_runner, r.engine.state.clock.now()
        decision = stop(now - MINUTE)
        assert runner._due(state.facts["ada", ""], decision, now) == DueStop(("ada", ""), now - MINUTE, WHOLE, 1)
        assert runner._due(state.facts["ben", ""], decision, now) == DueStop(("ben", ""), now - MINUTE, 0, 0)
        never = replace(decision, stops_at=None)
        gone = replace(state.facts["ada", ""], lease="gone")
        assert runner._due(gone, never, now) == DueStop(("ada", ""), now, 0, 0)
        state.offers = ()
        state.revision += 1
        assert runner._due(state.facts["ada", ""], decision, now).waiting == 0


@pytest.mark.parametrize(
    ("changes", "begins"),
    [
        ({}, {"ada", "ben"}),
        ({"saving": ("ada",)}, {"ben"}),
        ({"stopping": ("ben",)}, {"ben"}),
        ({"stopping": ()}, set()),
        ({"back": 1 * SECOND}, set()),
        ({"back": REPORTS_LAST}, {"ada", "ben"}),
        ({"at_once": 1}, {"ada"}),
        ({"at_once": 1, "saving": ("dan",)}, set()),
        ({"begun": 119.9 * SECOND}, {"ada"}),
        ({"begun": 2 * MINUTE}, {"ada", "ben"}),
        ({"pause": SECOND}, {"ben"}),
    ],
)
async def test_stops_begin_that_are_due_and_not_under_way(
    tmp_path: Path, changes: dict[str, object], begins: set[str]
) -> None:
    async with four(tmp_path) as r:
        state, runner, now = r.engine.state, r.engine.stop_runner, r.engine.state.clock.now()
        stopping = changes.get("stopping", ("ada", "ben"))
        for user in changes.get("saving", ()):  # type: ignore[attr-defined]
            lease_of = state.facts[user, ""].lease if (user, "") in state.facts else None
            runner._tries[user, "", lease_of or ""] = asyncio.ensure_future(asyncio.sleep(0))
        state.policies.base = replace(state.policy, stops_per_minute=1, concurrent_stop_limit=changes.get("at_once", 9))  # type: ignore[arg-type]
        back = now - changes["back"] if "back" in changes else None  # type: ignore[operator]
        state.hub_view = replace(state.hub_view, back=back)
        if "begun" in changes:
            runner._begun.append(now - changes["begun"])  # type: ignore[operator]
        if "pause" in changes:
            begin_stop(r, "ada")
            pause = StopPause(1, now + changes["pause"])  # type: ignore[operator]
            state.stops = {key: put_off(each, pause) for key, each in state.stops.items()}
        due, kept = stop(now), replace(stop(now), action=Action.WARN)
        judged = [(each, each, due if user in stopping else kept) for (user, _), each in state.facts.items()]  # type: ignore[operator]
        assert {user for user, _ in runner._stops_to_begin(judged, now)} == begins
        for before in state.stops.values():
            after = runner._announced(state.facts[before.user, ""], due, now)
            assert after is not None and after.pause == before.pause, "its pause lasts while it is due"
        kept = 1 if changes.get("begun", 2 * MINUTE) != 2 * MINUTE else 0
        assert len(runner._begun) == kept + len(begins)


# ------------------------------------------------------------------ evidence


async def test_what_a_stop_was_decided_on_is_written_down(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        state, runner = r.engine.state, r.engine.stop_runner
        facts, now = state.facts["ada", ""], state.clock.now()
        idle = replace(facts, idle_since=now - MINUTE, warned=now, opened=None)
        assert as_text(runner.grounds(idle, lease(state, "ada")), ", ") == (
            "use 0 % by nvml, idle since 2026-01-05T12:00:00Z, warned 2026-01-05T12:01:00Z"
        )
        state.samples = {}
        state.hub_view = replace(state.hub_view, activity={("ada", ""): now, ("ben", ""): now})
        opened = replace(facts, idle_since=None, warned=None, opened=now)
        assert as_text(runner.grounds(opened, lease(state, "ada")), ", ") == (
            "use not known, first opened 2026-01-05T12:01:00Z"
        )
        quiet = replace(state.facts["ben", ""], opened=None)
        assert as_text(runner.grounds(quiet, None), ", ") == "last activity 2026-01-05T12:01:00Z"


@pytest.mark.parametrize(
    ("percent", "memory", "shared", "expected"),
    [
        (40.0, GIB, False, (40.0, GIB)),
        (4.9, GIB, True, (4.9, None)),
        (5.0, GIB, True, (None, None)),
        (None, GIB, False, (None, GIB)),
    ],
)
async def test_of_a_card_that_several_have_only_its_idleness_is_anybodys(
    tmp_path: Path, percent: float | None, memory: int, shared: bool, expected: tuple[float | None, int | None]
) -> None:
    async with four(tmp_path) as r:
        state, held = r.engine.state, replace(lease(r.engine.state, "ada"), share=500)
        state.leases[held.id] = held
        if shared:
            state.leases["other"] = replace(held, id="other", user="eve")
        sample = DeviceSample(held.uuid, r.hands.wall, percent, memory, (), "nvml" if percent is not None else "none")
        state.samples = {held.uuid: sample}
        figure = r.engine.stop_runner.figure_of(held)
        assert (figure.used_percent, figure.memory_bytes) == expected
        whole = replace(held, share=WHOLE)
        assert r.engine.stop_runner.figure_of(whole).memory_bytes == memory
        state.samples = {}
        assert r.engine.stop_runner.figure_of(held).memory_bytes is None


async def test_what_a_server_says_of_its_use_is_taken_where_nobody_else_knows_it(tmp_path: Path) -> None:
    async with four(tmp_path) as r:
        state, held = r.engine.state, lease(r.engine.state, "ada")
        report = Report(opened=True, kernels=1, busy_kernels=0, used_percent=70.0)
        await r.engine.report("ada", "", report)
        assert r.engine.stop_runner.measured(held) == (0.0, "nvml")
        for samples in ({}, {held.uuid: replace(state.samples[held.uuid], used_percent=None, source="none")}):
            state.samples = samples
            assert r.engine.stop_runner.measured(held) == (70.0, "report")
        await r.engine.report("ada", "", replace(report, used_percent=None))
        assert r.engine.stop_runner.measured(held) == (None, "none")


@pytest.mark.parametrize(
    ("percent", "busy", "used_before", "used"),
    [
        (4.9, 0, False, False),
        (5.0, 0, False, True),
        (4.9, 1, False, True),
        (4.9, 0, True, True),
        (None, None, False, False),
    ],
)
async def test_a_gpu_was_used_if_it_is_now_or_was_or_a_cell_runs(
    tmp_path: Path, percent: float | None, busy: int | None, used_before: bool, used: bool
) -> None:
    async with four(tmp_path) as r:
        state, held = r.engine.state, lease(r.engine.state, "ada")
        r.gpus.used[held.uuid] = percent
        await r.engine.watcher.refresh()
        if busy is not None:
            await r.engine.report("ada", "", Report(opened=True, kernels=1, busy_kernels=busy))
        if used_before:
            state.uses[held.id] = replace(state.uses[held.id], first_used=r.hands.wall)
        facts = state.facts["ada", ""]
        assert r.engine.stop_runner.evidence(facts).used is used
        del state.uses[held.id]
        assert r.engine.stop_runner.evidence(facts).used is (used and not used_before)


async def test_a_dry_run_says_once_a_day_what_it_would_do_to_each(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with four(tmp_path) as r:
        caplog.set_level(logging.INFO)
        runner, now = r.engine.stop_runner, r.engine.state.clock.now()
        facts, would = r.engine.state.facts["ada", ""], stop(None)

        def logged(user: str, later: timedelta, decision: CullDecision) -> int:
            caplog.clear()
            runner._dry_run(replace(facts, user=user), decision, now + later)
            return len(caplog.records)

        off = replace(would, action=Action.KEEP, would=would)
        assert logged("ada", timedelta(0), stop(None)) == 0
        assert logged("ada", timedelta(0), replace(off, would=replace(would, action=Action.WARN))) == 0
        assert [logged("ada", timedelta(0), off), logged("ben", timedelta(0), off)] == [1, 1]
        assert [logged("ada", timedelta(days=1), off), logged("ada", timedelta(days=1) + SECOND, off)] == [0, 1]
