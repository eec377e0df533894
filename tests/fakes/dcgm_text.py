"""What dcgm-exporter writes at ``/metrics``: recorded (``dcgm/*.prom`` say where and by whom), or as a test wants it.

`scraped` makes of it what Prometheus has afterwards, in both dialects: where it honours the exporter's labels, and
where its own labels of the exporter's pod push them aside (``exported_…``).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from hub_extensions.core.gpu.dcgm import FIELDS, MetricSeries

RECORDED = Path(__file__).with_name("dcgm")
NEW_NAMES = dict(zip(list(FIELDS)[::2], list(FIELDS)[1::2], strict=True))
"""Name until dcgm-exporter 4.8 -> name since 4.9."""
OF_THE_EXPORTER = {
    "namespace": "gpu-operator",
    "pod": "nvidia-dcgm-exporter-lb6zk",
    "container": "nvidia-dcgm-exporter",
    "job": "nvidia-dcgm-exporter",
    "instance": "10.1.2.3:9400",
}


def recorded(name: str) -> str:
    return (RECORDED / f"{name}.prom").read_text(encoding="utf-8")


def scraped(text: str, at: datetime, *, honoured: bool, since_4_9: bool = False) -> tuple[MetricSeries, ...]:
    """The series that Prometheus has of this text, of those that are asked for."""
    found = []
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in FIELDS:
                metric, value = sample.name, float(sample.value)
                if since_4_9:
                    metric, value = _since_4_9(metric, value)
                found.append(MetricSeries(metric, _as_kept(sample.labels, honoured), at, value))
    return tuple(found)


def _since_4_9(metric: str, value: float) -> tuple[str, float]:
    unit = FIELDS[metric][1]
    return NEW_NAMES[metric], value * unit / FIELDS[NEW_NAMES[metric]][1]


def _as_kept(labels: dict[str, str], honoured: bool) -> dict[str, str]:
    own = {name: text for name, text in labels.items() if text}
    if honoured:
        return OF_THE_EXPORTER | own
    return {
        f"exported_{name}" if name in OF_THE_EXPORTER else name: text for name, text in own.items()
    } | OF_THE_EXPORTER


def written(rows: Iterable[tuple[str, dict[str, str], float]]) -> str:
    """The text of these rows: (metric, labels, value)."""
    lines = []
    for metric, labels, value in rows:
        named = ",".join(f'{name}="{text}"' for name, text in labels.items())
        lines.append(f"{metric}{{{named}}} {value}")
    return "\n".join(lines) + "\n"
