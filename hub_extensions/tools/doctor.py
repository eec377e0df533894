"""``jupyterhub-gpu doctor``: what is wrong with this machine or with a configuration, and how to put it right.

It looks and changes nothing: a configuration is loaded without writing its state folder. Not here: how findings are
printed (``tools/cli.py``).
"""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import re
import shutil
import sqlite3
import stat
import sys
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, entry_points, version
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from traitlets.config import Config
from traitlets.config.loader import ConfigFileNotFound, PyFileConfigLoader

from hub_extensions.adapters import procfs
from hub_extensions.adapters.kubernetes.once import ClusterUnreadable, read_once
from hub_extensions.adapters.listeners import accounts_at
from hub_extensions.adapters.prometheus import DcgmReading
from hub_extensions.adapters.signed_get import signed_get
from hub_extensions.configuration import (
    ACCESS_SCOPE,
    ROLE_NAME,
    SERVICE_SCOPES,
    SETTINGS_SCOPE,
    dry_run,
    settings_of,
)
from hub_extensions.core.cluster.model import ClusterConfig
from hub_extensions.core.cluster.pools import VOLUMES_UNREAD, survey_pools
from hub_extensions.core.gpu.dcgm import WHY
from hub_extensions.core.gpu.devices import Device, GpusUnavailable
from hub_extensions.core.offers.model import config_warnings
from hub_extensions.hub_service.setup.remote_settings import hub_secret_of
from hub_extensions.hub_service.setup.settings import SERVICE_NAME, Settings, SettingsError
from hub_extensions.tools.who_measures import ASK_IT, State, ask_once, who_measures

