"""Facts about a chart: the JSON schema of its values, and its own values.

The facts of one version of zero-to-jupyterhub are packed with this product, so that ``helm check`` works without the
chart. ``scripts/generate-chart-facts.py`` makes their file from the chart, without the schema's descriptions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any

from hub_extensions.tools.helm_check.model import ChartFacts
from hub_extensions.tools.helm_check.trees import Tree, leaves

CHART_VERSION = "4.4.0"  # of the chart whose facts are packed
NAMED = "<name>"  # in a dotted key, this stands for a name that users may choose


@lru_cache(maxsize=1)
def packed_facts() -> ChartFacts:
    """Return the facts that are packed with this product. Their file is read at the first call."""
    text = (files("hub_extensions") / "data" / f"z2jh-{CHART_VERSION}.json").read_text(encoding="utf-8")
    return ChartFacts(**json.loads(text))


def make_facts(chart: Tree, schema: Tree, values: Tree) -> ChartFacts:
    """Return the facts of a chart from its ``Chart.yaml``, the JSON schema of its values, and its own values."""
    return ChartFacts(chart["name"], chart["version"], str(chart.get("appVersion", "")), _bare(schema), values)


def _bare(node: Any) -> Any:
    """Return a schema without its descriptions. A property that is named ``description`` is kept."""
    texts = ("$schema", "description", "title")
    if isinstance(node, Mapping):
        return {name: _bare(inner) for name, inner in node.items() if name not in texts or not isinstance(inner, str)}
    return [_bare(each) for each in node] if isinstance(node, list) else node


def all_keys(facts: ChartFacts) -> frozenset[str]:
    """Return every dotted key that a chart has in its schema or in its own values.

    A key whose value is a mapping is included, as well as the keys in this mapping.
    """
    set_ones = {".".join(path[:depth]) for path, _ in leaves(facts.defaults) for depth in range(1, len(path) + 1)}
    return frozenset({*schema_keys(facts.schema), *set_ones})


def schema_keys(node: Tree, above: str = "") -> Iterator[str]:
    """Yield every dotted key that a schema names.

    A part of a key that users may choose freely is replaced by ``<name>`` (`NAMED`).

    Args:
        node: the schema, or a part of it.
        above: dotted key of this part; "" for the whole schema.
    """
    others = [*node.get("patternProperties", {}).values(), node.get("additionalProperties")]
    named = [(NAMED, child) for child in others if isinstance(child, Mapping)]
    for name, child in [*node.get("properties", {}).items(), *named]:
        key = f"{above}.{name}".lstrip(".")
        yield key
        yield from schema_keys(child, key)
