"""Who has to reach whom in a release, and the policies of the chart and of our manifests."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from hub_extensions.tools.helm_check.model import SPAWNERS, Release
from hub_extensions.tools.helm_check.rules.sign_on import has_single_sign_on, provider_setting
from hub_extensions.tools.helm_check.rules.state import DATABASE_VARIABLE, is_service_deployment
from tests.helm_values.network_policy import Direction, Pod, is_rule

Tree = Mapping[str, Any]

PORT = 8191
HUB_ACCESS = "hub.jupyter.org/network-access-hub"
_TO_ANYWHERE = (443, 6443, 5432, 9090, 587, 465)
"""The ports of API server, database, Prometheus and mail server that our policy opens for a service in its own pod."""

_API_PORTS = (443, 6443)
"""The API server's Service, and where most clusters really have it: networks judge by the one or the other."""

_ELSEWHERE = ("api", "database", "prometheus", "mail", "webhook", "provider")
"""Called at an address that these values do not tell."""

_PUBLIC = "198.51.100.1"
"""Stands for an address outside the cluster and its network."""
_INSIDE = re.compile(r"[^.]+|.+\.(svc|local|internal|lan|home|intranet)")
"""A host that has, by its name, an address inside."""

_CHART_NAME = "jupyterhub"
_PRIVATE = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")
_SECTIONS = {"hub": "hub.networkPolicy", "proxy": "proxy.chp.networkPolicy", "server": "singleuser.networkPolicy"}
_NAMES = {
    "hub": "the hub's pod",
    "proxy": "the proxy",
    "server": "users' servers",
    "service": "the GPU service's pod",
    "api": "the API server",
    "database": "its database",
    "prometheus": "your Prometheus",
    "mail": "your mail server",
    "webhook": "the receiver of the webhook",
    "provider": "the provider where people sign in",
}


@dataclass(frozen=True, slots=True)
class Call:
    """One way that has to be open. `why`: what does not work without it."""

    caller: str
    called: str
    port: int
    why: str


# ------------------------------------------------------------------ pods and calls


def pods_of(release: Release) -> dict[str, Pod]:
    """The pods of a release, as the chart labels them, and what is elsewhere at a private address."""
    own = {**_labels(release, "singleuser-server"), **_user_labels(release)}
    space = {"kubernetes.io/metadata.name": release.namespace}

    def pod(name: str, labels: Mapping[str, str], number: int, ports: Mapping[str, int]) -> Pod:
        return Pod(name, labels, release.namespace, f"10.42.0.{number}", ports, space)

    hub = {**_labels(release, "hub"), **_access("proxy-api", "proxy-http", "singleuser"), **release.tree("hub.labels")}
    proxy = {**_labels(release, "proxy"), **_access("hub", "singleuser"), **release.tree("proxy.labels")}
    service = {"app": "jupyterhub", "component": "gpu-service", HUB_ACCESS: "true"}
    for manifest in release.manifests:
        if is_service_deployment(manifest):
            service = dict(manifest["spec"]["template"]["metadata"]["labels"])
    return {
        "hub": pod("hub", hub, 2, {"http": 8081}),
        "proxy": pod("proxy", proxy, 3, {"http": 8000, "https": 8443, "api": 8001}),
        "server": pod("server", own, 4, {"notebook-port": 8888}),
        "service": pod("service", service, 5, {"http": _port(release)}),
        **{name: Pod(name, None, "", f"10.43.0.{number}") for number, name in enumerate(_ELSEWHERE, 1)},
        **({"provider": Pod("provider", None, "", _PUBLIC)} if _is_outside(release) else {}),
    }


def _labels(release: Release, component: str) -> dict[str, str]:
    name = _app(release)
    modern = {"app.kubernetes.io/name": name, "app.kubernetes.io/component": component}
    older = {"app": name, "component": component, "release": release.name}
    return {**older, "app.kubernetes.io/instance": release.name, **modern}


def _app(release: Release) -> str:
    """The label ``app`` of the chart's pods."""
    return str(release.at("nameOverride") or _CHART_NAME)


def _access(*names: str) -> dict[str, str]:
    return {f"hub.jupyter.org/network-access-{name}": "true" for name in names}


def _user_labels(release: Release) -> Tree:
    for section in SPAWNERS[:2]:
        labels = release.tree(f"hub.config.{section}").get("extra_labels")
        if isinstance(labels, Mapping):
            return labels
    return release.tree("singleuser.extraLabels")


def _port(release: Release) -> int:
    service = release.tree("hub.config.GpuService")
    _, named = _host_and_port(service.get("url"))
    port = service.get("port") or PORT
    return named or (port if isinstance(port, int) else PORT)


