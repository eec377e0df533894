"""Reads our sections of a hub's configuration, and says what is wrong with one in an admin's words.

Not here: the settings themselves (``traits.py``), and what is done with them (``hub_extensions/configuration.py``).
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlsplit

from traitlets import Bool, Callable, Dict, Enum, Float, Int, List, TraitError, TraitType, Unicode, Union
from traitlets.config.loader import Config, LazyConfigValue

from hub_extensions.core.cluster.model import ClusterConfig
from hub_extensions.core.culling import CullPolicy, PolicyError, check_policy
from hub_extensions.core.notices import NoticeConfig
from hub_extensions.core.offers.model import OfferConfig, check_config
from hub_extensions.core.offers.offer_id import OfferId, OfferIdError
from hub_extensions.core.queue.model import QueueLimits
from hub_extensions.core.service import ServiceConfig
from hub_extensions.core.settings import settings_in, spelled
from hub_extensions.core.sign_on import SignOnConfig
from hub_extensions.core.sign_on.gate_config import GateConfig
from hub_extensions.core.tokens import token_problem
from hub_extensions.spawner.config.spawner_classes import chosen_spawner, near_miss, spawner_traits
from hub_extensions.spawner.config.traits import SECTIONS, section_of

SECRET = ("token", "secret", "password", "key", "url")
"""How the names of settings end whose value is never repeated: the sentence goes into the hub's log."""

RENAMED = {"GpuLine": "GpuQueue", "GpuQueue.max_line": "GpuQueue.max_waiting"}
"""Names that sections and settings had in 0.1.0."""

Value = TypeVar("Value")


@dataclass(frozen=True)
class Sections:
    """Our sections of a configuration, as the values that `core` reads."""

    offers: OfferConfig
    queue: QueueLimits
    culling: CullPolicy
    service: ServiceConfig
    cluster: ClusterConfig
    notices: NoticeConfig = field(default_factory=NoticeConfig)
    sign_on: SignOnConfig = field(default_factory=SignOnConfig)
    gate: GateConfig = field(default_factory=GateConfig)


def read_sections(c: Any) -> Sections:
    """Read and check every section of ours: ``c.GpuOffers``, ``c.GpuQueue`` and so on.

    Raises:
        ValueError: a section or key is unknown, or a value is wrong; the text names it and says what would be right.
    """
    known = {section.__name__ for section in SECTIONS}
    for name in c:
        if name in RENAMED:
            raise ValueError(f"c.{name} is called c.{RENAMED[name]} now.")
        if name.startswith(("Gpu", "SignOn")) and name not in known and not name.endswith(("Spawner", "Mixin")):
            raise ValueError(
                f"c.{name} is not a section of this product.{_nearest(name, known)} Known: {_listed(known)}."
            )
    _check_spawners(c)
    return Sections(
        read_section(c, OfferConfig),
        read_section(c, QueueLimits),
        read_section(c, CullPolicy),
        read_section(c, ServiceConfig),
        read_section(c, ClusterConfig),
        read_section(c, NoticeConfig),
        read_section(c, SignOnConfig),
        read_section(c, GateConfig),
    )


def _check_spawners(c: Any) -> None:
    """A name that is nearly ours; and keys, which traitlets drops in silence where it does not know them."""
    if right := near_miss(c):
        raise ValueError(f"c.JupyterHub.spawner_class is {chosen_spawner(c)!r}, which is no spawner: write {right!r}.")
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
    _check_offers(sections.offers)
    _check_ids("c.GpuCulling.idle_minutes_by_offer", sections.culling.idle_by_offer)
    _check_place(sections.service)
    _check_culling(sections.culling)
    for each in (sections.service, sections.notices):
        _check_tokens(each)
    _check_prometheus(sections.service)
    if sections.offers.memory_gib and sections.cluster.fractions_by != "kai":
        raise ValueError(
            "c.GpuOffers.memory_gib needs c.GpuCluster.fractions_by = 'kai': only KAI shares a GPU out by its memory."
        )


def check_cluster(cluster: ClusterConfig) -> None:
    """What only matters where servers are pods.

    Raises:
        ValueError: the text names the setting and says what would be right.
    """
    _check_ids("c.GpuCluster.capacity", cluster.capacity)
    if cluster.fractions_by == "kai" and not cluster.kai_queue:
        raise ValueError("c.GpuCluster.fractions_by is 'kai', which needs kai_queue: KAI refuses pods without a queue.")


