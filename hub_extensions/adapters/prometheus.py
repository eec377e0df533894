"""Queries a Prometheus server for DCGM's measurements.

The queries select ranges, because the samples of a range have the time at which they were measured. The samples of an
instant query only have the time of the query. ``core/gpu/dcgm.py`` decides which device a series belongs to.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any
from urllib.parse import urlencode

from tornado.httpclient import HTTPClientError, HTTPRequest, HTTPResponse

from hub_extensions.adapters.files.mig_tables import compute_slices_of_product
from hub_extensions.adapters.http_client import HttpClient, http_client
from hub_extensions.core.gpu.dcgm import (
    FIELDS,
    HOST_LABELS,
    OTHER_NAMES,
    OWNERS,
    SPELLINGS,
    USE_NAMES,
    CardGpu,
    DcgmUse,
    Joined,
    Measured,
    MetricSeries,
    PodGpu,
    describe,
    hosts_of,
    join_cards,
    join_pods,
)
from hub_extensions.core.gpu.dcgm_history import STEP, PodHistory, past_use
from hub_extensions.core.gpu.devices import Device
from hub_extensions.core.gpu.mig import MigProfile, MigProfileError

SCALES = ("instance", "card")
NAMES = "|".join(FIELDS)
LOOKBACK = "2m"
"""Time range of a query. This is longer than the age at which a sample counts as old, so that an old sample can be
distinguished from a missing one.
"""
SECONDS = 5.0
ANSWER_BYTES = 32 * 1024 * 1024  # 1,000 pods with six fields, read every 10 s, are about 6 MiB
LONGEST_ADDRESS = 4000  # a longer query is sent as a form
LONGEST_SPAN, SHORTEST_SPAN = timedelta(hours=12), timedelta(hours=1)
"""Longest and shortest time that is requested in one query of the past: 12 hours of 1,000 pods, minute by minute, are
about 18 MiB.
"""
DIALECTS = tuple(namespace for namespace, _ in OWNERS)
"""The labels that can hold the namespace of a device's pod, depending on the exporter and on Prometheus."""
CARD_LABELS = tuple(name for name, ours in {"UUID": "UUID", **SPELLINGS}.items() if ours == "UUID")

_PLAIN = re.compile(r"[A-Za-z0-9-]+")


@dataclass(frozen=True, slots=True)
class DcgmReading:
    """The result of a query: DCGM's measurements, or why they are missing.

    Attributes:
        figures: the measurements, by UUID of the device or by lease id.
        missing: for each requested device or lease without a measurement, the reason: a key of `core.gpu.dcgm.WHY`.
            Empty if nothing could be read at all.
        reason: "" if Prometheus answered; otherwise ``away``, ``refused``, ``failed`` or ``no-prometheus``.
        message: the explanation as a sentence; "" without one.
        named: whether labels of the series contain names of nodes, so that a series of another node can be recognised.
    """

    figures: Mapping[str, DcgmUse] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    message: str = ""
    named: bool = False


