"""Stopping what holds a GPU for nothing: gather evidence, ask ``core.culling``, warn, save, check again, stop.

The evidence is the service's own sample of the device; where the card tells it nothing, what DCGM measured; where
nobody measured that, what the server reports of itself; else it is unknown, and unknown is never idle. Between the
decision and the stop the server is checked once more: whoever came back keeps working.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from hub_extensions.adapters.jupyterhub_api import HubApi, HubAway, HubRefused, HubServer
from hub_extensions.adapters.store import Changes, JournalRow, NoticeRow, StoreUnavailable
from hub_extensions.adapters.timeouts import with_timeout
from hub_extensions.core import culling, messages
from hub_extensions.core.culling import (
    Action,
    Cause,
    CullDecision,
    CullPolicy,
    DueStop,
    Evidence,
    ServerFacts,
    StopPause,
)
from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.gpu.samples import DeviceSample, ServerReport
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.queue import lifecycle
from hub_extensions.core.queue.lifecycle import Event
from hub_extensions.core.queue.model import Lease, LeaseState
from hub_extensions.core.reasons import Reason, explain
from hub_extensions.core.usage import Figure, end_of_cull
from hub_extensions.hub_service.engine import presenters
from hub_extensions.hub_service.engine.dcgm import Dcgm, merged
from hub_extensions.hub_service.engine.errors import Refused
from hub_extensions.hub_service.engine.state import State
from hub_extensions.hub_service.engine.transaction import SERVICE, Transactions
from hub_extensions.hub_service.engine.usage import Measuring

log = logging.getLogger("hub_extensions.hub_service")

EVERY = 5.0
AT_A_TIME = 200
"""So many servers are judged before others have a turn."""
REPORTS_LAST = timedelta(seconds=45)
SAMPLES_LAST = timedelta(seconds=30)

_Judgement = tuple[ServerFacts, ServerFacts, CullDecision]


@dataclass(frozen=True, slots=True)
class _PresentEvidence:
    """What is known of a server at one moment, found once for all that follows from it.

    Attributes:
        report: None: there is no fresh one. lease: None: it has no GPU. sample: of its GPU. use: as `Culler.use_of`.
    """

    policy: CullPolicy
    report: ServerReport | None
    lease: Lease | None = None
    sample: DeviceSample | None = None
    use: float | None = None


class Culler:
    """Evidence and decisions about running servers.

    Attributes:
        reports: (user, server) -> what its own extension reported last (and the running time of it).
        activity: (user, server) -> the hub's last activity, from the last listing.
        saving: (user, server) -> running time since which its notebooks are being saved.
        dcgm: what is known of a device's use where the card tells it to nobody here.
        node_of: the node that a lease's server runs on; "" on one machine, and while it is not known.
        people: user -> groups and admin or not, as the hub said last.
    """

    def __init__(
        self,
        state: State,
        transaction: Transactions,
        hub: HubApi,
        dcgm: Dcgm,
        node_of: Callable[[Lease], str] = lambda _: "",
    ) -> None:
        self.state = state
        self.transaction = transaction
        self.hub = hub
        self.dcgm = dcgm
        self.node_of = node_of
        self._stops: set[asyncio.Task[None]] = set()
        self.measuring = Measuring(state)
        self._dry: dict[tuple[str, str], datetime] = {}
        self._begun: deque[datetime] = deque()
        self._pauses: dict[tuple[str, str], StopPause] = {}
        self._soon = asyncio.Event()
        self._since: datetime | None = None

    async def run(self) -> None:
        """Decide every few seconds, and once a stop is over, until cancelled."""
        while True:
            with suppress(asyncio.TimeoutError):  # first: the use of some devices is known from the second reading on
                await with_timeout(EVERY, self._soon.wait())
            self._soon.clear()
            try:
                await self.decide_all()
            except Refused as problem:
                log.debug("nothing is culled: %s", problem)

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
            beginning = self._stops_to_begin(judged, now)
            changed = []
            for facts, seen, decision in judged:
                key = (seen.user, seen.server)
                if key in beginning:
                    self._begin_stop(seen, decision)
                elif seen.stopping != facts.stopping and key not in self.state.saving:
                    seen = replace(seen, stopping=facts.stopping)  # its turn comes later
                self._dry_run(seen, decision, now)
                if seen is not facts and seen != facts:
                    changed.append(seen)
            figures = await self.measuring.take(self.figure_of, self.node_of, self.device_of)
            await transaction.write(replace(figures, facts=tuple(changed)))
            for uuid, use in looked.items():
                if self.state.highest_use.get(uuid) == use:
                    del self.state.highest_use[uuid]

    async def _judge_all(self, now: datetime) -> list[_Judgement]:
        """Every server; others have a turn in between."""
        judged = []
        for number, facts in enumerate(tuple(self.state.facts.values()), 1):
            judged.append(self._judge(facts, now))
            if number % AT_A_TIME == 0:
                await asyncio.sleep(0)
        return judged

    def _judge(self, facts: ServerFacts, now: datetime) -> _Judgement:
        """The facts as they are kept, as they are after a look at the evidence, and what follows."""
        known = self._known(facts)
        seen = self._observe(facts, known, now)
        decision = self.decision(seen, known)
        return facts, culling.settle(seen, decision, now), decision

    def _stops_to_begin(self, judged: Sequence[_Judgement], now: datetime) -> set[tuple[str, str]]:
        """Of those that are to be stopped: who has a turn now. Some are new, some a restart of ours broke off."""
        running = {(seen.user, seen.server) for _, seen, _ in judged}
        self._pauses = {server: pause for server, pause in self._pauses.items() if server in running}
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
        waiting = self._waiting(facts.offer) if lease is not None else 0
        return DueStop((facts.user, facts.server), decision.stops_at or now, lease.share if lease else 0, waiting)

    def _waiting(self, offer: OfferId) -> int:
        """How many wait for what a server of this offer has."""
        return next((each.waiting for each in self.state.availability() if each.offer.id == offer), 0)

    def decision(self, facts: ServerFacts, known: _PresentEvidence | None = None) -> CullDecision:
        """What is to be done about a server now. `known`: of this very moment; None: it is found here."""
        known, now = known or self._known(facts), self.state.clock.now()
        evidence = self.evidence(facts, known)
        return culling.decide(evidence, known.policy, now, facts.warned, facts.cause, facts.promised)

    # -------------------------------------------------------------- evidence

    def _known(self, facts: ServerFacts) -> _PresentEvidence:
        lease = self.state.leases.get(facts.lease) if facts.lease else None
        policy, report = self.state.policy_of(facts.user, facts.offer), self.report(facts.user, facts.server)
        if lease is None:
            return _PresentEvidence(policy, report)
        sample = self.sample_of(lease)
        return _PresentEvidence(policy, report, lease, sample, self._decisive_use(lease, sample))

    def _observe(self, facts: ServerFacts, known: _PresentEvidence, now: datetime) -> ServerFacts:
        if known.lease is not None:
            use, highest = known.use, self.state.highest_use.get(known.lease.uuid)
            if use is not None and highest is not None:
                use = max(use, highest)  # short work between two decisions is work
            facts = culling.observe(facts, use, known.policy, now)
        return facts if known.report is None else culling.reported(facts, known.report, now)

    def use_of(self, lease: Lease) -> float | None:
        """Percent of the lease's own use of its device, as it is decided on; None: not known."""
        return self._decisive_use(lease, self.sample_of(lease))

    def _decisive_use(self, lease: Lease, sample: DeviceSample | None) -> float | None:
        measured = None if sample is None or sample.source == "report" else sample.used_percent
        policy = self.state.policy_of(lease.user, lease.offer)
        return culling.decisive_use(measured, self._own_report(lease), policy)

    def _own_report(self, lease: Lease) -> ServerReport | None:
        """What its server reports, if that may be more than the echo of figures that it was handed."""
        return None if self.dcgm.handed_out_lately(lease) else self.report(lease.user, lease.server)

    def measured(self, lease: Lease) -> tuple[float | None, str]:
        """The lease's use of its GPU, and who measured it (``none``: not known)."""
        sample = self.sample_of(lease)
        return (None, "none") if sample is None or sample.used_percent is None else (sample.used_percent, sample.source)

    def sample_of(self, lease: Lease) -> DeviceSample | None:
        """The figures of a lease's GPU as they are known now, with their time and who measured them; None: nothing.

        Use and memory are the lease's own, None where they are not known. A device that several servers have tells one
        thing for sure: when it is idle, everybody on it is. Busy, it does not say who.
        """
        age = self.state.inventory_age()
        if age is None or age > SAMPLES_LAST:
            return None
        use = self.dcgm.use(lease)
        sample = merged(self.state.samples.get(lease.uuid), use)
        if use is not None and use.card_percent is not None:
            return replace(sample, used_percent=self._if_idle(lease, use.card_percent)) if sample is not None else None
        if sample is None or sample.used_percent is None:
            sample = self._sample_by_server(lease, sample)
        if sample is not None and lease.share < WHOLE and self.state.sharers(lease.device) > 1:
            return replace(sample, used_percent=self._if_idle(lease, sample.used_percent), memory_used_bytes=None)
        return sample

    def figure_of(self, lease: Lease) -> Figure:
        """What is kept of the lease's use of its device now."""
        sample = self.sample_of(lease)
        if sample is None:
            return Figure(None, None, "none")
        source = "none" if sample.used_percent is None else sample.source
        return Figure(sample.used_percent, sample.memory_used_bytes, source)

    def device_of(self, lease: Lease) -> str:
        """The UUID of the lease's device, by the machine, a claim, or DCGM; "" where nobody has told it yet."""
        by_claim = self.state.cluster.device_of.get(lease.id, "") if self.state.cluster is not None else ""
        use = self.dcgm.use(lease)
        return lease.uuid or by_claim or (use.uuid if use is not None else "")

    def _if_idle(self, lease: Lease, percent: float | None) -> float | None:
        return None if self._is_work(lease, percent) else percent

    def _is_work(self, lease: Lease, percent: float | None) -> bool:
        return percent is not None and percent >= self.state.policy_of(lease.user, lease.offer).idle_below_percent

    def _sample_by_server(self, lease: Lease, sample: DeviceSample | None) -> DeviceSample | None:
        """With what the server's own extension measured, used only where nobody else could. Its user can forge it."""
        report = self._own_report(lease)
        if report is None or report.used_percent is None:
            return sample
        reported = sample or DeviceSample(lease.uuid, report.at, None, None, None, "none")
        return replace(reported, at=report.at, used_percent=report.used_percent, source="report")

    def report(self, user: str, server: str) -> ServerReport | None:
        """What the server's own extension reported, if it is fresh."""
        known = self.state.reports.get((user, server))
        if known is None or self.state.clock.now() - known[1] > REPORTS_LAST:
            return None
        return known[0]

    def evidence(self, facts: ServerFacts, known: _PresentEvidence | None = None) -> Evidence:
        """What is known of a server now."""
        known = known or self._known(facts)
        report, sample, lease = known.report, known.sample, known.lease
        return culling.evidence_of(
            facts,
            use_known=known.use is not None,
            last_activity=self.state.activity.get((facts.user, facts.server)),
            busy_kernels=report.busy_kernels if report else None,
            busy_terminals=report.busy_terminals if report else None,
            used=lease is not None and self._used(lease, known),
            memory_held=None if sample is None else culling.holds_memory(sample),
            wanted=lease is not None and known.policy.wanted is not None and self._waiting(facts.offer) > 0,
        )

    def _used(self, lease: Lease, known: _PresentEvidence) -> bool:
        """Its GPU was measured in use since its start, or is just now, or a cell runs."""
        noted, report = self.state.uses.get(lease.id), known.report
        # where nobody can tell the use, a running cell or program is work
        runs = report is not None and bool(report.busy_kernels or report.busy_terminals)
        return self._is_work(lease, known.use) or runs or (noted is not None and noted.first_used is not None)

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

    def _begin_stop(self, facts: ServerFacts, decision: CullDecision) -> None:
        self.state.saving[(facts.user, facts.server)] = self.state.clock.now()
        task = asyncio.ensure_future(self._stop(facts, decision))
        self._stops.add(task)
        task.add_done_callback(self._stops.discard)

    async def _stop(self, facts: ServerFacts, decision: CullDecision) -> None:
        key = (facts.user, facts.server)
        try:
            await self._drained(facts)
            current = await self._still_to_stop(facts)
            if current is None or not await self.hub.stop(*key):
                await self._cancel_stop(facts)
                return
            await self._stopped(current, decision)
        except (HubAway, HubRefused) as problem:
            wished = problem.retry_after if isinstance(problem, HubRefused) else None
            pause = culling.pause_after(self._pauses.get(key), self.state.clock.now(), wished)
            self.state.count("stop-failed", "refused" if isinstance(problem, HubRefused) else "hub-away")
            seconds = (pause.until - self.state.clock.now()).total_seconds()
            log.warning(
                "not stopped, tried again in %.0f s: %s", seconds, problem, extra={"user": key[0], "server": key[1]}
            )
            with suppress(Refused):  # nothing can be written now: a begun stop is carried on with
                await self._cancel_stop(facts, pause)
        except Refused as problem:
            log.warning("a stop is not recorded: %s", problem, extra={"user": key[0], "server": key[1]})
        finally:
            self.state.saving.pop(key, None)
            self._soon.set()

    async def _drained(self, facts: ServerFacts) -> None:
        """Its cells are interrupted, its notebooks saved and its user's hook has ended; or it took too long."""
        key, began = (facts.user, facts.server), self.state.clock.now()
        drain = self.state.policy_of(facts.user, facts.offer).drain
        while True:
            report, now = self.state.reports.get(key), self.state.clock.now()
            may_come = report is None and now - (self._since or now) < REPORTS_LAST  # after a start of ours
            if not may_come and culling.may_stop_now(report, began, now, drain):
                return
            await asyncio.sleep(0.2)

    async def _still_to_stop(self, facts: ServerFacts) -> ServerFacts | None:
        """The facts, if this very run of the server still has to be stopped; None: it is another one, or came back."""
        server: HubServer | None = await self.hub.server(facts.user, facts.server)
        await self.dcgm.refresh()  # what was measured elsewhere is some seconds old
        async with self.transaction():
            current = self.state.facts.get((facts.user, facts.server))
            if current is None or current.started != facts.started or server is None or not server.ready:
                return None
            known = self._known(current)
            seen = self._observe(current, known, self.state.clock.now())
            return seen if self.decision(seen, known).action is Action.STOP else None

    async def _cancel_stop(self, facts: ServerFacts, pause: StopPause | None = None) -> None:
        """This run is not stopped now, and not tried again before a pause is over; its next run has nothing of it."""
        key = (facts.user, facts.server)
        self._pauses[key] = pause or culling.pause_after(None, self.state.clock.now())
        async with self.transaction() as transaction:
            current = self.state.facts.get(key)
            if current is None or current.started != facts.started:
                self._pauses.pop(key, None)
            else:
                await transaction.write(Changes(facts=(replace(current, stopping=None, cause=None),)))

    async def _stopped(self, facts: ServerFacts, decision: CullDecision) -> None:
        async with self.transaction() as transaction:
            lease = self.state.leases.get(facts.lease) if facts.lease else None
            ending = lifecycle.move(lease, Event.CULLED) if lease is not None else None
            wall = self.state.clock.utc_now()
            which = presenters.server_text(facts.server)
            why = decision.reason.message if decision.reason else ""
            text = f"{which[:1].upper()}{which[1:]} was stopped. {why} Your files are kept."
            row = JournalRow(
                wall,
                "culled",
                None,
                facts.lease,
                facts.user,
                facts.server,
                why,
                SERVICE,
                self._evidence_text(facts, lease),
            )
            self.state.touch(facts.user, facts.server)
            self.state.count("culled", decision.cause.value if decision.cause else "unknown")
            log.info("culled: %s", why, extra={"user": facts.user, "server": facts.server})
            await transaction.write(
                Changes(
                    leases=(ending,) if isinstance(ending, Lease) else (),
                    gone_facts=((facts.user, facts.server),),
                    journal=(row,),
                    notices=(NoticeRow(wall, facts.user, facts.server, text),),
                    end=end_of_cull(decision.cause),
                )
            )
            self.state.reports.pop((facts.user, facts.server), None)

    def _evidence_text(self, facts: ServerFacts, lease: Lease | None) -> str:
        """On what a stop was decided, for the audit log: figures, since when, who measured them, the limits."""
        clock, found = self.state.clock, []
        if lease is not None:
            used, source = self.measured(lease)
            found.append("use not known" if used is None else f"use {used:g} % by {source}")
        _, rule = self.state.policies.of(self.state.ruled(facts.user, facts.offer), clock.utc_now())
        found += [f"by the rule {rule!r}"] if rule else []
        times = {"idle since": facts.idle_since, "warned": facts.warned, "last opened": facts.opened}
        times["last activity"] = self.state.activity.get((facts.user, facts.server)) if lease is None else None
        found += [f"{name} {clock.wall(at).isoformat(timespec='seconds')}" for name, at in times.items() if at]
        return ", ".join(found)

    # -------------------------------------------------------------- what a server reports, and its user sees

    async def take_report(self, user: str, server: str, report: messages.Report) -> None:
        """Remember what a server reports of itself; its first opening starts the idle clock."""
        now = self.state.clock.now()
        self.state.reports[(user, server)] = (
            ServerReport(
                self.state.clock.utc_now(),
                report.opened,
                report.kernels,
                report.busy_kernels,
                report.saved,
                report.used_percent,
                report.busy_terminals,
                report.draining,
            ),
            now,
        )
        facts = self.state.facts.get((user, server))
        if facts is None or culling.reported(facts, self.state.reports[(user, server)][0], now) == facts:
            return
        async with self.transaction() as transaction:
            facts = self.state.facts.get((user, server))
            if facts is not None:
                seen = culling.reported(facts, self.state.reports[(user, server)][0], now)
                await transaction.write(Changes(facts=(seen,)))

    async def keep(self, user: str, server: str) -> None:
        """Keep a server from being stopped as idle for a while.

        Raises:
            Refused: 404 no such running server; 409 the budget is used up, or there is nothing to keep it from.
        """
        async with self.transaction() as transaction:
            facts = self.state.facts.get((user, server))
            if facts is None:
                raise Refused(404, "This server is not known to run.", "server", "unknown-server")
            lease, pressed = self.state.leases.get(facts.lease) if facts.lease else None, self.state.keeps.get(user, ())
            policy, now = self.state.policy_of(user, facts.offer), self.state.clock.now()
            kept = culling.keep(self.evidence(facts), facts, policy, now, pressed)
            if isinstance(kept, Reason):
                raise Refused.because(409, kept, "keep")
            longer = kept.extensions > facts.extensions
            until = kept.ends_at if longer else kept.kept_until
            at, kind = self.state.clock.utc_now(), "extended" if longer else "kept"
            text = f"{kind} until {self.state.clock.wall(until) if until else None}"
            evidence = self._evidence_text(facts, lease)
            row = JournalRow(at, kind, None, facts.lease, user, server, text, "user", evidence)
            try:
                await transaction.write(Changes(facts=(kept,), journal=(row,)))
            except StoreUnavailable as problem:
                raise Refused(503, f"Not kept: {problem.message}", "keep", "store-unavailable") from problem

    def server_state(self, user: str, server: str, trespassed: bool) -> messages.ServerState | None:
        """What a server's own extension may know; None: the service knows no such server."""
        facts = self.state.facts.get((user, server))
        lease = self.state.lease_of(user, server)
        ticket = self.state.live_ticket(user, server)
        if facts is None and lease is None and ticket is None:
            return None
        offer_id = lease.offer if lease else facts.offer if facts else (ticket and ticket.admitted_offer) or CPU
        offer = self.state.offer(offer_id)
        device = self.state.device(lease.device) if lease else None
        decision = self.decision(facts) if facts else None
        keep = self._keep_budget(facts, decision) if facts and decision else None
        allowed = presenters.allowed(self.state.availability(), *self.state.people.get(user, ((), False)))
        return messages.ServerState(
            user=user,
            server=server,
            offer=offer_id,
            title=offer.title if offer else offer_id,
            uuid=lease.uuid or None if lease else None,
            share=lease.share / WHOLE if lease else 0.0,
            memory_bytes=presenters.memory_of(lease, device, offer) if lease else None,
            memory_enforced=offer.memory_enforced if offer else True,
            simulated=device.simulated if device else False,
            lease_state=lease.state.value if lease else "none",
            countdown=presenters.countdown(decision, self.state.clock) if decision else None,
            keep=keep,
            ends_at=self.state.clock.wall(decision.ends_at) if decision and decision.ends_at else None,
            save=(user, server) in self.state.saving,
            warnings=self._warnings(lease, trespassed),
            waits=tuple(presenters.offer_state(a) for a in allowed if a.offer.id != offer_id),
            rule=self._rule(user, lease, offer_id, facts),
            figures=self._figures(lease),
            drain_seconds=self.state.policy_of(user, offer_id).drain.total_seconds(),
        )

    def _keep_budget(self, facts: ServerFacts, decision: CullDecision) -> messages.Keep | None:
        """What a press of *keep* gives now: time against idleness, or a longer lifetime; None: none is offered."""
        policy = self.state.policy_of(facts.user, facts.offer)
        if not policy.enabled or policy.never:
            return None
        if decision.cause is Cause.LIFETIME and policy.extend_lifetime_times:
            left = policy.extend_lifetime_times - facts.extensions
            minutes = policy.extend_lifetime.total_seconds() / 60
            return messages.Keep(minutes, max(0, left), policy.extend_lifetime_times, of_server=True)
        left = culling.keeps_left(policy, self.state.clock.now(), self.state.keeps.get(facts.user, ()))
        return messages.Keep(policy.keep.total_seconds() / 60, left, policy.keeps_per_day)

    def _figures(self, lease: Lease | None) -> messages.Figures | None:
        """What DCGM measured of this server's own device, where the machine itself measures nothing."""
        if lease is None:
            return None
        sample = self.state.samples.get(lease.uuid)
        if sample is not None and sample.used_percent is not None:
            return None
        use = self.dcgm.hand_out(lease)
        if use is None or use.used_percent is None:
            return None
        return messages.Figures(use.uuid, use.at, use.used_percent, use.source, use.counters)

    def _rule(self, user: str, lease: Lease | None, offer: OfferId, facts: ServerFacts | None) -> Reason | None:
        """When this server stops by itself; None where nothing stops it."""
        policy = self.state.policy_of(user, offer)
        if not policy.enabled or policy.never:
            return None
        if lease is None:
            quiet = policy.cpu_idle
            return None if quiet is None else explain("rule-cpu", quiet=quiet)
        if self.use_of(lease) is None:
            return explain("rule-use-not-known")
        known = None if facts is None else replace(self.evidence(facts), wanted=False)
        own_limit = policy.idle if known is None else culling.idle_limit(known, policy)[0]
        return culling.culling_rule(replace(policy, idle=own_limit))

    def _warnings(self, lease: Lease | None, trespassed: bool) -> tuple[Reason, ...]:
        warnings = []
        if lease is not None and lease.state is LeaseState.LOST:
            warnings.append(explain("gpu-lost"))
        if trespassed:
            warnings.append(explain("other-program"))
        return tuple(warnings)
