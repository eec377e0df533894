"""Do the roles beside the chart give what the GPU service reads, and changes? Manifests of an older release may not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hub_extensions.tools.helm_check.model import Finding, Release
from hub_extensions.tools.helm_check.rules.namespaces import OURS

VOLUMES = {"ClusterRole": "persistentvolumes", "Role": "persistentvolumeclaims"}
"""Resources by which the service finds the nodes that reach a user's files."""


def check_rights(release: Release) -> Iterator[Finding]:
    """Roles of ours with a right to pods and none to volumes; nodes to drain, and no right to."""
    yield from _check_draining(release)
    for role in release.manifests:
        name, kind = str((role.get("metadata") or {}).get("name") or ""), str(role.get("kind"))
        wanted = VOLUMES.get(kind, "")
        if name.startswith(OURS) and wanted and _gives(role, "pods") and not _gives(role, wanted):
            text = f"It gives no right to {wanted}: a server whose files only some nodes reach is let in as if all did."
            fix = "Apply rbac.yaml of this release's helm-values/manifests (service-deployment/rbac.yaml) again."
            yield Finding("rights", "look at", f"{kind} {name}", text, fix)


def _check_draining(release: Release) -> Iterator[Finding]:
    key = "hub.config.GpuCluster.allow_node_drain"
    roles = [each for each in release.manifests if each.get("kind") == "ClusterRole"]
    if release.at(key) and roles and not any(_gives(role, "nodes", "patch") for role in roles):
        text = "No ClusterRole given by --manifests lets the service cordon nodes: Drain on its page is refused."
        fix = "Apply drain-nodes.yaml of helm-values/manifests (service-deployment/drain-nodes.yaml), and name it too."
        yield Finding("rights-to-drain", "look at", key, text, fix)


def _gives(role: Mapping[str, Any], resource: str, *verbs: str) -> bool:
    rules = [rule for rule in role.get("rules") or () if resource in (rule.get("resources") or ())]
    wanted = set(verbs or ("list", "watch"))
    return any(wanted <= set(rule.get("verbs") or ()) or "*" in (rule.get("verbs") or ()) for rule in rules)
