"""``configure(c)``: adds the GPU service, its roles, templates and limits to a hub's configuration.

It overwrites nothing an admin has set, and prints a line for each thing it left alone. Not here: our own settings
(``spawner/config.py``), how they are read (``spawner/sections.py``), and what they mean (``core``).
"""

from __future__ import annotations

import json
import os
import secrets
import stat
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from traitlets.config import Config
from traitlets.config.loader import LazyConfigValue

from hub_extensions.core.offers import OfferConfig
from hub_extensions.hub_service.settings import SERVICE_NAME, Settings, write_private
from hub_extensions.spawner.config import GpuCulling
from hub_extensions.spawner.sections import Sections, check_together, read_sections

ROLE_NAME = "gpu-service"
SERVICE_SCOPES = (
    "list:users",
    "read:users",
    "read:users:groups",
    "read:users:activity",
    "read:servers",
    "servers",
    "delete:servers",
    "admin:server_state",
    "read:hub",
)
"""What the service may do at the hub's API. `servers` starts and stops on JupyterHub 5 and 6 alike; the narrower
``start:servers`` does not exist on 5 (T13). `admin:server_state` shows the process ids of servers that ran before."""

ACCESS_SCOPE = f"access:services!service={SERVICE_NAME}"
DEFAULT_ROLE_SCOPES = {"user": ("self",), "server": ("users:activity!user", "access:servers!server")}
"""JupyterHub's own scopes of the two roles that ours are added to."""

SLOW_SPAWN_SECONDS = 1
"""A start that was refused at once is answered with its reason; one that waits shows the waiting page after this."""

TEMPLATES = Path(__file__).parent / "spawner" / "templates"

_looking: ContextVar[list[str] | None] = ContextVar("_looking", default=None)
"""Where the notes go while somebody only looks; None: we configure for real."""


def apply(c: Any) -> None:
    """Wire the product into a hub's configuration. See :func:`hub_extensions.configure`."""
    looking = _looking.get()
    notes: list[str] = [] if looking is None else looking
    sections = read_sections(c)
    settings = build_settings(c, sections)
    if looking is None:
        settings.dump(settings.state_dir / "service.json")
    _add_service(c, settings, notes)
    _add_roles(c, notes)
    _add_templates(c)
    _add_spawner(c, settings, notes)
    _add_limits(c, notes)
    _note_other_cullers(c, sections.culling, notes)
    for note in notes if looking is None else ():
        print(f"jupyterhub-gpu: {note}", file=sys.stderr, flush=True)


@contextmanager
def only_looking() -> Iterator[list[str]]:
    """While it lasts, `apply` writes no file and prints nothing: its notes come into the list."""
    notes: list[str] = []
    token = _looking.set(notes)
    try:
        yield notes
    finally:
        _looking.reset(token)


def build_settings(c: Any, sections: Sections) -> Settings:
    """The service's settings; makes the state folder and the secrets unless we are only looking.

    Raises:
        ValueError: the state folder cannot be used, or a section's values do not fit; the text names the setting.
    """
    offers, line, culling = (_built(section) for section in (sections.offers, sections.line, sections.culling))
    check_together(sections)
    simulate, offers = _simulated(sections.offers.simulate, offers)
    service = sections.service
    state_dir = Path(service.state_dir).expanduser().absolute()
    keys = {"hub_secret": "", "api_token": ""} if _looking.get() is not None else _secrets(_state_folder(state_dir))
    return Settings(
        state_dir=state_dir,
        hub_secret=keys["hub_secret"],
        api_token=keys["api_token"],
        metrics_token=service.public_metrics_token or None,
        database_url=service.database_url,
        host=service.host,
        port=service.port,
        base_url=hub_base_url(c),
        public_url=str(_get(c, "JupyterHub", "public_url") or ""),
        simulate=simulate,
        start_seconds=_start_seconds(c),
        allow_named_servers=bool(_get(c, "JupyterHub", "allow_named_servers", False)),
        offers=offers,
        line=line,
        culling=culling,
        prometheus_url=service.prometheus_url,
        prometheus_token=service.prometheus_token,
        dcgm_scale="card" if service.dcgm_scale == "card" else "instance",
    )