MOST_LEFT_OUT = 5
_ONLY_DCGM = re.compile(r"\bA(?:100|30)\b", re.IGNORECASE)
OLDEST_HUB, NEWEST_HUB = (5, 3), (7, 0)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One thing that was checked.

    Attributes:
        check: a stable code for programs, e.g. ``gpus`` or ``port``.
        text: what was found. fix: what to do about it; empty when all is well.
    """

    check: str
    state: State
    text: str
    fix: str = ""


def examine(config: Path | None) -> tuple[Diagnosis, ...]:
    """Look at the machine and, where one is given, at a ``jupyterhub_config.py``."""
    findings = [*_python(), *_hub_version(), *_proxy(), *_entry_points()]
    if config is None:
        return (*findings, *_gpus(None), *_other_accounts())
    loaded, problem = load_config(config)
    if loaded is None:
        return (*findings, *_gpus(None), problem)
    settings = settings_of(loaded)
    findings += [problem, *_machine(settings, apart=_apart(loaded)), *_wiring(loaded), *_limits(loaded)]
    if _apart(loaded):
        text = f"The GPU service is not started by the hub; hub and proxy reach it at {settings.origin}."
        findings += [Diagnosis("place", "ok", text), *_clock(_health(settings, _secret_apart(loaded)))]
    else:
        findings += [*_state_dir(settings), *_database(settings), *_port(settings)]
    return (*findings, *_culling(settings), *_prometheus(settings), *notices(settings))


def load_config(path: Path) -> tuple[Config | None, Diagnosis]:
    """The configuration as the hub would load it, and what there is to say about that. Nothing is written."""
    try:
        with dry_run() as notes:
            loaded = PyFileConfigLoader(path.name, path=str(path.parent.absolute())).load_config()
            settings_of(loaded)
    except ConfigFileNotFound:
        return None, Diagnosis(
            "config", "problem", f"There is no file {path}.", "Give the hub's own file: --config FILE."
        )
    except ValueError as problem:
        return None, Diagnosis("config", "problem", str(problem), f"Correct it in {path}.")
    except (Exception, SystemExit) as problem:  # noqa: BLE001  an admin's file may raise anything
        text = f"{path} does not load: {type(problem).__name__}: {problem}"
        return None, Diagnosis("config", "problem", text, "The hub would not start with it either; correct the file.")
    if notes:
        return loaded, Diagnosis("config", "warning", f"{path} loads. " + " ".join(map(_sentence, notes)), "See each.")
    return loaded, Diagnosis("config", "ok", f"{path} loads.")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


# ------------------------------------------------------------------ the machine


def _machine(settings: Settings, *, apart: bool) -> Iterator[Diagnosis]:
    """Where the GPUs are: this machine, or a cluster."""
    if settings.cluster is None:
        return chain(_gpus(settings), _other_accounts())
    return _cluster_elsewhere(settings.cluster) if apart else _cluster(settings, settings.cluster)


def _python() -> Iterator[Diagnosis]:
    yield Diagnosis("python", "ok", f"Python {'.'.join(map(str, sys.version_info[:3]))} at {sys.executable}.")


def _hub_version() -> Iterator[Diagnosis]:
    try:
        found = version("jupyterhub")
    except PackageNotFoundError:
        fix = 'Install it into this environment: pip install "jupyterhub-gpu[hub]".'
        yield Diagnosis("jupyterhub", "problem", "JupyterHub is not installed here.", fix)
        return
    numbers = tuple(int(part) for part in found.split(".")[:2] if part.isdigit())
    if OLDEST_HUB <= numbers < NEWEST_HUB:
        yield Diagnosis("jupyterhub", "ok", f"JupyterHub {found}.")
    else:
        yield Diagnosis("jupyterhub", "problem", f"JupyterHub {found} is not supported.", "Use 5.3 or newer, below 7.")


def _proxy() -> Iterator[Diagnosis]:
    where = shutil.which("configurable-http-proxy")
    if where is None:
        fix = "npm install -g configurable-http-proxy, or set the proxy your hub uses in its configuration."
        yield Diagnosis("proxy", "warning", "configurable-http-proxy is not on the PATH.", fix)
    else:
        yield Diagnosis("proxy", "ok", f"configurable-http-proxy is {where}.")


def _entry_points() -> Iterator[Diagnosis]:
    names = {entry.name for entry in entry_points(group="jupyterhub.spawners")}
    ours = [name for name in ("gpu", "gpu-local") if name in names]
    if ours:
        yield Diagnosis("package", "ok", f"The spawners {' and '.join(ours)} are installed.")
    else:
        fix = "Install it into the hub's environment: pip install jupyterhub-gpu[hub]."
        yield Diagnosis("package", "warning", "The package is used from a folder and is not installed.", fix)


def _gpus(settings: Settings | None) -> Iterator[Diagnosis]:
    if settings is not None and settings.offers.simulate is not None:
        text = f"The GPUs are simulated (layout {settings.offers.simulate})."
        yield Diagnosis("gpus", "warning", text, "Take c.GpuOffers.simulate out to offer this machine's own GPUs.")
        return
    from hub_extensions.adapters.nvml.reader import Nvml

    reader = Nvml()
    try:
        reading = reader.read(datetime.now(timezone.utc))
    except GpusUnavailable as problem:
        fix = 'To try the hub without a card: c.GpuOffers.simulate = "lab-a100".'
        yield Diagnosis("gpus", "problem", problem.reason.message, fix)
        return
    finally:
        reader.close()
    usable = [device for device in reading.devices if device.usable]
    if usable:
        counts = ", ".join(
            f"{sum(d.pool == pool for d in usable)} x {pool}" for pool in sorted({d.pool for d in usable})
        )
        yield Diagnosis("gpus", "ok", f"Devices that can be offered: {counts}.")
    else:
        fix = "nvidia-smi shows its state; a GPU in MIG mode has to be cut first: nvidia-smi mig -cgi … -C."
        yield Diagnosis("gpus", "problem", "The driver answers, but there is no device that could be offered.", fix)
    for device in reading.devices:
        if not device.usable:
            fix = "Make its compute instance: nvidia-smi mig -cci."
            yield Diagnosis("mig", "problem", f"{device.pool} ({device.uuid}) is not usable: {device.reason}", fix)
    for sentence in reading.problems:
        yield Diagnosis("gpus", "problem", sentence, "nvidia-smi and the kernel's log (dmesg) say more.")
    if settings is not None:
        yield from unmeasured(settings, ((device.pool, device.product) for device in reading.devices))
        for sentence in config_warnings(reading.devices, settings.offers):
            yield Diagnosis(
                "offers", "warning", f"c.GpuOffers.{sentence}", "jupyterhub-gpu offers lists those there are."
            )


def _cluster(settings: Settings, config: ClusterConfig) -> Iterator[Diagnosis]:
    """What the account that asks may see of the cluster; the hub's own may see more, or less."""
    try:
        view = read_once(config)
    except ClusterUnreadable as problem:
        fix = "Give the hub's kubeconfig (c.GpuCluster.kubeconfig, or KUBECONFIG), or run this in the hub's pod."
        yield Diagnosis("cluster", "problem", str(problem), fix)
        return
    manifest = "kubectl apply -f helm-values/manifests/rbac.yaml"
    if view.nodes is None:
        fix = f"{manifest}; or say in c.GpuCluster.capacity how many there are."
        yield Diagnosis("cluster", "warning", "The cluster's nodes may not be read.", fix)
    if view.own_pods_only:
        text = "Only this namespace's pods may be read: what others hold looks free."
        yield Diagnosis("cluster", "warning", text, f"{manifest}.")
    if view.volumes.unread:
        text = "Volumes may not be read: a server whose files only some nodes reach is let in as if all did."
        yield Diagnosis("cluster", "warning", text, f"{manifest}.")
    survey = survey_pools(view, settings.offers, config, names={}, leases=())
    counts = ", ".join(f"{pool.total} x {pool.id}" for pool in survey.pools.values() if pool.total)
    if counts:
        yield Diagnosis("gpus", "ok", f"Devices that can be offered: {counts}.")
    else:
        fix = "jupyterhub-gpu offers --cluster says which nodes were left out, and why."
        yield Diagnosis("gpus", "problem", "The cluster has no GPU that could be offered now.", fix)
    for state, text, fix in who_measures(settings, survey.pools.values()):
        yield Diagnosis("use", state, text, fix)
    for item in [each for each in survey.left_out if each is not VOLUMES_UNREAD][:MOST_LEFT_OUT]:
        yield Diagnosis(
            "nodes", "warning", f"{item.what}: {item.why}.", "jupyterhub-gpu offers --cluster shows them all."
        )


