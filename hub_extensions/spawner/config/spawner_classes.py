"""Find the spawner that a configuration chooses, and the settings that our spawners accept.

A class is imported only if the configuration uses it, because KubeSpawner is not installed on a single machine.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import entry_points
from typing import Any

from traitlets.utils.importstring import import_item

from hub_extensions.adapters.hub.hub_config import value_of

FILES = {"GpuSpawnerMixin": "base", "GpuLocalSpawner": "local", "GpuDemoSpawner": "local", "GpuKubeSpawner": "kube"}
"""This product's spawner classes that have settings -> their modules in ``hub_extensions.spawner``."""

FORM_SETTINGS = {
    "options_form": "takes the place of the form with the offers",
    "options_from_form": "reads the form in place of ours, so the offer that a user chooses is lost",
}
"""Settings of JupyterHub's `Spawner` that replace our spawn form -> what they do, as a part of a sentence."""

UPSTREAM = ("jupyterhub.", "kubespawner.")
"""Modules of upstream spawners, which are never an administrator's own classes."""

ENTRY_POINTS = {"gpu": "GpuKubeSpawner", "gpu-local": "GpuLocalSpawner", "gpu-demo": "GpuDemoSpawner"}


OURS_BY_PLACE = (
    'Ours are "gpu-local" for a hub that is root and whose people have accounts on this machine, "gpu-demo" for any '
    'other hub on one machine, and "gpu" on Kubernetes.'
)


def servers_are_pods(c: Any) -> bool:
    """Whether the chosen spawner is `GpuKubeSpawner` or a subclass."""
    chosen = value_of(c, "JupyterHub", "spawner_class")
    if isinstance(chosen, type):
        return any(base.__name__ == "GpuKubeSpawner" for base in chosen.__mro__)
    return str(chosen) == "gpu" or str(chosen).endswith(".GpuKubeSpawner")


def load_own_class(c: Any) -> None:
    """Replace the name of an administrator's own spawner class with the class, so that its bases are known.

    A name that cannot be imported is left unchanged. JupyterHub reports it.
    """
    chosen = value_of(c, "JupyterHub", "spawner_class")
    if not isinstance(chosen, str) or chosen in ENTRY_POINTS or chosen.startswith("hub_extensions."):
        return
    try:
        entry = next((each for each in entry_points(group="jupyterhub.spawners") if each.name == chosen), None)
        found = entry.load() if entry is not None else import_item(chosen) if "." in chosen else None
    except Exception:  # noqa: BLE001  an administrator's module may raise anything
        return
    if isinstance(found, type) and not found.__module__.startswith(UPSTREAM):
        c.JupyterHub.spawner_class = found


def is_ours(chosen: Any) -> bool:
    """Whether a ``spawner_class``, a class or its name, is one of this product's spawners or a subclass."""
    if isinstance(chosen, type):
        return any(base.__module__.startswith("hub_extensions.") for base in chosen.__mro__)
    return str(chosen) in ENTRY_POINTS or str(chosen).startswith("hub_extensions.")


def derives_from_kubespawner(chosen: Any) -> bool:
    """Whether a ``spawner_class`` is KubeSpawner or a subclass. A class given by name is judged by its name."""
    if isinstance(chosen, type):
        return any(base.__name__ == "KubeSpawner" for base in chosen.__mro__)
    return str(chosen).rpartition(".")[2] == "KubeSpawner"


def name_of(chosen: Any) -> str:
    """Return a ``spawner_class`` as text: the import path of a class; a name is returned unchanged."""
    return f"{chosen.__module__}.{chosen.__qualname__}" if isinstance(chosen, type) else str(chosen)


def how_to_derive(chosen: Any) -> str:
    """Return a sentence for the administrator: how to replace this KubeSpawner class by one that offers GPUs."""
    name = name_of(chosen).rpartition(".")[2]
    if name == "KubeSpawner":
        return 'Set it to "gpu", which is KubeSpawner with GPUs: all of its settings go on.'
    return (
        f"It derives from KubeSpawner. Derive it from ours, which is KubeSpawner with GPUs: `from "
        f"hub_extensions.spawner.kube import GpuKubeSpawner`, and `class {name}(GpuKubeSpawner):`."
    )


def other_forms(c: Any) -> Iterator[tuple[str, str]]:
    """Yield section and name of each configured setting that replaces our spawn form, or the function that reads it.

    These settings are `FORM_SETTINGS`. Sections that the chosen spawner does not read are left out.
    """
    chosen, _ = _chosen(c)
    read = {base.__name__ for base in chosen.__mro__} if isinstance(chosen, type) else None
    for section in sorted(c):
        if section in read if read is not None else section.endswith(("Spawner", "Mixin")):
            yield from ((section, key) for key in FORM_SETTINGS if key in c[section])


def near_miss(c: Any) -> str:
    """Return the spawner of ours that a misspelled `spawner_class` probably means, such as ``gpu`` for ``gpuu``.

    "" if the `spawner_class` is spelled correctly, or resembles none of ours.
    """
    chosen = value_of(c, "JupyterHub", "spawner_class")
    if not isinstance(chosen, str) or chosen in ENTRY_POINTS:
        return ""
    paths = [f"hub_extensions.spawner.{FILES[name]}.{name}" for name in ENTRY_POINTS.values()]
    if chosen.startswith("hub_extensions."):
        return "" if chosen in paths else _nearest_of(chosen, paths) or "gpu"
    if any(entry.name == chosen for entry in entry_points(group="jupyterhub.spawners")):
        return ""  # a spawner of another package
    return _nearest_of(chosen, paths if "." in chosen else ENTRY_POINTS)


def _nearest_of(name: str, known: Iterable[str]) -> str:
    return next(iter(difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.8)), "")


def spawner_traits(c: Any) -> Mapping[str, tuple[frozenset[str], bool]]:
    """Return which traits the configured sections of our spawners may set, to find misspelled ones.

    Returns:
        Section -> the names of its traits, and whether the names are complete. They are incomplete if the configuration
        gives an administrator's own class by name, because its traits are then not known. Sections that are not set, or
        that the chosen spawner does not read, are left out.
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
    """Return the spawner class that the configuration chooses, and whether its traits can be known.

    Returns:
        The class and True. None and False if the configuration gives a class of another package by name: its traits
        are not known, because it is not imported here. None and True if it is one of our own classes but cannot be
        imported.
    """
    chosen = value_of(c, "JupyterHub", "spawner_class")
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
