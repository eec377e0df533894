"""Where one user stands, in one answer: what waits, starts, runs and failed. For the hub's home and a page of a start.

Not here: what may be chosen (``forms.py``), and what a server's own panel shows (``server.py``).
"""

from __future__ import annotations

from dataclasses import dataclass

from hub_extensions.core.messages.forms import FailedStart, Notice
from hub_extensions.core.messages.hub import TicketStatus
from hub_extensions.core.messages.server import ServerState


@dataclass(frozen=True, slots=True)
class UserOverview:
    """One user's tickets and servers.

    Attributes:
        tickets: live ones, without their grants. servers: that hold a GPU or run, without what else could be had.
        notices: why a server was stopped, of the last day. failed: last starts that failed, one a server, and after
            which none was ready.
    """

    tickets: tuple[TicketStatus, ...]
    servers: tuple[ServerState, ...]
    notices: tuple[Notice, ...] = ()
    failed: tuple[FailedStart, ...] = ()


@dataclass(frozen=True, slots=True)
class FailedStarts:
    """Starts that failed, for admins: how many in the last day, and the last of them, newest first.

    Attributes:
        at_least: no more are kept: there may have been more in that day.
    """

    last_day: int
    latest: tuple[FailedStart, ...]
    at_least: bool = False
