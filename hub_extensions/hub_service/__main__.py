"""``python -m hub_extensions.hub_service``: starts the service under a small parent process, and ends it with its hub.

The hub starts it with ``--config FILE``. With ``--ask-hub --state-dir DIR`` something other than the hub starts it,
such as its own Deployment: the environment has the hub's address, and the hub sends the settings. Large modules are
imported by the child only, after its parent's process id is noted, because a hub that stops during the imports must not
wait for them (T14 and T16 in ``docs/upstream.md``).
"""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from types import ModuleType

from hub_extensions.adapters.linux.supervisor import supervise

EXIT_BAD_SETTINGS = 78  # as in sysexits.h: the configuration is wrong, and starting again will not help


def main(arguments: list[str] | None = None) -> int:
    """Run the service until a stop is requested; return the exit status.

    Args:
        arguments: the arguments of the command line. `None` for those of this process.
    """
    parent = os.getppid()
    options = _options(arguments)
    # the shell or script that starts a service apart may end before it
    return supervise(partial(_serve, options, os.getpid()), None if options.ask_hub else parent)


def _serve(options: argparse.Namespace, supervisor: int) -> int:
    """Run the service in the child process; return the exit status.

    Args:
        options: the parsed command line.
        supervisor: process id of the supervising parent. When it ends, the service stops.
    """
    from hub_extensions.adapters.allocator import limit_arenas

    limit_arenas()
    # mako, a dependency of alembic, would load all of pygments for coloured error pages: 4 MiB for nothing
    sys.modules.setdefault("pygments", None)  # type: ignore[arg-type]
    import_hub_client()
    from hub_extensions.hub_service.setup.settings import SettingsError

    try:
        return _apart(options, supervisor) if options.ask_hub else _of_hub(options, supervisor)
    except SettingsError as problem:
        sys.stderr.write(f"{problem}\n")
        return EXIT_BAD_SETTINGS


def import_hub_client() -> None:
    """Import JupyterHub's client for services with an empty module in place of its ORM, which only the hub uses.

    The ORM and alembic, which it imports, need 12 MiB.
    """
    sys.modules.setdefault("jupyterhub.orm", ModuleType("jupyterhub.orm"))
    try:
        import jupyterhub.services.auth  # noqa: F401
    except (ImportError, AttributeError):  # this version of JupyterHub needs the ORM for it
        sys.modules.pop("jupyterhub.orm")


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m hub_extensions.hub_service", description="The GPU service.")
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--config", metavar="FILE", help="settings that configure(c) wrote; this is how the hub starts it")
    how.add_argument(
        "--ask-hub",
        action="store_true",
        help="ask the hub for the settings: JUPYTERHUB_API_URL and JUPYTERHUB_API_TOKEN say where and with what",
    )
    parser.add_argument("--state-dir", metavar="DIR", help="with --ask-hub: the service's own folder, on a local disk")
    parser.add_argument(
        "--host", metavar="ADDRESS", default="0.0.0.0", help="with --ask-hub: listen there (default: %(default)s)"
    )
    options = parser.parse_args(arguments)
    if options.ask_hub and not options.state_dir:
        parser.error("--ask-hub needs --state-dir DIR")
    return options


def _of_hub(options: argparse.Namespace, parent: int) -> int:
    import asyncio

    from hub_extensions.hub_service.serve import serve
    from hub_extensions.hub_service.setup.settings import Settings

    return asyncio.run(serve(Settings.load(options.config), parent))


def _apart(options: argparse.Namespace, parent: int) -> int:
    import asyncio
    from dataclasses import replace
    from pathlib import Path

    from hub_extensions.hub_service.serve import serve_apart
    from hub_extensions.hub_service.setup.service_info import ServiceEnvironment
    from hub_extensions.hub_service.setup.state_dir import folder_apart

    own = ServiceEnvironment.of(os.environ, options.state_dir, options.host)
    folder = folder_apart(Path(own.state_dir))
    return asyncio.run(serve_apart(replace(own, state_dir=str(folder)), parent))


if __name__ == "__main__":
    sys.exit(main())
