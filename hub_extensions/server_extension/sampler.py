"""One thread that reads this server's GPU: each second while watched, else every 10 s, never without one.

NVML blocks and can hang, so it is called in this thread only. A hung call is told, and holds neither the server nor its
shutdown (the thread is a daemon). Not here: which process or user holds what; that is the service's business.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from time import monotonic
from typing import Protocol

from hub_extensions.core.inventory import Device, GpusUnavailable, InventoryReading
from hub_extensions.core.messages import GpuReading

WATCHED_SECONDS = 1.0
UNWATCHED_SECONDS = 10.0
HUNG_AFTER_SECONDS = 5.0
"""A call of the driver that takes longer than this is told as "not answering"; ordinary calls take milliseconds."""

NOT_UNDER_A_HUB = "This server was not started by a hub with GPU offers."
NO_GPU = "This server has no GPU."
NOT_MEASURABLE = "Use cannot be measured on this card. Memory is."
NOT_YET = "Use is not known yet."

log = logging.getLogger(__name__)


class Reader(Protocol):
    """What reads the GPUs: ``adapters.nvml.Nvml``, or ``adapters.simulated.SimulatedGpus``."""

    def read(self, now: datetime) -> InventoryReading:
        """One look; raises ``GpusUnavailable``."""
        ...

    def close(self) -> None:
        """Let go of the driver."""
        ...


@dataclass(frozen=True)
class Sampled:
    """The last look: `state` and `sentence` as in ``messages.Snapshot``; readings keep the time they were taken at."""

    state: str
    sentence: str
    gpus: tuple[GpuReading, ...] = ()


def leased_uuids(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The devices this server was given, from its environment; empty for CPU only (``void``) and outside a hub."""
    if "JUPYTERHUB_GPU_LEASE" not in environ:
        return ()
    words = (word.strip() for word in environ.get("CUDA_VISIBLE_DEVICES", "").split(","))
    return tuple(word for word in words if word.startswith(("GPU-", "MIG-")))


class Sampler:
    """Reads the leased devices in one thread; everybody else only takes the last look.

    Args:
        open_reader: makes the reader; called in the thread, at the first use.
        uuids: the leased devices; without one nothing is opened and no thread is started.
        no_gpu: the sentence to show then.
        watched_seconds, unwatched_seconds, hung_after_seconds: periods.
    """

    def __init__(
        self,
        open_reader: Callable[[], Reader],
        uuids: tuple[str, ...],
        *,
        no_gpu: str = NO_GPU,
        watched_seconds: float = WATCHED_SECONDS,
        unwatched_seconds: float = UNWATCHED_SECONDS,
        hung_after_seconds: float = HUNG_AFTER_SECONDS,
    ) -> None:
        self._open_reader = open_reader
        self._uuids = uuids
        self._watched_seconds = watched_seconds
        self._unwatched_seconds = unwatched_seconds
        self._hung_after_seconds = hung_after_seconds
        self._condition = threading.Condition()
        self._watchers = 0
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._call: tuple[float, datetime] | None = None
        first = Sampled("no-gpu", no_gpu) if not uuids else Sampled("starting", "The GPU is being read.")
        self._sampled = first

    def start(self) -> None:
        """Start the thread; does nothing without a GPU, or when it runs already."""
        if not self._uuids or self._thread is not None:
            return
        self._thread = threading.Thread(target=self._run, name="jupyterhub-gpu-sampler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Tell the thread to end; does not wait for a call of the driver that hangs."""
        with self._condition:
            self._stopped = True
            self._condition.notify_all()

    def watch(self) -> None:
        """Somebody looks: sample now and every second, until `unwatch`."""
        with self._condition:
            self._watchers += 1
            self._condition.notify_all()

    def unwatch(self) -> None:
        """One who looked is gone."""
        with self._condition:
            self._watchers = max(0, self._watchers - 1)

    def latest(self) -> Sampled:
        """The last look, or that the driver has not answered since; never blocks on the driver."""
        call = self._call
        sampled = self._sampled
        if call is None or monotonic() - call[0] < self._hung_after_seconds:
            return sampled
        since = call[1].astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        return replace(sampled, state="not-answering", sentence=f"The GPU driver is not answering since {since}.")

    def _run(self) -> None:
        reader: Reader | None = None
        while True:
            try:
                if reader is None:
                    reader = self._open_reader()
                sampled = self._look(reader)
            except Exception as error:  # noqa: BLE001 - the thread has to survive whatever a driver does; it is told, and logged once
                sampled = Sampled("unknown", f"The GPU cannot be read: {error}", self._sampled.gpus)
            self._call = None
            self._tell(sampled)
            if not self._wait_for_next():
                break
        if reader is not None:
            reader.close()

    def _wait_for_next(self) -> bool:
        """Sleep for the period; a first watcher cuts it short. False: the end."""
        with self._condition:
            if self._stopped:
                return False
            if self._watchers:
                self._condition.wait_for(lambda: self._stopped, self._watched_seconds)
            else:
                self._condition.wait_for(lambda: self._stopped or self._watchers > 0, self._unwatched_seconds)
            return not self._stopped

    def _look(self, reader: Reader) -> Sampled:
        now = datetime.now(timezone.utc)
        self._call = (monotonic(), now)
        try:
            reading = reader.read(now)
        except GpusUnavailable as error:
            return Sampled(error.word, error.sentence, self._sampled.gpus)
        devices = {device.uuid: device for device in reading.devices}
        gpus = tuple(_reading(devices[uuid], reading) for uuid in self._uuids if uuid in devices)
        if len(gpus) < len(self._uuids):
            return Sampled("lost", "The GPU of this server is gone from this machine. Save your work.", gpus)
        return Sampled("ok", "", gpus)

    def _tell(self, sampled: Sampled) -> None:
        before, self._sampled = self._sampled, sampled
        if before.state == sampled.state:
            return  # one log line a change, never one a tick
        log.info("GPU: %s %s", sampled.state, sampled.sentence)


def _reading(device: Device, reading: InventoryReading) -> GpuReading:
    sample = reading.samples.get(device.uuid)
    used = None if sample is None else sample.used_percent
    note = ""
    if sample is None:
        note = "This GPU could not be read."
    elif used is None:
        note = NOT_MEASURABLE if sample.source == "none" else NOT_YET
    return GpuReading(
        uuid=device.uuid,
        product=device.product,
        profile=device.profile,
        memory_used_bytes=None if sample is None else sample.memory_used_bytes,
        memory_total_bytes=device.memory_bytes,
        used_percent=used,
        source="none" if sample is None else sample.source,
        at=reading.at if sample is None else sample.at,
        note=note,
    )
