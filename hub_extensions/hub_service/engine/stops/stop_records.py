"""Changes of the records of stops, with the journal entries and the users' notices about them.

`with_stops` is part of every transaction: it updates the records as servers and leases change. If a server disappears
while it is being stopped, it counts as stopped by that stop. The journal and the user's notice contain the stop's
cause, even if the hub or this service was killed in between.

A return (the restart of a server without a GPU, ``c.GpuCulling.restart_on_cpu``) is part of the record of its stop. It
is written before the hub is asked for the stop, so that it is not lost if the service is killed, the hub does not
answer or a write fails. If the stop is not carried out, the return is deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from hub_extensions.adapters.store import Changes, JournalRow, NoticeRow
from hub_extensions.core.messages import Stopped
from hub_extensions.core.queue.model import LeaseState
from hub_extensions.core.stops import (
    Cause,
    ServerReturn,
    StopFault,
    StopKey,
    StopRecord,
    StopState,
    earliest,
    lifecycle,
)
from hub_extensions.core.text.reasons import Reason, explain
from hub_extensions.core.usage import UseEnd, end_of_cull, end_of_stop
from hub_extensions.hub_service.engine.state.state import State
from hub_extensions.hub_service.engine.uses.usage import size_sentences

log = logging.getLogger("hub_extensions.hub_service")

CULLED = "culled"
STOPPED = (CULLED, "stopped")
"""The kinds of the journal's rows about leases that end because somebody stopped the server."""
SERVICE = "service"
TO_END = "was-to-end"
RETURNED, NOT_RETURNED = "returned", "not-returned"
"""The kinds of the journal's rows about servers that were to come back without a GPU."""
SIGNED_OUT = explain("not-back-signed-out")


def stopped_notice(row: JournalRow, size: Sequence[Reason]) -> NoticeRow:
    """Build the notice that a server was stopped, for its user.

    Args:
        row: the row about the stop in the journal.
        size: sentences about the size of its GPU; may be empty.
    """
    user, server = row.user or "", row.server or ""
    which = of_server("server-stopped", server)
    return NoticeRow.because(row.at, user, server, which, *row.reasons, explain("files-kept"), *size)


def of_server(code: str, server: str) -> Reason:
    """Return a sentence about a server for its user. It contains the server's name, unless it is the default server.

    Args:
        code: code of the sentence for a named server, such as ``server-stopped``. ``your-`` before this code makes the
            code of the sentence for the default server.
        server: name of the server; "" for the default server.
    """
    return explain(code, server=server) if server else explain(f"your-{code}")


def with_stops(state: State, changes: Changes) -> Changes:
    """Add to a transaction's changes the updated records of stops.

    A record is updated if the changes end or change its server or the lease (right to a GPU) of this server. If a
    server ends by its stop, the journal's row about that and the user's notice are added too.

    Args:
        state: the state before the changes.
        changes: the changes of the transaction.

    Returns:
        These changes, with the additions.
    """
    given = {stop.key: stop for stop in changes.stops}
    after: dict[StopKey, StopRecord | None] = {}

    def found(key: StopKey) -> StopRecord | None:
        return after[key] if key in after else given.get(key, state.stops.get(key))

    now, written = state.clock.now(), {(row.user, row.server) for row in changes.journal if row.kind == CULLED}
    kept = {(facts.user, facts.server, facts.lease, facts.started) for facts in changes.facts}
    rows, notices = [], []
    for server in changes.gone_facts:
        facts = state.facts.get(server)
        stop = None if facts is None else found((*server, facts.lease or ""))
        if facts is None or stop is None or stop.run != facts.started:
            continue
        if (*server, facts.lease, facts.started) in kept:
            continue
        if stop.begun and server not in written:
            known = stop.grounds or (
                (explain("seen-stop-begun", at=state.clock.wall(stop.began)),) if stop.began else ()
            )
            why = stop.why or explain(TO_END)
            row = JournalRow.because(state.clock.utc_now(), CULLED, (facts.lease, *server), [why], SERVICE, known)
            rows.append(row)
            end = None if stop.cause is None else end_of_cull(stop.cause)
            notices.append(stopped_notice(row, size_sentences(state, facts.lease, end)))
            state.count_cull(stop.cause, state.rule_of(facts.user, facts.offer))
            log.info("culled: %s", row.text, extra={"user": facts.user, "server": facts.server})
        if stop.state is StopState.ANNOUNCED:
            lifecycle.clear(stop)
            after[stop.key] = None
        else:
            after[stop.key] = lifecycle.stop(stop, now)
    stopped = {row.lease for row in (*changes.journal, *rows) if row.kind in STOPPED}
    for lease in changes.leases:
        key = (lease.user, lease.server, lease.id)
        stop = found(key)
        if stop is None:
            if lease.state is LeaseState.ENDING and lease.id in stopped:
                after[key] = lifecycle.stop_by_others(key, now)
        elif lease.state is LeaseState.ENDED and stop.state not in (StopState.RETURNING, StopState.RETURNED):
            ending = lifecycle.stop(stop, now)
            after[key] = None if ending is None else lifecycle.release(ending)
        elif lease.state is LeaseState.RUNNING and stop.state is StopState.ENDING:
            lifecycle.resume(stop)
            after[key] = None
    if not after and not rows:
        return changes
    left = tuple(stop for key, stop in {**given, **after}.items() if stop is not None)
    gone = tuple(key for key, stop in after.items() if stop is None)
    return replace(
        changes,
        stops=left,
        gone_stops=(*changes.gone_stops, *gone),
        journal=(*changes.journal, *rows),
        notices=(*changes.notices, *notices),
    )