class Prometheus:
    """Client of one Prometheus server. A failed query raises nothing: the answer is a `DcgmReading` with the reason."""

    def __init__(self, url: str, token: str = "", *, scale: str = "instance", seconds: float = SECONDS) -> None:
        """Create a client.

        Args:
            url: the address before ``/api/v1/query``.
            token: sent as a bearer token; "" for none.
            scale: what the exporter's ratio of a MIG device refers to: the device (``instance``) or the whole ``card``.
            seconds: time limit of an answer.
        """
        self._seconds = seconds
        self._url = url.rstrip("/")
        self._token = token
        self._scale = scale
        self._client: HttpClient | None = None

    async def query(self, wanted: Sequence[Device], devices: Sequence[Device], now: datetime) -> DcgmReading:
        """Return the measurements of devices of this machine by UUID.

        If `wanted` is empty, this only checks whether Prometheus answers.

        Args:
            wanted: the devices to measure.
            devices: all devices of the machine, because some may share a GPU instance.
            now: the present time, by which the age of measurements is judged.
        """
        cards = sorted({uuid for device in wanted if _PLAIN.fullmatch(uuid := _card(device))})
        if wanted and not cards:
            return DcgmReading(missing={device.uuid: "none" for device in wanted})
        answer = await self._series([question(label, cards or ["none"]) for label in CARD_LABELS])
        if isinstance(answer, DcgmReading):
            return answer
        sharers = Counter((_card(device), _instance(device)) for device in devices)
        gpus = [
            CardGpu(
                device.uuid,
                card := _card(device),
                instance := _instance(device),
                self.factor(device.profile, device.product),
                sharers[card, instance] > 1,
            )
            for device in wanted
        ]
        return _reading(join_cards(answer, gpus, now))

    async def query_pods(
        self, wanted: Sequence[PodGpu], nodes: Collection[str], now: datetime, *, named: bool = False
    ) -> DcgmReading:
        """Return the measurements of the GPUs of pods, by lease.

        Exporters write the namespace of a pod under different names; there is one query for each name.

        Args:
            wanted: the GPUs of pods to measure.
            nodes: names of all known nodes.
            now: the present time, by which the age of measurements is judged.
            named: whether labels of earlier series contained names of nodes. If so, the node is checked even if no
                label of this answer names a node.
        """
        namespaces = sorted({gpu.namespace for gpu in wanted if _PLAIN.fullmatch(gpu.namespace)})
        answer = await self._series([pods_question(dialect, namespaces or ["none"]) for dialect in DIALECTS])
        if isinstance(answer, DcgmReading):
            return answer
        joined = await asyncio.to_thread(join_pods, answer, wanted, nodes, now, named=named)  # 1,000 pods: 0.2 s
        return _reading(joined)

    async def kinds(self) -> frozenset[Measured] | DcgmReading:
        """Return which kinds of devices (MIG profiles and whole cards) exporters measure now, and on which hosts.

        If the query fails, the result is a `DcgmReading` with the reason.
        """
        answer = await self._answer({"query": KINDS}, "vector")
        if isinstance(answer, DcgmReading):
            return answer
        found = [item["metric"] for item in answer if isinstance(item, dict) and isinstance(item.get("metric"), dict)]
        return frozenset(
            Measured(hosts_of(one), str(one.get("GPU_I_PROFILE") or one.get("gpu_i_profile") or "")) for one in found
        )

    async def labels(self) -> tuple[str, ...] | DcgmReading:
        """Return sentences for an administrator about the labels that the series of GPU utilization have.

        If the query fails, the result is a `DcgmReading` with the reason.
        """
        answer = await self._answer({"query": SEEN}, "vector")
        if isinstance(answer, DcgmReading):
            return answer
        found = [item.get("metric") for item in answer if isinstance(item, dict)]
        return describe({str(key): str(text) for key, text in one.items()} for one in found if isinstance(one, dict))

    def factor(self, profile: str | None, product: str) -> float | None:
        """Return the factor by which a measured ratio is multiplied to get the ratio of the device alone.

        It differs from 1 only for a MIG device whose exporter gives the ratio of the whole card. `None` if it is not
        known.

        Args:
            profile: the MIG profile; `None` for a whole card.
            product: the name of the card's model.
        """
        if self._scale == "instance" or profile is None:
            return 1.0
        try:
            own = MigProfile.parse(profile).slices
        except MigProfileError:
            return None
        whole = compute_slices_of_product(product)
        return None if whole is None else whole / own

    def close(self) -> None:
        """Close the connections to Prometheus. Can be called twice."""
        if self._client is not None:
            self._client.close()
            self._client = None

    async def _series(self, queries: Sequence[str]) -> tuple[MetricSeries, ...] | DcgmReading:
        """Return the time series that these queries find, or a `DcgmReading` with the reason if a query fails.

        A series that several queries find is returned once.
        """
        answers = await asyncio.gather(*(self._answer({"query": query}, "matrix") for query in queries))
        return await asyncio.to_thread(self._each_once, answers)

    @staticmethod
    def _each_once(answers: Sequence[list[Any] | DcgmReading]) -> tuple[MetricSeries, ...] | DcgmReading:
        found: dict[tuple[str, frozenset[tuple[str, str]]], MetricSeries] = {}
        for answer in answers:
            if isinstance(answer, DcgmReading):
                return answer
            for series in filter(None, map(_one, answer)):
                found[(series.metric, frozenset(series.labels.items()))] = series
        return tuple(found.values())

    async def _answer(self, asked: Mapping[str, str], kind: str, route: str = "query") -> list[Any] | DcgmReading:
        """Return the result of one query, whose type has to be `kind`, or a `DcgmReading` with the reason if the query
        fails.

        Args:
            asked: the parameters of the query.
            kind: the type of result that Prometheus has to return, such as ``matrix``.
            route: the last part of the address of the API.
        """
        answer = await self._fetch(asked, route)
        if isinstance(answer, DcgmReading):
            return answer
        result = await asyncio.to_thread(_result, answer.body, kind)  # megabytes with many pods
        if result is None:
            return DcgmReading(reason="no-prometheus", message="What answers at prometheus_url is not a Prometheus.")
        return result

    async def pod_history(self, namespace: str, begin: datetime, end: datetime) -> tuple[PodHistory, ...] | DcgmReading:
        """Return for every pod of a namespace the highest utilization in each minute.

        The time is read in several spans, so one pod may have several entries. If a query fails for good, the result is
        a `DcgmReading` with the reason.

        Args:
            namespace: namespace of the pods.
            begin, end: the time for which the utilization is returned.
        """
        found: list[PodHistory] = []
        span, at = LONGEST_SPAN, begin
        while at < end:
            until = min(at + span, end)
            part = await self._span(namespace, at, until)
            if isinstance(part, DcgmReading):
                if span <= SHORTEST_SPAN or part.reason in ("refused", "no-prometheus"):
                    return part
                span /= 2  # the answer was too slow or too long
                continue
            found += part
            at = until
        return tuple(found)

    async def _span(self, namespace: str, begin: datetime, end: datetime) -> list[PodHistory] | DcgmReading:
        found: list[PodHistory] = []
        times = {
            "start": f"{(begin + STEP).timestamp():.0f}",
            "end": f"{end.timestamp():.0f}",
        }  # each sample covers the minute before its time
        for name in USE_NAMES:
            form = {"query": past_question(name, namespace), **times, "step": f"{STEP.total_seconds():.0f}"}
            answer = await self._answer(form, "matrix", "query_range")
            if isinstance(answer, DcgmReading):
                return answer
            found += await asyncio.to_thread(_pasts, answer, name)
        return found

    async def _fetch(self, asked: Mapping[str, str], route: str) -> HTTPResponse | DcgmReading:
        form = urlencode({**asked, "timeout": f"{self._seconds:g}s"})
        long = len(form) > LONGEST_ADDRESS
        request = HTTPRequest(
            f"{self._url}/api/v1/{route}" if long else f"{self._url}/api/v1/{route}?{form}",
            method="POST" if long else "GET",
            body=form if long else None,
            headers={
                "Accept": "application/json",
                **({"Content-Type": "application/x-www-form-urlencoded"} if long else {}),
                **({"Authorization": f"Bearer {self._token}"} if self._token else {}),
            },
            connect_timeout=self._seconds,
            request_timeout=self._seconds,
            follow_redirects=False,  # the token must not be sent elsewhere
            decompress_response=False,
        )
        if self._client is None:
            self._client = http_client(at_once=3, max_bytes=ANSWER_BYTES)
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


