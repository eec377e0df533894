"""Adds the gate to the hub's configuration, as a part of ``configure(c)``: its service, the apps' services, and the
roles that give access to the apps.

Nothing that an admin has set is overwritten.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from traitlets import TraitError

from hub_extensions.adapters.apps.app_catalogue import CatalogueError, WatchedCatalogue
from hub_extensions.adapters.files.settings_file import SettingsError
from hub_extensions.adapters.hub.hub_config import value_of
from hub_extensions.core.sign_on import SignOnConfig
from hub_extensions.core.sign_on.apps import AppCatalogue, address_of, is_loopback
from hub_extensions.core.sign_on.gate_config import GateAddress, GateConfig
from hub_extensions.core.sign_on.provider_settings import is_single_sign_on
from hub_extensions.core.tokens import SHORTEST_TOKEN
from hub_extensions.gate.catalogue import check_for
from hub_extensions.gate.settings import CALLBACK_PATH, CLIENT_ID, SETTINGS_FILE, GateSettings

SERVICE = "gate"
COMMAND = ["-m", "hub_extensions.gate"]
"""Arguments of the interpreter that start the gate."""
SCOPES = ("access:services", "read:servers!user")
"""The most that a token of the gate may have: access to the apps to which the signed-in user has access, and reading
this user's servers.
"""
GATE_SCOPE = f"access:services!service={SERVICE}"
"""Scope with which the hub lets a user sign in at the gate. It gives access to no app."""
HUB_COOKIE_DAYS = 14.0
"""Default of ``c.JupyterHub.cookie_max_age_days``."""


class GateSettingsWrong(ValueError, TraitError):
    """A setting of the gate is wrong. The hub prints this sentence without a traceback and exits."""


@dataclass(frozen=True)
class GateContext:
    """Values of the hub and the GPU service from which the gate's settings are made.

    Attributes:
        state_dir: the GPU service's folder, to which the gate's settings are written.
        base_url: the hub's base URL.
        hub_secret: the secret from which the gate's secrets are derived. They stay the same as long as this secret
            does.
        gpu_service_url: address of the GPU service for processes beside the hub.
        gpu_service_connect_url: address of the GPU service for users' servers and for a gate in its own pod.
        hub_api_url: the hub's API for a process beside the hub; "" takes it from the hub's configuration.
        namespace: Kubernetes namespace of the hub's pod; "" if the hub does not run in a pod.
        environment: variables of the hub's environment that a process beside it needs.
    """

    state_dir: Path
    base_url: str
    hub_secret: str = field(repr=False)
    gpu_service_url: str = ""
    gpu_service_connect_url: str = ""
    hub_api_url: str = ""
    namespace: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


def add_gate(
    c: Any,
    config: GateConfig,
    sign_on: SignOnConfig,
    context: GateContext,
    notes: list[str],
    *,
    may_write: bool = True,
) -> GateAddress | None:
    """Add the gate's service, the apps' services and the roles of their groups to the hub's configuration.

    Call it before `add_sign_on`, which takes the address that is returned.

    Args:
        c: the hub's configuration, which is modified.
        config: the settings of the gate.
        sign_on: the settings of sign-on sessions.
        context: values of the hub and the GPU service.
        notes: sentences for the administrator are appended to it.
        may_write: False in a dry run: nothing is written, and the catalogue of apps may be missing on this machine.

    Returns:
        The address to which the hub reports ended sessions; `None` without a gate or without sign-on sessions.

    Raises:
        GateSettingsWrong: a setting is wrong; the text names it.
    """
    if not config.enabled:
        return None
    has_sessions = sign_on.enabled or is_single_sign_on(value_of(c, "JupyterHub", "authenticator_class"))
    sign_on = replace(sign_on, enabled=has_sessions)
    hub_url = _public_hub(c, context.base_url)
    _check_addresses(c, config, hub_url)
    limited = _limited(c, config, sign_on, notes)
    settings = _settings(c, limited, sign_on, context, hub_url, may_write=may_write)
    apps, doubts = _apps(c, settings, context, may_write=may_write)
    # a separate gate does not have the hub's file
    is_elsewhere = isinstance(settings.apps, str) and not settings.started_by_hub
    settings = replace(settings, catalogue=apps, apps={} if is_elsewhere else settings.apps)
    notes += doubts
    _add_services(c, settings, context, notes)
    _add_roles(c, apps, notes)
    if not sign_on.enabled:
        notes.append(
            "c.SignOn.enabled is False: a sign-out at the hub closes the apps after c.SignOnGate.cache_seconds, as the "
            "hub ends the token then."
        )
    if may_write:
        _write(settings, context.state_dir)
    return GateAddress(settings.connect_url, settings.ended_secret) if settings.ended_secret else None


# ------------------------------------------------------------------ checks of addresses


def _public_hub(c: Any, base_url: str) -> str:
    """Return the hub's public address, ending in ``/hub/``.

    Args:
        c: the hub's configuration, in which ``public_url`` or another setting has the host.
        base_url: the hub's base URL.

    Raises:
        GateSettingsWrong: no setting has the public host.
    """
    for key in ("public_url", "subdomain_host", "bind_url"):
        place = urlsplit(str(value_of(c, "JupyterHub", key) or ""))
        host = place.hostname or ""
        if place.scheme in ("http", "https") and host and not _is_any(host):
            return f"{place.scheme}://{place.netloc}{base_url}hub/"
    raise GateSettingsWrong(
        "c.SignOnGate.enabled needs c.JupyterHub.public_url, such as https://hub.example.org/: browsers are sent there "
        "to sign in."
    )


def _check_addresses(c: Any, config: GateConfig, hub_url: str) -> None:
    """Check the addresses of the proxies and of the apps.

    The apps must not have the hub's host or a host below its ``subdomain_host``, because hub, servers and apps would
    then share cookies.

    Args:
        c: the hub's configuration.
        config: the settings of the gate, with these addresses.
        hub_url: the hub's public address.

    Raises:
        GateSettingsWrong: an address is invalid.
    """
    for each in config.trusted_proxies:
        try:
            ipaddress.ip_network(each, strict=False)
        except ValueError:
            raise GateSettingsWrong(
                f"c.SignOnGate.trusted_proxies has {each!r}, which is no address and no network such as 10.0.0.0/8."
            ) from None
    place = address_of(config.url.rstrip("/"))
    if place is None or place.path != "/":
        raise GateSettingsWrong(
            "c.SignOnGate.url cannot be used: it has to be an address such as https://apps.example.org, without a path."
        )
    hosts = {"c.JupyterHub.public_url": urlsplit(hub_url).hostname or ""}
    for key in ("bind_url", "subdomain_host"):
        hosts[f"c.JupyterHub.{key}"] = urlsplit(str(value_of(c, "JupyterHub", key) or "")).hostname or ""
    for setting, host in hosts.items():
        if host and place.host == host.lower():
            raise GateSettingsWrong(
                f"c.SignOnGate.url has the host {place.host}, which is that of {setting}: cookies of the apps would go "
                "to every user's server, and the hub's to the apps. Give the apps a host of their own."
            )
    above = hosts["c.JupyterHub.subdomain_host"].lower()
    if above and place.host.endswith(f".{above}"):
        raise GateSettingsWrong(
            f"c.SignOnGate.url has the host {place.host}, which is below {above}, that of "
            "c.JupyterHub.subdomain_host: users' servers have their hosts there and may set its cookies. Give the apps "
            "a host elsewhere."
        )
    if place.scheme == "http" and not is_loopback(place.host):
        raise GateSettingsWrong(
            "c.SignOnGate.url has to begin with https://: the gate's cookie is sent over HTTPS alone, but on this "
            "machine itself."
        )


def _is_any(host: str) -> bool:
    return host in ("0.0.0.0", "::", "*")


# ------------------------------------------------------------------ settings of the gate


def _limited(c: Any, config: GateConfig, sign_on: SignOnConfig, notes: list[str]) -> GateConfig:
    """Return the settings of the gate with session limits that are at most as long as those of the hub.

    The hub's limits are those of its cookie, of its OAuth tokens and of sign-on sessions. For each limit that was
    shortened, a sentence is appended to `notes`.

    Args:
        c: the hub's configuration.
        config: the settings of the gate.
        sign_on: the settings of sign-on sessions; their limits count only if these sessions are enabled.
        notes: sentences for the administrator.
    """
    days = float(value_of(c, "JupyterHub", "cookie_max_age_days", HUB_COOKIE_DAYS))
    token = value_of(c, "JupyterHub", "oauth_token_expires_in")
    longest = [timedelta(days=days), *([timedelta(seconds=float(token))] if token else [])]
    idle = config.idle
    if sign_on.enabled:
        longest += [sign_on.lifetime] if sign_on.lifetime is not None else []
        idle = min((each for each in (config.idle, sign_on.idle) if each is not None), default=None)
    lifetime = min(config.lifetime, *longest)
    for name, mine, hubs in (("idle_hours", config.idle, idle), ("lifetime_hours", config.lifetime, lifetime)):
        if mine != hubs and hubs is not None:
            notes.append(
                f"c.SignOnGate.{name} is taken as {hubs / timedelta(hours=1):g}: the hub's own sessions last no longer."
            )
    return replace(config, idle=idle, lifetime=lifetime)


def _settings(
    c: Any, config: GateConfig, sign_on: SignOnConfig, context: GateContext, hub_url: str, *, may_write: bool
) -> GateSettings:
    apart = not config.started_by_hub
    entries = [each for each in value_of(c, "JupyterHub", "services", []) if each.get("name") == SERVICE]
    token = str(entries[0].get("api_token") or "") if entries else ""
    if apart and may_write and len(token) < SHORTEST_TOKEN:
        raise GateSettingsWrong(
            "c.SignOnGate.started_by_hub is False, so hub and gate need a token that both know, and there is none: in "
            "the chart set `hub.services.gate: {}`, elsewhere put {'name': 'gate', 'api_token': …} with at least "
            f"{SHORTEST_TOKEN} characters into c.JupyterHub.services."
        )
    if apart and address_of(config.connect_url.rstrip("/")) is None:
        raise GateSettingsWrong(
            "c.SignOnGate.connect_url has to be the address at which the hub reaches the gate, such as "
            "http://gate:8192, as c.SignOnGate.started_by_hub is False."
        )
    apps = str(Path(config.apps).expanduser().absolute()) if isinstance(config.apps, str) else config.apps
    reached = _connect_url(config, context.namespace)

    def derived(name: str) -> str:
        about = f"jupyterhub-gpu gate: {name}"
        return hmac.new(context.hub_secret.encode(), about.encode(), hashlib.sha256).hexdigest()

    return GateSettings(
        **{**vars(config), "apps": apps, "url": config.url.rstrip("/"), "connect_url": reached},
        state_dir="/srv/gate" if apart else str(context.state_dir / "gate"),
        hub_api_url=(context.hub_api_url if not apart else "") or _inner_hub(c, context.base_url),
        hub_url=hub_url,
        client_secret=token or derived("client"),
        proxy_secret=derived("proxy"),
        ended_secret=derived("ended") if sign_on.enabled else "",
        client_id=CLIENT_ID,
        gpu_service_url=context.gpu_service_connect_url if apart else context.gpu_service_url,
        subdomain_host=str(value_of(c, "JupyterHub", "subdomain_host") or ""),
    )


def _connect_url(config: GateConfig, namespace: str) -> str:
    """Return the address at which the hub reaches the gate.

    If the address is the bare name of a Kubernetes Service, `namespace` is added to the name, because the address is
    used in other namespaces too.

    Args:
        config: the settings of the gate.
        namespace: Kubernetes namespace of the hub's pod; "" if the hub does not run in a pod.
    """
    if config.connect_url:
        url = config.connect_url.rstrip("/")
        place = urlsplit(url)
        host = place.hostname or ""
        if not namespace or not host.replace("-", "").isalnum() or is_loopback(host):
            return url
        return place._replace(netloc=f"{host}.{namespace}{f':{place.port}' if place.port else ''}").geturl()
    host = "127.0.0.1" if _is_any(config.host) or not config.host else config.host
    return f"http://[{host}]:{config.port}" if ":" in host else f"http://{host}:{config.port}"


def _inner_hub(c: Any, base_url: str) -> str:
    """Return the hub's API address for servers and services, from the hub's settings such as ``hub_connect_url``.

    Args:
        c: the hub's configuration.
        base_url: the hub's base URL.
    """
    for key in ("hub_connect_url", "hub_bind_url"):
        place = urlsplit(str(value_of(c, "JupyterHub", key) or "").replace("//*", "//127.0.0.1"))
        if place.hostname:
            netloc = f"127.0.0.1:{place.port or 8081}" if _is_any(place.hostname) else place.netloc
            return f"{place.scheme}://{netloc}{base_url}hub/api"
    host = str(value_of(c, "JupyterHub", "hub_connect_ip") or value_of(c, "JupyterHub", "hub_ip") or "127.0.0.1")
    port = value_of(c, "JupyterHub", "hub_port", 8081)
    return f"http://{'127.0.0.1' if _is_any(host) else host}:{port}{base_url}hub/api"


def _apps(c: Any, settings: GateSettings, context: GateContext, *, may_write: bool) -> tuple[AppCatalogue, list[str]]:
    """Return the apps of the catalogue and warnings about them.

    If the file of the catalogue has errors, the apps from the hub's last start are returned.

    Args:
        c: the hub's configuration, from which its groups and its address are taken for the checks.
        settings: the settings of the gate, which have the apps or name their file.
        context: values of the hub, with the folder that has the settings of its last start.
        may_write: False in a dry run; a missing file then means no apps.

    Raises:
        GateSettingsWrong: the catalogue has errors and no earlier apps are known.
    """
    source = settings.apps
    if isinstance(source, str) and not may_write and not Path(source).exists():
        return (), []
    groups = value_of(c, "JupyterHub", "load_groups")
    check = check_for(settings, set(groups) if groups else None, str(value_of(c, "JupyterHub", "bind_url") or ""))
    written = context.state_dir / SETTINGS_FILE
    before: AppCatalogue = ()
    if isinstance(source, str) and written.exists():
        with suppress(SettingsError, OSError):
            before = GateSettings.load(written).catalogue
    try:
        watched = WatchedCatalogue(source, check, before)
    except CatalogueError as problem:
        of_a_file = "c.SignOnGate.apps cannot be used: " if isinstance(source, str) else ""
        raise GateSettingsWrong(f"{of_a_file}{problem}.") from None
    doubts = [f"c.SignOnGate.apps: {each}." for each in watched.warnings]
    if watched.problem:
        doubts.append(f"c.SignOnGate.apps cannot be used, so the apps of before stay: {watched.problem}.")
    return watched.apps, doubts


def _write(settings: GateSettings, folder: Path) -> None:
    """Write the settings file that the gate and ``gate config`` read.

    The folder is created first, because it may be missing if the hub does not start the GPU service.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if settings.started_by_hub:
            settings.folder.mkdir(mode=0o700, exist_ok=True)
        settings.dump(folder / SETTINGS_FILE)
    except OSError as problem:
        raise GateSettingsWrong(
            f"c.GpuService.state_dir is {folder}, where the gate's settings cannot be written ({problem.strerror})."
        ) from None


