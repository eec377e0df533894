"""Does everything stand in the release's namespace that has to? Rights, policies and claims reach no other.

Manifests without a namespace go where they are applied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from hub_extensions.tools.helm_check.model import Finding, Release, found

OURS = "jupyterhub-gpu"
"""Prefix of the names of our own manifests."""
ANYWHERE = {"ServiceMonitor", "PodMonitor"}
"""Kinds that may be in any namespace: a Prometheus finds them by its own settings."""
ADDRESSES = ("hub.config.GpuService.url", "hub.config.GpuCluster.service_connect_url")

Manifest = Mapping[str, Any]


def check_namespaces(release: Release) -> Iterator[Finding]:
    """Every manifest, account and address of ours that names another namespace than the release's."""
    for manifest in release.manifests:
        if _is_ours(manifest):
            yield from _place(release, manifest)
            yield from _accounts(release, manifest)
    for key in ADDRESSES:
        yield from _address(release, key)


def _is_ours(manifest: Manifest) -> bool:
    return _name(manifest).startswith(OURS) or manifest.get("kind") == "ResourceClaimTemplate"


def _place(release: Release, manifest: Manifest) -> Iterator[Finding]:
    kind, stands_in = str(manifest.get("kind")), _namespace(manifest)
    if kind.startswith("Cluster") or kind in ANYWHERE or stands_in == release.namespace:
        return
    same = [each for each in release.manifests if (each.get("kind"), _name(each)) == (kind, _name(manifest))]
    if any(_namespace(each) == release.namespace for each in same):
        return
    yield _finding(release, f"{kind} {_name(manifest)}", f"It stands in the namespace {stands_in}")


def _accounts(release: Release, manifest: Manifest) -> Iterator[Finding]:
    for subject in manifest.get("subjects") or ():
        place = str(subject.get("namespace") or release.namespace)
        if subject.get("kind") == "ServiceAccount" and place != release.namespace:
            text = f"It gives its rights to the account {subject.get('name')} of the namespace {place}"
            yield _finding(release, f"{manifest.get('kind')} {_name(manifest)}", text)


def _finding(release: Release, key: str, text: str) -> Finding:
    fix = "Write the release's there (helm-values/manifests/namespace.yaml does it for all), or say --namespace."
    return Finding("namespace", "problem", key, f"{text}, and the release is in {release.namespace}.", fix)


def _address(release: Release, key: str) -> Iterator[Finding]:
    host = (urlsplit(str(release.at(key) or "")).hostname or "").split(".")
    if len(host) < 3 or host[2] != "svc" or host[1] == release.namespace:
        return
    text = f"It names a service of the namespace {host[1]}, and the release is in {release.namespace}."
    fix = f"Write {host[0]} alone, or {host[0]}.{release.namespace}.svc; or say --namespace."
    yield found(release, "namespace", key, text, fix)


def _name(manifest: Manifest) -> str:
    return str((manifest.get("metadata") or {}).get("name") or "?")


def _namespace(manifest: Manifest) -> str:
    return str((manifest.get("metadata") or {}).get("namespace") or "")
