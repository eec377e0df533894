"""The address of the GPU service's database, for commands that read it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from hub_extensions.hub_service.setup.settings import Settings
from hub_extensions.hub_service.setup.state_dir import SETTINGS_FILE


def store_address(state_dir: Path) -> str:
    """Return the URL of the GPU service's database, from the settings in the service's state folder.

    Raises:
        SettingsError: the settings are missing or cannot be read.
    """
    settings = Settings.load(state_dir / SETTINGS_FILE)
    url = settings.database_url or os.environ.get("JUPYTERHUB_GPU_DATABASE_URL", "")
    return replace(settings, database_url=url).store_url
