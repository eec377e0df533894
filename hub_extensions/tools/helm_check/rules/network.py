"""Rules about network policies that cut off necessary connections, one for each mistake that people have made.

The combined effect of all policies is not computed here; ``tests/helm_values/policies.py`` does that for our manifests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address
from typing import Any

from hub_extensions.tools.helm_check.model import Findings, Release, spawner_keys
from hub_extensions.tools.helm_check.rules.sign_on import has_single_sign_on, provider_setting
from hub_extensions.tools.helm_check.rules.state import DATABASE_VARIABLE, is_service_deployment
from hub_extensions.tools.helm_check.trees import Tree, as_list, as_tree, find, mappings

PORT = 8191
HUB_ACCESS = "hub.jupyter.org/network-access-hub"
API_PORTS = (443, 6443)  # of the API server's Service and of its host; which one a policy applies to depends on the CNI
SERVICE_PORTS = (443, 6443, 5432, 9090, 587, 465, 8081)  # that our policy opens for a service in a pod of its own
CHART_NAME = "jupyterhub"
INSIDE = re.compile(r"[^.]+|.+\.(svc|local|internal|lan|home|intranet)")  # a host name of the cluster or of its network
HUB, PROXY = "hub.networkPolicy", "proxy.chp.networkPolicy"
API, PROVIDER = "the API server", "the provider where people sign in"


def check_network(release: Release) -> Findings:
    """Report connections that network policies cut off, if the values use our spawner."""
    if release.is_ours:
        yield from _way_to_service(release)
        yield from _switched_off(release)
        yield from _way_of_servers(release)
        yield from _ways_out(release)


def rules_of(release: Release, labels: Tree, direction: str, namespace: str = "") -> list[Any] | None:
    """Return the rules of all network policies among the manifests that select a pod with these labels.

    Args:
        release: the release to check, with the manifests.
        labels: the pod's labels.
        direction: ``Ingress`` or ``Egress``.
        namespace: the pod's namespace; "" for that of the release.

    Returns:
        `None` if no policy selects the pod, so that all connections are allowed.
    """
    chosen = []
    for manifest in release.manifests:
        spec = as_tree(manifest.get("spec"))
        types = as_list(spec.get("policyTypes")) or ["Ingress", *(["Egress"] if spec.get("egress") else [])]
        is_near = find(manifest, ("metadata", "namespace")) == (namespace or release.namespace)
        if manifest.get("kind") == "NetworkPolicy" and spec and direction in types and is_near:
            chosen += [spec] if matches(spec.get("podSelector"), labels) else []
    return [rule for spec in chosen for rule in mappings(spec.get(direction.lower()))] if chosen else None


def matches(selector: Any, labels: Tree) -> bool:
    """Whether a label selector selects a pod with these labels. Expressions with an operator but *In* are ignored."""
    wanted = {key: [value] for key, value in as_tree(find(selector, ["matchLabels"])).items()}.items()
    listed = [each for each in mappings(find(selector, ["matchExpressions"])) if each.get("operator") == "In"]
    pairs: list[tuple[Any, Any]] = [*wanted, *((each.get("key"), as_list(each.get("values"))) for each in listed)]
    return all(labels.get(key) in values for key, values in pairs)


def opens(rules: Iterable[Any], port: int, *names: str) -> bool:
    """Whether one of these rules allows a port, by its number or by one of the `names` that the container gives it."""
    for rule in rules:
        if isinstance(rule, Mapping) and not rule.get("ports"):
            return True
        for each in mappings(find(rule, ["ports"])):
            first, last = each.get("port"), each.get("endPort")
            if first is None or first in names or str(first) == str(port):
                return True
            if isinstance(first, int) and isinstance(last, int) and first <= port <= last:
                return True
    return False


def is_open(release: Release, labels: Tree, namespace: str, port: int) -> bool:
    """Whether users' servers can reach a port of a pod with these labels, by the ingress policies of the manifests.

    Args:
        labels: the pod's labels.
        namespace: the pod's namespace.
        port: number of the port.
    """
    server = {**pod_labels(release, "singleuser-server"), **release.tree("singleuser.extraLabels")}
    home = {"kubernetes.io/metadata.name": release.namespace}

    def lets_in(peer: Tree) -> bool:
        spaces = peer.get("namespaceSelector")
        is_near = release.namespace == namespace if spaces is None else matches(spaces, home)
        return "ipBlock" not in peer and is_near and matches(peer.get("podSelector"), server)

    rules = rules_of(release, labels, "Ingress", namespace)
    for_servers = [each for each in rules or () if not each.get("from") or any(map(lets_in, mappings(each["from"])))]
    return rules is None or opens(for_servers, port)


def pod_labels(release: Release, component: str) -> dict[str, str]:
    """Return the labels that the chart gives the pod of a component, such as ``hub``."""
    app = str(release.at("nameOverride") or CHART_NAME)
    modern = {"app.kubernetes.io/name": app, "app.kubernetes.io/component": component}
    return {"app": app, "component": component, "release": release.name, **modern}


def _is_on(release: Release, section: str) -> bool:
    return release.at(f"{section}.enabled") is True


def _ways_in(release: Release, section: str) -> list[Any]:
    """Return the ingress rules that the values add to one of the chart's network policies.

    Args:
        release: the release to check.
        section: key of the policy in the values, such as ``hub.networkPolicy``.
    """
    ports = release.items(f"{section}.allowedIngressPorts")
    return [*release.items(f"{section}.ingress"), *({"ports": [{"port": port}]} for port in ports)]


def _way_to_service(release: Release) -> Findings:
    """Report if the proxy cannot reach the GPU service, or a service in its own Deployment cannot reach the hub.

    Our policies for these connections name a port and a label, which the values may have changed.
    """
    service, apart = release.tree("hub.config.GpuService"), release.is_apart
    port = host_and_port(service.get("url"))[1] or service.get("port")
    port = port if isinstance(port, int) and port else PORT
    app, labels = pod_labels(release, "hub")["app"], {**pod_labels(release, "hub"), **release.tree("hub.labels")}
    for manifest in release.manifests if apart else ():
        if is_service_deployment(manifest):
            labels = dict(manifest["spec"]["template"]["metadata"]["labels"])
            if str(labels.get(HUB_ACCESS)) != "true" and _is_on(release, HUB):
                text = "The GPU service's pod cannot reach the hub's pod at port 8081, so the service gets no settings "
                text += "and stops no idle server: the policy hub does not let it in."
                yield release.found("network", HUB, text, f'Give the service\'s pods the label {HUB_ACCESS}: "true".')
    policies = rules_of(release, labels, "Ingress")
    if policies is None and (release.manifests if apart else not _is_on(release, HUB)):
        return  # nothing closes the pod
    rules = [*(policies or ()), *([] if apart else _ways_in(release, HUB))]
    if not release.manifests and app == CHART_NAME:
        rules.append({"ports": [{"port": PORT}]})  # our policy, as shipped
    if opens(rules, port):
        return
    where = "the GPU service's pod" if apart else "the hub's pod, where the GPU service runs,"
    text = f"The proxy cannot reach {where} at port {port}, so no page and no panel of the GPU service opens"
    file = f"helm-values/manifests/{'service-deployment/' if apart else ''}networkpolicy.yaml"
    key, why = HUB, "no policy lets it in"
    fix = f"Apply {file}, and name it by --manifests, or add a rule to {HUB}.ingress."
    if app != CHART_NAME:
        key, why = "nameOverride", "our policies choose pods by the label app"
        fix = f"Write app: {app} for app: {CHART_NAME} in {file}, apply it, and name it by --manifests."
    elif port != PORT:
        key, why = "hub.config.GpuService.port", "no policy opens that port"
        fix = f"Change the port in {file} to {port}, apply it, and name it by --manifests."
    yield release.found("network", key, f"{text}: {why}.", fix)


def _switched_off(release: Release) -> Findings:
    """Report that the chart's policy for a pod is off, so that ours is the only one and blocks other connections."""
    for section, component, direction, port, what in (
        (HUB, "hub", "Ingress", 8081, "nobody reaches the hub at port 8081: no server starts"),
        (PROXY, "proxy", "Egress", 8888, "the proxy cannot reach users' servers: no server opens"),
    ):
        if not _is_on(release, section) and not (release.is_apart and component == "hub"):
            rules = rules_of(release, pod_labels(release, component), direction)
            if (rules is not None and not opens(rules, port)) or not release.manifests:
                text = f"With the chart's policy off, ours is the only one for this pod, and {what}."
                fix = f"Set {section}.enabled to true, or leave our policies out and name what you apply "
                yield release.found("network", f"{section}.enabled", text, f"{fix}by --manifests.")


