"""Stopping what holds a GPU for nothing: gather evidence, ask ``core.culling``, warn, save, check again, stop.

Between the decision and the stop the server is checked once more: whoever came back keeps working.
Not here: the evidence (``server_evidence.py``), and what a server is shown of it (``server_view.py``).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

from hub_extensions.adapters.hub.jupyterhub_api import HubApi, HubAway, HubRefused, HubServer, StopAnswer
from hub_extensions.adapters.linux.timeouts import with_timeout
from hub_extensions.adapters.store import Changes, JournalRow
from hub_extensions.core import culling
from hub_extensions.core.culling import (
    Action,
    Cause,
    CullDecision,
    DueStop,
    PagesHeard,
    ServerFacts,
    ServerReturn,
    StopPause,
)
from hub_extensions.core.notices import Delivery, warning_channels, warning_notices
from hub_extensions.core.queue import lifecycle
from hub_extensions.core.queue.lifecycle import Event
from hub_extensions.core.queue.model import Lease
from hub_extensions.core.text.reasons import Reason, explain
from hub_extensions.core.usage import end_of_cull
from hub_extensions.hub_service.engine.state.errors import Refused
from hub_extensions.hub_service.engine.state.slices import in_slices
from hub_extensions.hub_service.engine.state.state import State
from hub_extensions.hub_service.engine.state.transaction import SERVICE, Transactions
from hub_extensions.hub_service.engine.stops.begun_stops import CULLED, TO_END, stopped_notice
from hub_extensions.hub_service.engine.stops.dcgm import Dcgm
from hub_extensions.hub_service.engine.stops.returns import intended_return, with_return, without_return
from hub_extensions.hub_service.engine.stops.server_evidence import REPORTS_LAST, ServerEvidence
from hub_extensions.hub_service.engine.uses.usage import Measuring
from hub_extensions.hub_service.engine.views.cull_audit import warned_rows

log = logging.getLogger("hub_extensions.hub_service")

EVERY = 5.0
SHORTEST_TURN = 0.2
AT_A_TIME = 200
"""So many servers are judged before others have a turn."""

_Judgement = tuple[ServerFacts, ServerFacts, CullDecision]


class Culler(ServerEvidence):
    """Decisions about running servers, carried out."""

    def __init__(
        self,
        state: State,
        transaction: Transactions,
        hub: HubApi,
        dcgm: Dcgm,
        node_of: Callable[[Lease], str] = lambda _: "",
    ) -> None:
        super().__init__(state, dcgm, node_of)
        self.transaction = transaction
        self.hub = hub
        self._stops: set[asyncio.Task[None]] = set()
        self.measuring = Measuring(state)
        self._dry: dict[tuple[str, str], datetime] = {}
        self._begun: deque[datetime] = deque()
        self._pauses: dict[tuple[str, str], StopPause] = {}
        self._soon = asyncio.Event()
        self._since: datetime | None = None
        self._next_end: datetime | None = None

    async def run(self) -> None:
        """Decide every few seconds, and once a stop is over, until cancelled."""
        while True:
            with suppress(asyncio.TimeoutError):  # first: the use of some devices is known from the second reading on
                await with_timeout(self.next_turn(), self._soon.wait())
            self._soon.clear()
            try:
                await self.decide_all()
            except Refused as problem:
                log.debug("nothing is culled: %s", problem)

    def next_turn(self) -> float:
        """Seconds until the next decision: a server whose end comes before waits for no further turn."""
        left = (self._next_end - self.state.clock.now()).total_seconds() if self._next_end is not None else EVERY
        return min(max(left, SHORTEST_TURN), EVERY) if self.state.hub_up else EVERY

    @property
    def pauses(self) -> Mapping[tuple[str, str], StopPause]:
        """Of the servers whose stop has to wait, since it was put off or has failed."""
        return self._pauses

    def decide_soon(self) -> None:
        """Something was ordered."""
        self._soon.set()

    async def decide_all(self) -> None:
        """Fold the samples in, decide about every server, and begin what has to be done."""
        async with self.transaction() as transaction:
            now = self.state.clock.now()
            self._since = self._since or now
            looked = dict(self.state.highest_use)
            judged = await self._judge_all(now)
            ends = (each.begins_at for _, _, each in judged if each.action is Action.WARN)
            self._next_end = min((at for at in ends if at is not None and at > now), default=None)
            beginning = self._stops_to_begin(judged, now)
            changed, warnings = [], list[Delivery]()
            for facts, seen, decision in judged:
                key = (seen.user, seen.server)
                if key in beginning:
                    self._begin_stop(seen, decision, again=facts.stopping is not None)
                elif seen.stopping != facts.stopping and key not in self.state.saving:
                    seen = replace(seen, stopping=facts.stopping)  # its turn comes later
                self._dry_run(seen, decision, now)
                if seen is not facts and seen != facts:
                    changed.append(seen)
                    warnings += self._warnings(facts, seen, now)
            figures = await self.measuring.take(self.figure_of, self.node_of, self.device_of)
            rows = warned_rows(self.state, self.grounds, judged)
            await transaction.write(replace(figures, facts=tuple(changed), deliveries=tuple(warnings), journal=rows))
            self.measuring.written()
            for uuid, use in looked.items():
                if self.state.highest_use.get(uuid) == use:
                    del self.state.highest_use[uuid]

    async def _judge_all(self, now: datetime) -> list[_Judgement]:
        """Every server; others have a turn in between."""
        return [self._judge(facts, now) async for facts in in_slices(self.state.facts.values(), AT_A_TIME)]

    def _judge(self, facts: ServerFacts, now: datetime) -> _Judgement:
        """The facts as they are kept, as they are after a look at the evidence, and what follows."""
        known = self.known(facts)
        seen = self.observe(facts, known, now)
        decision = self.decision(seen, known)
        again = culling.begun_again(seen, decision, known.policy, now)
        if again is not None:
            why = decision.reason.message if decision.reason else ""
            text = "nobody heard the warnings, so the countdown begins again, once: %s"
            log.warning(text, why, extra={"user": facts.user, "server": facts.server})
            seen, decision = again, self.decision(again, known)
        return facts, culling.announced(culling.settle(seen, decision, now), decision), decision

    def _warnings(self, before: ServerFacts, facts: ServerFacts, now: datetime) -> tuple[Delivery, ...]:
        """What is sent of an end that is announced now, to who has no page open. Who ordered it knows it."""
        knows = facts.cause in (Cause.SIGNED_OUT, Cause.GIVEN_BACK)
        if facts.announced is None or facts.announced == before.announced or knows:
            return ()
        notice_config, policy = self.state.notices.config, self.state.policy_of(facts.user, facts.offer)
        channels = warning_channels(notice_config, self.state.policy)
        offer = self.state.offer(facts.offer)
        ids = secrets.token_hex(8), secrets.token_hex(8)
        return warning_notices(facts, offer.plain_name if offer else facts.offer, policy, channels, now, ids=ids)

    def _stops_to_begin(self, judged: Sequence[_Judgement], now: datetime) -> set[tuple[str, str]]:
        """Of those that are to be stopped: who has a turn now. Some are new, some a restart of ours broke off.

        A pause lasts while its server is due, also in a gap of its samples; its next end has nothing of it.
        """
        still = {
            (seen.user, seen.server) for _, seen, each in judged if each.begins_at is not None and each.begins_at <= now
        }
        self._pauses = {server: pause for server, pause in self._pauses.items() if server in still}
        while self._begun and now - self._begun[0] >= culling.COUNTED:
            self._begun.popleft()
        due = [
            self._due(seen, decision, now)
            for _, seen, decision in judged
            if seen.stopping is not None and (seen.user, seen.server) not in self.state.saving
        ]
        back = self.state.hub_back
        if not due or (back is not None and now - back < REPORTS_LAST):
            return set()  # after an outage first everybody's newest figures and reports
        chosen = culling.stops_to_begin(due, len(self.state.saving), self._begun, self._pauses, self.state.policy, now)
        self._begun.extend(now for _ in chosen)
        return set(chosen)

    def _due(self, facts: ServerFacts, decision: CullDecision, now: datetime) -> DueStop:
        lease = self.state.leases.get(facts.lease) if facts.lease else None
        waiting = self.waiting(facts.offer) if lease is not None else 0
        return DueStop((facts.user, facts.server), decision.stops_at or now, lease.share if lease else 0, waiting)

    def _dry_run(self, facts: ServerFacts, decision: CullDecision, now: datetime) -> None:
        """While culling is off, log once a day a server what would have been done."""
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

    # -------------------------------------------------------------- stopping

    def _begin_stop(self, facts: ServerFacts, decision: CullDecision, *, again: bool) -> None:
        """`again`: it had begun before, so the hub may have been asked for it."""
        self.state.saving[(facts.user, facts.server)] = self.state.clock.now()
        self.at_work.discard((facts.user, facts.server))
        self.hook_ended.pop((facts.user, facts.server), None)
        self.pages.pop((facts.user, facts.server), None)
        task = asyncio.ensure_future(self._stop(facts, decision, again))
        self._stops.add(task)
        task.add_done_callback(self._stops.discard)

    async def _stop(self, facts: ServerFacts, decision: CullDecision, again: bool) -> None:
        key, sent = (facts.user, facts.server), False
        try:
            await self._drained(facts, decision.stops_at)
            server = await self.hub.server(*key)
            if self._was_stopped(facts, server, again):
                await self._stopped(facts, decision, self._evidence_of(facts))
                return
            current = await self._still_to_stop(facts, server)
            evidence = self._evidence_of(current or facts)  # what is measured of it ends with it
            sent = current is not None
            self.state.sent[key] = _why(decision), evidence
            if current is None or await self.hub.stop(*key) is not StopAnswer.ASKED:
                await self._cancel_stop(facts)
                return
            await self._stopped(current, decision, evidence)
        except (HubAway, HubRefused) as problem:
            wished = problem.retry_after if isinstance(problem, HubRefused) else None
            pause = culling.pause_after(self._pauses.get(key), self.state.clock.now(), wished, str(problem))
            self.state.count("stop-failed", "refused" if isinstance(problem, HubRefused) else "hub-away")
            seconds = (pause.until - self.state.clock.now()).total_seconds()
            log.warning(
                "not stopped, tried again in %.0f s: %s", seconds, problem, extra={"user": key[0], "server": key[1]}
            )
            with suppress(Refused):  # nothing can be written now: a begun stop is carried on with
                await self._cancel_stop(facts, pause, unsure=(again or sent) and isinstance(problem, HubAway))
        except Refused as problem:
            log.warning("a stop is not recorded: %s", problem, extra={"user": key[0], "server": key[1]})
        finally:
            self.state.saving.pop(key, None)
            self.state.sent.pop(key, None)
            self.hook_ended.pop(key, None)
            self.pages.pop(key, None)
            self._soon.set()

    async def _drained(self, facts: ServerFacts, at: datetime | None) -> None:
        """Its cells are interrupted, its notebooks saved and its user's hook has ended; or it took too long.

        `at`: when it stops, if that is still to come.
        """
        key, began = (facts.user, facts.server), self.state.clock.now()
        drain = self.state.policy_of(facts.user, facts.offer).drain
        while True:
            report, now = self.state.reports.get(key), self.state.clock.now()
            may_come = report is None and now - (self._since or now) < REPORTS_LAST  # after a start of ours
            over = not may_come and culling.may_stop_now(report, began, now, drain, self.pages.get(key, PagesHeard()))
            current = self.state.facts.get(key)
            if at is not None and current is not None:
                at = min((at, *(each.at for each in current.orders)))  # another order may say sooner
            if over and (at is None or now >= at) and not self._awaits_sample(facts):
                return
            await asyncio.sleep(0.2)

    def _awaits_sample(self, facts: ServerFacts) -> bool:
        """Its user's hook has ended, and nothing is known yet of what still uses the GPU."""
        lease, ended = self.state.leases.get(facts.lease or ""), self.hook_ended.get((facts.user, facts.server))
        sample = None if lease is None or ended is None else self.sample_of(lease)
        return culling.awaits_sample(sample, ended, self.state.clock.utc_now())

    def _was_stopped(self, facts: ServerFacts, server: HubServer | None, again: bool) -> bool:
        """It stops or has, and we may have asked for that already: only the end of that stop is missing."""
        over = server is None or server.pending == "stop"
        return over and (again or intended_return(self.state, facts) is not None)

    async def _still_to_stop(self, facts: ServerFacts, server: HubServer | None) -> ServerFacts | None:
        """The facts, if this very run of the server still has to be stopped; None: it is another one, or came back."""
        await self.dcgm.refresh()  # what was measured elsewhere is some seconds old
        async with self.transaction() as transaction:
            current = self.state.facts.get((facts.user, facts.server))
            if current is None or current.started != facts.started or server is None or not server.ready:
                return None
            known = self.known(current)
            seen = self.observe(current, known, self.state.clock.now())
            decision = self.decision(seen, known)
            if decision.action is not Action.STOP:
                return None
            if culling.comes_back(seen, decision.cause, known.policy):
                options, now = culling.cpu_options(server.user_options), self.state.clock.now()
                back = ServerReturn(seen.user, seen.server, options, now, ended=seen.started)
                await transaction.write(Changes(meta=with_return(self.state, back)))
            return seen

    async def _cancel_stop(self, facts: ServerFacts, pause: StopPause | None = None, *, unsure: bool = False) -> None:
        """This run is not stopped now, and not tried again before a pause is over; its next run has nothing of it.

        `unsure`: the hub may have begun the stop, so it stays begun, and so does what is noted of its return.
        """
        key = (facts.user, facts.server)
        self._pauses[key] = pause or culling.pause_after(None, self.state.clock.now())
        async with self.transaction() as transaction:
            current = self.state.facts.get(key)
            there = current is not None and current.started == facts.started
            if not there:
                self._pauses.pop(key, None)
            if unsure:
                return
            kept = (replace(current, stopping=None, cause=None),) if current is not None and there else ()
            changes = Changes(facts=kept, meta=without_return(self.state, facts))
            if not changes.empty:
                await transaction.write(changes)

    def _evidence_of(self, facts: ServerFacts) -> tuple[Reason, ...]:
        return self.grounds(facts, self.state.leases.get(facts.lease or ""))

    async def _stopped(self, facts: ServerFacts, decision: CullDecision, grounds: tuple[Reason, ...]) -> None:
        key = (facts.user, facts.server)
        async with self.transaction() as transaction:
            current = self.state.facts.get(key)
            if current is None or current.started != facts.started:
                return  # whoever saw its end first has written it (`begun_stops.py`)
            lease = self.state.leases.get(facts.lease) if facts.lease else None
            ending = lifecycle.move(lease, Event.CULLED) if lease is not None else None
            wall = self.state.clock.utc_now()
            row = JournalRow.because(wall, CULLED, (facts.lease, *key), [_why(decision)], SERVICE, grounds)
            self.state.touch(facts.user, facts.server)
            self.state.count_cull(decision.cause, self.state.rule_of(facts.user, facts.offer))
            log.info("culled: %s", row.text, extra={"user": facts.user, "server": facts.server})
            await transaction.write(
                Changes(
                    leases=(ending,) if isinstance(ending, Lease) else (),
                    gone_facts=((facts.user, facts.server),),
                    journal=(row,),
                    notices=(stopped_notice(row),),
                    end=end_of_cull(decision.cause),
                )
            )


def _why(decision: CullDecision) -> Reason:
    return decision.reason or explain(TO_END)
