"""Culling on an A100 in MIG mode, where only DCGM knows the use: idle is warned, busy and unknown are kept."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from hub_extensions.core.messages import Report
from hub_extensions.core.offers.model import OfferConfig
from tests.fakes.machine import large, small
from tests.fakes.prometheus import TENSOR, PrometheusAsTold, PrometheusThatFails
from tests.hub_service.engine.room import Hands, Room, room
from tests.hub_service.engine.stops.test_culler import OPEN, one_turn, stops_finish
from tests.patience import patient

pytestmark = pytest.mark.programs

CARD = "GPU-a100"
SMALL = replace(small(0), parent_uuid=CARD)
LARGE = replace(large(0), parent_uuid=CARD)
STEP = timedelta(seconds=30)


@asynccontextmanager
async def a100(path: Path, prometheus: type[PrometheusAsTold] = PrometheusAsTold) -> AsyncIterator[Lab]:
    """A service on an A100 in MIG mode, whose instances tell no use, and a Prometheus beside it."""
    hands = Hands()
    told = prometheus(hands.unix_time)
    try:
        async with room(path, SMALL, LARGE, hands=hands, prometheus_url=told.url, prometheus_token="s3cret") as r:
            r.gpus.used = {SMALL.uuid: None, LARGE.uuid: None}
            await r.engine.watcher.refresh()
            yield Lab(r, told)
    finally:
        await told.stop()


class Lab:
    """The service and its Prometheus."""

    def __init__(self, r: Room, prometheus: PrometheusAsTold) -> None:
        self.room = r
        self.engine = r.engine
        self.prometheus = prometheus

    def measures(self, device: int | None, ratio: float, **labels: str) -> None:
        self.prometheus.tell(CARD, device, ratio, **labels)  # type: ignore[arg-type]

    async def minutes(self, count: float, report: Report | None = OPEN) -> None:
        """Let minutes pass; in each half of one everybody looks, asks and decides once."""
        for _ in range(int(count * 2)):
            self.room.hands.pass_time(STEP)
            await self.turn(report)

    async def turn(self, report: Report | None = OPEN) -> None:
        await self.engine.dcgm.refresh()
        await one_turn(self.room, report)

    def state(self, user: str = "ada"):  # type: ignore[no-untyped-def]
        state = self.engine.server_state(user, "")
        assert state is not None
        return state


async def test_an_a100_instance_that_dcgm_measured_idle_is_warned_and_then_stopped(tmp_path: Path) -> None:
    async with a100(tmp_path) as lab:
        await lab.room.run("ada", "mig-1g.5gb")
        lab.measures(SMALL.gpu_instance_id, 0.0)
        await lab.turn()
        await lab.minutes(2)
        countdown = lab.state().countdown
        assert countdown is not None and countdown.cause == "idle" and countdown.warn and countdown.can_keep
        await lab.minutes(1)
        await lab.engine.report("ada", "", replace(OPEN, saved=True))
        await stops_finish(lab.room)
        assert lab.room.hub.stopped == [("ada", "")]


async def test_an_a100_instance_that_dcgm_measured_busy_is_kept(tmp_path: Path) -> None:
    async with a100(tmp_path) as lab:
        await lab.room.run("ada", "mig-1g.5gb")
        lab.measures(SMALL.gpu_instance_id, 0.06)
        await lab.turn()
        await lab.minutes(15)
        assert lab.state().countdown is None and lab.room.hub.stopped == []
        lease = (await lab.engine.leases())[0]
        assert (lease.last_use_percent, lease.use_source) == (pytest.approx(6.0), "dcgm")


async def test_an_a100_instance_that_nobody_measured_is_kept(tmp_path: Path) -> None:
    async with a100(tmp_path) as lab:
        await lab.room.run("ada", "mig-1g.5gb")
        lab.measures(None, 0.0)
        lab.measures(LARGE.gpu_instance_id, 0.0)
        await lab.turn()
        await lab.minutes(15)
        state = lab.state()
        assert state.countdown is None and state.figures is None and lab.room.hub.stopped == []
        assert state.rule is not None and "not known" in state.rule.message


async def test_a_prometheus_that_goes_away_takes_the_countdown_back_a_minute_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with a100(tmp_path) as lab:
        await lab.room.run("ada", "mig-1g.5gb")
        lab.measures(SMALL.gpu_instance_id, 0.0)
        await lab.turn()
        await lab.minutes(2)
        assert lab.state().countdown is not None
        await lab.prometheus.stop()
        with caplog.at_level(logging.INFO, "hub_extensions.hub_service"):
            await lab.minutes(10)
        state = lab.state()
        assert state.countdown is None and state.figures is None and lab.room.hub.stopped == []
        said = [record.getMessage() for record in caplog.records if "Prometheus" in record.getMessage()]
        assert len(said) == 1 and said[0].startswith("Prometheus does not answer (")
        assert "s3cret" not in caplog.text
        health = lab.engine.health()
        assert health.prometheus_up is False
        assert (health.prometheus or "").startswith("no figures since 2026-01-05T12:02")


async def test_whoever_comes_back_while_the_notebooks_are_saved_is_seen_by_a_new_question(tmp_path: Path) -> None:
    async with a100(tmp_path) as lab:
        await lab.room.run("ada", "mig-1g.5gb")
        lab.measures(SMALL.gpu_instance_id, 0.0)
        await lab.turn()
        await lab.minutes(3)
        assert lab.state().save
        lab.measures(SMALL.gpu_instance_id, 0.9, ago=1.0)
        await lab.engine.report("ada", "", replace(OPEN, saved=True))
        await stops_finish(lab.room)
        assert lab.room.hub.stopped == [] and not lab.state().save


async def test_a_server_is_given_its_own_devices_figures_and_never_anothers(tmp_path: Path) -> None:
    async with a100(tmp_path) as lab:
        await lab.room.run("ada", "mig-1g.5gb")
        await lab.room.run("ben", "mig-2g.10gb")
        lab.measures(SMALL.gpu_instance_id, 0.25)
        lab.measures(SMALL.gpu_instance_id, 0.1, metric=TENSOR)
        lab.measures(LARGE.gpu_instance_id, 0.75)
        await lab.turn()
        ada, ben = lab.state("ada").figures, lab.state("ben").figures
        assert (ada.uuid, ada.used_percent, ada.source) == (SMALL.uuid, 25.0, "dcgm")
        assert ada.counters.tensor_percent == pytest.approx(10.0)
        assert (ben.uuid, ben.used_percent, ben.counters) == (LARGE.uuid, 75.0, None)
        lab.prometheus.series = [told for told in lab.prometheus.series if told.instance != SMALL.gpu_instance_id]
        await lab.turn()
        assert lab.state("ada").figures is None
        assert lab.state("ben").figures.uuid == LARGE.uuid


async def test_a_device_that_tells_its_use_here_is_not_asked_for_and_its_own_reading_counts(tmp_path: Path) -> None:
    async with a100(tmp_path) as lab:
        lab.room.gpus.used = {SMALL.uuid: 80.0, LARGE.uuid: None}
        await lab.engine.watcher.refresh()
        lab.measures(SMALL.gpu_instance_id, 0.0)
        await lab.turn(None)
        assert lab.prometheus.asked == [], "no lease needs it"
        await lab.room.run("ada", "mig-1g.5gb")
        await lab.minutes(10)
        assert lab.prometheus.asked == []
        assert lab.state().figures is None and lab.state().countdown is None
        assert (await lab.engine.leases())[0].use_source == "nvml"
        assert lab.engine.health().prometheus == "not asked: no leased GPU needs it"


async def test_without_an_address_nobody_is_asked_and_health_says_nothing_of_it(tmp_path: Path) -> None:
    async with room(tmp_path, SMALL) as r:
        r.gpus.used[SMALL.uuid] = None
        await r.run("ada", "mig-1g.5gb")
        await one_turn(r)
        await r.engine.dcgm.refresh()
        health = r.engine.health()
        assert (health.prometheus, health.prometheus_up) == (None, None)
        (evidence,) = health.evidence
        assert (evidence.source, evidence.leases, evidence.measured, evidence.reason) == ("none", 1, 0, "not-told")
        assert "c.GpuService.prometheus_url" in evidence.text
        r.gpus.used[SMALL.uuid] = 12.0
        await r.engine.watcher.refresh()
        (evidence,) = r.engine.health().evidence
        assert (evidence.source, evidence.measured, evidence.reason) == ("nvml", 1, "measured")


async def test_where_nobody_else_measures_and_reports_are_trusted_the_server_is_believed_about_itself(
    tmp_path: Path,
) -> None:
    idle, busy = replace(OPEN, used_percent=0.0), replace(OPEN, used_percent=60.0)
    async with a100(tmp_path) as lab:
        lab.engine.state.policies.base = replace(lab.engine.state.policy, trust_reports=True)
        await lab.room.run("ada", "mig-1g.5gb")
        await lab.turn(busy)
        await lab.minutes(10, busy)
        assert lab.state().countdown is None
        assert (await lab.engine.leases())[0].use_source == "report"
        await lab.minutes(2, idle)
        assert lab.state().countdown.cause == "idle"
        lab.measures(SMALL.gpu_instance_id, 0.9)
        await lab.turn(idle)
        assert lab.state().countdown is None, "what DCGM measured comes before what a server says of itself"


async def test_nobody_is_stopped_on_figures_of_a_prometheus_that_has_fallen_silent(tmp_path: Path) -> None:
    async with a100(tmp_path) as lab:
        await lab.room.run("ada", "mig-1g.5gb")
        lab.measures(SMALL.gpu_instance_id, 0.0)
        await lab.turn(OPEN)
        await lab.minutes(1.5, OPEN)
        assert lab.state().countdown is not None
        await lab.prometheus.stop()
        await lab.minutes(5, OPEN)
        assert lab.state().countdown is None and (await lab.engine.leases())[0].use_source == "none"
        assert lab.room.hub.stopped == []


async def test_the_running_service_asks_by_itself(tmp_path: Path) -> None:
    async with a100(tmp_path) as lab:
        await lab.room.run("ada", "mig-1g.5gb")
        lab.measures(SMALL.gpu_instance_id, 0.5)
        lab.engine.start()
        await asyncio.wait_for(lab.prometheus.was_asked.wait(), patient(10))
        assert lab.prometheus.tokens[0] == "Bearer s3cret"


@pytest.mark.whole
async def test_a_server_that_says_it_is_busy_outlives_no_lifetime(tmp_path: Path) -> None:
    busy = replace(OPEN, used_percent=100.0)
    async with a100(tmp_path) as lab:
        await lab.room.run("ada", "mig-1g.5gb")
        await lab.turn(busy)
        await lab.minutes(30, busy)
        await lab.engine.report("ada", "", replace(busy, saved=True))
        await stops_finish(lab.room)
        assert lab.room.hub.stopped == [("ada", "")]


async def test_an_old_report_of_a_server_is_no_evidence(tmp_path: Path) -> None:
    async with a100(tmp_path) as lab:
        await lab.room.run("ada", "mig-1g.5gb")
        await lab.turn(replace(OPEN, used_percent=0.0))
        await lab.minutes(10, None)
        assert lab.state().countdown is None and lab.room.hub.stopped == []


async def test_each_change_of_the_answer_is_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with a100(tmp_path, PrometheusThatFails) as lab:
        await lab.room.run("ada", "mig-1g.5gb")
        with caplog.at_level(logging.INFO, "hub_extensions.hub_service"):
            for status in (500, 500, 401, 401, 500):
                assert isinstance(lab.prometheus, PrometheusThatFails)
                lab.prometheus.status = status
                await lab.turn()
        said = [record.getMessage() for record in caplog.records if "Prometheus" in record.getMessage()]
        assert ["500" in line for line in said] == [True, False, True] and "401" in said[1]


async def test_what_dcgm_measured_is_kept_with_the_samples(tmp_path: Path) -> None:
    async with a100(tmp_path) as lab:
        await lab.room.run("ada", "mig-1g.5gb")
        lab.measures(SMALL.gpu_instance_id, 0.5)
        await lab.turn()
        sample = lab.engine.stop_runner.sample_of(next(iter(lab.engine.state.leases.values())))
        assert sample is not None
        assert (sample.used_percent, sample.source, sample.memory_used_bytes, sample.pids) == (50.0, "dcgm", 0, ())


# ------------------------------------------------------------------ the waits a panel shows


async def test_a_panel_shows_the_waits_of_the_offers_its_reader_may_have(tmp_path: Path) -> None:
    offers = OfferConfig(groups={"mig-2g.10gb": ("thesis",)})
    async with room(tmp_path, SMALL, replace(small(1), parent_uuid=CARD), LARGE, offers=offers) as r:
        r.hub.groups = {"ada": ("thesis",)}
        await r.run("ada", "mig-1g.5gb")
        await r.run("ben", "mig-1g.5gb")
        await r.engine.reconciler.reconcile()
        ada, ben = r.engine.server_state("ada", ""), r.engine.server_state("ben", "")
        assert ada is not None and ben is not None
        assert {offer.id for offer in ada.waits} == {"mig-2g.10gb", "cpu"}
        assert {offer.id for offer in ben.waits} == {"cpu"}, "a stranger does not see the group's offer"
        assert all(offer.id != ada.offer for offer in ada.waits), "its own offer is not among the others"
        r.hub.groups = {}
        r.hub.run("ada", "", pid=r.hub.running[("ada", "")].pid)
        await r.engine.reconciler.reconcile()
        left = r.engine.server_state("ada", "")
        assert left is not None and {offer.id for offer in left.waits} == {"cpu"}, "who left the group, too"


async def test_a_panel_says_how_many_are_ahead_and_no_names(tmp_path: Path) -> None:
    async with room(tmp_path, SMALL, LARGE) as r:
        await r.run("ada", "mig-1g.5gb")
        await r.run("ben", "mig-2g.10gb")
        await r.ask("cleo", "mig-2g.10gb")
        await r.ask("dora", "mig-2g.10gb")
        state = r.engine.server_state("ada", "")
        assert state is not None
        assert {offer.id: offer.waiting for offer in state.waits} == {"mig-2g.10gb": 2, "cpu": 0}
        assert not any(name in repr(state.waits) for name in ("ben", "cleo", "dora"))
