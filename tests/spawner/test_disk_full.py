"""The service answers and cannot write: GPU choices wait with its sentence for as long as it takes, CPU only starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hub_extensions.core.messages import Ask
from tests.fakes.service import GpuServiceInATest
from tests.hubs import Hub, until
from tests.spawner.real_hub import ours

pytestmark = pytest.mark.hub
ONE = "mig-1g.5gb"
FULL = "The GPU service cannot write its records now: its disk is full."
SHORT, LONG = (f"c.GpuSpawnerMixin.gpu_service_timeout_seconds = {seconds}" for seconds in (0.5, 60))


@pytest.fixture
def service() -> Iterator[GpuServiceInATest]:
    with GpuServiceInATest({ONE: 1}) as running:
        yield running


@pytest.mark.whole
def test_a_gpu_choice_waits_with_the_services_sentence_and_cpu_only_starts(
    tmp_path: Path, service: GpuServiceInATest
) -> None:
    service.disk_full = FULL
    with Hub(tmp_path / "hub", ours(service, SHORT)) as hub:
        hub.add_users("ada", "ben")
        hub.spawn("ben", {"offer": ONE})
        events = hub.progress("ben", seconds=30)
        event = next(event for event in events if event.get("gpu"))
        assert event["message"] == FULL
        assert (event["gpu"]["state"], event["gpu"]["kept"]) == ("held-up", False)
        page = hub.login("ben").get(f"{hub.url}/hub/spawn-pending/ben").text
        assert FULL in page

        hub.spawn("ada", {"offer": "cpu"})
        hub.wait_ready("ada", seconds=10)
        asks = len(service.told_of(Ask))
        until(lambda: len(service.told_of(Ask)) >= asks + 2, what="ben asks on, with his patience long over")
        assert hub.pending("ben") == "spawn"
        assert "is not answering" not in hub.log()

        service.disk_full = ""
        hub.wait_ready("ben")
        assert hub.environ("ben")["JUPYTERHUB_GPU_LEASE"]


@pytest.mark.whole
def test_who_is_in_line_keeps_the_place_while_the_disk_is_full(tmp_path: Path, service: GpuServiceInATest) -> None:
    with Hub(tmp_path / "hub", ours(service, LONG)) as hub:
        hub.add_users("ada", "ben")
        hub.spawn("ada", {"offer": ONE})
        hub.wait_ready("ada")
        until(lambda: not service.tickets, what="the service has heard of it")
        hub.spawn("ben", {"offer": ONE})
        until(lambda: ("ben", "") in service.tickets and service._streams)
        service.disk_full = FULL
        service.close()  # a break of the stream makes it ask
        service.open()
        told = (event.get("gpu", {}) for event in hub.progress("ben", seconds=30))
        assert next(gpu for gpu in told if gpu.get("state") == "held-up")["kept"] is True
        service.disk_full = ""
        service.release("ada")
        hub.wait_ready("ben")
        assert {ask.ticket for ask in service.told_of(Ask) if ask.user == "ben"} == {"", "t2"}
