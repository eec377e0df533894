"""The gate's periodic audit, which tests whether apps can be opened without the right to do so.

Apps that are open are logged and counted in a metric.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from hub_extensions.core.sign_on.audit import AuditResult, Outcome

log = logging.getLogger("hub_extensions.gate")


class PeriodicAudit:
    """Runs an audit at each interval, the first one after one interval.

    An audit sends requests that must not reach an app, and reports each app that answers them as open.

    Args:
        audit: makes one audit, and returns the result for each app.
        every: the interval; 0 makes no audits.

    Attributes:
        failures: number of requests that reached an app in the last audit, for the metric
            ``jupyterhub_gate_audit_failures``; `None` if no audit has been made, or another gate makes the audits.
        is_ours: whether this gate makes the audits. If several gates share a database, only one of them does.
    """

    def __init__(self, audit: Callable[[], Awaitable[Sequence[AuditResult]]], every: timedelta) -> None:
        self._audit, self._every, self.is_ours = audit, every, True
        self.failures: int | None = None

    async def run(self) -> None:
        """Check again and again, until cancelled, that no app can be reached past the gate.

        If the interval is 0, the audits are switched off, and the method returns at once.
        """
        while self._every:
            await asyncio.sleep(self._every.total_seconds())
            if self.is_ours:
                await self.once()
            else:
                self.failures = None

    async def once(self) -> None:
        """Run one audit (a test whether apps are open to strangers), and set `failures`.

        `failures` becomes `None` if the audit could not be made.
        """
        try:
            results = await self._audit()
        except Exception as problem:  # noqa: BLE001  # the next audit is tried in any case
            log.warning("the audit could not be made: %s", type(problem).__name__)
            self.failures = None
            return
        found = [result for result in results if result.outcome is Outcome.OPEN]
        for result in found:
            log.error(
                "audit %s, app %s is open: %s: %s. %s",
                result.case,
                result.app,
                result.tried,
                result.came_back,
                result.advice,
            )
        self.failures = len(found)