def failed_row(state: State, stop: StopRecord, fault: StopFault, why: Reason) -> JournalRow:
    """Return the row about a stop that has passed its deadline, for the journal (the log of decisions).

    Args:
        state: the present state.
        stop: the record of the stop.
        fault: why it has passed its deadline.
        why: this reason as a sentence.
    """
    since = stop.delayed_since or state.clock.now()
    seen = explain("seen-fault", fault=fault.value, at=state.clock.wall(since))
    about = (stop.lease or None, stop.user, stop.server)
    return JournalRow.because(state.clock.utc_now(), "stop-failed", about, [why], SERVICE, [seen])


def end_of_report(state: State, report: Stopped) -> UseEnd:
    """Return the cause for which a server ended, for its usage record, when the hub reports its stop.

    The hub names the cause of a stop that it carried out itself because this service did not answer. If the report does
    not name a cause other than the user, and a stop was ordered here whose time has come, that order is the cause.

    Args:
        state: the state, with the orders to stop servers.
        report: the hub's report.
    """
    if report.reason == Cause.SIGNED_OUT.value:
        return end_of_cull(Cause.SIGNED_OUT)
    end, facts = end_of_stop(report.reason, report.asked, report.closing), state.facts.get((report.user, report.server))
    first = None if facts is None else earliest(state.orders_of(facts))
    if first is None or first.at > state.clock.now() or end is not UseEnd.USER:
        return end
    return end_of_cull(first.cause)


# ------------------------------------------------------------------ returns


def without_returns_of(state: State, user: str) -> Changes:
    """Return the changes that cancel the returns (restarts without a GPU) of the servers of a signed-out user.

    They contain a notice for the user about each server that does not come back. A server that has already started
    again keeps running.

    Args:
        state: the state, with the records of all stops.
        user: name of the user.
    """
    pending = [stop for stop in state.stops.values() if stop.user == user and stop.back and stop.back.run is None]
    stopped = [stop.back for stop in pending if stop.back and (user, stop.server) not in state.facts]
    outcomes = [return_outcome(state, each, SIGNED_OUT) for each in stopped]
    return replace(
        with_back(*((stop, None) for stop in pending)),
        notices=tuple(notice for each in outcomes for notice in each.notices),
        journal=tuple(row for each in outcomes for row in each.journal),
    )


def with_back(*changed: tuple[StopRecord, ServerReturn | None]) -> Changes:
    """Return the changes that store the next step of each return (the restart of a server without a GPU).

    Args:
        changed: pairs of the record of a stop, and the return after the step; `None` in its place deletes the return.
    """
    after = [(stop, lifecycle.return_as(stop, back)) for stop, back in changed]
    return Changes(
        stops=tuple(each for _, each in after if each is not None),
        gone_stops=tuple(stop.key for stop, each in after if each is None),
    )


def return_outcome(state: State, back: ServerReturn, why_not: Reason | None = None) -> Changes:
    """Return the changes that report whether a server was started again without a GPU.

    They are the user's notice and a row of the journal (the log of decisions).

    Args:
        state: the state of the line, of servers and of devices.
        back: the restart of the server.
        why_not: why the server does not come back. `None` if it is back.
    """
    at, key = state.clock.utc_now(), (back.user, back.server)
    kind = RETURNED if why_not is None else NOT_RETURNED
    said = [of_server("server-returned" if why_not is None else "server-not-returned", back.server)]
    said += [] if why_not is None else [why_not]
    to_do = [] if why_not is None else [explain("start-it-here")]
    row = JournalRow.because(at, kind, (None, *key), said, SERVICE, [explain("seen-try", tries=back.tries)])
    log.info("%s: %s", kind, row.text, extra={"user": back.user, "server": back.server})
    return Changes(notices=(NoticeRow.because(at, *key, *said, *to_do),), journal=(row,))