def _way_of_servers(release: Release) -> Findings:
    """Report that the chart's policies keep users' servers from the hub or from the proxy."""
    keys = (*spawner_keys("extra_labels")[:2], "singleuser.extraLabels")
    labels = next((given for key in keys if isinstance(given := release.at(key), Mapping)), {})
    is_shut = _is_on(release, HUB) and not opens(_ways_in(release, HUB), 8081, "http")
    if is_shut and str(labels.get(HUB_ACCESS)) != "true":
        text = "Users' servers cannot reach the hub's pod at port 8081, so no server starts: "
        text += f"the policy hub lets in pods with the label {HUB_ACCESS}."
        fix = f"Keep the label {HUB_ACCESS} in singleuser.extraLabels."
        yield release.found("network", ("singleuser", "extraLabels", HUB_ACCESS), text, fix)
    host = host_and_port(release.at("hub.config.GpuCluster.service_connect_url"))[0].split(".")[0]
    is_shut = _is_on(release, PROXY) and not opens(_ways_in(release, PROXY), 8000, "http")
    if is_shut and (not host or "proxy-public" in host):
        text = "Users' servers cannot reach the proxy at port 8000, so JupyterLab's GPU panel shows no line and no "
        text += "countdown: the policy proxy does not let them in."
        key = f"{PROXY}.allowedIngressPorts"
        yield release.found("network", key, text, f"Keep http in {key}.")


