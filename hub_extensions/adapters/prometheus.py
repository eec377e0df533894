"""Asks a Prometheus server what DCGM measured: the use of MIG devices whose card tells it to nobody else (Ampere).

dcgm-exporter writes a GPU instance as the GPU's ``UUID`` and NVML's id of the instance, ``GPU_I_ID``; a whole GPU has
no ``GPU_I_ID``. The values are ratios, 0 to 1. What is asked is a range: the samples of an instant query carry the time
of the question, those of a range their own. Not here: who is asked about, and what follows from the answer.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import urlencode

from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest, HTTPResponse

from hub_extensions.adapters.mig_tables import compute_slices_of_product
from hub_extensions.core.gpu.devices import Device
from hub_extensions.core.gpu.mig import MigProfile, MigProfileError
from hub_extensions.core.gpu.samples import Counters
from hub_extensions.core.messages import Figures

SOURCE = "dcgm"
USE, SM = "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_SM_ACTIVE"
TENSOR, DRAM = "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE"
NAMES = "DCGM_FI_PROF_(GR_ENGINE|SM|PIPE_TENSOR|DRAM)_ACTIVE"
SCALES = ("instance", "card")

FRESH = timedelta(seconds=60)
"""A sample older than this, or that far in the future, says nothing about now."""
LOOK_BACK = "2m"
"""Longer than FRESH, so that "too old" can be told from "not there"."""
SECONDS = 5.0
ANSWER_BYTES = 8 * 1024 * 1024
NO_RATIO = 10.0
"""DCGM's blank values are huge (140737488355328.0); a ratio a little above 1 is real (NVIDIA/DCGM#152)."""
SAME = 0.01
"""Two series of one device that are this near each other say the same."""

_PLAIN = re.compile(r"[A-Za-z0-9-]+")

WHY = {
    "none": f"Prometheus has no {USE} of it: dcgm-exporter has to collect it, and Prometheus to read the exporter",
    "old": "its newest figure is more than 60 s old or in the future: let Prometheus read the exporter every 30 s or "
    "more often, and let the clocks agree",
    "no-number": "its figure is not a ratio",
    "differ": "several series of it disagree: one exporter has to be read for each card",
    "shared": "several devices share its GPU instance, and DCGM measures the whole instance",
    "no-scale": "its card's compute slices are not known: c.GpuService.dcgm_scale has to be 'instance' for it",
}
"""Why a device's use is not known, reason -> text for an admin."""


@dataclass(frozen=True, slots=True)
class DcgmReading:
    """One answer.

    Attributes:
        figures: by the UUID of the device, those that are known.
        missing: UUID -> why not, a key of `WHY`. Empty where nothing could be read at all.
        reason: "" it answered; ``away``, ``refused``, ``failed`` or ``no-prometheus``. message: a sentence; "" without.
    """

    figures: Mapping[str, Figures] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    message: str = ""


class Prometheus:
    """One Prometheus server. Whatever goes wrong is an answer; nothing is raised."""

    def __init__(self, url: str, token: str = "", *, scale: str = "instance", seconds: float = SECONDS) -> None:
        """`url`: what ``/api/v1/query`` is put behind. `token`: sent as a bearer token. `scale`: one of `SCALES`.

        `seconds`: an answer that takes longer is none.
        """
        self._seconds = seconds
        self._url = url.rstrip("/")
        self._token = token
        self._scale = scale
        self._client: AsyncHTTPClient | None = None

    async def query(self, wanted: Sequence[Device], devices: Sequence[Device], now: datetime) -> DcgmReading:
        """The figures of the devices wanted; `devices`: all there are, as some may share a GPU instance.

        With none wanted it only shows whether Prometheus answers.
        """
        cards = sorted({uuid for device in wanted if _PLAIN.fullmatch(uuid := _card(device))})
        if wanted and not cards:
            return DcgmReading(missing={device.uuid: "none" for device in wanted})
        answer = await self._fetch(question(cards or ["none"]))
        if isinstance(answer, DcgmReading):
            return answer
        series = _series(answer.body)
        if series is None:
            return DcgmReading(reason="no-prometheus", message="What answers at prometheus_url is not a Prometheus.")
        return read(series, wanted, devices, now, self._scale)

    def close(self) -> None:
        """Close the connections. Can be called twice."""
        if self._client is not None:
            self._client.close()
            self._client = None

    async def _fetch(self, query: str) -> HTTPResponse | DcgmReading:
        request = HTTPRequest(
            f"{self._url}/api/v1/query?{urlencode({'query': query, 'timeout': f'{self._seconds:g}s'})}",
            headers={
                "Accept": "application/json",
                **({"Authorization": f"Bearer {self._token}"} if self._token else {}),
            },
            connect_timeout=self._seconds,
            request_timeout=self._seconds,
            follow_redirects=False,  # the token is for this address alone
            decompress_response=False,
        )
        if self._client is None:
            self._client = AsyncHTTPClient(force_instance=True, max_clients=2, max_body_size=ANSWER_BYTES)
        try:
            answer = await self._client.fetch(request, raise_error=False)
        except (HTTPClientError, OSError, ValueError, asyncio.TimeoutError) as error:
            return DcgmReading(reason="away", message=f"Prometheus does not answer ({self._why(error)}).")
        if answer.code in (401, 403):
            text = f"Prometheus refuses the question ({answer.code}): c.GpuService.prometheus_token has to be allowed."
            return DcgmReading(reason="refused", message=text)
        if answer.code != 200:
            return DcgmReading(reason="failed", message=f"Prometheus answers with an error ({answer.code}).")
        return answer

    def _why(self, error: Exception) -> str:
        if isinstance(error, asyncio.TimeoutError) or "Timeout" in str(error):
            return f"nothing within {self._seconds:g} s"
        return getattr(error, "strerror", None) or str(error) or type(error).__name__


