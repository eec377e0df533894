"""Does the wait forecast simulate the queue exactly as admission serves it?

Random lines with known lives are served twice, by the real admission event by event and by the simulation, and every
admission must be the same: who, when, which offer, which device. Fractions of pools that are only counted (a cluster
without an index of its devices) are outside the proof. The lines are drawn by ``tests/core/queue/random_lines.py``.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time

from tests.core.queue.random_lines import difference, random_line, served

LINES = 50_000
PROGRESS = 5_000


def main() -> int:
    """Compare, and print the figures. Exit with 1 if a line differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=LINES)
    parser.add_argument("--seed", type=int, default=None, help="seed of the first line; random if it is not given")
    parser.add_argument("--cover", action="store_true", help="also count the admissions (serves each line once more)")
    options = parser.parse_args()
    seed = secrets.randbelow(10**9) if options.seed is None else options.seed
    print(f"seed {seed}", flush=True)
    began, differ, admissions, coupled = time.process_time(), 0, 0, 0
    for number in range(seed, seed + options.lines):
        line = random_line(number)
        if number > seed and (number - seed) % PROGRESS == 0:
            print(f"{number - seed:,} lines so far, {differ} differ", flush=True)
        if found := difference(line):
            differ += 1
            if differ <= 5:
                print(f"line {number}\n{found}", flush=True)
        if options.cover:
            admitted = served(line)
            admissions += len(admitted)
            coupled += any(each.at > 0 for each in admitted)
    print(f"{options.lines:,} lines, {differ} differ; processor time {time.process_time() - began:.0f} s")
    if options.cover:
        print(f"{admissions:,} admissions; in {coupled:,} lines somebody waited")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
