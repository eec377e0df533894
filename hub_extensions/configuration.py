"""``configure(c)``: add the GPU service, its roles, pages, spawner and limits to a hub's configuration.

There is one function for each subject. Nothing that an administrator has set is overwritten. A function appends a note
for the administrator for each setting that it would have changed, and the notes are printed.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from traitlets import TraitError
from traitlets.config import Config
from traitlets.config.loader import LazyConfigValue

from hub_extensions.adapters.hub.hub_config import value_of
from hub_extensions.adapters.hub.login_log import hide_login_secrets
from hub_extensions.authenticator.hub_setup import add_sign_on
from hub_extensions.core.culling import CullPolicy
from hub_extensions.core.notices import NoticeConfig, notice_hint
from hub_extensions.core.service import ServiceConfig
from hub_extensions.core.settings import settings_in
from hub_extensions.core.tokens import SHORTEST_TOKEN
from hub_extensions.gate.hub_setup import GateContext, add_gate
from hub_extensions.hub_service.http.limits import raise_file_limit
from hub_extensions.hub_service.setup.addresses import (
    EVERYWHERE,
    chart_service_url,
    inherited_variables,
    reached_at,
)
from hub_extensions.hub_service.setup.notice_texts import NoticeTexts
from hub_extensions.hub_service.setup.port import hold_port, is_hub_starting
from hub_extensions.hub_service.setup.service_info import BY_ENVIRONMENT, from_environment, hub_secret_of, to_info
from hub_extensions.hub_service.setup.settings import SERVICE_NAME, Settings, SettingsError
from hub_extensions.hub_service.setup.state_dir import NAMES, kept_secrets
from hub_extensions.spawner.config.loader import Sections, check_notices, check_together, read_sections
from hub_extensions.spawner.config.pod_settings import cluster_config
from hub_extensions.spawner.config.spawner_classes import (
    FORM_SETTINGS,
    OURS_BY_PLACE,
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
"""Scopes of the GPU service at the hub's API. `servers` starts and stops servers on JupyterHub 5 and 6; the narrower
``start:servers`` does not exist on 5. `admin:server_state` shows pid or pod of each server that already runs."""

SETTINGS_SCOPE = f"read:services!service={SERVICE_NAME}"
"""Further scope of a GPU service that the hub does not start: with it, the service reads its settings from the hub."""

ACCESS_SCOPE = f"access:services!service={SERVICE_NAME}"
DEFAULT_ROLE_SCOPES = {"user": ("self",), "server": ("users:activity!user", "access:servers!server")}
"""JupyterHub's default scopes of the two roles that get `ACCESS_SCOPE`."""

SLOW_SPAWN_SECONDS = 1  # a start that takes longer shows the waiting page; one refused earlier shows its reason
CONNECT_SECONDS = 2
"""Time that a starting JupyterHub 6 waits for the GPU service if the hub does not start the service itself.
JupyterHub's default of 30 s would only delay the hub, because the service may be waiting for the hub."""

COMMAND = ["-m", "hub_extensions.hub_service"]
"""Arguments of the Python interpreter that start the service."""

EVENT_SCHEMA_WARNING = r"The `version` property of an event schema .*https://schema\.jupyter\.org/jupyterhub/"
"""Pattern of a warning that JupyterHub 5.5 gives about its own file at each start. Users cannot act on it."""

TEMPLATES = Path(__file__).parent / "spawner" / "pages" / "templates"

SectionT = TypeVar("SectionT", ServiceConfig, NoticeConfig)

_dry_run_notes: ContextVar[list[str] | None] = ContextVar("_dry_run_notes", default=None)
"""The list that collects the notes of a dry run. None outside a dry run."""


class WrongSetting(TraitError, ValueError):
    """A setting is unknown or wrong, so the hub does not start.

    It is a TraitError too, because JupyterHub prints the text of a TraitError without a traceback.
    """


class UnusableState(ValueError, TraitError):
    """The state folder or a file in it cannot be used, so the hub does not start.

    It is a TraitError too, because JupyterHub prints the text of a TraitError without a traceback.
    """


