"""Rules of culling in the service: read, read again, beside what was promised; and whose word counts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hub_extensions.adapters.files.policy_file import PolicyFileError
from hub_extensions.core.culling import CullPolicy
from hub_extensions.core.messages import Countdown, ServerState
from hub_extensions.hub_service.engine.state.errors import Refused
from hub_extensions.hub_service.http.metrics import registry
from hub_extensions.tools.doctor.service import policy_file
from tests.fakes.machine import small
from tests.hub_service.engine.room import Room, room, settings
from tests.hub_service.engine.stops.test_culler import MINUTE, OPEN, minutes, one_turn, stops_finish

pytestmark = pytest.mark.programs


def culled_by(folder: Path, *rules: str, **changes: Any) -> CullPolicy:
    """Culling with a policy file of these rules."""
    written(folder, *rules)
    return replace(settings(folder).culling, policy_file=str(folder / "policy.yaml"), **changes)


def written(folder: Path, *rules: str) -> None:
    """The file, put in place of the one before."""
    text = "rules:\n" + "".join(f"  - {each}\n" for each in rules)
    (folder / "next.yaml").write_text(text if rules else "")
    os.replace(folder / "next.yaml", folder / "policy.yaml")


def server(r: Room, user: str = "ada") -> ServerState:
    state = r.engine.server_state(user, "")
    assert state is not None
    return state


def countdown(r: Room) -> Countdown:
    found = server(r).countdown
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("trusted", "busy", "ends"),
    [(False, {}, False), (True, {}, True), (True, {"busy_kernels": 1}, False), (True, {"busy_terminals": 1}, False)],
)
async def test_a_low_use_that_only_the_server_reports_stops_it_where_the_admin_trusts_it(
    tmp_path: Path, trusted: bool, busy: Mapping[str, int], ends: bool
) -> None:
    policy = replace(settings(tmp_path).culling, trust_reports=trusted)
    async with room(tmp_path, small(0), culling=policy) as r:
        await r.run("ada", "mig-1g.5gb")
        r.gpus.used["MIG-small-0"] = None
        report = replace(OPEN, used_percent=0.0, **busy)  # type: ignore[arg-type]
        await one_turn(r, report)
        await minutes(r, 2, report)
        assert (server(r).countdown is not None) is ends
        (lease,) = await r.engine.leases()
        assert (lease.last_use_percent, lease.use_source) == (0.0, "report"), "an admin sees it"


async def test_a_high_use_that_only_the_server_reports_protects_it_within_the_limits(tmp_path: Path) -> None:
    async with room(tmp_path, small(0)) as r:
        await r.run("ada", "mig-1g.5gb")
        r.gpus.used["MIG-small-0"] = None
        at_work = replace(OPEN, used_percent=60.0)
        await one_turn(r, at_work)
        await minutes(r, 29, at_work)
        assert countdown(r).cause == "lifetime" and not r.hub.stopped
        (lease,) = await r.engine.leases()
        assert (lease.last_use_percent, lease.use_source) == (60.0, "report")


@pytest.mark.whole
async def test_rules_are_read_again_and_a_bad_file_leaves_the_last_good_ones(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    policy = culled_by(tmp_path, "{name: ada, users: [ada], idle: 10 min}")
    async with room(tmp_path, small(0), culling=policy) as r:
        await r.run("ada", "mig-1g.5gb")
        await one_turn(r)
        await minutes(r, 4)
        start = countdown(r).stops_at
        assert not countdown(r).warn, "by c.GpuCulling it had stopped"
        written(tmp_path, "{name: ada, users: [ada], idle: 10}")
        await r.engine.refresh_policies()
        health = r.engine.health()
        assert health.policy_file_valid is False and health.policy_file is not None
        said = "policy.yaml: line 2: idle: it has no unit: write 10 min, 10 h or 10 d"
        assert health.policy_file.startswith("not in force, the 1 rule(s) of before are: ")
        assert health.policy_file.endswith(said)
        assert said in caplog.text
        assert registry(r.engine).get_sample_value("jupyterhub_gpu_policy_file_valid") == 0
        (finding,) = policy_file({"policy_file": health.policy_file, "policy_file_valid": False})
        assert finding.state == "problem" and said in finding.text
        await one_turn(r)
        assert countdown(r).stops_at == start
        written(tmp_path, "{name: all, never: true}")
        await r.engine.refresh_policies()
        assert r.engine.health().policy_file_valid is True
        assert registry(r.engine).get_sample_value("jupyterhub_gpu_policy_file_valid") == 1
        assert server(r).countdown is None and server(r).rule is None and server(r).keep is None
        assert r.engine.form("ada", "", (), False).rule is None
        (lease,) = r.engine.state.leases.values()
        assert lease.ends_at is None, "nobody is told at most"
        (tmp_path / "policy.yaml").unlink()
        await r.engine.refresh_policies()
        assert r.engine.health().policy_file_valid is False, "and the rules stay"
        await minutes(r, 60)
        assert r.hub.stopped == []


async def test_other_rules_do_not_take_a_promise_back(tmp_path: Path) -> None:
    policy = culled_by(tmp_path, "{name: long, idle: 20 min, lifetime: 1 h}")
    async with room(tmp_path, small(0), culling=policy) as r:
        await r.run("ada", "mig-1g.5gb")
        await one_turn(r)
        await minutes(r, 5)
        before, ends_at = countdown(r).stops_at, server(r).ends_at
        written(tmp_path, "{name: short, idle: 2 min, lifetime: 3 min}")
        await r.engine.refresh_policies()
        await minutes(r, 14)
        assert (countdown(r).stops_at, server(r).ends_at) == (before, ends_at) and not server(r).save
        (lease,) = r.engine.state.leases.values()
        assert lease.ends_at == r.engine.state.facts["ada", ""].ends_at, "nor do others count with less"
        await minutes(r, 2)
        await r.engine.report("ada", "", replace(OPEN, saved=True))
        await stops_finish(r)
        assert r.hub.stopped == [("ada", "")]
        row = next(row for row in await r.engine.store.journal() if row.kind == "culled")
        assert "by the rule 'short'" in row.evidence


async def test_at_the_start_a_bad_file_is_refused(tmp_path: Path) -> None:
    policy = culled_by(tmp_path, "{name: ada, idel: 10 min}")
    with pytest.raises(PolicyFileError, match=r"policy.yaml: line 2: idel: .* did you mean idle"):
        async with room(tmp_path, small(0), culling=policy):
            pass


async def test_a_rule_by_group_waits_until_the_groups_are_known(tmp_path: Path) -> None:
    policy = culled_by(tmp_path, "{name: course, groups: [course-a], idle: 10 min}")
    async with room(tmp_path, small(0), culling=policy) as r:
        await r.run("ada", "mig-1g.5gb")
        r.engine.state.hub_view = replace(r.engine.state.hub_view, people={})
        await one_turn(r)
        await minutes(r, 5)
        assert server(r).countdown is None, "it might be in the course"
        people = {"ada": (("course-a",), False)}
        r.engine.state.hub_view = replace(r.engine.state.hub_view, people=people)
        await one_turn(r)
        assert countdown(r).stops_at - r.engine.state.clock.wall(r.engine.state.clock.now()) == 5 * MINUTE


async def test_while_somebody_waits_the_limit_is_shorter_and_the_reason_says_so(tmp_path: Path) -> None:
    policy = replace(settings(tmp_path).culling, idle=20 * MINUTE, contended_idle=5 * MINUTE)
    async with room(tmp_path, small(0), culling=policy) as r:
        await r.run("ada", "mig-1g.5gb")
        await one_turn(r)
        await minutes(r, 6)
        assert server(r).countdown is None
        waiting = await r.ask("ben", "mig-1g.5gb")
        assert countdown(r).reason.reason == "idle-wanted"
        await one_turn(r)
        await r.engine.leave(waiting.ticket, "ben")
        assert server(r).countdown is None, "it ends with the wait"
        await minutes(r, 3)
        assert not r.hub.stopped and not server(r).save


async def test_the_lifetime_is_put_off_by_keep_while_the_gpu_works(tmp_path: Path) -> None:
    policy = replace(settings(tmp_path).culling, extend_lifetime=10 * MINUTE, max_lifetime_extensions=1)
    async with room(tmp_path, small(0), culling=policy) as r:
        await r.run("ada", "mig-1g.5gb")
        r.gpus.used["MIG-small-0"] = 90.0
        await one_turn(r)
        (lease,) = r.engine.state.leases.values()
        assert lease.ends_at == r.engine.state.facts["ada", ""].started + 40 * MINUTE, "others count with it all"
        await minutes(r, 29)
        before = countdown(r)
        assert before.cause == "lifetime" and before.can_keep and before.no_keep is None
        budget = server(r).keep
        assert budget is not None and (budget.minutes, budget.left, budget.of, budget.of_server) == (10, 1, 1, True)
        after = await r.engine.keep("ada", "")
        assert after.countdown is None and after.ends_at == before.stops_at + 10 * MINUTE
        assert next(row.kind for row in await r.engine.store.journal()) == "extended"
        await minutes(r, 10)
        again = countdown(r)
        assert not again.can_keep and again.no_keep is not None and again.no_keep.reason == "extend-none-left"
        with pytest.raises(Refused, match="put off as often as it can be"):
            await r.engine.keep("ada", "")
        await minutes(r, 1)
        await r.engine.report("ada", "", replace(OPEN, saved=True))
        await stops_finish(r)
        assert r.hub.stopped == [("ada", "")]
