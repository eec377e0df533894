"""Record how each wait forecast came out: whether its ticket (the user's place in line) started, and after what wait.

The outcome follows from a change of the ticket and is committed together with it.
"""

from __future__ import annotations

from dataclasses import replace

from hub_extensions.adapters.store import Changes, TicketRow
from hub_extensions.core.forecast.results import Given
from hub_extensions.core.queue.model import TicketState
from hub_extensions.hub_service.engine.state.state import State


def with_outcomes(state: State, changes: Changes) -> Changes:
    """Add to the changes of a transaction the outcomes of the wait forecasts whose tickets these changes change.

    A forecast has an outcome when its ticket (the user's place in line) is admitted, ends, or wants other offers.
    """
    over = [
        _ended(state, given, how)
        for row in changes.tickets
        if row.ticket.id in state.forecasts.given and (how := _how(state, row))
        for given in state.forecasts.given[row.ticket.id]
    ]
    return replace(changes, forecasts=(*changes.forecasts, *over)) if over else changes


def _how(state: State, row: TicketRow) -> str:
    """Return the outcome of a ticket (place in line): ``started``, ``left``, or ``changed`` if it wants other offers.

    "" if the ticket still waits for the same offers.

    Args:
        state: the state before the change.
        row: the ticket as it is written now.
    """
    before = state.tickets.get(row.ticket.id)
    if row.end is not None:
        return "left"
    if row.ticket.state is TicketState.ADMITTED:
        return "started"
    return "changed" if before is not None and before.wanted_offers != row.ticket.wanted_offers else ""


def _ended(state: State, given: Given, how: str) -> Given:
    clock = state.clock
    waited = max(0.0, (clock.now() - given.running).total_seconds()) if how == "started" else None
    return replace(given, end=how, waited=waited, over=clock.utc_now())


def lost_forecasts(state: State) -> tuple[Given, ...]:
    """Return the stored forecasts without an outcome whose tickets (places in line) no longer wait.

    They are returned with the outcome ``changed``. Here this outcome means that the real one cannot be found out any
    more.
    """
    waiting = {ticket.id for ticket in state.tickets.values() if ticket.state is TicketState.WAITING}
    gone = (given for ticket, some in state.forecasts.given.items() if ticket not in waiting for given in some)
    return tuple(_ended(state, given, "changed") for given in gone)
