"""The unprivileged uid that everything runs under when root starts us. No account is added for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from place import ROOT
from steps import Trouble

UNPRIVILEGED = 65534


def for_child() -> dict[str, Any]:
    """What to give ``subprocess`` so that a child gives up root; nothing where we have none to give up."""
    return {"user": UNPRIVILEGED, "group": UNPRIVILEGED, "extra_groups": []} if is_root() else {}


def for_owner(folder: Path) -> dict[str, Any]:
    """What to give ``subprocess`` so that a child of root does what it does as the owner of ``folder``."""
    owner = folder.stat()
    return {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []} if is_root() else {}


def is_root() -> bool:
    """Whether root started us."""
    return os.getuid() == 0


def become_unprivileged() -> None:
    """Give up root for good, in this process."""
    os.setgroups([])
    os.setgid(UNPRIVILEGED)
    os.setuid(UNPRIVILEGED)


def asked_as_unprivileged(question: Callable[[], bool]) -> bool:
    """What the unprivileged uid finds, asked in a child that has become it; an OSError is a no."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1] == 0
    try:
        become_unprivileged()
        os._exit(0 if question() else 1)
    except OSError:
        os._exit(1)


def check_reach() -> None:
    """Raise Trouble where the unprivileged uid cannot read this clone, naming the folder that stops it."""
    if asked_as_unprivileged(lambda: bool(os.listdir(ROOT)) and (ROOT / "setup.py").open().read(1) != ""):
        return
    closed = ROOT
    for folder in [*reversed(ROOT.parents), ROOT]:
        if not asked_as_unprivileged(lambda folder=folder: os.access(folder, os.X_OK)):  # type: ignore[misc]
            closed = folder
            break
    raise Trouble(
        f"Started by root, servers run under uid {UNPRIVILEGED}, which cannot reach this clone: "
        f"{closed} is closed to it. "
        "Put the clone where everybody can read it (/opt, /srv, /tmp), or start this as a plain user."
    )


def own_folder(folder: Path) -> None:
    """Make sure that whoever runs the hub and the tests can write ``folder``; raise Trouble where it is another's."""
    if not is_root():
        folder.mkdir(parents=True, exist_ok=True)
        return
    if not folder.exists():
        folder.mkdir(parents=True)
        os.chown(folder, UNPRIVILEGED, UNPRIVILEGED)
    if not asked_as_unprivileged(lambda: os.access(folder, os.R_OK | os.W_OK | os.X_OK)):
        raise Trouble(
            f"Started by root, servers run under uid {UNPRIVILEGED}, which cannot write {folder}. "
            f"Name a folder that does not exist yet, or give it to uid {UNPRIVILEGED} with chown."
        )
