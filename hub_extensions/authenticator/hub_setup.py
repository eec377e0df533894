"""What ``configure(c)`` adds to a hub's configuration for sign-on sessions.

Not here: reading the settings (``spawner/config/loader.py``), and what they do (``mixin.py``).
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from traitlets import TraitError
from traitlets.config.loader import LazyConfigValue

from hub_extensions.authenticator.scopes import ADMIN_ROLE, SCOPES
from hub_extensions.core.sign_on import SignOnConfig
from hub_extensions.core.sign_on.server_key import VARIABLE, server_key

TEMPLATES = Path(__file__).parent / "templates"
CACHE = "--HubOAuth.cache_max_age="
OWN_ENTRY, OWN_CLASS = "single-sign-on", "SingleSignOnOIDCAuthenticator"


class ProviderSettingsWrong(ValueError, TraitError):
    """What is set for our own authenticator does not fit. A hub ends with this sentence alone, without a traceback."""


class AuthenticatorUnknown(ValueError):
    """``c.JupyterHub.authenticator_class`` names nothing that can be loaded."""


def add_sign_on(c: Any, config: SignOnConfig, notes: list[str], *, resolve: bool = True) -> None:
    """Put sessions in front of the authenticator that the configuration names, and what goes with them.

    Args:
        resolve: False in a dry run, where the authenticator need not be installed.

    Raises:
        AuthenticatorUnknown: it cannot be loaded. ProviderSettingsWrong: it is ours, and its settings do not fit.
    """
    if not config.enabled and not _brings_sessions(_value(c, "JupyterHub", "authenticator_class")):
        return
    if resolve:
        from hub_extensions.authenticator.mixin import with_sessions  # JupyterHub's handlers take their time to load

        loaded = _loaded(_value(c, "JupyterHub", "authenticator_class"))
        problem = loaded.problem_in(c) if hasattr(loaded, "problem_in") else ""
        if problem:
            raise ProviderSettingsWrong(problem)
        c.JupyterHub.authenticator_class = with_sessions(loaded, config)
    _add_scopes(c)
    _add_templates(c)
    _add_server_key(c)
    if config.server_cache_seconds is not None:
        _add_cache_age(c, config.server_cache_seconds)
    _note_others(c, config, notes)


def _brings_sessions(named: Any) -> bool:
    """Our own authenticator has sessions without a setting."""
    names = [each.__name__ for each in named.__mro__] if isinstance(named, type) else [str(named).rpartition(".")[2]]
    return bool({OWN_ENTRY, OWN_CLASS} & set(names))


def _loaded(named: Any) -> type:
    """The class that a hub would take: of an entry point, by its import path, or as it is; the hub's own default."""
    if isinstance(named, type):
        return named
    name = str(named or "pam")
    found = next(
        (entry for entry in entry_points(group="jupyterhub.authenticators") if entry.name == name.lower()), None
    )
    try:
        if found is not None:
            loaded = found.load()
        else:
            module, _, attribute = name.rpartition(".")
            loaded = getattr(import_module(module), attribute) if module else None
    except (ImportError, AttributeError) as problem:
        raise AuthenticatorUnknown(
            f"c.JupyterHub.authenticator_class is {name!r}, which cannot be loaded ({problem}). "
            "c.SignOn.enabled needs it to be set above configure(c)."
        ) from None
    if not isinstance(loaded, type):
        raise AuthenticatorUnknown(f"c.JupyterHub.authenticator_class is {name!r}, which is no authenticator.")
    return loaded


def _add_scopes(c: Any) -> None:
    c.JupyterHub.custom_scopes = {**SCOPES, **_value(c, "JupyterHub", "custom_scopes", {})}
    roles = [dict(role) for role in _value(c, "JupyterHub", "load_roles", [])]
    if not any(role.get("name") == ADMIN_ROLE for role in roles):
        description = "What the hub's admins may do with sign-on sessions. Given to them by itself."
        roles.append({"name": ADMIN_ROLE, "description": description, "scopes": sorted(SCOPES)})
    c.JupyterHub.load_roles = roles


def _add_templates(c: Any) -> None:
    paths = list(_value(c, "JupyterHub", "template_paths", []))
    if str(TEMPLATES) not in paths:
        c.JupyterHub.template_paths = [*paths, str(TEMPLATES)]
    words = _value(c, "JupyterHub", "template_vars", {})
    c.JupyterHub.template_vars = {**words, "sign_on_language": _language_of_page}


def _language_of_page(user: object) -> Any:
    """The hub calls this for each page, with its reader."""
    from hub_extensions.authenticator.requests import language_of_page  # JupyterHub's handlers take their time to load

    return language_of_page


def _add_cache_age(c: Any, seconds: int) -> None:
    """In each section of a spawner that sets arguments, and in the one that all read."""
    sections = {"Spawner", *(name for name in c if name.endswith("Spawner") and "args" in c[name])}
    for name in sorted(sections):
        args = list(_value(c, name, "args", []))
        if not any(str(each).startswith(CACHE) for each in args):
            c[name].args = [*args, f"{CACHE}{seconds}"]


def _add_server_key(c: Any) -> None:
    """In each section of a spawner that sets an environment, and in the one that all read."""
    for name in sorted({"Spawner", *(each for each in c if each.endswith("Spawner") and "environment" in c[each])}):
        c[name].environment = {**_value(c, name, "environment", {}), VARIABLE: _server_key}


def _server_key(spawner: Any) -> str:
    return server_key(spawner.user.settings["cookie_secret"], spawner.user.id, spawner.name)


def _note_others(c: Any, config: SignOnConfig, notes: list[str]) -> None:
    age = _value(c, "Authenticator", "auth_refresh_age")
    if age is not None:
        notes.append(
            f"c.Authenticator.auth_refresh_age ({age}) is how often your authenticator itself is asked; sessions are "
            "looked at on every request."
        )
    days = _value(c, "JupyterHub", "cookie_max_age_days", 14)
    if config.lifetime is None or config.lifetime.total_seconds() > days * 86400:
        notes.append(
            f"c.JupyterHub.cookie_max_age_days ({days:g}) is shorter than c.SignOn.lifetime_hours: everybody signs in "
            "again after that."
        )
    if _value(c, "JupyterHub", "shutdown_on_logout"):
        notes.append(
            "c.JupyterHub.shutdown_on_logout stops servers at every sign-out, whatever c.SignOn.servers_at_sign_out is."
        )
    wanted = config.server_cache_seconds
    for name in (each for each in c if each.endswith("Spawner") and wanted is not None):
        for written in _value(c, name, "args", []):
            if str(written).startswith(CACHE) and str(written) != f"{CACHE}{wanted}":
                notes.append(
                    f"c.{name}.args is left alone ({written}): so long a server believes a token after its session "
                    "has ended, where it does not run our extension."
                )


def _value(c: Any, section: str, key: str, default: Any = None) -> Any:
    if section not in c or key not in c[section]:
        return default
    value = c[section][key]
    return value.get_value(default) if isinstance(value, LazyConfigValue) else value
