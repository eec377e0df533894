"""Counts the terminals in which a program runs, also in the background or without output.

Jupyter Server's activity time of a terminal does not show that: it changes only with input and output on a page. A
program that has left its terminal (``setsid``, a daemon) is not found.
"""

from __future__ import annotations

from typing import Any

from hub_extensions.adapters.linux.procfs import has_children


def busy_terminals(manager: Any) -> int | None:
    """Return how many of a server's terminals run a program.

    Args:
        manager: Jupyter Server's ``terminal_manager``; `None` if terminals are disabled.

    Returns:
        `None` if terminals are disabled, or if the programs of one terminal cannot be seen.
    """
    shells = [shell_of(each) for each in getattr(manager, "terminals", {}).values()]
    if manager is None or None in shells:
        return None
    found = [has_children(pid) for pid in shells if pid is not None]
    return None if None in found else sum(map(bool, found))


def shell_of(terminal: Any) -> int | None:
    """Return the pid of the shell in a terminal; `None` if it does not run on this machine."""
    pid = getattr(getattr(terminal, "ptyproc", None), "pid", None)
    return pid if isinstance(pid, int) else None
