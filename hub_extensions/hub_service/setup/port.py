"""The service's port from the hub's start on: the hub holds it, and knows where the service is if a stranger has it.

Runs in the hub. Not here: the sockets (``adapters/held_port.py``), and the service's side (``process.py``).
"""

from __future__ import annotations

import sys
from dataclasses import replace

from hub_extensions.adapters.held_port import HeldPort, handed_over
from hub_extensions.hub_service.setup.addresses import reached_at
from hub_extensions.hub_service.setup.settings import Settings


def is_hub_starting() -> bool:
    """This process is a hub on its way up; not a ``doctor``, nor a ``jupyterhub token``, which read its file too."""
    module = sys.modules.get("jupyterhub.app")
    return sys.platform == "linux" and module is not None and bool(module.JupyterHub.initialized())


def keep_port(settings: Settings, *, may_move: bool) -> tuple[Settings, str]:
    """(settings, note): hold the port for the service, or one that stands in for it where somebody else has it.

    `may_move` is False where the admin has said at which address the service is reached.
    """
    if handed_over(settings.folder) is not None:
        return settings, ""  # a hub that runs holds it
    held = HeldPort(settings.folder, settings.host, settings.port)
    try:
        held.hold(may_move)
        held.serve()
    except OSError as problem:
        held.close()
        return settings, (
            f"port {settings.port} of {settings.host} is not kept by the hub ({problem.strerror or problem}): the GPU "
            "service takes it by itself."
        )
    if held.stand_in is None:
        return settings, "" if held.stranger is None else _note(settings, held.stranger)
    moved = replace(settings, moved_url=reached_at(settings.host, held.stand_in)[0])
    return moved, f"{_note(settings, held.stranger)} Until that ends, hub and proxy reach it at {moved.origin}."


def _note(settings: Settings, stranger: int | None) -> str:
    whose = "another program of this account" if stranger is None else f"another account (uid {stranger})"
    return (
        f"port {settings.port} of {settings.host} is held by {whose}. Nothing is told to it, and the GPU service takes "
        "the port as soon as it is free; running servers hear of the service then."
    )
