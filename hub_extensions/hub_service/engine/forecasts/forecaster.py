"""The likely waits are computed in a thread of their own, one at a time, from a snapshot; the loop never waits for it.

It learns from the records of the store, page by page, then from each use that ends. After each computation those who
wait are given their forecasts, which are kept until they come true. Not here: how it is computed
(``core/forecast/wait_model.py``), what people are told of it (``foresight.py``).
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import TypeVar

from hub_extensions.adapters.allocator import give_back
from hub_extensions.adapters.store import Changes, Store, StoreUnavailable
from hub_extensions.core.forecast.inputs import ForecastInputs
from hub_extensions.core.forecast.interval import limited
from hub_extensions.core.forecast.results import FEW, Given, KnownEnd, LikelyWaits, Stay
from hub_extensions.core.forecast.simulate import GivenUp
from hub_extensions.core.forecast.wait_model import Forecasts, WaitModel
from hub_extensions.core.queue.admission import Standing, standing
from hub_extensions.core.queue.model import Lease, Ticket, TicketState
from hub_extensions.core.usage.stays import stay_of
from hub_extensions.hub_service.engine.forecasts.foresight import UNREAD
from hub_extensions.hub_service.engine.state.errors import Refused
from hub_extensions.hub_service.engine.state.meta import POOL_SIZES
from hub_extensions.hub_service.engine.state.state import State
from hub_extensions.hub_service.engine.state.transaction import Transactions

log = logging.getLogger("hub_extensions.hub_service")
T = TypeVar("T")

SEED = 1
"""Always the same: no figure flickers by chance."""
PAUSE = 1.0
"""Seconds between two computations at least."""
EVERY = 30.0
"""Seconds after which it is computed anew though nothing has changed: who stays on is likely to stay longer."""
IMPORTS_EVERY = 10.0
"""How often it is asked whether an admin has imported or removed a history."""
AT_ONCE = 1000
"""Records that are learned from at once, before somebody may say that it is to stop."""
GIVEN_AT_ONCE = 200
"""Forecasts that are kept in one turn of the loop."""
OVERDUE_SECONDS = 60.0
"""A server that is beyond the end it named is likely to be done soon."""


def came_true(teller: WaitModel, given: Given) -> None:
    """It learns from a forecast that was given at a join."""
    joined = given.running.timestamp()
    teller.matured(given.pool, given.played, given.waited or 0.0, given.at_most, joined)


class Forecaster:
    """Computes the likely waits of a state, and puts them there.

    Args:
        transaction: to write what was given. publish: called when there is something new to tell.
    """

    def __init__(
        self, state: State, store: Store, transaction: Transactions, publish: Callable[[], None] = lambda: None
    ) -> None:
        self.state = state
        self._store = store
        self._transaction = transaction
        self._publish = publish
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gpu-forecast")
        self._teller = WaitModel()
        self._closed = False
        self._imports: tuple[int, int] | None = None
        self._sizes: dict[str, int] | None = None
        self._failed = False

    async def run(self) -> None:
        """Learn, then compute for as long as the service runs."""
        loop = asyncio.get_running_loop()
        asked_at = computed_at = -EVERY
        computed: int | None = None
        while True:
            began = loop.time()
            if began - asked_at >= IMPORTS_EVERY and await self.refresh():
                computed = None
            asked_at = began if began - asked_at >= IMPORTS_EVERY else asked_at
            if self.state.foresight.revision != computed or began - computed_at >= EVERY:
                computed, computed_at = self.state.foresight.revision, began
                await self.compute()
            await asyncio.sleep(max(PAUSE, loop.time() - began))

    async def refresh(self) -> bool:
        """Learn from the store's records where that was not done, or where others count since; whether it was."""
        try:
            there = await self._store.imports()
            if there == self._imports:
                return False
            first, self._imports = self._imports is None, there  # who asks for it meanwhile is heard at the next turn
        except StoreUnavailable as problem:
            log.debug("nothing is learned from the store: %s", problem.message)
            return False
        try:
            await self.load(first)
            return True
        except StoreUnavailable as problem:
            log.debug("nothing is learned from the store: %s", problem.message)
        except GivenUp:
            log.debug("the service stops: nothing more is learned")
        self._imports = None
        return False

    def reload_soon(self) -> None:
        """A user was deleted: what was learned of the name is forgotten at the next turn."""
        self._imports = None

    async def load(self, first: bool = True) -> None:
        """Learn anew from the records that ended last; `first`: and from what came true of the forecasts.

        Raises:
            StoreUnavailable: it cannot be read now; what was learned before stays.
        """
        foresight = self.state.foresight
        if first:
            foresight.came_true(await self._store.matured_forecasts())
        foresight.stays.clear()  # the records have them
        pages: list[list[Stay]] = []
        before: str | None = None
        while sum(map(len, pages)) < UNREAD:
            page = await self._store.usage(None, before, AT_ONCE)
            pages.append([stay for stay in map(stay_of, page.uses) if stay is not None])
            before = page.next
            if before is None:
                break
        foresight.matured.clear()
        joins = [given for some in foresight.joins.values() for given in some]
        await self._in_thread(lambda: self._learn_anew(pages, joins))

    def _learn_anew(self, pages: Sequence[Sequence[Stay]], joins: Iterable[Given]) -> None:
        teller = WaitModel()
        for page in reversed(pages):  # each from the last that ended to the first
            if self._closed:
                raise GivenUp
            teller.learn(reversed(page))
        for given in joins:
            came_true(teller, given)
        self._teller = teller

    # -------------------------------------------------------------- one computation

    async def compute(self) -> None:
        """One: from now's snapshot, in the thread. What fails is logged once; the last answer stays until it is old."""
        foresight, clock = self.state.foresight, self.state.clock
        try:
            question, elapsed = self.question(), clock.elapsed()
            stays, matured = tuple(foresight.stays), tuple(foresight.matured)
            foresight.stays.clear()
            foresight.matured.clear()
            found, took = await self._in_thread(lambda: self._answer(question, stays, matured))
            foresight.take(LikelyWaits(question.now, elapsed, found.tickets, found.offers, found.pools, took))
            self._publish()
            await self.give(found)
        except GivenUp:
            return
        except Exception:
            if not self._failed:
                log.exception("no likely waits can be computed")
            self._failed = True
            return
        self._failed = False

    def _answer(
        self, question: ForecastInputs, stays: Sequence[Stay], matured: Sequence[Given]
    ) -> tuple[Forecasts, float]:
        self._teller.learn(stays)
        for each in matured:
            came_true(self._teller, each)
        began = time.thread_time()
        found = self._teller.answer(question, SEED, lambda: not self._closed)
        took = time.thread_time() - began
        give_back()  # the lines that were played took more than anything else here
        return found, took

    def question(self) -> ForecastInputs:
        """Everything it follows from, as it is now."""
        state, clock = self.state, self.state.clock
        now = clock.now()
        asked = {lease.id: self._asked(lease) for lease in state.leases.values()}
        waiting = [ticket for ticket in state.tickets.values() if ticket.state is TicketState.WAITING]
        for ticket in waiting:
            asked[ticket.id] = (ticket.asked or clock.wall(ticket.joined)).timestamp()
        ends = {lease.id: end for lease in state.leases.values() if (end := self._end(lease, now)) is not None}
        return ForecastInputs(state.queue_snapshot(), now, asked, ends)

    def _asked(self, lease: Lease) -> float:
        use = self.state.uses.get(lease.id)
        asked = None if use is None else use.asked or use.admitted
        return (asked or self.state.clock.wall(lease.since)).timestamp()

    def _end(self, lease: Lease, now: datetime) -> KnownEnd | None:
        """The sooner of what a countdown and the server itself say."""
        server = lease.user, lease.server
        found: list[KnownEnd] = []
        facts = self.state.facts.get(server)
        if facts is not None and facts.lease == lease.id and facts.warned is not None and facts.promised is not None:
            found.append(KnownEnd(max(0.0, (facts.promised - now).total_seconds())))
        shown = self.state.foresight.ends_of(server, now)
        if shown is not None:
            found.append(KnownEnd(max(OVERDUE_SECONDS, (shown[1] - now).total_seconds()), shown[0].spread))
        return min(found, key=lambda end: end.seconds, default=None)

    # -------------------------------------------------------------- what is given

    async def give(self, found: Forecasts) -> None:
        """Keep what those who wait are told at their join, and each full hour. What cannot be written is not given."""
        waits = self.state.foresight.waits
        sizes = found.sizes if found.sizes != self._sizes else None
        if waits is None:
            return
        shown = (ticket for ticket in self.state.tickets.values() if ticket.id in waits.tickets)
        due = [(ticket.id, hour) for ticket in shown if (hour := self._due(ticket)) is not None]
        try:
            for first in range(0, len(due), GIVEN_AT_ONCE):
                async with self._transaction() as transaction:
                    given = self._given(waits, due[first : first + GIVEN_AT_ONCE])
                    if given:
                        await transaction.write(Changes(forecasts=given))
            if sizes is not None:
                async with self._transaction() as transaction:
                    await transaction.write(Changes(meta={POOL_SIZES: json.dumps(sizes)}))
                self._sizes = found.sizes
        except Refused as problem:
            log.debug("no forecast is kept: %s", problem)

    def _due(self, ticket: Ticket) -> int | None:
        """The hour of waiting that it has no forecast of yet."""
        if ticket.state is not TicketState.WAITING:
            return None
        hour = int((self.state.clock.now() - ticket.joined) / timedelta(hours=1))
        known = {given.hour for given in self.state.foresight.given.get(ticket.id, ())}
        return None if hour in known else hour

    def _given(self, waits: LikelyWaits, due: Sequence[tuple[str, int]]) -> tuple[Given, ...]:
        standings = standing(self.state.queue_snapshot(), self.state.clock.now())
        made = (self._given_to(ticket, waits, hour, standings) for ticket, hour in due)
        return tuple(given for given in made if given is not None)

    def _given_to(self, ticket_id: str, waits: LikelyWaits, hour: int, standings: Standing) -> Given | None:
        state = self.state
        ticket, likely = state.tickets.get(ticket_id), waits.tickets.get(ticket_id)
        if ticket is None or ticket.state is not TicketState.WAITING or likely is None:
            return None  # it left meanwhile, or it is told nothing
        verdict = standings.of(ticket)
        offer = None if verdict is None or verdict.offer is None else state.offer(verdict.offer)
        if verdict is None or verdict.forecast is None or offer is None:
            return None
        pool = state.foresight.pool_of(waits, ticket, offer)
        view = waits.pools.get(pool)
        if view is None or view.finished < FEW:
            return None
        at_most = None if verdict.forecast.at_most is None else verdict.forecast.at_most.total_seconds()
        shown = limited(likely.shown, at_most, likely.limit_is_p90)
        return Given(
            id=secrets.token_hex(8),
            ticket=ticket.id,
            pool=pool,
            offer=offer.id,
            hour=hour,
            at=state.clock.utc_now(),
            running=waits.at,
            ahead=verdict.ahead,
            played=likely.played,
            shown=shown,
            at_most=at_most,
            rough=state.foresight.accuracy(pool).rough,
        )

    # -------------------------------------------------------------- the thread

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        """What runs gives up soon; nobody waits for it."""
        self._closed = True
        self._thread.shutdown(wait=False, cancel_futures=True)
