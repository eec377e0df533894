"""The state of one user's tickets and servers, for the hub's home page and the page of a start."""

from __future__ import annotations

from dataclasses import dataclass

from hub_extensions.core.messages.forms import FailedStart, Notice
from hub_extensions.core.messages.hub import TicketStatus
from hub_extensions.core.messages.server import ServerState


@dataclass(frozen=True, slots=True)
class UserOverview:
    """One user's tickets and servers.

    Attributes:
        tickets: the user's places in line and starts under way; `TicketStatus.grant` is left out.
        servers: servers that hold a GPU or run; `ServerState.waits` is left out.
        notices: why servers were stopped within the last day.
        failed: the last failed start of each server that has not been ready since.
    """

    tickets: tuple[TicketStatus, ...]
    servers: tuple[ServerState, ...]
    notices: tuple[Notice, ...] = ()
    failed: tuple[FailedStart, ...] = ()


@dataclass(frozen=True, slots=True)
class FailedStarts:
    """Failed starts, for administrators: the number in the last day, and the latest ones, newest first.

    Attributes:
        at_least: True if older entries were discarded, so that `last_day` may be too low.
    """

    last_day: int
    latest: tuple[FailedStart, ...]
    at_least: bool = False
