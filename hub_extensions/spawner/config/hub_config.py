"""Single settings of a hub's configuration, as they stand there: of JupyterHub itself, and of any spawner.

Not here: our own sections (``loader.py``).
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from traitlets.config.loader import LazyConfigValue


def value_of(c: Any, section: str, key: str, default: Any = None) -> Any:
    """``c.<section>.<key>``; `default` where nobody has set it."""
    if section not in c or key not in c[section]:
        return default
    value = c[section][key]
    return value.get_value(default) if isinstance(value, LazyConfigValue) else value


def hub_base_url(c: Any) -> str:
    """The hub's base URL, as its configuration gives it: starts and ends in a slash."""
    path = value_of(c, "JupyterHub", "base_url") or urlsplit(str(value_of(c, "JupyterHub", "bind_url") or "")).path
    inner = str(path).strip("/")
    return f"/{inner}/" if inner else "/"
