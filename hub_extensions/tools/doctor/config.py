"""Checks of the settings in a ``jupyterhub_config.py``, by subject."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from importlib.util import find_spec
from typing import Any

from traitlets.config import Config

from hub_extensions.adapters.files.policy_file import PolicyFileError, read_policy_file
from hub_extensions.adapters.hub.hub_config import value_of
from hub_extensions.adapters.prometheus import DcgmReading
from hub_extensions.authenticator.setup_checks import provider_value
from hub_extensions.configuration import (
    ACCESS_SCOPE,
    ROLE_NAME,
    SERVICE_SCOPES,
    SETTINGS_SCOPE,
)
from hub_extensions.core.culling import CullPolicy
from hub_extensions.core.culling.grace_chain import GraceChain, weak_links
from hub_extensions.core.culling.policy import without_effect
from hub_extensions.core.gpu.dcgm import WHY
from hub_extensions.core.gpu.devices import Device, GpusUnavailable
from hub_extensions.core.sign_on.provider_settings import is_single_sign_on
from hub_extensions.hub_service.setup.settings import SERVICE_NAME, Settings
from hub_extensions.spawner.config.spawner_classes import derives_from_kubespawner, how_to_derive, is_ours, name_of
from hub_extensions.tools.doctor.accounts import spawner_for
from hub_extensions.tools.doctor.diagnosis import Diagnosis, sentence
from hub_extensions.tools.use_sources import ASK_IT, ask_once


def apart(config: Config) -> bool:
    """Whether the GPU service runs apart from the hub, in its own Deployment or systemd unit.

    The hub then does not start it.
    """
    return config.GpuService.get("started_by_hub", True) is False


def wiring(config: Config, settings: Settings) -> Iterator[Diagnosis]:
    """Check that ``configure(c)`` is called, and that no later line changes the roles, scopes or spawner."""
    names = [service.get("name") for service in config.JupyterHub.get("services", [])]
    if SERVICE_NAME not in names:
        fix = "On the last line: from hub_extensions import configure; configure(c)"
        yield Diagnosis("service", "problem", "configure(c) is not called in this file.", fix)
        return
    yield Diagnosis("service", "ok", "The GPU service is configured.")
    roles = {role.get("name"): role for role in config.JupyterHub.get("load_roles", [])}
    wanted = {*SERVICE_SCOPES, SETTINGS_SCOPE} if apart(config) else set(SERVICE_SCOPES)
    missing = sorted(wanted - set(roles.get(ROLE_NAME, {}).get("scopes", [])))
    if missing:
        fix = f"Let the role {ROLE_NAME} have them, or leave the role out: configure(c) makes it."
        yield Diagnosis("roles", "problem", f"The GPU service lacks the scopes {', '.join(missing)}.", fix)
    for name in ("user", "server"):
        granted = list(roles.get(name, {}).get("scopes", []))
        granted += config.JupyterHub.get("extra_user_scopes", []) if name == "user" else []
        if ACCESS_SCOPE not in granted:
            fix = f"Add it to the role {name} after configure(c), or call configure(c) last."
            yield Diagnosis("roles", "problem", f"The role {name} lacks {ACCESS_SCOPE}.", fix)
    spawner = value_of(config, "JupyterHub", "spawner_class")
    if not is_ours(spawner):
        fix = how_to_derive(spawner) if derives_from_kubespawner(spawner) else spawner_for(config, settings)
        if isinstance(spawner, type) and not derives_from_kubespawner(spawner):
            fix = f"Let it inherit from GpuSpawnerMixin too (docs/admin.md), or take one of ours. {fix}"
        yield Diagnosis("spawner", "warning", f"The spawner is {name_of(spawner)}: no GPU can be chosen.", fix)


def limits(config: Config) -> Iterator[Diagnosis]:
    """Check that JupyterHub's own limits on servers are lifted, because they would count servers that wait in line."""
    hub: Any = config.JupyterHub
    if hub.get("concurrent_spawn_limit", 100):
        text = f"concurrent_spawn_limit is {hub.get('concurrent_spawn_limit', 100)}: servers in line count against it."
        fix = "c.JupyterHub.concurrent_spawn_limit = 0; c.GpuQueue.max_starting limits the starts."
        yield Diagnosis("limits", "warning", text, fix)
    if hub.get("active_server_limit", 0):
        text = f"active_server_limit is {hub.active_server_limit}: servers in line count against it."
        yield Diagnosis("limits", "warning", text, "Set it to 0, or high enough for everybody who may wait.")


def sign_on(config: Config) -> Iterator[Diagnosis]:
    """Check the settings of our authenticator ``single-sign-on``, if the configuration uses it."""
    if not is_single_sign_on(value_of(config, "JupyterHub", "authenticator_class")):
        return
    if missing := [name for name in ("oauthenticator", "jwt") if find_spec(name) is None]:
        text = f"single-sign-on needs {' and '.join(missing)}, which this Python has not."
        yield Diagnosis("sign-on", "problem", text, 'pip install "jupyterhub-gpu[hub,sign-on]" where the hub runs.')
        return
    from hub_extensions.authenticator.openid.authenticator import SingleSignOnOIDCAuthenticator

    if problem := SingleSignOnOIDCAuthenticator.problem_in(config, whole=False):
        yield Diagnosis("sign-on", "problem", problem, "Correct it: the hub does not start with it.")
    elif lacking := SingleSignOnOIDCAuthenticator.problem_in(config):
        fix = "Where the hub's own environment has it, all is well; else see docs/howto/sign-on.md."
        yield Diagnosis("sign-on", "warning", f"Seen from here: {lacking}", fix)
    else:
        issuer = provider_value(config, "issuer")[1]
        yield Diagnosis("sign-on", "ok", f"People sign in at {issuer}.")


