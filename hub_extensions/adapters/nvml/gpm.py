"""The NVIDIA driver's GPM counters of Hopper and newer cards: how busy a device is, and which of its parts.

``nvmlDeviceGetUtilizationRates`` does not work for MIG devices (nvml.h), and an A100 or A30 has no GPM, so for their
MIG devices it is not known how busy they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from hub_extensions.adapters.nvml.driver import Driver, NvmlFailure
from hub_extensions.adapters.nvml.states import NOT_SUPPORTED, SUCCESS, Scope
from hub_extensions.core.gpu.samples import Counters


class Counted(NamedTuple):
    """The change of one device's counters since the previous reading.

    Attributes:
        there: whether the device has counters that we may read. If it is False, later readings will not have them
            either.
        used_percent: 0 to 100, the share of time in which anything ran; `None` at the first reading, and if only this
            counter fails.
        counters: the share of time in which single parts of the device were active; `None` if none of them was
            measured.
    """

    there: bool
    used_percent: float | None = None
    counters: Counters | None = None


NOT_COUNTED = Counted(there=False)


class InstanceUse:
    """Measures how busy GPU instances and whole GPUs are, from the difference of two samples of the counters.

    Each device has two allocated samples that are used in turn.

    Args:
        clock: returns the monotonic clock in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._windows: dict[str, _Window] = {}
        self._support: dict[str, bool] = {}
        self._refused: dict[str, float] = {}

    def instance(self, driver: Driver, card: str, gpu: Any, instance_id: int, key: str) -> Counted:
        """Read the GPM counters of a GPU instance, and return how busy it was since the previous reading.

        The result is computed from the difference of the two readings: the share of time in which anything ran, and how
        busy the SMs, the tensor cores and the memory bandwidth were. The first reading has no result yet.

        Args:
            card: a name of the card that is the same in every reading.
            gpu: the NVML handle of the card.
            instance_id: the driver's number of the GPU instance.
            key: a name of the device. It has to be the same in every reading, because the previous reading is stored
                under it.
        """
        supported = self._supported(driver, card, gpu)
        if not supported:
            return Counted(there=supported is None)
        return self._counted(driver, key, "nvmlGpmMigSampleGet", gpu, instance_id)

    def whole(self, driver: Driver, gpu: Any, key: str) -> Counted:
        """Read the GPM counters of a whole GPU, and return how busy it was since the previous reading.

        The GPU is not in MIG mode. The result is computed from the difference of the two readings: the share of time in
        which anything ran, and how busy the SMs, the tensor cores and the memory bandwidth were. The first reading has
        no result yet.

        Args:
            gpu: the NVML handle of the GPU.
            key: a name of the GPU. It has to be the same in every reading, because the previous reading is stored under
                it.
        """
        supported = self._supported(driver, key, gpu)
        if not supported:
            return Counted(there=supported is None)
        return self._counted(driver, key, "nvmlGpmSampleGet", gpu)

    def keep_only(self, driver: Driver, keys: Iterable[str]) -> None:
        """Free the stored counters of all devices except those with these keys.

        A new GPU instance may get the number of a removed instance. Its counters must not be compared with those of the
        removed instance.
        """
        for key in set(self._windows) - set(keys):
            self._windows.pop(key).free(driver)

    def forget(self, driver: Driver) -> None:
        """Free all samples of counters before the driver is closed, and query again later which cards have counters."""
        self.keep_only(driver, ())
        self._support.clear()
        self._refused.clear()

    def _supported(self, driver: Driver, card: str, gpu: Any) -> bool | None:
        """Return whether the card has GPM counters. `None` if it did not answer this time.

        The card is asked once while the driver is open.

        Args:
            card: a name of the card that is the same in every reading.
            gpu: the NVML handle of the card.
        """
        if card in self._support:
            return self._support[card]
        try:
            answer = driver.call("nvmlGpmQueryDeviceSupport", gpu)
        except NvmlFailure as failure:
            if failure.scope is not Scope.CALL:
                raise
            if not failure.lasting:
                return None
            self._support[card] = False
            return False
        self._support[card] = bool(answer.isSupportedDevice)
        return self._support[card]

    def _counted(self, driver: Driver, key: str, take: str, gpu: Any, *instance: int) -> Counted:
        now = self._clock()
        if now - self._refused.get(key, -math.inf) < _ASK_AGAIN_SECONDS:
            return NOT_COUNTED
        window = self._windows.setdefault(key, _Window())
        if window.last is not None and now - window.taken < _SHORTEST_SECONDS:
            return window.counted
        fresh = window.spare or driver.ask("nvmlGpmSampleAlloc")
        if fresh is None:
            return Counted(there=True)
        window.spare = fresh
        try:
            driver.call(take, gpu, *instance, fresh)
        except NvmlFailure as failure:
            if failure.scope is not Scope.CALL:
                raise
            if not failure.lasting:
                return Counted(there=True)
            self._refused[key] = now
            return NOT_COUNTED
        counted = Counted(there=True)
        if window.last is not None and now - window.taken <= _LONGEST_SECONDS:
            counted = _between(driver, window.last, fresh)
        window.last, window.spare, window.taken, window.counted = fresh, window.last, now, counted
        return counted


@dataclass
class _Window:
    """The two samples of one device's counters.

    Attributes:
        last: the sample of the previous reading; `None` before the first one.
        spare: an allocated sample for the next reading; `None` before the first one.
        taken: when `last` was taken, in seconds of the monotonic clock.
        counted: the use that was computed at the previous reading. It is returned again if the next reading follows
            within 0.1 s, which is too short for a difference.
    """

    last: Any = None
    spare: Any = None
    taken: float = 0.0
    counted: Counted = NOT_COUNTED

    def free(self, driver: Driver) -> None:
        for sample in (self.last, self.spare):
            if sample is not None:
                driver.release("nvmlGpmSampleFree", sample)


_SHORTEST_SECONDS, _LONGEST_SECONDS = 0.1, 600.0
_ASK_AGAIN_SECONDS = 60.0
# nvml.h, nvmlGpmMetricId_t: GRAPHICS_UTIL, SM_UTIL, ANY_TENSOR_UTIL, DRAM_BW_UTIL
_METRICS = (1, 2, 5, 10)


def _between(driver: Driver, first: Any, second: Any) -> Counted:
    question = driver.library.c_nvmlGpmMetricsGet_t()
    question.version = 1
    question.numMetrics = len(_METRICS)
    question.sample1, question.sample2 = first, second
    for position, metric in enumerate(_METRICS):
        question.metrics[position].metricId = metric
        question.metrics[position].nvmlReturn = NOT_SUPPORTED  # until the library sets it
    if driver.ask("nvmlGpmMetricsGet", question) is None:
        return Counted(there=True)
    graphics, sm, tensor, dram = (_percent(question.metrics[position]) for position in range(len(_METRICS)))
    known = any(value is not None for value in (sm, tensor, dram))
    return Counted(True, graphics, Counters(sm, tensor, dram) if known else None)


def _percent(metric: Any) -> float | None:
    value = float(metric.value)
    if metric.nvmlReturn != SUCCESS or not math.isfinite(value):
        return None
    return min(max(value, 0.0), 100.0)
