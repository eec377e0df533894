"""Renders the configuration of a proxy in front of the apps.

With this configuration, the proxy asks the gate about each request, and forwards only identity headers that the gate
has set. It removes the gate's secrets from requests and answers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import indent

from jinja2 import Environment, PackageLoader, StrictUndefined

from hub_extensions.core.sign_on.apps import CHECK_PATH, App, AppProblem
from hub_extensions.core.sign_on.identity_headers import (
    METHOD,
    PROXY_SECRET,
    TO_THE_GATE,
    UPGRADE,
    URI,
    copied_header_names,
    identity_header_names,
)
from hub_extensions.tools.gate_config.sites import ConfigRefused, HostAddress, PlacedApp, Site, address_of, sites_of

TEMPLATES = {
    "nginx": "nginx.conf.j2",
    "caddy": "Caddyfile.j2",
    "envoy": "envoy.yaml.j2",
    "traefik": "traefik.yaml.j2",
    "traefik-kubernetes": "traefik-kubernetes.yaml.j2",
    "gateway-api": "gateway-api.yaml.j2",
    "ingress": "ingress.yaml.j2",
    "policies": "policies.yaml.j2",
}
"""Kind of proxy -> template of its configuration; ``policies`` are the apps' NetworkPolicies on Kubernetes."""
RELAYING = ("nginx", "caddy", "envoy", "traefik", "traefik-kubernetes", "policies")
"""Kinds with which an app's WebSockets can be relayed by the gate. ``policies`` does not depend on the proxy."""
PUBLIC = ("/_gate/start", "/_gate/callback", "/_gate/sign-out", "/_gate/jwks.json", "/_gate/health")
"""The gate's paths for browsers and for apps that verify an assertion. The proxy refuses all others from outside."""
ABOUT_THE_REQUEST = ("Forwarded", "X-Forwarded-Host", "X-Forwarded-Prefix")
"""Headers from which apps build URLs. The proxy does not forward those that a browser sends."""
_SECRET = re.compile(r"[A-Za-z0-9_-]{32,}")
_PLAIN = re.compile(r"[A-Za-z0-9._/:-]*")


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """The values that a proxy's configuration needs besides the apps.

    Attributes:
        url: public address of the gate with the portal (the page with the links to all apps).
        gate: address at which the proxy asks the gate.
        secret: the secret that the proxy shares with the gate; letters, digits, - and _.
        listen: address that the proxy listens on; "" for all addresses of the machine.
        certificate, key: files for hosts with https.
        body_megabytes: largest upload.
        websocket_minutes: lifetime of a WebSocket, if the proxy can limit it; 0 for no limit.
        namespace: Kubernetes namespace of the gate's Service.
    """

    url: str
    secret: str
    gate: str = "http://127.0.0.1:8192"
    listen: str = ""
    certificate: str = "/etc/ssl/apps.pem"
    key: str = "/etc/ssl/apps.key"
    body_megabytes: int = 1024
    websocket_minutes: int = 15
    namespace: str = "apps"


def render(proxy: str, apps: Sequence[App], settings: ProxySettings) -> str:
    """Return the configuration of a proxy for these apps.

    Args:
        proxy: kind of the proxy, such as ``nginx`` (a key of `TEMPLATES`); ``policies`` for the apps' NetworkPolicies.
        apps: the apps of the catalogue.
        settings: further values.

    Raises:
        ConfigRefused: this kind of proxy cannot be configured for an app or a setting.
    """
    if not _SECRET.fullmatch(settings.secret):
        raise ConfigRefused("the proxy's secret: 32 or more letters, digits, - and _")
    for name in ("listen", "certificate", "key", "namespace"):
        if not _PLAIN.fullmatch(getattr(settings, name)):
            raise ConfigRefused(f"{name}: letters, digits and ._/:- only")
    _refuse_relay(proxy, apps)
    sites = sites_of(apps, settings.url)
    gate = address_of(settings.gate, "the gate's address")
    placed = [each for site in sites for each in site.apps]
    return _environment().get_template(TEMPLATES[proxy]).render(
        settings=settings,
        gate=gate,
        sites=sites,
        placed=placed,
        check=CHECK_PATH,
        answer="/_gate/answer/",
        public=PUBLIC,
        identity=identity_header_names(),
        copied=copied_header_names(),
        to_the_gate=TO_THE_GATE,
        secret_header=PROXY_SECRET,
        method_header=METHOD,
        uri_header=URI,
        upgrade_header=UPGRADE,
        about_the_request=ABOUT_THE_REQUEST,
        by_port=_by_port(sites),
        clusters=[("jupyterhub_gpu_gate", gate), *((f"app_{each.name}", each.upstream) for each in placed)],
    )  # fmt: skip


def _refuse_relay(proxy: str, apps: Sequence[App]) -> None:
    """Check that this kind of proxy can have an app's WebSockets relayed by the gate, if an app asks for it.

    Some proxies cannot send the gate the headers that it needs for WebSockets.

    Args:
        proxy: kind of the proxy, such as ``nginx``.
        apps: the apps. An app asks for it by its field `relay`.

    Raises:
        ConfigRefused: the proxy cannot, and an app asks for it.
    """
    for app in apps:
        if app.relay and proxy not in RELAYING:
            text = f"{proxy} cannot lead WebSockets through the gate: take relay out, or one of {', '.join(RELAYING)}"
            raise ConfigRefused(str(AppProblem(app.name, "relay", text)))


def _environment() -> Environment:
    loader = PackageLoader("hub_extensions.tools.gate_config")
    # the output is not HTML, and the texts have been checked, so nothing is escaped
    environment = Environment(
        loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters["variable"] = _variable
    environment.filters["any_mark"] = lambda name: name.lower().replace("-", "[-_.]")
    environment.filters["service"] = _service
    environment.filters["indented"] = _indented
    return environment


def _variable(name: str) -> str:
    """Return the name of a header or an app in the form in which it can be a part of an nginx variable."""
    return name.lower().replace("-", "_")


def _indented(text: str, spaces: int) -> str:
    """Indent a part of a proxy's configuration by this number of spaces, and remove its last line break."""
    return indent(text.rstrip("\n"), " " * spaces)


def _by_port(sites: Sequence[Site]) -> list[tuple[int, list[Site]]]:
    found: dict[int, list[Site]] = {}
    for site in sites:
        found.setdefault(site.public.port, []).append(site)
    for port, there in found.items():
        if len({site.public.tls for site in there}) > 1:
            raise ConfigRefused(f"port {port}: both http and https")
    return sorted(found.items())


def _service(each: PlacedApp | HostAddress) -> dict[str, str | int]:
    """Return name, namespace and port of the Kubernetes Service in an address such as ``NAME.NAMESPACE.svc``.

    Args:
        each: the gate's address, or an app with its address.

    Raises:
        ConfigRefused: the address is not that of a Service.
    """
    address = each if isinstance(each, HostAddress) else each.upstream
    words = address.hostname.split(".")
    if len(words) < 2 or words[2:3] not in ([], ["svc"]):
        whose = "the gate" if isinstance(each, HostAddress) else f"app {each.name!r}, upstream"
        raise ConfigRefused(f"{whose}: on Kubernetes it is a Service, http://NAME.NAMESPACE:PORT")
    return {"name": words[0], "namespace": words[1], "port": address.port}
