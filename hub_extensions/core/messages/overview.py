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
        tickets: the user's places in line and starts under way, without their grants.
        servers: servers that hold a GPU or run, without alternative offers.
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
        at_least: older entries were discarded, so there may have been more in that day.
    """

    last_day: int
    latest: tuple[FailedStart, ...]
    at_least: bool = False
