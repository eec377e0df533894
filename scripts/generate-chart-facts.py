#!/usr/bin/env python3
"""Write ``hub_extensions/data/z2jh-VERSION.json`` from a zero-to-jupyterhub chart: its archive (.tgz) or its folder.

    python scripts/generate-chart-facts.py jupyterhub-4.4.0.tgz

The schema of its values without descriptions, and the chart's own values. With ``--check`` it only says whether the
packed file is current (exit status 1: it is not). For another version, change CHART_VERSION in
``hub_extensions/tools/helm_check/chart_facts.py`` as well.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from hub_extensions.tools.helm_check.chart_facts import all_keys, make_facts  # noqa: E402
from hub_extensions.tools.helm_check.helm import read_chart  # noqa: E402

SHORT = 100
"""Characters that stay on one line of the file."""


def main(words: list[str]) -> int:
    """Write the file, or check it."""
    places = [word for word in words if word != "--check"]
    if len(places) != 1:
        print("Give one chart: its archive (.tgz) or its folder.", file=sys.stderr)
        return 2
    made = make_facts(*read_chart(Path(places[0])))
    target = ROOT / "hub_extensions" / "data" / f"z2jh-{made.version}.json"
    text = f"{written(asdict(made))}\n"
    print(f"{made.chart} {made.version}: {len(all_keys(made))} keys")
    if "--check" in words:
        is_current = target.exists() and target.read_text(encoding="utf-8") == text
        print(f"{target.name} is {'current' if is_current else 'not current'}")
        return 0 if is_current else 1
    target.write_text(text, encoding="utf-8")
    print(target.relative_to(ROOT))
    return 0


def written(value: Any, depth: int = 1) -> str:
    """Sorted, and what is short on one line, so that the next version's differences can be read."""
    line = json.dumps(value, sort_keys=True)
    if len(line) < SHORT or not isinstance(value, dict):
        return line
    inner = (f"{' ' * depth}{json.dumps(name)}: {written(each, depth + 1)}" for name, each in sorted(value.items()))
    return "{\n" + ",\n".join(inner) + "\n" + " " * (depth - 1) + "}"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
