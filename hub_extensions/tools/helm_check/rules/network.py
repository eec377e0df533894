"""Calls that the network policies of these values cut off: mistakes that people have made, one rule each.

The effect of all policies together is not evaluated here; ``tests/helm_values/policies.py`` evaluates our manifests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import ip_address
from typing import Any

from hub_extensions.tools.helm_check.model import Finding, Release, found
from hub_extensions.tools.helm_check.rules.hub import SPAWNERS
from hub_extensions.tools.helm_check.rules.sign_on import has_single_sign_on, provider_setting
from hub_extensions.tools.helm_check.rules.state import DATABASE_VARIABLE, is_service_deployment

Tree = Mapping[str, Any]

PORT = 8191
HUB_ACCESS = "hub.jupyter.org/network-access-hub"
API_PORTS = (443, 6443)  # the API server's Service, and where most clusters have it: networks judge by one or the other
SERVICE_PORTS = (443, 6443, 5432, 9090, 587, 465, 8081)  # that our policy opens for a service in a pod of its own
SECTIONS = ("hub.networkPolicy", "proxy.chp.networkPolicy", "singleuser.networkPolicy")
CHART_NAME = "jupyterhub"
INSIDE = re.compile(r"[^.]+|.+\.(svc|local|internal|lan|home|intranet)")  # a host name of the cluster or of its network


def check_network(release: Release) -> Iterator[Finding]:
    if not release.is_ours:
        return
    yield from _malformed(release)
    yield from _way_to_service(release)
    yield from _switched_off(release)
    yield from _way_of_servers(release)
    yield from _ways_out(release)


def is_apart(release: Release) -> bool:
    """Does the service run in a Deployment of its own?"""
    return release.tree("hub.config.GpuService").get("started_by_hub") is False


# ------------------------------------------------------------------ policies


def policies_for(release: Release, labels: Tree, namespace: str, direction: str) -> Sequence[Tree]:
    """The specs of the policies among the manifests that choose a pod with these labels for a direction."""
    specs = [
        each["spec"]
        for each in release.manifests
        if each.get("kind") == "NetworkPolicy"
        and isinstance(each.get("spec"), Mapping)
        and (each.get("metadata") or {}).get("namespace", namespace) == namespace
    ]
    usual = {"Ingress": True, "Egress": False}[direction]
    return [
        spec
        for spec in specs
        if (direction in spec["policyTypes"] if spec.get("policyTypes") else usual or spec.get("egress"))
        and matches(spec.get("podSelector"), labels)
    ]


def matches(selector: Any, labels: Tree) -> bool:
    """Does a label selector choose a pod? An expression other than *In* is taken to choose it."""
    wanted = (selector or {}).get("matchLabels") or {}
    expressions = [each for each in (selector or {}).get("matchExpressions") or () if each.get("operator") == "In"]
    named = all(labels.get(each.get("key")) in (each.get("values") or ()) for each in expressions)
    return named and all(labels.get(key) == value for key, value in wanted.items())


def opens(rules: Iterable[Any], port: int, *names: str) -> bool:
    """Does one of these rules open a port, given by number or by one of the container's names of it?"""
    for rule in rules:
        if not isinstance(rule, Mapping):
            continue
        if not rule.get("ports"):
            return True
        for each in rule["ports"] if isinstance(rule["ports"], list) else ():
            first = each.get("port") if isinstance(each, Mapping) else None
            if isinstance(each, Mapping) and (first is None or first in names or str(first) == str(port)):
                return True
            if isinstance(first, int) and first <= port <= int(each.get("endPort", first)):
                return True
    return False


def is_open(release: Release, labels: Tree, namespace: str, port: int) -> bool:
    """Can users' servers reach such a pod, as far as the manifests and the way in go?"""
    server = {**pod_labels(release, "singleuser-server"), **release.tree("singleuser.extraLabels")}
    closing = policies_for(release, labels, namespace, "Ingress")
    rules = [rule for spec in closing for rule in spec.get("ingress") or ()]
    return not closing or opens([each for each in rules if _lets_in(each, server, release, namespace)], port)


