"""The service's own folder and the secrets in it, which are created at the hub's first start and then kept.

If the hub's pod has no volume, it starts with an empty folder each time. The secrets are then derived from another
secret that is the same at each start, such as the hub's ``cookie_secret``.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path

from hub_extensions.hub_service.setup.settings import SettingsError, write_private

NAMES = ("hub_secret", "api_token")
LOCK_FILE = "service.lock"
SETTINGS_FILE = "service.json"  # the settings that the service was started with, for commands beside it
SHORTEST_KEPT = 32  # characters of a secret in the file
SHORTEST_LASTING = 16
"""Minimum length in bytes of a secret from which others are derived; a shorter one could be guessed."""


def folder_apart(path: Path) -> Path:
    """Create the folder of a service that the hub does not start, with mode 0700, and return its absolute path.

    If the folder is the root of a volume and belongs to another account, its mode is not changed.

    Raises:
        SettingsError: the folder cannot be created or written.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as problem:
        raise SettingsError(f"--state-dir {path} cannot be made ({problem.strerror}).") from problem
    if not os.access(path, os.W_OK | os.X_OK):
        raise SettingsError(f"--state-dir {path}: the account of this process (uid {os.geteuid()}) cannot write there.")
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        with contextlib.suppress(PermissionError):
            path.chmod(0o700)
    return path.absolute()


def kept_secrets(folder: Path, lasting: str | bytes = b"") -> Mapping[str, str]:
    """Return the secrets ``hub_secret`` and ``api_token`` of `Settings`: those of the last start, or new ones.

    Args:
        folder: `c.GpuService.state_dir`. It is created with mode 0700.
        lasting: a secret that is kept when the folder is lost, such as the hub's ``cookie_secret`` (as text it is
            hexadecimal, as the hub reads it). New secrets are derived from it and are always the same. If it is missing
            or too short, they are random.

    Raises:
        ValueError: the folder cannot be used, or the file in it is damaged or cannot be read; the text names it.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = folder.stat()
    except OSError as problem:
        raise ValueError(
            f"c.GpuService.state_dir is {folder}, which cannot be made ({problem.strerror}). "
            "It has to be a folder that the hub's account may write."
        ) from problem
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(
            f"c.GpuService.state_dir is {folder}: the hub's account has to be able to write into this folder."
        )
    if facts.st_uid != os.geteuid():
        raise ValueError(
            f"c.GpuService.state_dir is {folder}, which belongs to another account (uid {facts.st_uid}, the hub runs "
            f"as {os.geteuid()}). Give the folder to the hub's account, or choose another one."
        )
    if stat.S_IMODE(facts.st_mode) & 0o077:
        folder.chmod(0o700)
    path = folder / "secrets.json"
    if not path.exists():
        if isinstance(lasting, str):
            try:
                key = bytes.fromhex(lasting)
            except ValueError:
                key = lasting.encode()
            lasting = key
        fresh = {name: secrets.token_hex(32) for name in NAMES}
        if len(lasting) >= SHORTEST_LASTING:
            purpose = {name: f"jupyterhub-gpu: {name} of a hub without a volume".encode() for name in NAMES}
            fresh = {name: hmac.new(lasting, purpose[name], hashlib.sha256).hexdigest() for name in NAMES}
        write_private(path, json.dumps(fresh, indent=2) + "\n")
        return fresh
    try:
        path.chmod(0o600)
        kept = json.loads(path.read_text(encoding="utf-8"))
        if not all(isinstance(kept[name], str) and len(kept[name]) >= SHORTEST_KEPT for name in NAMES):
            raise ValueError
        return {name: kept[name] for name in NAMES}
    except OSError as problem:
        raise ValueError(
            f"{path} cannot be read ({problem.strerror}): it has to be a file of the hub's account."
        ) from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError(
            f"{path} is damaged: it has to hold hub_secret and api_token. Delete the file; new secrets are made."
        ) from None
