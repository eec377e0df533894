"""The use of leased GPUs that the machine itself does not report, as measured by DCGM and stored in Prometheus.

On one machine, Prometheus is asked only about leased devices whose use the service cannot read itself. On a cluster, it
is asked about the pods of all leases. An answer counts until it is a minute old. After that the use is unknown, which
never counts as idle. ``adapters/prometheus.py`` has the queries, ``core/gpu/dcgm.py`` assigns time series to leases,
and ``server_evidence.py`` decides by the use.
"""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime

from hub_extensions.adapters.prometheus import DcgmReading, Prometheus
from hub_extensions.core.cluster.model import PodFacts
from hub_extensions.core.gpu.dcgm import FRESH, WHY, DcgmUse, Measured, PodGpu, names_a_node
from hub_extensions.core.gpu.devices import WHOLE, Device
from hub_extensions.core.gpu.samples import DeviceSample
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.offers.pod_request import ALONE
from hub_extensions.core.queue.model import Lease, LeaseState
from hub_extensions.hub_service.engine.state.state import State
from hub_extensions.hub_service.setup.settings import Settings

log = logging.getLogger("hub_extensions.hub_service")

EVERY = 10.0
"""Seconds between two queries."""
KINDS_EVERY = 60.0
"""Seconds between two queries about which kinds of GPUs are measured at all, which changes seldom."""


@dataclass(frozen=True, slots=True)
class _TimedUse:
    """A measurement of one device by DCGM.

    Attributes:
        use: the measurement.
        until: the time until which it counts, in seconds of the monotonic clock.
    """

    use: DcgmUse
    until: float


