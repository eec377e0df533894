"""``configure(c)``: adds the GPU service, its roles, templates and limits to a hub's configuration.

It overwrites nothing an admin has set, and prints a line for each thing it left alone. Not here: our own settings
(``spawner/config/traits.py``), how they are read (``spawner/config/loader.py``), and what they mean (``core``).
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from traitlets import TraitError
from traitlets.config import Config
from traitlets.config.loader import LazyConfigValue

from hub_extensions.adapters.hub.hub_config import value_of
from hub_extensions.adapters.hub.login_log import keep_secrets_out
from hub_extensions.authenticator.gate_address import GateAddress
from hub_extensions.authenticator.hub_setup import add_sign_on
from hub_extensions.authenticator.setup_checks import is_single_sign_on
from hub_extensions.core.culling import CullPolicy
from hub_extensions.core.notices import NoticeConfig, notice_hint
from hub_extensions.core.offers.model import OfferConfig
from hub_extensions.core.service import ServiceConfig
from hub_extensions.core.settings import settings_in
from hub_extensions.core.tokens import SHORTEST_TOKEN
from hub_extensions.gate.hub_setup import GateSurroundings, add_gate
from hub_extensions.hub_service.http.limits import raise_file_limit
from hub_extensions.hub_service.setup.addresses import reached_at
from hub_extensions.hub_service.setup.notice_texts import NoticeTexts
from hub_extensions.hub_service.setup.port import hold_port, is_hub_starting
from hub_extensions.hub_service.setup.service_info import BY_ENVIRONMENT, from_environment, hub_secret_of, to_info
from hub_extensions.hub_service.setup.settings import SERVICE_NAME, Settings, SettingsError
from hub_extensions.hub_service.setup.state_dir import NAMES, kept_secrets, state_folder
from hub_extensions.hub_service.setup.surroundings import chart_service_url, handed_down, own_hub_api
from hub_extensions.spawner.config.hub_config import hub_base_url
from hub_extensions.spawner.config.loader import Sections, check_together, read_sections
from hub_extensions.spawner.config.notice_checks import check_notices
from hub_extensions.spawner.config.pod_settings import cluster_config
from hub_extensions.spawner.config.spawner_classes import (
    FORM_SETTINGS,
    OURS_BY_PLACE,
    default_spawner,
    derives_from_kubespawner,
    how_to_derive,
    is_ours,
    load_own_class,
    name_of,
    other_forms,
    servers_are_pods,
)
from hub_extensions.spawner.pages.away import away_page

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
``start:servers`` does not exist on 5 (T13). `admin:server_state` shows processes and pods of
servers that ran before."""

SETTINGS_SCOPE = f"read:services!service={SERVICE_NAME}"
"""Only for a service that the hub does not start: to read what the hub tells it."""

ACCESS_SCOPE = f"access:services!service={SERVICE_NAME}"
DEFAULT_ROLE_SCOPES = {"user": ("self",), "server": ("users:activity!user", "access:servers!server")}
"""JupyterHub's own scopes of the two roles that ours are added to."""

SLOW_SPAWN_SECONDS = 1
"""A start that was refused at once is answered with its reason; one that waits shows the waiting page after this."""

CONNECT_SECONDS = 2
"""How long JupyterHub 6 waits at its start for a service apart. It would wait 30 s, and the service may wait for it."""

COMMAND = ["-m", "hub_extensions.hub_service"]
"""How the service is started, after the interpreter."""

HUBS_EVENTS = r"The `version` property of an event schema .*https://schema\.jupyter\.org/jupyterhub/"
"""How a warning begins that JupyterHub 5.5 gives of a file of its own, at each start: nobody here can mend it."""

TEMPLATES = Path(__file__).parent / "spawner" / "pages" / "templates"

SectionT = TypeVar("SectionT", ServiceConfig, NoticeConfig)

_dry_run_notes: ContextVar[list[str] | None] = ContextVar("_dry_run_notes", default=None)
"""Where the notes of a dry run go; None: we configure for real."""


class WrongSetting(TraitError, ValueError):
    """A setting with which the hub does not start; the text names it. JupyterHub shows a TraitError's text alone."""


def apply_in_hub(c: Any) -> None:
    """As `apply`, where the admin's own spawner class may be imported, as the hub is going to do."""
    load_own_class(c)
    apply(c)