def _start_seconds(c: Any) -> float:
    """How long a start may take: the admin's time-outs for the start and for the first answer, and a margin."""
    sections = [name for name in c if name.endswith("Spawner")]
    start = max([60.0, *(float(_get(c, name, "start_timeout", 0)) for name in sections)])
    answer = max([30.0, *(float(_get(c, name, "http_timeout", 0)) for name in sections)])
    return max(180.0, start + answer + 30.0)


def hub_base_url(c: Any) -> str:
    """The hub's base URL, as its configuration gives it: starts and ends in a slash."""
    path = _get(c, "JupyterHub", "base_url") or urlsplit(str(_get(c, "JupyterHub", "bind_url") or "")).path
    inner = str(path).strip("/")
    return f"/{inner}/" if inner else "/"


# ------------------------------------------------------------------ what our sections say


def _built(section: Any) -> Any:
    try:
        return section.build()
    except ValueError as problem:
        raise ValueError(f"c.{type(section).__name__}.{problem}") from None


def _simulated(simulate: str | None, offers: OfferConfig) -> tuple[str | None, OfferConfig]:
    """The layout as the service finds it from any folder, and the offers with the fractions that the layout brings."""
    if simulate is None:
        return None, offers
    from hub_extensions.adapters.simulated import load_layout

    try:
        layout = load_layout(simulate)
    except (ValueError, OSError) as problem:
        raise ValueError(f"c.GpuOffers.simulate is {simulate!r}: {problem}") from None
    place = str(Path(simulate).absolute()) if Path(simulate).is_file() else simulate
    return place, replace(offers, fractions={**layout.fractions, **offers.fractions})


# ------------------------------------------------------------------ state folder and secrets


def _state_folder(path: Path) -> Path:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = path.stat()
    except OSError as problem:
        raise ValueError(
            f"c.GpuService.state_dir is {path}, which cannot be made ({problem.strerror}). "
            "It has to be a folder that the hub's account may write."
        ) from problem
    if not path.is_dir() or not os.access(path, os.W_OK | os.X_OK):
        raise ValueError(
            f"c.GpuService.state_dir is {path}: the hub's account has to be able to write into this folder."
        )
    if facts.st_uid != os.geteuid():
        raise ValueError(
            f"c.GpuService.state_dir is {path}, which belongs to another account (uid {facts.st_uid}, the hub runs as "
            f"{os.geteuid()}). Give the folder to the hub's account, or choose another one."
        )
    if stat.S_IMODE(facts.st_mode) & 0o077:
        path.chmod(0o700)
    return path


def _secrets(folder: Path) -> Mapping[str, str]:
    path = folder / "secrets.json"
    if not path.exists():
        fresh = {"hub_secret": secrets.token_hex(32), "api_token": secrets.token_hex(32)}
        write_private(path, json.dumps(fresh, indent=2) + "\n")
        return fresh
    path.chmod(0o600)
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        return {name: _secret(kept[name]) for name in ("hub_secret", "api_token")}
    except (ValueError, KeyError, TypeError):
        raise ValueError(
            f"{path} is damaged: it has to hold hub_secret and api_token. Delete the file; new secrets are made."
        ) from None


def _secret(value: object) -> str:
    if not isinstance(value, str) or len(value) < 32:
        raise ValueError
    return value


# ------------------------------------------------------------------ the hub's own settings


def _get(c: Any, section: str, key: str, default: Any = None) -> Any:
    if section not in c or key not in c[section]:
        return default
    value = c[section][key]
    return value.get_value(default) if isinstance(value, LazyConfigValue) else value


def _add_service(c: Any, settings: Settings, notes: list[str]) -> None:
    services = list(_get(c, "JupyterHub", "services", []))
    ours: dict[str, Any] = {
        "name": SERVICE_NAME,
        "url": f"http://{settings.host}:{settings.port}",
        "command": [
            sys.executable,
            "-m",
            "hub_extensions.hub_service",
            "--config",
            str(settings.state_dir / "service.json"),
        ],
        "api_token": settings.api_token,
        "oauth_no_confirm": True,
    }
    for place, service in enumerate(services):
        if service.get("name") == SERVICE_NAME:
            services[place] = _merged_service(service, ours, notes)
            break
    else:
        services.append(ours)
    c.JupyterHub.services = services


