"""What a gate does about the others with the same database: it forgets what they ended, and takes the keys they made.

One of all makes the audits. What each does for itself: it asks the hub, it asks apps whether they answer (as it reaches
them, for the pages that it shows), and it keeps its own pace towards strangers.
Not here: how it hears of them (``adapters/store/gate_news.py``).
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
    """Until cancelled. Without a connection the gate goes on, and each session is asked about at the hub as ever."""
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
                await take_in(gate, each)
    finally:
        thread.submit(news.close)
        thread.shutdown(wait=False)


async def take_in(gate: Gate, news: News) -> None:
    """What another gate did counts here too."""
    if news.user:
        gate.answers.forget_programs(news.user)
    gate.sessions.hear(news.ended)
    try:
        if news.missed:
            await gate.sessions.catch_up()
        if news.missed or news.keys:
            await asyncio.to_thread(gate.refresh_keys)
    except Exception as problem:  # noqa: BLE001  # whatever it is, it is tried again within a minute
        log.warning("what other gates did cannot be read now: %s", type(problem).__name__)
