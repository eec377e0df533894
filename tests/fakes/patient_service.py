"""The service, whose orderly stop is never cut off: that ends it with status 1 where the machine is busy."""

import sys

from hub_extensions.adapters.linux import supervisor
from hub_extensions.hub_service import process
from hub_extensions.hub_service.__main__ import main

process.STOP_SECONDS = supervisor.KILL_SECONDS = 600.0

if __name__ == "__main__":
    sys.exit(main())