def question(label: str, cards: Iterable[str]) -> str:
    """Return the PromQL query for DCGM's recent measurements of GPUs of this machine.

    Args:
        label: the label that has the UUID of a GPU, one of `CARD_LABELS`.
        cards: UUIDs of the GPUs.
    """
    return f'{{__name__=~"{NAMES}",{label}=~"{"|".join(cards)}"}}[{LOOKBACK}]'


def pods_question(dialect: str, namespaces: Sequence[str]) -> str:
    """Return the PromQL query for DCGM's recent measurements of the GPUs of all pods of these namespaces.

    Args:
        dialect: the label that has the namespace of a pod, one of `DIALECTS`.
        namespaces: the namespaces.
    """
    return f'{{__name__=~"{NAMES}",{dialect}=~"{"|".join(namespaces)}"}}[{LOOKBACK}]'


def past_question(name: str, namespace: str) -> str:
    """Return the PromQL query for the highest value of a metric in each minute, by pod and MIG profile.

    Args:
        name: name of the metric.
        namespace: namespace of the pods.
    """
    by = f"max by ({', '.join(itertools.chain(*OWNERS))}, GPU_I_PROFILE)"
    return " or ".join(f'{by} (max_over_time({name}{{{label}="{namespace}"}}[1m]))' for label in DIALECTS)


