"""Reads our sections of a hub's configuration, and says what is wrong with one in an admin's words.

Not here: the settings themselves (``traits.py``), and what is done with them (``hub_extensions/configuration.py``).
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

from traitlets import Bool, Dict, Float, HasTraits, Int, List, TraitError, TraitType, Unicode
from traitlets.config.loader import Config, LazyConfigValue

from hub_extensions.core.tokens import SHORTEST_TOKEN, token_problem
from hub_extensions.spawner.config.spawner_classes import spawner_traits
from hub_extensions.spawner.config.traits import SECTIONS, GpuCluster, GpuCulling, GpuOffers, GpuQueue, GpuService

SECRET = ("token", "secret", "password", "key", "url")
"""How the names of settings end whose value is never repeated: the sentence goes into the hub's log."""

RENAMED = {"GpuLine": "GpuQueue", "GpuQueue.max_line": "GpuQueue.max_waiting"}
"""Names that sections and settings had in 0.1.0."""

Section = TypeVar("Section", bound=HasTraits)


@dataclass(frozen=True)
class Sections:
    """Our sections of a configuration, read and checked."""

    offers: GpuOffers
    queue: GpuQueue
    culling: GpuCulling
    service: GpuService
    cluster: GpuCluster


def read_sections(c: Any) -> Sections:
    """Read and check ``c.GpuOffers``, ``c.GpuQueue``, ``c.GpuCulling``, ``c.GpuService`` and ``c.GpuCluster``.

    Raises:
        ValueError: a section or key is unknown, or a value is wrong; the text names it and says what would be right.
    """
    known = {section.__name__ for section in SECTIONS}
    for name in c:
        if name in RENAMED:
            raise ValueError(f"c.{name} is called c.{RENAMED[name]} now.")
        if name.startswith("Gpu") and name not in known and not name.endswith(("Spawner", "Mixin")):
            raise ValueError(
                f"c.{name} is not a section of this product.{_nearest(name, known)} Known: {_listed(known)}."
            )
    _check_spawners(c)
    return Sections(
        _read(c, GpuOffers), _read(c, GpuQueue), _read(c, GpuCulling), _read(c, GpuService), _read(c, GpuCluster)
    )


def _check_spawners(c: Any) -> None:
    """traitlets drops a key it does not know in silence, and the spawner goes on with its default."""
    for section, (traits, whole) in spawner_traits(c).items():
        for key in c[section]:
            if key in traits or isinstance(c[section][key], Config):
                continue
            nearest = _nearest(key, traits)
            if not whole and not nearest:
                continue  # a setting of the admin's own class, which we do not know
            raise ValueError(
                f"c.{section}.{key} is not a setting of {section}.{nearest} Ours are in the reference "
                "(docs/reference/configuration.md), the others in the documentation of JupyterHub and KubeSpawner."
            )


def check_together(sections: Sections) -> None:
    """What only shows when several settings are looked at.

    Raises:
        ValueError: the text names the setting and says what would be right.
    """
    _check_place(sections.service)
    culling, token = sections.culling, sections.service.public_metrics_token
    shortest = min([culling.idle_minutes, *culling.idle_minutes_by_offer.values()])
    if culling.warn_minutes > shortest:
        raise ValueError(
            f"c.GpuCulling.warn_minutes is {culling.warn_minutes:g}: it has to be at most the shortest idle limit "
            f"({shortest:g} minutes), else users are warned before their GPU is idle."
        )
    if token and (problem := token_problem(token, SHORTEST_TOKEN)):
        raise ValueError(f"c.GpuService.public_metrics_token {problem}")
    _check_prometheus(sections.service)
    if sections.offers.memory_gib and sections.cluster.fractions_by != "kai":
        raise ValueError(
            "c.GpuOffers.memory_gib needs c.GpuCluster.fractions_by = 'kai': only KAI shares a GPU out by its memory."
        )


