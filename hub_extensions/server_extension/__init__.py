"""RUNS in a user's server: reads this server's GPU, asks the GPU service about this server, feeds the panel.

Importing it does nothing: no driver is opened, no thread is started, no request is sent.
"""

from __future__ import annotations

from typing import Any


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    """What Jupyter Server looks for when it loads ``hub_extensions.server_extension``."""
    from hub_extensions.server_extension.extension import GpuExtension

    return [{"module": "hub_extensions.server_extension", "app": GpuExtension}]


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    """Where the built panel lies in the package, for ``jupyter-builder develop``."""
    return [{"src": "../labextension", "dest": "jupyterhub-gpu"}]
