#!/usr/bin/env python3
"""Write ``hub_extensions/data/z2jh-VERSION.json`` from a zero-to-jupyterhub chart: its archive (.tgz) or its folder.

    python scripts/generate-chart-facts.py jupyterhub-4.4.0.tgz

Keys, types, defaults, what is required and where anything goes; no descriptions. With ``--check`` it only says
what differs from the packed file (exit status 1). For another version, change CHART_VERSION in
``hub_extensions/tools/helm_check/chart_facts.py`` as well.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from hub_extensions.tools.helm_check.chart_facts import all_keys, make_facts, parse_facts  # noqa: E402
from hub_extensions.tools.helm_check.helm import read_chart  # noqa: E402


def main(words: list[str]) -> int:
    """Write the file, or check it."""
    places = [word for word in words if word != "--check"]
    if len(places) != 1:
        print("Give one chart: its archive (.tgz) or its folder.", file=sys.stderr)
        return 2
    made = make_facts(*read_chart(Path(places[0])))
    target = ROOT / "hub_extensions" / "data" / f"z2jh-{made['version']}.json"
    text = written(made)
    print(f"{made['chart']} {made['version']}: {len(all_keys(parse_facts(made)))} keys")
    if "--check" in words:
        is_current = target.exists() and target.read_text(encoding="utf-8") == text
        print(f"{target.name} is {'current' if is_current else 'not current'}")
        return 0 if is_current else 1
    target.write_text(text, encoding="utf-8")
    print(target.relative_to(ROOT))
    return 0


def written(made: dict[str, Any]) -> str:
    """One line a key, so that the next version's differences can be read."""
    rows = ",\n".join(f"  {json.dumps(key)}: {json.dumps(row)}" for key, row in made["keys"].items())
    head = ",\n".join(f" {json.dumps(name)}: {json.dumps(made[name])}" for name in ("chart", "version", "app_version"))
    values = json.dumps(made["defaults"], indent=1, sort_keys=True).replace("\n", "\n ")
    return f'{{\n{head},\n "keys": {{\n{rows}\n }},\n "defaults": {values}\n}}\n'


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
