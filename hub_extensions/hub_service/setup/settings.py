"""What the service is started with: one JSON file, written by ``configure(c)`` and read once at the service's start.

A service that the hub does not start has no such file: it asks the hub (``service_info.py``, ``settings_client.py``).
The file holds secrets: it is written with mode 0600, and no secret appears in a ``repr``.
Not here: how an admin sets these (``core/settings.py``), and what they mean (the dataclasses of ``core``).
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints
from urllib.parse import quote, urlsplit

from pydantic import TypeAdapter, ValidationError

from hub_extensions.core.cluster.model import ClusterConfig
from hub_extensions.core.culling import CullPolicy
from hub_extensions.core.notices import NoticeConfig
from hub_extensions.core.offers.model import OfferConfig
from hub_extensions.core.queue.model import QueueLimits
from hub_extensions.core.service import ServiceConfig
from hub_extensions.core.settings import spelled
from hub_extensions.hub_service.setup.addresses import at

SERVICE_NAME = "gpu"

Made = TypeVar("Made", bound="Settings")


class SettingsError(Exception):
    """The settings file is missing or wrong; the text names file and field and says what would be right."""


@dataclass(frozen=True)
class Settings(ServiceConfig, NoticeConfig):
    """Everything the service needs to know before its first request: the admin's settings, and what else it is told.

    Attributes:
        hub_secret: what the hub proves itself with on ``/services/gpu/hub/…``.
        api_token: the service's own token at the hub's API (fixed in configuration, so a restart does not change it).
        base_url: the hub's base URL, starting and ending in a slash.
        hub_api_url: the hub's API; empty means the environment of a hub-managed service says it.
        moved_url: where hub and proxy reach the service while somebody else has its port; else empty.
        public_url: the hub's public address where the admin has set one; else empty.
        start_seconds: how long a start may take before the spawner or the hub ends it (for what "at most" promises).
        allow_named_servers: users may have more than one server ("work on CPU meanwhile" is offered).
        offers, queue, culling: the admin's settings as `core` reads them.
        cluster: servers are pods of a cluster, whose GPUs are watched; None: they are processes of this machine.
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
        """The service's own folder (mode 0700, on a local disk): database, copies of it, lock, secrets."""
        return Path(self.state_dir)

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
        return self.moved_url or self._usual_origin

    @property
    def _usual_origin(self) -> str:
        return self.connect_url or at(self.host, self.port)

    @property
    def servers_url(self) -> str:
        """Where users' servers reach the service: the direct URL, unless the admin names another."""
        usual = f"{self._usual_origin}{self.prefix.rstrip('/')}"
        return (self.cluster.servers_url if self.cluster is not None else "") or usual

    def server_url(self, user: str, server: str) -> str:
        """Where a user opens a server: whole where the hub's public address is known, else from its path on.

        A hub that gives each user a host of their own leads on from there.
        """
        public = urlsplit(self.public_url if "://" in self.public_url else f"https://{self.public_url}")
        host = f"{public.scheme}://{public.netloc}" if public.netloc else ""
        name = f"{quote(server, safe='@~')}/" if server else ""
        return f"{host}{self.base_url.rstrip('/')}/user/{quote(user, safe='@~')}/{name}"

    @property
    def store_url(self) -> str:
        """The database: the admin's own URL, or an SQLite file in `state_dir`."""
        return self.database_url or f"sqlite:///{self.folder / 'gpu.sqlite'}"

    @classmethod
    def load(cls: type[Made], path: str | os.PathLike[str]) -> Made:
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
        return checked(f"The settings file {file}", raw, cls)

    def dump(self, path: str | os.PathLike[str]) -> None:
        """Write the file with mode 0600: whole, or not at all."""
        write_private(Path(path), TypeAdapter(type(self)).dump_json(self, indent=2).decode() + "\n")


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


def checked(what: str, raw: Any, made: type[Made]) -> Made:
    """Settings from JSON values. `what` begins the sentences: "The settings file /srv/gpu-state/service.json".

    Raises:
        SettingsError: a field is unknown, missing or wrong; the text names it, a setting as an admin writes it.
    """
    if not isinstance(raw, dict):
        raise SettingsError(f"{what} has to hold one JSON object.")
    for path, known in _unknown(made, raw):
        raise SettingsError(f"{what} has the unknown field {path!r}. Known: {', '.join(known)}.")
    try:
        return TypeAdapter(made).validate_python(raw)
    except ValidationError as problem:
        first = problem.errors(include_input=False, include_url=False)[0]
        raise SettingsError(f"{what}: {_named(made, first['loc'])}: {first['msg']}.") from None


def _unknown(value: type[Any], raw: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, tuple[str, ...]]]:
    """Every key that no field has, with the fields that there are; pydantic passes over those of inner values."""
    known = tuple(each.name for each in fields(value))
    for key, inner in raw.items():
        if key not in known:
            yield f"{above}{key}", known
        elif isinstance(inner, Mapping) and (kind := _value_of(value, key)) is not None:
            yield from _unknown(kind, inner, f"{above}{key}.")


def _named(value: type[Any], path: Sequence[int | str]) -> str:
    """What a path into the JSON values leads to: a setting as an admin writes it, else the path itself."""
    inner: type[Any] | None = value
    for part in path:
        if inner is None or part not in [each.name for each in fields(inner)]:
            break
        if name := spelled(inner, str(part)):
            return name
        inner = _value_of(inner, str(part))
    return ".".join(str(part) for part in path)


def _value_of(value: type[Any], name: str) -> type[Any] | None:
    """The class of a field that holds a value with fields of its own."""
    kind = get_type_hints(value)[name]
    return next((each for each in (kind, *get_args(kind)) if isinstance(each, type) and is_dataclass(each)), None)