KINDS = f'count by ({", ".join(HOST_LABELS)}, GPU_I_PROFILE, gpu_i_profile) ({{__name__=~"{"|".join(USE_NAMES)}"}})'
SEEN = f'{{__name__=~"{"|".join((*USE_NAMES, *OTHER_NAMES))}"}}'


def _reading(joined: Joined) -> DcgmReading:
    return DcgmReading(joined.uses, joined.missing, named=joined.named)


def _card(device: Device) -> str:
    return device.parent_uuid or ("" if device.profile else device.uuid)


def _instance(device: Device) -> str:
    return "" if device.gpu_instance_id is None else str(device.gpu_instance_id)


# ------------------------------------------------------------------ reading the answer


def _result(body: bytes, kind: str) -> list[Any] | None:
    """Return the result in an answer of Prometheus; `None` if the answer has another format or type of result.

    Args:
        body: the body of the answer.
        kind: the type of result that the answer has to contain, such as ``vector``.
    """
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return None
    data = answer.get("data") if isinstance(answer, dict) and answer.get("status") == "success" else None
    if not isinstance(data, dict) or data.get("resultType") != kind or not isinstance(data.get("result"), list):
        return None
    return list(data["result"])


def _one(item: Any) -> MetricSeries | None:
    """Convert one time series to its newest sample; `None` if it cannot be read, or if it is of another metric."""
    labels, values = (item.get("metric"), item.get("values")) if isinstance(item, dict) else (None, None)
    if not isinstance(labels, dict) or not isinstance(values, list) or labels.get("__name__") not in FIELDS:
        return None
    samples = [pair for pair in values if isinstance(pair, list) and len(pair) == 2 and _number(pair[0]) is not None]
    if not samples:
        return None
    at, value = max(samples, key=lambda pair: float(pair[0]))
    try:
        when = datetime.fromtimestamp(float(at), timezone.utc)
    except (OverflowError, ValueError, OSError):
        return None
    named = {str(name): str(text) for name, text in labels.items() if name != "__name__"}
    return MetricSeries(labels["__name__"], named, when, _number(value))


def _pasts(items: Iterable[Any], name: str) -> list[PodHistory]:
    return [each for item in items if (each := _past(item, name)) is not None]


def _past(item: Any, name: str) -> PodHistory | None:
    """Convert one time series to the utilization of a pod by the minute; `None` if it names no pod or cannot be read.

    Args:
        item: the series, as in Prometheus' answer.
        name: name of the metric.
    """
    labels, values = (item.get("metric"), item.get("values")) if isinstance(item, dict) else (None, None)
    if not isinstance(labels, dict) or not isinstance(values, list):
        return None
    pairs = [pair for pair in values if isinstance(pair, list) and len(pair) == 2]
    samples = {float(pair[0]): _number(pair[1]) for pair in pairs if _number(pair[0]) is not None}
    return past_use(name, {str(key): str(text) for key, text in labels.items()}, samples)


def _number(value: object) -> float | None:
    """Convert a value of Prometheus to a number; `None` if it is not a finite number.

    Prometheus writes times as numbers and values as text, also ``"NaN"`` and ``"+Inf"``.
    """
    if not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
