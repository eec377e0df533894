"""The service's settings: one JSON file, written by ``configure(c)`` in the hub and read once at the service's start.

If the hub does not start the service, the service has no such file and asks the hub for its settings
(``service_info.py``, ``settings_client.py``). The file contains secrets, so it is written with mode 0600, and no secret
appears in a ``repr``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urlsplit

from hub_extensions.adapters.files.settings_file import (
    SettingsError,
    checked,
    read_settings,
    write_private,
    write_settings,
)
from hub_extensions.core.cluster.model import ClusterConfig
from hub_extensions.core.culling import CullPolicy
from hub_extensions.core.notices import NoticeConfig
from hub_extensions.core.offers.model import OfferConfig
from hub_extensions.core.queue.model import QueueLimits
from hub_extensions.core.service import ServiceConfig
from hub_extensions.hub_service.setup.addresses import SERVICE_NAME, at

__all__ = ["SERVICE_NAME", "Settings", "SettingsError", "checked", "write_private"]

Made = TypeVar("Made", bound="Settings")


@dataclass(frozen=True)
class Settings(ServiceConfig, NoticeConfig):
    """Everything the service needs before its first request: the administrator's settings, and what the hub adds.

    Attributes:
        hub_secret: signs the hub's requests to ``/services/gpu/hub/…``.
        api_token: the service's own token at the hub's API (fixed in configuration, so a restart does not change it).
        base_url: the hub's base URL, starting and ending in a slash.
        hub_api_url: address of the hub's API; "" if the hub starts the service and passes the address in the
            environment.
        moved_url: address at which hub and proxy reach the service on the port that the hub has bound instead, while
            another program has the configured port; "" otherwise.
        public_url: the hub's public address, if it is configured; "" otherwise.
        start_seconds: how long a start may take before the spawner or the hub ends it. It is part of the longest wait,
            which users see as "at most …".
        allow_named_servers: users may have more than one server, so "work on CPU meanwhile" is offered.
        offers, queue, culling: the administrator's settings of the offers, of the line and of culling.
        cluster: settings of the cluster, if servers are pods. `None` if servers are processes of this machine.
    """

    hub_secret: str = field(repr=False, kw_only=True)
    api_token: str = field(repr=False, kw_only=True)
    base_url: str = "/"
    hub_api_url: str = ""
    moved_url: str = ""
    public_url: str = ""
    start_seconds: float = 180.0
    allow_named_servers: bool = False
    offers: OfferConfig = field(default_factory=OfferConfig)
    queue: QueueLimits = field(default_factory=QueueLimits)
    culling: CullPolicy = field(default_factory=CullPolicy)
    cluster: ClusterConfig | None = None

    @property
    def folder(self) -> Path:
        """The service's own folder (mode 0700, on a local disk): database, its backups, lock file, secrets."""
        return Path(self.state_dir)

    @property
    def prefix(self) -> str:
        """The path that every route starts with, such as ``/services/gpu/``."""
        return f"{self.base_url.rstrip('/')}/services/{SERVICE_NAME}/"

    @property
    def url(self) -> str:
        """The service's address with the path of its routes, such as ``http://127.0.0.1:8191/services/gpu``."""
        return f"{self.origin}{self.prefix.rstrip('/')}"

    @property
    def origin(self) -> str:
        """The service's address for hub and proxy, without a path: ``http://127.0.0.1:8191``."""
        return self.moved_url or self._usual_origin

    @property
    def _usual_origin(self) -> str:
        return self.connect_url or at(self.host, self.port)

    @property
    def servers_url(self) -> str:
        """The service's address for users' servers, with the path of its routes; the administrator may set another."""
        usual = f"{self._usual_origin}{self.prefix.rstrip('/')}"
        return (self.cluster.servers_url if self.cluster is not None else "") or usual

    def server_url(self, user: str, server: str) -> str:
        """Return where a user opens a server: a full URL if the hub's public address is known, otherwise a path.

        If each user's servers have a host name of their own, the hub redirects the browser from this address to it.
        """
        public = urlsplit(self.public_url if "://" in self.public_url else f"https://{self.public_url}")
        host = f"{public.scheme}://{public.netloc}" if public.netloc else ""
        name = f"{quote(server, safe='@~')}/" if server else ""
        return f"{host}{self.base_url.rstrip('/')}/user/{quote(user, safe='@~')}/{name}"

    @property
    def store_url(self) -> str:
        """The database's URL: the one that the administrator sets, or that of an SQLite file in `state_dir`."""
        return self.database_url or f"sqlite:///{self.folder / 'gpu.sqlite'}"

    @classmethod
    def load(cls: type[Made], path: str | os.PathLike[str]) -> Made:
        """Read the settings file.

        Raises:
            SettingsError: it is missing, not readable or not JSON, or a field is wrong.
        """
        return read_settings(path, cls)

    def dump(self, path: str | os.PathLike[str]) -> None:
        """Write the settings file atomically, with mode 0600."""
        write_settings(path, self)
