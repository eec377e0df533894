"""A start that the hub has accepted is kept: through kills of the hub while the GPU service is away, in its order."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from hub_extensions.adapters.service.outbox import LONGEST_PAUSE
from hub_extensions.core.messages import Ask
from hub_extensions.spawner.accepted_starts import KEY
from tests.fakes.service import AwayService
from tests.hubs import Hub, until
from tests.spawner.real_hub import ours

ONE = "mig-1g.5gb"
PEOPLE = ("cem", "ada", "ben")
pytestmark = pytest.mark.hub


def owed(hub: Hub, user: str) -> bool:
    return KEY in hub.api("GET", f"users/{user}?include_stopped_servers=1").text


@pytest.mark.whole
def test_accepted_starts_are_asked_for_after_every_kill_in_the_order_of_acceptance(tmp_path: Path) -> None:
    with AwayService({ONE: 1}) as service, Hub(tmp_path, ours(service)) as hub:
        hub.add_users(*PEOPLE)
        for name in PEOPLE:
            assert hub.spawn(name, {"offer": ONE}).status_code == 202
        for end in (hub.terminate, hub.kill):
            end()
            hub.start()
        service.open()
        until(lambda: len(service.tickets) == 3, 3 * LONGEST_PAUSE, lambda: f"all joined: {service.tickets}")
        asks = service.told_of(Ask)
        assert [ask.user for ask in asks] == list(PEOPLE)
        assert all(ask.kept and ask.options == {"offer": ONE} for ask in asks)
        until(lambda: not any(owed(hub, name) for name in PEOPLE), what="the records are written off")
        times = [ask.accepted for ask in asks if ask.accepted is not None]
        assert times == sorted(times) and all(isinstance(at, datetime) for at in times)
        hub.kill()
        hub.start()
        hub.spawn("ben", {"offer": ONE})
        until(lambda: service.tickets["ben", ""].attempt == 2, what="ben's own start has his ticket")
        assert len(service.told_of(Ask)) == 4, "what the service has written is not asked for again"


@pytest.mark.whole
def test_asks_of_a_service_that_comes_back_come_together(tmp_path: Path) -> None:
    with AwayService({ONE: 1}) as service, Hub(tmp_path, ours(service)) as hub:
        hub.add_users(*PEOPLE)
        for name in PEOPLE:
            hub.spawn(name, {"offer": ONE})
        events = hub.progress("ben")
        next(events)
        assert "Your start is kept" in next(events)["message"]
        service.open()
        until(lambda: len(service.told_of(Ask)) >= 3, 3 * LONGEST_PAUSE)  # the first is soon ready, and in line no more
        assert [ask.user for ask in service.told_of(Ask)[:3]] == list(PEOPLE)
        assert service.requests[0] == 3


@pytest.mark.whole
def test_a_start_that_its_user_stopped_is_not_kept(tmp_path: Path) -> None:
    with AwayService({ONE: 1}) as service, Hub(tmp_path, ours(service)) as hub:
        hub.add_users("ada", "ben")
        for name in ("ada", "ben"):
            hub.spawn(name, {"offer": ONE})
        hub.stop_server("ada")
        until(lambda: not owed(hub, "ada"), what="the stop is confirmed")
        assert owed(hub, "ben")
        hub.kill()
        hub.start()
        service.open()
        until(lambda: ("ben", "") in service.tickets, 3 * LONGEST_PAUSE)
        assert ("ada", "") not in service.tickets


SLOW_HOOK = """
import asyncio
async def hook(spawner):
    await asyncio.sleep(3600 if spawner.user.name == "ada" else 2)
    if spawner.user.name == "cem":
        raise ValueError("no room for cem")
c.Spawner.pre_spawn_hook = hook
"""


@pytest.mark.whole
def test_a_start_that_a_slow_hook_of_the_admin_holds_is_kept_and_one_that_it_refuses_is_not(tmp_path: Path) -> None:
    with AwayService({ONE: 2}) as service, Hub(tmp_path, ours(service, SLOW_HOOK)) as hub:
        hub.add_users(*PEOPLE)
        for name in PEOPLE:
            assert hub.spawn(name, {"offer": ONE}).status_code == 202
        until(lambda: not hub.pending("cem"), what="the hook has refused cem")
        hub.stop_server("ben")
        until(lambda: not owed(hub, "ben") and not owed(hub, "cem"))
        hub.kill()
        hub.start()
        service.open()
        until(lambda: ("ada", "") in service.tickets, 3 * LONGEST_PAUSE)
        assert [ask.user for ask in service.told_of(Ask)] == ["ada"]
