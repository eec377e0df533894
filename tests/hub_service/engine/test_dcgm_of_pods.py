"""Culling on a cluster, where only DCGM knows the use: by the names of pods, with three questions for all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from hub_extensions.core.messages import Report
from hub_extensions.core.queue.model import Lease
from tests.fakes.cluster_table import ClusterTable, node
from tests.fakes.prometheus import PrometheusAsTold
from tests.hub_service.engine.pod_room import SMALL, PodRoom, pod_room
from tests.hub_service.engine.room import Hands
from tests.hub_service.engine.stops.test_culler import OPEN, one_turn, stops_finish

pytestmark = pytest.mark.slow

STEP = timedelta(seconds=30)
SHARED = "gpu.shared"
TIME_SLICED = {"nvidia.com/gpu.sharing-strategy": "time-slicing", "nvidia.com/gpu.replicas": "2"}


class Pods:
    """A service of a cluster and its Prometheus."""

    def __init__(self, r: PodRoom, prometheus: PrometheusAsTold) -> None:
        self.room = r
        self.engine = r.engine
        self.prometheus = prometheus

    def measures(self, user: str, ratio: float, instance: int | None = 7, **labels: str) -> None:
        told = {"namespace": "jhub", "pod": f"jupyter-{user}", "container": "notebook", "Hostname": "a", **labels}
        self.prometheus.tell("GPU-a100", instance, ratio, **told)  # type: ignore[arg-type]

    async def minutes(self, count: float, report: Report | None = None) -> None:
        """Let minutes pass; in each half of one everybody looks, asks and decides once."""
        for _ in range(int(count * 2)):
            self.room.hands.pass_time(STEP)
            await self.turn(report)

    async def turn(self, report: Report | None = None) -> None:
        await self.engine.dcgm.refresh()
        await one_turn(self.room, report)  # type: ignore[arg-type]

    def sample(self, user: str = "ada"):  # type: ignore[no-untyped-def]
        return self.engine.stop_runner.sample_of(self.room.lease(user))

    def countdown(self, user: str = "ada"):  # type: ignore[no-untyped-def]
        state = self.engine.server_state(user, "")
        assert state is not None
        return state.countdown


@asynccontextmanager
async def pods(path: Path, cluster: ClusterTable | None = None) -> AsyncIterator[Pods]:
    hands = Hands()
    told = PrometheusAsTold(hands.unix_time)
    try:
        async with pod_room(path, cluster, hands=hands, prometheus_url=told.url) as r:
            # nobody tells of an opening: idleness counts from the start, and not from the end of the time to open it
            r.engine.state.policies.base = replace(r.engine.state.policy, unopened=None)
            yield Pods(r, told)
    finally:
        await told.stop()


async def test_an_idle_mig_server_without_our_extension_is_warned_and_then_stopped(tmp_path: Path) -> None:
    """With an address, an A100's MIG device and all series 0 nobody was asked in 20 minutes, and it ran for ever."""
    async with pods(tmp_path) as lab:
        await lab.room.run("ada")
        await lab.room.run("ben")
        lab.measures("ada", 0.0)
        lab.measures("ben", 0.4, instance=8)
        await lab.turn()
        await lab.minutes(2)
        assert lab.countdown("ada").cause == "idle" and lab.countdown("ada").warn
        assert lab.countdown("ben") is None
        await lab.minutes(1)
        await stops_finish(lab.room)  # type: ignore[arg-type]
        assert lab.room.hub.stopped == [("ada", "")]
        sample = lab.sample("ben")
        assert (sample.used_percent, sample.source) == (pytest.approx(40.0), "dcgm")
        assert lab.engine.health().prometheus == "answers, with figures of 2 of 2 GPUs"


async def test_a_busy_server_is_not_stopped_by_an_idle_one_of_its_name_in_another_cluster(tmp_path: Path) -> None:
    async with pods(tmp_path) as lab:
        await lab.room.run("ada")
        lab.measures("ada", 0.8)
        await lab.turn()
        assert lab.sample().used_percent == pytest.approx(80.0)
        lab.prometheus.series = []
        lab.measures("ada", 0.0, Hostname="node-of-another-cluster")
        await lab.minutes(10)
        assert lab.sample() is None and lab.countdown() is None and lab.room.hub.stopped == []