def _merged_service(theirs: Mapping[str, Any], ours: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    command = theirs.get("command")
    if isinstance(command, list) and command[1:3] == ours["command"][1:3]:
        return {**theirs, **ours}
    kept = sorted(key for key in ours if key != "name" and key in theirs and theirs[key] != ours[key])
    if kept:
        notes.append(
            f"your service {SERVICE_NAME!r} is left alone in {', '.join(kept)}: it has to be the GPU service, "
            "else no server with a GPU starts."
        )
    return {**ours, **theirs}


def _add_roles(c: Any, notes: list[str]) -> None:
    roles = [dict(role) for role in _get(c, "JupyterHub", "load_roles", [])]
    extra = _get(c, "JupyterHub", "extra_user_scopes")
    if extra and not any(role.get("name") == "user" for role in roles):
        # JupyterHub 6 ignores extra_user_scopes once a role `user` is defined: we add ours to the list instead.
        c.JupyterHub.extra_user_scopes = [*extra, *({ACCESS_SCOPE} - set(extra))]
        _grant(roles, "server")
    else:
        _grant(roles, "user")
        _grant(roles, "server")
    _grant_service(roles, notes)
    c.JupyterHub.load_roles = roles
    for section, key in _set_in_spawners(c, "server_token_scopes"):
        notes.append(
            f"c.{section}.{key} is left alone: it has to include {ACCESS_SCOPE!r}, else JupyterLab's GPU panel "
            "cannot ask when the server stops."
        )


def _grant(roles: list[dict[str, Any]], name: str) -> None:
    for role in roles:
        if role.get("name") == name:
            scopes = list(role.get("scopes", DEFAULT_ROLE_SCOPES[name]))
            role["scopes"] = scopes if ACCESS_SCOPE in scopes else [*scopes, ACCESS_SCOPE]
            return
    roles.append({"name": name, "scopes": [*DEFAULT_ROLE_SCOPES[name], ACCESS_SCOPE]})


def _grant_service(roles: list[dict[str, Any]], notes: list[str]) -> None:
    for role in roles:
        if role.get("name") != ROLE_NAME:
            continue
        missing = sorted(set(SERVICE_SCOPES) - set(role.get("scopes", [])))
        if missing:
            notes.append(
                f"your role {ROLE_NAME!r} is left alone: it lacks {', '.join(missing)}, "
                "so the GPU service cannot do its whole work."
            )
        if SERVICE_NAME not in role.get("services", []):
            role["services"] = [*role.get("services", []), SERVICE_NAME]
        return
    description = "What the GPU service may do: see who has servers, start those in line, stop idle ones."
    roles.append(
        {"name": ROLE_NAME, "description": description, "services": [SERVICE_NAME], "scopes": list(SERVICE_SCOPES)}
    )


def _add_templates(c: Any) -> None:
    """Ours come after an admin's own folders and before JupyterHub's: the hub takes the first that has a template."""
    folder = str(TEMPLATES)
    value = c.JupyterHub.template_paths if "template_paths" in c.JupyterHub else []
    if not isinstance(value, LazyConfigValue):
        if folder not in value:
            c.JupyterHub.template_paths = [*value, folder]
        return
    # `c.JupyterHub.template_paths.append(…)`: JupyterHub would put its own folder first, and ours would never be found.
    c.JupyterHub.template_paths = [*value.get_value([]), folder]


def _add_spawner(c: Any, settings: Settings, notes: list[str]) -> None:
    chosen = _get(c, "JupyterHub", "spawner_class")
    if chosen is None:
        c.JupyterHub.spawner_class = _own_spawner()
    elif not _is_ours(chosen):
        notes.append(
            f"c.JupyterHub.spawner_class is left alone ({chosen}): servers start as before, without the choice of a "
            'GPU. "gpu-local" is ours.'
        )
    for key, value in (("gpu_service_url", settings.url), ("gpu_hub_secret", settings.hub_secret)):
        if not _get(c, "GpuSpawnerMixin", key):
            c.GpuSpawnerMixin[key] = value
        elif _get(c, "GpuSpawnerMixin", key) != value:
            notes.append(
                f"c.GpuSpawnerMixin.{key} is left alone: it has to fit the GPU service, else no server with a GPU "
                "starts."
            )
    culling = settings.culling
    if culling.enabled and culling.unopened and _get(c, "GpuSpawnerMixin", "gpu_unopened_minutes") is None:
        c.GpuSpawnerMixin.gpu_unopened_minutes = culling.unopened.total_seconds() / 60


def _own_spawner() -> str:
    installed = any(entry.name == "gpu-local" for entry in entry_points(group="jupyterhub.spawners"))
    return "gpu-local" if installed else "hub_extensions.spawner.local.GpuLocalSpawner"


def _is_ours(chosen: Any) -> bool:
    if isinstance(chosen, type):
        return any(base.__module__.startswith("hub_extensions.") for base in chosen.__mro__)
    return str(chosen) in {"gpu-local", "gpu-demo"} or str(chosen).startswith("hub_extensions.")


def _add_limits(c: Any, notes: list[str]) -> None:
    limit = _get(c, "JupyterHub", "concurrent_spawn_limit")
    if limit is None:
        c.JupyterHub.concurrent_spawn_limit = 0
    elif limit:
        notes.append(
            f"c.JupyterHub.concurrent_spawn_limit is left alone ({limit}): it counts servers that wait in line, so "
            f"{limit} of them keep everybody else from starting. 0 and c.GpuLine.max_starting are right."
        )
    if _get(c, "JupyterHub", "active_server_limit"):
        notes.append(
            f"c.JupyterHub.active_server_limit is left alone ({_get(c, 'JupyterHub', 'active_server_limit')}): "
            "servers that wait in line count against it."
        )
    tornado = _get(c, "JupyterHub", "tornado_settings", {})
    if "slow_spawn_timeout" not in tornado:
        c.JupyterHub.tornado_settings = {**tornado, "slow_spawn_timeout": SLOW_SPAWN_SECONDS}
    if not version("jupyterhub").startswith("5."):
        return  # later versions do not count a refusal with a reason
    for section, key in _set_in_spawners(c, "consecutive_failure_limit"):
        notes.append(
            f"c.{section}.{key} is left alone ({c[section][key]}): JupyterHub 5 counts every refused start, so that "
            "many in a row end the hub. 0 switches it off."
        )


def _set_in_spawners(c: Any, key: str) -> list[tuple[str, str]]:
    return [(name, key) for name in sorted(c) if name.endswith("Spawner") and _get(c, name, key)]


def _note_other_cullers(c: Any, culling: GpuCulling, notes: list[str]) -> None:
    for service in _get(c, "JupyterHub", "services", []):
        if "idle_culler" not in " ".join(map(str, service.get("command") or [])):
            continue
        advice = "Take one of the two out." if culling.enabled else "It knows nothing about the GPU's use."
        notes.append(f"your service {service.get('name')!r} stops idle servers too and is left alone. {advice}")


def settings_of(config: Config) -> Settings:
    """The settings that a finished configuration would give the service, without secrets and without writing."""
    with only_looking():
        return replace(build_settings(config, read_sections(config)), hub_secret="", api_token="")


def service_environment(c: Any) -> MutableMapping[str, str]:
    """The environment of our service in a configuration that `apply` has seen; what is put in is given to it."""
    for service in c.JupyterHub.services:
        if service["name"] == SERVICE_NAME:
            environment: MutableMapping[str, str] = service.setdefault("environment", {})
            return environment
    raise LookupError("configure(c) has not been called on this configuration")


__all__ = [
    "ACCESS_SCOPE",
    "ROLE_NAME",
    "SERVICE_SCOPES",
    "apply",
    "build_settings",
    "hub_base_url",
    "only_looking",
    "service_environment",
    "settings_of",
]
