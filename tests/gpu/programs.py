"""Starts the small programs of this folder, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]


def cost_of(looks: int, uuids: tuple[str, ...], environment: Mapping[str, str] | None = None) -> dict[str, float]:
    """CPU seconds, seconds and the longest of so many looks at these devices (``cost.py``)."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu.cost", str(looks), *uuids],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
        cwd=ROOT,
        env={**os.environ, **(environment or {}), "PYTHONPATH": str(ROOT)},
    )
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


@contextmanager
def working(mib: int, environment: Mapping[str, str], *how: str) -> Iterator[int]:
    """A program that holds so much of a GPU and keeps it busy (``work.py``, with `how` as arguments). Gives its pid."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.gpu.work", str(mib), *how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, **environment, "PYTHONPATH": str(ROOT)},
    )
    assert child.stdin is not None and child.stdout is not None and child.stderr is not None
    try:
        if not child.stdout.readline().startswith("holding"):
            raise RuntimeError(child.stderr.read().strip())
        yield child.pid
    finally:
        child.stdin.close()
        try:
            child.wait(timeout=30)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        child.stdout.close()
        child.stderr.close()