async def test_a_busy_neighbour_on_a_shared_card_is_not_a_servers_own_use_and_an_idle_card_is_everybodys(
    tmp_path: Path,
) -> None:
    cluster = ClusterTable(node("a", (SHARED, 2), product="Tesla-T4-SHARED", labels=TIME_SLICED))
    async with pods(tmp_path, cluster) as lab:
        for user in ("ada", "ben"):
            await lab.room.run(user, SHARED)
            lab.measures(user, 0.9, None, vgpu=user)
        await lab.turn()
        await lab.minutes(5)
        assert lab.sample().used_percent is None and lab.countdown() is None and lab.room.hub.stopped == []
        for user in ("ada", "ben"):
            lab.measures(user, 0.0, None, vgpu=user)
        await lab.turn()
        await lab.minutes(2)
        assert lab.sample().used_percent == 0.0 and lab.countdown("ada").cause == lab.countdown("ben").cause == "idle"


async def test_where_prometheus_knows_the_use_the_servers_own_word_is_not_asked_for(tmp_path: Path) -> None:
    async with pods(tmp_path) as lab:
        await lab.room.run("ada")
        lab.measures("ada", 0.5)
        await lab.turn(replace(OPEN, used_percent=0.0))
        await lab.minutes(5, replace(OPEN, used_percent=0.0))
        assert lab.countdown() is None and (await lab.engine.leases())[0].use_source == "dcgm"


async def test_a_server_that_measures_work_is_kept_where_prometheus_sees_none(tmp_path: Path) -> None:
    """An exporter may show 0 of a busy card after weeks (NVIDIA/dcgm-exporter#662): with its figures handed out, the
    server's own 97 % was taken for their echo, and it was stopped at work."""
    async with pods(tmp_path) as lab:
        await lab.room.run("ada")
        lab.measures("ada", 0.0)
        await lab.turn(replace(OPEN, used_percent=97.0))
        assert lab.engine.server_state("ada", "").figures is not None  # type: ignore[union-attr]
        await lab.minutes(5, replace(OPEN, used_percent=97.0))
        assert lab.countdown() is None and lab.room.hub.stopped == []
        assert lab.engine.stop_runner.use_of(lab.room.lease("ada")) == 97.0
        await lab.minutes(3, OPEN)
        assert lab.countdown() is not None, "it measures no more"


async def test_a_forged_report_keeps_no_gpu_on_which_no_program_is(tmp_path: Path) -> None:
    """Two figures of the exporter contradict the report; a report that pauses starts no new delay."""
    async with pods(tmp_path) as lab:
        await lab.room.run("ada")
        lab.measures("ada", 0.0)
        lab.measures("ada", 12, metric="DCGM_FI_DEV_FB_USED")
        forged = replace(OPEN, used_percent=100.0)
        await lab.turn(forged)
        await lab.minutes(1, forged)
        assert lab.countdown() is None, "work that has just begun is not seen yet"
        for _ in range(2):
            await lab.minutes(0.5, replace(OPEN, used_percent=0.0))
            await lab.minutes(0.5, forged)
        assert lab.countdown() is not None and lab.countdown().cause == "idle"
        lease = lab.room.lease("ada")
        assert lab.engine.stop_runner.contradicted(lease) == (100.0, 0.0)
        lab.measures("ada", 900, metric="DCGM_FI_DEV_FB_USED")
        await lab.minutes(0.5, forged)
        assert lab.engine.stop_runner.use_of(lease) == 100.0, "a program is there: the exporter's use may be wrong"
        assert lab.countdown() is None and lab.room.hub.stopped == []


async def test_a_server_is_told_the_figures_of_its_own_gpu_without_a_uuid(tmp_path: Path) -> None:
    async with pods(tmp_path) as lab:
        await lab.room.run("ada")
        lab.measures("ada", 0.25)
        await lab.turn()
        figures = lab.engine.server_state("ada", "").figures  # type: ignore[union-attr]
        assert figures is not None and (figures.uuid, figures.used_percent, figures.source) == ("", 25.0, "dcgm")


