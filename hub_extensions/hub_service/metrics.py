"""What Prometheus reads: counts and states of the desk at the moment of the scrape, names ``jupyterhub_gpu_*``.

No user's name and no server's name is in any of them. Not here: who may read them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hub_extensions.core.messages import OfferState
from hub_extensions.hub_service.desk import Desk

PREFIX = "jupyterhub_gpu_"
LEASE_STATES = ("starting", "running", "ending", "lost")
USE_SOURCES = ("nvml", "gpm", "dcgm", "report", "simulated", "none")
COUNTERS = {
    "admitted": ("admissions", "offer", "Tickets admitted, by offer."),
    "refused": ("refusals", "word", "Tickets refused, by the word of the reason."),
    "ended": ("ticket_ends", "how", "Tickets ended, by how they ended."),
    "culled": ("culls", "cause", "Servers stopped by this service, by cause."),
    "store": ("store_errors", "what", "Writes that the store could not take."),
}
"""What the desk counts -> name, label and help of its counter."""


class DeskCollector(Collector):
    """Reads the desk when it is asked; keeps nothing."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def collect(self) -> Iterable[Metric]:
        """All metrics, once for each scrape."""
        yield from self._offers()
        yield self._tickets()
        yield self._leases()
        yield from self._use()
        yield from self._counters()
        yield from self._health()

    def _offers(self) -> Iterator[Metric]:
        offers = self._desk.form("", "", (), True).offers
        yield _by_offer(
            "offer_free", "Servers that could be given this offer now; absent while not known.", offers, "free"
        )
        yield _by_offer("offer_total", "Servers that could have this offer if nobody had any.", offers, "total")
        yield _by_offer("offer_held", "Taken by leases.", offers, "held")
        yield _by_offer(
            "offer_held_by_others", "Taken by processes this product did not start.", offers, "held_by_others"
        )
        yield _by_offer("offer_lost", "Gone under a lease.", offers, "lost")
        yield _by_offer("tickets_waiting", "Tickets in the line of this offer.", offers, "waiting")

    def _tickets(self) -> Metric:
        family = GaugeMetricFamily(PREFIX + "tickets", "Live tickets, by state.", labels=["state"])
        states = Counter(ticket.state for ticket in self._desk.tickets(None))
        for state in ("waiting", "admitted"):
            family.add_metric([state], states[state])
        return family

    def _leases(self) -> Metric:
        family = GaugeMetricFamily(PREFIX + "leases", "Leases that are not ended, by state.", labels=["state"])
        states = Counter(lease.state for lease in self._desk.leases())
        for state in LEASE_STATES:
            family.add_metric([state], states[state])
        return family

    def _use(self) -> Iterator[Metric]:
        """How busy the leased devices of each offer are, and who measured it."""
        leases = [lease for lease in self._desk.leases() if lease.state == "running"]
        sources = GaugeMetricFamily(
            PREFIX + "leases_measured",
            "Running leases by who measures the use of their device; none: it is not known, and nobody is stopped.",
            labels=["source"],
        )
        counted = Counter(lease.use_source for lease in leases)
        for source in USE_SOURCES:
            sources.add_metric([source], counted[source])
        yield sources
        use = GaugeMetricFamily(
            PREFIX + "offer_use_percent",
            "Mean use of the devices under running leases, 0 to 100; absent where none is known.",
            labels=["offer"],
        )
        known: dict[str, list[float]] = {}
        for lease in leases:
            if lease.last_use_percent is not None:
                known.setdefault(lease.offer, []).append(lease.last_use_percent)
        for offer, percents in sorted(known.items()):
            use.add_metric([offer], sum(percents) / len(percents))
        yield use

    def _counters(self) -> Iterator[Metric]:
        for what, (name, label, text) in COUNTERS.items():
            family = CounterMetricFamily(PREFIX + name, text, labels=[label])
            for (kind, word), count in sorted(self._desk.counts.items()):
                if kind == what:
                    family.add_metric([word], count)
            yield family

    def _health(self) -> Iterator[Metric]:
        health = self._desk.health()
        yield GaugeMetricFamily(
            PREFIX + "ready", "1: tickets are answered. 0: they are not.", value=float(health.ready)
        )
        age = GaugeMetricFamily(
            PREFIX + "inventory_age_seconds", "Since the GPUs were read; absent before the first time."
        )
        if health.inventory_age_seconds is not None:
            age.add_metric([], health.inventory_age_seconds)
        yield age
        answers = GaugeMetricFamily(
            PREFIX + "prometheus_answers",
            "1: the Prometheus asked for DCGM's figures answers. 0: it does not. Absent where none is configured.",
        )
        if health.prometheus_answers is not None:
            answers.add_metric([], float(health.prometheus_answers))
        yield answers
        seconds = self._desk.last_round_seconds
        yield GaugeMetricFamily(PREFIX + "round_seconds", "How long the last round of admissions took.", value=seconds)


def registry(desk: Desk) -> CollectorRegistry:
    """A registry of its own: nothing of this process that is not listed here is told."""
    own = CollectorRegistry(auto_describe=False)
    own.register(DeskCollector(desk))
    return own


def _by_offer(name: str, text: str, offers: Iterable[OfferState], attribute: str) -> Metric:
    family = GaugeMetricFamily(PREFIX + name, text, labels=["offer"])
    for offer in offers:
        value: int | None = getattr(offer, attribute)
        if value is not None and offer.id != "cpu":
            family.add_metric([offer.id], value)
    return family
