"""The use of leased devices that the machine itself cannot tell, as DCGM measured it and Prometheus keeps it.

Asked only while there is such a device, and remembered until a sample is a minute old: a Prometheus that is away makes
the use unknown, never idle. Not here: how Prometheus is asked (``adapters/prometheus.py``), and what follows from it
(``culler.py``).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime

from hub_extensions.adapters.prometheus import FRESH, WHY, DcgmReading, Prometheus
from hub_extensions.core.gpu.devices import Device
from hub_extensions.core.gpu.samples import DeviceSample
from hub_extensions.core.messages import Figures
from hub_extensions.hub_service.engine.state import State
from hub_extensions.hub_service.setup.settings import Settings

log = logging.getLogger("hub_extensions.hub_service")

EVERY = 10.0
ECHO_SECONDS = 180.0
"""A server that was handed figures may report them as its own; that long after them its report says nothing new."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """Figures, and the reading of the machine's clock at which they were at the end of their time."""

    figures: Figures
    until: float


class Dcgm:
    """What DCGM says of the leased devices; without a Prometheus nothing is known.

    Attributes:
        away_since: wall-clock time since which there is no answer; None: the last question was answered, or none asked.
        reading: the last answer; None: there is nothing to ask.
    """

    def __init__(self, state: State, prometheus: Prometheus | None) -> None:
        self.state = state
        self.prometheus = prometheus
        self.away_since: datetime | None = None
        self.reading: DcgmReading | None = None
        self._kept: dict[str, _Kept] = {}
        self._handed_out: dict[str, float] = {}
        self._logged = ""

    async def run(self) -> None:
        """Ask every 10 s until cancelled, while there is something to ask."""
        while True:
            await self.refresh()
            await asyncio.sleep(EVERY)

    async def refresh(self) -> None:
        """Ask once about the leased devices whose use is not measured here; without one, ask nothing."""
        devices = [state.device for state in self.state.devices.values() if state.present]
        leased = {lease.uuid for lease in self.state.leases.values()}
        wanted = [device for device in devices if device.uuid in leased and self._not_measured(device)]
        if self.prometheus is None or not wanted:
            self.reading = self.away_since = None
            return
        now = self.state.clock.utc_now()
        reading = await self.prometheus.query(wanted, devices, now)
        self.reading = reading
        self._log_change(reading, len(wanted))
        if reading.reason:
            self.away_since = self.away_since or now
            return  # what was known stays so until it is old
        self.away_since = None
        elapsed = self.state.clock.elapsed()
        self._kept = {
            uuid: _Kept(found, elapsed + (FRESH - (now - found.at)).total_seconds())
            for uuid, found in reading.figures.items()
        }

    def close(self) -> None:
        """Close the connections."""
        if self.prometheus is not None:
            self.prometheus.close()

    def figures(self, uuid: str) -> Figures | None:
        """What is known of a device now; None: nothing, or it is old."""
        kept = self._kept.get(uuid)
        if kept is None or self.state.clock.elapsed() > kept.until:
            return None
        return kept.figures

    def hand_out(self, uuid: str) -> Figures | None:
        """The same, for the server that has this device: noted, because its next reports may only repeat it."""
        figures = self.figures(uuid)
        if figures is not None:
            self._handed_out[uuid] = self.state.clock.elapsed()
        return figures

    def handed_out_lately(self, uuid: str) -> bool:
        """Figures of this device were handed out a little while ago: a server's report may be their echo."""
        at = self._handed_out.get(uuid)
        return at is not None and self.state.clock.elapsed() - at <= ECHO_SECONDS

    def answers(self) -> bool | None:
        """It answered the last question, or there is none to ask; None: no Prometheus is configured."""
        return None if self.prometheus is None else self.away_since is None

    def status(self) -> str | None:
        """How it stands with Prometheus, for an admin; None: none is configured."""
        if self.prometheus is None:
            return None
        if self.reading is None:
            return "not asked: no leased device needs it"
        if self.away_since is not None:
            return f"no figures since {self.away_since.isoformat(timespec='seconds')}: {self.reading.message}"
        known, missing = len(self.reading.figures), len(self.reading.missing)
        return f"answers, with figures of {known} of {known + missing} devices"

    def _not_measured(self, device: Device) -> bool:
        sample = self.state.samples.get(device.uuid)
        return sample is None or sample.used_percent is None

    def _log_change(self, reading: DcgmReading, wanted: int) -> None:
        """One line for each change of the kind of answer."""
        lacking = Counter(reading.missing.values())
        kind = reading.reason or ",".join(sorted(lacking))
        if kind == self._logged:
            return
        if reading.message:
            log.warning("%s The use of %d leased device(s) is not known.", reading.message, wanted)
        elif lacking:
            for reason, count in sorted(lacking.items()):
                log.warning("Prometheus: no use of %d of %d leased device(s): %s.", count, wanted, WHY[reason])
        else:
            log.info("Prometheus has the use of all %d leased device(s) that need it", wanted)
        self._logged = kind


def open_prometheus(settings: Settings) -> Prometheus | None:
    """The Prometheus of the settings; None: there is none."""
    if not settings.prometheus_url:
        return None
    return Prometheus(settings.prometheus_url, settings.prometheus_token, scale=settings.dcgm_scale)


def merged(sample: DeviceSample | None, figures: Figures | None) -> DeviceSample | None:
    """The machine's own sample; where it has no use, with that of DCGM in it."""
    if figures is None or (sample is not None and sample.used_percent is not None):
        return sample
    if sample is None:
        return DeviceSample(
            figures.uuid, figures.at, figures.used_percent, None, None, figures.source, counters=figures.counters
        )
    return replace(sample, used_percent=figures.used_percent, source=figures.source, counters=figures.counters)
