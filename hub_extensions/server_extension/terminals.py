"""Terminals in which a program runs: also one in the background, and one that prints nothing.

A terminal's own activity says nothing of that: Jupyter Server notes only what passes a page's websocket. What has left
its terminal (``setsid``, a daemon) is not seen. Not here: kernels (``extension.py``).
"""

from __future__ import annotations

from typing import Any

from hub_extensions.adapters.linux.procfs import has_children


def busy_terminals(manager: Any) -> int | None:
    """How many of a server's terminals run a program; None: it has none to ask, or they cannot be seen.

    `manager`: Jupyter Server's ``terminal_manager``; None: terminals are off.
    """
    shells = [shell_of(each) for each in getattr(manager, "terminals", {}).values()]
    if manager is None or None in shells:
        return None
    found = [has_children(pid) for pid in shells if pid is not None]
    return None if None in found else sum(map(bool, found))


def shell_of(terminal: Any) -> int | None:
    """The pid of a terminal's own process; None: it is none of this machine's."""
    pid = getattr(getattr(terminal, "ptyproc", None), "pid", None)
    return pid if isinstance(pid, int) else None
