"""Alarms for stops that are not over by their deadline. They are logged, shown to administrators and counted.

There are two cases: the hub refuses the stop, so the culler asks again after a pause; or the hub was asked, but the
lease has not ended. If the hub reports the server as stopped while its process or pod lives, this service ends the
process or pod.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from hub_extensions.adapters.store import Changes, JournalRow, StoreUnavailable
from hub_extensions.core import messages
from hub_extensions.core.culling import Action
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.model import Lease, LeaseState
from hub_extensions.core.stops import TO_DO, StopFault, StopKey, StopPause, StopRecord, StopState, fault_of, pause_after
from hub_extensions.core.text.reasons import Reason, explain
from hub_extensions.hub_service.engine.line.leases import LeaseWatcher
from hub_extensions.hub_service.engine.state.errors import Refused
from hub_extensions.hub_service.engine.state.state import State
from hub_extensions.hub_service.engine.state.transaction import SERVICE, Transactions
from hub_extensions.hub_service.engine.stops.culler import Culler

log = logging.getLogger("hub_extensions.hub_service")

EVERY = 5.0  # seconds between two checks


@dataclass(frozen=True, slots=True)
class StopAlarm:
    """A stop that has failed.

    Attributes:
        stop: the record of the stop.
        offer: id of the server's offer.
        since: when its first try failed, or since when the hub reports the server as stopped.
        fault: whether the hub refuses the stop, does not finish it, or reports it as done although the server lives.
        why: a sentence about the state of the stop, for administrators.
    """

    stop: StopRecord
    offer: OfferId
    since: datetime
    fault: StopFault
    why: Reason

    @property
    def pause(self) -> StopPause | None:
        """The pause before the next try. `None` if no try of this service has failed yet."""
        return self.stop.pause


class FailedStops:
    """Searches every few seconds for stops that have failed.

    Attributes:
        alarms: key of the stop -> its alarm.
    """

    def __init__(self, state: State, transaction: Transactions, culler: Culler, leases: LeaseWatcher) -> None:
        self.state = state
        self.transaction = transaction
        self.culler = culler
        self.leases = leases
        self.alarms: dict[StopKey, StopAlarm] = {}

    async def run(self) -> None:
        """Refresh until cancelled."""
        while True:
            await self.refresh()
            await asyncio.sleep(EVERY)

    async def refresh(self) -> None:
        """Find the stops that have failed, record new alarms, and end servers that the hub only reports as stopped."""
        before = self.alarms
        self.alarms = {each.stop.key: each for each in self._found()}
        for key in before.keys() - self.alarms.keys():
            log.warning("a stop that had failed is over", extra=_who(before[key]))
        await self._note([each for key, each in self.alarms.items() if key not in before])
        for each in tuple(self.alarms.values()):
            await self._end_again(each)

    def info(self) -> tuple[messages.FailedStop, ...]:
        """Return the alarms for administrators, the oldest first."""
        wall = self.state.clock.wall
        return tuple(
            messages.FailedStop(
                user=each.stop.user,
                server=each.stop.server,
                offer=each.offer,
                since=wall(each.since),
                fault=each.fault.value,
                tries=0 if each.pause is None else each.pause.failures,
                next_try=None if each.pause is None else wall(each.pause.until),
                text=each.why.message,
                to_do=TO_DO[each.fault],
            )
            for each in sorted(self.alarms.values(), key=lambda alarm: alarm.since)
        )

    # -------------------------------------------------------------- finding them

    def _found(self) -> Iterator[StopAlarm]:
        """Yield the alarms of all failed stops. A server that the hub has forgotten but not stopped gets no alarm."""
        now, deadline = self.state.clock.now(), self.state.policy.stop_deadline
        for stop in self.state.stops.values():
            if stop.state is StopState.ENDING:
                lease = self.state.leases.get(stop.lease)
                if lease is None or lease.state is not LeaseState.ENDING or stop.since is None:
                    continue
                listed, known = self.state.lists(lease), self.alarms.get(stop.key)
                fault = fault_of(stop, listed, deadline, now)
                if listed is None and known is not None:
                    yield replace(known, stop=stop)  # the hub's list is unknown, and the lease is still ending
                elif fault is not None:
                    why = explain("stop-hangs") if fault is StopFault.HANGS else self._left(lease)
                    yield StopAlarm(stop, lease.offer, stop.since, fault, why)
                continue
            facts, pause = self.state.facts.get((stop.user, stop.server)), stop.pause
            if facts is None or facts.started != stop.run or pause is None or pause.since is None:
                continue
            fault = fault_of(stop, None, deadline, now)
            if fault is not None and self.culler.decision(facts).action is Action.STOP:
                yield StopAlarm(stop, facts.offer, pause.since, fault, explain("stop-refused-with", answer=pause.why))

    def _left(self, lease: Lease) -> Reason:
        left = self.leases.what_is_left(lease)
        return explain("stop-left", left=left) if left else explain("stop-left-something")

    # -------------------------------------------------------------- noting them, and trying again

    async def _note(self, found: list[StopAlarm]) -> None:
        """Log new alarms and write them to the journal. Each is written once, also if this service is restarted."""
        new = [each for each in found if not each.stop.alarmed]
        for each in new:
            log.error(
                "a stop has failed (%s): %s It is tried again.", each.fault.value, each.why.message, extra=_who(each)
            )
        if not new:
            return
        at = self.state.clock.utc_now()
        rows = tuple(
            JournalRow.because(
                at,
                "stop-failed",
                (each.stop.lease or None, each.stop.user, each.stop.server),
                [each.why],
                SERVICE,
                [explain("seen-fault", fault=each.fault.value, at=self.state.clock.wall(each.since))],
            )
            for each in new
        )
        with suppress(Refused):  # the alarm is shown even if it cannot be written
            async with self.transaction() as transaction:
                current = (self.state.stops.get(each.stop.key) for each in new)
                alarmed = tuple(replace(stop, alarmed=True) for stop in current if stop is not None)
                await transaction.write(Changes(journal=rows, stops=alarmed))

    async def _end_again(self, alarm: StopAlarm) -> None:
        """End the process or pod of a server that the hub reports as stopped. Each further try has a longer pause."""
        now = self.state.clock.now()
        if alarm.fault is not StopFault.ALIVE or (alarm.pause is not None and now < alarm.pause.until):
            return
        async with self.transaction() as transaction:  # so that the lease does not become a running one meanwhile
            lease, stop = self.state.leases.get(alarm.stop.lease), self.state.stops.get(alarm.stop.key)
            if lease is None or lease.state is not LeaseState.ENDING or self.state.lists(lease) is not False:
                return
            if stop is None:
                return
            tried = replace(stop, pause=pause_after(stop.pause, now, why=alarm.why.message))
            with suppress(StoreUnavailable):  # the server is ended even if the pause cannot be written
                await transaction.write(Changes(stops=(tried,)))
        await self.leases.end_again(lease)  # no other task has run since the transaction
        self.alarms[alarm.stop.key] = replace(alarm, stop=tried)


def _who(alarm: StopAlarm) -> dict[str, str]:
    return {"user": alarm.stop.user, "server": alarm.stop.server}
