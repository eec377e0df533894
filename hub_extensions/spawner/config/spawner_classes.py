"""Which spawner a configuration chooses, and what may stand in the sections of ours.

A class is loaded only where the configuration uses it: KubeSpawner is not installed where servers are processes.
Not here: what is said about a wrong key (``loader.py``).
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from typing import Any

FILES = {"GpuSpawnerMixin": "base", "GpuLocalSpawner": "local", "GpuDemoSpawner": "local", "GpuKubeSpawner": "kube"}
"""Our classes with settings -> the module of each, below ``hub_extensions.spawner``."""

ENTRY_POINTS = {"gpu": "GpuKubeSpawner", "gpu-local": "GpuLocalSpawner", "gpu-demo": "GpuDemoSpawner"}


def chosen_spawner(c: Any) -> Any:
    """``c.JupyterHub.spawner_class`` as it stands there: a class, a text, or None for the default."""
    return c.get("JupyterHub", {}).get("spawner_class")


def servers_are_pods(c: Any) -> bool:
    """The chosen spawner is `GpuKubeSpawner` or made from it."""
    chosen = chosen_spawner(c)
    if isinstance(chosen, type):
        return any(base.__name__ == "GpuKubeSpawner" for base in chosen.__mro__)
    return str(chosen) == "gpu" or str(chosen).endswith(".GpuKubeSpawner")


def default_spawner() -> str:
    """Ours for one machine, as ``c.JupyterHub.spawner_class`` takes it."""
    installed = any(entry.name == "gpu-local" for entry in entry_points(group="jupyterhub.spawners"))
    return "gpu-local" if installed else "hub_extensions.spawner.local.GpuLocalSpawner"


def near_miss(c: Any) -> str:
    """Which of our spawners a `spawner_class` means that there is not: ``gpuu`` is ``gpu``; "" where none is meant."""
    chosen = chosen_spawner(c)
    if not isinstance(chosen, str) or chosen in ENTRY_POINTS:
        return ""
    paths = [f"hub_extensions.spawner.{FILES[name]}.{name}" for name in ENTRY_POINTS.values()]
    if chosen.startswith("hub_extensions."):
        return "" if chosen in paths else _nearest_of(chosen, paths) or "gpu"
    if any(entry.name == chosen for entry in entry_points(group="jupyterhub.spawners")):
        return ""  # somebody else's
    return _nearest_of(chosen, paths if "." in chosen else ENTRY_POINTS)


def _nearest_of(name: str, known: Iterable[str]) -> str:
    return next(iter(difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.8)), "")


def spawner_traits(c: Any) -> Mapping[str, tuple[frozenset[str], bool]]:
    """Section -> (what may stand in it, whether that is all), for the sections of our spawners that are filled.

    A class made from one of ours is configured by its sections too; where the configuration names such a class by a
    text, its own settings are not known here. Sections that the chosen spawner does not read are left out.
    """
    found: dict[str, tuple[frozenset[str], bool]] = {}
    chosen, known = _chosen(c)
    for section in FILES:
        if not c.get(section, {}) or (section == "GpuKubeSpawner" and not servers_are_pods(c)):
            continue
        own = _load(section)
        if own is None:
            continue
        parts = [own, chosen] if isinstance(chosen, type) and issubclass(chosen, own) else [own]
        found[section] = (frozenset(name for part in parts for name in part.class_traits(config=True)), known)
    return found


def _chosen(c: Any) -> tuple[Any, bool]:
    """The chosen class, None where it cannot be loaded; and whether it is known which one it is."""
    chosen = chosen_spawner(c)
    if chosen is None:
        return _load("GpuLocalSpawner"), True
    if isinstance(chosen, type):
        return chosen, True
    name = ENTRY_POINTS.get(str(chosen), "")
    if str(chosen).startswith("hub_extensions."):
        name = str(chosen).rpartition(".")[2]
    return (_load(name), True) if name in FILES else (None, False)


def _load(name: str) -> Any:
    try:
        return getattr(importlib.import_module(f"hub_extensions.spawner.{FILES[name]}"), name)
    except ImportError:
        return None
