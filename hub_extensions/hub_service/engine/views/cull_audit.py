"""Culling for administrators: the journal's rows about warnings and *Keep*, and the present decision per server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from hub_extensions.adapters.store import JournalRow
from hub_extensions.core import messages
from hub_extensions.core.culling import CullDecision, ServerFacts
from hub_extensions.core.queue.model import Lease
from hub_extensions.core.text.reasons import Reason, as_text, explain
from hub_extensions.hub_service.engine.state.batches import in_batches
from hub_extensions.hub_service.engine.state.state import State
from hub_extensions.hub_service.engine.state.transaction import SERVICE
from hub_extensions.hub_service.engine.stops.stop_records import NOT_RETURNED, RETURNED
from hub_extensions.hub_service.engine.views.presenters import other_ends

WARNED = "warned"  # the journal's kind for a server whose warning begins
# the user pressed *keep*: the server is not stopped as idle, or its time limit was extended
KEPT, EXTENDED = "kept", "extended"
DISTRUSTED = "progress-not-trusted"  # two ends that a training reported were wrong
KINDS = (
    WARNED, KEPT, EXTENDED, DISTRUSTED, "culled", "stop-failed", "back", RETURNED, NOT_RETURNED, "adopted",
    "future-activity",
)  # fmt: skip
"""The kinds of the journal's rows that are about culling."""
Grounds = Callable[[ServerFacts, Lease | None], tuple[Reason, ...]]
"""Function that returns what is known about a server, each fact as a sentence. The lease is `None` without a GPU."""


def warned_rows(
    state: State, grounds: Grounds, judged: Iterable[tuple[ServerFacts, ServerFacts, CullDecision]]
) -> tuple[JournalRow, ...]:
    """Return a row for the journal (the store's log of decisions) for each server whose warning of a stop begins now.

    The row has the cause, the time of the stop, and whether a page of the server shows the warning.

    Args:
        state: the present state.
        grounds: returns what is known about a server, as sentences.
        judged: for each server, its facts before and after the decision, and the decision.
    """
    rows = []
    for before, facts, decision in judged:
        if facts.warned is None or before.warned is not None:
            continue
        ends = None if decision.stops_at is None else explain("it-stops-at", at=state.clock.wall(decision.stops_at))
        others = other_ends(decision, state.policy_of(facts.user, facts.offer), state.clock)
        beside = [each for other in others for each in (explain("else-stops-at", at=other.at), other.reason)]
        why = [each for each in (decision.reason, ends, *beside) if each]
        # whether the warning could reach the server; the row of the stop names the pages that have shown it
        known = state.reports.get((facts.user, facts.server))
        shown = explain("seen-not-shown") if known is None else explain("seen-shown", age=state.clock.now() - known[1])
        seen = (*grounds(facts, state.leases.get(facts.lease or "")), shown)
        about = (facts.lease, facts.user, facts.server)
        rows.append(JournalRow.because(state.clock.utc_now(), WARNED, about, why, SERVICE, seen))
    return tuple(rows)


def kept_row(
    state: State, kind: str, facts: ServerFacts, until: datetime | None, grounds: Sequence[Reason]
) -> JournalRow:
    """Return a row for the journal (the store's log of decisions) about a server whose user has pressed *Keep*.

    *Keep* protects a server from a stop.

    Args:
        state: the present state.
        kind: `KEPT` (not stopped as idle for a while) or `EXTENDED` (a longer time limit).
        facts: what culling knows about the server.
        until: the server is protected until then, by the running clock (it stands still while the hub is away). `None`
            if that is not known.
        grounds: what is known about the server, as sentences.
    """
    code = "extended-until" if kind == EXTENDED else "kept-until"
    why = [] if until is None else [explain(code, at=state.clock.wall(until))]
    return JournalRow.because(
        state.clock.utc_now(), kind, (facts.lease, facts.user, facts.server), why, "user", grounds
    )


def distrusted_row(state: State, facts: ServerFacts, until: datetime) -> JournalRow:
    """Return a row for the journal (the store's log of decisions) about a user whose reports of progress do not count.

    Args:
        state: the present state.
        facts: what culling knows about the server whose training reported an end that was missed.
        until: wall-clock time until which the reports are not trusted.
    """
    about = (facts.lease, facts.user, facts.server)
    why = [explain("progress-not-trusted", at=until)]
    return JournalRow.because(state.clock.utc_now(), DISTRUSTED, about, why, SERVICE)


async def culled_servers(
    state: State, decide: Callable[[ServerFacts], CullDecision], grounds: Grounds
) -> tuple[messages.CulledServer, ...]:
    """Return what culling decides about each running server now. The server that stops first comes first.

    In a dry run, the returned decision is the one that would be made without the dry run. Servers that do not stop come
    last. All servers are judged in batches, between which other tasks run; a server that ends meanwhile is left out.

    Args:
        state: the present state.
        decide: returns the decision about a server.
        grounds: returns what is known about a server, as sentences.
    """
    looked, wall = list[messages.CulledServer](), state.clock.wall
    async for facts in in_batches(state.facts.values()):
        decision = decide(facts)
        would = decision.would or decision
        looked.append(
            messages.CulledServer(
                user=facts.user,
                server=facts.server,
                offer=facts.offer,
                action=would.action.value,
                enforced=decision.would is None,
                cause=would.cause.value if would.cause else "",
                stops_at=wall(would.stops_at) if would.stops_at else None,
                ends_at=wall(would.latest) if would.latest else None,
                reason=would.reason.message if would.reason else "",
                rule=state.rule_of(facts.user, facts.offer),
                evidence=as_text(grounds(facts, state.leases.get(facts.lease or "")), ", "),
                others=other_ends(would, state.policy_of(facts.user, facts.offer), state.clock),
            )
        )
    found = [each for each in looked if (each.user, each.server) in state.facts]
    with_end = sorted(
        (each for each in found if each.stops_at is not None), key=lambda each: (each.stops_at, each.user, each.server)
    )
    without = sorted((each for each in found if each.stops_at is None), key=lambda each: (each.user, each.server))
    return (*with_end, *without)
