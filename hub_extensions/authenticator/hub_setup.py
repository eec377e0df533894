"""What ``configure(c)`` adds to a hub's configuration for sign-on sessions.

Not here: reading the settings (``spawner/config/loader.py``), and what they do (``mixin.py``).
"""

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
    refuse_misfits,
    remarks,
)
from hub_extensions.core.sign_on import SignOnConfig
from hub_extensions.core.sign_on.gate_config import GateAddress
from hub_extensions.core.sign_on.provider_settings import is_single_sign_on
from hub_extensions.core.sign_on.server_key import VARIABLE, server_key

TEMPLATES = Path(__file__).parent / "templates"


class AuthenticatorUnknown(ValueError):
    """``c.JupyterHub.authenticator_class`` names nothing that can be loaded."""


def add_sign_on(
    c: Any, config: SignOnConfig, notes: list[str], *, resolve: bool = True, gate: GateAddress | None = None
) -> None:
    """Put sessions in front of the authenticator that the configuration names, and what goes with them.

    Args:
        resolve: False in a dry run, where the authenticator need not be installed.
        gate: it is told of each end; None: there is none.

    Raises:
        AuthenticatorUnknown: it cannot be loaded. ProviderSettingsWrong: it is ours, and its settings do not fit.
    """
    is_ours = is_single_sign_on(value_of(c, "JupyterHub", "authenticator_class"))  # it has sessions without a setting
    if not config.enabled and not is_ours:
        return
    if is_ours:
        refuse_misfits(c)
    if resolve:
        from hub_extensions.authenticator.mixin import with_sessions  # JupyterHub's handlers take their time to load

        loaded = _loaded(value_of(c, "JupyterHub", "authenticator_class"))
        problem = loaded.problem_in(c) if hasattr(loaded, "problem_in") else ""
        if problem:
            raise ProviderSettingsWrong(problem)
        c.JupyterHub.authenticator_class = with_sessions(loaded, config, gate)
    _add_scopes(c)
    _add_templates(c)
    _add_server_key(c)
    if config.server_cache_seconds is not None:
        _add_cache_age(c, config.server_cache_seconds)
    notes += remarks(c, config)


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
    c.JupyterHub.custom_scopes = {**SCOPES, **value_of(c, "JupyterHub", "custom_scopes", {})}
    roles = [dict(role) for role in value_of(c, "JupyterHub", "load_roles", [])]
    if not any(role.get("name") == ADMIN_ROLE for role in roles):
        description = "What the hub's admins may do with sign-on sessions. Given to them by itself."
        roles.append({"name": ADMIN_ROLE, "description": description, "scopes": sorted(SCOPES)})
    c.JupyterHub.load_roles = roles


def _add_templates(c: Any) -> None:
    paths = list(value_of(c, "JupyterHub", "template_paths", []))
    if str(TEMPLATES) not in paths:
        c.JupyterHub.template_paths = [*paths, str(TEMPLATES)]
    words = value_of(c, "JupyterHub", "template_vars", {})
    c.JupyterHub.template_vars = {**words, "sign_on_language": _language_of_page}


def _language_of_page(user: object) -> Any:
    """The hub calls this for each page, with its reader."""
    from hub_extensions.authenticator.requests import language_of_page  # JupyterHub's handlers take their time to load

    return language_of_page


def _add_cache_age(c: Any, seconds: int) -> None:
    """In each section of a spawner that sets arguments, and in the one that all read."""
    sections = {"Spawner", *(name for name in c if name.endswith("Spawner") and "args" in c[name])}
    for name in sorted(sections):
        args = list(value_of(c, name, "args", []))
        if not any(str(each).startswith(CACHE) for each in args):
            c[name].args = [*args, f"{CACHE}{seconds}"]


def _add_server_key(c: Any) -> None:
    """In each section of a spawner that sets an environment, and in the one that all read."""
    for name in sorted({"Spawner", *(each for each in c if each.endswith("Spawner") and "environment" in c[each])}):
        c[name].environment = {**value_of(c, name, "environment", {}), VARIABLE: _server_key}


def _server_key(spawner: Any) -> str:
    return server_key(spawner.user.settings["cookie_secret"], spawner.user.id, spawner.name)