def _lets_in(rule: Any, labels: Tree, release: Release, namespace: str) -> bool:
    peers = rule.get("from") if isinstance(rule, Mapping) else None
    home = {"kubernetes.io/metadata.name": release.namespace}
    for peer in peers or ():
        spaces = peer.get("namespaceSelector")
        is_near = release.namespace == namespace if spaces is None else matches(spaces, home)
        if "ipBlock" not in peer and is_near and matches(peer.get("podSelector"), labels):
            return True
    return not peers


def pod_labels(release: Release, component: str) -> dict[str, str]:
    """The labels of one of the chart's pods."""
    app = str(release.at("nameOverride") or CHART_NAME)
    modern = {"app.kubernetes.io/name": app, "app.kubernetes.io/component": component}
    return {"app": app, "component": component, "release": release.name, **modern}


def _is_on(release: Release, section: str) -> bool:
    return release.at(f"{section}.enabled") is True


def _given_rules(release: Release, section: str, direction: str) -> list[Any]:
    """The rules that values give one of the chart's policies."""
    rules = [*release.items(f"{section}.{direction}")]
    if direction == "ingress":
        rules += [{"ports": [{"port": port}]} for port in release.items(f"{section}.allowedIngressPorts")]
    return rules


# ------------------------------------------------------------------ rules


def _malformed(release: Release) -> Iterator[Finding]:
    """Entries that are not rules: the cluster refuses them, or they open too much."""
    fix = "A rule has from (or to) and ports, each a list, as in a Kubernetes NetworkPolicy."
    for section in SECTIONS:
        for direction in ("ingress", "egress"):
            rules = release.items(f"{section}.{direction}")
            for at, rule in enumerate(rules):
                if not _is_rule(rule, direction):
                    text = f"Its entry {at + 1} is no rule of a NetworkPolicy"
                    text += ": the cluster refuses it, or it opens too much."
                    yield found(release, "network-rule", f"{section}.{direction}", text, fix)
                    break
        key = f"{section}.allowedIngressPorts"
        if any(isinstance(port, bool) or not isinstance(port, (int, str)) for port in release.items(key)):
            text = "It holds something that is no port: numbers and names are."
            yield found(release, "network-rule", key, text, "Write for example [http, 8081].")


def _is_rule(rule: Any, direction: str) -> bool:
    peers = "from" if direction == "ingress" else "to"
    if not isinstance(rule, Mapping) or not set(rule) <= {peers, "ports"}:
        return False
    parts = {peers: ("podSelector", "namespaceSelector", "ipBlock"), "ports": ("port", "protocol", "endPort")}
    for part, known in parts.items():
        items = rule.get(part) or []
        if not isinstance(items, list):
            return False
        if not all(isinstance(each, Mapping) and set(each) <= {*known} for each in items):
            return False
    return True


def _way_to_service(release: Release) -> Iterator[Finding]:
    """The proxy, and the hub if the service is apart, reach the service by our policies, which name port and label."""
    apart, port = is_apart(release), _port(release)
    where = "the GPU service's pod" if apart else "the hub's pod, where the GPU service runs,"
    text = f"The proxy cannot reach {where} at port {port}, so no page and no panel of the GPU service opens"
    file = f"helm-values/manifests/{'service-deployment/' if apart else ''}networkpolicy.yaml"
    section = "hub.networkPolicy"
    labels = {**pod_labels(release, "hub"), **release.tree("hub.labels")}
    for manifest in release.manifests if apart else ():
        if is_service_deployment(manifest):
            labels = dict(manifest["spec"]["template"]["metadata"]["labels"])
            if str(labels.get(HUB_ACCESS)) != "true" and _is_on(release, section):
                refused = (
                    "The GPU service's pod cannot reach the hub's pod at port 8081, so the service gets no settings "
                    "and stops no idle server: the policy hub does not let it in."
                )
                fix = f'Give the service\'s pods the label {HUB_ACCESS}: "true".'
                yield found(release, "network", section, refused, fix)
    rules = [] if apart else _given_rules(release, section, "ingress")
    specs = policies_for(release, labels, release.namespace, "Ingress")
    if apart and release.manifests and not specs:
        return  # nothing closes the service's pod
    if not apart and not _is_on(release, section) and not specs:
        return
    rules += [rule for spec in specs for rule in spec.get("ingress") or ()]
    if not release.manifests and release.at("nameOverride") in (None, "", CHART_NAME):
        rules.append({"ports": [{"port": PORT}]})  # ours, as shipped
    if opens(rules, port):
        return
    if release.at("nameOverride") not in (None, "", CHART_NAME):
        app = pod_labels(release, "hub")["app"]
        fix = f"Write app: {app} for app: {CHART_NAME} in {file}, apply it, and name it by --manifests."
        yield found(release, "network", "nameOverride", f"{text}: our policies choose pods by the label app.", fix)
    elif port != PORT:
        fix = f"Change the port in {file} to {port}, apply it, and name it by --manifests."
        yield found(release, "network", "hub.config.GpuService.port", f"{text}: no policy opens that port.", fix)
    else:
        fix = f"Apply {file}, and name it by --manifests, or add a rule to {section}.ingress."
        yield found(release, "network", section, f"{text}: no policy lets it in.", fix)


