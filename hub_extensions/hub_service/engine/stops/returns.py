"""Start servers again without a GPU after their GPU was taken back (``c.GpuCulling.restart_on_cpu``).

A return (the restart of a server without a GPU) is part of the record of its stop. It is written before the hub is
asked for the stop, so that it is not lost if the service is killed, the hub does not answer or a write fails. The
request to start the server is also written before it is sent. If the stop is not carried out, the return is deleted.
``core/stops/returns.py`` decides which step comes next, and ``culler.py`` carries out the stop.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from hub_extensions.adapters.hub.jupyterhub_api import HubApi, HubAway, HubRefused, StartRefused
from hub_extensions.adapters.store import Changes, JournalRow, NoticeRow
from hub_extensions.core.offers.offer_id import CPU
from hub_extensions.core.stops import ReturnSeen, ReturnStep, ServerReturn, StopRecord, lifecycle, next_step
from hub_extensions.core.text.reasons import Reason, explain
from hub_extensions.hub_service.engine.line.rights import UNANSWERED, Rights
from hub_extensions.hub_service.engine.state.errors import Refused
from hub_extensions.hub_service.engine.state.state import State
from hub_extensions.hub_service.engine.state.transaction import SERVICE, Transactions
from hub_extensions.hub_service.engine.stops.stop_records import of_server
from hub_extensions.hub_service.engine.views.cull_audit import NOT_RETURNED, RETURNED

log = logging.getLogger("hub_extensions.hub_service")

EVERY = 2.0  # seconds between two checks
NOT_FREE = explain("not-back-in-time")
NO_ROOM = explain("not-back-no-room")
SIGNED_OUT = explain("not-back-signed-out")


def without_returns_of(state: State, user: str) -> Changes:
    """Return the changes that cancel all returns (restarts without a GPU) of a user who was signed out, with notices.

    A server that is back already goes on.
    """
    pending = [stop for stop in state.stops.values() if stop.user == user and stop.back and stop.back.run is None]
    stopped = [stop.back for stop in pending if stop.back and (user, stop.server) not in state.facts]
    outcomes = [_outcome(state, each, SIGNED_OUT) for each in stopped]
    without = _with_back(*((stop, None) for stop in pending))
    return replace(
        without,
        notices=tuple(notice for each in outcomes for notice in each.notices),
        journal=tuple(row for each in outcomes for row in each.journal),
    )


def _with_back(*changed: tuple[StopRecord, ServerReturn | None]) -> Changes:
    """Return the changes that store the next step of each return (the restart of a server without a GPU).

    Args:
        changed: pairs of a stop and its return after the step. `None` as the return deletes it.
    """
    after = [(stop, lifecycle.return_as(stop, back)) for stop, back in changed]
    return Changes(
        stops=tuple(each for _, each in after if each is not None),
        gone_stops=tuple(stop.key for stop, each in after if each is None),
    )


def _outcome(state: State, back: ServerReturn, why_not: Reason | None = None) -> Changes:
    """Return the notice and the row of the journal about the outcome of a return.

    Args:
        state: the state.
        back: the return.
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


class Returns:
    """Starts servers again without a GPU after they were stopped, and notifies their users of the outcome."""

    def __init__(self, state: State, transaction: Transactions, hub: HubApi, rights: Rights) -> None:
        self.state = state
        self.transaction = transaction
        self.hub = hub
        self.rights = rights

    async def run(self) -> None:
        """Carry out all returns (restarts without a GPU) until cancelled."""
        while True:
            await self.go_on()
            await asyncio.sleep(EVERY)

    async def go_on(self) -> None:
        """Take the next step of each return, if there is one now."""
        for stop in tuple(self.state.stops.values()):
            if stop.back is None:
                continue
            try:
                await self._go_on(stop, stop.back)
            except (HubAway, HubRefused, Refused) as problem:
                log.debug("a return waits: %s", problem)

    async def _go_on(self, stop: StopRecord, back: ServerReturn) -> None:
        key = (back.user, back.server)
        server = await self.hub.server(*key) if back.run is None else None
        stopping = stop.began is not None or (server is not None and server.pending == "stop")
        held = any((lease.user, lease.server) == key for lease in self.state.leases.values())
        ticket, facts = self.state.live_ticket(*key), self.state.facts.get(key)
        run, on_gpu = (None, False) if facts is None else (facts.started, facts.lease is not None)
        seen = ReturnSeen(held, ticket is not None, server is not None, run, on_gpu, stopping)
        now = self.state.clock.now()
        step = next_step(back, seen, now)
        if step is ReturnStep.START:
            await self._start(replace(back, asked=now, tries=back.tries + 1))
        elif step is ReturnStep.BACK and facts is not None:
            await self._write(replace(back, run=facts.started))
        elif step is ReturnStep.GIVE_UP:
            await self._write(back, NOT_FREE if back.asked is None else NO_ROOM)
        elif step is ReturnStep.FORGET:
            await self._note(back, None)

    async def _start(self, asked: ServerReturn) -> None:
        refused = await self.rights.ask_anew(asked.user, CPU)
        if refused is UNANSWERED:
            return
        if isinstance(refused, Reason):
            await self._write(asked, refused)
            return
        if not await self._note(asked, asked):
            return  # a sign-out came meanwhile
        try:
            await self.hub.start(asked.user, asked.server, asked.options, returns=True)
        except StartRefused as problem:
            if problem.status < 500 and problem.status != 429:
                await self._write(asked, explain("not-back-hub-said", answer=problem.message))
            else:
                log.warning("a server does not come back yet: %s", problem, extra={"user": asked.user})

    async def _write(self, back: ServerReturn, why_not: Reason | None = None) -> None:
        """Record the outcome of a return.

        Args:
            back: the return.
            why_not: why the server does not come back. `None` if it is back.
        """
        await self._note(back, back if why_not is None else None, _outcome(self.state, back, why_not))

    async def _note(self, back: ServerReturn, after: ServerReturn | None, outcome: Changes | None = None) -> bool:
        """Write the next step of a return, with the notice and the journal's row of its outcome.

        Args:
            back: the return before the step.
            after: the return after the step. `None` to delete it.
            outcome: the notice and the journal's row. `None` while there is no outcome.

        Returns:
            False if the return has been cancelled meanwhile; nothing is written then.
        """
        async with self.transaction() as transaction:
            stops = self.state.stops.values()
            stop = next(
                (
                    each
                    for each in stops
                    if each.back is not None
                    and each.back.ended == back.ended
                    and (each.user, each.server) == (back.user, back.server)
                ),
                None,
            )
            if stop is None:
                return False
            changed = _with_back((stop, after))
            outcome = outcome or Changes()
            await transaction.write(replace(outcome, stops=changed.stops, gone_stops=changed.gone_stops))
            return True
