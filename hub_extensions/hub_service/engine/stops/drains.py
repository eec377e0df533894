"""Orders to stop a server: from the hub after a sign-out, or from the server's user. Culling carries them out."""

from __future__ import annotations

import logging
from datetime import timedelta

from hub_extensions.adapters.store import Changes, JournalRow, StoreUnavailable
from hub_extensions.core import stops
from hub_extensions.core.culling import ServerFacts
from hub_extensions.core.messages import DrainState, SignedOut, Stopped, WithoutSessions
from hub_extensions.core.stops import Cause, by_hub, earliest
from hub_extensions.core.text.reasons import Reason, explain
from hub_extensions.core.usage import UseEnd, end_of_cull, end_of_stop
from hub_extensions.hub_service.engine.state.errors import Refused
from hub_extensions.hub_service.engine.state.meta import WITHOUT_SESSION, write_without_session
from hub_extensions.hub_service.engine.state.state import State
from hub_extensions.hub_service.engine.state.transaction import Transactions
from hub_extensions.hub_service.engine.stops.stop_records import without_returns_of

A_TURN = timedelta(seconds=60)
"""Time that a stop takes beside the drain (in which notebooks are saved and the user's hook runs).

It covers the pause between two turns of `StopRunner`, new measurements after an outage, and the hub's own stop."""
MOST_SECONDS = 366 * 86400.0  # maximum time until a stop that the hub may order
log = logging.getLogger("hub_extensions.hub_service")


async def order(state: State, transaction: Transactions, report: SignedOut) -> DrainState:
    """Order the stop of a server whose user was signed out, if the server holds the reported lease.

    A repeated request does not postpone the stop. It returns the time that is left.

    Returns:
        The time until the stop begins, and how long it may take. `DrainState.left_seconds` is `None` if the service
        does not stop the server, because it does not hold this lease.
    """
    if not 0 <= report.left_seconds <= MOST_SECONDS:
        raise Refused(400, f"left_seconds has to be between 0 and {MOST_SECONDS:g}.", "left_seconds", "bad-input")
    async with transaction() as changing:
        if not (dropped := without_returns_of(state, report.user)).empty:
            await changing.write(dropped)
        facts, now = state.facts.get((report.user, report.server)), state.clock.now()
        if facts is None or not facts.lease or facts.lease != report.lease:
            return DrainState(None)
        ordered = by_hub(now + timedelta(seconds=report.left_seconds), report.cause)
        stop = state.ordered(facts, ordered)
        first = earliest(state.orders_of(facts) if stop is None else stop.orders)
        if first is None:
            return DrainState(None)
        if stop is not None:
            why, at = ordered.reason, explain("it-stops-at", at=state.clock.wall(ordered.at))
            about, seen = (facts.lease, facts.user, facts.server), [explain("seen-signed-out", cause=report.cause)]
            row = JournalRow.because(state.clock.utc_now(), "drained", about, [why, at], "hub", seen)
            await changing.write(Changes(stops=(stop,), journal=(row,)))
            log.info("drained: %s", why.message, extra={"user": facts.user, "server": facts.server})
        return DrainState((first.at - now).total_seconds(), _takes(state, facts).total_seconds())


async def without_session(state: State, transaction: Transactions, reported: WithoutSessions) -> None:
    """Record the users without a sign-in session, whose accounts may no longer exist.

    The journal gets a row for each new user among them, and for each user who has a session again.
    """
    async with transaction() as changing:
        before = {each.user: each.since for each in state.without_session.people}
        now = {each.user: each.since for each in reported.people}
        if reported == state.without_session:
            return
        at, rows = state.clock.utc_now(), list[JournalRow]()
        for user in sorted(now.keys() - before.keys()):
            why = explain("no-session-since", at=now[user])
            rows.append(JournalRow.because(at, "no-session", (None, user, None), [why], "hub"))
        for user in sorted(before.keys() - now.keys()):
            rows.append(JournalRow.because(at, "session-again", (None, user, None), [explain("session-again")], "hub"))
        await changing.write(Changes(journal=tuple(rows), meta={WITHOUT_SESSION: write_without_session(reported)}))


def _takes(state: State, facts: ServerFacts) -> timedelta:
    """Return how long the stop of a server may take, including the drains of other servers that come before it."""
    drained = sum(1 for each in state.facts.values() if state.orders_of(each))
    turns = 1 + drained // max(1, state.policy.concurrent_stop_limit)
    return turns * state.policy_of(facts.user, facts.offer).drain + A_TURN


def end_of_report(state: State, report: Stopped) -> UseEnd:
    """Return the cause for which a server ended, for its usage record, when the hub reports its stop.

    The hub names the cause of a stop that it carried out itself because this service did not answer. If a stop was
    ordered here and its time has come, that order is the cause.
    """
    if report.reason == Cause.SIGNED_OUT.value:
        return end_of_cull(Cause.SIGNED_OUT)
    end, facts = end_of_stop(report.reason, report.asked, report.closing), state.facts.get((report.user, report.server))
    first = None if facts is None else earliest(state.orders_of(facts))
    if first is None or first.at > state.clock.now() or end is not UseEnd.USER:
        return end
    return end_of_cull(first.cause)


async def give_back(state: State, transaction: Transactions, user: str, server: str, cpu: bool) -> None:
    """Stop a server now because its user gives the GPU back.

    Args:
        state: the state.
        transaction: changes the state.
        user, server: name of the user and of the server.
        cpu: whether to start the server again without a GPU.

    Raises:
        Refused: 404: the server does not run. 409: it has no GPU, or stops already.
    """
    async with transaction() as changing:
        facts = state.facts.get((user, server))
        if facts is None:
            raise Refused(404, "This server is not known to run.", "server", "unknown-server")
        stop = state.stop_of(facts)
        if stop is not None and stop.begun:
            raise Refused.because(409, explain("keep-stopping"), "give-back")
        orders, on_gpu = state.orders_of(facts), facts.lease is not None
        given = stops.give_back(orders, state.clock.now(), on_gpu=on_gpu, cpu=cpu)
        ordered = given if isinstance(given, Reason) else state.ordered(facts, given)
        if ordered is None or isinstance(ordered, Reason):
            raise Refused.because(409, ordered or explain("keep-stopping"), "give-back")
        text = "given back by its user" + (", who goes on without a GPU" if cpu else "")
        row = JournalRow(state.clock.utc_now(), "given-back", None, facts.lease, user, server, text, "user", "")
        try:
            await changing.write(Changes(stops=(ordered,), journal=(row,)))
        except StoreUnavailable as problem:
            raise Refused(503, f"Not given back: {problem.message}", "give-back", "store-unavailable") from problem
