"""GPUs for JupyterHub: offers, a line that is kept, live use, fair culling.

Importing this package does nothing: no configuration is read, no driver is opened, no thread is started.
An admin's ``jupyterhub_config.py`` calls :func:`configure`; everything else is found by entry points.
"""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"

__all__ = ["__version__", "configure"]


def configure(c: Any) -> None:
    """Add the GPU service, its roles, the templates and the limits to a hub's configuration.

    Call it on the last line of ``jupyterhub_config.py``, after your own settings: nothing you set is overwritten,
    and what was left alone is printed.

    Args:
        c: the configuration object of ``jupyterhub_config.py``.

    Raises:
        WrongSetting: a setting of ours is unknown or out of range; the text names it and says what would be right. It
            is a ValueError, and a TraitError: JupyterHub logs the sentence of such, without a traceback, and ends.
    """
    from hub_extensions.configuration import WrongSetting, apply_in_hub

    try:
        apply_in_hub(c)
    except ValueError as problem:
        raise WrongSetting(str(problem)) from None
