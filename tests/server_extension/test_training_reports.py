"""What the service hears of a server's trainings, how often, and that its refusals change nothing else."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from hub_extensions.core.forecast.training import ABOUT, TimeLeft
from hub_extensions.core.forecast.training_runs import Followed, Trace
from hub_extensions.core.messages import Report
from hub_extensions.server_extension.service_client import ServiceAddress, ServiceLink
from hub_extensions.server_extension.training_reports import TrainingReports
from tests.core.forecast.test_training_runs import a_run
from tests.fakes.panel_service import TOKEN, PanelService
from tests.patience import soon


@pytest.fixture
def service() -> Iterator[PanelService]:
    service = PanelService().come()
    yield service
    service.go()


def now() -> datetime:
    return datetime.now(timezone.utc)


class Runs:
    """The runs of a server, as a test sets them; `settled`: those whose notice is done with."""

    def __init__(self, *runs: Followed) -> None:
        self.runs = runs
        self.settled: list[str] = []

    def settle(self, run: str) -> None:
        self.settled.append(run)
        self.runs = tuple(replace(each, notify=each.notify and each.run.run != run) for each in self.runs)


def a_training(left: float | None = 1000.0, state: str = "running", took: float = 3600.0, **changes: Any) -> Followed:
    notify = changes.pop("notify", False)
    at = now() - timedelta(seconds=0 if state == "running" else 10)
    run = a_run(state=state, at=at, started=at - timedelta(seconds=took), **changes)
    time_left = None if left is None else TimeLeft(left, left / 1.2, left * 1.2, 0.1, ABOUT)
    return Followed(run, Trace(seen=True), state, time_left, notify=notify)


@contextlib.asynccontextmanager
async def reporting(service: PanelService, runs: Runs, pace: float = 50.0) -> AsyncIterator[ServiceLink]:
    async def report(since: float) -> Report:
        return Report(opened=True, kernels=1, busy_kernels=1)

    link = ServiceLink(ServiceAddress(service.url, TOKEN), report, pace=pace)
    link.start()
    task = asyncio.create_task(TrainingReports(runs, link.post, pace=pace).run())
    try:
        yield link
    finally:
        task.cancel()
        link.stop()


@pytest.mark.slow
async def test_the_time_left_is_reported_at_most_every_30_s_and_the_end_once(service: PanelService) -> None:
    runs = Runs(a_training())
    async with reporting(service, runs):
        await soon(lambda: service.progress)
        assert (service.progress[0]["left_seconds"], service.progress[0]["spread"]) == (1000.0, 0.1)
        runs.runs = (a_training(),)
        await asyncio.sleep(0.3)  # half of 30 s
        assert len(service.progress) == 1
        await soon(lambda: len(service.progress) == 2)
        runs.runs = (a_training(None, "done"),)
        await soon(lambda: service.progress[-1]["left_seconds"] == 0)
        count = len(service.progress)
        await asyncio.sleep(1.0)
        assert len(service.progress) == count


@pytest.mark.slow
async def test_an_end_that_moves_is_reported_at_once_but_not_more_than_once_a_second(service: PanelService) -> None:
    runs = Runs(a_training(1000.0))
    async with reporting(service, runs, pace=5.0):
        await soon(lambda: service.progress)
        began = asyncio.get_running_loop().time()
        while len(service.progress) < 4:
            runs.runs = (a_training(service.progress[-1]["left_seconds"] * 2),)
            await asyncio.sleep(0.01)
        assert asyncio.get_running_loop().time() - began >= 3 * 0.4 * 0.9


@pytest.mark.parametrize(
    "status", [429, *[pytest.param(status, marks=pytest.mark.whole) for status in (403, 404, 409, 503)]]
)
@pytest.mark.slow
async def test_a_refusal_is_tried_again_later_and_changes_nothing_else(
    service: PanelService, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    service.training_status = status
    runs = Runs(a_training(), a_training(None, "done", notify=True, run="b" * 16))
    with caplog.at_level("INFO", "hub_extensions.server_extension"):
        async with reporting(service, runs) as link:
            await soon(lambda: len(service.refused_trainings) >= (2 if status in (400, 409) else 3))
            await soon(lambda: link.state is not None)
            assert link.note is None
            service.training_status = 204
            runs.runs = (a_training(5000.0), *runs.runs[1:])
            await soon(lambda: service.progress)
            if status in (400, 409):  # an answer: the same is not asked again
                assert runs.settled == ["b" * 16]
            else:
                await soon(lambda: service.training_ends)
    assert "Traceback" not in caplog.text


@pytest.mark.slow
async def test_a_service_that_is_away_hears_of_an_end_when_it_is_back(service: PanelService) -> None:
    service.go()
    runs = Runs(a_training(None, "vanished", notify=True))
    async with reporting(service, runs):
        await asyncio.sleep(0.2)
        service.come()
        await soon(lambda: service.training_ends)
        await asyncio.sleep(0.2)
    (ended,) = service.training_ends
    assert (ended["run"], ended["name"], ended["state"]) == ("a" * 16, "mnist", "vanished")
    assert runs.settled == ["a" * 16]


@pytest.mark.parametrize(
    ("took", "notify", "state", "sent"),
    [
        (600.0, True, "done", 1),
        (599.0, True, "done", 0),
        (3600.0, False, "done", 0),
        (3600.0, True, "running", 0),
        (3600.0, True, "failed", 1),
        (3600.0, True, "left", 1),
    ],
)
async def test_a_notice_is_for_runs_of_ten_minutes_and_for_those_who_wish_it(
    service: PanelService, took: float, notify: bool, state: str, sent: int
) -> None:
    runs = Runs(a_training(None, state, took, notify=notify))
    async with reporting(service, runs, pace=200.0):
        await asyncio.sleep(0.15)
    assert len(service.training_ends) == sent
    assert bool(runs.settled) is (notify and state != "running")
