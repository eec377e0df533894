"""GPU metrics on Jupyter Server's ``/metrics``, if an administrator enables them.

They come from the sampler's last measurement, so a scrape does not read the GPU. Unknown values are absent, never 0.
``ServerApp.authenticate_prometheus`` decides who may read them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import monotonic

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import REGISTRY, Collector

from hub_extensions.core.messages import GpuReading
from hub_extensions.server_extension.sampler import Sampled

PREFIX = "jupyterhub_gpu_"
OLD_PERIODS = 3.0  # values are omitted after this many periods without a reading; the panel then shows them as old
VALUES: dict[str, tuple[str, Callable[[GpuReading], float | None]]] = {
    "memory_used_bytes": ("Memory in use on the device, by everybody on it.", lambda gpu: gpu.memory_used_bytes),
    "own_memory_bytes": ("Memory in use by this server's own programs.", lambda gpu: gpu.own_memory_bytes),
    "memory_limit_bytes": (
        "Memory that this server may use: its share, its limit, or the device's.",
        lambda gpu: gpu.memory_total_bytes if gpu.limit_bytes is None and not gpu.shared else gpu.limit_bytes,
    ),
    "utilization_ratio": ("Share of the time in which the device works.", lambda gpu: _ratio(gpu.used_percent)),
    "sm_active_ratio": (
        "Multiprocessors with work.",
        lambda gpu: None if gpu.counters is None else _ratio(gpu.counters.sm_percent),
    ),
    "tensor_active_ratio": (
        "Tensor pipes at work.",
        lambda gpu: None if gpu.counters is None else _ratio(gpu.counters.tensor_percent),
    ),
    "dram_active_ratio": (
        "Memory bandwidth in use.",
        lambda gpu: None if gpu.counters is None else _ratio(gpu.counters.dram_percent),
    ),
}
"""Metric name -> help text and function that returns the value. A ratio is from 0 to 1."""


def _ratio(percent: float | None) -> float | None:
    return None if percent is None else percent / 100


class GpuCollector(Collector):
    """Prometheus collector that converts the sampler's last measurement to metrics when ``/metrics`` is scraped.

    Args:
        latest: returns the sampler's last measurement.
        clock: returns the monotonic clock, by which the age of the measurement is judged.
    """

    def __init__(self, latest: Callable[[], Sampled], clock: Callable[[], float] = monotonic) -> None:
        self._latest = latest
        self._clock = clock

    def register(self) -> None:
        REGISTRY.register(self)

    def unregister(self) -> None:
        REGISTRY.unregister(self)

    def describe(self) -> tuple[Metric, ...]:
        """Return no metrics, because prometheus_client would otherwise call `collect` when the collector registers."""
        return ()

    def collect(self) -> Iterator[Metric]:
        sampled = self._latest()
        state = GaugeMetricFamily(PREFIX + "state", "1: the GPU's state now, by its word.", labels=["state"])
        state.add_metric([sampled.state], 1)
        yield state
        if sampled.read_at is None:
            return
        seconds = max(0.0, self._clock() - sampled.read_at)
        age = GaugeMetricFamily(PREFIX + "sample_age_seconds", "How old the last reading is.")
        age.add_metric([], seconds)
        yield age
        if seconds > OLD_PERIODS * max(sampled.period_seconds, 1.0):
            return  # the driver hangs, so the values are outdated
        for name, (meaning, value_of) in VALUES.items():
            family = GaugeMetricFamily(PREFIX + name, meaning, labels=["uuid", "profile", "product"])
            for gpu in sampled.gpus:
                value = value_of(gpu)
                if value is not None:
                    family.add_metric([gpu.uuid, gpu.profile or "", gpu.product], value)
            yield family