def apply(c: Any, *, import_spawner: bool = False) -> None:
    """Add everything that this product needs to a hub's configuration. See :func:`hub_extensions.configure`.

    Args:
        c: the configuration object; it is modified.
        import_spawner: if ``spawner_class`` names an administrator's own class, import it to learn its bases. Otherwise
            the class is judged by its name.
    """
    if import_spawner:
        load_own_class(c)
    collected = _dry_run_notes.get()
    is_dry_run = collected is not None
    notes: list[str] = [] if collected is None else collected
    sections = read_sections(c)
    settings, is_reachable = build_settings(c, sections), True
    if not is_dry_run:
        if settings.started_by_hub and is_hub_starting():
            settings, note, is_reachable = hold_port(settings, sections.service.connect_url)
            notes += filter(None, [note])
        hide_login_secrets()
        raise_file_limit()
        if settings.started_by_hub:
            settings.dump(settings.folder / "service.json")
    _add_service(c, sections.service, settings, notes, is_reachable=is_reachable)
    _add_roles(c, settings, notes)
    _add_pages(c, is_dry_run=is_dry_run)
    _add_spawner(c, settings, notes)
    _add_limits(c, sections.culling, notes)

    around = GateContext(
        settings.folder,
        settings.base_url,
        settings.hub_secret,
        gpu_service_url=settings.url,
        gpu_service_connect_url=settings.servers_url,
        namespace=os.environ.get("POD_NAMESPACE", ""),
        hub_api_url=_local_hub_api(c, settings.base_url),
        environment=inherited_variables(),
    )
    # the hub reports ended sessions to the gate's address
    address = add_gate(c, sections.gate, sections.sign_on, around, notes, may_write=not is_dry_run)
    add_sign_on(c, sections.sign_on, notes, resolve=not is_dry_run, gate=address)

    if not is_dry_run:
        warnings.filterwarnings("ignore", EVENT_SCHEMA_WARNING, UserWarning)
        for note in notes:
            print(f"jupyterhub-gpu: {note}", file=sys.stderr, flush=True)


@contextmanager
def dry_run() -> Iterator[list[str]]:
    """Within this context, `apply` writes no file and prints nothing.

    The notes of `apply` are appended to the yielded list.
    """
    notes: list[str] = []
    token = _dry_run_notes.set(notes)
    try:
        yield notes
    finally:
        _dry_run_notes.reset(token)


def settings_of(config: Config) -> Settings:
    """Return the settings that `apply` would pass to the GPU service, without secrets. Nothing is written.

    Args:
        config: a hub's complete configuration.
    """
    with dry_run():
        return replace(build_settings(config, read_sections(config)), hub_secret="", api_token="")


def service_environment(c: Any) -> MutableMapping[str, str]:
    """Return the environment variables of the GPU service in a configuration after `apply`. The caller may add some.

    Raises:
        LookupError: `apply` has not been called.
    """
    for service in c.JupyterHub.services:
        if service["name"] == SERVICE_NAME:
            environment: MutableMapping[str, str] = service.setdefault("environment", {})
            return environment
    raise LookupError("configure(c) has not been called on this configuration")


# ------------------------------------------------------------------ the service's settings


