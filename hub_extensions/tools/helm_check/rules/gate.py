"""Rules about the gate before apps: chart and manifests have to let in the proxy alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hub_extensions.core.settings import settings_in
from hub_extensions.core.sign_on.apps import address_of
from hub_extensions.core.sign_on.gate_config import GateConfig
from hub_extensions.gate.hub_setup import SERVICE
from hub_extensions.tools.gate_config.render import RELAYING
from hub_extensions.tools.helm_check.model import Finding, Release, Severity, found
from hub_extensions.tools.helm_check.rules.network import is_open
from hub_extensions.tools.helm_check.rules.sign_on import public_hosts

Tree = Mapping[str, Any]

SECTION = "hub.config.SignOnGate"
LABELS = {"app": "jupyterhub", "component": "gate"}
PORT = 8192
DATABASE_VARIABLE = settings_in(GateConfig)["database_url"].variable
_DOMAINS = ("domain=", "proxy_cookie_domain", "cookie-domain")


def check_gate(release: Release) -> Iterator[Finding]:
    """Every rule of this file, where there is a gate."""
    gate = release.tree(SECTION)
    if gate.get("enabled") is not True:
        return
    yield from _host(release, gate)
    yield from _listens(release, gate)
    yield from _service(release, gate)
    yield from _urls(release, gate)
    yield from _replicas(release, gate)
    yield from _gate_port(release, gate)
    yield from _apps(release, gate)
    yield from _relays(release, gate)
    yield from _cookies(release)


def _host(release: Release, gate: Tree) -> Iterator[Finding]:
    place = address_of(str(gate.get("url") or "").rstrip("/"))
    if place is not None and place.host in [each.lower() for each in public_hosts(release)]:
        text = f"People come to the hub at {place.host} too: its cookies would go to the apps, and theirs to servers."
        fix = "Give the apps a host of their own, which is not below the hub's."
        yield found(release, "gate-host", f"{SECTION}.url", text, fix)


def _listens(release: Release, gate: Tree) -> Iterator[Finding]:
    host = str(gate.get("host") or GateConfig().host)
    if gate.get("started_by_hub") is False and (host == "localhost" or host == "::1" or host.startswith("127.")):
        text = f"The gate listens on {host}, in a pod of its own: neither the proxy nor the hub reaches it there."
        fix = "Set it to 0.0.0.0, as helm-values/gate.yaml does."
        yield found(release, "gate-listens", f"{SECTION}.host", text, fix)


def _relays(release: Release, gate: Tree) -> Iterator[Finding]:
    """WebSockets through the gate, which no route of the Gateway API can lead there."""
    has_routes = any(each.get("kind") in ("HTTPRoute", "GRPCRoute") for each in release.manifests)
    for name, app in _catalogue(gate).items():
        if app.get("relay") is True and (has_routes or release.at("httpRoute.enabled") is True):
            text = f"The app {name!r} has relay, and the Gateway API leads no WebSockets through the gate."
            proxies = ", ".join(each for each in RELAYING if each != "policies")
            fix = f"Take relay out, or have one of {proxies} before the apps."
            severity: Severity = "problem" if has_routes else "look at"
            path = (*SECTION.split("."), "apps", name, "relay")
            yield found(release, "gate-relay", path, text, fix, severity=severity)


def _service(release: Release, gate: Tree) -> Iterator[Finding]:
    entry = release.tree("hub.services").get(SERVICE)
    if gate.get("started_by_hub") is False and not isinstance(entry, Mapping):
        text = "The gate runs in its own Deployment, and the chart makes no token for it."
        fix = "Give helm-values/gate.yaml as it is: hub.services.gate: {}."
        yield found(release, "gate-token", "hub.services.gate", text, fix)
    if isinstance(entry, Mapping) and entry.get("oauth_no_confirm") is False:
        text = "Everybody is asked whether the gate may know who they are, at each sign-in, and no round is silent."
        fix = "Take it out: the gate is your own."
        yield found(release, "gate-confirm", "hub.services.gate.oauth_no_confirm", text, fix)


def _urls(release: Release, gate: Tree) -> Iterator[Finding]:
    for name in [SERVICE, *_catalogue(gate)]:
        entry = release.tree("hub.services").get(name)
        if isinstance(entry, Mapping) and entry.get("url"):
            text = "The hub's own proxy leads to it, and shows it to anybody: nobody asks the gate there."
            fix = "Take the url out; where the proxy of the apps finds it is said in hub.config.SignOnGate.apps."
            yield found(release, "gate-url", ("hub", "services", name, "url"), text, fix)


def _replicas(release: Release, gate: Tree) -> Iterator[Finding]:
    for manifest in release.manifests:
        replicas = (manifest.get("spec") or {}).get("replicas")
        if not (_is_gate(manifest) and isinstance(replicas, int) and replicas > 1):
            continue
        databases = [_has_database(each) for each in manifest["spec"]["template"]["spec"].get("containers") or ()]
        if not (str(gate.get("database_url") or "").startswith("postgres") or any(databases)):
            text = (
                f"There are {replicas} gates on SQLite, each with keys and a memory of its own: a sign-out reaches one "
                "of them, and assertions of the other are not believed."
            )
            fix = "Apply helm-values/manifests/gate-postgres, which gives them a database, or set replicas to 1."
            yield Finding("gate-replicas", "problem", _named(manifest), text, fix)


def _gate_port(release: Release, gate: Tree) -> Iterator[Finding]:
    port = gate.get("port") if isinstance(gate.get("port"), int) else PORT
    for manifest in release.manifests:
        if not _is_gate(manifest):
            continue
        labels = _labels(manifest["spec"]["template"])
        if is_open(release, labels, str(manifest["metadata"].get("namespace") or release.namespace), int(port or PORT)):
            text = f"Users' servers reach the gate at port {port}: what the proxy alone may ask, anybody could."
            fix = "Apply helm-values/manifests/gate/networkpolicy.yaml, and name it by --manifests."
            yield Finding("gate-port", "problem", _named(manifest), text, fix)


def _apps(release: Release, gate: Tree) -> Iterator[Finding]:
    for name, app in _catalogue(gate).items():
        place = address_of(str(app.get("upstream") or ""))
        service = None if place is None else _service_at(release, place.host)
        if place is None or service is None:
            continue
        kind = str(service["spec"].get("type") or "ClusterIP")
        if kind != "ClusterIP":
            text = (
                f"The app {name!r} has a Service of the type {kind}: it is reached past the gate, from outside the "
                "cluster."
            )
            fix = "Leave its type at ClusterIP: the proxy of the apps stands in the cluster."
            yield Finding("app-service", "problem", _named(service), text, fix)
        labels = {str(key): str(value) for key, value in (service["spec"].get("selector") or {}).items()}
        if is_open(release, labels, str(service["metadata"].get("namespace")), _target(service, place.port)):
            text = f"Users' servers reach the app {name!r} without the gate: no policy keeps them from its pods."
            fix = "Apply one as helm-values/manifests/gate/app-policy.yaml is, and name it by --manifests."
            yield Finding("app-policy", "problem", _named(service), text, fix)


def _cookies(release: Release) -> Iterator[Finding]:
    places = [("ingress.annotations", release.tree("ingress.annotations"))]
    places += [(_named(each), (each.get("metadata") or {}).get("annotations") or {}) for each in release.manifests]
    for key, written in places:
        for name, value in written.items():
            spelled = f"{name}: {value}".lower().replace(" ", "")
            if any(word in spelled for word in _DOMAINS) and str(value).strip() != "off":
                text = (
                    f"The annotation {name} gives cookies a Domain: they go to every host below it, users' servers too."
                )
                fix = "Take it out: each apps' host signs in by itself, without a page."
                if key == "ingress.annotations":
                    yield found(release, "gate-cookies", ("ingress", "annotations", name), text, fix)
                else:
                    yield Finding("gate-cookies", "problem", key, text, fix)


# ------------------------------------------------------------------ manifests


def _catalogue(gate: Tree) -> Mapping[str, Tree]:
    """The apps that stand in values. A catalogue in a file is in the hub's pod and cannot be read here."""
    apps = gate.get("apps")
    return (
        {str(name): app for name, app in apps.items() if isinstance(app, Mapping)} if isinstance(apps, Mapping) else {}
    )


