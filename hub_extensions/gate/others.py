"""Follows what other gates do that share the database: sessions that they end, and keys that they create.

One of the gates runs the audits. Each gate does all other work itself: asking the hub, health checks of apps, and
limits for callers that are not signed in.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

from hub_extensions.adapters.store.errors import StoreUnavailable
from hub_extensions.adapters.store.gate_news import News, NewsFromOthers
from hub_extensions.gate.gate import Gate

log = logging.getLogger("hub_extensions.gate")

WAIT_SECONDS = 1.0
AGAIN_SECONDS = 0.5


async def follow_others(gate: Gate) -> None:
    """Apply the changes that other gates with the same database make, until cancelled.

    While the database cannot be reached, a session that another gate has ended is noticed when the hub is next asked
    about its token.
    """
    loop, news = asyncio.get_running_loop(), NewsFromOthers(gate.settings.store_url)
    thread, is_lost = ThreadPoolExecutor(1, "gate-news"), False
    try:
        while True:
            try:
                found = await loop.run_in_executor(thread, news.wait, WAIT_SECONDS)
            except StoreUnavailable as problem:
                if not is_lost:
                    log.warning("a sign-out at another gate is seen here when the hub is asked again: %s", problem)
                is_lost, found = True, []
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                is_lost = False
            if gate.audits is not None:
                gate.audits.is_ours = news.leads
            for each in found:
                await apply_news(gate, each)
    finally:
        thread.submit(news.close)
        thread.shutdown(wait=False)


async def apply_news(gate: Gate, news: News) -> None:
    """Apply what another gate with the same database has changed: ended sessions, signed-out users, and keys.

    Args:
        gate: this gate.
        news: the changes. If some were missed, sessions and keys are read again.
    """
    if news.user:
        gate.answers.invalidate_user(news.user)
    gate.sessions.note_ended(news.ended)
    try:
        if news.missed:
            await gate.sessions.catch_up()
        if news.missed or news.keys:
            await asyncio.to_thread(gate.refresh_keys)
    except Exception as problem:  # noqa: BLE001  # it is tried again within a minute
        log.warning("what other gates did cannot be read now: %s", type(problem).__name__)
