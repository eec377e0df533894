"""Evidence about a running server's use of its GPU, and the decision that follows from it.

The service's own measurement of the device counts first. While it is fresh, a server's report of more use does not
change it. If the service has not measured the device, DCGM's measurement counts; if DCGM has not either, the server's
own report. Without any of the three, the use is unknown, and the server does not count as idle.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from hub_extensions.core import culling, stops
from hub_extensions.core.culling import CullDecision, CullPolicy, Evidence, ServerFacts
from hub_extensions.core.forecast.progress import is_too_long
from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.gpu.samples import DeviceSample, ServerReport, UseSign
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.model import Lease
from hub_extensions.core.stops import StopCause, StopRecord
from hub_extensions.core.text.reasons import Reason, explain
from hub_extensions.core.usage import Figure
from hub_extensions.hub_service.engine.state.state import State
from hub_extensions.hub_service.engine.stops.dcgm import Dcgm, merged

REPORTS_LAST = timedelta(seconds=45)  # a server's report counts for this long
SAMPLES_LAST = timedelta(seconds=30)
"""A measurement counts for this long. It is fresh in the first third of this time (two turns of `StopRunner`), and
then has precedence over a server's report."""


@dataclass(frozen=True, slots=True)
class PresentEvidence:
    """The measurements and limits of a server at one moment, gathered once for all decisions of that moment.

    Attributes:
        policy: the limits of the server.
        report: the last report of the server's extension. `None` without a report, or if it is too old.
        lease: the server's right to its GPU. `None` for a server without a GPU.
        sample: the last measurement of its GPU. `None` without a measurement, or if it is too old.
        use: the use of the GPU in percent on which decisions are based. `None` if it is unknown.
    """

    policy: CullPolicy
    report: ServerReport | None
    lease: Lease | None = None
    sample: DeviceSample | None = None
    use: float | None = None


