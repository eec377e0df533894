"""Rules about the gate, which decides who may use an app: only the gate's proxy may reach the gate and the apps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hub_extensions.core.settings import settings_in
from hub_extensions.core.sign_on.apps import address_of
from hub_extensions.core.sign_on.gate_config import GateConfig
from hub_extensions.gate.hub_setup import SERVICE
from hub_extensions.tools.gate_config.render import RELAYING
from hub_extensions.tools.helm_check.model import Findings, Release, name_of
from hub_extensions.tools.helm_check.rules.network import is_open
from hub_extensions.tools.helm_check.rules.sign_on import public_hosts
from hub_extensions.tools.helm_check.trees import Tree, as_tree, find, mappings

SECTION = "hub.config.SignOnGate"
LABELS = {"app": "jupyterhub", "component": "gate"}
PORT = 8192
DATABASE_VARIABLE = settings_in(GateConfig)["database_url"].variable
_DOMAINS = ("domain=", "proxy_cookie_domain", "cookie-domain")


def check_gate(release: Release) -> Findings:
    """Report mistakes about the gate, if the values enable it.

    A catalogue of apps in a file cannot be read here, because the file is in the hub's pod.
    """
    gate = release.tree(SECTION)
    apps = {str(name): app for name, app in as_tree(gate.get("apps")).items() if isinstance(app, Mapping)}
    if gate.get("enabled") is True:
        yield from _addresses(release, gate)
        yield from _services(release, gate, apps)
        yield from _deployments(release, gate)
        for name, app in apps.items():
            yield from _relay(release, name, app)
            yield from _way_to_app(release, name, app)
        yield from _cookies(release)


def _addresses(release: Release, gate: Tree) -> Findings:
    place = address_of(str(gate.get("url") or "").rstrip("/"))
    if place is not None and place.host in [each.lower() for each in public_hosts(release)]:
        text = f"People come to the hub at {place.host} too: its cookies would go to the apps, and theirs to servers."
        fix = "Give the apps a host of their own, which is not below the hub's."
        yield release.found("gate-host", f"{SECTION}.url", text, fix)
    host = str(gate.get("host") or GateConfig().host)
    if gate.get("started_by_hub") is False and (host in ("localhost", "::1") or host.startswith("127.")):
        text = f"The gate listens on {host}, in a pod of its own: neither the proxy nor the hub reaches it there."
        fix = "Set it to 0.0.0.0, as helm-values/gate.yaml does."
        yield release.found("gate-listens", f"{SECTION}.host", text, fix)


def _services(release: Release, gate: Tree, apps: Mapping[str, Tree]) -> Findings:
    services = release.tree("hub.services")
    entry = services.get(SERVICE)
    if gate.get("started_by_hub") is False and not isinstance(entry, Mapping):
        text = "The gate runs in its own Deployment, and the chart makes no token for it."
        fix = "Give helm-values/gate.yaml as it is: hub.services.gate: {}."
        yield release.found("gate-token", "hub.services.gate", text, fix)
    if as_tree(entry).get("oauth_no_confirm") is False:
        text = "Everybody is asked whether the gate may know who they are, at each sign-in, and no round is silent."
        fix = "Take it out: the gate is your own."
        yield release.found("gate-confirm", "hub.services.gate.oauth_no_confirm", text, fix)
    for name in [SERVICE, *apps]:
        if as_tree(services.get(name)).get("url"):
            text = "The hub's own proxy leads to it, and shows it to anybody: nobody asks the gate there."
            fix = "Take the url out; where the proxy of the apps finds it is said in hub.config.SignOnGate.apps."
            yield release.found("gate-url", ("hub", "services", name, "url"), text, fix)


def _deployments(release: Release, gate: Tree) -> Findings:
    port = gate["port"] if isinstance(gate.get("port"), int) else PORT
    for manifest in release.manifests:
        labels = as_tree(find(manifest, ("spec", "template", "metadata", "labels")))
        if manifest.get("kind") != "Deployment" or not LABELS.items() <= labels.items():
            continue
        replicas = find(manifest, ("spec", "replicas"))
        databases = map(_has_database, mappings(find(manifest, ("spec", "template", "spec", "containers"))))
        is_shared = str(gate.get("database_url") or "").startswith("postgres") or any(databases)
        if isinstance(replicas, int) and replicas > 1 and not is_shared:
            text = f"There are {replicas} gates on SQLite, each with keys and a memory of its own: "
            text += "a sign-out reaches one of them, and assertions of the other are not believed."
            fix = "Apply helm-values/manifests/gate-postgres, which gives them a database, or set replicas to 1."
            yield release.found("gate-replicas", name_of(manifest), text, fix)
        if is_open(release, labels, str(manifest["metadata"].get("namespace") or release.namespace), port):
            text = f"Users' servers reach the gate at port {port}: what the proxy alone may ask, anybody could."
            fix = "Apply helm-values/manifests/gate/networkpolicy.yaml, and name it by --manifests."
            yield release.found("gate-port", name_of(manifest), text, fix)


def _has_database(container: Tree) -> bool:
    """Whether a container of the gate uses a PostgreSQL database.

    This is so if its variable for the database has a ``postgres`` URL as its value, or takes the URL from a Secret that
    is not optional, without which the container does not start.
    """
    variables = [each for each in mappings(container.get("env")) if each.get("name") == DATABASE_VARIABLE]
    variable = variables[0] if variables else {}
    secret = find(variable, ("valueFrom", "secretKeyRef"))
    return str(variable.get("value") or "").startswith("postgres") or bool(secret and not secret.get("optional"))


def _relay(release: Release, name: str, app: Tree) -> Findings:
    """Report an app whose WebSockets are relayed by the gate, if the Gateway API is used, which cannot do that.

    Args:
        release: the release to check.
        name: name of the app.
        app: its entry in the catalogue.
    """
    has_routes = any(each.get("kind") in ("HTTPRoute", "GRPCRoute") for each in release.manifests)
    if app.get("relay") is True and (has_routes or release.at("httpRoute.enabled") is True):
        text = f"The app {name!r} has relay, and the Gateway API leads no WebSockets through the gate."
        proxies = ", ".join(each for each in RELAYING if each != "policies")
        fix = f"Take relay out, or have one of {proxies} before the apps."
        path = (*SECTION.split("."), "apps", name, "relay")
        yield release.found("gate-relay", path, text, fix, "problem" if has_routes else "look at")


def _way_to_app(release: Release, name: str, app: Tree) -> Findings:
    """Report an app that can be reached past the gate, if its Service is among the manifests.

    Args:
        release: the release to check.
        name: name of the app.
        app: its entry in the catalogue, with the address at which the proxy reaches the app.
    """
    place = address_of(str(app.get("upstream") or ""))
    if place is None:
        return
    host, _, rest = place.host.partition(".")
    namespace = rest.split(".")[0] or release.namespace
    for service in release.manifests:
        metadata, spec = service["metadata"], as_tree(service.get("spec"))
        if (service.get("kind"), metadata.get("name"), metadata.get("namespace")) != ("Service", host, namespace):
            continue
        kind = str(spec.get("type") or "ClusterIP")
        if kind != "ClusterIP":
            text = f"The app {name!r} has a Service of the type {kind}: it is reached past the gate, from outside the "
            text += "cluster."
            fix = "Leave its type at ClusterIP: the proxy of the apps stands in the cluster."
            yield release.found("app-service", name_of(service), text, fix)
        labels = {str(key): str(value) for key, value in as_tree(spec.get("selector")).items()}
        targets = [each.get("targetPort") for each in mappings(spec.get("ports")) if each.get("port") == place.port]
        # a named targetPort is assumed to be the same number
        port = next((each for each in targets if isinstance(each, int)), place.port)
        if is_open(release, labels, namespace, port):
            text = f"Users' servers reach the app {name!r} without the gate: no policy keeps them from its pods."
            fix = "Apply one as helm-values/manifests/gate/app-policy.yaml is, and name it by --manifests."
            yield release.found("app-policy", name_of(service), text, fix)


def _cookies(release: Release) -> Findings:
    ingress = ("ingress", "annotations")
    written: list[tuple[Tree | None, str, Any]] = [(None, *pair) for pair in release.tree(".".join(ingress)).items()]
    for each in release.manifests:
        written += [(each, *pair) for pair in as_tree(each["metadata"].get("annotations")).items()]
    for manifest, name, value in written:
        spelled = f"{name}: {value}".lower().replace(" ", "")
        if any(word in spelled for word in _DOMAINS) and str(value).strip() != "off":
            text = f"The annotation {name} gives cookies a Domain: they go to every host below it, users' servers too."
            fix = "Take it out: each apps' host signs in by itself, without a page."
            if manifest is None:
                yield release.found("gate-cookies", (*ingress, name), text, fix)
            else:
                yield release.found("gate-cookies", name_of(manifest), text, fix)
