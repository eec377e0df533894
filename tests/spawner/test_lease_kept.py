"""Never a GPU without a lease: a start whose lease is taken away meanwhile ends, and one that is ready does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hub_extensions.adapters.linux import procfs
from hub_extensions.core.messages import Ended, Started
from tests.fakes.service import GpuServiceInATest, ServiceThatTookTheLeaseBack
from tests.hubs import Hub, until
from tests.spawner.real_hub import ours

pytestmark = pytest.mark.hub
ONE = "mig-1g.5gb"
SLOW = 'c.Spawner.environment = {"FAKE_SINGLEUSER_SLOW": "%g"}'


@pytest.fixture
def service() -> Iterator[GpuServiceInATest]:
    with GpuServiceInATest({ONE: 1}) as running:
        yield running


def gone(message: Started) -> bool:
    """Has the process that this message tells of ended?"""
    assert message.pid is not None and message.pid_started is not None
    return not procfs.alive(message.pid, message.pid_started)


@pytest.mark.whole
def test_a_server_whose_lease_was_taken_away_while_it_was_started_is_stopped(tmp_path: Path) -> None:
    """With the reason, and not counted as a failed spawn."""
    more = "c.Spawner.consecutive_failure_limit = 1"
    with ServiceThatTookTheLeaseBack({ONE: 1}) as service, Hub(tmp_path / "hub", ours(service, more)) as hub:
        hub.add_users("ada")
        hub.spawn("ada", {"offer": ONE})
        started = until(lambda: service.told_of(Started), what="the process was told of")
        until(lambda: gone(started[0]), what="its process has ended")
        until(lambda: hub.server("ada") is None, what="the hub has no such server")
        page = hub.login("ada").get(f"{hub.url}/hub/spawn-pending/ada").text
        assert "Your place in line ended while the server was being started, so it was stopped" in page
        assert "Aborting" not in hub.log()
        assert service.told_of(Ended) == []
        hub.spawn("ada", {"offer": "cpu"})
        hub.wait_ready("ada")


@pytest.mark.whole
def test_a_lease_that_is_said_to_be_gone_later_ends_the_start_too(tmp_path: Path, service: GpuServiceInATest) -> None:
    """The service was too slow to say so before the hub began to wait for the server."""
    service.started_seconds = 7.0
    with Hub(tmp_path / "hub", ours(service, SLOW % 60)) as hub:
        hub.add_users("ada")
        hub.spawn("ada", {"offer": ONE})
        until(lambda: ("ada", "") in service.held, what="admitted")
        service.take_out("ada")
        started = until(lambda: service.told_of(Started), what="the process was told of")
        until(lambda: gone(started[0]), what="its process has ended")
        assert "Your place in line ended while the server was being started" in hub.log()
        assert not hub.ready("ada")


@pytest.mark.whole
def test_a_ticket_that_the_service_ended_as_ready_by_itself_stops_nothing(
    tmp_path: Path, service: GpuServiceInATest
) -> None:
    """The hub's own word that the server is ready comes second then, and finds no ticket any more."""
    with Hub(tmp_path / "hub", ours(service, SLOW % 2)) as hub:
        hub.add_users("ada")
        hub.spawn("ada", {"offer": ONE})
        started = until(lambda: service.told_of(Started), what="the process was told of")
        del service.tickets["ada", ""]
        hub.wait_ready("ada")
        until(lambda: "did not take a message" in hub.log(), what="the second word was not taken")
        assert not gone(started[0])
        assert hub.ready("ada")
