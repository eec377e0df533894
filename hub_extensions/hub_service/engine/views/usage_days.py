"""Statistics of the use of GPUs in the last day, week or month, for administrators."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime, timedelta

from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.offers.offer_id import CPU
from hub_extensions.core.overview.days import CountedUse, Days, Span, days_of
from hub_extensions.hub_service.engine.state.state import State

COUNTED_FOR = timedelta(seconds=60)
"""Time for which statistics are shown before they are computed again."""


def is_current(kept: Days | None, now: datetime) -> bool:
    return kept is not None and timedelta(0) <= now - kept.at < COUNTED_FOR


async def usage_days(state: State, past: Iterable[CountedUse], span: Span, now: datetime) -> Days:
    """Return how the GPUs were used in a span of time, for administrators.

    Args:
        state: the present state, with the uses (one server's time with a GPU each) that have not ended.
        past: the finished uses.
        span: day, week or month.
        now: by the wall clock.
    """
    running = [
        CountedUse(
            offer=use.offer,
            groups=use.groups,
            began=use.admitted,
            ended=None,
            end="",
            ready=use.ready is not None,
            devices=use.devices * use.share / WHOLE,
            waited_seconds=use.waited_seconds,
        )
        for use in state.uses.values()
        if use.offer != CPU
    ]
    # counting tens of thousands of uses takes long: in a thread, so that the event loop goes on
    return await asyncio.to_thread(days_of, (*past, *running), span, now)
