"""A stop of ours whose end somebody else reports, because the hub or this service was killed in it.

Whose stop had begun and who is gone now was stopped by that: it stands in the audit and its user reads it, whoever
said first that it is gone. Not here: the stop itself (``culler.py``), which writes that by itself where it can.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from hub_extensions.adapters.store import Changes, JournalRow, NoticeRow
from hub_extensions.core.culling import Cause, ServerFacts
from hub_extensions.core.text.reasons import Reason, explain
from hub_extensions.hub_service.engine.state.state import State

log = logging.getLogger("hub_extensions.hub_service")

CULLED = "culled"
SERVICE = "service"
TO_END = "was-to-end"
WHY: Mapping[Cause, str] = {
    Cause.IDLE: "was-idle",
    Cause.LIFETIME: "was-at-its-limit",
    Cause.UNOPENED: "was-unopened",
    Cause.CPU_IDLE: "was-quiet",
}
"""The reason of an end that nobody ordered. How long it was is not known any more."""


def stopped_notice(row: JournalRow) -> NoticeRow:
    """What the user of a stop that stands in the journal reads on every page until it is over."""
    user, server = row.user or "", row.server or ""
    which = of_server("server-stopped", server)
    return NoticeRow.because(row.at, user, server, which, *row.reasons, explain("files-kept"))


def of_server(code: str, server: str) -> Reason:
    """A sentence about a server of its reader; of a named one it has the name."""
    return explain(code, server=server) if server else explain(f"your-{code}")


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
        about = (facts.lease, facts.user, facts.server)
        row = JournalRow.because(state.clock.utc_now(), CULLED, about, [why], SERVICE, known)
        rows.append(row)
        notices.append(stopped_notice(row))
        state.count_cull(facts.cause, state.rule_of(facts.user, facts.offer))
        log.info("culled: %s", row.text, extra={"user": facts.user, "server": facts.server})
    return replace(changes, journal=(*changes.journal, *rows), notices=(*changes.notices, *notices))


def _late_reason(state: State, facts: ServerFacts) -> tuple[Reason, tuple[Reason, ...]]:
    """Why, and on what evidence, as far as is known after a kill."""
    assert facts.cause is not None and facts.stopping is not None
    ordered = (each.reason for each in facts.orders if each.cause is facts.cause)
    why = next(ordered, None) or explain(WHY.get(facts.cause, TO_END))
    return why, (explain("seen-stop-begun", at=state.clock.wall(facts.stopping)),)
