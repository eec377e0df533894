"""The figures of the last day, week and month for administrators, counted at most once a minute."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from hub_extensions.adapters.store import Store
from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.offers.offer_id import CPU
from hub_extensions.core.overview.days import CountedUse, Days, Span, days_of
from hub_extensions.core.usage import Use
from hub_extensions.hub_service.engine.state.state import State

COUNTED_FOR = timedelta(seconds=60)


class UsageDays:
    """Counts the figures and caches them for a minute."""

    def __init__(self, state: State, store: Store) -> None:
        self.state = state
        self.store = store
        self._kept: dict[Span, Days] = {}

    async def days(self, span: Span) -> Days:
        """Return the figures of now, or of at most a minute ago."""
        now, kept = self.state.clock.utc_now(), self._kept.get(span)
        if kept is not None and timedelta(0) <= now - kept.at < COUNTED_FOR:
            return kept
        past = await self.store.uses_since(now - span.length)
        running = [_running(use) for use in self.state.uses.values() if use.offer != CPU]
        # ten thousands of uses: in a thread, so that nobody waits
        found = self._kept[span] = await asyncio.to_thread(days_of, (*past, *running), span, now)
        return found


def _running(use: Use) -> CountedUse:
    return CountedUse(
        offer=use.offer,
        groups=use.groups,
        began=use.admitted,
        ended=None,
        end="",
        ready=use.ready is not None,
        devices=use.devices * use.share / WHOLE,
        waited_seconds=use.waited_seconds,
    )
