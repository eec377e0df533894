"""Reads single settings of a hub's configuration."""

from __future__ import annotations

from typing import Any

from traitlets.config.loader import LazyConfigValue


def value_of(c: Any, section: str, key: str, default: Any = None) -> Any:
    """Return ``c.<section>.<key>``, the value of a setting in a configuration.

    Args:
        c: the configuration object.
        section: name of the section, such as ``JupyterHub``.
        key: name of the setting.
        default: what is returned if the setting is not set.
    """
    if section not in c or key not in c[section]:
        return default
    value = c[section][key]
    return value.get_value(default) if isinstance(value, LazyConfigValue) else value