def apply(c: Any) -> None:
    """Wire the product into a hub's configuration. See :func:`hub_extensions.configure`."""
    collected = _dry_run_notes.get()
    notes: list[str] = [] if collected is None else collected
    sections = read_sections(c)
    settings = build_settings(c, sections)
    apart, may_be_led_to = not sections.service.started_by_hub, True
    if collected is None and not apart and is_hub_starting():
        settings, note, may_be_led_to = hold_port(settings, sections.service.connect_url)
        notes += filter(None, [note])
    if collected is None:
        keep_secrets_out()
        raise_file_limit()
    if collected is None and not apart:
        settings.dump(settings.folder / "service.json")
    _note_place(c, sections.service, apart, notes)
    _add_service(c, settings, apart, notes, may_be_led_to)
    _add_roles(c, apart, notes)
    _add_templates(c, resolve=collected is None)
    _add_spawner(c, settings, notes)
    _add_limits(c, notes)
    _note_other_cullers(c, sections.culling, notes)
    _add_gate_and_sign_on(c, sections, settings, notes, is_dry_run=collected is not None)
    if collected is None:
        warnings.filterwarnings("ignore", HUBS_EVENTS, UserWarning)
    for note in notes if collected is None else ():
        print(f"jupyterhub-gpu: {note}", file=sys.stderr, flush=True)


@contextmanager
def dry_run() -> Iterator[list[str]]:
    """While it lasts, `apply` writes no file and prints nothing: its notes come into the list."""
    notes: list[str] = []
    token = _dry_run_notes.set(notes)
    try:
        yield notes
    finally:
        _dry_run_notes.reset(token)


def build_settings(c: Any, sections: Sections) -> Settings:
    """The service's settings; makes the state folder and the secrets, but not in a dry run.

    Raises:
        ValueError: the state folder cannot be used, or a section's values or a variable's do not fit; the text names
            the setting or the variable.
    """
    check_together(sections)
    offers = _simulated(sections.offers)
    service, notices = _with_secrets(sections.service), _with_secrets(sections.notices)
    public_url = str(value_of(c, "JupyterHub", "public_url") or value_of(c, "JupyterHub", "subdomain_host") or "")
    check_notices(notices, public_url, whole=_dry_run_notes.get() is None, notify_url=sections.culling.notify_url)
    NoticeTexts.of(notices)  # the service would end with it, too; here its sentence stands in the hub's log
    state_dir = Path(service.state_dir).expanduser().absolute()
    keys: dict[str, Any] = {**_keys(c, service, state_dir)}
    service = replace(
        service,
        state_dir=str(state_dir),
        connect_url=service.connect_url.rstrip("/") or reached_at(service.host, service.port)[0],
    )
    return Settings(
        **vars(service),
        **vars(notices),
        **keys,
        base_url=hub_base_url(c),
        hub_api_url=own_hub_api(c, hub_base_url(c)) if service.started_by_hub else "",
        public_url=public_url,
        start_seconds=_start_seconds(c),
        allow_named_servers=bool(value_of(c, "JupyterHub", "allow_named_servers", False)),
        offers=offers,
        queue=sections.queue,
        culling=sections.culling,
        cluster=cluster_config(c, sections.cluster, chart_service_url(hub_base_url(c)))
        if servers_are_pods(c)
        else None,
    )


def _with_secrets(section: SectionT) -> SectionT:
    """With what only the environment brings: in a chart it comes from a Secret of the admin's own."""
    names = BY_ENVIRONMENT.keys() & settings_in(type(section))
    try:
        found: dict[str, Any] = {
            name: from_environment(name, os.environ) for name in names if not getattr(section, name)
        }
    except SettingsError as problem:
        raise ValueError(str(problem)) from None
    return replace(section, **found)


def _keys(c: Any, service: ServiceConfig, state_dir: Path) -> Mapping[str, str]:
    """``hub_secret`` and ``api_token``: kept in the state folder, or by the token of a service apart."""
    is_dry_run = _dry_run_notes.get() is not None
    entry = next((each for each in value_of(c, "JupyterHub", "services", []) if each.get("name") == SERVICE_NAME), None)
    token = str((entry or {}).get("api_token") or "")
    if service.started_by_hub:
        kept = dict.fromkeys(NAMES, "") if is_dry_run else _kept(state_dir, c)
        # the chart makes one with `hub.services.gpu`, and the hub knows the service by that
        return {**kept, "api_token": token} if token and _is_our_process(entry or {}) else kept
    if entry is None or (len(token) < SHORTEST_TOKEN and not is_dry_run):
        raise ValueError(
            "c.GpuService.started_by_hub is False, so hub and service need a token that both know, and there is none: "
            "in the chart set `hub.services.gpu: {}`, elsewhere put {'name': 'gpu', 'api_token': …} with at least "
            f"{SHORTEST_TOKEN} characters into c.JupyterHub.services."
        )
    return {"hub_secret": "" if is_dry_run else hub_secret_of(token, service.shared_secret), "api_token": token}


