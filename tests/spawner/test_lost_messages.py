"""What a waiter missed it asks for, without ever making a new place for somebody who has left the line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hub_extensions.core.messages import Ask, Ended
from tests.fakes.service import TAKEN_OUT, GpuServiceInATest
from tests.hubs import Hub, until
from tests.spawner.real_hub import ours

pytestmark = pytest.mark.hub
ONE = "mig-1g.5gb"
IMPATIENT = """
from hub_extensions.spawner.local import GpuDemoSpawner
class Impatient(GpuDemoSpawner):
    gpu_ask_again_seconds = 1.0
c.JupyterHub.spawner_class = Impatient
"""


@pytest.fixture
def service() -> Iterator[GpuServiceInATest]:
    with GpuServiceInATest({ONE: 1}) as running:
        yield running


@contextmanager
def waiting_ben(tmp_path: Path, service: GpuServiceInATest, more: str = "") -> Iterator[Hub]:
    """Ada has the only one, ben waits for it."""
    with Hub(tmp_path / "hub", ours(service, more)) as hub:
        hub.add_users("ada", "ben")
        hub.spawn("ada", {"offer": ONE})
        hub.wait_ready("ada")
        until(lambda: not service.tickets)
        hub.spawn("ben", {"offer": ONE})
        until(lambda: ("ben", "") in service.tickets)
        yield hub


@pytest.mark.whole
def test_an_end_that_nobody_heard_of_is_found_and_makes_no_new_place(
    tmp_path: Path, service: GpuServiceInATest
) -> None:
    with waiting_ben(tmp_path, service, IMPATIENT) as hub:
        until(lambda: len(service.told_of(Ask)) >= 4, what="ben asked again, and again")
        assert len(service.tickets) == 1
        events = hub.progress("ben")
        next(events)
        service.take_out("ben", unheard=True)
        last = list(events)[-1]
        assert last["message"] == f"Spawn failed: Your place in line has ended. {TAKEN_OUT}"
        assert not service.tickets
        assert service.told_of(Ended) == []
        first, *again = [ask.ticket for ask in service.told_of(Ask) if ask.user == "ben"]
        assert first == ""
        assert set(again) == {"t2"}


@pytest.mark.whole
def test_an_end_before_the_stream_stood_is_found_by_its_list(tmp_path: Path, service: GpuServiceInATest) -> None:
    """The list tells of live tickets only: who is missing in it asks."""
    service.stream_seconds = 8.0
    with Hub(tmp_path / "hub", ours(service)) as hub:
        hub.add_users("ben", "cem")
        service.capacity[ONE] = 0
        for name in ("ben", "cem"):
            hub.spawn(name, {"offer": ONE})
        until(lambda: len(service.tickets) == 2)
        assert not service._streams
        events = hub.progress("ben")
        next(events)  # somebody listens before the end comes
        service.take_out("ben")
        last = list(events)[-1]
        assert last["message"] == f"Spawn failed: Your place in line has ended. {TAKEN_OUT}"
        assert [ask.user for ask in service.told_of(Ask)].count("cem") == 1, "cem is in the list, and asks no more"


@pytest.mark.whole
def test_an_end_that_is_heard_of_is_a_refusal_with_its_reason(tmp_path: Path, service: GpuServiceInATest) -> None:
    with waiting_ben(tmp_path, service) as hub:
        until(lambda: service._streams)
        events = hub.progress("ben")
        next(events)  # somebody listens before the end comes
        service.take_out("ben")
        last = list(events)[-1]
        assert last["message"] == f"Spawn failed: Your place in line has ended. {TAKEN_OUT}"


@pytest.mark.whole
def test_of_two_asks_that_crossed_the_later_attempt_counts(tmp_path: Path, service: GpuServiceInATest) -> None:
    """Else the admission, which names the later one, would never be heard."""
    with waiting_ben(tmp_path, service) as hub:
        until(lambda: service._streams)
        service.ask_again_unheard("ben")
        service.release("ada")
        hub.wait_ready("ben")
