"""Bind the service's port in the hub process from the hub's start on, or another port if another program has it.

The hub passes the listening sockets to the service, so that no other program can take the port while the service is
restarted.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import NamedTuple
from urllib.parse import urlsplit

from hub_extensions.adapters.linux.listeners import is_of_this_machine
from hub_extensions.adapters.linux.port_holder import PortHolder, handed_over
from hub_extensions.hub_service.setup.addresses import EVERYWHERE, at, reached_at
from hub_extensions.hub_service.setup.settings import Settings


def is_hub_starting() -> bool:
    """Return whether this process is a hub that is starting.

    Commands such as ``jupyterhub token`` or our ``doctor`` read the hub's configuration file too, and bind no port.
    """
    module = sys.modules.get("jupyterhub.app")
    return sys.platform == "linux" and module is not None and bool(module.JupyterHub.initialized())


class KeptPort(NamedTuple):
    """The result of binding the service's port in the hub.

    Attributes:
        settings: the service's settings. If the hub has bound another port instead of the configured one, their
            `moved_url` is the address with that port, at which hub and proxy reach the service.
        note: why the hub does not hold the configured port, for the hub's log; "" if it does.
        is_own_listener: False if another account's program is reached at the service's address.
    """

    settings: Settings
    note: str = ""
    is_own_listener: bool = True


def hold_port(settings: Settings, url: str) -> KeptPort:
    """Bind the service's port in the hub. While another program has the port, bind another one instead.

    Args:
        settings: the service's settings.
        url: the configured address of the service; "" if it is not set. If it names another machine, which forwards to
            this one, no other port can be used, because that machine would not know it.

    Returns:
        The settings to use from now on, and a note if the configured port could not be bound.
    """
    if handed_over(settings.folder) is not None:
        return KeptPort(settings)  # a running hub holds it
    held = PortHolder(settings.folder, settings.host, settings.port)
    named = urlsplit(url).hostname or ""
    try:
        held.hold(may_move=not url or is_of_this_machine(named))
        held.serve()
    except OSError as problem:
        held.close()
        return KeptPort(
            settings,
            f"port {settings.port} of {settings.host} is not kept by the hub ({problem.strerror or problem}): the GPU "
            "service takes it by itself.",
        )
    if held.stand_in is None and held.stranger is None:
        return KeptPort(settings)
    note = _note(settings, held.stranger)
    if held.stand_in is None:
        unreached = (
            f" c.GpuService.url ({url}) is no address of this machine, so nothing can stand in: the hub's proxy leads "
            "nobody to the service's pages until that port is free and the hub is started again."
        )
        # hub and servers use the local address, where they can check the listener's account
        here = replace(settings, connect_url=reached_at(settings.host, settings.port)[0])
        return KeptPort(here, note + unreached, is_own_listener=False)
    everywhere = settings.host in EVERYWHERE and named
    origin = at(named, held.stand_in) if everywhere else reached_at(settings.host, held.stand_in)[0]
    return KeptPort(replace(settings, moved_url=origin), f"{note} Until that ends, hub and proxy reach it at {origin}.")


def _note(settings: Settings, stranger: int | None) -> str:
    whose = "another program of this account" if stranger is None else f"another account (uid {stranger})"
    return (
        f"port {settings.port} of {settings.host} is held by {whose}. Nothing is told to it, and the GPU service takes "
        "the port as soon as it is free; running servers hear of the service then."
    )
