"""The service's address for the hub and for the hub's proxy, which may run on another machine.

A service that listens on all addresses is reached at one of them; in a pod the host name resolves to the pod's own.
"""

from __future__ import annotations

import socket

EVERYWHERE = ("", "0.0.0.0", "::")


def at(host: str, port: int) -> str:
    """Return ``http://host:port``, with brackets around an IPv6 address."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def reached_at(host: str, port: int) -> tuple[str, str]:
    """Return the address of a service that listens on `host`, and a note if the address is a guess.

    Of several addresses of this machine, the first that others can reach is used, preferably of the family of `host`.
    """
    if host not in EVERYWHERE:
        return at(host, port), ""
    name = socket.gethostname()
    wanted = socket.AF_INET6 if host == "::" else socket.AF_INET
    found = [each for each in _addresses(name) if host == "::" or each[0] == wanted]
    found.sort(key=lambda each: (each[0] != wanted, each[1].startswith("127.") or each[1] == "::1"))
    if found:
        return at(found[0][1], port), ""
    here = "::1" if host == "::" else "127.0.0.1"
    return at(here, port), (
        f"the name of this machine ({name}) has no address, so the GPU service is looked for at {here}: set "
        "c.GpuService.url where the hub's proxy is on another machine."
    )


def _addresses(name: str) -> list[tuple[int, str]]:
    try:
        return [(family, str(place[0])) for family, _, _, _, place in socket.getaddrinfo(name, None)]
    except OSError:
        return []
