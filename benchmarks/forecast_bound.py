"""Is "at most" ever exceeded? 20,000 random lines, played by the rules of admission.

It prints how many limits were told and exceeded, and how near to them people came. One seed a line; the argument is
another number of lines.
"""

from __future__ import annotations

import sys
import time

from benchmarks.figures import quantile
from tests.core.queue.random_play import random_play

LINES = 20_000


def main() -> int:
    """Play, and print the figures; 1: somebody waited longer than was told."""
    lines = int(sys.argv[1]) if len(sys.argv) > 1 else LINES
    began, shown, used, late = time.process_time(), 0, list[float](), list[str]()
    for seed in range(lines):
        found = random_play(seed)
        shown += found.shown
        used += found.used
        late += [f"seed {seed}: {ticket}, told {limit} at {at}, {by} late" for ticket, at, limit, by in found.late]
    near = sum(1 for part in used if part > 0.9) / len(used)
    print(f"lines {lines:,}, limits told {shown:,}, of servers that started {len(used):,}, exceeded {len(late):,}")
    print(
        f"waited, as a part of the limit: median {quantile(used, 0.5):.2f}, above 0.9: {near:.0%}, most {max(used):.3f}"
    )
    print(f"processor time {time.process_time() - began:.0f} s")
    print(*late[:20], sep="\n")
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