def _host_and_port(url: object) -> tuple[str, int | None]:
    """Of an address ``scheme://user@host:port/path``; "" and None for what it does not have."""
    parts = re.match(r"[^/]+://(?:[^/@]*@)?(\[[^]]*\]|[^/:?#]*)(?::(\d+))?", str(url or ""))
    return (parts[1], int(parts[2]) if parts[2] else None) if parts else ("", None)


def calls_of(release: Release) -> tuple[Call, ...]:
    """The table who calls whom, of a service in the hub's pod or in its own."""
    apart = release.is_apart
    service, port = ("service" if apart else "hub"), _port(release)
    calls = [
        Call("proxy", service, port, "no page and no panel of the GPU service opens"),
        Call(service, "api", 443, "the service sees no nodes and no pods"),
        Call("server", "hub", 8081, "no server starts"),
        Call("proxy", "server", 8888, "no server opens"),
    ]
    if apart:
        calls += [
            Call("hub", "api", 443, "no server starts"),
            Call("hub", service, port, "no server with a GPU starts"),
            Call(service, "hub", 8081, "the service gets no settings and stops no idle server"),
        ]
    return (*calls, *_to_others(release, service), *_to_provider(release), *_from_servers(release, service, port))


def _ports(call: Call) -> Sequence[int]:
    return _API_PORTS if call.called == "api" else (call.port,)


def _to_others(release: Release, service: str) -> Iterator[Call]:
    """What an admin names beside the cluster; taken to be at a private address, as a pod or in the same network."""
    own, notices = release.tree("hub.config.GpuService"), release.tree("hub.config.GpuNotices")
    mail = f"smtp://{notices['smtp_host']}:{notices.get('smtp_port', 587)}" if notices.get("smtp_host") else ""
    database = own.get("database_url") or release.variables("hub.extraEnv").get(DATABASE_VARIABLE)
    if isinstance(database, Mapping):
        database = database.get("value") or "postgresql://in-a-secret"
    for given, name, usual, why in (
        (database, "database", 5432, "it cannot keep the line"),
        (own.get("prometheus_url"), "prometheus", 80, "the use of MIG devices is not known"),
        (mail, "mail", 587, "no user is told by e-mail"),
        (notices.get("webhook_url"), "webhook", 80, "no user is told by the webhook"),
        (
            release.tree("hub.config.GpuCulling").get("warning_webhook_url"),
            "webhook",
            80,
            "nobody is warned of a stop by it",
        ),
    ):
        url = str(given or "")
        host, port = _host_and_port(url)
        if host:
            yield Call(service, name, port or (443 if url.startswith("https") else usual), why)


def _to_provider(release: Release) -> Iterator[Call]:
    host, port = _host_and_port(_issuer(release))
    if host:
        yield Call("hub", "provider", port or 443, "nobody can sign in")


def _issuer(release: Release) -> str:
    return str(provider_setting(release, "issuer")[1] or "") if has_single_sign_on(release) else ""


def _is_outside(release: Release) -> bool:
    """Is the provider's address a public one, by its name?"""
    host = _host_and_port(_issuer(release))[0]
    try:
        return ip_address(host).is_global
    except ValueError:
        return _INSIDE.fullmatch(host) is None


def _from_servers(release: Release, service: str, port: int) -> Iterator[Call]:
    """The panel asks through the proxy, or at an address that the admin gives."""
    why = "JupyterLab's GPU panel shows no line and no countdown"
    host = _host_and_port(release.tree("hub.config.GpuCluster").get("service_connect_url"))[0].split(".")[0]
    if not host or "proxy-public" in host:
        yield Call("server", "proxy", 8000, why)
    elif host in ("jupyterhub-gpu", "hub"):
        yield Call("server", service, port, why)


# ------------------------------------------------------------------ policies


def chart_policies(release: Release) -> Iterator[Tree]:
    """The chart's policies for the hub, the proxy and users' servers, as far as they are on."""
    return (policy for policy, _ in _charts(release))


def _charts(release: Release) -> Iterator[tuple[Tree, str]]:
    """Each with the key that it is made from."""
    components = {"hub": "hub", "proxy": "proxy", "server": "singleuser-server"}
    for name, section in _SECTIONS.items():
        values = release.tree(section)
        if values.get("enabled") is not True:
            continue
        policy = {
            "metadata": {"name": components[name], "namespace": release.namespace},
            "spec": {
                "podSelector": _chosen(release, components[name]),
                "policyTypes": ["Ingress", "Egress"],
                "ingress": [*_ingress(name, values)],
                "egress": [*_own_egress(release, name), *_egress(release, values)],
            },
        }
        yield policy, section


