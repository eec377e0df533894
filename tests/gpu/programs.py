"""Starts the small programs of this folder, each in a process of its own, and asks a real server who they are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.fakes.user_server import UserServer
from tests.patience import patient
from tests.server_extension.live_page import page_of

ROOT = Path(__file__).parents[2]
LEASE = "lease-of-the-test-on-a-card"


def cost_of(looks: int, uuids: tuple[str, ...], environment: Mapping[str, str] | None = None) -> dict[str, float]:
    """CPU seconds, seconds and the longest of so many looks at these devices (``cost.py``)."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu.cost", str(looks), *uuids],
        capture_output=True,
        text=True,
        check=True,
        timeout=patient(300),
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
            child.wait(timeout=patient(30))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        child.stdout.close()
        child.stderr.close()


async def named_by_a_server(
    uuid: str,
    folder: Path,
    mib: int,
    *how: str,
    environment: Mapping[str, str] | None = None,
    started: Callable[[int], object] = lambda pid: None,
) -> int | None:
    """A notebook's program works on this device: the memory of ``train.ipynb`` as its server's panel is told it.

    `started` is called with the program's pid. Raises AssertionError when it is not named within 30 s.
    """
    given = {**(environment or {}), "JUPYTERHUB_GPU_LEASE": LEASE, "CUDA_VISIBLE_DEVICES": uuid}
    server = UserServer(folder, given)
    session = {"JPY_SESSION_NAME": str(server.work / "train.ipynb"), "JPY_PARENT_PID": str(server.process.pid)}
    try:
        async with page_of(server) as page:
            await page.until_state("ok")
            with working(mib, {**given, **session}, *how) as pid:
                started(pid)

                def memory_by_name() -> dict[str, int | None]:
                    holders = [one for gpu in page.snapshot["gpus"] for one in gpu["holders"] or ()]
                    return {one["name"]: one["memory_bytes"] for one in holders}

                await page.until(lambda: "train.ipynb" in memory_by_name(), 30)
                return memory_by_name()["train.ipynb"]
    finally:
        server.stop()
