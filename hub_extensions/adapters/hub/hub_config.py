"""Single settings of a hub's configuration, as they stand there: of JupyterHub itself, and of any class beside it.

Not here: our own sections (``spawner/config/loader.py``).
"""

from __future__ import annotations

from typing import Any

from traitlets.config.loader import LazyConfigValue


def value_of(c: Any, section: str, key: str, default: Any = None) -> Any:
    """``c.<section>.<key>``; `default` where nobody has set it."""
    if section not in c or key not in c[section]:
        return default
    value = c[section][key]
    return value.get_value(default) if isinstance(value, LazyConfigValue) else value
