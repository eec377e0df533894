"""Use of a MIG device: the NVIDIA driver's GPM counters, which Hopper and newer cards have.

``nvmlDeviceGetUtilizationRates`` does not answer for a MIG device (nvml.h), and an A100 or A30 has no GPM either: there
its use is not known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from hub_extensions.adapters.nvml_driver import Driver, NvmlFailure


@dataclass
class _Window:
    sample: Any
    taken: float
    use: float | None


class InstanceUse:
    """Use of GPU instances from NVML's GPM counters: the difference of two samples that are kept between reads.

    NVML does not tell the use of a MIG device; where GPM is missing too (A100, A30) it is not known.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._windows: dict[str, _Window] = {}
        self._support: dict[str, bool] = {}

    def supported(self, driver: Driver, gpu_uuid: str, handle: Any) -> bool:
        """Does this card have the counters? Asked once while the driver is open."""
        if gpu_uuid not in self._support:
            answer = driver.ask("nvmlGpmQueryDeviceSupport", handle)
            self._support[gpu_uuid] = answer is not None and bool(answer.isSupportedDevice)
        return self._support[gpu_uuid]

    def use(self, driver: Driver, gpu: Any, instance_id: int, key: str) -> float | None:
        """0 to 100 since the last read; None at the first one, and where the counters do not answer."""
        fresh = driver.ask("nvmlGpmSampleAlloc")
        if fresh is None:
            return None
        try:
            taken = driver.ask("nvmlGpmMigSampleGet", gpu, instance_id, fresh)
        except NvmlFailure:
            driver.let_go("nvmlGpmSampleFree", fresh)
            raise
        now = self._clock()
        window = self._windows.get(key)
        if taken is None or (window is not None and now - window.taken < _SHORTEST_SECONDS):
            driver.let_go("nvmlGpmSampleFree", fresh)
            return None if taken is None or window is None else window.use
        use = None
        if window is not None:
            if now - window.taken <= _LONGEST_SECONDS:
                use = _graphics_use(driver, window.sample, fresh)
            driver.let_go("nvmlGpmSampleFree", window.sample)
        self._windows[key] = _Window(fresh, now, use)
        return use

    def keep_only(self, driver: Driver, keys: Iterable[str]) -> None:
        """Free the samples of devices that are gone: an instance made anew under the same number starts afresh."""
        for key in set(self._windows) - set(keys):
            driver.let_go("nvmlGpmSampleFree", self._windows.pop(key).sample)

    def forget_support(self) -> None:
        """Ask again which cards have the counters: the driver was closed."""
        self._support.clear()


_SHORTEST_SECONDS, _LONGEST_SECONDS = 0.1, 600.0
_GRAPHICS_USE = 1  # NVML_GPM_METRIC_GRAPHICS_UTIL: share of time in which anything ran


def _graphics_use(driver: Driver, first: Any, second: Any) -> float | None:
    question = driver.library.c_nvmlGpmMetricsGet_t()
    question.version = 1
    question.numMetrics = 1
    question.sample1, question.sample2 = first, second
    question.metrics[0].metricId = _GRAPHICS_USE
    if driver.ask("nvmlGpmMetricsGet", question) is None or question.metrics[0].nvmlReturn != 0:
        return None
    value = float(question.metrics[0].value)
    return min(max(value, 0.0), 100.0) if math.isfinite(value) else None
