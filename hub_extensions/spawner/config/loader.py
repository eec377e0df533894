"""Read this product's sections of a hub's configuration and check them.

The text of an error names the setting and the values that would be right.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import parseaddr
from typing import Any, TypeVar
from urllib.parse import urlsplit

from traitlets import Bool, Callable, Dict, Enum, Float, Int, List, TraitError, TraitType, Unicode, Union
from traitlets.config.loader import Config, LazyConfigValue

from hub_extensions.adapters.hub.hub_config import value_of
from hub_extensions.core.cluster.model import ClusterConfig
from hub_extensions.core.culling import CullPolicy, PolicyError, check_policy
from hub_extensions.core.notices import MAIL, NoticeConfig, address_problem, channels_of
from hub_extensions.core.offers.model import OfferConfig, check_config
from hub_extensions.core.offers.offer_id import OfferId, OfferIdError
from hub_extensions.core.queue.model import QueueLimits
from hub_extensions.core.service import ServiceConfig
from hub_extensions.core.settings import check_name, settings_in, spelled
from hub_extensions.core.sign_on import SignOnConfig
from hub_extensions.core.sign_on.gate_config import GateConfig
from hub_extensions.core.tokens import token_problem
from hub_extensions.spawner.config.spawner_classes import FILES, near_miss, spawner_traits
from hub_extensions.spawner.config.traits import SECTIONS, section_of

SECRET = ("token", "secret", "password", "key", "url")
"""Endings of the names of settings whose value is never repeated in an error, because errors go into the hub's log."""

Value = TypeVar("Value")


@dataclass(frozen=True)
class Sections:
    """This product's sections of a hub's configuration, read and checked by `read_sections`.

    Each field is a dataclass of ``core`` with the settings of one section.

    Attributes:
        offers: ``c.GpuOffers``, the offers (choices of the spawn form).
        queue: ``c.GpuQueue``, the limits of the line.
        culling: ``c.GpuCulling``, when idle servers stop.
        service: ``c.GpuService``, the process of the GPU service.
        cluster: ``c.GpuCluster``, for servers that are pods.
        notices: ``c.GpuNotices``, mail and webhook to users.
        sign_on: ``c.SignOn``, sign-on sessions.
        gate: ``c.SignOnGate``, the gate in front of apps.
    """

    offers: OfferConfig
    queue: QueueLimits
    culling: CullPolicy
    service: ServiceConfig
    cluster: ClusterConfig
    notices: NoticeConfig = field(default_factory=NoticeConfig)
    sign_on: SignOnConfig = field(default_factory=SignOnConfig)
    gate: GateConfig = field(default_factory=GateConfig)


def read_sections(c: Any) -> Sections:
    """Read and check every section of this product: ``c.GpuOffers``, ``c.GpuQueue`` and so on.

    Raises:
        ValueError: a section or key is unknown, or a value is wrong; the text names it and what would be right.
    """
    known = {section.__name__ for section in SECTIONS}
    for name in c:
        check_name(name)
        if name.startswith(("Gpu", "SignOn")) and name not in known and not name.endswith(("Spawner", "Mixin")):
            raise ValueError(
                f"c.{name} is not a section of this product.{_nearest(name, known)} Known: {_listed(known)}."
            )
    if right := near_miss(c):
        chosen = value_of(c, "JupyterHub", "spawner_class")
        raise ValueError(f"c.JupyterHub.spawner_class is {chosen!r}, which is no spawner: write {right!r}.")
    # traitlets would ignore unknown keys without a message
    for section, (traits, is_complete) in spawner_traits(c).items():
        for key in c[section]:
            if key in traits or isinstance(c[section][key], Config):
                continue
            for each in FILES:  # a subclass reads the settings of its bases, also by their earlier names
                check_name(each, key)
            nearest = _nearest(key, traits)
            if not is_complete and not nearest:
                continue  # a setting of the administrator's own class, which is not known here
            raise ValueError(
                f"c.{section}.{key} is not a setting of {section}.{nearest} Ours are in the reference "
                "(docs/reference/configuration.md), the others in the documentation of JupyterHub and KubeSpawner."
            )
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


def check_together(sections: Sections) -> None:
    """Check settings that have to fit each other, such as the time of a warning and the idle limit.

    Raises:
        ValueError: the text names the setting and what would be right.
    """
    offers, culling, service = sections.offers, sections.culling, sections.service
    try:
        check_config(offers)
    except ValueError as problem:
        raise ValueError(f"c.GpuOffers.{problem}") from None
    _check_ids("c.GpuCulling.idle_minutes_by_offer", culling.idle_by_offer)

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
        name, bracket, offer = problem.field.partition("[")
        raise ValueError(f"{spelled(CullPolicy, name)}{bracket}{offer}: {problem.text}.") from None

    for section in (service, sections.notices):
        for name, about in settings_in(type(section)).items():
            value = getattr(section, name)
            if about.token is not None and value and (wrong := token_problem(value, about.token)):
                raise ValueError(f"{spelled(type(section), name)} {wrong}")
    if service.prometheus_url and not _is_address(service.prometheus_url):
        raise ValueError(
            "c.GpuService.prometheus_url cannot be used: it has to be an address such as http://prometheus:9090, "
            "without a user, a password, a ? or a #."
        )
    if offers.memory_gib and sections.cluster.fraction_scheduler != "kai":
        raise ValueError(
            "c.GpuOffers.memory_gib needs c.GpuCluster.fraction_scheduler = 'kai': only KAI shares a GPU out by its "
            "memory."
        )


