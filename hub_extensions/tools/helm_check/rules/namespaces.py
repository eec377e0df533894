"""Rules about namespaces: rights, policies and claims only work in the namespace of the release.

Manifests without a namespace are assumed to be applied to that namespace.
"""

from __future__ import annotations

from hub_extensions.tools.helm_check.model import Findings, Release, name_of
from hub_extensions.tools.helm_check.rules.network import host_and_port
from hub_extensions.tools.helm_check.trees import mappings

OURS = "jupyterhub-gpu"  # prefix of the names of our own manifests
ANYWHERE = ("Cluster", "ServiceMonitor", "PodMonitor")  # beginnings of kinds that may be in any namespace, or in none
ADDRESSES = ("hub.config.GpuService.url", "hub.config.GpuCluster.service_connect_url")
FIX = "Write the release's there (helm-values/manifests/namespace.yaml does it for all), or say --namespace."


def check_namespaces(release: Release) -> Findings:
    """Report each of our manifests, accounts and addresses that names another namespace than the release's."""
    home = release.namespace
    at_home = {name_of(each) for each in release.manifests if each["metadata"].get("namespace") == home}
    for manifest in release.manifests:
        kind, metadata, name = str(manifest.get("kind")), manifest["metadata"], name_of(manifest)
        if not str(metadata.get("name")).startswith(OURS) and kind != "ResourceClaimTemplate":
            continue
        texts = []
        if not kind.startswith(ANYWHERE) and name not in at_home:
            texts.append(f"It stands in the namespace {metadata.get('namespace')}")
        for subject in mappings(manifest.get("subjects")):
            place = str(subject.get("namespace") or home)
            if subject.get("kind") == "ServiceAccount" and place != home:
                texts.append(f"It gives its rights to the account {subject.get('name')} of the namespace {place}")
        for text in texts:
            yield release.found("namespace", name, f"{text}, and the release is in {home}.", FIX)
    for key in ADDRESSES:
        host = host_and_port(release.at(key))[0].split(".")
        if len(host) > 2 and host[2] == "svc" and host[1] != home:
            text = f"It names a service of the namespace {host[1]}, and the release is in {home}."
            fix = f"Write {host[0]} alone, or {host[0]}.{home}.svc; or say --namespace."
            yield release.found("namespace", key, text, fix)