def _has_database(container: Tree) -> bool:
    """Its environment names the gates' database, and it does not start without."""
    for each in container.get("env") or ():
        if each.get("name") == DATABASE_VARIABLE:
            secret = (each.get("valueFrom") or {}).get("secretKeyRef") or {}
            return str(each.get("value") or "").startswith("postgres") or (bool(secret) and not secret.get("optional"))
    return False


def _is_gate(manifest: Tree) -> bool:
    template = (manifest.get("spec") or {}).get("template") or {}
    return manifest.get("kind") == "Deployment" and LABELS.items() <= _labels(template).items()


def _labels(template: Tree) -> dict[str, str]:
    return {str(key): str(value) for key, value in ((template.get("metadata") or {}).get("labels") or {}).items()}


def _named(manifest: Tree) -> str:
    return f"{manifest.get('kind')} {(manifest.get('metadata') or {}).get('name', '?')}"


def _service_at(release: Release, host: str) -> Tree | None:
    """The Service that a name of the cluster means."""
    name, _, rest = host.partition(".")
    namespace = rest.split(".")[0] or release.namespace
    for manifest in release.manifests:
        metadata = manifest.get("metadata") or {}
        if (manifest.get("kind"), metadata.get("name")) == ("Service", name) and metadata.get("namespace") == namespace:
            return manifest if isinstance(manifest.get("spec"), Mapping) else None
    return None


def _target(service: Tree, port: int) -> int:
    """The port of the pods behind a Service; where that has a name, the Service's own number stands for it."""
    for each in service["spec"].get("ports") or ():
        if each.get("port") == port and isinstance(each.get("targetPort"), int):
            return int(each["targetPort"])
    return port