class ServerEvidence:
    """Gathers the evidence about running servers' use of their GPUs, and decides by it which servers have to stop.

    Attributes:
        dcgm: the measurements of devices whose use the service cannot read itself.
    """

    def __init__(self, state: State, dcgm: Dcgm) -> None:
        self.state = state
        self.dcgm = dcgm
        self._claims: dict[str, datetime] = {}

    def waiting(self, offer: OfferId) -> int:
        """Return how many tickets (places in line) wait for this offer."""
        return self.state.waiting_for(offer)

    def decision(
        self,
        facts: ServerFacts,
        known: PresentEvidence | None = None,
        orders: tuple[StopCause, ...] | None = None,
    ) -> CullDecision:
        """Decide whether a server is kept, warned or stopped now.

        Args:
            facts: what the service remembers of the server.
            known: the measurements and limits of this moment. If `None`, they are gathered here.
            orders: the orders to stop the server on which the decision is based. `None` for those that are in force
                now.
        """
        known, now = known or self.known(facts), self.state.clock.now()
        evidence = self.evidence(facts, known)
        evidence = evidence if orders is None else replace(evidence, orders=orders)
        return culling.decide(evidence, known.policy, now, facts.warned, facts.cause, facts.promised)

    def known(self, facts: ServerFacts) -> PresentEvidence:
        """Gather the present measurements of a server's GPU, and the limits that apply to the server.

        Args:
            facts: what the service remembers of the server.
        """
        lease = self.state.leases.get(facts.lease) if facts.lease else None
        policy, report = self.state.policy_of(facts.user, facts.offer), self._counted(facts.user, facts.server)
        if lease is None:
            return PresentEvidence(policy, report)
        sample = self.sample_of(lease)
        return PresentEvidence(policy, report, lease, sample, self._decisive_use(lease, sample))

    def observe(self, facts: ServerFacts, known: PresentEvidence, now: datetime) -> ServerFacts:
        """Return what the service remembers of a server, updated by its present GPU use and its last report.

        Args:
            facts: what the service has remembered of the server until now.
            known: the measurements and limits of this moment.
            now: the present time of the running clock, which stands still while hub or service is down.
        """
        stop = self.state.stop_of(facts)
        if known.lease is None:
            active, renewed = self.state.hub_view.activity.get((facts.user, facts.server)), self.state.routes_renewed
            facts = culling.remember_quiet(facts, active, renewed, now)
        elif not self._is_hooks(stop, known.sample):
            use, highest = known.use, self.state.highest_use.get(known.lease.uuid)
            if use is not None and highest is not None and (stop is None or stop.seen.hook_ended is None):
                use = max(use, highest)  # short use between two decisions counts, too
            facts = culling.observe(facts, use, known.policy, now)
        return facts if known.report is None else culling.reported(facts, known.report, now)

    def _is_hooks(self, stop: StopRecord | None, sample: DeviceSample | None) -> bool:
        """Return whether the use of a GPU during a stop comes from the user's own hook, and so is no activity.

        The hook is the program ``gpu-before-stop`` in the user's Jupyter configuration folder. It runs before the
        server is stopped. The result is False if a cell or a terminal was busy since the stop began, if the hook had
        ended well before the measurement, or if no report since the stop began shows that the hook has run.

        Args:
            stop: the record of the server's stop. `None` if the server is not being stopped; the result is then False.
            sample: the last measurement of the GPU. `None` without a measurement.
        """
        if stop is None or stop.began is None or stop.seen.at_work:
            return False
        if stops.is_after_hook(sample, stop.seen.hook_ended):
            return False
        return not stops.may_be_work(self.state.reports.get((stop.user, stop.server)), stop.began)

    def stop_after_report(self, facts: ServerFacts) -> StopRecord | None:
        """Return the record of a server's stop, updated by the last report of the server's extension.

        The report contains whether notebooks are saved, the user's hook (a program that runs before the stop) has
        ended, and a cell runs. A cell that runs during the drain counts as work, also after it has ended.

        Args:
            facts: what the service remembers of the server.

        Returns:
            `None` if the report changes nothing, or if no stop of the server has begun.
        """
        stop, report = self.state.stop_of(facts), self.state.reports.get((facts.user, facts.server))
        if stop is None or stop.began is None or report is None:
            return None
        seen = stop.seen.after(*report, self.state.clock.utc_now())
        return None if seen == stop.seen else replace(stop, seen=seen)

    def note_claim(self, user: str, server: str) -> None:
        """Note since when a server reports that its GPU is busy although DCGM measures no use of it.

        This time is forgotten only when DCGM measures use, or memory that a program holds. If the report alternates
        between 0 % and 100 %, the time is kept.
        """
        report, _ = self.state.reports[user, server]
        facts = self.state.facts.get((user, server))
        lease = None if facts is None or facts.lease is None else self.state.leases.get(facts.lease)
        sample = None if lease is None else self.sample_of(lease)
        self._claims = {name: since for name, since in self._claims.items() if name in self.state.leases}
        if lease is None or sample is None or sample.source != "dcgm":
            return
        if self._is_work(lease, sample.used_percent) or not culling.is_empty(sample):
            self._claims.pop(lease.id, None)
        elif self._is_work(lease, report.used_percent):
            self._claims.setdefault(lease.id, self.state.clock.utc_now())

    def use_of(self, lease: Lease) -> float | None:
        """Return the use of a GPU, in percent, on which decisions are based. `None` if it is not known.

        Args:
            lease: a server's right to the GPU.
        """
        return self._decisive_use(lease, self.sample_of(lease))

    def _decisive_use(self, lease: Lease, sample: DeviceSample | None) -> float | None:
        measured = None if sample is None or sample.source == "report" else sample.used_percent
        policy = self.state.policy_of(lease.user, lease.offer)
        fresh = sample is not None and self._is_fresh(lease, sample)
        return culling.decisive_use(measured, self._own_report(lease), policy, fresh=fresh)

    def _is_fresh(self, lease: Lease, sample: DeviceSample) -> bool:
        """Return whether a measurement is trusted more than a server's own report of higher GPU use.

        That is so if the service has read it from the GPU itself in the last seconds (two rounds of `StopRunner.run`),
        or if DCGM's use and memory together prove that no program is on the GPU.

        Args:
            lease: the server's right to its GPU.
            sample: the measurement of this GPU.
        """
        if sample.source == "dcgm":
            return culling.proves_idle(sample, self._claims.get(lease.id))
        age = self.state.inventory_age()
        return sample.source not in ("report", "none") and age is not None and age <= SAMPLES_LAST / 3

    def contradicted(self, lease: Lease) -> tuple[float, float] | None:
        """Return the GPU use that a server reports and the measured one, if the measurement proves the report wrong.

        Both are in percent. `None` if the report is not wrong.
        """
        sample, report = self.sample_of(lease), self._own_report(lease)
        reported = None if report is None else report.used_percent
        if sample is None or sample.used_percent is None or not self._is_fresh(lease, sample):
            return None
        if reported is None or not self._is_work(lease, reported) or self._is_work(lease, sample.used_percent):
            return None
        return reported, sample.used_percent

    def _own_report(self, lease: Lease) -> ServerReport | None:
        """Return the last report of the server's extension. `None` without a report, or if it is too old.

        The report's GPU use is left out if DCGM shows that several servers share the card.

        Args:
            lease: the server's right to its GPU.
        """
        use, report = self.dcgm.use(lease), self._counted(lease.user, lease.server)
        shared = use is not None and use.card_percent is not None
        return replace(report, used_percent=None) if report is not None and shared else report

    def measured(self, lease: Lease) -> tuple[float | None, str]:
        """Return how busy the server of a lease (right to a GPU) keeps its GPU, in percent, and what measured it.

        `None` and ``none`` if it is unknown.
        """
        sample = self.sample_of(lease)
        return (None, "none") if sample is None or sample.used_percent is None else (sample.used_percent, sample.source)

    def sample_of(self, lease: Lease) -> DeviceSample | None:
        """Return the present measurement of the GPU of a lease (a server's right to it). `None` without a measurement.

        Use and memory are those of this server, or `None` if they are not known. If several servers share a device, a
        measurement of an idle device means that all of them are idle. A measurement of a busy device does not show
        which server is busy.
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
        """Return use and memory of the GPU of a lease (a server's right to it) now, for the usage record."""
        sample = self.sample_of(lease)
        if sample is None:
            return Figure(None, None, "none")
        source = "none" if sample.used_percent is None else sample.source
        return Figure(sample.used_percent, sample.memory_used_bytes, source)

    def device_of(self, lease: Lease) -> str:
        """Return the UUID of the device of a lease (a server's right to it); "" if it is not known yet.

        The UUID comes from the machine's driver, the pod's resource claim, or DCGM's measurement.
        """
        by_claim = self.state.cluster.device_of.get(lease.id, "") if self.state.cluster is not None else ""
        use = self.dcgm.use(lease)
        return lease.uuid or by_claim or (use.uuid if use is not None else "")

    def _if_idle(self, lease: Lease, percent: float | None) -> float | None:
        return None if self._is_work(lease, percent) else percent

    def _is_work(self, lease: Lease, percent: float | None) -> bool:
        return percent is not None and percent >= self.state.policy_of(lease.user, lease.offer).idle_below_percent

    def _sample_by_server(self, lease: Lease, sample: DeviceSample | None) -> DeviceSample | None:
        """Return the measurement of a GPU with the use from the server's own report, because no other use is known.

        The user can forge this report. If the report lacks the use, `sample` is returned.

        Args:
            lease: the server's right to its GPU.
            sample: the measurement of memory, without use. `None` without a measurement.
        """
        report = self._own_report(lease)
        if report is None or report.used_percent is None:
            return sample
        reported = sample or DeviceSample(lease.uuid, report.at, None, None, None, "none")
        return replace(reported, at=report.at, used_percent=report.used_percent, source="report")

    def report(self, user: str, server: str) -> ServerReport | None:
        """Return the last report of the server's extension. `None` without a report, or if it is older than 45 s."""
        known = self.state.reports.get((user, server))
        if known is None or self.state.clock.now() - known[1] > REPORTS_LAST:
            return None
        return known[0]

    def _counted(self, user: str, server: str) -> ServerReport | None:
        """Return the report of `report` as decisions count it: a training may be as good as a busy kernel."""
        training = self.state.forecasts.training((user, server), self.state.clock.utc_now())
        return culling.with_training(self.report(user, server), training, self.state.policy)

    def evidence(self, facts: ServerFacts, known: PresentEvidence | None = None) -> Evidence:
        """Return the evidence about a server on which a decision is based.

        Args:
            facts: what the service remembers of the server.
            known: the measurements and limits of this moment. If `None`, they are gathered here.
        """
        known = known or self.known(facts)
        report, sample, lease = known.report, known.sample, known.lease
        since, after = self.state.no_session_since(facts.user), self.state.without_session.drain_after_seconds
        orphaned_at = None
        if since is not None and after is not None:
            orphaned_at = self.state.clock.running(since) + timedelta(seconds=after)
        return culling.evidence_of(
            facts,
            use_known=known.use is not None,
            last_activity=self.state.hub_view.activity.get((facts.user, facts.server)),
            busy_kernels=report.busy_kernels if report else None,
            busy_terminals=report.busy_terminals if report else None,
            used=lease is not None and self._used(lease, known),
            memory_held=None if sample is None else culling.holds_memory(sample),
            orders=self.state.orders_of(facts),
            wanted=lease is not None and known.policy.contended_idle is not None and self.waiting(facts.offer) > 0,
            saves_for=stops.begins_before(report, known.policy.drain),
            no_session=since is not None,
            orphaned_at=orphaned_at,
        )

    def too_long(self, facts: ServerFacts) -> tuple[datetime, datetime] | None:
        """Return the likely end of a server's training and the end of the server, if the server ends before.

        Both are wall-clock times. `None` if the training may be done in time, or if its end is not known.
        """
        known = self.state.forecasts.ends_of((facts.user, facts.server), self.state.clock.now())
        stops_at = None if known is None else self.decision(facts).latest
        if known is None or stops_at is None or not is_too_long(*known, stops_at):
            return None
        return self.state.clock.wall(known[1]), self.state.clock.wall(stops_at)

    def signs(self, facts: ServerFacts) -> tuple[UseSign, ...]:
        """Return the signs that a server is in use (GPU, kernels, terminals), which its panel shows.

        Empty if the administrator's limits never stop the server.
        """
        policy, report = self.state.policy_of(facts.user, facts.offer), self.report(facts.user, facts.server)
        if not policy.enabled or policy.never:
            return ()
        lease = self.state.leases.get(facts.lease) if facts.lease else None
        if lease is not None:
            training = self.state.forecasts.training((facts.user, facts.server), self.state.clock.utc_now())
            signs = culling.gpu_signs(self.sample_of(lease), report, policy, used=self.use_of(lease))
            return (*signs, *culling.training_sign(training, policy))
        clock, last = self.state.clock, self.state.hub_view.activity.get((facts.user, facts.server))
        return culling.cpu_signs(None if last is None else clock.wall(last), report, clock.utc_now())

    def _used(self, lease: Lease, known: PresentEvidence) -> bool:
        """Return whether the server's GPU has been used since its start, is used now, or a cell or terminal is busy.

        Args:
            lease: the server's lease (its right to the GPU).
            known: the measurements of this moment.
        """
        noted, report = self.state.uses.get(lease.id), known.report
        # if the use is unknown, a running cell or program is work
        runs = report is not None and bool(report.busy_kernels or report.busy_terminals)
        return self._is_work(lease, known.use) or runs or (noted is not None and noted.first_used is not None)

    def grounds(self, facts: ServerFacts, lease: Lease | None) -> tuple[Reason, ...]:
        """Return the facts on which a stop is decided, as sentences for the journal (the log of decisions).

        They are: the use and what measured it; since when the server is idle, was warned and was opened; the rule of
        the policy file; the end that a training in it has reported; and how the warning reached the user.

        Args:
            facts: what the service remembers of the server.
            lease: the server's right to its GPU. `None` for a server without a GPU.
        """
        clock, found = self.state.clock, list[Reason]()
        if lease is not None:
            used, source = self.measured(lease)
            found.append(explain("seen-no-use") if used is None else explain("seen-use", percent=used, source=source))
        _, rule = self.state.policies.of(self.state.ruled(facts.user, facts.offer), clock.utc_now())
        found += [explain("seen-rule", rule=rule)] if rule else []
        times = {"seen-idle": facts.idle_since, "seen-warned": facts.warned, "seen-opened": facts.opened}
        times["seen-activity"] = self.state.hub_view.activity.get((facts.user, facts.server)) if lease is None else None
        found += [explain(name, at=clock.wall(at)) for name, at in times.items() if at]
        training = self.state.forecasts.ends_of((facts.user, facts.server), clock.now())
        found += [explain("seen-training", at=clock.wall(training[1]))] if training is not None else []
        stop = self.state.stop_of(facts)
        if facts.announced is not None and stop is not None and stop.begun:
            ways = ", ".join(facts.reached)
            found.append(explain("seen-reached", ways=ways) if ways else explain("seen-unreached"))
            found += [explain("seen-warned-again")] * facts.unheard
        return tuple(found)
