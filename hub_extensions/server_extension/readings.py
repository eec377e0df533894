"""Converts what the driver reports about a device (the sample) into what the panel shows of it (the reading).

It adds the memory limit of this server, figures that were measured elsewhere, such as by Prometheus, and the reasons
for missing values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from hub_extensions.core.gpu.devices import Device
from hub_extensions.core.gpu.samples import Counters, DeviceSample
from hub_extensions.core.messages import Figures, GpuReading, Holder, ServerState
from hub_extensions.core.offers.pod_request import ALONE, POD_MARK
from hub_extensions.core.text.reasons import Reason, explain

NOT_MEASURABLE = explain("use-not-measurable")
NOT_YET = explain("use-not-yet-known")
NOT_READ = explain("device-not-read")
NOT_WHICH = explain("holders-not-known")
FRESH_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class HeldMemory:
    """The memory of one device that this server's own programs hold, and which programs they are.

    Attributes:
        own_memory_bytes: the sum over these programs; `None` if it is not known.
        holders: the notebooks and programs that hold the memory; `None` if they are not known.
        note: why `holders` or their amounts are not known or only probable; `None` if they are certain.
    """

    own_memory_bytes: int | None = None
    holders: tuple[Holder, ...] | None = None
    note: Reason | None = None


@dataclass(frozen=True, slots=True)
class Entitlement:
    """The sources from which it is known what this server may use of its devices.

    Attributes:
        uuids: this server's devices, in the order in which CUDA numbers them.
        environ: the server's environment variables, with HAMi's limits and, in a pod, how the pod got its GPU.
        asked: this server is connected to a GPU service, which knows the lease. Without a service, no device is shared
            by agreement.
        state: the service's last state of this server; `None` before the first one, or if the service does not know
            this server.
    """

    uuids: tuple[str, ...]
    environ: Mapping[str, str]
    asked: bool = False
    state: ServerState | None = None


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """The amount of memory of one device that this server may use.

    Attributes:
        shared: other servers may use the device too; also True if that is not known.
        limit_bytes: the limit; `None` if the server may use all memory of the device.
        limit_source: ``share`` (by agreement), ``hami`` (enforced by HAMi), or "" without a limit.
    """

    shared: bool
    limit_bytes: int | None = None
    limit_source: str = ""


@dataclass(frozen=True, slots=True)
class ExternalUse:
    """GPU use that this server did not measure: Prometheus has it from DCGM, and the service passes it on.

    Attributes:
        figures: the last figures that came from the service.
        fresh: False if no new figures have come for too long.
    """

    figures: Figures
    fresh: bool


class FiguresWatch:
    """Tracks how old the figures are that the service passes on (see `ExternalUse`). Not thread-safe.

    The figures have a time of another machine's clock. It only gives their age on arrival; from then on the age is
    counted by the monotonic clock.
    """

    def __init__(self) -> None:
        self._seen: tuple[Figures, float, float] | None = None

    def judge(self, figures: Figures | None, now: datetime, clock: float) -> ExternalUse | None:
        """Return the last figures, and whether they are fresh.

        Args:
            figures: the figures of the service's last state; `None` if they are missing or outdated.
            now: wall-clock time.
            clock: the monotonic clock in seconds.

        Returns:
            `None` if the service has never passed on any figures.
        """
        if figures is not None and (self._seen is None or self._seen[0].at != figures.at):
            self._seen = (figures, clock, max(0.0, (now - figures.at).total_seconds()))
        if self._seen is None:
            return None
        last, since, age = self._seen
        return ExternalUse(last, age + clock - since <= FRESH_SECONDS)


def reading_of(
    device: Device,
    sample: DeviceSample | None,
    at: datetime,
    *,
    held: HeldMemory | None = None,
    limit: MemoryLimit,
    outside: ExternalUse | None = None,
) -> GpuReading:
    """Return what the panel shows of one device.

    Args:
        device: the device's fixed properties.
        sample: what the driver reported about the device; `None` if it reported nothing.
        at: the time of the reading without a sample.
        held: memory that this server's programs hold; `None` if that was not examined.
        limit: how much memory this server may use.
        outside: use that was measured elsewhere; `None` if only this server measures the device.
    """
    held = held or HeldMemory()
    reading = GpuReading(
        uuid=device.uuid,
        product=device.product,
        profile=device.profile,
        memory_used_bytes=None if sample is None else sample.memory_used_bytes,
        memory_total_bytes=device.memory_bytes,
        used_percent=None if sample is None else sample.used_percent,
        source="nvml" if sample is None else sample.source,
        at=at if sample is None else sample.at,
        note=_note(sample),
        own_memory_bytes=held.own_memory_bytes,
        limit_bytes=limit.limit_bytes,
        limit_source=limit.limit_source,
        counters=None if sample is None else sample.counters,
        holders=held.holders,
        holders_note=held.note,
        shared=limit.shared,
    )
    if outside is None or outside.figures.uuid not in ("", device.uuid):
        return reading
    if reading.used_percent is not None or reading.source != "none":
        return reading  # the card reports it, or will with its next reading
    return _with_figures(reading, outside)


def _note(sample: DeviceSample | None) -> Reason | None:
    if sample is None:
        return NOT_READ
    if sample.used_percent is not None:
        return None
    return NOT_MEASURABLE if sample.source == "none" else NOT_YET


def _with_figures(reading: GpuReading, outside: ExternalUse) -> GpuReading:
    figures = outside.figures
    if figures.used_percent is None or not math.isfinite(figures.used_percent):
        return reading
    if not outside.fresh:
        return replace(reading, source=figures.source, note=explain("figures-old", since=figures.at))
    used = max(0.0, min(100.0, figures.used_percent))
    counters = reading.counters if figures.counters is None else _finite(figures.counters)
    return replace(reading, used_percent=used, source=figures.source, counters=counters, note=None)


def _finite(counters: Counters) -> Counters:
    """Replace NaN by `None`; Prometheus uses NaN for unknown values."""
    known = (counters.sm_percent, counters.tensor_percent, counters.dram_percent)
    return Counters(*(value if value is not None and math.isfinite(value) else None for value in known))


# ------------------------------------------------------------------ whose it is

_SIZE = re.compile(r"(\d{1,20})(?:\.\d+)?\s*([kmgt]?)i?b?", re.IGNORECASE)
_FACTORS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_MOST_WITHOUT_TOTAL = 1 << 40  # no card has a tebibyte; a larger limit is ignored if the card's size is not known


def memory_limit_of(device: Device, right: Entitlement) -> MemoryLimit:
    """Return the memory limit for one of this server's devices.

    If it is not known whether other servers use the device, it counts as shared, so that a neighbour's memory is never
    shown as this server's own. A limit of HAMi takes precedence over a share by agreement, because HAMi enforces it on
    CUDA programs. HAMi sets it on every device that it divides, whatever the lease contains.

    Args:
        right: the lease and environment variables from which the limit is known.
    """
    hami = _hami_limit(device, right)
    if hami is not None:
        return MemoryLimit(True, hami, "hami")
    mechanism = right.environ.get(POD_MARK)
    if mechanism:
        return _memory_limit_in_pod(device, right, mechanism)
    if not right.asked:
        return MemoryLimit(False)
    state = right.state
    if state is None or not {device.uuid, state.uuid} <= set(right.uuids):
        return MemoryLimit(True)
    if state.share >= 1:
        return MemoryLimit(False)  # a lease of several devices names one of them, and all are whole
    if state.uuid != device.uuid or state.memory_bytes is None:
        return MemoryLimit(True)
    total = device.memory_bytes
    return MemoryLimit(True, state.memory_bytes if total is None else min(state.memory_bytes, total), "share")


def _memory_limit_in_pod(device: Device, right: Entitlement, mechanism: str) -> MemoryLimit:
    """Return the memory limit in a pod, where the service does not know the device.

    Args:
        mechanism: how the pod got its GPU, such as by a device plugin or by HAMi. With an unknown mechanism, the device
            counts as shared.
    """
    if mechanism in _ALONE:
        return MemoryLimit(False)
    state = right.state
    if state is None or state.memory_bytes is None or state.memory_enforced or len(right.uuids) != 1:
        return MemoryLimit(True)
    if device.memory_bytes is not None and state.memory_bytes >= device.memory_bytes:
        return MemoryLimit(True)  # the lease names no part of it
    return MemoryLimit(True, state.memory_bytes, "share")


_ALONE = frozenset(mechanism.value for mechanism in ALONE)


def _hami_limit(device: Device, right: Entitlement) -> int | None:
    """Return HAMi's memory limit in bytes: ``CUDA_DEVICE_MEMORY_LIMIT_<index>``, or the variable without an index.

    `None` if neither is set. HAMi sometimes sets more than the device has; the result is then the device's size.
    """
    index = right.uuids.index(device.uuid) if device.uuid in right.uuids else 0
    name = "CUDA_DEVICE_MEMORY_LIMIT"
    limit, total = _bytes(right.environ.get(f"{name}_{index}") or right.environ.get(name) or ""), device.memory_bytes
    if limit is None or (total is None and limit >= _MOST_WITHOUT_TOTAL):
        return None
    return limit if total is None else min(limit, total)


def _bytes(text: str) -> int | None:
    """Parse a size as HAMi writes it, such as ``1024m``. `None` if it is malformed, or 0, with which HAMi sets no
    limit.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return None
    return int(match[1]) * _FACTORS[match[2].lower()] or None
