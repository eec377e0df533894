"""Update the records of stops in every transaction, as servers and leases change.

If a server disappears while it is being stopped, it counts as stopped by that stop. The journal and the user's notice
contain the stop's cause, even if the hub or this service was killed in between.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from hub_extensions.adapters.store import Changes, JournalRow, NoticeRow
from hub_extensions.core.queue.model import LeaseState
from hub_extensions.core.stops import StopKey, StopRecord, StopState, lifecycle
from hub_extensions.core.text.reasons import Reason, explain
from hub_extensions.hub_service.engine.state.state import State

log = logging.getLogger("hub_extensions.hub_service")

CULLED = "culled"
STOPPED = (CULLED, "stopped")
"""The kinds of the journal's rows about leases that end because somebody stopped the server."""
SERVICE = "service"
TO_END = "was-to-end"


def stopped_notice(row: JournalRow) -> NoticeRow:
    """Build the notice that a server was stopped, for its user, from the journal's row about the stop."""
    user, server = row.user or "", row.server or ""
    which = of_server("server-stopped", server)
    return NoticeRow.because(row.at, user, server, which, *row.reasons, explain("files-kept"))


def of_server(code: str, server: str) -> Reason:
    """Return a sentence about a server for its user. It contains the server's name, unless it is the default server.

    Args:
        code: code of the sentence for a named server.
        server: name of the server; "" for the default server.
    """
    return explain(code, server=server) if server else explain(f"your-{code}")


def with_stops(state: State, changes: Changes) -> Changes:
    """Add to the changes of a transaction the records of stops that follow from them.

    For each stop that ends, the journal's row and the user's notice are added too.
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
            notices.append(stopped_notice(row))
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