def check_cluster(cluster: ClusterConfig) -> None:
    """Check settings that matter only if servers are pods.

    Raises:
        ValueError: the text names the setting and what would be right.
    """
    _check_ids("c.GpuCluster.capacity", cluster.capacity)
    if cluster.fraction_scheduler == "kai" and not cluster.kai_queue:
        raise ValueError(
            "c.GpuCluster.fraction_scheduler is 'kai', which needs kai_queue: KAI refuses pods without a queue."
        )


def check_notices(notices: NoticeConfig, public_url: str, *, whole: bool, warning_webhook_url: str = "") -> None:
    """Check whether notices can be sent, and would not send a password in clear text.

    Args:
        public_url: ``c.JupyterHub.public_url``; "" if it is not set.
        whole: False in a dry run, in which values from environment variables, such as passwords, are not known; a
            missing password is then no error.
        warning_webhook_url: ``c.GpuCulling.warning_webhook_url``; "" if it is not set.

    Raises:
        ValueError: the text names the setting and what would be right.
    """
    channels = channels_of(notices)
    if (channels or warning_webhook_url) and not public_url:
        section = "c.GpuNotices" if channels else "c.GpuCulling.warning_webhook_url"
        raise ValueError(
            f"{section} is to tell users where their server is, and c.JupyterHub.public_url is empty: set it to the "
            "address at which they open the hub, such as https://hub.example.org/."
        )
    for name, url in (
        ("GpuNotices.webhook_url", notices.webhook_url),
        ("GpuCulling.warning_webhook_url", warning_webhook_url),
    ):
        if url and not _is_address(url, query=True):
            raise ValueError(
                f"c.{name} cannot be used: it has to be an address such as https://chat.example.org/hook, without a "
                "user, a password or a #."
            )
    if MAIL not in channels:
        return
    if any(letter in notices.mail_from for letter in "\r\n") or address_problem(parseaddr(notices.mail_from)[1]):
        raise ValueError(
            f"c.GpuNotices.mail_from is {notices.mail_from!r}: with a mail server it has to be the sender's address, "
            "such as GPUs <gpu@example.org>."
        )
    if notices.smtp_user and notices.smtp_security == "none":
        raise ValueError(
            "c.GpuNotices.smtp_security is 'none', and c.GpuNotices.smtp_user is set: its password would be readable "
            "on the way. Use 'starttls' or 'tls'."
        )
    if whole and bool(notices.smtp_user) != bool(notices.smtp_password):
        raise ValueError(
            "c.GpuNotices.smtp_user and its password belong together: set both (the password by the environment "
            "variable JUPYTERHUB_GPU_SMTP_PASSWORD), or neither."
        )


def _check_ids(name: str, by_offer: Mapping[str, object]) -> None:
    for offer in by_offer:
        try:
            OfferId(offer)
        except OfferIdError as problem:
            raise ValueError(f"{name}[{offer!r}]: {problem}") from None


def _is_address(url: str, *, query: bool = False) -> bool:
    """Whether this is an HTTP address without user, password and fragment. A query is allowed if `query` is set."""
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False
    forbidden = {"#"} if query else {"?", "#"}
    return fits and "@" not in parts.netloc and not forbidden & set(url) and all("!" <= each <= "~" for each in url)


def read_section(c: Any, value: type[Value]) -> Value:
    """Read one section of a configuration, and return an instance of the dataclass that describes it.

    Args:
        c: the hub's configuration.
        value: the dataclass of ``core`` for the section, such as `OfferConfig` for ``c.GpuOffers``.

    Raises:
        ValueError: a key is unknown or a value is wrong; the text names it and what would be right.
    """
    section = section_of(value)
    name = section.__name__
    traits = section.class_traits(config=True)
    result = section()
    for key, written in c.get(name, {}).items():
        full = f"c.{name}.{key}"
        check_name(name, key)
        if key not in traits:
            raise ValueError(f"{full} is not a setting.{_nearest(key, traits)} Known in c.{name}: {_listed(traits)}.")
        trait = traits[key]
        if isinstance(written, LazyConfigValue):
            written = written.get_value(getattr(result, key))
        numbers = written.values() if isinstance(written, Mapping) else [written]
        is_finite = all(math.isfinite(number) for number in numbers if isinstance(number, float))
        is_lone_text = isinstance(trait, List) and isinstance(written, str)  # traitlets accepts it as a list of one
        try:
            if isinstance(written, bool) != isinstance(trait, Bool) or not is_finite or is_lone_text:
                raise TraitError
            setattr(result, key, written)
        except TraitError:
            # a secret, or an address that may hold one, is described by its type alone
            shown = f"of the type {type(written).__name__}" if key.endswith(SECRET) else repr(written)
            raise ValueError(f"{full} is {shown}: it has to be {wanted(trait)}.") from None
    built: Value = result.build()
    return built


def wanted(trait: TraitType[Any, Any]) -> str:
    """Describe the values that a setting accepts, such as "a whole number of at least 1"."""
    none = " or None" if trait.allow_none else ""
    if isinstance(trait, Bool):
        return "True or False"
    if isinstance(trait, Int | Float):
        kind = "a whole number" if isinstance(trait, Int) else "a number"
        low, high = getattr(trait, "min", None), getattr(trait, "max", None)
        if low is None or not math.isfinite(low):
            return kind + none
        has_both = high is not None and math.isfinite(high)
        return f"{kind} from {low:g} to {high:g}{none}" if has_both else f"{kind} of at least {low:g}{none}"
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


def _nearest(name: str, known: Any) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {close[0]}?" if close else ""


def _listed(names: Any) -> str:
    return ", ".join(sorted(names))
