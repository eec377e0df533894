"""Checks of a configuration with sign-on: errors that prevent the hub's start, and remarks for the administrator. They
change nothing.

Values of a wrong type are not checked here: the authenticator's class does that.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any

from traitlets import TraitError

from hub_extensions.adapters.hub.hub_config import value_of
from hub_extensions.adapters.provider.provider_address import issuer_setting_problem
from hub_extensions.core.settings import RENAMED
from hub_extensions.core.sign_on import SignOnConfig
from hub_extensions.core.sign_on.provider_settings import (
    CLASS,
    ENTRY,
    LEFT_OVER,
    NAMES,
    SECTIONS,
    is_single_sign_on,
)

CACHE = "--HubOAuth.cache_max_age="


class ProviderSettingsWrong(ValueError, TraitError):
    """A setting of our authenticator is wrong. The hub prints this sentence without a traceback and exits."""


def check_settings(c: Any) -> None:
    """Check those settings of our authenticator that can be checked before its class is loaded.

    Raises:
        ProviderSettingsWrong: a setting is wrong.
    """
    named = value_of(c, "JupyterHub", "authenticator_class")
    for name in sorted(set(c.get(CLASS, {})) - NAMES):
        if isinstance(named, type) and named.__name__ != CLASS:
            break  # a class of the admin's own, which may have more settings
        if f"{CLASS}.{name}" in RENAMED:
            raise ProviderSettingsWrong(f"c.{CLASS}.{name} is called c.{RENAMED[f'{CLASS}.{name}']} now.")
        close = difflib.get_close_matches(name, NAMES, n=1)
        raise ProviderSettingsWrong(
            f"c.{CLASS}.{name} is not a setting.{f' Did you mean {close[0]}?' if close else ''}"
        )
    section, issuer = provider_value(c, "issuer")
    if wrong := issuer_setting_problem(issuer):
        raise ProviderSettingsWrong(f"c.{section}.issuer {wrong}.")
    has_groups = _has_groups(c)
    if has_groups and value_of(c, "JupyterHub", "load_groups"):
        raise ProviderSettingsWrong(
            "c.JupyterHub.load_groups cannot be beside groups from the provider, and the hub does not start with both. "
            f"Leave it out, or set c.{CLASS}.manage_groups to False."
        )
    section, admins = provider_value(c, "admin_groups")
    if admins and not (has_groups and provider_value(c, "groups_claim", "groups")[1]):
        raise ProviderSettingsWrong(
            f"c.{section}.admin_groups needs the provider's groups: set c.{CLASS}.groups_claim, and leave "
            "manage_groups at True."
        )


def remarks(c: Any, config: SignOnConfig) -> Iterator[str]:
    """Yield sentences for the administrator about settings that work against sessions, and about settings without
    effect.
    """
    if is_single_sign_on(value_of(c, "JupyterHub", "authenticator_class")):
        for section in SECTIONS:  # settings of `GenericOAuthenticator` or of the hub that do nothing here
            for name in sorted(LEFT_OVER.keys() & set(c.get(section, {}))):
                yield f"c.{section}.{name} does nothing with {ENTRY}: {LEFT_OVER[name]}."
        yield from _groups_that_nobody_gets(c)
        yield from _claim_that_may_be_omitted(c)
    else:
        for name in sorted(each for each in c if each.endswith("Authenticator")):
            age = value_of(c, name, "auth_refresh_age")
            if age is not None:
                yield (
                    f"c.{name}.auth_refresh_age ({age}) is how often your authenticator itself is asked; sessions are "
                    "looked at on every request."
                )
    days = value_of(c, "JupyterHub", "cookie_max_age_days", 14)
    if config.lifetime is None or config.lifetime.total_seconds() > days * 86400:
        yield (
            f"c.JupyterHub.cookie_max_age_days ({days:g}) is shorter than c.SignOn.lifetime_hours: everybody signs in "
            "again after that."
        )
    if value_of(c, "JupyterHub", "shutdown_on_logout"):
        yield (
            "c.JupyterHub.shutdown_on_logout stops servers at every sign-out, whatever c.SignOn.servers_at_sign_out is."
        )
    wanted = config.token_cache_seconds
    for name in (each for each in c if each.endswith("Spawner") and wanted is not None):
        for written in value_of(c, name, "args", []):
            if str(written).startswith(CACHE) and str(written) != f"{CACHE}{wanted}":
                so_long = "for ever" if str(written) == f"{CACHE}0" else "so long"  # as JupyterHub reads it
                yield (
                    f"c.{name}.args is left alone ({written}): {so_long} a server believes a token after its session "
                    "has ended, where it does not run our extension."
                )


def _groups_that_nobody_gets(c: Any) -> Iterator[str]:
    """Yield sentences about groups that other settings name, but that ``synced_groups`` excludes, so that nobody gets
    them.
    """
    kept = provider_value(c, "synced_groups")[1]
    if not kept or not _has_groups(c):
        return
    offers = value_of(c, "GpuOffers", "groups", {})
    named = {"c.GpuOffers.groups": [name for names in offers.values() for name in names]}
    for setting in ("allowed_groups", "admin_groups"):
        section, groups = provider_value(c, setting)
        named[f"c.{section}.{setting}"] = list(groups or ())
    for setting, names in named.items():
        if lacking := sorted(set(names) - set(kept)):
            yield (
                f"c.{CLASS}.synced_groups lacks {', '.join(lacking)}, which {setting} names: nobody is in it by the "
                "provider."
            )


def _claim_that_may_be_omitted(c: Any) -> Iterator[str]:
    """Yield a remark if rights depend on groups and the admin has not decided what it means if the provider sends no
    groups claim.
    """
    names = [name for name in ("allowed_groups", "admin_groups") if provider_value(c, name)[1]]
    claim = provider_value(c, "groups_claim", "groups")[1]
    if not names or not _has_groups(c) or not claim or provider_value(c, "missing_groups")[1] is not None:
        return
    section, claim = provider_value(c, names[0])[0], f"the claim {claim!r}" if isinstance(claim, str) else "a function"
    hours = provider_value(c, "unknown_groups_hours", 24)[1]
    yield (
        f"c.{section}.{names[0]} rests on {claim}, which Entra ID, Okta and Keycloak leave out for people in no group: "
        f"whoever left the last one keeps it for up to {hours:g} h. Set missing_groups: 'none' if your provider does "
        "so too, else 'unknown'."
    )


def _has_groups(c: Any) -> bool:
    return provider_value(c, "manage_groups", True)[1] is not False


def provider_value(c: Any, name: str, default: Any = None) -> tuple[str, Any]:
    """Return the configuration section that sets a setting of our authenticator, and the value.

    If several sections set it, the first of them in `SECTIONS` decides.

    Args:
        c: the configuration of the hub.
        name: name of the setting.
        default: the value if no section sets it.
    """
    for section in SECTIONS:
        value = value_of(c, section, name)
        if value is not None:
            return section, value
    return CLASS, default
