"""The wait forecast's part of the state: the last result, past forecasts with their outcomes, and uses to learn from.

A use is one server's time with a GPU. This part is updated after each commit to the store, like the rest of the state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from hub_extensions.adapters.store import Changes
from hub_extensions.core.forecast.progress import (
    ACCEPTED,
    OVERDUE,
    is_at_work,
    is_end_known,
    is_trusted,
    judged,
    outcome,
    still_remembered,
    with_missed,
)
from hub_extensions.core.forecast.results import (
    FEW,
    LAST,
    VALID,
    Accuracy,
    Given,
    Likely,
    LikelyWaits,
    PoolView,
    Stay,
    accuracy_of,
    usual_ends,
    with_likely,
)
from hub_extensions.core.messages import ForecastRecord, ForecastReport, Progress
from hub_extensions.core.offers.model import GpuOffer
from hub_extensions.core.queue.model import Availability, Ticket, Verdict
from hub_extensions.core.queue.wait_bound import WaitForecast
from hub_extensions.core.usage.stays import stay_of
from hub_extensions.hub_service.engine.forecasts.past_uses import PastUses
from hub_extensions.hub_service.engine.state.clock import RunningClock
from hub_extensions.hub_service.engine.state.meta import MISSED_ENDS, read_missed_ends, write_missed_ends

ServerKey = tuple[str, str]  # name of the user and of the server
NONE_MISSED: Mapping[str, tuple[datetime, ...]] = {}
UNREAD = 20_000
"""Maximum number of finished uses (one server's time with a GPU) that are kept until they are learned."""


class ForecastState:
    """The state of the wait forecast, a part of `State`.

    Attributes:
        waits: the likely waits as they were computed last; `None` before the first computation.
        revision: grows with every change of tickets (places in line), leases (servers' rights to their GPUs), devices
            and pools (devices of one kind).
        stays: finished uses (one server's time with a GPU) from which the calculator has not learned yet.
        matured: forecasts whose tickets have started, from which the calculator has not learned yet.
        given: ticket id -> the forecasts that its user was given and whose outcome is not known yet.
        records: pool -> the latest forecasts whose tickets have started, with the real waits.
        joins: pool -> the forecasts of `records` that users were given when they joined the line.
        progress: server -> its last report of when its computation will be done, and that end on the running clock
            (which stands still while the hub is away). Its spread is as large as the user is trusted.
        claims: server -> the earlier report by which it is judged whether a reported end was missed.
        missed: user -> when reported ends were missed, the oldest first.
        past: statistics of past uses: how long starts with each offer take, and how much GPU memory users needed.
    """

    def __init__(self) -> None:
        self.waits: LikelyWaits | None = None
        self.revision = 0
        self.stays: deque[Stay] = deque(maxlen=UNREAD)
        self.matured: deque[Given] = deque(maxlen=UNREAD)
        self.given: dict[str, tuple[Given, ...]] = {}
        self.records: dict[str, deque[Given]] = {}
        self.joins: dict[str, deque[Given]] = {}
        self.progress: dict[ServerKey, tuple[Progress, datetime]] = {}
        self.claims: dict[ServerKey, Progress] = {}
        self.missed: Mapping[str, tuple[datetime, ...]] = {}
        self.past = PastUses()
        self._judged: dict[str, Accuracy] = {}

    def note_change(self) -> None:
        """Have the waits computed again, because devices or offers have changed: increase the revision."""
        self.revision += 1

    def take(self, waits: LikelyWaits) -> None:
        """Keep the likely waits that were just computed. They replace the earlier ones."""
        self.waits = waits

    # -------------------------------------------------------------- for pages and clients

    def fresh(self, elapsed: float) -> LikelyWaits | None:
        """Return the likely waits as they were computed last.

        `None` before they are first computed, or if they are too old to be shown.

        Args:
            elapsed: now, in seconds of the machine's monotonic clock.
        """
        if self.waits is None or elapsed - self.waits.elapsed > VALID.total_seconds():
            return None
        return self.waits

    def of_ticket(self, ticket: Ticket, verdict: Verdict, offer: GpuOffer, clock: RunningClock) -> Verdict:
        """Add the likely wait to the verdict (admission's answer) about a waiting ticket (the user's place in line).

        The verdict is returned unchanged if no wait is known.

        Args:
            ticket: the place in line of a server's user.
            verdict: the answer of admission.
            offer: the offer in whose line the ticket's position is counted.
            clock: the running clock, which stands still while the hub is away.
        """
        waits = self.fresh(clock.elapsed())
        if waits is None or verdict.forecast is None:
            return verdict
        likely = waits.tickets.get(ticket.id)
        pool = self._pool(waits, ticket, offer, likely)
        view = waits.pools.get(pool)
        if view is not None and pool != offer.pool:
            view = replace(view, people=0)  # its usual durations belong to another offer
        forecast = self._with_likely(verdict.forecast, likely, view, pool, offer.plain_name, waits, clock)
        reason = verdict.reason
        if reason.reason == "in-use" and view is not None and forecast.p90 is not None:
            reason = usual_ends(view, offer.plain_name, verdict.ahead) or reason
        return replace(verdict, forecast=forecast, reason=replace(reason, log_message=verdict.reason.log_message))

    def of_offer(self, stands: Availability, clock: RunningClock) -> Availability:
        """Add the likely wait of a user who joins the line now to an offer's availability (its numbers of devices).

        Args:
            stands: the availability, still without a likely wait.
            clock: the running clock, which stands still while the hub is away.

        Returns:
            The availability unchanged if no likely wait is known.
        """
        waits, offer = self.fresh(clock.elapsed()), stands.offer
        if waits is None or not offer.pool:
            return stands
        likely, view = waits.offers.get(offer.id), waits.pools.get(offer.pool)
        return replace(
            stands, wait=self._with_likely(stands.wait, likely, view, offer.pool, offer.plain_name, waits, clock)
        )

    def pool_of(self, waits: LikelyWaits, ticket: Ticket, offer: GpuOffer) -> str:
        """Return the pool (devices of one kind) on whose past uses the forecast of a ticket (place in line) is based.

        Args:
            waits: the likely waits as they were computed last.
            ticket: the place in line of a server's user.
            offer: the offer in whose line its position is counted.
        """
        return self._pool(waits, ticket, offer, waits.tickets.get(ticket.id))

    @staticmethod
    def _pool(waits: LikelyWaits, ticket: Ticket, offer: GpuOffer, likely: Likely | None) -> str:
        """Return the pool (devices of one kind) on whose past uses the forecast of a ticket (place in line) is based.

        It is the first pool of the ticket's wanted offers with enough past uses, as in the simulation. The pool of
        `offer` is returned if no pool has enough of them.

        Args:
            waits: the likely waits as they were computed last.
            ticket: the place in line of a server's user.
            offer: the offer in whose line its position is counted.
            likely: the ticket's likely wait. `None` if it is unknown; the pool of `offer` is returned then.
        """
        if likely is None:
            return offer.pool
        pools = tuple(
            choice.offer.pool for choice in ticket.wanted_offers
        )  # the simulation corrects a forecast by the first pool with enough past uses
        known = (pool for pool in pools if pool in waits.pools and waits.pools[pool].finished >= FEW)
        return next(known, offer.pool)

    def _with_likely(
        self,
        bound: WaitForecast,
        likely: Likely | None,
        view: PoolView | None,
        pool: str,
        title: str,
        waits: LikelyWaits,
        clock: RunningClock,
    ) -> WaitForecast:
        return with_likely(
            bound,
            likely,
            view,
            title=title,
            rough=self.accuracy(pool).rough,
            age=clock.now() - waits.at,
            as_of=clock.utc_now() - timedelta(seconds=clock.elapsed() - waits.elapsed),
        )

    # -------------------------------------------------------------- its own record

    def accuracy(self, pool: str) -> Accuracy:
        """Return how well the latest forecasts for a pool (devices of one kind) predicted the real waits."""
        if pool not in self._judged:
            self._judged[pool] = accuracy_of(pool, self.records.get(pool, ()))
        return self._judged[pool]

    def report(self, clock: RunningClock) -> ForecastReport:
        """Return for administrators how accurate the forecasts for each pool (devices of one kind) are.

        The report also has the age of the likely waits that were computed last. The age is `None` before they are first
        computed, or if they are too old to be shown.

        Args:
            clock: the running clock, which stands still while the hub is away.
        """
        waits = self.fresh(clock.elapsed())
        views = {} if self.waits is None else self.waits.pools
        pools = (
            (self.accuracy(pool), views[pool].finished if pool in views else 0)
            for pool in sorted(views.keys() | self.records.keys())
        )
        age = None if waits is None else clock.elapsed() - waits.elapsed
        return ForecastReport(
            tuple(
                ForecastRecord(
                    found.pool,
                    found.matured,
                    found.coverage_90,
                    found.coverage_80,
                    found.median_error,
                    found.rough,
                    finished,
                    found.episodes,
                    found.worse_than_plain,
                )
                for found, finished in pools
            ),
            None if age is None else clock.utc_now() - timedelta(seconds=age),
            age,
            None if waits is None else waits.took,
        )

    # -------------------------------------------------------------- what happens

    def remember(self, changes: Changes) -> None:
        """Update progress reports, past uses and stored forecasts after a transaction has written these changes."""
        if changes.tickets or changes.leases:
            self.revision += 1
        self.past.remember(changes)
        self.stays.extend(stay for stay in map(stay_of, changes.usage) if stay is not None)
        for server in changes.gone_facts:
            self.progress.pop(server, None)
            self.claims.pop(server, None)
        if MISSED_ENDS in changes.meta:
            self.missed = read_missed_ends(changes.meta[MISSED_ENDS])
        for given in changes.forecasts:
            self._take(given)

    def restore(self, still_open: Iterable[Given], missed: Mapping[str, tuple[datetime, ...]] = NONE_MISSED) -> None:
        """Restore what is stored, after a restart.

        Args:
            still_open: the forecasts whose outcome is not known yet.
            missed: user -> when reported ends were missed.
        """
        self.missed = missed
        for given in still_open:
            self._take(given)

    def came_true(self, stored: Iterable[Given]) -> None:
        """Restore, after a restart, the stored forecasts whose tickets (places in line) have started.

        These forecasts are placed before those whose tickets have started since the restart.

        Args:
            stored: the forecasts, the earliest start first.
        """
        known = {given.id: given for given in stored}
        since = [given for some in self.records.values() for given in some]
        self.records, self.joins, self._judged = {}, {}, {}
        for given in {**known, **{given.id: given for given in since}}.values():
            self._judge(given)

    def _take(self, given: Given) -> None:
        others = tuple(each for each in self.given.pop(given.ticket, ()) if each.id != given.id)
        still = others if given.end else (*others, given)
        if still:
            self.given[given.ticket] = still
        if given.end == "started" and given.waited is not None:
            self._judge(given)
            if given.hour == 0:
                self.matured.append(given)

    def _judge(self, given: Given) -> None:
        self.records.setdefault(given.pool, deque(maxlen=LAST)).append(given)
        self._judged.pop(given.pool, None)
        if given.hour == 0:
            self.joins.setdefault(given.pool, deque(maxlen=LAST)).append(given)

    # -------------------------------------------------------------- reports of progress

    def progress_outcome(self, server: ServerKey, report: Progress, started: datetime, clock: RunningClock) -> str:
        """Return `ACCEPTED` if a server's report of when its computation will be done is used.

        Otherwise a code of the reason, for example because the service already has a later report.

        Args:
            server: name of the user and of the server.
            report: the reported end.
            started: when the server was ready, by the running clock.
            clock: the running clock, which stands still while the hub is away.
        """
        before = self.progress.get(server)
        return outcome(None if before is None else before[0], report, clock.utc_now(), clock.wall(started))

    def record_progress(self, server: ServerKey, report: Progress, started: datetime, clock: RunningClock) -> bool:
        """Record a server's report of when its computation will be done. The arguments are those of `progress_outcome`.

        Returns:
            `False` if the report is not used.
        """
        now = clock.utc_now()
        if self.progress_outcome(server, report, started, clock) != ACCEPTED:
            return False
        claim, _ = judged(self.claims.get(server), report, now)
        self.claims.pop(server, None)
        if claim is not None:
            self.claims[server] = claim
        end = clock.now() - max(timedelta(0), now - report.at) + timedelta(seconds=report.left_seconds)
        self.progress[server] = report, end
        self.revision += 1
        return True

    def is_trusted(self, user: str, now: datetime) -> bool:
        """Return whether the ends that the user's programs report are trusted, by the wall clock."""
        return is_trusted(self.missed.get(user, ()), now)

    def missed_note(self, server: ServerKey, report: Progress, now: datetime) -> Mapping[str, str]:
        """Return the values to store (`engine.state.meta`) if a report shows that an earlier reported end was missed.

        Empty if none was missed, or if the user is not trusted anyway.

        Args:
            server: name of the user and of the server.
            report: an accepted report, before it is recorded.
            now: wall-clock time.
        """
        _, missed = judged(self.claims.get(server), report, now)
        if not missed or not self.is_trusted(server[0], now):
            return {}
        after = {**self.missed, server[0]: with_missed(self.missed.get(server[0], ()), now)}
        return {MISSED_ENDS: write_missed_ends(after)}

    def forgotten_note(self, now: datetime, user: str = "") -> Mapping[str, str]:
        """Return the values to store so that old missed ends are forgotten, and those of a deleted user.

        Empty if nothing is forgotten.

        Args:
            now: wall-clock time.
            user: name of the deleted user; "" for none.
        """
        left = {name: at for name, at in self.missed.items() if name != user and still_remembered(at, now)}
        return {} if left == self.missed else {MISSED_ENDS: write_missed_ends(left)}

    def ends_of(self, server: ServerKey, now: datetime) -> tuple[Progress, datetime] | None:
        """Return a server's last report of when its computation will be done, and that end by the running clock.

        `None` without a report, if the computation has ended, or if the reported end passed longer than `OVERDUE` ago.
        The report may be of a user who is not trusted: that matters only for the waits of others (`is_trusted`).

        Args:
            server: name of the user and of the server.
            now: by the running clock, which stands still while the hub is away.
        """
        found = self.progress.get(server)
        return None if found is None or not is_end_known(found[0]) or now > found[1] + OVERDUE else found

    def training(self, server: ServerKey, now: datetime) -> Progress | None:
        """Return the last report of a program that trains in a server now. `None` if none does.

        Args:
            server: name of the user and of the server.
            now: wall-clock time.
        """
        found = self.progress.get(server)
        return found[0] if found is not None and is_at_work(found[0], now) else None