def _check_prometheus(service: GpuService) -> None:
    if service.prometheus_url and not _is_address(service.prometheus_url):
        raise ValueError(
            "c.GpuService.prometheus_url cannot be used: it has to be an address such as http://prometheus:9090, "
            "without a user, a password, a ? or a #."
        )
    if problem := token_problem(service.prometheus_token):
        raise ValueError(f"c.GpuService.prometheus_token {problem}")
    if service.dcgm_scale not in ("instance", "card"):
        raise ValueError(f"c.GpuService.dcgm_scale is {service.dcgm_scale!r}: it has to be 'instance' or 'card'.")


def _check_place(service: GpuService) -> None:
    if service.url and (not _is_address(service.url) or urlsplit(service.url).path not in ("", "/")):
        raise ValueError(
            "c.GpuService.url cannot be used: it has to be an address such as http://jupyterhub-gpu:8191, without a "
            "path, a user, a password, a ? or a #."
        )
    if not service.started_by_hub and not service.url:
        raise ValueError(
            "c.GpuService.url is empty, and c.GpuService.started_by_hub is False: it has to be the address at which "
            "hub and proxy reach the service, such as http://jupyterhub-gpu:8191."
        )


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False
    return (
        fits and "@" not in parts.netloc and not {"?", "#"} & set(url) and all("!" <= letter <= "~" for letter in url)
    )


def _read(c: Any, section: type[Section]) -> Section:
    name = section.__name__
    values = c.get(name, {})
    traits = section.class_traits(config=True)
    result = section()
    for key, value in values.items():
        full = f"c.{name}.{key}"
        if f"{name}.{key}" in RENAMED:
            raise ValueError(f"{full} is called c.{RENAMED[f'{name}.{key}']} now.")
        if key not in traits:
            raise ValueError(f"{full} is not a setting.{_nearest(key, traits)} Known in c.{name}: {_listed(traits)}.")
        trait = traits[key]
        if isinstance(value, LazyConfigValue):
            value = value.get_value(getattr(result, key))
        if isinstance(value, bool) != isinstance(trait, Bool) or not _finite(value) or _lone_text(trait, value):
            raise ValueError(f"{full} is {_shown(key, value)}: it has to be {wanted(trait)}.")
        try:
            setattr(result, key, value)
        except TraitError:
            raise ValueError(f"{full} is {_shown(key, value)}: it has to be {wanted(trait)}.") from None
    return result


def _shown(key: str, value: object) -> str:
    """A wrong value as it was written; of a secret, or an address that may hold one, only what kind of value it is."""
    return f"of the type {type(value).__name__}" if key.endswith(SECRET) else repr(value)


def wanted(trait: TraitType[Any, Any]) -> str:
    """What would be right for a setting, in words: "a whole number of at least 1"."""
    none = " or None" if trait.allow_none else ""
    if isinstance(trait, Bool):
        return "True or False"
    if isinstance(trait, Int | Float):
        kind = "a whole number" if isinstance(trait, Int) else "a number"
        return kind + _range(trait) + none
    if isinstance(trait, Unicode):
        return "a text" + none
    if isinstance(trait, List):
        return "a list of texts"
    if isinstance(trait, Dict):
        value = getattr(trait, "_value_trait", None)
        inner = {
            List: "a list",
            Int: "a whole number of at least 0",
            Float: "a number of at least 0",
            Unicode: "a text",
        }
        words = next((word for kind, word in inner.items() if isinstance(value, kind)), "a value")
        return f"a dict from an offer's id to {words}"
    raise AssertionError(f"no words for a setting of type {type(trait).__name__}")


def _range(trait: TraitType[Any, Any]) -> str:
    low, high = getattr(trait, "min", None), getattr(trait, "max", None)
    if low is not None and high is not None and math.isfinite(high):
        return f" from {low:g} to {high:g}"
    return f" of at least {low:g}" if low is not None and math.isfinite(low) else ""


def _finite(value: object) -> bool:
    values = value.values() if isinstance(value, Mapping) else [value]
    return all(math.isfinite(number) for number in values if isinstance(number, float))


def _lone_text(trait: TraitType[Any, Any], value: object) -> bool:
    """traitlets would take the text for a list of one."""
    return isinstance(trait, List) and isinstance(value, str)


def _nearest(name: str, known: Any) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {close[0]}?" if close else ""


def _listed(names: Any) -> str:
    return ", ".join(sorted(names))


__all__ = ["Sections", "check_together", "read_sections", "wanted"]