def build_settings(c: Any, sections: Sections) -> Settings:
    """Return the GPU service's settings. Creates the state folder and the secrets, except in a dry run.

    Args:
        c: the hub's configuration.
        sections: this product's sections of it, read and checked.

    Raises:
        ValueError: the state folder cannot be used, or a value of a section or of an environment variable is wrong; the
            text names the setting or the variable.
    """
    check_together(sections)
    offers = sections.offers
    if offers.simulate is not None:
        from hub_extensions.adapters.simulated.layouts import load_layout

        try:
            layout = load_layout(offers.simulate)
        except (ValueError, OSError) as problem:
            raise ValueError(f"c.GpuOffers.simulate is {offers.simulate!r}: {problem}") from None
        # the service runs in another folder
        place = str(Path(offers.simulate).absolute()) if Path(offers.simulate).is_file() else offers.simulate
        offers = replace(offers, simulate=place, fractions={**layout.fractions, **offers.fractions})
    service, notices = _with_secrets(sections.service), _with_secrets(sections.notices)
    public_url = str(value_of(c, "JupyterHub", "public_url") or value_of(c, "JupyterHub", "subdomain_host") or "")
    check_notices(
        notices,
        public_url,
        whole=_dry_run_notes.get() is None,
        warning_webhook_url=sections.culling.warning_webhook_url,
    )
    NoticeTexts.of(notices)  # the service would end with this error too; here the text stands in the hub's log
    path = value_of(c, "JupyterHub", "base_url") or urlsplit(str(value_of(c, "JupyterHub", "bind_url") or "")).path
    inner = str(path).strip("/")
    base_url = f"/{inner}/" if inner else "/"
    spawners = [name for name in c if name.endswith("Spawner")]
    start_timeout = max([60.0, *(float(value_of(c, name, "start_timeout", 0)) for name in spawners)])
    http_timeout = max([30.0, *(float(value_of(c, name, "http_timeout", 0)) for name in spawners)])
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
        base_url=base_url,
        hub_api_url=_local_hub_api(c, base_url) if service.started_by_hub else "",
        public_url=public_url,
        start_seconds=max(180.0, start_timeout + http_timeout + 30.0),
        allow_named_servers=bool(value_of(c, "JupyterHub", "allow_named_servers", False)),
        offers=offers,
        queue=sections.queue,
        culling=sections.culling,
        cluster=cluster_config(c, sections.cluster, chart_service_url(base_url)) if servers_are_pods(c) else None,
    )


def _local_hub_api(c: Any, base_url: str) -> str:
    """Return the loopback URL of the hub's API, for processes that the hub starts.

    In a pod, network policies may block the hub's own Service, so the loopback address is safer. "" if the hub does not
    listen on every address or uses internal TLS; then the address that JupyterHub gives the process is used.
    """
    bound = urlsplit(str(value_of(c, "JupyterHub", "hub_bind_url") or "").replace("//*", "//0.0.0.0"))
    everywhere = (bound.hostname or "") in EVERYWHERE
    if bound.scheme != "http" or not everywhere or not bound.port or value_of(c, "JupyterHub", "internal_ssl"):
        return ""
    return f"http://127.0.0.1:{bound.port}{base_url}hub/api"


def _with_secrets(section: SectionT) -> SectionT:
    """Return the section with its unset secrets, such as passwords, filled in from environment variables.

    In the chart, an administrator sets these variables from a Kubernetes Secret. A secret without a variable stays "".
    """
    names = BY_ENVIRONMENT.keys() & settings_in(type(section))
    try:
        found: dict[str, Any] = {
            name: from_environment(name, os.environ) for name in names if not getattr(section, name)
        }
    except SettingsError as problem:
        raise ValueError(str(problem)) from None
    return replace(section, **found)


def _keys(c: Any, service: ServiceConfig, state_dir: Path) -> Mapping[str, str]:
    """Return the two secrets ``hub_secret`` and ``api_token`` for the settings of the GPU service.

    If the hub starts the service, both secrets are kept in the state folder. If an administrator's entry for the same
    process (see `_is_our_process`) has a token, this token is ``api_token``. If the hub does not start the service,
    ``api_token`` is always the token in the administrator's entry for the service, and ``hub_secret`` is derived from
    it or from ``shared_secret``. In a dry run both may be "".

    Args:
        c: the hub's configuration.
        service: the settings of the section ``c.GpuService``.
        state_dir: the service's state folder.

    Raises:
        UnusableState: the state folder cannot be used.
        ValueError: the hub does not start the service, and the administrator's entry is missing or its token too short.
    """
    is_dry_run = _dry_run_notes.get() is not None
    entry = next((each for each in value_of(c, "JupyterHub", "services", []) if each.get("name") == SERVICE_NAME), None)
    token = str((entry or {}).get("api_token") or "")
    if service.started_by_hub:
        try:
            # a secret that is the same at the hub's next start, if its configuration has one
            lasting = value_of(c, "JupyterHub", "cookie_secret") or b""
            kept = dict.fromkeys(NAMES, "") if is_dry_run else kept_secrets(state_dir, lasting)
        except ValueError as problem:
            raise UnusableState(str(problem)) from None
        # the chart makes a token for `hub.services.gpu`, by which the hub identifies the service
        return {**kept, "api_token": token} if token and _is_our_process(entry or {}) else kept
    if entry is None or (len(token) < SHORTEST_TOKEN and not is_dry_run):
        raise ValueError(
            "c.GpuService.started_by_hub is False, so hub and service need a token that both know, and there is none: "
            "in the chart set `hub.services.gpu: {}`, elsewhere put {'name': 'gpu', 'api_token': …} with at least "
            f"{SHORTEST_TOKEN} characters into c.JupyterHub.services."
        )
    return {"hub_secret": "" if is_dry_run else hub_secret_of(token, service.shared_secret), "api_token": token}


