"""Adds sign-on sessions to the hub's configuration, as a part of ``configure(c)``."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from hub_extensions.adapters.hub.hub_config import value_of
from hub_extensions.authenticator.scopes import ADMIN_ROLE, SCOPES
from hub_extensions.authenticator.setup_checks import (
    CACHE,
    ProviderSettingsWrong,
    check_settings,
    remarks,
)
from hub_extensions.core.sign_on import SignOnConfig
from hub_extensions.core.sign_on.gate_config import GateAddress
from hub_extensions.core.sign_on.provider_settings import is_single_sign_on
from hub_extensions.core.sign_on.server_key import VARIABLE, server_key

TEMPLATES = Path(__file__).parent / "templates"


class AuthenticatorUnknown(ValueError):
    """``c.JupyterHub.authenticator_class`` cannot be loaded."""


def add_sign_on(
    c: Any, config: SignOnConfig, notes: list[str], *, resolve: bool = True, gate: GateAddress | None = None
) -> None:
    """Add sessions to the authenticator that the configuration names, with their scopes, templates and server settings.

    Args:
        c: the configuration of the hub.
        config: the settings of sign-on sessions.
        notes: sentences for the administrator are appended to it.
        resolve: False in a dry run, where the authenticator need not be installed.
        gate: where ended sessions are reported; `None` without a gate.

    Raises:
        AuthenticatorUnknown: the authenticator cannot be loaded.
        ProviderSettingsWrong: the authenticator is ours, and its settings are wrong.
    """
    is_ours = is_single_sign_on(value_of(c, "JupyterHub", "authenticator_class"))  # ours always has sessions
    if not config.enabled and not is_ours:
        return
    if is_ours:
        check_settings(c)
    if resolve:
        from hub_extensions.authenticator.mixin import with_sessions  # JupyterHub's handlers take their time to load

        loaded = _loaded(value_of(c, "JupyterHub", "authenticator_class"))
        problem = loaded.problem_in(c) if hasattr(loaded, "problem_in") else ""
        if problem:
            raise ProviderSettingsWrong(problem)
        c.JupyterHub.authenticator_class = with_sessions(loaded, config, gate)
    _add_to_hub(c)
    _add_to_servers(c, config.token_cache_seconds)
    notes += remarks(c, config)


def _loaded(named: Any) -> type:
    """Load an authenticator class as the hub would.

    Args:
        named: value of ``c.JupyterHub.authenticator_class``: a class, the name of an entry point, or an import path.
            `None` is the hub's default, PAM.

    Raises:
        AuthenticatorUnknown: it cannot be loaded, or is not a class.
    """
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


def _add_to_hub(c: Any) -> None:
    """Add the scopes of sign-on, a role that has them, and the templates of its pages."""
    c.JupyterHub.custom_scopes = {**SCOPES, **value_of(c, "JupyterHub", "custom_scopes", {})}
    roles = [dict(role) for role in value_of(c, "JupyterHub", "load_roles", [])]
    if not any(role.get("name") == ADMIN_ROLE for role in roles):
        description = "What the hub's admins may do with sign-on sessions. Given to them by itself."
        roles.append({"name": ADMIN_ROLE, "description": description, "scopes": sorted(SCOPES)})
    c.JupyterHub.load_roles = roles
    paths = list(value_of(c, "JupyterHub", "template_paths", []))
    if str(TEMPLATES) not in paths:
        c.JupyterHub.template_paths = [*paths, str(TEMPLATES)]
    words = value_of(c, "JupyterHub", "template_vars", {})
    c.JupyterHub.template_vars = {**words, "sign_on_language": _language_of_page}


def _language_of_page(user: object) -> Any:
    """Return the function `language_of_page`, with which a template finds the language of its page.

    `_language_of_page` is set as a template variable. The hub calls such a function for each page, and the template
    gets the returned function instead.

    Args:
        user: the user who reads the page. It is not needed here.
    """
    from hub_extensions.authenticator.requests import language_of_page  # JupyterHub's handlers take their time to load

    return language_of_page


def _add_to_servers(c: Any, cache_seconds: int | None) -> None:
    """Configure all spawners: each server gets a key of its own, and a limit for how long it caches logins.

    The key is in the server's environment, and the hub signs its requests to the server with it. Key and limit are set
    in the section ``Spawner``, and in each section of a spawner class that sets the same traits.

    Args:
        cache_seconds: how long a server caches a login; `None` does not set it.
    """
    for name in _sections_with(c, "environment"):
        c[name].environment = {**value_of(c, name, "environment", {}), VARIABLE: _server_key}
    for name in _sections_with(c, "args") if cache_seconds is not None else ():
        args = list(value_of(c, name, "args", []))
        if not any(str(each).startswith(CACHE) for each in args):
            c[name].args = [*args, f"{CACHE}{cache_seconds}"]


def _sections_with(c: Any, key: str) -> list[str]:
    """Return the configuration sections in which a trait of spawners has to be set.

    These are ``Spawner``, and the sections of spawner classes that set the trait themselves, because that would hide
    the value in ``Spawner``.

    Args:
        key: name of the trait.
    """
    return sorted({"Spawner", *(each for each in c if each.endswith("Spawner") and key in c[each])})


def _server_key(spawner: Any) -> str:
    return server_key(spawner.user.settings["cookie_secret"], spawner.user.id, spawner.name)
