"""GPUs for JupyterHub: a spawn form with GPU offers, a waiting line that survives restarts, live GPU use, and
culling (idle servers are stopped).

Importing this package has no effect. An administrator's ``jupyterhub_config.py`` calls :func:`configure`; everything
else is found by entry points.
"""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"

__all__ = ["__version__", "configure"]


def configure(c: Any) -> None:
    """Add the GPU service, its roles, the templates and the limits to a hub's configuration.

    Call it on the last line of ``jupyterhub_config.py``, after your own settings. Nothing that you set is overwritten,
    and a note is printed for each setting that was left alone.

    Args:
        c: the configuration object of ``jupyterhub_config.py``.

    Raises:
        WrongSetting: a setting is unknown or out of range; the text names it and what would be right. It is both
            a ValueError and a TraitError, for which JupyterHub logs the text without a traceback and exits.
    """
    from hub_extensions.configuration import WrongSetting, apply

    try:
        apply(c, import_spawner=True)
    except ValueError as problem:
        raise WrongSetting(str(problem)) from None
