"""Ports for what tests start: free a moment ago, below those that the kernel hands out by itself, none given twice.

A port of the kernel's own choosing (bind to 0) is somebody's connection a moment later, or is given to the other worker
of a run before its server listens: of some hundred servers a run, one cannot start.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import socket
from collections.abc import Mapping

FIRST, EACH, PARTS = 20_000, 600, 20
"""Two parts for each worker of a run, its own and its hubs'; the last ends below 32768, where the kernel's begin."""
A_LANE = 5
"""Workers of each of the two lanes of a run, at most: ``MOST_WORKERS`` of ``scripts/prepare/testing.py``."""

_next = itertools.count(random.randrange(EACH))


def free_port(address: str = "127.0.0.1") -> int:
    """A port of `address` that nothing listens on."""
    first = FIRST + EACH * part(os.environ)
    for _ in range(EACH):
        port = first + next(_next) % EACH
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((address, port))
            return port
    raise RuntimeError(f"no port of {address} is free from {first} on")


def part(environ: Mapping[str, str]) -> int:
    """Which part of the ports a worker, or a hub that it started, has to itself; the lane is a run's, if it has any."""
    worker, lane = int(environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")), environ.get("TEST_LANE")
    most = A_LANE if lane else PARTS // 2
    if worker >= most:
        raise RuntimeError(
            f"there are ports for {most} workers at a time, and this is number {worker + 1} (TEST_WORKERS)"
        )
    return 2 * (worker + A_LANE * int(lane or 0)) + ("HUB_TEST_MARK" in environ)


def free_ports(count: int, address: str = "127.0.0.1") -> list[int]:
    """Different ones."""
    return [free_port(address) for _ in range(count)]