# ------------------------------------------------------------------ services and roles of the hub


def _add_services(c: Any, settings: GateSettings, context: GateContext, notes: list[str]) -> None:
    """Add the services of the gate and of the apps to the hub.

    The service of the gate is registered without ``url``, because the hub's own proxy would otherwise serve the gate on
    the hub's host.

    Args:
        c: the hub's configuration, which is modified.
        settings: the settings of the gate, with the apps.
        context: values of the hub, with the folder of the settings file and the environment for the gate.
        notes: sentences for the hub's log are appended to it.
    """
    gate: dict[str, Any] = {
        "name": SERVICE,
        "api_token": settings.client_secret,
        "oauth_client_id": CLIENT_ID,
        "oauth_redirect_uri": f"{settings.url}{CALLBACK_PATH}",
        "oauth_no_confirm": True,
        "oauth_client_allowed_scopes": list(SCOPES),
    }
    if settings.started_by_hub:
        gate["command"] = [sys.executable, *COMMAND, "--config", str(context.state_dir / SETTINGS_FILE)]
        if context.environment:
            gate["environment"] = dict(context.environment)
    services = [dict(each) for each in value_of(c, "JupyterHub", "services", [])]
    by_name = {str(each.get("name")): each for each in services}
    apps = ({"name": app.name, "info": {"title": app.title, "href": app.where}} for app in settings.catalogue)
    for ours in (gate, *apps):
        theirs = by_name.get(ours["name"])
        if theirs is None:
            services.append(ours)
            continue
        command = theirs.get("command")
        if isinstance(command, list) and command[1:3] == COMMAND:  # an earlier configure(c) wrote it
            theirs.update(ours)
            continue
        kept = sorted(key for key in ours if key in theirs and theirs[key] != ours[key])
        if kept:
            notes.append(f"your service {ours['name']!r} is left alone in {', '.join(kept)}.")
        if theirs.get("url"):
            notes.append(
                f"your service {ours['name']!r} has a url: the hub's proxy shows it to anybody, whatever the gate is; "
                "take the url out."
            )
        theirs.update({**ours, **theirs})
    c.JupyterHub.services = services


