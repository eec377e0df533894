"""Decide when the likely waits of users in line are computed, and store them.

The computation runs in a thread or process of its own, so the event loop never waits for it.

The calculator learns from the usage records in the store, page by page, and then from each use (one server's time with
a GPU) that ends. After each computation the users in line get their forecasts. Some forecasts are stored until the
tickets (places in line) start, to measure their accuracy. ``forecast_state.py`` decides which forecasts are shown.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from hub_extensions.adapters.store import Changes, Store, StoreUnavailable
from hub_extensions.core.forecast.interval import limited
from hub_extensions.core.forecast.results import FEW, ForecastInputs, Given, KnownEnd, LikelyWaits, WaitForecasts
from hub_extensions.core.queue.admission import Standing, standing
from hub_extensions.core.queue.model import Lease, Ticket, TicketState
from hub_extensions.core.usage.stays import stay_of
from hub_extensions.hub_service.engine.forecasts.forecast_state import UNREAD
from hub_extensions.hub_service.engine.forecasts.forecast_worker import ForecastWorker
from hub_extensions.hub_service.engine.state.errors import CalculationEnded, Refused
from hub_extensions.hub_service.engine.state.meta import POOL_SIZES
from hub_extensions.hub_service.engine.state.state import State
from hub_extensions.hub_service.engine.state.transaction import Transactions

if TYPE_CHECKING:
    from hub_extensions.hub_service.engine.forecasts.calculator import ForecastCalculator

log = logging.getLogger("hub_extensions.hub_service")
T = TypeVar("T")

SEED = 1
"""Seed of every simulation. It is always the same, so that no forecast changes by chance."""
PAUSE = 1.0
"""Minimum seconds between the starts of two computations."""
EVERY = 30.0
"""Seconds after which the waits are computed again although no ticket or lease has changed, because time has passed."""
IDLE = 300.0
"""If nobody holds or waits for a GPU for this many seconds, the calculator's memory is released. When the next user
comes, it takes a second or two to load the history of 20,000 uses (one server's time with a GPU each) again."""
IMPORTS_EVERY = 10.0
"""Seconds between two checks whether the history has to be loaded again, for example after an administrator imported
usage records."""
AT_ONCE = 1000
"""Records per page of the history."""
GIVEN_AT_ONCE = 200
"""Forecasts written in one transaction."""
OVERDUE_SECONDS = 60.0
"""Minimum seconds for which a server is expected to run on, if it has not ended at the time that it reported."""


class Publisher(Protocol):
    """Publishes the waits of tickets (users' places in line) to the hub and to open pages; `Tickets` implements it."""

    def figures_changed(self) -> None:
        """Publish the statuses of tickets (places in line) soon, because the forecast waits have changed."""


class Forecaster:
    """Has the likely waits of users in line computed, and puts them into the state.

    Args:
        state: the state of the line, of servers and of devices.
        store: the database, from which the history of past uses is read.
        transaction: writes the forecasts that users were given.
        calculator: computes the waits. A `ForecastWorker` does so in a process of its own.
        publisher: is called when there are new waits to show.
    """

    def __init__(
        self,
        state: State,
        store: Store,
        transaction: Transactions,
        calculator: ForecastWorker | ForecastCalculator,
        publisher: Publisher,
    ) -> None:
        self.state = state
        self.calculator = calculator
        self._store = store
        self._transaction = transaction
        self._publisher = publisher
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gpu-forecast")  # waits for the calculator
        self._imports: tuple[int, int] | None = None
        self._sizes: dict[str, int] | None = None
        self._failed = False
        self._history_lost = False
        self._released = False
        self._closed = False

    async def run(self) -> None:
        """Load the history of past uses, then compute the waits at each change and every 30 s, until cancelled.

        After five minutes without servers or users in line, the calculator's memory is released.
        """
        loop = asyncio.get_running_loop()
        asked_at = computed_at = -math.inf
        computed: int | None = None
        while True:
            began = loop.time()
            is_changed = self.state.forecasts.revision != computed
            if self._released and is_changed:
                self._imports, asked_at = None, -math.inf
            if began - asked_at >= IMPORTS_EVERY:
                asked_at = began
                is_changed = await self.refresh() or is_changed
            in_use = bool(self.state.leases or self.state.tickets)
            if not self._history_lost and (is_changed or (in_use and began - computed_at >= EVERY)):
                computed, computed_at = self.state.forecasts.revision, began
                await self.compute()
            elif not in_use and not self._released and began - computed_at >= IDLE:
                await self._in_thread(self.calculator.release)
                self._history_lost = self._released = True
            await asyncio.sleep(max(PAUSE, loop.time() - began))

    async def refresh(self) -> bool:
        """Load the history of past uses if it was not loaded yet or if usage records were imported since.

        Returns:
            Whether it was loaded now.
        """
        try:
            there = await self._store.imports()
            if there == self._imports:
                return False
            # set before loading, so that a `reload_soon` meanwhile counts at the next check
            first, self._imports = self._imports is None, there
            await self.load(first)
            return True
        except StoreUnavailable as problem:
            log.debug("nothing is learned from the store: %s", problem.message)
            self._imports = None
        except CalculationEnded as problem:
            self._lose_history(problem)
        return False

    def reload_soon(self) -> None:
        """Have the history of past uses (one server's time with a GPU each) loaded again at the next check.

        A user was deleted, and the calculator has to forget the user's name.
        """
        if not self._released:
            self._imports = None

    async def load(self, first: bool = True) -> None:
        """Let the calculator forget what it learned, and learn again from the latest usage records.

        Args:
            first: whether to read also the stored forecasts whose tickets (places in line) have started, as after a
                restart.

        Raises:
            StoreUnavailable: the store cannot be read now; what was learned before stays.
            CalculationEnded: the worker process has ended, so the history has to be loaded again.
        """
        matured = await self._store.matured_forecasts() if first else ()
        async with self._transaction() as transaction:
            if first:
                transaction.state.forecasts.came_true(matured)
            transaction.state.forecasts.stays.clear()  # the usage records that are loaded now contain them
        count, before = 0, None
        await self._in_thread(self.calculator.begin_history)
        while count < UNREAD:
            page = await self._store.usage(None, before, AT_ONCE)
            stays = [stay for stay in map(stay_of, page.uses) if stay is not None]
            await self._in_thread(partial(self.calculator.add_page, stays))
            count, before = count + len(stays), page.next
            if before is None:
                break
        async with self._transaction() as transaction:
            transaction.state.forecasts.matured.clear()
            joins = [given for some in self.state.forecasts.joins.values() for given in some]
        await self._in_thread(partial(self.calculator.load_history, joins))
        self._history_lost = self._released = False

    def _lose_history(self, problem: CalculationEnded) -> None:
        """Record that the calculator (which computes the waits) has lost the past uses that it had learned from.

        They are loaded again before the next computation.

        Args:
            problem: the error with which the last computation ended.
        """
        if not self._failed and not self._closed:
            log.warning("the likely waits are computed again in some seconds: %s", problem)
        self._failed = self._history_lost = True
        self._imports = None

    # -------------------------------------------------------------- one computation

    async def compute(self) -> None:
        """Compute the likely waits from the present state, and publish them.

        If that fails, it is logged once, and the last waits are shown until they are too old.
        """
        try:
            async with self._transaction() as transaction:
                question, elapsed = self.question(), self.state.clock.elapsed()
                forecasts = transaction.state.forecasts
                stays, matured = tuple(forecasts.stays), tuple(forecasts.matured)
                forecasts.stays.clear()
                forecasts.matured.clear()
            found, took = await self._in_thread(partial(self.calculator.answer, question, stays, matured, SEED))
            waits = LikelyWaits(question.now, elapsed, found.tickets, found.offers, found.pools, took)
            async with self._transaction() as transaction:
                transaction.state.forecasts.take(waits)
            self._publisher.figures_changed()
            await self.give(found)
        except CalculationEnded as problem:
            self._lose_history(problem)
            return
        except Exception:
            if not self._failed:
                log.exception("no likely waits can be computed")
            self._failed = True
            return
        self._failed = False

    def question(self) -> ForecastInputs:
        """Return the inputs of a computation: the line, the leases (rights to GPUs), and their ends that are known."""
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
        """Return when the server of a lease (right to a GPU) will end.

        The end follows from the announced time of the server's stop, or from the server's report of when its
        computation will be done. If both are known, the earlier one is returned; `None` if neither is known. Reports of
        a user who is not trusted are left out.

        Args:
            lease: a server's right to its GPU.
            now: by the running clock, which stands still while the hub is away.
        """
        server = lease.user, lease.server
        found: list[KnownEnd] = []
        facts = self.state.facts.get(server)
        if facts is not None and facts.lease == lease.id and facts.warned is not None and facts.promised is not None:
            found.append(KnownEnd(max(0.0, (facts.promised - now).total_seconds())))
        shown = self.state.forecasts.ends_of(server, now)
        if shown is not None and self.state.forecasts.is_trusted(lease.user, self.state.clock.utc_now()):
            found.append(KnownEnd(max(OVERDUE_SECONDS, (shown[1] - now).total_seconds()), shown[0].spread))
        return min(found, key=lambda end: end.seconds, default=None)

    # -------------------------------------------------------------- the forecasts that users get

    async def give(self, found: WaitForecasts) -> None:
        """Store the forecasts that users get when they join the line, and after each full hour of waiting.

        They are compared with the real waits later, to measure the accuracy.

        Args:
            found: the likely waits that were just computed.
        """
        waits = self.state.forecasts.waits
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
        """Return how many full hours a ticket (place in line) has waited, if its forecast has to be stored now.

        `None` if a forecast for this number of hours is stored already, or if the ticket does not wait.
        """
        if ticket.state is not TicketState.WAITING:
            return None
        hour = int((self.state.clock.now() - ticket.joined) / timedelta(hours=1))
        known = {given.hour for given in self.state.forecasts.given.get(ticket.id, ())}
        return None if hour in known else hour

    def _given(self, waits: LikelyWaits, due: Sequence[tuple[str, int]]) -> tuple[Given, ...]:
        standings = standing(self.state.queue_snapshot(), self.state.clock.now())
        made = (self._given_to(ticket, waits, hour, standings) for ticket, hour in due)
        return tuple(given for given in made if given is not None)

    def _given_to(self, ticket_id: str, waits: LikelyWaits, hour: int, standings: Standing) -> Given | None:
        state = self.state
        ticket, likely = state.tickets.get(ticket_id), waits.tickets.get(ticket_id)
        if ticket is None or ticket.state is not TicketState.WAITING or likely is None:
            return None  # it left meanwhile, or its wait is not known
        verdict = standings.of(ticket)
        offer = None if verdict is None or verdict.offer is None else state.offer(verdict.offer)
        if verdict is None or verdict.forecast is None or offer is None:
            return None
        pool = state.forecasts.pool_of(waits, ticket, offer)
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
            rough=state.forecasts.accuracy(pool).rough,
        )

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        """Abort the computation that runs now.

        The computation then returns no result. This method does not wait for its end.
        """
        self._closed = True
        self.calculator.close()
        self._thread.shutdown(wait=False, cancel_futures=True)