def _kept(state_dir: Path, c: Any) -> Mapping[str, str]:
    try:
        return kept_secrets(state_folder(state_dir), _lasting(c))
    except ValueError as problem:
        raise UnusableState(str(problem)) from None


class UnusableState(ValueError, TraitError):
    """The state folder, or what is in it, cannot be used. A hub ends with this sentence alone, without a traceback."""


def _lasting(c: Any) -> str | bytes:
    """A secret of the hub's own that is the same at its next start, where its configuration has one."""
    return value_of(c, "JupyterHub", "cookie_secret") or b""


def _is_our_process(entry: Mapping[str, Any]) -> bool:
    """An entry of ``c.JupyterHub.services`` under our name is for the process that `apply` adds, not for another."""
    command = entry.get("command")
    if not command:
        return not entry.get("url")
    return isinstance(command, list) and command[1:3] == COMMAND


def _start_seconds(c: Any) -> float:
    """How long a start may take: the admin's time-outs for the start and for the first answer, and a margin."""
    sections = [name for name in c if name.endswith("Spawner")]
    start = max([60.0, *(float(value_of(c, name, "start_timeout", 0)) for name in sections)])
    answer = max([30.0, *(float(value_of(c, name, "http_timeout", 0)) for name in sections)])
    return max(180.0, start + answer + 30.0)


def _simulated(offers: OfferConfig) -> OfferConfig:
    """With the layout as the service finds it from any folder, and the fractions that the layout brings."""
    simulate = offers.simulate
    if simulate is None:
        return offers
    from hub_extensions.adapters.simulated.layouts import load_layout

    try:
        layout = load_layout(simulate)
    except (ValueError, OSError) as problem:
        raise ValueError(f"c.GpuOffers.simulate is {simulate!r}: {problem}") from None
    place = str(Path(simulate).absolute()) if Path(simulate).is_file() else simulate
    return replace(offers, simulate=place, fractions={**layout.fractions, **offers.fractions})


# ------------------------------------------------------------------ the hub's own settings


def _note_place(c: Any, service: ServiceConfig, apart: bool, notes: list[str]) -> None:
    if not service.connect_url and (guess := reached_at(service.host, service.port)[1]):
        notes.append(guess)
    if apart and value_of(c, "JupyterHub", "subdomain_host"):
        notes.append(
            "c.JupyterHub.subdomain_host is set and c.GpuService.started_by_hub is False: users cannot log in to the "
            "GPU service's own page then. All else works."
        )


def _add_service(c: Any, settings: Settings, apart: bool, notes: list[str], may_be_led_to: bool) -> None:
    services = list(value_of(c, "JupyterHub", "services", []))
    ours: dict[str, Any] = {
        "name": SERVICE_NAME,
        "api_token": settings.api_token,
        **({"url": settings.origin, "oauth_no_confirm": True} if may_be_led_to else {}),  # no page, no login
    }
    file = str(settings.folder / "service.json")
    if apart:
        ours["info"] = to_info(settings)
        if not version("jupyterhub").startswith("5."):
            ours["timeout"] = CONNECT_SECONDS
    else:
        ours["command"] = [sys.executable, *COMMAND, "--config", file]
        if environment := handed_down():
            ours["environment"] = environment
    for place, service in enumerate(services):
        if service.get("name") == SERVICE_NAME:
            services[place] = (_service_apart if apart else _merged_service)(service, ours, notes)
            break
    else:
        services.append(ours)
    c.JupyterHub.services = services


