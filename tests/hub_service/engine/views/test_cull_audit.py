"""What an admin sees of culling before it acts: each server, its end, its rule, and what is known of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from tests.fakes.machine import small
from tests.hub_service.engine.room import room, settings
from tests.hub_service.engine.stops.test_culler import minutes, one_turn

pytestmark = pytest.mark.programs

RULES = """\
rules:
  - name: small ones
    users: [ada]
    idle: 4 min
    warn: 2 min
"""


@pytest.mark.parametrize("enabled", [True, False])
async def test_each_server_with_its_end_its_rule_and_its_evidence(tmp_path: Path, enabled: bool) -> None:
    (tmp_path / "policy.yaml").write_text(RULES)
    policy = replace(settings(tmp_path).culling, enabled=enabled, policy_file=str(tmp_path / "policy.yaml"))
    async with room(tmp_path, small(0), small(1), culling=policy) as r:
        for user in ("ada", "ben"):
            await r.run(user, "mig-1g.5gb")
        await r.run("cem", "cpu")
        r.gpus.used["MIG-small-1"] = 70.0
        begin = r.hands.wall
        await one_turn(r)
        await minutes(r, 2)
        ada, ben, cem = (await r.engine.culling()).servers
        assert (ada.user, ada.action, ada.cause, ada.rule) == ("ada", "warn", "idle", "small ones")
        assert ada.stops_at is not None and abs(ada.stops_at - begin - timedelta(minutes=4)) < timedelta(seconds=1)
        assert (ada.reason, ada.evidence[:34]) == ("Idle for 2 min.", "use 0 % by nvml, by the rule 'smal")
        assert (ben.action, ben.cause, ben.stops_at, ben.rule) == ("keep", "", None, "")
        assert ben.ends_at is not None and "use 70 % by nvml" in ben.evidence
        assert (cem.action, cem.offer, cem.stops_at) == ("keep", "cpu", None)
        assert {each.enforced for each in (ada, ben, cem)} == {enabled}
        assert r.hub.stopped == []
