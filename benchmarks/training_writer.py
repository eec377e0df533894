"""What `track` costs: processor time per step beside an empty loop and tqdm of the same run, and the time of a write.

``--tqdm FOLDER`` takes tqdm from a folder (``pip install --target FOLDER tqdm``); without it, tqdm is left out where it
is not installed. Each figure is the least of several rounds, because other programs only make it larger.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from hub_extensions.progress import ProgressRun, track

STEPS, ROUNDS, WRITES = 1_000_000, 7, 500
EPOCHS = 20


def nanoseconds_a_step(loop: Callable[[], Iterable[Any]]) -> float:
    """Return the least processor time of a step, with making and ending the loop, in nanoseconds."""
    found = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        for _ in loop():
            pass
        found.append((time.process_time() - begun) / STEPS * 1e9)
    return min(found)


def tqdm_loop() -> Callable[[], Iterable[Any]] | None:
    """Return a loop with a bar of tqdm that prints into nothing; `None` without tqdm."""
    try:
        from tqdm import tqdm  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        return None
    nothing = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - until the end of the program
    return lambda: tqdm(range(STEPS), file=nothing)


def microseconds_a_call(call: Callable[[int], Any], times: int) -> float:
    """Return the mean processor time of a call in microseconds."""
    begun = time.process_time()
    for number in range(1, times + 1):
        call(number)
    return (time.process_time() - begun) / times * 1e6


def median_of_writes(run: ProgressRun) -> float:
    """Return the median time of a write by the clock, with the disk and what else runs, in microseconds."""
    found = []
    for _ in range(WRITES):
        begun = time.perf_counter()
        run.write()
        found.append((time.perf_counter() - begun) * 1e6)
    return statistics.median(found)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tqdm", metavar="FOLDER", help="folder of an installation of tqdm")
    if folder := parser.parse_args().tqdm:
        sys.path.append(folder)
    with tempfile.TemporaryDirectory() as home:
        os.environ["JUPYTERHUB_GPU_PROGRESS"] = str(Path(home, "gpu-progress"))
        loops: dict[str, Callable[[], Iterable[Any]] | None] = {
            "empty loop": lambda: range(STEPS),
            "track": lambda: track(range(STEPS)),
            f"track, {EPOCHS} epochs": lambda: track(range(STEPS // EPOCHS), epochs=EPOCHS),
            "tqdm": tqdm_loop(),
        }
        figures = {name: nanoseconds_a_step(loop) for name, loop in loops.items() if loop is not None}
        empty = figures["empty loop"]
        print(f"{'a step of':24}{'ns':>8}{'over an empty loop':>22}")
        for name, figure in figures.items():
            print(f"{name:24}{figure:8.0f}{figure - empty:22.0f}")
        if "tqdm" in figures:
            print(
                f"track / tqdm: {(figures['track'] - empty) / (figures['tqdm'] - empty):.2f}, both over an empty loop"
            )
        run = ProgressRun("mnist", total=STEPS, epochs=EPOCHS)
        print(f"a call of a library's hook: {microseconds_a_call(run.count, 200_000):.2f} µs")
        cost = microseconds_a_call(lambda _: run.write(), WRITES)
        print(f"a write of the file: {cost:.0f} µs of a processor, median {median_of_writes(run):.0f} µs by the clock")
        run.end()


if __name__ == "__main__":
    main()