def culling(config: Config, settings: Settings) -> Iterator[Diagnosis]:
    """Report whether the GPU service stops idle servers, and settings of that without effect.

    The file with the rules for it has to be readable.
    """
    if settings.culling.enabled:
        yield Diagnosis("culling", "ok", "Idle servers are stopped.")
    else:
        text = "No server is stopped for idleness yet: the service only logs what it would stop."
        yield Diagnosis("culling", "warning", text, "When the log looks right: c.GpuCulling.enabled = True.")
    if settings.culling.policy_file and settings.started_by_hub:  # else it is where the service is
        yield _policy_file(settings.culling)
    for name, text, fix in without_effect(settings.culling, config.GpuCulling):
        yield Diagnosis("culling", "warning", f"c.GpuCulling.{name}: {text}", fix)


def _policy_file(policy: CullPolicy) -> Diagnosis:
    """Check the file with the rules of culling as it is now.

    Whether the running service uses it is checked by `service.policy_file`.
    """
    try:
        rules = read_policy_file(policy.policy_file, policy)
    except PolicyFileError as problem:
        fix = (
            "Mend it before the service starts again (docs/howto/gpu-policy.md); until then the rules of before count."
        )
        return Diagnosis("policy", "problem", f"c.GpuCulling.policy_file: {problem}.", fix)
    return Diagnosis("policy", "ok", f"{policy.policy_file} has {len(rules)} rule(s) that can be followed.")


def grace(config: Config, settings: Settings) -> Iterator[Diagnosis]:
    """Check the grace periods: the times that a server's pod gets to end after a stop."""
    if settings.cluster is None or not settings.culling.enabled:
        return
    pods = _of_spawner(config, "extra_pod_config")
    tornado = value_of(config, "JupyterHub", "tornado_settings")
    chain = GraceChain(
        deletion=_of_spawner(config, "delete_grace_period"),
        eviction=pods.get("terminationGracePeriodSeconds") if isinstance(pods, Mapping) else None,
        slow_stop=tornado.get("slow_stop_timeout") if isinstance(tornado, Mapping) else None,
        deadline=settings.culling.stop_deadline.total_seconds(),
    )
    for link in weak_links(chain):
        yield Diagnosis(
            "grace", "problem" if link.breaks else "warning", f"{GRACE[link.member]}: {link.text}", link.fix
        )


GRACE = {
    "deletion": "c.KubeSpawner.delete_grace_period",
    "eviction": "terminationGracePeriodSeconds of c.KubeSpawner.extra_pod_config",
    "slow_stop": "c.JupyterHub.tornado_settings",
}


def _of_spawner(config: Config, name: str) -> Any:
    return next(
        (config[section][name] for section in ("GpuKubeSpawner", "KubeSpawner") if name in config[section]), None
    )


def notices(settings: Settings) -> Iterator[Diagnosis]:
    """Report for each channel (webhook, e-mail) whether the last notice to a user could be sent."""
    from hub_extensions.hub_service.engine.uses.notifier import last_sendings

    for channel, last in last_sendings(settings).items():
        fix = "" if last.went else "The service's log has each try; docs/howto/notices.md says when it is tried again."
        yield Diagnosis("notices", "ok" if last.went else "warning", f"Users are told by {channel}: {last.text}", fix)


def prometheus(settings: Settings) -> Iterator[Diagnosis]:
    """Check whether Prometheus knows the use of this machine's MIG devices, which culling needs."""
    if not settings.prometheus_url or settings.cluster is not None:
        return  # on a cluster the pools are asked about, where they are read
    from hub_extensions.hub_service.engine.stops.dcgm import open_prometheus

    prometheus = open_prometheus(settings)
    if prometheus is None:
        return
    devices = _devices(settings)
    wanted = [device for device in devices if device.profile is not None]

    question = prometheus.query(wanted, devices, datetime.now(timezone.utc))
    yield prometheus_finding(asyncio.run(ask_once(prometheus, question)))


def prometheus_finding(reading: DcgmReading) -> Diagnosis:
    """Return the diagnosis of whether Prometheus knows the use of this machine's MIG devices.

    Args:
        reading: Prometheus's answer to a query for it.
    """
    if reading.message:
        return Diagnosis("prometheus", "warning", reading.message, ASK_IT)
    known, lacking = len(reading.figures), len(reading.missing)
    if lacking:
        reasons = sorted(set(reading.missing.values()))
        text = f"Prometheus answers, but the use of {lacking} of {known + lacking} MIG devices is not known."
        return Diagnosis("prometheus", "warning", text, sentence("; ".join(WHY[reason] for reason in reasons)) + ".")
    if known:
        return Diagnosis("prometheus", "ok", f"Prometheus answers and has the use of all MIG devices ({known}).")
    return Diagnosis("prometheus", "ok", "Prometheus answers; there is no MIG device here to ask it about.")


def _devices(settings: Settings) -> tuple[Device, ...]:
    """Return this machine's GPU devices.

    Empty if they are simulated or cannot be read; `machine.gpus` reports the reason.
    """
    if settings.offers.simulate is not None:
        return ()
    from hub_extensions.adapters.nvml.reader import Nvml

    reader = Nvml()
    try:
        return reader.read(datetime.now(timezone.utc)).devices
    except GpusUnavailable:
        return ()
    finally:
        reader.close()