@dataclass(frozen=True, slots=True)
class MetricSeries:
    """One time series: its metric, its device, and its newest sample (a Unix time and a ratio; None: no ratio)."""

    metric: str
    card: str
    instance: str
    at: float
    ratio: float | None


def question(cards: Iterable[str]) -> str:
    """The one query, for these GPUs."""
    return f'{{__name__=~"{NAMES}",UUID=~"{"|".join(cards)}"}}[{LOOK_BACK}]'


def read(
    series: Sequence[MetricSeries], wanted: Sequence[Device], devices: Sequence[Device], now: datetime, scale: str
) -> DcgmReading:
    """What the series say of the devices wanted."""
    sharers = Counter((_card(device), _instance(device)) for device in devices)
    figures: dict[str, Figures] = {}
    missing: dict[str, str] = {}
    for device in wanted:
        found = _figures(device, series, now, scale) if sharers[_card(device), _instance(device)] <= 1 else "shared"
        if isinstance(found, Figures):
            figures[device.uuid] = found
        else:
            missing[device.uuid] = found
    return DcgmReading(figures, missing)


def _figures(device: Device, series: Sequence[MetricSeries], now: datetime, scale: str) -> Figures | str:
    factor = _factor(device, scale)
    if factor is None:
        return "no-scale"
    own = [each for each in series if (each.card, each.instance) == (_card(device), _instance(device))]
    used = _agreed([each for each in own if each.metric == USE], now)
    if isinstance(used, str):
        return used

    def percent(metric: str) -> float | None:
        known = _agreed([each for each in own if each.metric == metric], now)
        return None if isinstance(known, str) or known.ratio is None else _percent(known.ratio, factor)

    counters = Counters(percent(SM), percent(TENSOR), percent(DRAM))
    # A multiprocessor works only while the engine does. On MIG some versions show less of the engine than there was
    # (NVIDIA/DCGM#138): then the greater of the two is nearer to the truth, and keeps a server running.
    shown = max(_percent(used.ratio or 0.0, factor), counters.sm_percent or 0.0)
    at = datetime.fromtimestamp(used.at, timezone.utc)
    return Figures(device.uuid, at, shown, SOURCE, None if counters == Counters() else counters)


def _agreed(found: Sequence[MetricSeries], now: datetime) -> MetricSeries | str:
    """The one thing these series of one metric and device say now, or a key of `WHY`."""
    if not found:
        return "none"
    fresh = [each for each in found if abs(now.timestamp() - each.at) <= FRESH.total_seconds()]
    if not fresh:
        return "old"
    ratios = [each.ratio for each in fresh if each.ratio is not None]
    if len(ratios) < len(fresh):
        return "no-number"
    if max(ratios) - min(ratios) > SAME:
        return "differ"
    return max(fresh, key=lambda each: each.at)


def _percent(ratio: float, factor: float) -> float:
    return min(100.0, 100.0 * ratio * factor)


def _factor(device: Device, scale: str) -> float | None:
    """What a ratio is multiplied by to be one of the device; None: not known."""
    if scale == "instance" or device.profile is None:
        return 1.0
    try:
        own = MigProfile.parse(device.profile).slices
    except MigProfileError:
        return None
    whole = compute_slices_of_product(device.product)
    return None if whole is None else whole / own


def _card(device: Device) -> str:
    return device.parent_uuid or ("" if device.profile else device.uuid)


def _instance(device: Device) -> str:
    return "" if device.gpu_instance_id is None else str(device.gpu_instance_id)


# ------------------------------------------------------------------ reading the answer


def _series(body: bytes) -> tuple[MetricSeries, ...] | None:
    """The series of an answer; None: it is not Prometheus' answer to a range."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return None
    data = answer.get("data") if isinstance(answer, dict) and answer.get("status") == "success" else None
    if not isinstance(data, dict) or data.get("resultType") != "matrix" or not isinstance(data.get("result"), list):
        return None
    read = [_one(item) for item in data["result"]]
    return tuple(each for each in read if each is not None)


def _one(item: Any) -> MetricSeries | None:
    """One series; None: it has no labels or no samples that could be read."""
    labels, values = (item.get("metric"), item.get("values")) if isinstance(item, dict) else (None, None)
    if not isinstance(labels, dict) or not isinstance(values, list):
        return None
    samples = [pair for pair in values if isinstance(pair, list) and len(pair) == 2 and _number(pair[0]) is not None]
    if not samples:
        return None
    at, value = max(samples, key=lambda pair: float(pair[0]))
    ratio = _number(value)
    known = ratio is not None and 0.0 <= ratio <= NO_RATIO
    name, card, instance = (str(labels.get(key, "")) for key in ("__name__", "UUID", "GPU_I_ID"))
    return MetricSeries(name, card, instance, float(at), ratio if known else None)


def _number(value: object) -> float | None:
    """Prometheus writes times as numbers and values as text (``"NaN"`` and ``"+Inf"`` too); None: no finite number."""
    if not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
