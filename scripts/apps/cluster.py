"""A Dask cluster in one process, with work that does not end, so that its dashboard has something to show.

python cluster.py PORT
"""

from __future__ import annotations

import itertools
import sys
import time

from distributed import Client, LocalCluster, wait

PARTS, PART_SECONDS, PAUSE_SECONDS = 12, 0.3, 2.0


def part(number: int) -> float:
    """A task of the work; it takes time, and no processor."""
    time.sleep(PART_SECONDS)
    return float(number)


def main(port: int) -> None:
    """Scheduler and worker meet inside this process: nothing listens but the dashboard."""
    with (
        LocalCluster(
            n_workers=1,
            threads_per_worker=2,
            processes=False,
            dashboard_address=f"127.0.0.1:{port}",
            worker_dashboard_address=None,
        ) as cluster,
        Client(cluster) as client,
    ):
        for first in itertools.count(step=PARTS):
            wait(client.submit(sum, client.map(part, range(first, first + PARTS))))
            time.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    main(int(sys.argv[1]))
