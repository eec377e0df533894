"""The extension of Jupyter Server that runs in each user's server.

It reads this server's GPU, asks the GPU service about this server, and updates the GPU panel in JupyterLab. Importing
it opens no driver, starts no thread and sends no request.
"""

from __future__ import annotations

from typing import Any


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    """Return the extension for Jupyter Server, which calls this when it loads ``hub_extensions.server_extension``."""
    from hub_extensions.server_extension.extension import GpuExtension

    return [{"module": "hub_extensions.server_extension", "app": GpuExtension}]


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    """Return where the package has the built JupyterLab panel, for ``jupyter-builder develop``."""
    return [{"src": "../labextension", "dest": "jupyterhub-gpu"}]
