"""What the service is started with: one JSON file, written by ``configure(c)`` and read once at the service's start.

A service that the hub does not start has no such file: it asks the hub (``remote_settings.py``, ``remote_client.py``).
The file holds secrets: it is written with mode 0600, and no secret appears in a ``repr``.
Not here: how an admin sets these (``spawner/config/traits.py``), and what they mean (the dataclasses of ``core``).
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from hub_extensions.core.cluster.model import ClusterConfig
from hub_extensions.core.culling import CullPolicy
from hub_extensions.core.offers.model import OfferConfig
from hub_extensions.core.queue.model import QueueLimits
from hub_extensions.hub_service.setup.addresses import at

SERVICE_NAME = "gpu"


class SettingsError(Exception):
    """The settings file is missing or wrong; the text names file and field and says what would be right."""


@dataclass(frozen=True)
class Settings:
    """Everything the service needs to know before its first request.

    Attributes:
        state_dir: the service's own folder (mode 0700, on a local disk): database, copies of it, lock, secrets.
        hub_secret: what the hub proves itself with on ``/services/gpu/hub/…``.
        api_token: the service's own token at the hub's API (fixed in configuration, so a restart does not change it).
        metrics_token: opens ``/services/gpu/metrics`` and nothing else; None: only hub and admins may read it.
        database_url: SQLAlchemy URL; empty means an SQLite file in `state_dir` (ask `store_url`).
        host, port: where the service listens.
        connect_url: where the hub and its proxy reach it (``http://10.0.0.7:8191``); empty: at host and port.
        base_url: the hub's base URL, starting and ending in a slash.
        hub_api_url: the hub's API; empty means the environment of a hub-managed service says it.
        public_url: the hub's public address where the admin has set one; else empty.
        simulate: name or path of a layout whose GPUs are simulated; None: this machine's GPUs by NVML.
        start_seconds: how long a start may take before the spawner or the hub ends it (for what "at most" promises).
        allow_named_servers: users may have more than one server ("work on CPU meanwhile" is offered).
        offers, queue, culling: the admin's settings as `core` reads them.
        prometheus_url: who is asked what DCGM measured; empty: nobody. prometheus_token: sent as a bearer token.
        dcgm_scale: what 100 % of a MIG device's figures is: ``instance`` or ``card``.
        cluster: servers are pods of a cluster, whose GPUs are watched; None: they are processes of this machine.
    """

    state_dir: Path
    hub_secret: str = field(repr=False)
    api_token: str = field(repr=False)
    metrics_token: str | None = field(default=None, repr=False)
    database_url: str = field(default="", repr=False)
    host: str = "127.0.0.1"
    port: int = 8191
    connect_url: str = ""
    base_url: str = "/"
    hub_api_url: str = ""
    public_url: str = ""
    simulate: str | None = None
    start_seconds: float = 180.0
    allow_named_servers: bool = False
    offers: OfferConfig = field(default_factory=OfferConfig)
    queue: QueueLimits = field(default_factory=QueueLimits)
    culling: CullPolicy = field(default_factory=CullPolicy)
    prometheus_url: str = ""
    prometheus_token: str = field(default="", repr=False)
    dcgm_scale: Literal["instance", "card"] = "instance"
    cluster: ClusterConfig | None = None

    @property
    def prefix(self) -> str:
        """The path every route starts with, e.g. ``/services/gpu/``."""
        return f"{self.base_url.rstrip('/')}/services/{SERVICE_NAME}/"

    @property
    def url(self) -> str:
        """The service's direct URL, without a slash at the end: ``http://127.0.0.1:8191/services/gpu``."""
        return f"{self.origin}{self.prefix.rstrip('/')}"

    @property
    def origin(self) -> str:
        """Where hub and proxy reach the service, without a path: ``http://127.0.0.1:8191``."""
        return self.connect_url or at(self.host, self.port)

    @property
    def servers_url(self) -> str:
        """Where users' servers reach the service: the direct URL, unless the admin names another."""
        return (self.cluster.servers_url if self.cluster is not None else "") or self.url

    @property
    def store_url(self) -> str:
        """The database: the admin's own URL, or an SQLite file in `state_dir`."""
        return self.database_url or f"sqlite:///{self.state_dir / 'gpu.sqlite'}"

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Settings:
        """Read the file.

        Raises:
            SettingsError: it is missing, not readable, not JSON, or a field is wrong.
        """
        file = Path(path)
        try:
            text = file.read_text(encoding="utf-8")
        except OSError as problem:
            raise SettingsError(
                f"The settings file {file} cannot be read ({problem.strerror}). "
                "configure(c) in jupyterhub_config.py writes it at the hub's start."
            ) from problem
        try:
            raw = json.loads(text)
        except ValueError as problem:
            raise SettingsError(f"The settings file {file} is not JSON: {problem}.") from problem
        return checked(f"The settings file {file}", raw)

    def dump(self, path: str | os.PathLike[str]) -> None:
        """Write the file with mode 0600: whole, or not at all."""
        write_private(Path(path), TypeAdapter(Settings).dump_json(self, indent=2).decode() + "\n")


def write_private(path: Path, text: str) -> None:
    """Write a file only its owner reads: a new file beside it takes its place, so nobody ever sees half of it."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def checked(what: str, raw: Any) -> Settings:
    """Settings from JSON values. `what` begins the sentences: "The settings file /srv/gpu-state/service.json".

    Raises:
        SettingsError: a field is unknown, missing or wrong.
    """
    if not isinstance(raw, dict):
        raise SettingsError(f"{what} has to hold one JSON object.")
    unknown = sorted(set(raw) - set(Settings.__dataclass_fields__))
    if unknown:
        known = ", ".join(Settings.__dataclass_fields__)
        raise SettingsError(f"{what} has the unknown field {unknown[0]!r}. Known: {known}.")
    try:
        return TypeAdapter(Settings).validate_python(raw)
    except ValidationError as problem:
        first = problem.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise SettingsError(f"{what}: {where}: {first['msg']}.") from None


__all__ = ["SERVICE_NAME", "Settings", "SettingsError", "checked", "write_private"]
