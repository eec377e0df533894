"""What is known of a running server's use of its GPU, and what is to be decided on it.

The evidence is the service's own sample of the device; where the card tells it nothing, what DCGM measured; where
nobody measured that, what the server reports of itself; else it is unknown, and unknown is never idle.
Not here: what follows from it (``core/culling``), and who stops the server (``culler.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from hub_extensions.core import culling
from hub_extensions.core.culling import CullDecision, Evidence, ServerFacts
from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.gpu.samples import DeviceSample, ServerReport, UseSign
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.model import Lease
from hub_extensions.core.usage import Figure
from hub_extensions.hub_service.engine.dcgm import Dcgm, merged
from hub_extensions.hub_service.engine.state import State

REPORTS_LAST = timedelta(seconds=45)
SAMPLES_LAST = timedelta(seconds=30)


class ServerEvidence:
    """Evidence about running servers, and the decisions on it.

    Attributes:
        dcgm: what is known of a device's use where the card tells it to nobody here.
        node_of: the node that a lease's server runs on; "" on one machine, and while it is not known.
        at_work: of the servers whose stop has begun, those that may have done other work since than their users' hooks.
    """

    def __init__(self, state: State, dcgm: Dcgm, node_of: Callable[[Lease], str]) -> None:
        self.state = state
        self.dcgm = dcgm
        self.node_of = node_of
        self.at_work: set[tuple[str, str]] = set()

    def waiting(self, offer: OfferId) -> int:
        """How many wait for what a server of this offer has."""
        return next((each.waiting for each in self.state.availability() if each.offer.id == offer), 0)

    def decision(self, facts: ServerFacts) -> CullDecision:
        """What is to be done about a server now."""
        now, policy = self.state.clock.now(), self.state.policy_of(facts.user, facts.offer)
        return culling.decide(self.evidence(facts), policy, now, facts.warned, facts.cause, facts.promised)

    def observe(self, facts: ServerFacts, now: datetime) -> ServerFacts:
        """The facts after a look at its use, and at what it reports."""
        lease = self.state.leases.get(facts.lease) if facts.lease else None
        if lease is not None and not self._is_hooks(facts):
            use, highest = self.use_of(lease), self.state.highest_use.get(lease.uuid)
            if use is not None and highest is not None:
                use = max(use, highest)  # short work between two decisions is work
            facts = culling.observe(facts, use, self.state.policy_of(facts.user, facts.offer), now)
        report = self.report(facts.user, facts.server)
        return facts if report is None else culling.reported(facts, report, now)

    def _is_hooks(self, facts: ServerFacts) -> bool:
        """Its stop has begun, and what is used of its GPU is used by its user's own hook."""
        key = (facts.user, facts.server)
        began = self.state.saving.get(key)
        if began is None or key in self.at_work:
            return False
        return not culling.may_be_work(self.state.reports.get(key), began)

    def note_report(self, user: str, server: str) -> None:
        """A cell that runs while its server drains is work, also once it has ended."""
        said, key = self.state.reports[(user, server)][0], (user, server)
        if key in self.state.saving and (said.busy_kernels != 0 or said.busy_terminals != 0):
            self.at_work.add(key)

    def use_of(self, lease: Lease) -> float | None:
        """Percent of the lease's own use of its device, as it is decided on; None: not known."""
        used, source = self.measured(lease)
        policy = self.state.policy_of(lease.user, lease.offer)
        return culling.decisive_use(None if source == "report" else used, self._own_report(lease), policy)

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
        sharers = sum(1 for other in self.state.leases.values() if other.device == lease.device)
        if sample is not None and lease.share < WHOLE and sharers > 1:
            return replace(sample, used_percent=self._if_idle(lease, sample.used_percent), memory_used_bytes=None)
        return sample

    def figure_of(self, lease: Lease) -> Figure:
        """What is kept of the lease's use of its device now."""
        used, source = self.measured(lease)
        sample = self.sample_of(lease)
        return Figure(used, None if sample is None else sample.memory_used_bytes, source)

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

    def evidence(self, facts: ServerFacts) -> Evidence:
        """What is known of a server now."""
        lease = self.state.leases.get(facts.lease) if facts.lease else None
        sample = self.sample_of(lease) if lease is not None else None
        report = self.report(facts.user, facts.server)
        return culling.evidence_of(
            facts,
            use_known=lease is not None and self.use_of(lease) is not None,
            last_activity=self.state.activity.get((facts.user, facts.server)),
            busy_kernels=report.busy_kernels if report else None,
            busy_terminals=report.busy_terminals if report else None,
            used=lease is not None and self._used(lease),
            memory_held=None if sample is None else culling.holds_memory(sample),
            wanted=lease is not None and self.waiting(facts.offer) > 0,
        )

    def signs(self, facts: ServerFacts) -> tuple[UseSign, ...]:
        """What is known of its use, as its user is shown it; nothing where nothing is culled."""
        policy, report = self.state.policy_of(facts.user, facts.offer), self.report(facts.user, facts.server)
        if not policy.enabled or policy.never:
            return ()
        lease = self.state.leases.get(facts.lease) if facts.lease else None
        if lease is not None:
            return culling.gpu_signs(self.sample_of(lease), report, policy, used=self.use_of(lease))
        clock, last = self.state.clock, self.state.activity.get((facts.user, facts.server))
        return culling.cpu_signs(None if last is None else clock.wall(last), report, clock.utc_now())

    def _used(self, lease: Lease) -> bool:
        """Its GPU was measured in use since its start, or is just now, or a cell runs."""
        noted, percent = self.state.uses.get(lease.id), self.use_of(lease)
        report = self.report(lease.user, lease.server)
        # where nobody can tell the use, a running cell or program is work
        runs = report is not None and bool(report.busy_kernels or report.busy_terminals)
        return self._is_work(lease, percent) or runs or (noted is not None and noted.first_used is not None)

    def evidence_text(self, facts: ServerFacts, lease: Lease | None) -> str:
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
        if facts.announced is not None:
            found.append(f"reached by {', '.join(facts.reached) or 'nobody'}{' (warned again)' * facts.unheard}")
        return ", ".join(found)
