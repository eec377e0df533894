"""The environment of a process beside the hub: the hub's API, the chart's proxy, and variables that it inherits.

The GPU service and the gate are started with it.
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


def local_hub_api(c: Any, base_url: str) -> str:
    """Return the hub's API for a process that the hub starts, by the loopback address if the hub listens on every
    address.

    In a pod, network policies may block the other way, by the hub's own Service. Returns "" if JupyterHub sets the
    address.
    """
    bound = urlsplit(str(value_of(c, "JupyterHub", "hub_bind_url") or "").replace("//*", "//0.0.0.0"))
    everywhere = (bound.hostname or "") in ("", "0.0.0.0", "::")
    if bound.scheme != "http" or not everywhere or not bound.port or value_of(c, "JupyterHub", "internal_ssl"):
        return ""
    return f"http://127.0.0.1:{bound.port}{base_url}hub/api"


def chart_service_url(base_url: str) -> str:
    """Return where pods reach the service through the chart's proxy; "" outside the chart."""
    proxy = _chart_proxy(os.environ)
    return f"{proxy}{base_url}services/{SERVICE_NAME}" if proxy else ""


def _chart_proxy(environ: Mapping[str, str]) -> str:
    """Return where pods reach the chart's proxy by plain HTTP; "" outside the chart.

    With HTTPS the first port of proxy-public is 443. With a certificate of Let's Encrypt another program listens
    there, but proxy-http leads to the proxy.
    """
    if inner := environ.get("PROXY_HTTP_SERVICE_HOST"):
        return at(inner, int(environ.get("PROXY_HTTP_SERVICE_PORT") or 8000))
    public = environ.get("PROXY_PUBLIC_SERVICE_HOST")
    names = ("PROXY_PUBLIC_SERVICE_PORT_HTTP", "PROXY_PUBLIC_SERVICE_PORT")
    port = next((environ[name] for name in names if environ.get(name)), "80")
    return at(public, int(port)) if public else ""


def inherited_variables() -> dict[str, str]:
    """Return the variables of the hub's environment that the service needs, as JupyterHub passes almost none to a
    service.

    They locate the cluster in a pod, and configure libpq (``PGPASSWORD`` and others).
    """
    return {name: value for name, value in os.environ.items() if name.startswith(HANDED_DOWN)}