def unmeasured(settings: Settings, kinds: Iterable[tuple[str, str]]) -> Iterator[Diagnosis]:
    """Culling is on, and the use of these devices (pool, product of the card) is told to DCGM alone."""
    if not settings.culling.enabled or settings.prometheus_url:
        return
    cards = sorted({card for pool, card in kinds if pool.startswith("mig-") and _ONLY_DCGM.search(card)})
    if cards:
        text = f"{', '.join(cards)}: the use of a MIG device is known to DCGM alone, so none is stopped for idleness."
        fix = "c.GpuService.prometheus_url (in the chart helm-values/monitoring.yaml); or take culling out."
        yield Diagnosis("culling", "warning", text, fix)


def _cluster_elsewhere(config: ClusterConfig) -> Iterator[Diagnosis]:
    """A service apart reads the cluster where it is, and only its account has the rights: the hub's needs none."""
    place = f"-n {config.namespace} " if config.namespace else ""
    text = (
        "The cluster is read by the GPU service in its own Deployment, with its own account: the hub's needs no right "
        f"to. Ask there: kubectl exec {place}deploy/jupyterhub-gpu -- "
        "python3 -m hub_extensions.tools.cli offers --cluster. Who measures the GPUs' use the admins' page says."
    )
    yield Diagnosis("cluster", "ok", text)