class Dcgm:
    """The measurements of the leased GPUs by DCGM; empty without a Prometheus.

    Args:
        state: the state, with the leases (servers' rights to GPUs).
        prometheus: the client of the configured Prometheus; `None` if none is configured.

    Attributes:
        away_since: wall-clock time since which queries fail. `None` if the last query was answered, or none was sent.
        reading: the last answer. `None` if no leased GPU has to be asked about.
        kinds: the kinds of a cluster's GPUs that exporters measured at the last query. `None` if not known.
    """

    def __init__(self, state: State, prometheus: Prometheus | None) -> None:
        self.state = state
        self.prometheus = prometheus
        self.away_since: datetime | None = None
        self.reading: DcgmReading | None = None
        self.kinds: frozenset[Measured] | None = None
        self._kinds_at: float | None = None
        self._named = False
        self._kept: dict[str, _TimedUse] = {}
        self._logged = ""

    async def refresh(self) -> None:
        """Ask Prometheus once about the leased GPUs whose use the service cannot read itself.

        Nothing is asked if no such GPU is leased, or if no Prometheus is configured.
        """
        if self.prometheus is None:
            return
        now = self.state.clock.utc_now()
        reading = await (self._ask_pods(now) if self.state.on_cluster else self._ask_devices(now))
        self.reading = reading
        if reading is None:
            self.away_since = None
            return
        await self._log_change(reading)
        if reading.reason:
            self.away_since = self.away_since or now
            return  # earlier measurements count until they are too old
        self.away_since = None
        elapsed = self.state.clock.elapsed()
        self._kept = {
            key: _TimedUse(use, elapsed + (FRESH - (now - use.at)).total_seconds())
            for key, use in reading.figures.items()
        }

    async def _ask_devices(self, now: datetime) -> DcgmReading | None:
        devices = [state.device for state in self.state.devices.values() if state.present]
        leased = {lease.uuid for lease in self.state.leases.values()}
        wanted = [device for device in devices if device.uuid in leased and self._not_measured(device)]
        return await self.prometheus.query(wanted, devices, now) if self.prometheus and wanted else None

    async def _ask_pods(self, now: datetime) -> DcgmReading | None:
        assert self.prometheus is not None
        elapsed = self.state.clock.elapsed()
        if self._kinds_at is None or elapsed - self._kinds_at >= KINDS_EVERY:
            self._kinds_at = elapsed
            kinds = await self.prometheus.kinds()
            if isinstance(kinds, DcgmReading):
                self.kinds = None
                return kinds
            self.kinds = kinds
        held = (LeaseState.STARTING, LeaseState.RUNNING, LeaseState.LOST)
        leases = [lease for lease in self.state.leases.values() if lease.state in held]
        wanted = [self._pod_gpu(lease, pod) for lease in leases if (pod := self.state.pods.of(lease)) is not None]
        if not wanted:
            return None
        survey = self.state.cluster.survey if self.state.cluster is not None else None
        nodes = {count.node for pool in (survey.pools.values() if survey else ()) for count in pool.nodes}
        self._named = self._named or names_a_node(
            itertools.chain.from_iterable(kind.hosts for kind in self.kinds or ()), nodes
        )
        reading = await self.prometheus.query_pods(wanted, nodes, now, named=self._named)
        # kept while our exporters are away, because a series of another cluster may name a pod of the same name
        self._named = self._named or reading.named
        return reading

    def _pod_gpu(self, lease: Lease, pod: PodFacts) -> PodGpu:
        """Return the properties of a pod and its GPU by which DCGM's time series of that GPU is found in Prometheus.

        Args:
            lease: the server's right to its GPU.
            pod: the pod of the server.
        """
        assert self.prometheus is not None
        pool = self.state.cluster.survey.pools.get(OfferId(lease.pool)) if self.state.cluster is not None else None
        served_by = OfferId(lease.pool)
        profile = served_by.mig.name if served_by.mig else None
        alone = lease.share == WHOLE and not served_by.base.endswith(".shared")
        if pool is not None:
            alone = alone and pool.mechanism in ALONE and pool.replicas == 1
        return PodGpu(
            lease=lease.id,
            namespace=pod.namespace,
            pod=pod.name,
            node=pod.node,
            uid=pod.uid,
            since=pod.created,
            profile=profile,
            devices=max(1, pod.requests.get(pool.resource, 1) if pool is not None else 1),
            shared=not alone,
            factor=self.prometheus.factor(profile, pool.product if pool is not None else ""),
        )

    def close(self) -> None:
        """Close the connections to Prometheus."""
        if self.prometheus is not None:
            self.prometheus.close()

    def use(self, lease: Lease) -> DcgmUse | None:
        """Return DCGM's present measurement of the GPU of a lease (a server's right to it).

        `None` without a measurement, or if it is too old.
        """
        kept = self._kept.get(_key(lease))
        if kept is None or self.state.clock.elapsed() > kept.until:
            return None
        return kept.use

    def why_not(self, lease: Lease) -> str:
        """Return why Prometheus' last answer lacked the use of a lease's GPU, as a code (a key of `core.gpu.dcgm.WHY`).

        A lease is a server's right to its GPU. "" if the answer contained it, or without an answer.
        """
        return "" if self.reading is None else self.reading.missing.get(_key(lease), "")

    def answers(self) -> bool | None:
        """Whether Prometheus answered the last query; True if none was sent yet.

        `None` if no Prometheus is configured.
        """
        return None if self.prometheus is None else self.away_since is None

    def status(self) -> str | None:
        """Return a sentence about Prometheus for administrators. `None` if no Prometheus is configured."""
        if self.prometheus is None:
            return None
        if self.reading is None:
            return "not asked: no leased GPU needs it"
        if self.away_since is not None:
            return f"no figures since {self.away_since.isoformat(timespec='seconds')}: {self.reading.message}"
        known, missing = len(self.reading.figures), len(self.reading.missing)
        return f"answers, with figures of {known} of {known + missing} GPUs"

    def _not_measured(self, device: Device) -> bool:
        sample = self.state.samples.get(device.uuid)
        return sample is None or sample.used_percent is None

    async def _log_change(self, reading: DcgmReading) -> None:
        """Log when Prometheus begins or ceases to lack measurements of leased GPUs, and why.

        If no time series names one of our pods, log the labels that the series have instead.

        Args:
            reading: the new answer.
        """
        lacking = Counter(reading.missing.values())
        kind = reading.reason or ",".join(sorted(lacking))
        if kind == self._logged:
            return
        wanted = len(reading.figures) + len(reading.missing)
        if reading.message:
            log.warning("%s The use of the GPUs that it measures is not known.", reading.message)
        elif lacking:
            for reason, count in sorted(lacking.items()):
                log.warning("Prometheus: no use of %d of %d leased GPU(s): %s.", count, wanted, WHY[reason])
            if "pod-not-named" in lacking and self.prometheus is not None:
                seen = await self.prometheus.labels()
                for text in () if isinstance(seen, DcgmReading) else seen:
                    log.warning("Prometheus: %s", text)
        else:
            log.info("Prometheus has the use of all %d leased GPU(s) that need it", wanted)
        self._logged = kind


def _key(lease: Lease) -> str:
    """Return the key of the measurements of a lease (a server's right to its GPU).

    The key is the lease's device, or the lease itself while its device is unknown.
    """
    return lease.uuid or lease.id


def open_prometheus(settings: Settings) -> Prometheus | None:
    """Return the client of the configured Prometheus. `None` if none is configured."""
    if not settings.prometheus_url:
        return None
    return Prometheus(settings.prometheus_url, settings.prometheus_token, scale=settings.dcgm_scale)


def merged(sample: DeviceSample | None, use: DcgmUse | None) -> DeviceSample | None:
    """Return the measurement of a device: the service's own, completed by DCGM's use if it lacks the use.

    Args:
        sample: the service's own measurement. `None` if the service has not measured the device.
        use: DCGM's measurement. `None` if DCGM has not measured the device. If both are `None`, the result is `None`.
    """
    if use is None or (sample is not None and sample.used_percent is not None):
        return sample
    if sample is None:
        return DeviceSample(
            use.uuid, use.at, use.used_percent, use.memory_bytes, None, use.source, counters=use.counters
        )
    return replace(sample, used_percent=use.used_percent, source=use.source, counters=use.counters)
