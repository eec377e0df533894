"""Servers that come back without a GPU after their own was taken back (``c.GpuCulling.soft``).

What is to come back is written down before the hub is asked for the stop, so that a kill, a silent hub or a failed
write around it loses nothing; that the hub is asked for the start is written down before it is, too. A stop that is
not carried out takes it back. Not here: what is done next (``core/culling/returns.py``), and the stop (``culler.py``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace

from hub_extensions.adapters.hub.jupyterhub_api import HubApi, HubAway, HubRefused, StartRefused
from hub_extensions.adapters.store import Changes, JournalRow, NoticeRow
from hub_extensions.core import culling
from hub_extensions.core.culling import ReturnSeen, ReturnStep, ServerFacts, ServerReturn
from hub_extensions.core.offers.offer_id import CPU
from hub_extensions.core.text.reasons import Reason, explain
from hub_extensions.hub_service.engine.line.rights import UNANSWERED, Rights
from hub_extensions.hub_service.engine.state.errors import Refused
from hub_extensions.hub_service.engine.state.meta import RETURNS, write_returns
from hub_extensions.hub_service.engine.state.state import State
from hub_extensions.hub_service.engine.state.transaction import SERVICE, Transactions
from hub_extensions.hub_service.engine.stops.begun_stops import of_server
from hub_extensions.hub_service.engine.views.cull_audit import NOT_RETURNED, RETURNED

log = logging.getLogger("hub_extensions.hub_service")

EVERY = 2.0
NOT_FREE = explain("not-back-in-time")
NO_ROOM = explain("not-back-no-room")
SIGNED_OUT = explain("not-back-signed-out")


def with_return(state: State, back: ServerReturn) -> Mapping[str, str]:
    """The note of all returns with this one, for the change that it is part of."""
    return {RETURNS: write_returns((*_others(state, back), back))}


def without_return(state: State, facts: ServerFacts) -> Mapping[str, str]:
    """The note of all returns without the one of a run whose stop is not carried out, or not by us."""
    return {RETURNS: write_returns(_others(state, intended))} if (intended := intended_return(state, facts)) else {}


def intended_return(state: State, facts: ServerFacts) -> ServerReturn | None:
    """What was written down of a return of this very run, before the hub was asked to stop it."""
    back = state.returns.get((facts.user, facts.server))
    return back if back is not None and back.asked is None and back.ended == facts.started else None


def _others(state: State, back: ServerReturn) -> tuple[ServerReturn, ...]:
    return tuple(each for each in state.returns.values() if (each.user, each.server) != (back.user, back.server))


def without_returns_of(state: State, user: str) -> Changes:
    """No server of a user who was signed out comes back, and its user reads that; a run that is there stays."""
    pending = [each for each in state.returns.values() if each.user == user and each.run is None]
    if not pending:
        return Changes()
    stopped = [each for each in pending if (user, each.server) not in state.facts]
    outcomes = [_outcome(state, each, SIGNED_OUT) for each in stopped]
    kept = tuple(each for each in state.returns.values() if each not in pending)
    return Changes(
        meta={RETURNS: write_returns(kept)},
        notices=tuple(notice for each in outcomes for notice in each.notices),
        journal=tuple(row for each in outcomes for row in each.journal),
    )


def _outcome(state: State, back: ServerReturn, why_not: Reason | None = None) -> Changes:
    """How it went, for the journal and for its user's page; `why_not` None: it is back."""
    at, key = state.clock.utc_now(), (back.user, back.server)
    kind = RETURNED if why_not is None else NOT_RETURNED
    said = [of_server("server-returned" if why_not is None else "server-not-returned", back.server)]
    said += [] if why_not is None else [why_not]
    to_do = [] if why_not is None else [explain("start-it-here")]
    row = JournalRow.because(at, kind, (None, *key), said, SERVICE, [explain("seen-try", tries=back.tries)])
    log.info("%s: %s", kind, row.text, extra={"user": back.user, "server": back.server})
    return Changes(notices=(NoticeRow.because(at, *key, *said, *to_do),), journal=(row,))


class Returns:
    """Brings them back."""

    def __init__(self, state: State, transaction: Transactions, hub: HubApi, rights: Rights) -> None:
        self.state = state
        self.transaction = transaction
        self.hub = hub
        self.rights = rights

    async def run(self) -> None:
        """Look after all of them until cancelled."""
        while True:
            await self.go_on()
            await asyncio.sleep(EVERY)

    async def go_on(self) -> None:
        """One step of each."""
        for back in tuple(self.state.returns.values()):
            try:
                await self._go_on(back)
            except (HubAway, HubRefused, Refused) as problem:
                log.debug("a return waits: %s", problem)

    async def _go_on(self, back: ServerReturn) -> None:
        key = (back.user, back.server)
        server = await self.hub.server(*key) if back.run is None else None
        stopping = key in self.state.saving or (server is not None and server.pending == "stop")
        held = any((lease.user, lease.server) == key for lease in self.state.leases.values())
        ticket, facts = self.state.live_ticket(*key), self.state.facts.get(key)
        seen = ReturnSeen(held, ticket is not None, server is not None, facts, stopping)
        now = self.state.clock.now()
        step = culling.next_step(back, seen, now)
        if step is ReturnStep.START:
            await self._start(replace(back, asked=now, tries=back.tries + 1))
        elif step is ReturnStep.BACK and facts is not None:
            await self._write(replace(back, run=facts.started))
        elif step is ReturnStep.GIVE_UP:
            await self._write(back, NOT_FREE if back.asked is None else NO_ROOM)
        elif step is ReturnStep.FORGET:
            await self._drop(back)

    async def _start(self, asked: ServerReturn) -> None:
        refused = await self.rights.ask_anew(asked.user, CPU)
        if refused is UNANSWERED:
            return
        if isinstance(refused, Reason):
            await self._write(asked, refused)
            return
        if not await self._kept(asked):
            return
        try:
            await self.hub.start(asked.user, asked.server, asked.options, returns=True)
        except StartRefused as problem:
            if problem.status < 500 and problem.status != 429:
                await self._write(asked, explain("not-back-hub-said", answer=problem.message))
            else:
                log.warning("a server does not come back yet: %s", problem, extra={"user": asked.user})

    async def _write(self, back: ServerReturn, why_not: Reason | None = None) -> None:
        """It is back, or is given up."""
        async with self.transaction() as transaction:
            over = why_not is not None
            meta = {RETURNS: write_returns(_others(self.state, back))} if over else with_return(self.state, back)
            await transaction.write(replace(_outcome(self.state, back, why_not), meta=meta))

    async def _kept(self, back: ServerReturn) -> bool:
        """False: a sign-out came meanwhile."""
        async with self.transaction() as transaction:
            if (back.user, back.server) not in self.state.returns:
                return False
            await transaction.write(Changes(meta=with_return(self.state, back)))
            return True

    async def _drop(self, back: ServerReturn) -> None:
        async with self.transaction() as transaction:
            await transaction.write(Changes(meta={RETURNS: write_returns(_others(self.state, back))}))
