"""What it costs a server to look at its own GPUs: CPU seconds and time of many looks, as one line of JSON.

``python -m tests.gpu.cost LOOKS UUID...``. In a program of its own, so that nothing else is counted. The reader's clock
goes on by a second a look, so that it asks everything that it would ask then, though the looks follow at once.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import datetime, timezone

from hub_extensions.adapters.nvml.reader import Nvml


def main() -> None:
    looks, uuids = int(sys.argv[1]), tuple(sys.argv[2:])
    looked = [0.0]
    gpus = Nvml(uuids, clock=lambda: looked[0])
    gpus.read(datetime.now(timezone.utc))  # opens the driver
    began, worked, longest, samples = time.monotonic(), time.process_time(), 0.0, 0
    for _ in range(looks):
        looked[0] += 1
        begin = time.monotonic()
        samples += len(gpus.read(datetime.now(timezone.utc)).samples)
        longest = max(longest, time.monotonic() - begin)
    cpu, took = time.process_time() - worked, time.monotonic() - began
    gpus.close()
    print(json.dumps({"looks": looks, "samples": samples, "cpu_seconds": cpu, "seconds": took, "longest": longest}))


if __name__ == "__main__":
    main()
