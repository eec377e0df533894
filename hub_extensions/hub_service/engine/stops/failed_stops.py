"""Stops that are not over by their deadline: noted, shown to admins, counted, and tried again until they are over.

Each is one of two: the hub refuses it (`Culler` asks again after a pause), or the hub was asked and the lease is still
ending. What the hub calls done while process or pod lives is ended by this service. Not here: when a stop has failed
(``core/culling/failed_stops.py``), and the proof that nothing is left (``local_leases.py``, ``cluster_leases.py``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from hub_extensions.adapters.store import Changes, JournalFilter, JournalRow, StoreUnavailable
from hub_extensions.core import culling, messages
from hub_extensions.core.culling import TO_DO, Action, OpenStop, StopFault, StopPause
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.model import Lease, LeaseState
from hub_extensions.core.text.reasons import Reason, explain
from hub_extensions.hub_service.engine.line.leases import LeaseWatcher
from hub_extensions.hub_service.engine.line.reconcile import CAME_BACK
from hub_extensions.hub_service.engine.state.errors import Refused
from hub_extensions.hub_service.engine.state.state import ServerKey, State
from hub_extensions.hub_service.engine.state.transaction import SERVICE, Transactions
from hub_extensions.hub_service.engine.stops.culler import Culler

log = logging.getLogger("hub_extensions.hub_service")

EVERY = 5.0
ASKED = ("culled", "stopped")
"""The journal's kinds of a lease that ends because somebody stopped its server, unless it came back since."""
ROWS = 1000
"""So many stops of one user are searched for that of a lease."""


@dataclass(frozen=True, slots=True)
class StopAlarm:
    """A stop that has failed.

    Attributes:
        key: the lease, or of a refused stop user and server. pause: before the next try; None: none was made yet.
        why: how it stands, for an admin.
    """

    key: str | ServerKey
    server: ServerKey
    offer: OfferId
    since: datetime
    fault: StopFault
    why: Reason
    pause: StopPause | None = None

    @property
    def text(self) -> str:
        """How it stands, in English."""
        return self.why.message


