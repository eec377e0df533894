"""The service's metrics for Prometheus (``jupyterhub_gpu_*``): the engine's counts and states at each scrape.

No metric contains the name of a user or server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hub_extensions.core.messages import OfferState
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.stops import StopFault
from hub_extensions.hub_service.engine.engine import Engine

PREFIX = "jupyterhub_gpu_"
LEASE_STATES = ("starting", "running", "ending", "lost")
USE_SOURCES = ("nvml", "gpm", "dcgm", "report", "simulated", "none")
COUNTERS = {
    "admitted": ("admissions", "offer", "Tickets admitted, by offer."),
    "refused": ("refusals", "reason", "Tickets refused, by reason."),
    "ended": ("ticket_ends", "outcome", "Tickets ended, by how they ended."),
    "stop-failed": (
        "stop_attempt_failures",
        "reason",
        "Stops that the hub refused or did not hear; each is tried again.",
    ),
    "server-end": ("server_ends", "reason", "Servers that ended by themselves, by what happened to them."),
    "start-failed": ("start_failures", "reason", "Admitted starts that failed, by what happened to them."),
    "pods": ("pods_removed", "reason", "Pods that this service removed."),
    "notice-sent": ("notices_sent", "channel", "Notices to users that a receiver has taken."),
    "notice-failed": ("notices_failed", "channel", "Tries to send a notice to a user that failed."),
    "notice-given-up": ("notices_given_up", "channel", "Notices to users that were never sent."),
    "progress": (
        "progress_reports",
        "outcome",
        "Reports of trainings about their time left: accepted, or why not.",
    ),
    "store": ("store_errors", "operation", "Writes that the store could not take."),
}
"""Event of the engine -> name, label and help text of its counter."""


FORECAST = {
    "evaluated": ("evaluated", "Wait forecasts that came true, of the last 50 busy periods."),
    "busy_periods": ("busy_periods", "Busy periods that they were of, each from the first who waits to an empty line."),
    "coverage_p90": ("coverage_p90", "Share of them that started before P90, each busy time once; 0.9 is meant."),
    "coverage_p10_p90": ("coverage_p10_p90", "Share of them that started between P10 and P90; 0.8 is meant."),
    "median_error_seconds": ("median_error_seconds", "Median of how far the middle of a forecast was off."),
    "worse_than_baseline": ("worse_than_baseline", "1: the median of earlier waits would have been the better guess."),
    "rough": ("rough", "1: form and waiting page say that the forecast is rough."),
    "finished_uses": ("finished_uses", "Finished uses that the forecast has learned from."),
}
"""Field of `ForecastRecord` -> name and help text of its gauge."""


class EngineCollector(Collector):
    """Converts the engine's state to metrics each time Prometheus scrapes the service."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterable[Metric]:
        yield from self._offers()
        yield self._tickets()
        yield self._longest_wait()
        yield self._leases()
        yield from self._cluster()
        yield from self._use()
        yield from self._sizes()
        yield from self._forecasts()
        yield from self._counters()
        yield from self._culling()
        yield from self._health()

    def _offers(self) -> Iterator[Metric]:
        offers = self._engine.form("", "", (), True).offers
        yield _by_offer(
            "offer_free", "Servers that could be given this offer now; absent while not known.", offers, "free"
        )
        yield _by_offer("offer_capacity", "Servers that could have this offer if nobody had any.", offers, "total")
        yield _by_offer("offer_held", "Taken by leases.", offers, "held")
        yield _by_offer(
            "offer_held_by_others", "Taken by processes this product did not start.", offers, "held_by_others"
        )
        yield _by_offer("offer_lost", "Gone under a lease.", offers, "lost")
        yield _by_offer("tickets_waiting", "Tickets in the line of this offer.", offers, "waiting")

    def _tickets(self) -> Metric:
        family = GaugeMetricFamily(PREFIX + "tickets", "Live tickets, by state.", labels=["state"])
        states = self._engine.queue_figures().states
        for state in ("waiting", "admitted"):
            family.add_metric([state], states.get(state, 0))
        return family

    def _longest_wait(self) -> Metric:
        family = GaugeMetricFamily(
            PREFIX + "longest_wait_seconds",
            "Since when the one who waits longest is in line, by the first offer asked for; absent where nobody waits.",
            labels=["offer"],
        )
        now = datetime.now(timezone.utc)
        for offer, since in sorted(self._engine.queue_figures().waiting_since.items()):
            family.add_metric([offer], max(0.0, (now - since).total_seconds()))
        return family

    def _cluster(self) -> Iterator[Metric]:
        """Yield the devices of a cluster by pool (devices of one kind), and its problems. Nothing on one machine."""
        info = self._engine.cluster()
        if info is None:
            return
        devices = GaugeMetricFamily(
            PREFIX + "pool_devices",
            "Devices of a pool: total that can be given, free, held by pods of others. Not known ones are absent.",
            labels=["pool", "state"],
        )
        nodes = GaugeMetricFamily(PREFIX + "pool_nodes", "Nodes of a pool.", labels=["pool", "usable"])
        for pool in info.pools:
            figures = {"total": pool.total, "free": pool.free, "others": pool.held_by_others}
            for what, figure in figures.items():
                if figure is not None:
                    devices.add_metric([pool.pool, what], figure)
            for label, wanted in (("yes", True), ("no", False)):
                nodes.add_metric([pool.pool, label], sum(1 for node in pool.nodes if (not node.why) is wanted))
        yield devices
        yield nodes
        yield GaugeMetricFamily(
            PREFIX + "orphaned_pods", "Pods of ours that the hub has forgotten.", value=len(info.orphaned_pods)
        )
        yield GaugeMetricFamily(
            PREFIX + "offers_blocked",
            "Offers whose first in line finds no GPU: something outside this hub took it.",
            value=len(info.blocked_offers),
        )
        yield GaugeMetricFamily(
            PREFIX + "cluster_readable", "1: the cluster can be read.", value=float(not info.problem)
        )

    def _leases(self) -> Metric:
        family = GaugeMetricFamily(PREFIX + "leases", "Leases that are not ended, by state.", labels=["state"])
        states = self._engine.lease_states()
        for state in LEASE_STATES:
            family.add_metric([state], states.get(state, 0))
        return family

    def _use(self) -> Iterator[Metric]:
        """Yield how busy the leased devices of each offer are, and what measured it."""
        leases = tuple(self._engine.lease_uses())
        sources = GaugeMetricFamily(
            PREFIX + "leases_measured",
            "Running leases by who measures the use of their device; none: it is not known, and nobody is stopped.",
            labels=["source"],
        )
        counted = Counter(lease.source for lease in leases)
        for source in USE_SOURCES:
            sources.add_metric([source], counted[source])
        yield sources
        use = GaugeMetricFamily(
            PREFIX + "offer_utilization_ratio",
            "Mean use of the devices under running leases, 0 to 1; absent where none is known.",
            labels=["offer"],
        )
        idle = GaugeMetricFamily(
            PREFIX + "leases_idle",
            "Running leases whose device is known to do nothing now, by offer.",
            labels=["offer"],
        )
        doing_nothing = Counter(lease.offer for lease in leases if lease.percent == 0)
        for offer in sorted({lease.offer for lease in leases}):
            idle.add_metric([offer], doing_nothing[offer])
        yield idle
        known: dict[OfferId, list[float]] = {}
        for lease in leases:
            if lease.percent is not None:
                known.setdefault(lease.offer, []).append(lease.percent)
        for offer, percents in sorted(known.items()):
            use.add_metric([offer], sum(percents) / len(percents) / 100)
        yield use

    def _sizes(self) -> Iterator[Metric]:
        """Yield which part of each pool's hours would have fitted a smaller offer; pools with few uses are absent."""
        fitted = GaugeMetricFamily(
            f"{PREFIX}size_fitted_ratio",
            "Share of the device hours of 30 days that would have fitted a smaller offer.",
            labels=["pool"],
        )
        unused = GaugeMetricFamily(
            f"{PREFIX}size_unused_ratio",
            "Share of the device hours of 30 days in which the GPU was not used.",
            labels=["pool"],
        )
        for pool in self._engine.counted_fitting_hours():
            fitted.add_metric([pool.pool], pool.fitted / pool.known)
            unused.add_metric([pool.pool], pool.unused / pool.known)
        yield fitted
        yield unused

    def _forecasts(self) -> Iterator[Metric]:
        """Yield how good the wait forecasts for each pool (devices of one kind) are; unknown values are absent."""
        report = self._engine.forecasts()
        for attribute, (name, text) in FORECAST.items():
            family = GaugeMetricFamily(f"{PREFIX}forecast_{name}", text, labels=["pool"])
            for pool in report.pools:
                value: float | None = getattr(pool, attribute)
                if value is not None:
                    family.add_metric([pool.pool], float(value))
            yield family
        yield GaugeMetricFamily(
            f"{PREFIX}progress_distrusted_users",
            "Users whose reports about a training's time left move no forecast, because two were wrong by more than a "
            "factor of two.",
            value=self._engine.distrusted(),
        )
        age = GaugeMetricFamily(
            f"{PREFIX}forecast_age_seconds", "Since the likely waits were computed; absent where none are told."
        )
        took = GaugeMetricFamily(
            f"{PREFIX}forecast_cpu_seconds", "CPU time of the last computation of the likely waits."
        )
        for family, value in ((age, report.age_seconds), (took, report.cpu_seconds)):
            if value is not None:
                family.add_metric([], value)
            yield family

    def _counters(self) -> Iterator[Metric]:
        for what, (name, label, text) in COUNTERS.items():
            family = CounterMetricFamily(PREFIX + name, text, labels=[label])
            for (kind, value), count in sorted(self._engine.state.counts.items()):
                if kind == what:
                    family.add_metric([value], count)
            yield family

    def _culling(self) -> Iterator[Metric]:
        """Yield the numbers of servers that were stopped and of stops that have failed."""
        culls = CounterMetricFamily(
            PREFIX + "culls",
            "Servers stopped by this service, by cause and by the rule of the policy file; no rule: c.GpuCulling.",
            labels=["cause", "rule"],
        )
        for (cause, rule), count in sorted(self._engine.state.culls.items()):
            culls.add_metric([cause, rule], count)
        yield culls
        failed = GaugeMetricFamily(
            PREFIX + "stops_failed",
            "Stops that were not over by their deadline, and are not yet; each is tried again. The admin's page has "
            "which they are, and what to do.",
            labels=["reason"],
        )
        faults = Counter(each.fault for each in self._engine.failed_stops())
        for fault in StopFault:
            failed.add_metric([fault.value], faults[fault.value])
        yield failed

    def _health(self) -> Iterator[Metric]:
        health = self._engine.health()
        measured = GaugeMetricFamily(
            PREFIX + "offer_measurement_info",
            "1: who measures the use of the offer's GPUs now; source and reason are those of the health.",
            labels=["offer", "source", "reason"],
        )
        for each in health.evidence:
            measured.add_metric([each.offer, each.source, each.reason], 1)
        yield measured
        yield GaugeMetricFamily(
            PREFIX + "ready", "1: tickets are answered. 0: they are not.", value=float(health.ready)
        )
        age = GaugeMetricFamily(
            PREFIX + "inventory_age_seconds", "Since the GPUs were read; absent before the first time."
        )
        if health.inventory_age_seconds is not None:
            age.add_metric([], health.inventory_age_seconds)
        yield age
        ahead = GaugeMetricFamily(
            PREFIX + "hub_clock_offset_seconds",
            "By how much the hub's clock is ahead; beyond 60 either way nobody is stopped by last_activity. Absent "
            "while not known.",
        )
        if self._engine.state.hub_view.clock_ahead is not None:
            ahead.add_metric([], self._engine.state.hub_view.clock_ahead.total_seconds())
        yield ahead
        answers = GaugeMetricFamily(
            PREFIX + "prometheus_up",
            "1: the Prometheus asked for DCGM's figures answers. 0: it does not. Absent where none is configured.",
        )
        if health.prometheus_up is not None:
            answers.add_metric([], float(health.prometheus_up))
        yield answers
        valid = GaugeMetricFamily(
            PREFIX + "policy_file_valid",
            "1: the policy file of culling is in force as it is. 0: it cannot be used, and the rules of before are. "
            "Absent where there is none.",
        )
        if health.policy_file_valid is not None:
            valid.add_metric([], float(health.policy_file_valid))
        yield valid
        seconds = self._engine.state.last_admission_seconds
        yield GaugeMetricFamily(
            PREFIX + "last_admission_duration_seconds", "How long the last admission took.", value=seconds
        )


def registry(engine: Engine) -> CollectorRegistry:
    """Return a registry with the engine's metrics alone, without the default metrics of this process."""
    own = CollectorRegistry(auto_describe=False)
    own.register(EngineCollector(engine))
    return own


def _by_offer(name: str, text: str, offers: Iterable[OfferState], attribute: str) -> Metric:
    family = GaugeMetricFamily(PREFIX + name, text, labels=["offer"])
    for offer in offers:
        value: int | None = getattr(offer, attribute)
        if value is not None and offer.id != CPU:
            family.add_metric([offer.id], value)
    return family
