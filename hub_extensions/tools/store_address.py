"""The address of a service's store, from the settings it was started with; for commands that look into it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from hub_extensions.hub_service.setup.settings import Settings
from hub_extensions.hub_service.setup.state_dir import SETTINGS_FILE


def store_address(state_dir: Path) -> str:
    """The store's URL.

    Raises:
        SettingsError: the settings are missing or cannot be read.
    """
    settings = Settings.load(state_dir / SETTINGS_FILE)
    url = settings.database_url or os.environ.get("JUPYTERHUB_GPU_DATABASE_URL", "")
    return replace(settings, database_url=url).store_url