class FailedStops:
    """Finds them every few seconds.

    Attributes:
        alarms: by the lease, or by user and server.
    """

    def __init__(self, state: State, transaction: Transactions, culler: Culler, leases: LeaseWatcher) -> None:
        self.state = state
        self.transaction = transaction
        self.culler = culler
        self.leases = leases
        self.alarms: dict[str | ServerKey, StopAlarm] = {}
        self._ending_since: dict[str, datetime] = {}
        self._asked: dict[str, bool] = {}

    async def run(self) -> None:
        """Refresh until cancelled."""
        while True:
            try:
                await self.refresh()
            except StoreUnavailable as problem:
                log.debug("failed stops are not known: %s", problem.message)
            await asyncio.sleep(EVERY)

    async def refresh(self) -> None:
        """Find what has failed, note what is new, and end again what the hub calls done.

        Raises:
            StoreUnavailable: whether a lease ends by a stop cannot be read.
        """
        before = self.alarms
        found = {each.key: each for each in (*self._refused(), *self._not_over(await self._asked_for()))}
        self.alarms = {
            key: replace(each, pause=before[key].pause if key in before and each.pause is None else each.pause)
            for key, each in found.items()
        }
        for key in before.keys() - self.alarms.keys():
            log.warning("a stop that had failed is over", extra=_who(before[key]))
        await self._note([each for key, each in self.alarms.items() if key not in before])
        for each in tuple(self.alarms.values()):
            await self._end_again(each)

    def info(self) -> tuple[messages.FailedStop, ...]:
        """For admins, the oldest first."""
        wall = self.state.clock.wall
        return tuple(
            messages.FailedStop(
                user=each.server[0],
                server=each.server[1],
                offer=each.offer,
                since=wall(each.since),
                fault=each.fault.value,
                tries=0 if each.pause is None else each.pause.failures,
                next_try=None if each.pause is None else wall(each.pause.until),
                text=each.text,
                to_do=TO_DO[each.fault],
            )
            for each in sorted(self.alarms.values(), key=lambda alarm: alarm.since)
        )

    # -------------------------------------------------------------- finding them

    def _refused(self) -> Iterator[StopAlarm]:
        """The hub was asked, and did not do it; the server still has to be stopped."""
        for server, pause in self.culler.pauses.items():
            facts = self.state.facts.get(server)
            if facts is None or not pause.why or pause.since is None:
                continue
            fault = self._fault(OpenStop(pause.since, released=False, listed=True))
            if fault is not None and self.culler.decision(facts).action is Action.STOP:
                why = explain("stop-refused-with", answer=pause.why)
                yield StopAlarm(server, server, facts.offer, pause.since, fault, why, pause)

    async def _asked_for(self) -> list[Lease]:
        """Leases that are ending for so long that their stops have failed, if they are stops.

        That is what the journal says of them. What the hub has only forgotten goes on, and is shown as such.
        """
        now, deadline = self.state.clock.now(), self.state.policy.stop_deadline
        ending = {lease.id: lease for lease in self.state.leases.values() if lease.state is LeaseState.ENDING}
        self._ending_since = {lease: self._ending_since.get(lease, now) for lease in ending}
        self._asked = {lease: asked for lease, asked in self._asked.items() if lease in ending}
        late = [lease for lease in ending.values() if now - self._ending_since[lease.id] >= deadline]
        for lease in late:
            if lease.id not in self._asked:
                rows = await self.state.store.journal(ROWS, JournalFilter(user=lease.user, kinds=(*ASKED, CAME_BACK)))
                last = next((row.kind for row in rows if row.lease == lease.id), "")
                self._asked[lease.id] = last in ASKED
        return [lease for lease in late if self._asked[lease.id]]

    def _not_over(self, ending: Iterable[Lease]) -> Iterator[StopAlarm]:
        """Its lease is ending and does not end."""
        for lease in ending:
            since = self._ending_since[lease.id]
            listed = self.state.lists(lease)
            fault = self._fault(OpenStop(since, released=True, listed=listed))
            if listed is None and lease.id in self.alarms:
                yield self.alarms[lease.id]  # nobody can tell now, and its lease is ending still
            elif fault is not None:
                why = explain("stop-hangs") if fault is StopFault.HANGS else self._left(lease)
                yield StopAlarm(lease.id, (lease.user, lease.server), lease.offer, since, fault, why)

    def _fault(self, stop: OpenStop) -> StopFault | None:
        return culling.fault_of(stop, self.state.policy.stop_deadline, self.state.clock.now())

    def _left(self, lease: Lease) -> Reason:
        left = self.leases.what_is_left(lease)
        return explain("stop-left", left=left) if left else explain("stop-left-something")

    # -------------------------------------------------------------- noting them, and trying again

    async def _note(self, new: list[StopAlarm]) -> None:
        for each in new:
            log.error("a stop has failed (%s): %s It is tried again.", each.fault.value, each.text, extra=_who(each))
        if not new:
            return
        at = self.state.clock.utc_now()
        rows = tuple(
            JournalRow.because(
                at,
                "stop-failed",
                (each.key if isinstance(each.key, str) else None, *each.server),
                [each.why],
                SERVICE,
                [explain("seen-fault", fault=each.fault.value, at=self.state.clock.wall(each.since))],
            )
            for each in new
        )
        with suppress(Refused):  # it is shown all the same
            async with self.transaction() as transaction:
                await transaction.write(Changes(journal=rows))

    async def _end_again(self, alarm: StopAlarm) -> None:
        """End what the hub calls done and still lives; after each try a longer pause."""
        now = self.state.clock.now()
        if alarm.fault is not StopFault.ALIVE or (alarm.pause is not None and now < alarm.pause.until):
            return
        async with self.transaction():  # not while it comes back
            lease = self.state.leases.get(str(alarm.key))
            if lease is None or lease.state is not LeaseState.ENDING or self.state.lists(lease) is not False:
                return
        await self.leases.end_again(lease)  # nobody else has had a turn since
        self.alarms[alarm.key] = replace(alarm, pause=culling.pause_after(alarm.pause, now, why=alarm.text))


def _who(alarm: StopAlarm) -> dict[str, str]:
    return {"user": alarm.server[0], "server": alarm.server[1]}
