"""Follows what other gates with the same database do: sessions that they ended, and keys that they made.

One of the gates makes the audits. Each gate itself asks the hub, checks the health of apps, and limits strangers.
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
    """Follow the other gates until cancelled. Without a connection, ended sessions are noticed when the hub is asked
    again.
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
    """Apply what another gate did."""
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
