"""``python -m hub_extensions.gate --config FILE``: starts the gate.

A small parent process restarts the gate at once if it dies; the hub checks only every 30 s, and until then no app could
be opened. Only the child imports large modules.
"""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial

from hub_extensions.adapters.linux.supervisor import supervise

EXIT_WRONG_SETTINGS = 78
"""EX_CONFIG of sysexits.h: the configuration is wrong, so that a restart does not help."""


def main(arguments: list[str] | None = None) -> int:
    """Run the parent process of the gate until it is stopped; return the exit status.

    Args:
        arguments: the command line without the name of the program; `None` for that of this process.
    """
    # a gate that the hub started ends with it
    parent = os.getppid() if os.environ.get("JUPYTERHUB_SERVICE_NAME") else None
    parser = argparse.ArgumentParser(prog="python -m hub_extensions.gate", description="The gate before the apps.")
    parser.add_argument("--config", metavar="FILE", required=True, help="settings that configure(c) wrote")
    return supervise(partial(run, parser.parse_args(arguments).config, os.getpid()), parent)


def run(config: str, parent: int | None = None) -> int:
    """Run the gate until it is stopped or the parent process has exited; return the exit status.

    Args:
        config: path of the settings file.
        parent: process id of the parent process; `None` to run independently of it.
    """
    import asyncio

    from hub_extensions.adapters.files.settings_file import SettingsError
    from hub_extensions.gate.serve import serve
    from hub_extensions.gate.settings import GateSettings

    try:
        settings = GateSettings.load(config)
    except SettingsError as problem:
        sys.stderr.write(f"{problem}\n")
        return EXIT_WRONG_SETTINGS
    return asyncio.run(serve(settings, parent=parent))


if __name__ == "__main__":
    sys.exit(main())
