"""The gate's settings: a JSON file that ``configure(c)`` writes and the gate reads at its start.

The file contains secrets: it has mode 0600, and no secret appears in a ``repr``.
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
"""OAuth client id of the gate at the hub, where its service is named ``gate``."""
CALLBACK_PATH = "/_gate/callback"

GateMade = TypeVar("GateMade", bound="GateSettings")


@dataclass(frozen=True)
class GateSettings(GateConfig):
    """Everything the gate needs to start: the admin's settings and values from the hub.

    Attributes:
        state_dir: the gate's own folder (mode 0700, on a local disk) for sessions and keys.
        hub_api_url: the hub's API for the gate, ending in ``/hub/api``.
        hub_url: the hub's public address, ending in ``/hub/``, where browsers sign in.
        client_secret: API token of the gate's service, and secret of its OAuth client.
        proxy_secret: secret that a proxy sends as ``X-Gate-Proxy`` with each check.
        ended_secret: secret with which the hub signs ``POST /_gate/ended``; "" without sign-on sessions.
        catalogue: the apps behind the gate when the hub was started, parsed from the setting ``c.SignOnGate.apps`` or
            from the file that it names.
        subdomain_host: the hub's setting ``subdomain_host``, below which users' servers have their hosts; "" without
            such hosts.
        gpu_service_url: address of the GPU service, for the portal; "" without a GPU service.
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
        """The gate's own folder (`state_dir`) as a path."""
        return Path(self.state_dir)

    @property
    def store_url(self) -> str:
        """Address of the gate's database: ``database_url``, or an SQLite file in `folder` if that is not set."""
        return self.database_url or f"sqlite:///{self.folder / 'gate.sqlite'}"

    @property
    def shared_life(self) -> str:
        """The name under which gates with the same database accept signed reports of the hub (`Signatures.life`).

        The name is the same for all these gates, so that each accepts a report that the hub has signed for another one.
        """
        return hashlib.sha256(f"the gates of {self.origin}".encode()).hexdigest()[:16]

    @property
    def origin(self) -> str:
        """Origin (scheme, host and port) of the apps' common host."""
        place = urlsplit(self.url)
        return f"{place.scheme}://{place.netloc}"

    @property
    def callback_url(self) -> str:
        """The address to which the hub sends the browser back after a sign-in (``oauth_redirect_uri``)."""
        return f"{self.origin}{CALLBACK_PATH}"

    @classmethod
    def load(cls: type[GateMade], path: str | os.PathLike[str]) -> GateMade:
        """Read the settings file. Raises SettingsError.

        If the file does not set ``database_url``, the value of the environment variable is used.
        """
        settings = read_settings(path, cls)
        named = os.environ.get(settings_in(GateConfig)["database_url"].variable, "")
        return settings if settings.database_url or not named else replace(settings, database_url=named)

    def dump(self, path: str | os.PathLike[str]) -> None:
        """Write the settings to a file, atomically and with mode 0600."""
        write_settings(path, self)
