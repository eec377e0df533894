"""Tells the GPU service when the trainings of this server will probably be done, and sends the notices of their ends.

A refusal of the service, or none at all, changes nothing else: it is tried again later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta, timezone
from time import monotonic
from typing import Protocol

from hub_extensions.core.forecast.training_runs import Followed, length_seconds, next_report
from hub_extensions.core.messages import Progress, TrainingEnded
from hub_extensions.server_extension.service_client import RequestRefused

RETRY_SECONDS = 30.0
MOST_RETRY_SECONDS = 600.0
FINAL = (400, 409, 413)  # refusals of what was sent, so that it is not sent again
LEAST_SECONDS = 2.0  # between two reports of a time left; the service takes one a second
SHORTEST_NOTICE = timedelta(minutes=10)  # a run that was shorter brings no notice

log = logging.getLogger(__name__)


class RunsOfServer(Protocol):
    """The training runs of this server: `Trainings`."""

    runs: tuple[Followed, ...]

    def settle(self, run: str) -> None:
        """Forget the wish for a notice about a run."""
        ...


class TrainingReports:
    """Sends what the service has to know about the trainings of this server.

    Args:
        trainings: the trainings.
        post: sends a message to a path of the service; raises `RequestRefused`.
        pace: divides all intervals (for tests).
    """

    def __init__(
        self, trainings: RunsOfServer, post: Callable[[str, object], Awaitable[None]], *, pace: float = 1.0
    ) -> None:
        self._trainings = trainings
        self._post = post
        self._pace = pace
        self._reported: Progress | None = None
        self._reported_at = float("-inf")
        self._retry: dict[str, tuple[float, float]] = {}
        self._logged = ""

    async def run(self) -> None:
        """Send what is due until cancelled."""
        while True:
            try:
                await self.send(self._trainings.runs)
            except Exception as error:  # noqa: BLE001 - the next one may succeed
                self._log(repr(error))
            await asyncio.sleep(LEAST_SECONDS / self._pace)

    async def send(self, runs: tuple[Followed, ...]) -> None:
        """Send what is due now."""
        seconds = (monotonic() - self._reported_at) * self._pace
        report = next_report(self._reported, runs, datetime.now(timezone.utc), seconds)
        if report is not None and await self._sent("api/server/progress", "", report):
            self._reported, self._reported_at = report, monotonic()
        for each in runs:
            if not each.notify or each.running:
                continue
            run = each.run
            ended = TrainingEnded(run.run, run.name, each.state, run.started, run.at)
            long = length_seconds(run) >= SHORTEST_NOTICE.total_seconds()
            if not long or await self._sent("api/server/training-ended", run.run, ended):
                self._trainings.settle(run.run)

    async def _sent(self, path: str, run: str, message: object) -> bool:
        """Send a message, and return whether the service answered. If not, wait before it is tried again."""
        key = path + run
        wait, until = self._retry.get(key, (0.0, 0.0))
        if monotonic() < until:
            return False
        try:
            await self._post(path, message)
        except RequestRefused as refused:
            self._log(refused.detail)
            if refused.status in FINAL and not refused.by_stranger:
                return True
            wait = min(2 * wait or RETRY_SECONDS, MOST_RETRY_SECONDS)
            self._retry[key] = wait, monotonic() + wait / self._pace
            return False
        self._retry.pop(key, None)
        return True

    def _log(self, why: str) -> None:
        if self._logged != why:
            log.info("The GPU service did not take the progress of a training: %s", why)
        self._logged = why
