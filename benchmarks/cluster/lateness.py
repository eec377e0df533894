"""How long a loop lets others wait: a task that wants a turn every 2 ms, and writes down how late it came.

Three figures: the wall clock's, which is what somebody waits; the same without the time for which the thread could run
and other programs had the processors (as the kernel counts it), which is what this program is to blame for; and the
thread's own processor time. ``python -m benchmarks.cluster.lateness FILE`` is the floor: a loop with nothing to do, at
the same time on the same machine.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import BinaryIO

EVERY = 0.002
SAY_EVERY = 0.25
SCHEDULE = Path("/proc/thread-self/schedstat")
LONG = 0.03
"""Beyond this it is written down where the loop is, if that is wanted."""


@dataclass(frozen=True)
class Said:
    """The worst of a quarter of a second: `at` is the wall clock's time, `rss` bytes, the rest seconds."""

    at: float
    wall: float
    own: float
    processor: float
    rss: int
    where: str = ""


async def keep_noting(file: Path, *, where: bool = False) -> None:
    """Until cancelled. `where`: also where the loop is while it lets others wait."""
    with file.open("w", encoding="utf-8") as out, SCHEDULE.open("rb") as schedule:  # noqa: ASYNC230  not a real disk's
        watcher = _Watcher() if where else None
        began = time.perf_counter()
        wall = own = processor = 0.0
        while True:
            turn, used, waited = time.perf_counter(), time.thread_time(), _waited(schedule)
            await asyncio.sleep(EVERY)
            late = time.perf_counter() - turn - EVERY
            wall, processor = max(wall, late), max(processor, time.thread_time() - used)
            own = max(own, late - (_waited(schedule) - waited))
            if watcher:
                watcher.turn = time.perf_counter()
            if time.perf_counter() - began >= SAY_EVERY:
                seen = watcher.seen() if watcher else ""
                out.write(json.dumps([time.time(), wall, own, processor, rss("self"), seen]) + "\n")
                out.flush()
                began, wall, own, processor = time.perf_counter(), 0.0, 0.0, 0.0


def _waited(schedule: BinaryIO) -> float:
    """Seconds for which this thread could have run and had no processor (Linux, ``/proc/<pid>/schedstat``)."""
    return int(os.pread(schedule.fileno(), 80, 0).split()[1]) / 1e9


def rss(pid: int | str, what: str = "VmRSS") -> int:
    """Bytes of memory a process has; ``VmHWM``: had at most."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(f"/proc/{pid}/status has no {what}")


def read(file: Path, since: float = 0.0, until: float = float("inf")) -> list[Said]:
    """What was noted between two times of the wall clock."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return [said for said in _parsed(lines) if since <= said.at <= until + SAY_EVERY]


def _parsed(lines: Iterable[str]) -> Iterable[Said]:
    return (Said(*json.loads(line)) for line in lines if line.endswith("]"))


class _Watcher:
    """Looks from another thread where a loop is that does not come back."""

    def __init__(self) -> None:
        self.turn = time.perf_counter()
        self._seen: list[str] = []
        self._thread = threading.get_ident()
        threading.Thread(target=self._look, daemon=True).start()

    def seen(self) -> str:
        found, self._seen = "\n".join(self._seen), []
        return found

    def _look(self) -> None:
        while True:
            time.sleep(0.01)
            if time.perf_counter() - self.turn > LONG:
                frame: FrameType | None = sys._current_frames().get(self._thread)
                calls = [
                    f"{Path(f.f_code.co_filename).name}:{n} {f.f_code.co_name}" for f, n in traceback.walk_stack(frame)
                ]
                self._seen.append(" < ".join(calls[:8]))


if __name__ == "__main__":
    asyncio.run(keep_noting(Path(sys.argv[1])))
