"""The audit that the gate makes by itself, now and then: what is open goes into the log, and into a metric.

Not here: what is tried (``core/sign_on/audit.py``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from hub_extensions.core.sign_on.audit import AuditResult, Outcome

log = logging.getLogger("hub_extensions.gate")


class AuditLoop:
    """Audits every so often, the first time after one pause.

    Attributes:
        failures: how many results of the last audit said *open*; None: there was none yet, or another gate makes them.
            For the metric ``jupyterhub_gpu_audit_failures``.
        is_ours: of several gates one makes them.
    """

    def __init__(self, audit: Callable[[], Awaitable[Sequence[AuditResult]]], every: timedelta) -> None:
        self._audit, self._every, self.is_ours = audit, every, True
        self.failures: int | None = None

    async def run(self) -> None:
        """For ever, or not at all where `every` is 0."""
        while self._every:
            await asyncio.sleep(self._every.total_seconds())
            if self.is_ours:
                await self.once()
            else:
                self.failures = None

    async def once(self) -> None:
        """One audit. One that fails says nothing about the apps."""
        try:
            results = await self._audit()
        except Exception as problem:  # noqa: BLE001  # whatever it is, the next one is tried
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