def _check_offers(offers: OfferConfig) -> None:
    try:
        check_config(offers)
    except ValueError as problem:
        raise ValueError(f"c.GpuOffers.{problem}") from None


def _check_ids(name: str, by_offer: Mapping[str, object]) -> None:
    for offer in by_offer:
        try:
            OfferId(offer)
        except OfferIdError as problem:
            raise ValueError(f"{name}[{offer!r}]: {problem}") from None


def _check_culling(culling: CullPolicy) -> None:
    shortest = min([culling.idle, *culling.idle_by_offer.values()])
    if culling.warn > shortest:
        warn, limit = (each.total_seconds() / 60 for each in (culling.warn, shortest))
        raise ValueError(
            f"c.GpuCulling.warn_minutes is {warn:g}: it has to be at most the shortest idle limit "
            f"({limit:g} minutes), else users are warned before their GPU is idle."
        )
    try:
        check_policy(culling)
    except PolicyError as problem:
        field, bracket, offer = problem.field.partition("[")
        raise ValueError(f"{spelled(CullPolicy, field)}{bracket}{offer}: {problem.text}.") from None


def _check_tokens(section: ServiceConfig | NoticeConfig) -> None:
    for name, about in settings_in(type(section)).items():
        value = getattr(section, name)
        if about.token is not None and value and (problem := token_problem(value, about.token)):
            raise ValueError(f"{spelled(type(section), name)} {problem}")


def _check_prometheus(service: ServiceConfig) -> None:
    if service.prometheus_url and not _is_address(service.prometheus_url):
        raise ValueError(
            "c.GpuService.prometheus_url cannot be used: it has to be an address such as http://prometheus:9090, "
            "without a user, a password, a ? or a #."
        )


def _check_place(service: ServiceConfig) -> None:
    url = service.connect_url
    if url and (not _is_address(url) or urlsplit(url).path not in ("", "/")):
        raise ValueError(
            "c.GpuService.url cannot be used: it has to be an address such as http://jupyterhub-gpu:8191, without a "
            "path, a user, a password, a ? or a #."
        )
    if not service.started_by_hub and not url:
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


def read_section(c: Any, value: type[Value]) -> Value:
    """The section of a configuration that is made from `value`, as that value.

    Raises:
        ValueError: a key is unknown or what stands there is wrong; the text names it and says what would be right.
    """
    section = section_of(value)
    name = section.__name__
    traits = section.class_traits(config=True)
    result = section()
    for key, written in c.get(name, {}).items():
        full = f"c.{name}.{key}"
        if f"{name}.{key}" in RENAMED:
            raise ValueError(f"{full} is called c.{RENAMED[f'{name}.{key}']} now.")
        if key not in traits:
            raise ValueError(f"{full} is not a setting.{_nearest(key, traits)} Known in c.{name}: {_listed(traits)}.")
        trait = traits[key]
        if isinstance(written, LazyConfigValue):
            written = written.get_value(getattr(result, key))
        if isinstance(written, bool) != isinstance(trait, Bool) or not _finite(written) or _lone_text(trait, written):
            raise ValueError(f"{full} is {_shown(key, written)}: it has to be {wanted(trait)}.")
        try:
            setattr(result, key, written)
        except TraitError:
            raise ValueError(f"{full} is {_shown(key, written)}: it has to be {wanted(trait)}.") from None
    built: Value = result.build()
    return built


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
    if isinstance(trait, Enum):
        *others, last = [repr(each) if each else "empty" for each in trait.values or ()]
        return f"{', '.join(others)} or {last}"
    if isinstance(trait, List):
        return "a list of texts"
    if isinstance(trait, Dict):
        inner = getattr(trait, "_value_trait", None)
        if inner is None:
            return "a dict from a name to what is known of it"
        return f"a dict from an offer's id to {'a list' if isinstance(inner, List) else wanted(inner)}"
    if isinstance(trait, Union):
        return " or ".join(wanted(each) for each in trait.trait_types)
    if isinstance(trait, Callable):
        return "a function"
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
