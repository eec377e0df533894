"""The real service with ``lateness.py`` in its loop; nothing else of it is different.

``python -m benchmarks.cluster.probed --config FILE --noted FILE``, started by the hub in the service's place.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path

from benchmarks.cluster.lateness import keep_noting
from hub_extensions.hub_service.serve import serve
from hub_extensions.hub_service.setup.settings import Settings


async def main(settings: Settings, noted: Path, where: bool, parent: int) -> int:
    """Serve, and note."""
    noting = asyncio.create_task(keep_noting(noted, where=where))
    try:
        return await serve(settings, parent)
    finally:
        noting.cancel()


if __name__ == "__main__":
    before = os.getppid()
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    parser.add_argument("--noted", required=True, type=Path)
    parser.add_argument("--where", action="store_true")
    told = parser.parse_args()
    sys.exit(asyncio.run(main(Settings.load(told.config), told.noted, told.where, before)))
