"""What the gate is started with: one JSON file, written by ``configure(c)`` and read once at its start.

The file holds secrets: it is written with mode 0600, and no secret appears in a ``repr``.
Not here: how an admin sets these (``core/sign_on/gate_config.py``), and what an app is (``core/sign_on/apps.py``).
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from hub_extensions.adapters.files.settings_file import read_settings, write_settings
from hub_extensions.core.settings import settings_in
from hub_extensions.core.sign_on.apps import AppCatalogue
from hub_extensions.core.sign_on.gate_config import GateConfig

SETTINGS_FILE = "gate.json"
CLIENT_ID = "service-gate"
"""Of the gate as an OAuth client of the hub; its service there is called ``gate``."""
CALLBACK_PATH = "/_gate/callback"

GateMade = TypeVar("GateMade", bound="GateSettings")


@dataclass(frozen=True)
class GateSettings(GateConfig):
    """Everything the gate needs to know before its first request: the admin's settings, and what else it is told.

    Attributes:
        state_dir: the gate's own folder (mode 0700, on a local disk): sessions, keys.
        hub_api_url: where the gate asks the hub, with ``/hub/api`` at its end.
        hub_url: the hub's public address, with ``/hub/`` at its end: browsers are sent there to sign in.
        client_secret: the API token of the gate's service, which is its OAuth client's secret too.
        proxy_secret: what a proxy sends as ``X-Gate-Proxy`` with each check.
        ended_secret: what the hub signs ``POST /_gate/ended`` with; "": nobody sends such a thing (no c.SignOn).
        catalogue: `apps`, as they were read.
        subdomain_host: the hub's, below which users' servers have their hosts; "": they have none.
        gpu_service_url: where the GPU service answers, for the portal; "": there is none.
    """

    state_dir: str = field(kw_only=True)
    hub_api_url: str = field(kw_only=True)
    hub_url: str = field(kw_only=True)
    client_secret: str = field(repr=False, kw_only=True)
    proxy_secret: str = field(repr=False, kw_only=True)
    ended_secret: str = field(default="", repr=False, kw_only=True)
    client_id: str = CLIENT_ID
    catalogue: AppCatalogue = ()
    gpu_service_url: str = ""
    subdomain_host: str = ""

    @property
    def folder(self) -> Path:
        """See `state_dir`."""
        return Path(self.state_dir)

    @property
    def store_url(self) -> str:
        """Where the sessions are kept."""
        return self.database_url or f"sqlite:///{self.folder / 'gate.sqlite'}"

    @property
    def shared_life(self) -> str:
        """What reports are signed for where several gates share a database: whichever they reach, they are good."""
        return hashlib.sha256(f"the gates of {self.origin}".encode()).hexdigest()[:16]

    @property
    def origin(self) -> str:
        """Of the apps' host, without a slash at its end."""
        place = urlsplit(self.url)
        return f"{place.scheme}://{place.netloc}"

    @property
    def callback_url(self) -> str:
        """What the hub knows as the client's ``oauth_redirect_uri``."""
        return f"{self.origin}{CALLBACK_PATH}"

    @classmethod
    def load(cls: type[GateMade], path: str | os.PathLike[str]) -> GateMade:
        """Read the file, and where it names no database the environment. Raises SettingsError."""
        settings = read_settings(path, cls)
        named = os.environ.get(settings_in(GateConfig)["database_url"].variable, "")
        return settings if settings.database_url or not named else replace(settings, database_url=named)

    def dump(self, path: str | os.PathLike[str]) -> None:
        """Write the file with mode 0600: whole, or not at all."""
        write_settings(path, self)