def _ways_out(release: Release) -> Findings:
    """Report connections to other services, such as the API server or a database, that the pod's policy blocks."""
    labels = {**pod_labels(release, "hub"), **release.tree("hub.labels")}
    of_hub = [*release.items(f"{HUB}.egress"), *(rules_of(release, labels, "Egress") or ())]
    of_service = rules_of(release, {"app": CHART_NAME, "component": "gpu-service"}, "Egress")
    if not release.manifests:
        of_service = [{"ports": [{"port": port} for port in SERVICE_PORTS]}]
    apart = release.is_apart
    calls = [(apart and name != PROVIDER, name, port, what) for name, port, what in _calls_out(release)]
    if apart:
        calls.insert(0, (False, API, 443, "no server starts"))
    for is_of_service, name, port, what in calls:
        ports = API_PORTS if name == API else (port,)
        if is_of_service:
            if of_service is not None and not any(opens(of_service, each) for each in ports):
                text = f"The GPU service's pod may be cut off from {name}, and then {what}: "
                text += f"no rule of its policy opens port {port}."
                fix = f"Open port {port} there; service-deployment/networkpolicy.yaml has the rule."
                yield release.found("network", "NetworkPolicy jupyterhub-gpu-service", text, fix, "look at")
            continue
        is_public = name == PROVIDER and _is_public(host_and_port(provider_setting(release, "issuer")[1])[0])
        key = f"{HUB}.egressAllowRules.{'nonPrivateIPs' if is_public else 'privateIPs'}"
        if _is_on(release, HUB) and release.at(key) is not True and not any(opens(of_hub, each) for each in ports):
            text = f"The hub's pod may be cut off from {name}, and then {what}: no rule opens port "
            text += f"{' or '.join(map(str, ports))} to a {'public' if is_public else 'private'} address."
            fix = f"Add a rule for its address to {HUB}.egress, or set {key} to true."
            yield release.found("network", key, text, fix, "look at")


def _calls_out(release: Release) -> Iterator[tuple[str, int, str]]:
    """Yield each outgoing connection: name of the other side, its port, and what does not work without it."""
    yield API, 443, "the service sees no nodes and no pods"
    own, notices = release.tree("hub.config.GpuService"), release.tree("hub.config.GpuNotices")
    mail = f"smtp://{notices['smtp_host']}:{notices.get('smtp_port', 587)}" if notices.get("smtp_host") else ""
    database = own.get("database_url") or release.variables("hub.extraEnv").get(DATABASE_VARIABLE)
    if isinstance(database, Mapping):
        database = database.get("value") or "postgresql://in-a-secret"
    issuer = provider_setting(release, "issuer")[1] if has_single_sign_on(release) else ""
    warning = release.at("hub.config.GpuCulling.warning_webhook_url")
    for given, name, usual, what in (
        (database, "its database", 5432, "it cannot keep the line"),
        (own.get("prometheus_url"), "your Prometheus", 80, "the use of MIG devices is not known"),
        (mail, "your mail server", 587, "no user is told by e-mail"),
        (notices.get("webhook_url"), "the receiver of the webhook", 80, "no user is told by the webhook"),
        (warning, "the receiver of the webhook", 80, "nobody is warned by it"),
        (issuer, PROVIDER, 443, "nobody can sign in"),
    ):
        host, port = host_and_port(given)
        if host:
            yield name, port or (443 if str(given).startswith("https") else usual), what


def _is_public(host: str) -> bool:
    try:
        return ip_address(host).is_global
    except ValueError:
        return INSIDE.fullmatch(host) is None


def host_and_port(url: object) -> tuple[str, int | None]:
    """Return host and port of a URL ``scheme://user@host:port/path``; "" for a missing host, None for no port."""
    parts = re.match(r"[^/]+://(?:[^/@]*@)?(\[[^]]*\]|[^/:?#]*)(?::(\d+))?", str(url or ""))
    return (parts[1], int(parts[2]) if parts[2] else None) if parts else ("", None)