def _chosen(release: Release, component: str) -> dict[str, Any]:
    return {"matchLabels": {"component": component, "release": release.name}}


def _ingress(name: str, values: Tree) -> Iterator[Tree]:
    if values.get("allowedIngressPorts"):
        yield {"ports": [{"port": port} for port in values["allowedIngressPorts"] if _is_port(port)]}
    doors = {"hub": [("hub", "http")], "proxy": [("proxy-http", "http"), ("proxy-api", "api")]}
    for label, port in doors.get(name, [("singleuser", "notebook-port")]):
        chosen = {"matchLabels": _access(label)}
        peers: list[Tree] = [{"podSelector": chosen}]
        if values.get("interNamespaceAccessLabels") == "accept":
            peers = [{"podSelector": chosen, "namespaceSelector": {}}, {"namespaceSelector": chosen}]
        yield {"ports": [{"port": port}], "from": peers}
    yield from _rules(values.get("ingress"), "Ingress")


def _own_egress(release: Release, name: str) -> Iterator[Tree]:
    """What the chart lets each out to by name, whatever else is closed."""
    ways: Mapping[str, Sequence[tuple[str, tuple[int, ...]]]] = {
        "hub": [("proxy", (8001,)), ("singleuser-server", (8888,))],
        "proxy": [("hub", (8081,)), ("singleuser-server", (8888,))],
        "server": [("hub", (8081,)), ("proxy", (8000,)), ("autohttps", (8080, 8443))],
    }
    for component, ports in ways[name]:
        yield {"to": [{"podSelector": _chosen(release, component)}], "ports": [{"port": port} for port in ports]}


def _egress(release: Release, values: Tree) -> Iterator[Tree]:
    rules = values.get("egressAllowRules") or {}
    metadata = f"{release.at('singleuser.cloudMetadata.ip') or '169.254.169.254'}/32"
    private = [{"ipBlock": {"cidr": block}} for block in _PRIVATE]
    if rules.get("nonPrivateIPs"):
        yield {"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": [*_PRIVATE, metadata]}}]}
    if rules.get("privateIPs"):
        yield {"to": private}
    if rules.get("cloudMetadataServer"):
        yield {"to": [{"ipBlock": {"cidr": metadata}}]}
    if rules.get("dnsPortsPrivateIPs"):
        yield {"to": private, "ports": [{"port": 53, "protocol": kind} for kind in ("UDP", "TCP")]}
    yield from _rules(values.get("egress"), "Egress")


def _rules(given: Any, direction: Direction) -> Iterator[Tree]:
    """An admin's own rules; one that is none opens nothing."""
    yield from (rule for rule in given or () if is_rule(rule, direction))


def _is_port(port: object) -> bool:
    return isinstance(port, (int, str)) and not isinstance(port, bool)


def shipped_policies(namespace: str, *, apart: bool) -> tuple[Tree, ...]:
    """What ``helm-values/manifests`` says, as far as calls of the table depend on it."""
    target = "gpu-service" if apart else "hub"
    here = {"matchLabels": {"app": "jupyterhub", "component": target}}
    ports = [{"protocol": "TCP", "port": PORT}]
    callers = ("hub", "proxy") if apart else ("proxy",)
    peers = [{"podSelector": {"matchLabels": {"app": "jupyterhub", "component": name}}} for name in callers]
    name, to = ("jupyterhub-gpu-service", "service") if apart else ("jupyterhub-gpu-in-hub", "hub")
    spec: Tree = {"podSelector": here, "policyTypes": ["Ingress"], "ingress": [{"from": peers, "ports": ports}]}
    if apart:
        spec = {**spec, "policyTypes": ["Ingress", "Egress"], "egress": _service_egress()}
    policies: list[Tree] = [{"metadata": {"name": name, "namespace": namespace}, "spec": spec}]
    for caller, peer in zip(callers, peers, strict=True):
        spec = {**peer, "policyTypes": ["Egress"], "egress": [{"to": [{"podSelector": here}], "ports": ports}]}
        policies.append(
            {"metadata": {"name": f"jupyterhub-gpu-{caller}-to-{to}", "namespace": namespace}, "spec": spec}
        )
    return tuple(policies)


def _service_egress() -> list[Tree]:
    hub = {"podSelector": {"matchLabels": {"app": "jupyterhub", "component": "hub"}}}
    return [
        {"ports": [{"protocol": kind, "port": 53} for kind in ("UDP", "TCP")]},
        {"to": [hub], "ports": [{"protocol": "TCP", "port": 8081}]},
        {"ports": [{"protocol": "TCP", "port": port} for port in _TO_ANYWHERE]},
    ]