def _is_our_process(entry: Mapping[str, Any]) -> bool:
    """Whether an administrator's entry for the GPU service is about the process that our entry starts.

    If so, the two entries are merged. The result is True if the administrator's entry has our command, or if it has
    neither command nor URL and so only brings settings such as a token.

    Args:
        entry: an entry of ``c.JupyterHub.services`` with the name ``gpu``.
    """
    command = entry.get("command")
    if not command:
        return not entry.get("url")
    return isinstance(command, list) and command[1:3] == COMMAND


# ------------------------------------------------------------------ the hub's own settings, by subject


def _add_service(c: Any, service: ServiceConfig, settings: Settings, notes: list[str], *, is_reachable: bool) -> None:
    """Add the GPU service to ``c.JupyterHub.services``.

    Args:
        service: the administrator's settings of the section ``c.GpuService``.
        settings: all settings of the service.
        notes: sentences for the administrator are appended to it.
        is_reachable: False if another program listens at the service's address; then no URL is set, so that the hub's
            proxy does not route browsers to that program.
    """
    if not service.connect_url and (guess := reached_at(service.host, service.port)[1]):
        notes.append(guess)
    ours: dict[str, Any] = {
        "name": SERVICE_NAME,
        "api_token": settings.api_token,
        **({"url": settings.origin, "oauth_no_confirm": True} if is_reachable else {}),
    }
    if settings.started_by_hub:
        ours["command"] = [sys.executable, *COMMAND, "--config", str(settings.folder / "service.json")]
        if environment := inherited_variables():
            ours["environment"] = environment
    else:
        ours["info"] = to_info(settings)
        if not version("jupyterhub").startswith("5."):
            ours["timeout"] = CONNECT_SECONDS
        if value_of(c, "JupyterHub", "subdomain_host"):
            notes.append(
                "c.JupyterHub.subdomain_host is set and c.GpuService.started_by_hub is False: users cannot log in to "
                "the GPU service's own page then. All else works."
            )
    services = list(value_of(c, "JupyterHub", "services", []))
    for place, theirs in enumerate(services):
        if theirs.get("name") == SERVICE_NAME:
            merge = _merged_service if settings.started_by_hub else _merged_service_apart
            services[place] = merge(theirs, ours, notes)
            break
    else:
        services.append(ours)
    c.JupyterHub.services = services


