"""Report ended sessions to the gate and the GPU service, and retry until they have answered.

The gate answers a proxy's question whether a request may pass to an app. The end of a session does not wait for the
reports. The hub has deleted the session's tokens by then, so gate and service would find out at their next check of a
token even without a report.
"""

from __future__ import annotations

import asyncio
import json
import random
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, field
from typing import Any

from hub_extensions.adapters.http_client import HttpClient
from hub_extensions.adapters.service.gpu_service import GpuServiceClient, ServiceAway, ServiceRefused
from hub_extensions.adapters.service.signed_request import fetch_signed, service_client
from hub_extensions.adapters.service.signer import Signer, Unproved
from hub_extensions.core.sign_on.ended_sessions import ENDED_PATH, EndedSessions
from hub_extensions.core.sign_on.gate_config import GateAddress

CONNECT_SECONDS, ANSWER_SECONDS = 1.0, 5.0
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0


class GateUnreachable(OSError):
    """The gate did not answer, or answered with an error."""


@dataclass
class PendingReport:
    """Ended sessions of one user that are not reported yet.

    Attributes:
        ended: the user, and the sessions that ended.
        known: futures of the callers that wait until the report is confirmed; their result is then True.
    """

    ended: EndedSessions
    known: list[asyncio.Future[bool]] = field(default_factory=list)

    def merge(self, other: PendingReport) -> None:
        """Add the sessions and the waiting callers of `other`, a report of the same user, to this report."""
        mine, its = self.ended.sessions, other.ended.sessions
        both = None if mine is None or its is None else tuple(dict.fromkeys((*mine, *its)))
        self.ended = EndedSessions(self.ended.user, both)
        self.known += other.known


class EndsCaller(ABC):
    """Reports ended sessions to one other process, the gate or the GPU service, until the process confirms the report.

    If several reports are pending, the latest is sent first.

    Args:
        log: the logger of the hub.
    """

    called: str
    """Name of the other process, for the log."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self._waiting: dict[str, PendingReport] = {}
        self._sender: asyncio.Future[None] | None = None

    def report(self, ended: EndedSessions) -> asyncio.Future[bool]:
        """Queue a report of ended sessions, and return a future of its confirmation.

        The future gets the result True when the other process has confirmed the report. If a report of the same user is
        still pending, the two are merged into one.

        Args:
            ended: the user, and the sessions that have ended.
        """
        known: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        report = PendingReport(ended, [known])
        before = self._waiting.pop(ended.user, None)
        if before is not None:
            report.merge(before)
        self._waiting[ended.user] = report
        if self._sender is None or self._sender.done():
            self._sender = asyncio.ensure_future(self._run())
        return known

    async def _run(self) -> None:
        failures = 0
        while self._waiting:
            _, report = self._waiting.popitem()
            try:
                await self._send(report.ended)
            except (OSError, ValueError) as problem:
                self._put_back(report)
                failures += 1
                if failures == 1:
                    self._log.warning("%s does not know yet which sessions have ended: %s", self.called, problem)
                await asyncio.sleep(_pause(failures))
                continue
            if failures:
                self._log.info("%s knows which sessions have ended", self.called)
            failures = 0
            for known in report.known:
                if not known.done():
                    known.set_result(True)

    def _put_back(self, report: PendingReport) -> None:
        """Queue a report of ended sessions again, behind all others.

        So a report that is always refused does not delay the others.
        """
        newer = self._waiting.get(report.ended.user)
        if newer is not None:
            newer.merge(report)
        else:
            self._waiting = {report.ended.user: report, **self._waiting}

    @abstractmethod
    async def _send(self, ended: EndedSessions) -> None:
        """Send a report of ended sessions once. Raises OSError or ValueError unless its arrival was confirmed."""


class GateCaller(EndsCaller):
    """Reports ended sessions to the gate. The gate then ends its own sessions that were created from the ended ones.

    A hub has at most one such caller.

    Args:
        address: the gate's address, and the secret with which the requests are signed.
        log: the logger of the hub.
    """

    called = "The gate"

    def __init__(self, address: GateAddress, log: Any) -> None:
        super().__init__(log)
        self._address = address
        self._signer = Signer(address.secret)
        self._client: HttpClient | None = None

    async def _send(self, ended: EndedSessions) -> None:
        body = json.dumps(asdict(ended)).encode()
        if self._client is None:
            self._client = service_client()
        try:
            answer = await fetch_signed(
                self._client,
                self._signer,
                "POST",
                f"{self._address.url}{ENDED_PATH}",
                body,
                {"Content-Type": "application/json"},
                connect_timeout=CONNECT_SECONDS,
                request_timeout=ANSWER_SECONDS,
            )
        except Unproved:
            raise
        except OSError as problem:
            why = problem.strerror or problem
            raise GateUnreachable(f"nobody answers at {self._address.url} ({why})") from None
        if answer.code not in (200, 204):
            raise GateUnreachable(f"it answered {answer.code}")


class ServiceCaller(EndsCaller):
    """Reports ended sessions to the GPU service, which then discards its cached logins of the user.

    A hub has at most one such caller.

    Args:
        service: the client of the service.
        log: the logger of the hub.
    """

    called = "The GPU service"

    def __init__(self, service: GpuServiceClient, log: Any) -> None:
        super().__init__(log)
        self._service = service

    async def _send(self, ended: EndedSessions) -> None:
        try:
            await self._service.sessions_ended(ended)
        except ServiceAway as problem:
            raise OSError(str(problem)) from None
        except ServiceRefused as problem:  # an older service, which lacks the route
            self._log.debug("The GPU service does not take the end of a session: %s", problem)


def _pause(failures: int) -> float:
    longest: float = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(failures - 1, 10))
    return longest * random.uniform(0.5, 1.0)