def _other_accounts() -> Iterator[Diagnosis]:
    if os.geteuid() == 0:
        yield Diagnosis("processes", "ok", "Left-overs of servers can be found and ended: this account is root.")
        return
    unseen = procfs.unreadable()
    text = "This account cannot look into other accounts' processes"
    fix = (
        "Only matters where servers run under other accounts than the hub (gpu-local): run the hub as root there, else "
        "a process that outlives its server keeps its GPU held."
    )
    yield Diagnosis("processes", "warning", text + (f" ({unseen} run now)." if unseen else "."), fix)


# ------------------------------------------------------------------ the configuration


def _apart(config: Config) -> bool:
    return config.GpuService.get("started_by_hub", True) is False


def _wiring(config: Config) -> Iterator[Diagnosis]:
    names = [service.get("name") for service in config.JupyterHub.get("services", [])]
    if SERVICE_NAME not in names:
        fix = "On the last line: from hub_extensions import configure; configure(c)"
        yield Diagnosis("service", "problem", "configure(c) is not called in this file.", fix)
        return
    yield Diagnosis("service", "ok", "The GPU service is configured.")
    roles = {role.get("name"): role for role in config.JupyterHub.get("load_roles", [])}
    wanted = {*SERVICE_SCOPES, SETTINGS_SCOPE} if _apart(config) else set(SERVICE_SCOPES)
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
    spawner = str(config.JupyterHub.get("spawner_class", ""))
    if spawner != "gpu" and not any(part in spawner for part in ("gpu-", "hub_extensions", "Gpu")):
        fix = (
            'c.JupyterHub.spawner_class = "gpu-local" (on Kubernetes "gpu"), or a class of yours that inherits from '
            "GpuSpawnerMixin."
        )
        yield Diagnosis("spawner", "warning", f"The spawner is {spawner}: no GPU can be chosen.", fix)


def _limits(config: Config) -> Iterator[Diagnosis]:
    hub: Any = config.JupyterHub
    if hub.get("concurrent_spawn_limit", 100):
        text = f"concurrent_spawn_limit is {hub.get('concurrent_spawn_limit', 100)}: servers in line count against it."
        fix = "c.JupyterHub.concurrent_spawn_limit = 0; c.GpuQueue.max_starting limits the starts."
        yield Diagnosis("limits", "warning", text, fix)
    if hub.get("active_server_limit", 0):
        text = f"active_server_limit is {hub.active_server_limit}: servers in line count against it."
        yield Diagnosis("limits", "warning", text, "Set it to 0, or high enough for everybody who may wait.")


def _culling(settings: Settings) -> Iterator[Diagnosis]:
    if settings.culling.enabled:
        yield Diagnosis("culling", "ok", "Idle servers are stopped.")
    else:
        text = "No server is stopped for idleness yet: the service only logs what it would stop."
        yield Diagnosis("culling", "warning", text, "When the log looks right: c.GpuCulling.enabled = True.")


def notices(settings: Settings) -> Iterator[Diagnosis]:
    """How users who have closed the page are told, and whether the last time went well, by the service's database."""
    from hub_extensions.hub_service.engine.notifier import last_sendings

    for channel, last in last_sendings(settings).items():
        fix = "" if last.went else "The service's log has each try; docs/howto/notices.md says when it is tried again."
        yield Diagnosis("notices", "ok" if last.went else "warning", f"Users are told by {channel}: {last.text}", fix)


def _prometheus(settings: Settings) -> Iterator[Diagnosis]:
    if not settings.prometheus_url or settings.cluster is not None:
        return  # on a cluster the pools are asked about, where they are read
    from hub_extensions.hub_service.engine.dcgm import open_prometheus

    prometheus = open_prometheus(settings)
    if prometheus is None:
        return
    devices = _devices(settings)
    wanted = [device for device in devices if device.profile is not None]

    question = prometheus.query(wanted, devices, datetime.now(timezone.utc))
    yield prometheus_finding(asyncio.run(ask_once(prometheus, question)))


