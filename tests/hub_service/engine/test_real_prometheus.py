"""The same with Debian's Prometheus and exporters of ours that name pods as dcgm-exporter does, in both dialects.

Samples have the machine's own time; the service's clock is turned.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from tests.fakes.cluster_table import ClusterTable, node
from tests.fakes.real_prometheus import Exporter, RealPrometheus
from tests.hub_service.engine.pod_room import SMALL, PodRoom, pod_room
from tests.hub_service.engine.room import Hands
from tests.hub_service.engine.stops.test_culler import one_turn, stops_finish

pytestmark = [pytest.mark.programs, pytest.mark.whole, pytest.mark.needs("prometheus")]

SHARED = "gpu.shared"


class RealTime(Hands):
    """Time passes for the service as the test says; what time it is, the machine says."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 1000.0

    def __getattribute__(self, name: str) -> object:
        return datetime.now(timezone.utc) if name == "wall" else super().__getattribute__(name)

    def pass_time(self, span: timedelta) -> None:
        self.seconds += span.total_seconds()


@asynccontextmanager
async def cluster_with_prometheus(path: Path) -> AsyncIterator[tuple[PodRoom, Exporter, Exporter, RealPrometheus]]:
    """Node a: cut into MIG devices, an exporter of before 4.9. Node b: a card for two, an exporter of today."""
    sliced = {"nvidia.com/gpu.sharing-strategy": "time-slicing", "nvidia.com/gpu.replicas": "2"}
    cluster = ClusterTable(
        node("a", (SMALL, 3)), node("b", (SHARED, 2), product="Tesla-T4-SHARED", labels=sliced), node("c", (SMALL, 1))
    )
    a, b = Exporter("a", since_4_9=False), Exporter("b", since_4_9=True)
    prometheus = RealPrometheus(path, a, b)
    prometheus.start()
    try:
        async with pod_room(path, cluster, hands=RealTime(), prometheus_url=prometheus.url) as r:
            yield r, a, b, prometheus
    finally:
        prometheus.stop()
        for exporter in (a, b):
            exporter.stop()


async def minutes(r: PodRoom, count: float) -> None:
    for _ in range(int(count * 2)):
        r.hands.pass_time(timedelta(seconds=30))
        await r.engine.dcgm.refresh()
        await one_turn(r, None)  # type: ignore[arg-type]


def figure(r: PodRoom, user: str) -> float | None:
    sample = r.engine.stop_runner.sample_of(r.lease(user))
    return None if sample is None else sample.used_percent


def warned(r: PodRoom) -> set[str]:
    return {user for user, _ in r.engine.state.facts if r.engine.server_state(user, "").countdown is not None}  # type: ignore[union-attr]


async def known(r: PodRoom, **figures: float | None) -> None:
    """Wait until Prometheus has read this, and the service asked for it."""

    async def asked() -> bool:
        await r.engine.dcgm.refresh()
        return all(figure(r, user) == (None if f is None else pytest.approx(f)) for user, f in figures.items())

    for _ in range(150):
        if await asked():
            return
        await asyncio.sleep(0.2)
    raise AssertionError((figures, {user: figure(r, user) for user in figures}, r.engine.health().prometheus))


async def card_known(r: PodRoom, user: str, percent: float) -> None:
    """Wait until Prometheus has read what the card that this server shares does."""
    for _ in range(150):
        await r.engine.dcgm.refresh()
        use = r.engine.dcgm.use(r.lease(user))
        if use is not None and use.card_percent == pytest.approx(percent):
            return
        await asyncio.sleep(0.2)
    raise AssertionError((user, r.engine.dcgm.use(r.lease(user))))


async def test_real_figures_stop_the_idle_and_nobody_else_and_a_prometheus_that_is_away_stops_nobody(
    tmp_path: Path,
) -> None:
    async with cluster_with_prometheus(tmp_path) as (r, a, b, prometheus):
        r.engine.state.policies.base = replace(r.engine.state.policy, lifetime=None, unopened=None)
        for user, on in (("idle", "a"), ("busy", "a"), ("moved", "c")):
            await r.run(user, on=on)
        for user in ("neighbour", "quiet"):
            await r.run(user, SHARED, on="b")
        a.says("jupyter-idle", 0.0, GPU_I_ID="7", GPU_I_PROFILE="1g.5gb")
        a.says("jupyter-busy", 0.6, GPU_I_ID="8", GPU_I_PROFILE="1g.5gb")
        a.says("jupyter-moved", 0.0, GPU_I_ID="9", GPU_I_PROFILE="1g.5gb")  # it runs on node c: this is an older pod's
        b.says("jupyter-neighbour", 0.9, vgpu="0")
        b.says("jupyter-quiet", 0.9, vgpu="1")
        await known(r, idle=0.0, busy=60.0, moved=None, neighbour=None, quiet=None)
        await card_known(r, "quiet", 90.0)
        assert r.engine.dcgm.why_not(r.lease("moved")) == "other-node"
        await minutes(r, 2)
        assert warned(r) == {"idle"}

        prometheus.stop()
        await minutes(r, 2)
        for _ in range(12):
            r.hands.pass_time(timedelta(minutes=5))
            await minutes(r, 0.5)
        assert warned(r) == set() and r.hub.stopped == []
        assert (r.engine.health().prometheus or "").startswith("no figures since")

        prometheus.start()
        await known(r, idle=0.0, busy=60.0)
        await minutes(r, 4)
        await stops_finish(r)  # type: ignore[arg-type]
        assert r.hub.stopped == [("idle", "")]
        b.says("jupyter-neighbour", 0.0, vgpu="0")
        b.says("jupyter-quiet", 0.0, vgpu="1")
        await known(r, neighbour=0.0, quiet=0.0, busy=60.0)
