"""The contents of the hub's pages for one user: tickets (places in line), servers and failed starts.

For administrators, the failed starts of all users.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

from hub_extensions.core import messages
from hub_extensions.core.queue.failed_starts import MOST, KeptFailure, shown_to
from hub_extensions.hub_service.engine.state.clock import RunningClock
from hub_extensions.hub_service.engine.state.state import State
from hub_extensions.hub_service.engine.views import presenters

LATEST = 50  # failed starts that administrators are shown
DAY = timedelta(days=1)


def overview(
    state: State, user: str, tickets: Iterable[messages.TicketStatus], servers: Iterable[messages.ServerState]
) -> messages.UserOverview:
    """Return what the hub's home page and the pages of a start show to a user.

    These pages do not show the environment of admitted servers, the waits of other offers, and the signs that a server
    is in use, so the answer does not contain them.

    Args:
        state: the present state.
        user: name of the user.
        tickets: the statuses of the user's tickets (places in line).
        servers: the user's servers.
    """
    return messages.UserOverview(
        tickets=tuple(replace(ticket, grant=None) for ticket in tickets),
        servers=tuple(replace(server, waits=(), signs=()) for server in servers),
        notices=presenters.notices(state.recent_notices(user)),
        failed=failed_of(state, user),
    )


def failed_of(state: State, user: str) -> tuple[messages.FailedStart, ...]:
    """Return the user's last failed starts without the servers' logs, which are for administrators."""
    shown = shown_to(state.notices.failures, user, state.clock.utc_now())
    return tuple(replace(_start(each, state.clock), log="") for each in shown)


def failed_starts(state: State) -> messages.FailedStarts:
    """Return how many starts failed in the last day, and the latest ones with their logs, for administrators."""
    known, now = state.notices.failures, state.clock.utc_now()
    latest = tuple(_start(each, state.clock) for each in reversed(known[-LATEST:]))
    last_day = sum(1 for each in known if now - each.start.at < DAY)
    return messages.FailedStarts(last_day, latest, at_least=last_day >= MOST)


def _start(kept: KeptFailure, clock: RunningClock) -> messages.FailedStart:
    until = kept.until if kept.until is not None and clock.now() < kept.until else None
    return replace(kept.start, kept_until=None if until is None else clock.wall(until))
