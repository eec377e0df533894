"""``python -m hub_extensions.hub_service --config FILE``: starts the service, and ends it with its hub.

Wires the parts: settings, lock, port, store, hub, GPUs, desk, application. Heavy imports wait until the parent is noted
and signals work: a hub that stops while we import must not wait for us (T14, T16).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys

EXIT_BAD_SETTINGS = 78
"""As in sysexits.h: something is wrong with the configuration, and starting again will not help."""


def main(arguments: list[str] | None = None) -> int:
    """Run until told to stop; returns the exit status."""
    parent = os.getppid()
    for number in (signal.SIGINT, signal.SIGTERM):
        # a hub in the background of a script hands down SIGINT as ignored; until the loop runs, the default is right
        signal.signal(number, signal.SIG_DFL)
    parser = argparse.ArgumentParser(prog="python -m hub_extensions.hub_service", description="The GPU service.")
    parser.add_argument("--config", required=True, metavar="FILE", help="settings that configure(c) wrote")
    options = parser.parse_args(arguments)

    from hub_extensions.hub_service.serving import serve
    from hub_extensions.hub_service.settings import Settings, SettingsError

    try:
        settings = Settings.load(options.config)
    except SettingsError as problem:
        sys.stderr.write(f"{problem}\n")
        return EXIT_BAD_SETTINGS
    return asyncio.run(serve(settings, parent))


if __name__ == "__main__":
    sys.exit(main())
