"""The progress files of a test, as a reader finds them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_runs(folder: Path) -> list[dict[str, Any]]:
    """Return the content of all progress files, the oldest run first."""
    if not folder.is_dir():
        return []
    paths = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    return sorted((json.loads(path.read_text()) for path in paths), key=lambda run: run["started"])


def read_run(folder: Path) -> dict[str, Any]:
    """Return the content of the only progress file."""
    [run] = read_runs(folder)
    return run


def steps_of_groups(run: dict[str, Any]) -> int:
    """Return how many steps the durations of a run stand for; as many as it reports."""
    return (run["first"] is not None) + run["group_steps"] * len(run["groups"]) + run["rest_steps"]
