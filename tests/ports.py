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

FIRST, EACH, PARTS = 20_000, 600, 20
"""Two parts for each worker of a run, its own and its hubs'; the last ends below 32768, where the kernel's begin."""
A_LANE = 5
"""Workers of each of the two lanes of a run, at most (``scripts/prepare/testing.py``)."""

_next = itertools.count(random.randrange(EACH))


def free_port(address: str = "127.0.0.1") -> int:
    """A port of `address` that nothing listens on."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    worker += A_LANE * int(os.environ.get("TEST_LANE") or 0)
    part = (2 * worker + ("HUB_TEST_MARK" in os.environ)) % PARTS
    for _ in range(EACH):
        port = FIRST + EACH * part + next(_next) % EACH
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((address, port))
            return port
    raise RuntimeError(f"no port of {address} is free from {FIRST} on")


def free_ports(count: int, address: str = "127.0.0.1") -> list[int]:
    """Different ones."""
    return [free_port(address) for _ in range(count)]
