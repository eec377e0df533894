"""Checks of the GPU service: its state folder, its database, its port, and what a running service reports of itself."""

from __future__ import annotations

import json
import os
import pwd
import sqlite3
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from traitlets.config import Config

from hub_extensions.adapters.linux.listeners import accounts_at
from hub_extensions.adapters.service.signed_request import get_once
from hub_extensions.core.culling.sources import WHO
from hub_extensions.hub_service.setup.service_info import hub_secret_of
from hub_extensions.hub_service.setup.settings import SERVICE_NAME, Settings, SettingsError
from hub_extensions.tools.doctor.diagnosis import Diagnosis, sentence

KNOWN_OF = ("measured", "ready", "shared", "cut-on-demand", "not-read")
"""Values of ``reason`` that need no action, in the health report's entries about who measures the use of an offer."""


def state_dir(settings: Settings) -> Iterator[Diagnosis]:
    """Check that the state folder is usable and on a local disk."""
    from hub_extensions.adapters.store.database import NETWORK_DISKS  # the database's library takes its time to load

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
    """Return the type of a path's file system, as in /proc/mounts; "" if unknown."""
    best, kind = "", ""
    for line in Path("/proc/mounts").read_text(encoding="utf-8", errors="replace").splitlines():
        _, mount, found = line.split(" ")[:3]
        mount = mount.replace("\\040", " ")
        inside = str(path.resolve()) == mount or str(path.resolve()).startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, found
    return kind


def database(settings: Settings) -> Iterator[Diagnosis]:
    """Check the GPU service's database. An SQLite file must be readable by its owner only, and undamaged."""
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
    """Check that the SQLite file of the GPU service's database is undamaged, and that a copy of it exists."""
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


def port(settings: Settings) -> Iterator[Diagnosis]:
    """Check which program listens at the GPU service's address. If it is the service, check its health report too."""
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
    health = health_of(settings, _kept_secret(settings))
    if health is not None:
        yield Diagnosis("port", "ok", f"The GPU service answers at {settings.origin}.")
        yield from clock(health)
        yield from evidence(health)
        yield from policy_file(health)
        yield from failed_stops(health)
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


def health_of(settings: Settings, secret: str) -> Mapping[str, Any] | None:
    """Return the health report of a running service. None if it does not answer.

    Args:
        settings: the GPU service's settings.
        secret: the hub's secret, with which the request is signed to get all details; "" if it is not known.
    """
    address = f"{settings.url}/health"
    try:
        found = json.loads(get_once(address, secret=secret, seconds=5)[1])
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and "ready" in found else None


def _kept_secret(settings: Settings) -> str:
    try:
        return Settings.load(settings.folder / "service.json").hub_secret
    except SettingsError:
        return ""


def secret_apart(config: Config, shared: str) -> str:
    """Return the secret with which the hub signs its requests to a service that it does not start.

    "" if the configuration does not contain the GPU service's token, from which the secret is derived.

    Args:
        config: the hub's configuration.
        shared: ``c.GpuService.shared_secret``.
    """
    tokens = [each.get("api_token") for each in config.JupyterHub.services if each.get("name") == SERVICE_NAME]
    return hub_secret_of(tokens[0], shared) if tokens and tokens[0] else ""


def evidence(health: Mapping[str, Any] | None) -> Iterator[Diagnosis]:
    """Report for each offer which source measures the use of its GPUs, and how old the measurements are.

    Args:
        health: the health report of the running service. None if it does not answer, so nothing is reported.
    """
    for each in (health or {}).get("evidence") or ():
        age = "" if each["age_seconds"] is None else f", the oldest figure {each['age_seconds']:.0f} s old"
        servers = f", of {each['measured']} of {each['leases']} servers{age}" if each["leases"] else ""
        since = minute(each["since"])
        text = f"{each['offer']}: its use is measured by {WHO[each['source']]} since {since}{servers}."
        known = each["reason"] in KNOWN_OF
        yield Diagnosis("evidence", "ok" if known else "warning", text, "" if known else each["text"])


def minute(moment: str) -> str:
    """Format a time in ISO form, which must be UTC, to the minute: ``2026-01-31 14:02 UTC``."""
    return f"{moment[:10]} {moment[11:16]} UTC"


def policy_file(health: Mapping[str, Any] | None) -> Iterator[Diagnosis]:
    """Report whether the GPU service could read the current file with the rules of culling.

    Rules in the file that may be mistakes are reported too.

    Args:
        health: the health report of the running service. None if it does not answer, so nothing is reported.
    """
    status, valid = (health or {}).get("policy_file"), (health or {}).get("policy_file_valid")
    if not status:
        return
    fix = "Mend the file (docs/howto/gpu-policy.md); it is read again within seconds."
    if not valid:
        yield Diagnosis("policy", "problem", f"The policy file of culling: {status}.", fix)
    elif "; " in status:
        yield Diagnosis("policy", "warning", f"The policy file of culling: {status}.", fix)
    else:
        yield Diagnosis("policy", "ok", f"The policy file of culling is in force: {status}.")


def failed_stops(health: Mapping[str, Any] | None) -> Iterator[Diagnosis]:
    """Report servers that should have been stopped but still run and hold a GPU.

    Args:
        health: the health report of the running service. None if it does not answer, so nothing is reported.
    """
    failed = (health or {}).get("stops_failed") or 0
    if failed:
        text = f"{failed} server(s) could not be stopped by the deadline; each is tried again."
        fix = "The admin's page says which, since when, and what to do; so does jupyterhub-gpu cull --dry-run."
        yield Diagnosis("stops", "problem", text, fix)


def clock(health: Mapping[str, Any] | None) -> Iterator[Diagnosis]:
    """Report if the GPU service's clock differs from the hub's clock, which is the clock of this machine.

    Args:
        health: the health report of the running service. None if it does not answer, so nothing is reported.
    """
    clock = (health or {}).get("clock")
    if clock is None or "NTP" not in clock:
        return
    yield Diagnosis("clock", "warning", f"{sentence(clock)}.", "Set both machines' clocks by NTP (chrony, ntpd).")