def _switched_off(release: Release) -> Iterator[Finding]:
    """If the chart's policy is off, ours is the only one for the pod and closes its other ways."""
    sides = {
        "hub.networkPolicy": ("hub", "Ingress", 8081, "nobody reaches the hub at port 8081: no server starts"),
        "proxy.chp.networkPolicy": ("proxy", "Egress", 8888, "the proxy cannot reach users' servers: no server opens"),
    }
    for section, (component, direction, port, what) in sides.items():
        if _is_on(release, section) or (is_apart(release) and component == "hub"):
            continue
        labels = pod_labels(release, component)
        specs = policies_for(release, labels, release.namespace, direction)
        rules = [rule for spec in specs for rule in spec.get(direction.lower()) or ()]
        if (specs and not opens(rules, port)) or not release.manifests:
            text = f"With the chart's policy off, ours is the only one for this pod, and {what}."
            fix = f"Set {section}.enabled to true, or leave our policies out and name what you apply by --manifests."
            yield found(release, "network", f"{section}.enabled", text, fix)


def _way_of_servers(release: Release) -> Iterator[Finding]:
    labels: Tree = release.tree("singleuser.extraLabels")
    for section in SPAWNERS[:2]:
        given = release.tree(f"hub.config.{section}").get("extra_labels")
        if isinstance(given, Mapping):
            labels = given
            break
    section = "hub.networkPolicy"
    is_shut = _is_on(release, section) and not opens(_given_rules(release, section, "ingress"), 8081, "http")
    if is_shut and str(labels.get(HUB_ACCESS)) != "true":
        text = (
            "Users' servers cannot reach the hub's pod at port 8081, so no server starts: the policy hub lets in pods "
            f"with the label {HUB_ACCESS}."
        )
        fix = f"Keep the label {HUB_ACCESS} in singleuser.extraLabels."
        yield found(release, "network", ("singleuser", "extraLabels", HUB_ACCESS), text, fix)
    section = "proxy.chp.networkPolicy"
    host = host_and_port(release.at("hub.config.GpuCluster.service_connect_url"))[0].split(".")[0]
    is_shut = _is_on(release, section) and not opens(_given_rules(release, section, "ingress"), 8000, "http")
    if is_shut and (not host or "proxy-public" in host):
        text = (
            "Users' servers cannot reach the proxy at port 8000, so JupyterLab's GPU panel shows no line and no "
            "countdown: the policy proxy does not let them in."
        )
        fix = f"Keep http in {section}.allowedIngressPorts."
        yield found(release, "network", f"{section}.allowedIngressPorts", text, fix)


