"""The admin's page with 1,000 cards in use and 500 people in line: its data, the page made of it, and the last days.

The engine is the real one on a real store; GPUs and the hub are as told. Each round something has changed, so nothing
that is kept from one page to the next helps. The last month has 30,000 uses.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import gzip
import tempfile
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from benchmarks.figures import latency_row
from hub_extensions.adapters.store import Changes
from hub_extensions.core.gpu.devices import Device
from hub_extensions.core.messages import Ask, Started, UsageRecord
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.overview.days import Span
from hub_extensions.core.overview.view import Asked
from hub_extensions.core.queue.cordons import MACHINE
from hub_extensions.core.queue.model import QueueLimits
from hub_extensions.core.text.translation import ENGLISH
from hub_extensions.hub_service.engine.stops.orders import KEEP_HOURS, STOP_MINUTES
from hub_extensions.hub_service.http.pages import admin_labels
from hub_extensions.hub_service.http.pages.frame import PLACES, Frame
from hub_extensions.hub_service.http.pages.pages import REFRESH_SECONDS, make_environment
from tests.hub_service.engine.room import Room, room

CARDS, WAITING, ROUNDS, USES = 1000, 500, 200, 30_000
GPU = OfferId("gpu")


async def measure(cards: int, waiting: int, rounds: int) -> None:
    """Fill a machine, then ask for page after page."""
    devices = [Device(f"GPU-{n:04}", "NVIDIA A100-SXM4-40GB", memory_bytes=40 << 30) for n in range(cards)]
    limits = QueueLimits(max_waiting=max(500, waiting), max_starting=cards + waiting)
    with tempfile.TemporaryDirectory() as folder:
        async with room(Path(folder), *devices, queue=limits) as r:
            await fill(r, cards, waiting)
            await records(r, USES)
            gc.set_threshold(20_000, 20, 50)  # as the service does
            gc.freeze()  # what a service has loaded at its start
            environment, data, processor, pages, weights = make_environment("/"), [], [], [], []
            for number in range(rounds):
                r.gpus.used[f"GPU-{number % cards:04}"] = float(number % 100)
                r.hands.pass_time(timedelta(seconds=2))
                await r.engine.watcher.refresh()
                began, worked = time.perf_counter(), time.process_time()
                view = await r.engine.admin_overview(Asked(cards=1 + number % 50, people=1 + number % 20))
                data.append(time.perf_counter() - began)
                processor.append(time.process_time() - worked)
                text = written(environment, view, r)
                pages.append(time.perf_counter() - began)
                weights.append(len(gzip.compress(text.encode())))
            counted = []
            for number in range(3 * 10):
                r.hands.pass_time(timedelta(minutes=2))
                began = time.perf_counter()
                await r.engine.days(tuple(Span)[number % 3])
                counted.append(time.perf_counter() - began)
    print(f"{cards:,} cards in use, {waiting} people in line, {USES:,} uses in the last month")
    print(latency_row("the page's data", data))
    print(latency_row("the same, of a processor", processor))
    print(latency_row("data and page", pages))
    print(latency_row("the last day, week and month, uncached", counted))
    print(f"a page: at most {max(weights) / 1000:.1f} kB gzip")


async def fill(r: Room, cards: int, waiting: int) -> None:
    """A server on each card, then people in line."""
    for first in range(0, cards + waiting, 250):
        users = [f"user-{n:04}" for n in range(first, min(first + 250, cards + waiting))]
        for user in users:
            r.hub.run(user, "", ready=False)
        states = await r.engine.ask_all([Ask(user, "", (GPU,), {"offers": [GPU]}) for user in users])
        for state in states:
            if state.answer == "admit":
                await r.engine.started(state.ticket, Started(state.attempt, ready=True))
                r.hub.run(state.user)
    await r.engine.watcher.refresh()


async def records(r: Room, count: int) -> None:
    """What has been used in the last month."""
    now, minute = r.hands.wall, timedelta(minutes=1)
    plain = UsageRecord("", "u", "", GPU, "gpu", 1000, now, "idle", groups=("course",), waited_seconds=60.0)
    every = 30 * 24 * 60 / count
    for first in range(0, count, 5000):
        made = []
        for n in range(first, min(first + 5000, count)):
            ended = now - n * every * minute
            began = ended - (10 + n % 300) * minute
            made.append(
                replace(
                    plain, key=f"k{n}", user=f"user-{n % 900}", ended=ended, admitted=began, asked=began, ready=began
                )
            )
        await r.engine.store.commit(Changes(usage=tuple(made)))


def written(environment: Any, view: Any, r: Room) -> str:
    """The page, as the handler writes it."""
    known = {"prefix": "/services/gpu/", "base_url": "/", "person": None, "t": ENGLISH}
    plain = environment.get_template("plain_frame.html").render(known, places=PLACES)
    return str(
        environment.get_template("admin.html").render(
            **known,
            frame=Frame(plain),
            refresh_seconds=REFRESH_SECONDS,
            now=r.hands.wall,
            tab="now",
            xsrf="x",
            words=admin_labels,
            machine_place=MACHINE,
            view=view,
            query={"search": "", "show": ""},
            link=lambda **changed: f"admin?{urlencode(changed)}",
            shown=("held", "idle"),
            stop_minutes=STOP_MINUTES,
            keep_hours=KEEP_HOURS,
        )
    )


def main() -> None:
    """Print the figures."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--cards", type=int, default=CARDS)
    arguments.add_argument("--waiting", type=int, default=WAITING)
    arguments.add_argument("--rounds", type=int, default=ROUNDS)
    chosen = arguments.parse_args()
    asyncio.run(measure(chosen.cards, chosen.waiting, chosen.rounds))


if __name__ == "__main__":
    main()
