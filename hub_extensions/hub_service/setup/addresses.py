"""Addresses at which the hub, its proxy and users' servers reach the service, and environment variables for it."""

from __future__ import annotations

import os
import socket

SERVICE_NAME = "gpu"
EVERYWHERE = ("", "0.0.0.0", "::")


def at(host: str, port: int) -> str:
    """Return ``http://host:port``, with brackets around an IPv6 address."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def reached_at(host: str, port: int) -> tuple[str, str]:
    """Return the address at which a service that listens on `host` and `port` can be reached.

    If the service listens on all addresses, one of this machine's addresses is chosen: of the same family (IPv4, IPv6)
    as `host` if possible, and not a loopback address. In a pod the host name resolves to the pod's own address.

    Returns:
        The address; and a note for the log if the address is a guess, "" otherwise.
    """
    if host not in EVERYWHERE:
        return at(host, port), ""
    name = socket.gethostname()
    try:
        known = [(family, str(place[0])) for family, _, _, _, place in socket.getaddrinfo(name, None)]
    except OSError:
        known = []
    wanted = socket.AF_INET6 if host == "::" else socket.AF_INET
    found = [each for each in known if host == "::" or each[0] == wanted]
    found.sort(key=lambda each: (each[0] != wanted, each[1].startswith("127.") or each[1] == "::1"))
    if found:
        return at(found[0][1], port), ""
    here = "::1" if host == "::" else "127.0.0.1"
    return at(here, port), (
        f"the name of this machine ({name}) has no address, so the GPU service is looked for at {here}: set "
        "c.GpuService.url where the hub's proxy is on another machine."
    )


def chart_service_url(base_url: str) -> str:
    """Return where pods reach the service through the proxy of the JupyterHub chart, by plain HTTP.

    With HTTPS the first port of proxy-public is 443. With a certificate of Let's Encrypt another program listens there,
    but proxy-http leads to the proxy.

    Args:
        base_url: the hub's base URL.

    Returns:
        "" if this process does not run in the chart.
    """
    names = ("PROXY_PUBLIC_SERVICE_PORT_HTTP", "PROXY_PUBLIC_SERVICE_PORT")
    if host := os.environ.get("PROXY_HTTP_SERVICE_HOST"):
        port = os.environ.get("PROXY_HTTP_SERVICE_PORT") or "8000"
    else:
        host = os.environ.get("PROXY_PUBLIC_SERVICE_HOST")
        port = next((os.environ[name] for name in names if os.environ.get(name)), "80")
    return f"{at(host, int(port))}{base_url}services/{SERVICE_NAME}" if host else ""


def inherited_variables() -> dict[str, str]:
    """Return the variables of the hub's environment that a service needs, because JupyterHub passes almost none.

    They contain the address of the cluster's API server, if the hub runs in a pod, and the settings of libpq
    (``PGPASSWORD`` and others).
    """
    return {name: value for name, value in os.environ.items() if name.startswith(("KUBERNETES_SERVICE_", "PG"))}