def prometheus_finding(reading: DcgmReading) -> Diagnosis:
    """What one answer of Prometheus means for culling on MIG devices."""
    if reading.message:
        return Diagnosis("prometheus", "warning", reading.message, ASK_IT)
    known, lacking = len(reading.figures), len(reading.missing)
    if lacking:
        reasons = sorted(set(reading.missing.values()))
        text = f"Prometheus answers, but the use of {lacking} of {known + lacking} MIG devices is not known."
        return Diagnosis("prometheus", "warning", text, _sentence("; ".join(WHY[reason] for reason in reasons)) + ".")
    if known:
        return Diagnosis("prometheus", "ok", f"Prometheus answers and has the use of all MIG devices ({known}).")
    return Diagnosis("prometheus", "ok", "Prometheus answers; there is no MIG device here to ask it about.")


def _devices(settings: Settings) -> tuple[Device, ...]:
    """The devices of this machine; none where they are simulated or cannot be read (`_gpus` says why)."""
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


# ------------------------------------------------------------------ where the service lives


def _state_dir(settings: Settings) -> Iterator[Diagnosis]:
    from hub_extensions.adapters.store.opening import NETWORK_DISKS  # the database's library takes its time to load

    folder = settings.folder
    there = next(place for place in (folder, *folder.parents) if place.exists())
    disk = disk_of(there)
    if disk in NETWORK_DISKS and not settings.database_url:
        fix = "Set c.GpuService.state_dir to a folder on a local disk: SQLite loses data on a network disk."
        yield Diagnosis("state-dir", "problem", f"{folder} is on a network disk ({disk}).", fix)
    elif not folder.exists():
        if os.access(there, os.W_OK):
            yield Diagnosis("state-dir", "ok", f"{folder} will be made at the hub's start.")
        else:
            fix = "Run this as the hub's account; if it says the same, set c.GpuService.state_dir to another folder."
            yield Diagnosis("state-dir", "problem", f"{folder} cannot be made by this account.", fix)
    elif folder.stat().st_uid != os.geteuid():
        text = f"{folder} belongs to uid {folder.stat().st_uid}, this is uid {os.geteuid()}."
        yield Diagnosis(
            "state-dir", "warning", text, "Run this as the hub's account; the folder has to be that account's."
        )
    else:
        yield Diagnosis("state-dir", "ok", f"{folder} can be used.")


def disk_of(path: Path) -> str:
    """The type of the file system a path is on, as /proc/mounts names it; empty where that is not known."""
    best, kind = "", ""
    for line in Path("/proc/mounts").read_text(encoding="utf-8", errors="replace").splitlines():
        _, mount, found = line.split(" ")[:3]
        mount = mount.replace("\\040", " ")
        inside = str(path.resolve()) == mount or str(path.resolve()).startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, found
    return kind


def _database(settings: Settings) -> Iterator[Diagnosis]:
    parts = urlsplit(settings.store_url)
    if not parts.scheme.startswith("sqlite"):
        yield Diagnosis("database", "ok", f"The database is {parts.scheme} at {parts.hostname or 'a local socket'}.")
        return
    file = Path(settings.store_url.split(":///", 1)[-1])
    if not file.exists():
        yield Diagnosis("database", "ok", f"{file} will be made at the hub's start.")
    elif stat.S_IMODE(file.stat().st_mode) & 0o077:
        yield Diagnosis("database", "problem", f"{file} can be read by others.", f"chmod 600 {file}")
    else:
        yield _contents(settings, file)


