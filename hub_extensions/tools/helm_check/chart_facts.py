"""Facts about the zero-to-jupyterhub chart that are packed with this product: the schema of its values, and its own.

``scripts/generate-chart-facts.py`` makes the file of a version from the chart's own schema and values; descriptions are
left out.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any

from hub_extensions.tools.helm_check.model import ChartFacts, leaves

CHART_VERSION = "4.4.0"
"""The version of the chart whose facts are packed."""

NAMED = "<name>"
"""Stands in a key for a child of any name."""


@lru_cache(maxsize=1)
def packed_facts() -> ChartFacts:
    """The packed facts, read at the first call."""
    text = (files("hub_extensions") / "data" / f"z2jh-{CHART_VERSION}.json").read_text(encoding="utf-8")
    return ChartFacts(**json.loads(text))


def defaults() -> dict[str, Any]:
    """Return a copy of the chart's own values."""
    return copy.deepcopy(dict(packed_facts().defaults))


def make_facts(chart: Mapping[str, Any], schema: Mapping[str, Any], values: Mapping[str, Any]) -> ChartFacts:
    """The facts of a chart.

    Args:
        chart: ``Chart.yaml``. schema: the values' JSON schema (draft 7). values: the chart's own ``values.yaml``.
    """
    return ChartFacts(chart["name"], chart["version"], str(chart.get("appVersion", "")), _bare(schema), values)


def _bare(node: Any) -> Any:
    """Return a schema without its descriptions. A key with such a name is kept: its value is not a text."""
    if isinstance(node, list):
        return [_bare(each) for each in node]
    if not isinstance(node, Mapping):
        return node
    texts = ("$schema", "description", "title")
    return {name: _bare(inner) for name, inner in node.items() if name not in texts or not isinstance(inner, str)}


def all_keys(facts: ChartFacts) -> frozenset[str]:
    """Every key that the chart names in its schema or sets in its values, mappings included."""
    set_ones = {".".join(path[:depth]) for path, _ in leaves(facts.defaults) for depth in range(1, len(path) + 1)}
    return frozenset({*schema_keys(facts.schema), *set_ones})


def schema_keys(node: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Every key that a schema names, dotted; a child of any name is ``<name>``."""
    others = [*node.get("patternProperties", {}).values(), node.get("additionalProperties")]
    named = [(NAMED, child) for child in others if isinstance(child, Mapping)]
    for name, child in [*node.get("properties", {}).items(), *named]:
        key = f"{above}.{name}".lstrip(".")
        yield key
        yield from schema_keys(child, key)
