"""Does with values files what Helm and the chart zero-to-jupyterhub 4.4 do: merges them, and makes the hub's settings.

Only the settings that rules and ``configure(c)`` read are made here; ``tests/helm_values/chart_config.py`` makes all.
``helm check --evaluate --chart`` runs the chart's own ``jupyterhub_config.py`` instead.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from traitlets.config import Config

from hub_extensions.tools.helm_check.trees import Path, Tree, as_tree, dotted, find, kind_of

CHART_NAME = "jupyterhub"
HUB = ("concurrent_spawn_limit", "active_server_limit", "base_url", "shutdown_on_logout", "template_paths")
"""Settings of ``c.JupyterHub`` that the chart takes from the key of the same name, in camel case, below ``hub``."""

PODS = ("extra_labels", "extra_annotations", "node_selector", "init_containers", "profile_list", "extra_pod_config")
"""Settings of ``c.KubeSpawner`` that the chart takes from the key of the same name, in camel case, below
``singleuser``."""

OTHERS = {
    "hub.templateVars": "JupyterHub.template_vars",
    "hub.consecutiveFailureLimit": "Spawner.consecutive_failure_limit",
    "singleuser.extraResource.limits": "KubeSpawner.extra_resource_limits",
    "singleuser.extraResource.guarantees": "KubeSpawner.extra_resource_guarantees",
    "singleuser.extraEnv": "KubeSpawner.environment",
    "singleuser.extraTolerations": "KubeSpawner.tolerations",
    "singleuser.extraNodeAffinity.required": "KubeSpawner.node_affinity_required",
    "singleuser.extraNodeAffinity.preferred": "KubeSpawner.node_affinity_preferred",
}


def merge(files: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge values files as Helm 4 does.

    Mappings are merged; every other value is replaced by that of the last file that has the key. A null removes a key
    of the chart's own values; a key that only the other files have stays, with null as its value.

    Args:
        files: the chart's own values first, then the files in the order of the options ``-f``.
    """
    chart, *given = files
    values: dict[str, Any] = {}
    for each in given:
        values = _over(values, copy.deepcopy(dict(each)))
    return _over(chart, values, drop_nulls=True)


def _over(under: Tree, values: Tree, *, drop_nulls: bool = False) -> dict[str, Any]:
    """Return `under` with `values` merged over it. With `drop_nulls`, a null in `values` removes the key of `under`."""
    merged: dict[str, Any] = {}
    for key, known in under.items():
        value = values.get(key, known)
        if isinstance(known, Mapping) and isinstance(value, Mapping):
            merged[key] = _over(known, values.get(key, {}), drop_nulls=drop_nulls)
        elif value is not None or not drop_nulls:
            merged[key] = value
    return merged | {key: value for key, value in values.items() if key not in under}


def object_name(values: Mapping[str, Any], release: str, short: str) -> str:
    """Return the full name of one of the chart's Kubernetes objects, such as ``jhub-jupyterhub-hub``.

    Args:
        values: the merged values; ``fullnameOverride`` and ``nameOverride`` change the name.
        release: name of the Helm release, such as ``jhub``.
        short: the last part of the name, such as ``hub``.
    """
    override = find(values, ("fullnameOverride",))
    name = str(find(values, ("nameOverride",)) or CHART_NAME)
    full = override if isinstance(override, str) else release if name in release else f"{release}-{name}"
    if short in ("user-scheduler", "priority"):  # these have to be the only ones in the cluster
        full = full or release
    return f"{full}-{short}" if full else short


def base_config(values: Tree, *, release: str, namespace: str, token: str) -> Config:
    """Return the settings that the chart gives the hub for these values, before any Python of the administrator runs.

    Values that `wrong_entries` reports are left out.

    Args:
        values: the merged values.
        release: name of the Helm release, such as ``jhub``.
        namespace: Kubernetes namespace of the release.
        token: a text in place of the tokens that the chart makes for services.
    """
    c = Config()
    c.JupyterHub.spawner_class = "kubespawner.KubeSpawner"
    c.JupyterHub.hub_bind_url = "http://:8081"
    c.JupyterHub.hub_connect_url = f"http://{object_name(values, release, 'hub')}:8081"
    c.JupyterHub.tornado_settings = {"slow_spawn_timeout": 0}
    c.KubeSpawner.namespace = namespace
    c.KubeSpawner.volumes, c.KubeSpawner.volume_mounts = {}, {}
    named = {f"hub.{_camel(trait)}": f"JupyterHub.{trait}" for trait in HUB}
    named |= {f"singleuser.{_camel(trait)}": f"KubeSpawner.{trait}" for trait in PODS} | OTHERS
    for key, setting in named.items():
        section, trait = setting.split(".")
        if (value := find(values, key.split("."))) is not None:
            c[section][trait] = value
    services = [(key, dict(service)) for key, service in _mappings(values, "services")]
    for _, service in services:
        if "apiToken" in service:
            service["api_token"] = service.pop("apiToken")
    c.JupyterHub.services = [{"api_token": token, "name": key, **service} for key, service in services]
    c.JupyterHub.load_roles = [{"name": key, **role} for key, role in _mappings(values, "loadRoles")]
    left_out = {("hub", "config", "JupyterHub", "services"), *(path for path, _ in wrong_entries(values))}
    for name, settings in _mappings(values, "config"):
        if name[:1].isupper():
            kept = {key: value for key, value in settings.items() if ("hub", "config", name, key) not in left_out}
            c[name].update(kept)
    if isinstance(c.CryptKeeper.get("keys"), str):
        c.CryptKeeper.keys = c.CryptKeeper["keys"].split(";")
    return c


def wrong_entries(values: Tree) -> Iterator[tuple[Path, str]]:
    """Yield key and error text of each value that has to be a mapping but is not, so that the hub would not start.

    Checked are ``hub.config``, ``hub.services`` and ``hub.loadRoles`` with their entries, and the settings of the
    sections in ``hub.config`` whose names begin with a capital letter.

    Args:
        values: the merged values.
    """
    for path in (("hub", "config"), ("hub", "services"), ("hub", "loadRoles")):
        entries = find(values, path)
        below = [((*path, str(key)), value) for key, value in as_tree(entries).items()]
        found = [(path, {} if entries is None else entries), *below]
        if path[1] == "config":  # traitlets takes each name with a capital letter for a section
            sections = [(place, as_tree(section).items()) for place, section in below]
            found += [((*place, key), value) for place, items in sections for key, value in items if key[:1].isupper()]
        for each, value in found:
            if not isinstance(value, Mapping):
                yield each, f"{dotted(each)} has to be a dictionary, not {kind_of(value)}."


def _camel(trait: str) -> str:
    return re.sub("_([a-z])", lambda letter: letter[1].upper(), trait)


def _mappings(values: Tree, name: str) -> list[tuple[str, Tree]]:
    """Return (name, value) of each entry of ``hub.<name>`` that is a mapping, sorted by name. Others are left out."""
    found = as_tree(find(values, ("hub", name)))
    return [(key, found[key]) for key in sorted(found) if isinstance(found[key], Mapping)]
