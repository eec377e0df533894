"""Checks for servers that run under their users' system accounts: may the hub start them, and are accounts missing?"""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Iterator
from typing import Any

from traitlets.config import Config

from hub_extensions.adapters.hub.hub_config import value_of
from hub_extensions.hub_service.setup.settings import Settings
from hub_extensions.tools.doctor.diagnosis import Diagnosis

ONE_ACCOUNT = """or let every server run as the hub's own, which suits a trial and people who trust each other.
Above configure(c):
c.JupyterHub.spawner_class = "gpu-demo"
c.SimpleLocalProcessSpawner.home_dir_template = "/a/folder/of/the/hub/{username}"
"""
MOST_NAMED = 5


def accounts(config: Config, settings: Settings) -> Iterator[Diagnosis]:
    """Check that servers can run under their users' system accounts, if the spawner starts them so."""
    if _starts_as_users(value_of(config, "JupyterHub", "spawner_class")):
        yield from _with_accounts(config, settings)


def spawner_for(config: Config, settings: Settings) -> str:
    """Return which spawner a hub on one machine should use instead of one that cannot offer GPUs.

    The text is a line for the configuration, or the problem with users' accounts that has to be solved first.
    """
    for problem in _with_accounts(config, settings):
        return f"{problem.text} {problem.fix}"
    return 'c.JupyterHub.spawner_class = "gpu-local"'


def _with_accounts(config: Config, settings: Settings) -> Iterator[Diagnosis]:
    # `doctor` may run under another account than the hub: the owner of the state folder, once made, is the hub's
    uid = settings.folder.stat().st_uid if settings.folder.exists() else os.geteuid()
    yield from findings(uid, _people(config), _account_of, bool(_of_authenticator(config, "create_system_users")))


def findings(
    uid: int, people: frozenset[str], account_of: Callable[[str], int | None], makes_accounts: bool
) -> Iterator[Diagnosis]:
    """Yield a diagnosis if the hub may not start servers as other accounts, or if users have no account.

    Args:
        uid: uid of the hub.
        people: names of the users in the configuration (``allowed_users``, ``admin_users``).
        account_of: returns the uid of a user name. None if the account does not exist.
        makes_accounts: whether the hub creates missing accounts (``create_system_users``).
    """
    if uid != 0 and not (people and all(account_of(name) == uid for name in people)):
        text = f"The hub runs as uid {uid}, which may start no server as another account, and gpu-local starts each so."
        yield Diagnosis("accounts", "problem", text, f"Run the hub as root, {ONE_ACCOUNT}".strip())
        return
    missing = sorted(name for name in people if account_of(name) is None)
    if not missing or makes_accounts:
        return
    named = ", ".join(missing[:MOST_NAMED]) + (" and others" if len(missing) > MOST_NAMED else "")
    text = f"This machine has no account for {named}, and gpu-local starts each server as its user's own."
    yield Diagnosis("accounts", "problem", text, f"Make the accounts (adduser), {ONE_ACCOUNT}".strip())


def _starts_as_users(chosen: Any) -> bool:
    if isinstance(chosen, type):
        return any(base.__name__ == "GpuLocalSpawner" for base in chosen.__mro__)
    return str(chosen) == "gpu-local" or str(chosen).endswith(".GpuLocalSpawner")


def _people(config: Config) -> frozenset[str]:
    found = [_of_authenticator(config, "allowed_users"), _of_authenticator(config, "admin_users")]
    return frozenset(str(name) for each in found if isinstance(each, (set, list, tuple, frozenset)) for name in each)


def _of_authenticator(config: Config, name: str) -> Any:
    sections = [section for section in config if section.endswith("Authenticator") and name in config[section]]
    return config[sections[0]][name] if sections else None


def _account_of(name: str) -> int | None:
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None