def _ways_out(release: Release) -> Iterator[Finding]:
    """Calls to addresses outside the values, from a pod whose policy does not open the port."""
    apart, section = is_apart(release), "hub.networkPolicy"
    labels: Tree = {**pod_labels(release, "hub"), **release.tree("hub.labels")}
    specs = policies_for(release, labels, release.namespace, "Egress")
    rules = [*_given_rules(release, section, "egress"), *(rule for spec in specs for rule in spec.get("egress") or ())]
    calls = list(_calls_out(release))
    if _is_on(release, section):
        for name, port, what, is_outside in calls:
            if apart and name not in ("the API server", "the provider where people sign in"):
                continue  # called by the service, from a pod of its own
            if apart and name == "the API server":
                what = "no server starts"
            rule = "nonPrivateIPs" if is_outside else "privateIPs"
            ports = API_PORTS if name == "the API server" else (port,)
            if release.at(f"{section}.egressAllowRules.{rule}") is not True and not any(opens(rules, p) for p in ports):
                key = f"{section}.egressAllowRules.{rule}"
                named = " or ".join(map(str, ports))
                text = f"The hub's pod may be cut off from {name}, and then {what}: no rule opens port {named} to a "
                text += f"{'public' if is_outside else 'private'} address."
                fix = f"Add a rule for its address to {section}.egress, or set {key} to true."
                yield found(release, "network", key, text, fix, severity="look at")
    if not apart:
        return
    labels = {"app": CHART_NAME, "component": "gpu-service"}
    specs = policies_for(release, labels, release.namespace, "Egress")
    rules = [rule for spec in specs for rule in spec.get("egress") or ()]
    if not release.manifests:
        rules = [{"ports": [{"port": port} for port in SERVICE_PORTS]}]
    for name, port, what, _ in calls if specs or not release.manifests else ():
        ports = API_PORTS if name == "the API server" else (port,)
        if name != "the provider where people sign in" and not any(opens(rules, each) for each in ports):
            text = (
                f"The GPU service's pod may be cut off from {name}, and then {what}: no rule of its policy opens "
                f"port {port}."
            )
            fix = f"Open port {port} there; service-deployment/networkpolicy.yaml has the rule."
            key = "NetworkPolicy jupyterhub-gpu-service"
            yield Finding("network", "look at", key, text, fix)


def _calls_out(release: Release) -> Iterator[tuple[str, int, str, bool]]:
    """Name, port, what does not work without it, and whether it is at a public address."""
    yield "the API server", 443, "the service sees no nodes and no pods", False
    own, notices = release.tree("hub.config.GpuService"), release.tree("hub.config.GpuNotices")
    mail = f"smtp://{notices['smtp_host']}:{notices.get('smtp_port', 587)}" if notices.get("smtp_host") else ""
    database = own.get("database_url") or release.variables("hub.extraEnv").get(DATABASE_VARIABLE)
    if isinstance(database, Mapping):
        database = database.get("value") or "postgresql://in-a-secret"
    issuer = provider_setting(release, "issuer")[1] if has_single_sign_on(release) else ""
    for given, name, usual, what in (
        (database, "its database", 5432, "it cannot keep the line"),
        (own.get("prometheus_url"), "your Prometheus", 80, "the use of MIG devices is not known"),
        (mail, "your mail server", 587, "no user is told by e-mail"),
        (notices.get("webhook_url"), "the receiver of the webhook", 80, "no user is told by the webhook"),
        (
            release.at("hub.config.GpuCulling.warning_webhook_url"),
            "the receiver of the webhook",
            80,
            "nobody is warned by it",
        ),
        (issuer, "the provider where people sign in", 443, "nobody can sign in"),
    ):
        url = str(given or "")
        host, port = host_and_port(url)
        if host:
            is_outside = name.startswith("the provider") and _is_public(host)
            yield name, port or (443 if url.startswith("https") else usual), what, is_outside


def _is_public(host: str) -> bool:
    try:
        return ip_address(host).is_global
    except ValueError:
        return INSIDE.fullmatch(host) is None


def _port(release: Release) -> int:
    service = release.tree("hub.config.GpuService")
    named, port = host_and_port(service.get("url"))[1], service.get("port") or PORT
    return named or (port if isinstance(port, int) else PORT)


def host_and_port(url: object) -> tuple[str, int | None]:
    """Host and port of ``scheme://user@host:port/path``; "" and None if they are missing."""
    parts = re.match(r"[^/]+://(?:[^/@]*@)?(\[[^]]*\]|[^/:?#]*)(?::(\d+))?", str(url or ""))
    return (parts[1], int(parts[2]) if parts[2] else None) if parts else ("", None)