def _add_roles(c: Any, apps: AppCatalogue, notes: list[str]) -> None:
    """Add a role for each app, and let all users sign in at the gate.

    The role of an app has exactly the app's groups. If a group is removed from the app, the hub withdraws the access of
    this group at its next start.

    Args:
        c: the hub's configuration, which is modified.
        apps: the apps of the catalogue.
        notes: sentences for the hub's log are appended to it.
    """
    roles = [dict(role) for role in value_of(c, "JupyterHub", "load_roles", [])]
    by_name = {str(role.get("name")): role for role in roles}
    sections = [name for name in c if name == "Authenticator" or name.endswith("Authenticator")]
    by_authenticator = any(value_of(c, name, "manage_roles") for name in sections)
    for app in apps:
        name = f"app-{app.name}"
        role: dict[str, Any] = {"name": name, "description": f"Opens {app.title}.", "scopes": [app.scope]}
        if not by_authenticator:
            role["groups"] = list(app.groups)
        theirs = by_name.get(name)
        if theirs is None:
            roles.append(role)
        elif theirs.get("description") == role["description"]:
            theirs.update(role)  # an earlier configure(c) wrote it
        elif theirs.get("scopes") != role["scopes"] or set(theirs.get("groups", [])) != set(role.get("groups", [])):
            notes.append(f"your role {name!r} is left alone: it says who may open the app {app.name!r}.")
    if by_authenticator:
        notes.append(
            "your authenticator manages roles, so the hub takes no groups from c.SignOnGate.apps: have it give the "
            "roles app-NAME."
        )
    # a server's own token opens the apps with `servers: true` that its user may open
    by_servers = [app.scope for app in apps if app.servers]
    server = next((role for role in roles if role.get("name") == "server"), None)
    if server is not None and by_servers:
        server["scopes"] = [*server["scopes"], *(each for each in by_servers if each not in server["scopes"])]
    user = next((role for role in roles if role.get("name") == "user"), None)
    if user is not None:
        user["scopes"] = [*user.get("scopes", ["self"]), *({GATE_SCOPE} - set(user.get("scopes", [])))]
    else:  # without a role `user`, JupyterHub 6 reads this setting
        extra = value_of(c, "JupyterHub", "extra_user_scopes", [])
        c.JupyterHub.extra_user_scopes = [*extra, *({GATE_SCOPE} - set(extra))]
    c.JupyterHub.load_roles = roles
