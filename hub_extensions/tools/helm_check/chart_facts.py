"""Facts about the zero-to-jupyterhub chart that are packed with this product: keys, types, defaults, by version.

``scripts/generate-chart-facts.py`` makes the file of a version from the chart's own schema and values; descriptions are
left out. Not here: what follows from them (``tools/helm_check/rules/shape.py``).
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any

from hub_extensions.tools.helm_check.model import NAMED, ChartFacts, KeyFacts, leaves

CHART_VERSION = "4.4.0"
"""The version of the chart whose facts are packed."""


@lru_cache(maxsize=1)
def packed_facts() -> ChartFacts:
    """The packed facts, read at the first call."""
    text = (files("hub_extensions") / "data" / f"z2jh-{CHART_VERSION}.json").read_text(encoding="utf-8")
    return parse_facts(json.loads(text))


def defaults() -> dict[str, Any]:
    """What the chart sets itself; the caller's own copy."""
    return copy.deepcopy(dict(packed_facts().defaults))


def types() -> Mapping[str, KeyFacts]:
    """What each key of the chart takes, by its dotted name; a child of any name is ``<name>``."""
    return packed_facts().keys


def parse_facts(content: Mapping[str, Any]) -> ChartFacts:
    """The content of a facts file."""
    return ChartFacts(
        version=content["version"],
        app_version=content["app_version"],
        keys={key: _key(row) for key, row in content["keys"].items()},
        defaults=content["defaults"],
    )


def _key(row: Mapping[str, Any]) -> KeyFacts:
    return KeyFacts(
        types=tuple(row.get("types", ())),
        enum=tuple(row.get("enum", ())),
        required=tuple(row.get("required", ())),
        required_when={name: tuple(needed) for name, needed in row.get("required_when", {}).items()},
        open=row.get("open", False),
        names=row.get("names", ""),
        one_of=tuple(row.get("one_of", ())),
        minimum=row.get("minimum"),
    )


def make_facts(chart: Mapping[str, Any], schema: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a facts file.

    Args:
        chart: ``Chart.yaml``. schema: the values' JSON schema (draft 7). values: the chart's own ``values.yaml``.
    """
    return {
        "chart": chart["name"],
        "version": chart["version"],
        "app_version": str(chart.get("appVersion", "")),
        "keys": dict(sorted(_rows(schema, ""))),
        "defaults": values,
    }


def all_keys(facts: ChartFacts) -> frozenset[str]:
    """Every key that the chart names in its schema or sets in its values, mappings included."""
    set_ones = {".".join(path[:depth]) for path, _ in leaves(facts.defaults) for depth in range(1, len(path) + 1)}
    return frozenset({key for key in facts.keys if key and not key.endswith("[]")} | set_ones)


def _rows(node: Mapping[str, Any], key: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield key, _row(node)
    for name, child in node.get("properties", {}).items():
        yield from _rows(child, f"{key}.{name}".lstrip("."))
    for child in _named(node)[1]:
        yield from _rows(child, f"{key}.{NAMED}".lstrip("."))
    if isinstance(node.get("items"), Mapping):
        yield from _rows(node["items"], f"{key}[]")


def _row(node: Mapping[str, Any]) -> dict[str, Any]:
    kind = node.get("type", [])
    others = node.get("additionalProperties", True)
    has_children = "properties" in node or "patternProperties" in node
    row = {
        "types": [kind] if isinstance(kind, str) else list(kind),
        "enum": list(node.get("enum", [])),
        "required": list(node.get("required", [])),
        "required_when": _required_when(node),
        "open": others is True and "enum" not in node and (has_children or "object" in kind or not kind),
        "names": _named(node)[0],
        "one_of": [name for choice in node.get("oneOf", []) for name in choice.get("required", [])],
        "minimum": node.get("minimum"),
    }
    return {name: value for name, value in row.items() if value or (name == "minimum" and value is not None)}


def _named(node: Mapping[str, Any]) -> tuple[str, list[Mapping[str, Any]]]:
    """The pattern of children that may have any name, and what they take."""
    for pattern, child in node.get("patternProperties", {}).items():
        return pattern, [child]
    others = node.get("additionalProperties")
    return (".*", [others]) if isinstance(others, Mapping) else ("", [])


def _required_when(node: Mapping[str, Any]) -> dict[str, list[str]]:
    """What ``if``/``then`` asks for when a child is true."""
    needed = node.get("then", {}).get("required", [])
    conditions = node.get("if", {}).get("properties", {})
    return {name: list(needed) for name, test in conditions.items() if needed and test.get("const") is True}


__all__ = ["CHART_VERSION", "all_keys", "defaults", "make_facts", "packed_facts", "parse_facts", "types"]
