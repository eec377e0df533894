"""The views of a single server: the reports of its extension, what the extension may read, and its button *Keep*.

*Keep* protects a server for a while from being stopped as idle, or extends its time limit.
"""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import datetime

from hub_extensions.adapters.store import Changes, StoreUnavailable
from hub_extensions.core import culling, messages
from hub_extensions.core.culling import Cause, CullDecision, ServerFacts
from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.gpu.samples import ServerReport
from hub_extensions.core.notices import for_panel
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.queue.model import Lease, LeaseState
from hub_extensions.core.stops import Withdrawal
from hub_extensions.core.text.reasons import Reason, explain
from hub_extensions.hub_service.engine.state.errors import Refused
from hub_extensions.hub_service.engine.state.state import State
from hub_extensions.hub_service.engine.state.transaction import Transactions
from hub_extensions.hub_service.engine.stops.runner import StopRunner
from hub_extensions.hub_service.engine.views import presenters
from hub_extensions.hub_service.engine.views.cull_audit import EXTENDED, KEPT, kept_row

REPORTED = [each.name for each in fields(ServerReport) if each.name != "at"]  # as `messages.Report` has them
UNKNOWN = "This server is not known to run."


class ServerView:
    """Handles the requests of the extension in a user's server: its reports, presses of *Keep*, and the panel's state.

    Args:
        state: the state.
        transaction: writes changes.
        evidence: judges how busy a server is and when it stops.
    """

    def __init__(self, state: State, transaction: Transactions, evidence: StopRunner) -> None:
        self.state = state
        self.transaction = transaction
        self.evidence = evidence

    async def take_report(self, user: str, server: str, report: messages.Report) -> None:
        """Store a report of a server's extension: its activity, and whether a browser has opened the server."""
        values = {name: getattr(report, name) for name in REPORTED}
        reported = ServerReport(self.state.clock.utc_now(), **values)
        async with self.transaction() as transaction:
            transaction.state.take_report((user, server), reported)
            self.evidence.note_claim(user, server)
            changes = self._changes_of(user, server, report.warned)
            if not changes.empty:
                await transaction.write(changes)

    def _changes_of(self, user: str, server: str, warned: datetime | None) -> Changes:
        """Return the changes that follow from the last report of a server's extension.

        They concern what culling knows about the server, and the server's stop if it has begun.

        Args:
            user, server: name of the user and of the server.
            warned: wall-clock time of the stop that an open page has announced. `None` if it has announced none.
        """
        facts = self.state.facts.get((user, server))
        if facts is None:
            return Changes()
        seen, stop = self._reported(facts, warned), self.evidence.stop_after_report(facts)
        return Changes(facts=(seen,) if seen != facts else (), stops=(stop,) if stop is not None else ())

    def _reported(self, facts: ServerFacts, warned: datetime | None) -> ServerFacts:
        """Return what culling knows about a server after the last report of its extension.

        The report shows whether a browser has opened the server. It may also confirm that a page has shown the warning
        of a stop.

        Args:
            facts: what culling knew before.
            warned: wall-clock time of the stop that an open page has announced. `None` if it has announced none.
        """
        report, at = self.state.reports[(facts.user, facts.server)]
        seen = culling.reported(facts, report, at)
        shown = warned is not None and culling.is_announced(facts, self.state.clock.running(warned))
        return culling.reached(seen, culling.PAGE) if shown else seen

    async def keep(self, user: str, server: str) -> None:
        """Postpone the stop of a server, because its user pressed *Keep*.

        Raises:
            Refused: 404, no such server runs. 409, *Keep* would not help, or the user has pressed it too often. 503,
                the store cannot be written.
        """
        async with self.transaction() as transaction:
            facts = self.state.facts.get((user, server))
            if facts is None:
                raise Refused(404, UNKNOWN, "server", "unknown-server")
            lease, pressed = self.state.leases.get(facts.lease) if facts.lease else None, self.state.keeps.get(user, ())
            policy, now = self.state.policy_of(user, facts.offer), self.state.clock.now()
            refused = self.evidence.refuse_withdrawal(facts)
            kept = refused or culling.keep(self.evidence.evidence(facts), facts, policy, now, pressed)
            if isinstance(kept, Reason):
                raise Refused.because(409, kept, "keep")
            longer = kept.extensions > facts.extensions
            until = kept.ends_at if longer else kept.kept_until
            kind = EXTENDED if longer else KEPT
            row = kept_row(self.state, kind, facts, until, self.evidence.grounds(facts, lease))
            after = self.evidence.withdrawn(kept, Withdrawal.KEEP)
            try:
                await transaction.write(replace(after, facts=(kept,), journal=(row,)))
            except StoreUnavailable as problem:
                raise Refused(503, f"Not kept: {problem.message}", "keep", "store-unavailable") from problem

    def server_state(self, user: str, server: str, trespassed: bool) -> messages.ServerState | None:
        """Return everything that a server's own extension may read. `None` if the service does not know the server.

        Args:
            user, server: name of the user and of the server.
            trespassed: whether another server uses this server's device, although its lease is for another device.
        """
        facts = self.state.facts.get((user, server))
        lease = self.state.lease_of(user, server)
        ticket = self.state.live_ticket(user, server)
        if facts is None and lease is None and ticket is None:
            return None
        offer_id = lease.offer if lease else facts.offer if facts else (ticket and ticket.admitted_offer) or CPU
        offer = self.state.offer(offer_id)
        device = self.state.device(lease.device) if lease else None
        decision = self.evidence.decision(facts) if facts else None
        keep = self._keep_budget(facts, decision) if facts and decision else None
        allowed = presenters.allowed(self.state.availability(), *self.state.hub_view.people.get(user, ((), False)))
        closed = self.state.closings()
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
            countdown=self._countdown(facts, decision) if facts and decision else None,
            keep=keep,
            ends_at=self._latest(lease, decision),
            save=self.state.is_being_stopped(user, server),
            warnings=self._warnings(facts, lease, trespassed),
            waits=tuple(presenters.offer_state(a, closed.get(a.offer.pool)) for a in allowed if a.offer.id != offer_id),
            rule=self._rule(user, lease, offer_id, facts),
            figures=self._figures(lease),
            drain_seconds=self.state.policy_of(user, offer_id).drain.total_seconds(),
            signs=self.evidence.signs(facts) if facts else (),
            name=offer.name if offer else "",
            idle_below_percent=self.state.policy_of(user, offer_id).idle_below_percent,
        )

    def _latest(self, lease: Lease | None, decision: CullDecision | None) -> datetime | None:
        """Return when this server ends at the latest, whatever its user does.

        `None` if no limit or order ends the server as long as its user keeps it running.

        Administrators and the wait forecasts get the same time.

        Args:
            lease: the server's right to its GPU. `None` for CPU only.
            decision: the culling decision about the server. `None` if it does not run yet.
        """
        end = None if decision is None else decision.latest
        if end is not None and lease is not None:
            end = self.state.as_enforced(lease).ends_at
        return None if end is None else self.state.clock.wall(end)

    def _countdown(self, facts: ServerFacts, decision: CullDecision) -> messages.Countdown | None:
        policy = self.state.policy_of(facts.user, facts.offer)
        return presenters.countdown(facts, decision, policy, self.state.clock)

    def _keep_budget(self, facts: ServerFacts, decision: CullDecision) -> messages.Keep | None:
        """Return what the button *Keep* would add now, and how often the user may still press it.

        *Keep* protects the server from being stopped as idle, or extends its lifetime. `None` if the panel does not
        show the button.

        Args:
            facts: what culling knows about the server.
            decision: the culling decision about it.
        """
        policy = self.state.policy_of(facts.user, facts.offer)
        if not policy.enabled or policy.never or self.state.no_session_since(facts.user) is not None:
            return None
        if decision.cause is Cause.LIFETIME and policy.max_lifetime_extensions and facts.offer != CPU:
            left = policy.max_lifetime_extensions - facts.extensions
            minutes = policy.extend_lifetime.total_seconds() / 60
            return messages.Keep(minutes, max(0, left), policy.max_lifetime_extensions, of_server=True)
        if policy.keeps_per_day == 0:
            return None
        left = culling.keeps_left(policy, self.state.clock.now(), self.state.keeps.get(facts.user, ()))
        return messages.Keep(policy.keep.total_seconds() / 60, left, policy.keeps_per_day)

    def _figures(self, lease: Lease | None) -> messages.Figures | None:
        """Return how busy this server's own device is, as DCGM measured it.

        Args:
            lease: the server's right to its GPU. `None` for CPU only.

        Returns:
            `None` if the server has no GPU, if the service can read the use from the card itself, or if DCGM has not
            measured it.
        """
        if lease is None:
            return None
        sample = self.state.samples.get(lease.uuid)
        if sample is not None and sample.used_percent is not None:
            return None
        use = self.evidence.dcgm.use(lease)
        if use is None or use.used_percent is None:
            return None
        return messages.Figures(use.uuid, use.at, use.used_percent, use.source, use.counters)

    def _rule(self, user: str, lease: Lease | None, offer: OfferId, facts: ServerFacts | None) -> Reason | None:
        """Return the sentence about when this server stops by itself. `None` if no limit stops it.

        Args:
            user: owner of the server.
            lease: its right to its GPU. `None` for CPU only.
            offer: the offer with which it runs.
            facts: what culling knows about it. `None` if it does not run yet.
        """
        policy = self.state.policy_of(user, offer)
        if not policy.enabled or policy.never:
            return None
        if lease is None:
            quiet = policy.cpu_idle
            return None if quiet is None else explain("rule-cpu", quiet=quiet)
        if self.evidence.use_of(lease) is None:
            return explain("rule-use-not-known")
        known = None if facts is None else replace(self.evidence.evidence(facts), wanted=False)
        own_limit = policy.idle if known is None else culling.idle_limit(known, policy)[0]
        return culling.culling_rule(replace(policy, idle=own_limit))

    def _warnings(self, facts: ServerFacts | None, lease: Lease | None, trespassed: bool) -> tuple[Reason, ...]:
        warnings = []
        back = self.state.returns.get((facts.user, facts.server)) if facts is not None else None
        if back is not None and facts is not None and back.run == facts.started:
            warnings.append(explain("runs-without-gpu"))
        if lease is not None and lease.state is LeaseState.LOST:
            warnings.append(explain("gpu-lost"))
        if trespassed:
            warnings.append(explain("other-program"))
        if facts is not None:
            warnings += for_panel(self.state.notices.letters, facts)
        return tuple(warnings)
