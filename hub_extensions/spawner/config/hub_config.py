"""The hub's base URL, as its configuration gives it.

Not here: our own sections (``loader.py``), and single settings (``adapters/hub/hub_config.py``).
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from hub_extensions.adapters.hub.hub_config import value_of


def hub_base_url(c: Any) -> str:
    """The hub's base URL, as its configuration gives it: starts and ends in a slash."""
    path = value_of(c, "JupyterHub", "base_url") or urlsplit(str(value_of(c, "JupyterHub", "bind_url") or "")).path
    inner = str(path).strip("/")
    return f"/{inner}/" if inner else "/"