def _merged_service_apart(theirs: Mapping[str, Any], ours: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    """Return the entry of ``c.JupyterHub.services`` for a GPU service that the hub does not start.

    It is the administrator's entry, completed with ours. Its ``info`` gets our settings, which the service reads from
    the hub's API.

    Args:
        theirs: the administrator's entry.
        ours: our entry.
        notes: sentences for the administrator are appended to it.
    """
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
        ours["environment"] = environment
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


def _add_roles(c: Any, settings: Settings, notes: list[str]) -> None:
    """Define the roles by which users and servers may access the GPU service, and the role of the service itself.

    The latter has the scopes that the service needs. Roles of an administrator are completed, and their problems are
    appended to `notes` as sentences for the administrator.
    """
    roles = [dict(role) for role in value_of(c, "JupyterHub", "load_roles", [])]
    by_name = {role.get("name"): role for role in roles}
    granted = ["user", "server"]
    extra = value_of(c, "JupyterHub", "extra_user_scopes")
    if extra and "user" not in by_name:
        # JupyterHub 6 ignores extra_user_scopes if a role `user` is defined, so the scope is added to the list
        c.JupyterHub.extra_user_scopes = [*extra, *({ACCESS_SCOPE} - set(extra))]
        granted = ["server"]
    for name in granted:
        role = by_name.get(name)
        scopes = list((role or {}).get("scopes", DEFAULT_ROLE_SCOPES[name]))
        scopes = scopes if ACCESS_SCOPE in scopes else [*scopes, ACCESS_SCOPE]
        if role is None:
            roles.append({"name": name, "scopes": scopes})
        else:
            role["scopes"] = scopes
    wanted = SERVICE_SCOPES if settings.started_by_hub else (*SERVICE_SCOPES, SETTINGS_SCOPE)
    role = by_name.get(ROLE_NAME)
    if role is None:
        description = "What the GPU service may do: see who has servers, start those in line, stop idle ones."
        roles.append(
            {"name": ROLE_NAME, "description": description, "services": [SERVICE_NAME], "scopes": list(wanted)}
        )
    else:
        if missing := sorted(set(wanted) - set(role.get("scopes", []))):
            notes.append(
                f"your role {ROLE_NAME!r} is left alone: it lacks {', '.join(missing)}, "
                "so the GPU service cannot do its whole work."
            )
        if SERVICE_NAME not in role.get("services", []):
            role["services"] = [*role.get("services", []), SERVICE_NAME]
    c.JupyterHub.load_roles = roles
    for section in _spawners_with(c, "server_token_scopes"):
        notes.append(
            f"c.{section}.server_token_scopes is left alone: it has to include {ACCESS_SCOPE!r}, else JupyterLab's GPU "
            "panel cannot ask when the server stops."
        )


def _add_pages(c: Any, *, is_dry_run: bool) -> None:
    """Add our templates and the handlers of our pages to the hub.

    The templates come after an administrator's own, which may replace them, and before JupyterHub's.

    Args:
        is_dry_run: leave the handlers out, because JupyterHub's handlers take long to import.
    """
    variables = value_of(c, "JupyterHub", "template_vars", {})
    c.JupyterHub.template_vars = {"gpu_away": away_page(f"/services/{SERVICE_NAME}"), **variables}
    folder = str(TEMPLATES)
    paths = c.JupyterHub.template_paths if "template_paths" in c.JupyterHub else []
    if isinstance(paths, LazyConfigValue):
        # `c.JupyterHub.template_paths.append(…)`: JupyterHub would put its own folder first and never find ours
        c.JupyterHub.template_paths = [*paths.get_value([]), folder]
    elif folder not in paths:
        c.JupyterHub.template_paths = [*paths, folder]
    if is_dry_run:
        return
    from hub_extensions.spawner.pages.page_frame import PageFrame  # JupyterHub's handlers take long to import
    from hub_extensions.spawner.server_list import ServerList

    # JupyterHub calls this setting deprecated, but has no other one for the hub's own handlers
    ours = ((PageFrame.route, PageFrame, {"service": SERVICE_NAME}), (ServerList.route, ServerList))
    others = value_of(c, "JupyterHub", "extra_handlers", [])
    c.JupyterHub.extra_handlers = [*(each for each in others if each[0] not in {mine[0] for mine in ours}), *ours]


def _add_spawner(c: Any, settings: Settings, notes: list[str]) -> None:
    """Choose our spawner if none is chosen, and set its addresses and secret for the GPU service.

    Args:
        c: the hub's configuration.
        settings: all settings of the service.
        notes: sentences for the administrator about settings that were left alone are appended to it.
    """
    chosen = value_of(c, "JupyterHub", "spawner_class")
    if chosen is None:
        installed = any(entry.name == "gpu-local" for entry in entry_points(group="jupyterhub.spawners"))
        c.JupyterHub.spawner_class = "gpu-local" if installed else "hub_extensions.spawner.local.GpuLocalSpawner"
    elif not is_ours(chosen):
        notes.append(
            f"c.JupyterHub.spawner_class is left alone ({name_of(chosen)}): servers start as before, without the "
            f"choice of a GPU. {how_to_derive(chosen) if derives_from_kubespawner(chosen) else OURS_BY_PLACE}"
        )
    for section, key in other_forms(c) if chosen is None or is_ours(chosen) else ():
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
    if settings.servers_url != settings.url and not value_of(c, "GpuSpawnerMixin", "gpu_service_connect_url"):
        c.GpuSpawnerMixin.gpu_service_connect_url = settings.servers_url
    culling, cluster = settings.culling, settings.cluster
    defaults: dict[tuple[str, str], Any] = {("GpuSpawnerMixin", "gpu_notice_channel_text"): notice_hint(settings)}
    if settings.started_by_hub and cluster is None and sys.platform == "linux":
        defaults["GpuSpawnerMixin", "gpu_service_uid"] = os.geteuid()
    if culling.enabled and culling.unopened:
        defaults["GpuSpawnerMixin", "gpu_unopened_minutes"] = culling.unopened.total_seconds() / 60
    if cluster is not None:
        defaults["GpuKubeSpawner", "gpu_unschedulable_seconds"] = cluster.outside_after.total_seconds()
        defaults["GpuKubeSpawner", "gpu_max_wait_hours"] = settings.queue.max_wait.total_seconds() / 3600
    for (section, key), value in defaults.items():
        if value_of(c, section, key) is None:
            c[section][key] = value


def _add_limits(c: Any, culling: CullPolicy, notes: list[str]) -> None:
    """Set the hub's limits so that servers which wait in line do no harm, unless an administrator has set them.

    ``concurrent_spawn_limit`` is lifted, because it would count such servers. ``slow_spawn_timeout`` is short, so that
    users soon see the waiting page.

    Args:
        c: the hub's configuration.
        culling: the settings of culling (the stop of idle servers), by which other idle cullers are judged.
        notes: sentences for the administrator are appended to it: about limits that an administrator has set, and about
            other programs that stop idle servers.
    """
    limit = value_of(c, "JupyterHub", "concurrent_spawn_limit")
    if limit is None:
        c.JupyterHub.concurrent_spawn_limit = 0
    elif limit:
        notes.append(
            f"c.JupyterHub.concurrent_spawn_limit is left alone ({limit}): it counts servers that wait in line, so "
            f"{limit} of them keep everybody else from starting. 0 and c.GpuQueue.max_starting are right."
        )
    if active := value_of(c, "JupyterHub", "active_server_limit"):
        notes.append(
            f"c.JupyterHub.active_server_limit is left alone ({active}): servers that wait in line count against it."
        )
    tornado = value_of(c, "JupyterHub", "tornado_settings", {})
    if "slow_spawn_timeout" not in tornado:
        c.JupyterHub.tornado_settings = {**tornado, "slow_spawn_timeout": SLOW_SPAWN_SECONDS}
    if version("jupyterhub").startswith("5."):  # later versions do not count a refusal with a reason
        for section in _spawners_with(c, "consecutive_failure_limit"):
            notes.append(
                f"c.{section}.consecutive_failure_limit is left alone ({c[section].consecutive_failure_limit}): "
                "JupyterHub 5 counts every refused start, so that many in a row end the hub. 0 switches it off."
            )
    for service in value_of(c, "JupyterHub", "services", []):
        if "idle_culler" in " ".join(map(str, service.get("command") or [])):
            advice = "Take one of the two out." if culling.enabled else "It knows nothing about the GPU's use."
            notes.append(f"your service {service.get('name')!r} stops idle servers too and is left alone. {advice}")


def _spawners_with(c: Any, key: str) -> list[str]:
    """Return the names of the spawner sections, such as ``KubeSpawner``, in which an administrator has set a trait.

    Args:
        c: the hub's configuration.
        key: name of the trait.
    """
    return [name for name in sorted(c) if name.endswith("Spawner") and value_of(c, name, key)]