async def test_the_log_says_what_labels_there_are_where_no_series_names_a_pod_of_ours(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with pods(tmp_path) as lab:
        await lab.room.run("ada")
        labels = {"k8s_pod_name": "nvidia-dcgm-exporter-x", "k8s_namespace_name": "gpu-operator", "k8s_node_name": "a"}
        lab.prometheus.tell("GPU-1", 7, 0.25, **labels)
        await lab.turn()
    assert "has the exporter's own pod in k8s_pod_name: either nobody uses the card" in caplog.text


async def test_six_questions_are_enough_however_many_servers_there_are(tmp_path: Path) -> None:
    async with pods(tmp_path, ClusterTable(node("a", (SMALL, 20)))) as lab:
        for number in range(20):
            await lab.room.run(f"u{number}")
            lab.measures(f"u{number}", number / 100, number, UUID=f"GPU-{number}")
        lab.prometheus.asked.clear()
        await lab.engine.dcgm.refresh()
        assert len(lab.prometheus.asked) == 6
        leases: list[Lease] = list(lab.engine.state.leases.values())
        found = {lease.user: lab.engine.stop_runner.sample_of(lease).used_percent for lease in leases}  # type: ignore[union-attr]
        assert found == {f"u{number}": pytest.approx(number) for number in range(20)}
        lab.room.hands.pass_time(timedelta(seconds=10))
        await lab.engine.dcgm.refresh()
        assert len(lab.prometheus.asked) == 11, "which kinds there are changes seldom"


async def test_health_says_for_each_offer_who_measures_it_since_when_and_what_to_do(tmp_path: Path) -> None:
    labels = {"nvidia.com/gpu.sharing-strategy": "none"}
    cluster = ClusterTable(node("a", (SMALL, 2)), node("b", ("gpu", 1), labels=labels))
    async with pods(tmp_path, cluster) as lab:

        def told(offer: str):  # type: ignore[no-untyped-def]
            return next(each for each in lab.engine.health().evidence if each.offer == offer)

        assert told(SMALL).reason == "not-asked-yet"
        lab.measures("somebody", 0.0, instance=9)
        await lab.engine.dcgm.refresh()
        assert (told(SMALL).source, told(SMALL).reason, told(SMALL).age_seconds) == ("dcgm", "ready", None)
        assert told("gpu").reason == "not-exported" and "dcgm-exporter" in told("gpu").text
        since = told(SMALL).since
        await lab.room.run("ada")
        await lab.turn()
        assert (told(SMALL).leases, told(SMALL).measured, told(SMALL).reason) == (1, 0, "pod-not-named")
        lab.measures("ada", 0.3)
        lab.room.hands.pass_time(STEP)
        await lab.turn()
        found = told(SMALL)
        assert (found.measured, found.reason, found.age_seconds) == (1, "measured", 5.0) and found.since > since
        assert "ada" not in repr(lab.engine.health())
        await lab.prometheus.stop()
        await lab.minutes(2)
        assert (told(SMALL).source, told(SMALL).reason) == ("none", "away")


@pytest.mark.parametrize(("whole", "device"), [(True, "GPU-a100"), (False, "")], ids=["a whole card", "a MIG device"])
async def test_minutes_and_records_have_the_card_that_dcgm_names(tmp_path: Path, whole: bool, device: str) -> None:
    labels = {"nvidia.com/gpu.sharing-strategy": "none"}
    cluster = ClusterTable(node("a", ("gpu", 2), labels=labels)) if whole else None
    async with pods(tmp_path, cluster) as lab:
        lease = await lab.room.run("ada", "gpu" if whole else SMALL)
        lab.measures("ada", 0.5, instance=None if whole else 7)
        await lab.minutes(3)
        rows = await lab.engine.store.samples(lease.id, lab.room.hands.wall - timedelta(hours=1))
        assert rows and {row.device for row in rows} == {device}
        assert lab.engine.state.uses[lease.id].device == device
