"""Finds out what measures the use of a cluster's GPUs, by asking Prometheus, for ``doctor``.

No user's server has to run for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Iterator
from typing import Literal, TypeVar

from hub_extensions.adapters.prometheus import DcgmReading, Prometheus
from hub_extensions.core.cluster.pools import Pool
from hub_extensions.core.culling.sources import TEXTS, outlook_of_pool
from hub_extensions.core.gpu.dcgm import Measured
from hub_extensions.core.offers.pod_request import ALONE, Mechanism
from hub_extensions.hub_service.setup.settings import Settings

Level = Literal["ok", "warning", "problem"]
T = TypeVar("T")
ASK_IT = "curl the address of c.GpuService.prometheus_url with /api/v1/query?query=up from this machine."


def use_sources(settings: Settings, pools: Collection[Pool]) -> Iterator[tuple[Level, str, str]]:
    """Yield findings about what measures the use of the cluster's GPUs.

    Each consists of a level, a sentence that names pools, and what to do about it ("" if nothing is wrong).

    Args:
        settings: the GPU service's settings.
        pools: the cluster's GPUs by pool (devices of one kind).
    """
    from hub_extensions.hub_service.engine.stops.dcgm import open_prometheus

    prometheus = open_prometheus(settings)
    kinds: frozenset[Measured] | None = None
    if prometheus is not None:
        answer = asyncio.run(ask_once(prometheus, prometheus.kinds()))
        if isinstance(answer, DcgmReading):
            yield "warning", answer.message, ASK_IT
            return
        kinds = answer
    elif not settings.culling.enabled:
        return
    every = {count.node for pool in pools for count in pool.nodes}
    found: dict[str, list[str]] = {}
    for pool in pools:
        nodes = {count.node for count in pool.nodes}
        by_claim = pool.mechanism is Mechanism.DRA
        asked = prometheus is not None
        outlook = outlook_of_pool(pool.id, nodes, every, kinds, asked=asked, answers=True, by_claim=by_claim)
        shared = "shared" if pool.mechanism not in ALONE or pool.replicas > 1 else ""
        found.setdefault(outlook.why or shared, []).append(pool.id)
    for why, names in sorted(found.items()):
        named = ", ".join(sorted(names))
        if not why:
            yield "ok", f"DCGM measures the use of {named}, and Prometheus has it.", ""
        elif why == "cut-on-demand":
            yield "ok", f"{named}: {TEXTS[why]}", ""
        elif why == "shared":
            yield "ok", f"DCGM measures the cards of {named}. {TEXTS[why]}", ""
        else:
            yield "warning", f"Nobody measures the use of {named} but the servers themselves.", TEXTS[why]
    if prometheus is not None:
        seen = asyncio.run(ask_once(prometheus, prometheus.labels()))
        for text in () if isinstance(seen, DcgmReading) else seen:
            yield ("warning" if "cannot be used" in text else "ok"), f"Prometheus: {text}", ""


async def ask_once(prometheus: Prometheus, question: Awaitable[T]) -> T:
    """Return the answer to one query, and close the connection to Prometheus.

    Args:
        question: the query.
    """
    try:
        return await question
    finally:
        prometheus.close()
