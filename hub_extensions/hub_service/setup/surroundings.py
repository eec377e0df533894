"""What a process beside the hub finds around it: the hub's API, the chart's proxy, and what the environment hands down.

The GPU service and the gate are given it. Not here: where the service itself is reached (``addresses.py``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from hub_extensions.adapters.hub.hub_config import value_of
from hub_extensions.hub_service.setup.addresses import at
from hub_extensions.hub_service.setup.settings import SERVICE_NAME

HANDED_DOWN = ("KUBERNETES_SERVICE_", "PG")


def own_hub_api(c: Any, base_url: str) -> str:
    """The hub's API for a process that the hub starts, where the hub listens on every address: the short way, inside.

    In a pod the long one, by the hub's own Service, is a way that network policies may close. "": JupyterHub tells it.
    """
    bound = urlsplit(str(value_of(c, "JupyterHub", "hub_bind_url") or "").replace("//*", "//0.0.0.0"))
    everywhere = (bound.hostname or "") in ("", "0.0.0.0", "::")
    if bound.scheme != "http" or not everywhere or not bound.port or value_of(c, "JupyterHub", "internal_ssl"):
        return ""
    return f"http://127.0.0.1:{bound.port}{base_url}hub/api"


def chart_service_url(base_url: str) -> str:
    """Where pods reach the service by the chart's proxy; "" where the chart's Services are not there."""
    proxy = _chart_proxy(os.environ)
    return f"{proxy}{base_url}services/{SERVICE_NAME}" if proxy else ""


def _chart_proxy(environ: Mapping[str, str]) -> str:
    """Where pods reach the chart's proxy by plain HTTP; "" where the chart's Services are not there.

    With HTTPS the first port of proxy-public is 443. With a certificate of Let's Encrypt it is not the proxy that
    stands there, but proxy-http leads to it.
    """
    if inner := environ.get("PROXY_HTTP_SERVICE_HOST"):
        return at(inner, int(environ.get("PROXY_HTTP_SERVICE_PORT") or 8000))
    public = environ.get("PROXY_PUBLIC_SERVICE_HOST")
    names = ("PROXY_PUBLIC_SERVICE_PORT_HTTP", "PROXY_PUBLIC_SERVICE_PORT")
    port = next((environ[name] for name in names if environ.get(name)), "80")
    return at(public, int(port)) if public else ""


def handed_down() -> dict[str, str]:
    """What the service needs of the hub's own environment, of which JupyterHub hands next to nothing to a service.

    Where a pod finds its cluster, and what libpq connects with (``PGPASSWORD`` and the like).
    """
    return {name: value for name, value in os.environ.items() if name.startswith(HANDED_DOWN)}