def _service_apart(theirs: Mapping[str, Any], ours: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    """Of a service apart: what `to_info` gives is always ours."""
    if theirs.get("command"):
        notes.append(
            f"your service {SERVICE_NAME!r} has a command and c.GpuService.started_by_hub is False: the hub starts a "
            "second one. Take the command out."
        )
    info = {**(theirs.get("info") or {}), **ours["info"]}
    if "settings" in (theirs.get("info") or {}):
        return {**theirs, **ours, "info": info}  # an earlier configure(c) wrote it
    rest = {key: value for key, value in theirs.items() if key != "info"}
    return {**_merged_service(rest, ours, notes), "info": info}


def _merged_service(theirs: Mapping[str, Any], ours: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    if environment := {**ours.get("environment", {}), **(theirs.get("environment") or {})}:
        ours["environment"] = environment  # both: theirs win
        theirs = {**theirs, "environment": environment}
    if theirs.get("command") and "command" in ours and _is_our_process(theirs):
        return {**theirs, **ours}
    kept = sorted(key for key in ours if key != "name" and key in theirs and theirs[key] != ours[key])
    if kept:
        notes.append(
            f"your service {SERVICE_NAME!r} is left alone in {', '.join(kept)}: it has to be the GPU service, "
            "else no server with a GPU starts."
        )
    return {**ours, **theirs}


def _add_roles(c: Any, apart: bool, notes: list[str]) -> None:
    roles = [dict(role) for role in value_of(c, "JupyterHub", "load_roles", [])]
    extra = value_of(c, "JupyterHub", "extra_user_scopes")
    if extra and not any(role.get("name") == "user" for role in roles):
        # JupyterHub 6 ignores extra_user_scopes once a role `user` is defined: we add ours to the list instead.
        c.JupyterHub.extra_user_scopes = [*extra, *({ACCESS_SCOPE} - set(extra))]
        _grant(roles, "server")
    else:
        _grant(roles, "user")
        _grant(roles, "server")
    _grant_service(roles, (*SERVICE_SCOPES, SETTINGS_SCOPE) if apart else SERVICE_SCOPES, notes)
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


def _grant_service(roles: list[dict[str, Any]], scopes: tuple[str, ...], notes: list[str]) -> None:
    for role in roles:
        if role.get("name") != ROLE_NAME:
            continue
        missing = sorted(set(scopes) - set(role.get("scopes", [])))
        if missing:
            notes.append(
                f"your role {ROLE_NAME!r} is left alone: it lacks {', '.join(missing)}, "
                "so the GPU service cannot do its whole work."
            )
        if SERVICE_NAME not in role.get("services", []):
            role["services"] = [*role.get("services", []), SERVICE_NAME]
        return
    description = "What the GPU service may do: see who has servers, start those in line, stop idle ones."
    roles.append({"name": ROLE_NAME, "description": description, "services": [SERVICE_NAME], "scopes": list(scopes)})


def _add_templates(c: Any, *, resolve: bool) -> None:
    """Ours come after an admin's own folders and before JupyterHub's: the hub takes the first that has a template."""
    words = value_of(c, "JupyterHub", "template_vars", {})
    c.JupyterHub.template_vars = {"gpu_away": away_page(f"/services/{SERVICE_NAME}"), **words}
    if resolve:
        _add_addresses(c)
    folder = str(TEMPLATES)
    value = c.JupyterHub.template_paths if "template_paths" in c.JupyterHub else []
    if not isinstance(value, LazyConfigValue):
        if folder not in value:
            c.JupyterHub.template_paths = [*value, folder]
        return
    # `c.JupyterHub.template_paths.append(…)`: JupyterHub would put its own folder first, and ours would never be found.
    c.JupyterHub.template_paths = [*value.get_value([]), folder]


def _add_addresses(c: Any) -> None:
    """JupyterHub calls its setting deprecated, and has no other for an address of the hub's own."""
    from hub_extensions.spawner.pages.page_frame import frame_handler  # JupyterHub's handlers take their time to load
    from hub_extensions.spawner.server_list import server_list_handler

    ours = (frame_handler(SERVICE_NAME), server_list_handler())
    others = value_of(c, "JupyterHub", "extra_handlers", [])
    c.JupyterHub.extra_handlers = [*(each for each in others if each[0] not in {mine[0] for mine in ours}), *ours]


def _add_spawner(c: Any, settings: Settings, notes: list[str]) -> None:
    chosen = value_of(c, "JupyterHub", "spawner_class")
    if chosen is None:
        c.JupyterHub.spawner_class = default_spawner()
    elif not is_ours(chosen):
        notes.append(
            f"c.JupyterHub.spawner_class is left alone ({name_of(chosen)}): servers start as before, without the "
            f"choice of a GPU. {how_to_derive(chosen) if derives_from_kubespawner(chosen) else OURS_BY_PLACE}"
        )
    for section, key in other_forms(c) if is_ours(chosen) or chosen is None else ():
        notes.append(
            f"c.{section}.{key} is left alone: it {FORM_SETTINGS[key]}: nobody can choose a GPU. Take it out; on "
            "Kubernetes choices of your own go into c.KubeSpawner.profile_list, which stands above the offers."
        )
    for key, value in (("gpu_service_url", settings.url), ("gpu_hub_secret", settings.hub_secret)):
        if not value_of(c, "GpuSpawnerMixin", key):
            c.GpuSpawnerMixin[key] = value
        elif value_of(c, "GpuSpawnerMixin", key) != value:
            notes.append(
                f"c.GpuSpawnerMixin.{key} is left alone: it has to fit the GPU service, else no server with a GPU "
                "starts."
            )
    here = settings.started_by_hub and settings.cluster is None and sys.platform == "linux"
    if here and value_of(c, "GpuSpawnerMixin", "gpu_service_account") is None:
        c.GpuSpawnerMixin.gpu_service_account = os.geteuid()
    if settings.servers_url != settings.url and not value_of(c, "GpuSpawnerMixin", "gpu_servers_url"):
        c.GpuSpawnerMixin.gpu_servers_url = settings.servers_url
    culling = settings.culling
    if culling.enabled and culling.unopened and value_of(c, "GpuSpawnerMixin", "gpu_unopened_minutes") is None:
        c.GpuSpawnerMixin.gpu_unopened_minutes = culling.unopened.total_seconds() / 60
    if value_of(c, "GpuSpawnerMixin", "gpu_notice_hint") is None:
        c.GpuSpawnerMixin.gpu_notice_hint = notice_hint(settings)
    if settings.cluster is not None:
        same = {
            "gpu_outside_seconds": settings.cluster.outside_after.total_seconds(),
            "gpu_max_wait_hours": settings.queue.max_wait.total_seconds() / 3600,
        }
        for key, number in same.items():
            if value_of(c, "GpuKubeSpawner", key) is None:
                c.GpuKubeSpawner[key] = number


def _add_limits(c: Any, notes: list[str]) -> None:
    limit = value_of(c, "JupyterHub", "concurrent_spawn_limit")
    if limit is None:
        c.JupyterHub.concurrent_spawn_limit = 0
    elif limit:
        notes.append(
            f"c.JupyterHub.concurrent_spawn_limit is left alone ({limit}): it counts servers that wait in line, so "
            f"{limit} of them keep everybody else from starting. 0 and c.GpuQueue.max_starting are right."
        )
    if value_of(c, "JupyterHub", "active_server_limit"):
        notes.append(
            f"c.JupyterHub.active_server_limit is left alone ({value_of(c, 'JupyterHub', 'active_server_limit')}): "
            "servers that wait in line count against it."
        )
    tornado = value_of(c, "JupyterHub", "tornado_settings", {})
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
    return [(name, key) for name in sorted(c) if name.endswith("Spawner") and value_of(c, name, key)]


def _note_other_cullers(c: Any, culling: CullPolicy, notes: list[str]) -> None:
    for service in value_of(c, "JupyterHub", "services", []):
        if "idle_culler" not in " ".join(map(str, service.get("command") or [])):
            continue
        advice = "Take one of the two out." if culling.enabled else "It knows nothing about the GPU's use."
        notes.append(f"your service {service.get('name')!r} stops idle servers too and is left alone. {advice}")


def _add_gate_and_sign_on(
    c: Any, sections: Sections, settings: Settings, notes: list[str], *, is_dry_run: bool
) -> None:
    """The gate first: the hub's sessions tell it of each end."""
    around = GateSurroundings(
        settings.folder,
        settings.base_url,
        settings.hub_secret,
        gpu_service_url=settings.url,
        gpu_servers_url=settings.servers_url,
        namespace=os.environ.get("POD_NAMESPACE", ""),
        hub_api_url=own_hub_api(c, settings.base_url),
        environment=handed_down(),
    )
    has_sessions = sections.sign_on.enabled or is_single_sign_on(value_of(c, "JupyterHub", "authenticator_class"))
    gate = add_gate(
        c, sections.gate, replace(sections.sign_on, enabled=has_sessions), around, notes, may_write=not is_dry_run
    )
    address = GateAddress(gate.connect_url, gate.ended_secret) if gate is not None and gate.ended_secret else None
    add_sign_on(c, sections.sign_on, notes, resolve=not is_dry_run, gate=address)


def settings_of(config: Config) -> Settings:
    """The settings that a finished configuration would give the service, without secrets and without writing."""
    with dry_run():
        return replace(build_settings(config, read_sections(config)), hub_secret="", api_token="")


def service_environment(c: Any) -> MutableMapping[str, str]:
    """The environment of our service in a configuration that `apply` has seen; what is put in is given to it."""
    for service in c.JupyterHub.services:
        if service["name"] == SERVICE_NAME:
            environment: MutableMapping[str, str] = service.setdefault("environment", {})
            return environment
    raise LookupError("configure(c) has not been called on this configuration")
