"""A stop of ours whose end somebody else reports, because the hub or this service was killed in it.

Whose stop had begun and who is gone now was stopped by that: it stands in the audit and its user reads it, whoever
said first that it is gone. Not here: the stop itself (``culler.py``), which writes that by itself where it can.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from hub_extensions.adapters.store import Changes, JournalRow, NoticeRow
from hub_extensions.core.culling import Cause, ServerFacts
from hub_extensions.core.reasons import Reason, explain
from hub_extensions.hub_service.engine.state import State

log = logging.getLogger("hub_extensions.hub_service")

CULLED = "culled"
SERVICE = "service"
WHY: Mapping[Cause, str] = {
    Cause.IDLE: "was-idle",
    Cause.LIFETIME: "limit-had-ended",
    Cause.UNOPENED: "was-unopened",
    Cause.CPU_IDLE: "was-not-used",
}
"""Of an end that nobody ordered. How long it was is not known any more."""
NAMED: Mapping[str, str] = {
    "server-stopped": "named-server-stopped",
    "server-returned": "named-server-returned",
    "server-not-returned": "named-server-not-returned",
}
"""The same sentence of a named server."""


def stop_notice(at: datetime, user: str, server: str, why: Reason) -> NoticeRow:
    """What a user reads on every page until it is over."""
    return NoticeRow.of(at, user, server, of_server("server-stopped", server), why, explain("files-kept"))


def of_server(code: str, server: str) -> Reason:
    """A sentence about a server of its reader; of a named one it has the name."""
    return explain(NAMED[code], server=server) if server else explain(code)


def with_begun_stops(state: State, changes: Changes) -> Changes:
    """These changes with what is written of each stop that had begun and is over by them."""
    written = {(row.user, row.server) for row in changes.journal if row.kind == CULLED}
    gone = [state.facts.get(server) for server in changes.gone_facts if server not in written]
    over = [each for each in gone if each is not None and each.stopping is not None and each.cause is not None]
    if not over:
        return changes
    rows, notices = [], []
    for facts in over:
        why, known = state.sent.get((facts.user, facts.server)) or _late_reason(state, facts)
        row = JournalRow(
            state.clock.utc_now(), CULLED, None, facts.lease, facts.user, facts.server, why.message, SERVICE, known
        )
        rows.append(row)
        notices.append(stop_notice(row.at, facts.user, facts.server, why))
        state.count_cull(facts.cause, state.rule_of(facts.user, facts.offer))
        log.info("culled: %s", row.text, extra={"user": facts.user, "server": facts.server})
    return replace(changes, journal=(*changes.journal, *rows), notices=(*changes.notices, *notices))


def _late_reason(state: State, facts: ServerFacts) -> tuple[Reason, str]:
    """Why, and on what evidence, as far as is known after a kill."""
    assert facts.cause is not None and facts.stopping is not None
    why = facts.drain.reason if facts.drain is not None else explain(WHY.get(facts.cause, "time-had-come"))
    begun = state.clock.wall(facts.stopping).isoformat(timespec="seconds")
    return why, f"its stop had begun at {begun}, and its end was seen later"