def _contents(settings: Settings, file: Path) -> Diagnosis:
    """Is the store's file whole, and is there a copy of it?"""
    from hub_extensions.adapters.store.copies import copies, damage, empty_beside_older

    there = copies(file, settings.folder)
    fix = f"Stop the hub; jupyterhub-gpu store restore --state-dir {settings.folder} puts the last whole copy back."
    try:
        found = damage(file)
    except sqlite3.OperationalError as error:
        return Diagnosis(
            "database", "warning", f"{file} cannot be read now: {error}.", "Run this as the hub's account."
        )
    if found:
        return Diagnosis("database", "problem", f"{file} is damaged ({found}).", fix)
    if empty_beside_older(file, settings.folder):
        return Diagnosis("database", "warning", f"{file} is empty, beside {there[0] if there else 'its log'}.", fix)
    last = f" Its last copy is {there[0].name}." if there else " There is no copy of it yet."
    return Diagnosis("database", "ok", f"The database is {file}.{last}")


def _port(settings: Settings) -> Iterator[Diagnosis]:
    """Who listens where the service is to be reached."""
    where, hub = f"{settings.host}:{settings.port}", _hubs_account(settings)
    accounts = accounts_at(settings.host, settings.port)
    strangers = sorted((accounts or frozenset()) - {hub, 0})
    if strangers:
        text = f"{where} is held by {_account(strangers[0])}, and the hub's is {_account(hub)}. Nothing is told to it."
        fix = "End that program, or set c.GpuService.port to another one; until then another port stands in."
        yield Diagnosis("port", "problem", text, fix)
    elif accounts:
        yield from _own_port(settings, where)
    elif accounts is None:
        yield Diagnosis("port", "warning", f"Who listens at {where} cannot be seen.", "Look with: ss -ltnp")
    else:
        yield Diagnosis("port", "ok", f"Port {settings.port} is free.")


def _own_port(settings: Settings, where: str) -> Iterator[Diagnosis]:
    health = _health(settings, _kept_secret(settings))
    if health is not None:
        yield Diagnosis("port", "ok", f"The GPU service answers at {settings.origin}.")
        yield from _clock(health)
        return
    fix = "If the hub is just starting, ask again. Else: ss -ltnp shows what it is, or c.GpuService.port = another one."
    yield Diagnosis("port", "warning", f"{where} is held by the hub's account, and no GPU service answers.", fix)


def _hubs_account(settings: Settings) -> int:
    return settings.folder.stat().st_uid if settings.folder.exists() else os.geteuid()


def _account(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


def _health(settings: Settings, secret: str) -> Mapping[str, Any] | None:
    """What our own service says of itself, to the hub where the secret is known; None: it does not answer."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    address = f"{settings.url}/health"
    try:
        if secret:
            found = json.loads(signed_get(address, secret, seconds=5)[1])
        else:
            with opener.open(address, timeout=5) as answer:
                found = json.loads(answer.read())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and "ready" in found else None


def _kept_secret(settings: Settings) -> str:
    try:
        return Settings.load(settings.folder / "service.json").hub_secret
    except SettingsError:
        return ""


def _secret_apart(config: Config) -> str:
    tokens = [each.get("api_token") for each in config.JupyterHub.services if each.get("name") == SERVICE_NAME]
    return hub_secret_of(tokens[0]) if tokens and tokens[0] else ""


def _clock(health: Mapping[str, Any] | None) -> Iterator[Diagnosis]:
    """This machine's clock is the hub's, and the service has just been told it."""
    clock = (health or {}).get("clock")
    if clock is None or "NTP" not in clock:
        return
    yield Diagnosis("clock", "warning", f"{_sentence(clock)}.", "Set both machines' clocks by NTP (chrony, ntpd).")


def as_dict(finding: Diagnosis) -> dict[str, str]:
    """For ``--json``."""
    return {name: getattr(finding, name) for name in ("check", "state", "text", "fix")}


def failed(findings: tuple[Diagnosis, ...]) -> bool:
    """Is anything wrong that keeps the hub from doing its work?"""
    return any(finding.state == "problem" for finding in findings)
