"""``python -m hub_extensions.gate --config FILE``: how the hub, and ``jupyterhub-gpu gate run``, start the gate."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys

from hub_extensions.adapters.settings_file import SettingsError
from hub_extensions.gate.serve import serve
from hub_extensions.gate.settings import GateSettings

EXIT_WRONG_SETTINGS = 78
"""As in sysexits.h: something is wrong with the configuration, and starting again will not help."""


def main(arguments: list[str] | None = None) -> int:
    """Run until told to stop; returns the exit status."""
    # a gate that the hub started ends with it
    parent = os.getppid() if os.environ.get("JUPYTERHUB_SERVICE_NAME") else None
    parser = argparse.ArgumentParser(prog="python -m hub_extensions.gate", description="The gate before the apps.")
    parser.add_argument("--config", metavar="FILE", required=True, help="settings that configure(c) wrote")
    options = parser.parse_args(arguments)
    try:
        settings = GateSettings.load(options.config)
    except SettingsError as problem:
        sys.stderr.write(f"{problem}\n")
        return EXIT_WRONG_SETTINGS
    return asyncio.run(serve(settings, parent=parent))


if __name__ == "__main__":
    sys.exit(main())
