"""Carry out every stop: decide about all servers, warn, drain, ask the hub, prove the end, start without a GPU.

`StopRunner.run` is the only loop. Each round reads the record of each stop (`StopRecord`) and asks `core/culling` and
`core/stops` for the stop's next step:

* What follows from the evidence, for all servers in one transaction: a stop is announced, moved, withdrawn or begun,
  and administrators see the stops that have passed their deadline (`decide_all`).
* A stop that begins is carried out by a task of its own: it waits for the drain, checks the server once more, so that a
  user who came back keeps working, and asks the hub.
* After that, a server that still runs although the hub reports it as stopped is ended, and a server that is to come
  back is started without a GPU (`go_on`).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

from hub_extensions.adapters.hub.jupyterhub_api import (
    HubApi,
    HubAway,
    HubRefused,
    HubServer,
    StartRefused,
    StopAnswer,
)
from hub_extensions.adapters.linux.timeouts import with_timeout
from hub_extensions.adapters.store import Changes, JournalRow, NoticeRow, StoreUnavailable
from hub_extensions.core import culling, messages, stops
from hub_extensions.core.culling import Action, Cause, CullDecision, ServerFacts
from hub_extensions.core.notices import Delivery, warning_channels, warning_notices
from hub_extensions.core.offers.offer_id import CPU
from hub_extensions.core.queue import lifecycle
from hub_extensions.core.queue.lifecycle import Event
from hub_extensions.core.queue.model import Lease, LeaseState
from hub_extensions.core.stops import (
    TO_DO,
    DueStop,
    ReturnStep,
    ServerReturn,
    StopCause,
    StopFault,
    StopKey,
    StopPause,
    StopRecord,
    StopState,
    Withdrawal,
    fault_of,
)
from hub_extensions.core.stops import lifecycle as stopping
from hub_extensions.core.stops.lifecycle import STOPS, StopEvent
from hub_extensions.core.text.reasons import Reason, explain
from hub_extensions.core.usage import end_of_cull
from hub_extensions.hub_service.engine.line.leases import LeaseWatcher
from hub_extensions.hub_service.engine.line.rights import UNANSWERED, Rights
from hub_extensions.hub_service.engine.state.batches import in_batches
from hub_extensions.hub_service.engine.state.errors import Refused
from hub_extensions.hub_service.engine.state.state import State
from hub_extensions.hub_service.engine.state.transaction import Transactions
from hub_extensions.hub_service.engine.stops.dcgm import Dcgm
from hub_extensions.hub_service.engine.stops.server_evidence import REPORTS_LAST, ServerEvidence
from hub_extensions.hub_service.engine.stops.stop_records import failed_row, return_outcome, with_back
from hub_extensions.hub_service.engine.uses.usage import Measuring
from hub_extensions.hub_service.engine.views.cull_audit import warned_rows

log = logging.getLogger("hub_extensions.hub_service")

EVERY = 5.0  # seconds between two turns
EVERY_IN_RETURNS = 2.0  # seconds between two turns while a server is to be started again without a GPU
SHORTEST_TURN = 0.2  # minimum seconds between two turns
NOT_FREE = explain("not-back-in-time")
NO_ROOM = explain("not-back-no-room")
AT_A_TIME = 200  # servers that are judged before other tasks of the event loop run

_Judgement = tuple[ServerFacts, ServerFacts, CullDecision]


class StopRunner(ServerEvidence):
    """Takes the next step of the stop of every server, every few seconds.

    Args:
        state: the state, with the records of all stops.
        transaction: changes the state.
        hub: the hub's API, which stops and starts servers.
        dcgm: measurements of devices whose use the service cannot read itself.
        leases: finds and ends what is left of a stopped server.
        rights: checks whether a user may start a server again without a GPU.

    Attributes:
        failed: key of a stop that is not over by its deadline -> why, as a code and as a sentence for administrators.
    """

    def __init__(
        self,
        state: State,
        transaction: Transactions,
        hub: HubApi,
        dcgm: Dcgm,
        leases: LeaseWatcher,
        rights: Rights,
    ) -> None:
        super().__init__(state, dcgm)
        self.transaction = transaction
        self.hub = hub
        self.leases = leases
        self.rights = rights
        self.failed: dict[StopKey, tuple[StopFault, Reason]] = {}
        self._tries: dict[StopKey, asyncio.Task[None]] = {}
        self.measuring = Measuring(state)
        self._dry: dict[tuple[str, str], datetime] = {}
        self._begun: deque[datetime] = deque()
        self._soon = asyncio.Event()
        self._since: datetime | None = None
        self._next_end: datetime | None = None

    async def run(self) -> None:
        """Decide about all servers and continue their stops every few seconds, until cancelled.

        After an order, or when a try to stop a server has ended, the next round begins at once. A step that waits for
        the hub or the cluster does not delay the next decisions.
        """
        going_on: asyncio.Task[None] | None = None
        try:
            while True:
                # before the first decision, too: the use of some devices is known from the second reading on
                with suppress(asyncio.TimeoutError):
                    await with_timeout(self.next_turn(), self._soon.wait())
                self._soon.clear()
                try:
                    await self.decide_all()
                except Refused as problem:
                    log.debug("nothing is culled: %s", problem)
                if going_on is None or going_on.done():
                    if going_on is not None:
                        going_on.result()  # raises what was not expected
                    going_on = asyncio.ensure_future(self.go_on())
        finally:
            if going_on is not None:
                going_on.cancel()

    def next_turn(self) -> float:
        """Return the seconds until `run` decides about all servers again.

        The time is shorter than usual if a server has to stop or start earlier.
        """
        if not self.state.hub_view.is_up:
            return EVERY
        left = (self._next_end - self.state.clock.now()).total_seconds() if self._next_end is not None else EVERY
        returns = any(back.run is None for back in self.state.returns.values())
        return min(max(left, SHORTEST_TURN), EVERY, EVERY_IN_RETURNS if returns else EVERY)

    def turn_soon(self) -> None:
        """Have `run` decide about all servers at once, because a stop was ordered or withdrawn."""
        self._soon.set()

    async def decide_all(self) -> None:
        """Decide about every server by the newest measurements, and store the next step of its stop.

        The same transaction stores the measurements, the warnings of users and the alarms for administrators.
        """
        async with self.transaction() as transaction:
            now = self.state.clock.now()
            self._since = self._since or now
            looked = dict(self.state.highest_use)
            judged = await self._judge_all(now)
            ends = (each.begins_at for _, _, each in judged if each.action is Action.WARN)
            self._next_end = min((at for at in ends if at is not None and at > now), default=None)
            chosen = self._stops_to_begin(judged, now)
            stops, over = dict[StopKey, StopRecord](), self._lost_stops(judged)
            changed, warnings, begun = [], list[Delivery](), list[tuple[StopRecord, ServerFacts, CullDecision]]()
            for facts, seen, decision in judged:
                before = self.state.stop_of(seen)
                is_tried = before is not None and _key(seen) in self._tries
                stop = before if is_tried else self._announced(seen, decision, now)
                if stop is not None and (seen.user, seen.server) in chosen:
                    stop = stopping.begin(stop, _causes(decision), now)
                    begun.append((stop, seen, decision))
                if stop is None and before is not None:
                    over.append(before.key)
                elif stop is not None and stop is not before:
                    stops[stop.key] = stop
                self._dry_run(seen, decision, now)
                if seen is not facts and seen != facts:
                    changed.append(seen)
                    warnings += self._warnings(facts, seen, now)
            measured, figures = await self.measuring.take(self.figure_of, self.device_of)
            transaction.state.take_measured(measured)
            left = {key: stop for key, stop in {**self.state.stops, **stops}.items() if key not in over}
            alarmed, alarms = self._new_alarms(left, judged)
            stops.update(alarmed)
            rows = (*warned_rows(self.state, self.grounds, judged), *alarms)
            changes = replace(figures, facts=tuple(changed), deliveries=tuple(warnings), journal=rows)
            await transaction.write(replace(changes, stops=tuple(stops.values()), gone_stops=tuple(over)))
            for stop, seen, decision in begun:
                self._try(stop, seen, decision)
            self.measuring.written()
            transaction.state.clear_highest_use(looked)

    async def _judge_all(self, now: datetime) -> list[_Judgement]:
        """Return the decision about every server (see `_judge`). Other tasks run between batches of servers."""
        return [self._judge(facts, now) async for facts in in_batches(self.state.facts.values(), AT_A_TIME)]

    def _judge(self, facts: ServerFacts, now: datetime) -> _Judgement:
        """Decide whether one server is kept, warned or stopped.

        Args:
            facts: what the service remembers of the server.
            now: the present time of the running clock, which stands still while hub or service is down.

        Returns:
            A triple: `facts` unchanged, the facts after the newest measurements and the decision, and the decision.
        """
        known = self.known(facts)
        seen = self.observe(facts, known, now)
        decision = self.decision(seen, known)
        stop = self.state.stop_of(seen)
        if stop is not None and stop.begun:
            return facts, seen, decision  # a stop that has begun is carried out, whatever is measured
        again = culling.begun_again(seen, decision, known.policy, now)
        if again is not None:
            why = decision.reason.message if decision.reason else ""
            text = "nobody heard the warnings, so the countdown begins again, once: %s"
            log.warning(text, why, extra={"user": facts.user, "server": facts.server})
            seen, decision = again, self.decision(again, known)
        return facts, culling.announced(culling.settle(seen, decision), decision), decision

    def _warnings(self, before: ServerFacts, facts: ServerFacts, now: datetime) -> tuple[Delivery, ...]:
        """Build the notices that warn a user without an open page of the server's stop, if that was decided just now.

        Empty if the announced time of the stop is unchanged, or if the user gave the GPU back or signed out.

        Args:
            before: what the service remembered of the server before the decision.
            facts: the same after the decision.
            now: the present time of the running clock, which stands still while hub or service is down.
        """
        knows = facts.cause in (Cause.SIGNED_OUT, Cause.GIVEN_BACK)
        if facts.announced is None or facts.announced == before.announced or knows:
            return ()
        notice_config, policy = self.state.notices.config, self.state.policy_of(facts.user, facts.offer)
        channels = warning_channels(notice_config, self.state.policy)
        offer = self.state.offer(facts.offer)
        ids = secrets.token_hex(8), secrets.token_hex(8)
        return warning_notices(facts, offer.plain_name if offer else facts.offer, policy, channels, now, ids=ids)

    def _stops_to_begin(self, judged: Sequence[_Judgement], now: datetime) -> set[tuple[str, str]]:
        """Return the servers (user, name) whose stop begins now, or begins again after a restart of this service.

        The settings limit how many stops run at the same time and begin in one minute. Shortly after an outage of the
        hub, no stop begins, because new measurements have to arrive first.

        Args:
            judged: the decisions about all servers.
            now: the present time of the running clock, which stands still while hub or service is down.
        """
        while self._begun and now - self._begun[0] >= stops.COUNTED:
            self._begun.popleft()
        due, pauses = list[DueStop](), dict[tuple[str, str], StopPause]()
        for _, seen, decision in judged:
            stop = self.state.stop_of(seen)
            if _key(seen) in self._tries or not (decision.action is Action.STOP or (stop is not None and stop.begun)):
                continue
            if stop is not None and (stop.state, StopEvent.BEGUN) not in STOPS:
                continue  # the hub has stopped the server, and its facts are removed with its lease
            due.append(self._due(seen, decision, now))
            if stop is not None and stop.pause is not None:
                pauses[seen.user, seen.server] = stop.pause
        back = self.state.hub_view.back
        if not due or (back is not None and now - back < REPORTS_LAST):
            return set()  # after an outage of the hub, wait for new measurements and reports of all servers
        policy = self.state.policy
        at_once, per_minute = policy.concurrent_stop_limit, policy.stops_per_minute
        chosen = stops.stops_to_begin(due, len(self._tries), self._begun, pauses, at_once, per_minute, now)
        self._begun.extend(now for _ in chosen)
        return set(chosen)

    def _announced(self, facts: ServerFacts, decision: CullDecision, now: datetime) -> StopRecord | None:
        """Return the record of a server's stop after this decision.

        The record lists the causes of which the user is warned, such as an idle GPU. A stop that has already begun
        keeps its record. A stop that has failed and waits for its next try loses the pause before that try if it is no
        longer due, for example because the GPU is used again.

        Args:
            facts: what the service remembers of the server.
            decision: the decision about the server.
            now: the present time of the running clock, which stands still while hub or service is down.

        Returns:
            `None` if no stop of the server is announced any more, has begun or waits for another try.
        """
        stop = self.state.stop_of(facts)
        if stop is not None and stop.state not in (StopState.ANNOUNCED, StopState.WAITING):
            return stop  # a stop that has begun is carried out, whatever is measured
        is_due = decision.begins_at is not None and decision.begins_at <= now
        if stop is not None and stop.state is StopState.WAITING and not is_due:
            stop = stopping.calm(stop)
        causes = _announced_causes(decision)
        if causes:
            return stopping.announce(stop or stopping.running(_key(facts), facts.started), causes)
        return None if stop is None or stop.state is StopState.ANNOUNCED else stop

    def _lost_stops(self, judged: Sequence[_Judgement]) -> list[StopKey]:
        """Return the stops whose records have to be deleted, because the run of the server to be stopped is over.

        The server has ended in another way, or it has been started again.

        Args:
            judged: the decisions about all servers that run now.
        """
        runs = {_key(seen): seen.started for _, seen, _ in judged}
        left = (StopState.ENDING, StopState.RETURNING, StopState.RETURNED)
        return [
            key
            for key, stop in self.state.stops.items()
            if key not in self._tries and stop.state not in left and runs.get(key) != stop.run
        ]

    def _due(self, facts: ServerFacts, decision: CullDecision, now: datetime) -> DueStop:
        lease = self.state.leases.get(facts.lease) if facts.lease else None
        waiting = self.waiting(facts.offer) if lease is not None else 0
        return DueStop((facts.user, facts.server), decision.stops_at or now, lease.share if lease else 0, waiting)

    def _dry_run(self, facts: ServerFacts, decision: CullDecision, now: datetime) -> None:
        """In a dry run, log that a server would be stopped, at most once a day for each server.

        Args:
            facts: what the service remembers of the server.
            decision: the decision. In a dry run, it contains the one that would be made without the dry run.
            now: the present time of the running clock, which stands still while hub or service is down.
        """
        would = decision.would
        if would is None:
            return
        key = (facts.user, facts.server)
        if would.action is Action.STOP and now - self._dry.get(key, now - timedelta(days=2)) > timedelta(days=1):
            self._dry[key] = now
            log.info(
                "dry run: would stop this server (%s)",
                would.reason.message if would.reason else "",
                extra={"user": facts.user, "server": facts.server},
            )

    def _new_alarms(
        self, stops: Mapping[StopKey, StopRecord], judged: Sequence[_Judgement]
    ) -> tuple[dict[StopKey, StopRecord], list[JournalRow]]:
        """Find the stops that have passed their deadline, and log those that had not passed it before.

        Args:
            stops: the records of all stops after the present decisions.
            judged: the present decisions about all servers.

        Returns:
            The stops whose alarm is to be written to the journal, with a row for each. Each alarm is written once, also
            if this service is restarted.
        """
        due = {_key(seen): seen.started for _, seen, decision in judged if decision.action is Action.STOP}
        before, found, rows = self.failed, dict[StopKey, tuple[StopFault, Reason]](), list[JournalRow]()
        alarmed = dict[StopKey, StopRecord]()
        for key, stop in stops.items():
            failed = self._fault(stop, key in due and due[key] == stop.run)
            if failed is None:
                continue
            found[key] = failed
            if stop.alarmed:
                continue
            if key not in before:
                about = {"user": stop.user, "server": stop.server}
                log.error(
                    "a stop has failed (%s): %s It is tried again.", failed[0].value, failed[1].message, extra=about
                )
            alarmed[key] = replace(stop, alarmed=True)
            rows.append(failed_row(self.state, stop, *failed))
        for key in before.keys() - found.keys():
            log.warning("a stop that had failed is over", extra={"user": key[0], "server": key[1]})
        self.failed = found  # the alarm is shown even if it cannot be written
        return alarmed, rows

    def _fault(self, stop: StopRecord, is_due: bool) -> tuple[StopFault, Reason] | None:
        """Return why a stop has passed its deadline, as a code and as a sentence. `None` if it has not.

        If the hub has forgotten the server without stopping it, no alarm is raised.

        Args:
            stop: the record of the stop.
            is_due: whether this run of the server still has to stop.
        """
        now, deadline = self.state.clock.now(), self.state.policy.stop_deadline
        if stop.state is not StopState.ENDING:
            fault = fault_of(stop, None, deadline, now) if is_due else None
            answer = "" if stop.pause is None else stop.pause.why
            return None if fault is None else (fault, explain("stop-refused-with", answer=answer))
        lease = self.state.leases.get(stop.lease)
        if lease is None or lease.state is not LeaseState.ENDING:
            return None
        listed = self.state.lists(lease)
        if listed is None and stop.key in self.failed:
            return self.failed[stop.key]  # the hub's list is unknown, and the lease is still ending
        fault = fault_of(stop, listed, deadline, now)
        if fault is not StopFault.ALIVE:
            return None if fault is None else (fault, explain("stop-hangs"))
        left = self.leases.what_is_left(lease)
        return fault, explain("stop-left", left=left) if left else explain("stop-left-something")

    def failed_stops(self) -> tuple[messages.FailedStop, ...]:
        """Return the stops that have passed their deadline, for administrators, the oldest first."""
        wall, found = self.state.clock.wall, list[messages.FailedStop]()
        for key, (fault, why) in self.failed.items():
            stop = self.state.stops.get(key)
            held = self.state.leases.get(key[2]) or self.state.facts.get(key[:2])
            if stop is None or held is None or stop.delayed_since is None:
                continue  # it is over since the last turn
            found.append(
                messages.FailedStop(
                    user=stop.user,
                    server=stop.server,
                    offer=held.offer,
                    since=wall(stop.delayed_since),
                    fault=fault.value,
                    tries=0 if stop.pause is None else stop.pause.failures,
                    next_try=None if stop.pause is None else wall(stop.pause.until),
                    text=why.message,
                    to_do=TO_DO[fault],
                )
            )
        return tuple(sorted(found, key=lambda each: each.since))

    # -------------------------------------------------------------- stopping

    def _try(self, stop: StopRecord, facts: ServerFacts, decision: CullDecision) -> None:
        task = asyncio.ensure_future(self._stop(stop, facts, decision.stops_at))
        self._tries[stop.key] = task
        task.add_done_callback(lambda _: self._tries.pop(stop.key, None))

    async def _stop(self, stop: StopRecord, facts: ServerFacts, at: datetime | None) -> None:
        """Wait until a server is drained, check it once more, and ask the hub to stop it.

        If the hub refuses or does not answer, the next try begins after a pause.

        Args:
            stop: the record of the stop. Its drain (interrupt cells, save notebooks, run the user's hook) has begun.
            facts: what the service remembers of the run of the server that is to be stopped.
            at: the announced time of the stop. `None` if the server stops as soon as it is drained.
        """
        about = {"user": facts.user, "server": facts.server}
        try:
            if not await self._drained(stop, at):
                return
            server = await self.hub.server(facts.user, facts.server)
            if stop.asked is not None and (server is None or server.pending == "stop"):
                await self._stopped(facts)  # the answer was lost, or we were killed
                return
            asked = await self._ask(facts, server)
            if not asked or await self.hub.stop(facts.user, facts.server) is not StopAnswer.ASKED:
                await self._put_off(facts)
                return
            await self._stopped(facts)
        except (HubAway, HubRefused) as problem:
            away = isinstance(problem, HubAway)
            wished = None if isinstance(problem, HubAway) else problem.retry_after
            current = self.state.stop_of(facts)
            before = None if current is None else current.pause
            pause = stops.pause_after(before, self.state.clock.now(), wished, str(problem))
            self.state.count("stop-failed", "hub-away" if away else "refused")
            seconds = (pause.until - self.state.clock.now()).total_seconds()
            log.warning("not stopped, tried again in %.0f s: %s", seconds, problem, extra=about)
            with suppress(Refused):  # nothing can be written now: the next turn begins the stop again
                await self._put_off(facts, pause, is_unsure=away and current is not None and current.asked is not None)
        except Refused as problem:
            log.warning("a stop is not recorded: %s", problem, extra=about)
        finally:
            self._soon.set()

    async def _drained(self, stop: StopRecord, at: datetime | None) -> bool:
        """Wait until a server is drained, or until the time for that is up.

        It is drained when cells are interrupted, notebooks are saved, and the user's hook (a program of the user that
        runs before the stop) has ended.

        Args:
            stop: the record of the stop, whose drain has begun.
            at: the announced time of the stop. `None` if the server stops as soon as it is drained.

        Returns:
            Whether the server is still to be stopped: its stop was not withdrawn, and this run of the server is not
            over.
        """
        began, key = stop.began or self.state.clock.now(), (stop.user, stop.server)
        while True:
            current, facts = self.state.stops.get(stop.key), self.state.facts.get(key)
            if current is None or not current.begun or facts is None or facts.started != stop.run:
                return False
            drain = self.state.policy_of(facts.user, facts.offer).drain
            report, now = self.state.reports.get(key), self.state.clock.now()
            may_come = report is None and now - (self._since or now) < REPORTS_LAST  # after a start of this service
            is_over = not may_come and stops.may_stop_now(report, began, now, drain, current.seen)
            if at is not None:
                at = min((at, *(each.at for each in current.orders)))  # another order may come sooner
            if is_over and (at is None or now >= at) and not self._awaits_sample(current):
                return True
            await asyncio.sleep(0.2)

    def _awaits_sample(self, stop: StopRecord) -> bool:
        """Return whether the stop waits for a measurement of the GPU.

        It does if the user's hook (a program of the user that runs before the stop) has ended, and the use of the GPU
        after that is not known yet.

        Args:
            stop: the record of the stop.
        """
        lease, ended = self.state.leases.get(stop.lease), stop.seen.hook_ended
        sample = None if lease is None or ended is None else self.sample_of(lease)
        return stops.awaits_sample(sample, ended, self.state.clock.utc_now())

    async def _ask(self, facts: ServerFacts, server: HubServer | None) -> bool:
        """Check the server once more, and record that the hub is asked to stop this run of the server.

        Args:
            facts: what the service remembers of the run that is to be stopped.
            server: the server as the hub lists it now. `None` if the hub does not list it.

        Returns:
            False if the server has been started again, its user came back, or the stop was withdrawn.
        """
        await self.dcgm.refresh()  # DCGM's last measurements are some seconds old
        async with self.transaction() as transaction:
            current, stop = self.state.facts.get((facts.user, facts.server)), self.state.stop_of(facts)
            if current is None or current.started != facts.started or server is None or not server.ready:
                return False
            known, now = self.known(current), self.state.clock.now()
            seen = self.observe(current, known, now)
            decision = self.decision(seen, known)
            if decision.action is not Action.STOP or stop is None or not stop.begun:
                return False
            soft, back = known.policy.restart_on_cpu, None
            if stops.comes_back(stop.orders, decision.cause, soft=soft, on_gpu=seen.lease is not None):
                options = stops.cpu_options(server.user_options)
                back = ServerReturn(seen.user, seen.server, options, now, ended=seen.started)
            # gathered now, because the measurements end with the server
            grounds = self.grounds(seen, self.state.leases.get(seen.lease or ""))
            asked = stopping.ask(stop, _causes(decision), grounds, back, now)
            await transaction.write(Changes(stops=(asked,)))
            return True

    async def _put_off(self, facts: ServerFacts, pause: StopPause | None = None, *, is_unsure: bool = False) -> None:
        """Put the stop of this run of a server off until a pause is over.

        Args:
            facts: what the service remembers of the run.
            pause: the pause before the next try. `None` for the shortest one.
            is_unsure: whether the hub may have begun the stop. The stop then counts as begun, and keeps the plan to
                start the server again without a GPU.
        """
        async with self.transaction() as transaction:
            current, stop = self.state.facts.get((facts.user, facts.server)), self.state.stop_of(facts)
            if stop is None or not stop.begun or current is None or current.started != facts.started:
                return
            if is_unsure and pause is not None:
                await transaction.write(Changes(stops=(stopping.fall_silent(stop, pause),)))
                return
            pause = pause or stops.pause_after(None, self.state.clock.now())
            kept = replace(current, cause=None)
            await transaction.write(Changes(facts=(kept,), stops=(stopping.put_off(stop, pause),)))

    async def _stopped(self, facts: ServerFacts) -> None:
        """Record that the hub has stopped this run of a server.

        Args:
            facts: what the service remembers of the run. `with_stops` adds the journal's row and the user's notice
                about its stop.
        """
        key = (facts.user, facts.server)
        async with self.transaction() as transaction:
            current, stop = self.state.facts.get(key), self.state.stop_of(facts)
            if current is None or current.started != facts.started:
                return  # its end was noticed elsewhere and is written already
            lease = self.state.leases.get(facts.lease) if facts.lease else None
            ending = lifecycle.move(lease, Event.CULLED) if lease is not None else None
            transaction.state.touch(facts.user, facts.server)
            await transaction.write(
                Changes(
                    leases=(ending,) if isinstance(ending, Lease) else (),
                    gone_facts=(key,),
                    end=end_of_cull(None if stop is None else stop.cause),
                )
            )

    # -------------------------------------------------------------- after the stop

    async def go_on(self) -> None:
        """Take the next step of each stop for which the hub has been asked already, if such a step is due now.

        If a stop has passed its deadline, the processes or the pod that are left of the server are ended. A server
        that is to come back is started without a GPU.
        """
        for key in tuple(self.state.stops):
            stop = self.state.stops.get(key)
            try:
                if stop is not None and key in self.failed:
                    await self._end_again(stop)
                if stop is not None and stop.back is not None:
                    await self._bring_back(stop, stop.back)
            except (HubAway, HubRefused, Refused) as problem:
                log.debug("a stop waits: %s", problem, extra={"user": key[0], "server": key[1]})

    async def _end_again(self, stop: StopRecord) -> None:
        """End what is left of a server (a process or pod) that the hub reports as stopped.

        This is tried again and again until nothing is left, each time after a longer pause.
        """
        now, (fault, why) = self.state.clock.now(), self.failed[stop.key]
        if fault is not StopFault.ALIVE or (stop.pause is not None and now < stop.pause.until):
            return
        async with self.transaction() as transaction:  # so that the lease does not become a running one meanwhile
            lease, current = self.state.leases.get(stop.lease), self.state.stops.get(stop.key)
            if lease is None or lease.state is not LeaseState.ENDING or self.state.lists(lease) is not False:
                return
            if current is None:
                return
            tried = replace(current, pause=stops.pause_after(current.pause, now, why=why.message))
            with suppress(StoreUnavailable):  # the server is ended even if the pause cannot be written
                await transaction.write(Changes(stops=(tried,)))
        await self.leases.end_again(lease)  # no other task has run since the transaction

    async def _bring_back(self, stop: StopRecord, back: ServerReturn) -> None:
        """Take the next step to start a server again without a GPU.

        Args:
            stop: the record of the stop of the server's earlier run.
            back: how far the restart has come.
        """
        key = (stop.user, stop.server)
        server = await self.hub.server(*key) if back.run is None else None
        facts, now = self.state.facts.get(key), self.state.clock.now()
        step = stops.next_step(
            back,
            now,
            holds_gpu=any((lease.user, lease.server) == key for lease in self.state.leases.values()),
            has_ticket=self.state.live_ticket(*key) is not None,
            listed=server is not None,
            run=None if facts is None else facts.started,
            on_gpu=facts is not None and facts.lease is not None,
            stopping=stop.began is not None or (server is not None and server.pending == "stop"),
        )
        if step is ReturnStep.START:
            await self._start(stop, replace(back, asked=now, tries=back.tries + 1))
        elif step is ReturnStep.BACK and facts is not None:
            await self._note_return(stop, replace(back, run=facts.started), return_outcome(self.state, back))
        elif step is ReturnStep.GIVE_UP:
            await self._give_up(stop, back, NOT_FREE if back.asked is None else NO_ROOM)
        elif step is ReturnStep.FORGET:
            await self._note_return(stop, None)

    async def _start(self, stop: StopRecord, asked: ServerReturn) -> None:
        """Ask the hub to start a server without a GPU, if its user may have a server without a GPU.

        The request is stored in the record of the stop before it is sent. So it is not lost if this service is killed.

        Args:
            stop: the record of the stop of the server's earlier run.
            asked: the restart, with this request counted.
        """
        refused = await self.rights.ask_anew(asked.user, CPU)
        if refused is UNANSWERED:
            return
        if isinstance(refused, Reason):
            await self._give_up(stop, asked, refused)
            return
        if not await self._note_return(stop, asked):
            return  # a sign-out came meanwhile
        try:
            await self.hub.start(asked.user, asked.server, asked.options, returns=True)
        except StartRefused as problem:
            if problem.status < 500 and problem.status != 429:
                await self._give_up(stop, asked, explain("not-back-hub-said", answer=problem.message))
            else:
                log.warning("a server does not come back yet: %s", problem, extra={"user": asked.user})

    async def _give_up(self, stop: StopRecord, back: ServerReturn, why_not: Reason) -> None:
        await self._note_return(stop, None, return_outcome(self.state, back, why_not))

    async def _note_return(self, stop: StopRecord, after: ServerReturn | None, outcome: Changes | None = None) -> bool:
        """Write how far the restart of a server without a GPU has come.

        Args:
            stop: the record of the stop, before this step.
            after: the restart after this step. `None` to delete it.
            outcome: the changes with the user's notice and the journal's row about success or failure of the restart.
                `None` while neither is known.

        Returns:
            False if the restart has been cancelled meanwhile; nothing is written then.
        """
        async with self.transaction() as transaction:
            current = self.state.stops.get(stop.key)
            if current is None or current.back is None:
                return False
            changed = with_back((current, after))
            outcome = outcome or Changes()
            await transaction.write(replace(outcome, stops=changed.stops, gone_stops=changed.gone_stops))
            return True

    # -------------------------------------------------------------- withdrawals

    def refuse_withdrawal(self, facts: ServerFacts) -> Reason | None:
        """Return why this server's stop cannot be withdrawn any more. `None` if it can."""
        return stops.refuse_withdrawal(self.state.stop_of(facts))

    def without_orders(self, facts: ServerFacts, by: Withdrawal) -> Changes | None:
        """Return the changes to write for the withdrawal of orders to stop a server, with the notice for its user.

        Other causes still stop the server at their own times. The result is `None` if no order is withdrawn by this
        action, or if the stop cannot be withdrawn any more.

        Args:
            facts: what the service remembers of the server.
            by: the action, which determines the orders that are withdrawn.
        """
        taken = [each for each in self.state.orders_of(facts) if each.withdrawn_by is by]
        if not taken or self.refuse_withdrawal(facts) is not None:
            return None
        left = culling.undo(facts, taken)
        return replace(self.withdrawn(left, by), facts=(left,), notices=(self.undone(facts, by),))

    def undone(self, facts: ServerFacts, by: Withdrawal) -> NoticeRow:
        """Return the notice for a server's user that an order to stop the server was withdrawn.

        Args:
            facts: what the service remembers of the server.
            by: the action that withdrew the order, such as that of an administrator.
        """
        told = explain("reclaim-undone") if by is Withdrawal.LINE else explain("admin-stop-undone")
        return NoticeRow.because(self.state.clock.utc_now(), facts.user, facts.server, told)

    def withdrawn(self, after: ServerFacts, by: Withdrawal) -> Changes:
        """Return the changes to write to the record of a server's stop, because some of its causes were withdrawn.

        If other causes remain, the record keeps only these. Otherwise the record is deleted. Without a record, the
        result is empty.

        Args:
            after: the server's facts after the withdrawal.
            by: the action, such as *Keep* of the user, which determines the causes that are withdrawn.
        """
        stop = self.state.stop_of(after)
        if stop is None:
            return Changes()
        orders = stops.without(stop.orders, by)
        decision = self.decision(after, orders=orders)
        causes = _announced_causes(decision)
        if decision.action is Action.STOP:
            return Changes(stops=(stopping.announce(stop, causes),))  # another cause is due as well
        left = stopping.withdraw(stop, causes)
        return Changes(gone_stops=(stop.key,)) if left is None else Changes(stops=(left,))

    async def note_interrupt(self, user: str, server: str) -> bool:
        """Record that the server receives the request to interrupt its kernels.

        From then on, the stop of the server cannot be withdrawn.

        Returns:
            Whether to send the request. False if the stop has been withdrawn meanwhile.
        """
        async with self.transaction() as transaction:
            facts = self.state.facts.get((user, server))
            stop = None if facts is None else self.state.stop_of(facts)
            if stop is None or stop.began is None or not stop.begun:
                return False
            if stop.interrupted is None:
                await transaction.write(Changes(stops=(stopping.interrupt(stop, self.state.clock.now()),)))
            return True


def _key(facts: ServerFacts) -> StopKey:
    return facts.user, facts.server, facts.lease or ""


def _causes(decision: CullDecision) -> tuple[StopCause, ...]:
    return () if decision.stop is None else decision.stop.causes


def _announced_causes(decision: CullDecision) -> tuple[StopCause, ...]:
    """Return the causes of a stop if the user is warned of it or somebody ordered it; otherwise an empty tuple.

    Args:
        decision: the culling decision about the server.
    """
    causes = _causes(decision)
    is_announced = decision.action is not Action.KEEP or any(each.stands for each in causes)
    return causes if is_announced else ()
