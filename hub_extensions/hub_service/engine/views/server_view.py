"""The views of a single server: the reports of its extension, what the extension may read, and its button *Keep*.

*Keep* protects a server for a while from being stopped as idle, or extends its time limit.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import datetime, timedelta

from hub_extensions.adapters.files.catalogues import catalogue_for
from hub_extensions.adapters.store import Changes, StoreUnavailable
from hub_extensions.core import culling, messages
from hub_extensions.core.culling import Cause, CullDecision, CullPolicy, Evidence, ServerFacts
from hub_extensions.core.forecast.progress import ACCEPTED, DISTRUST, is_trusted
from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.gpu.samples import ServerReport
from hub_extensions.core.notices import (
    TRAINING_TOO_LONG,
    TrainingNotice,
    for_panel,
    is_repeat,
    run_of,
    training_deliveries,
    warning_channels,
)
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.queue.model import Lease, LeaseState
from hub_extensions.core.stops import Withdrawal
from hub_extensions.core.text.reasons import Reason, explain, translated
from hub_extensions.core.usage import end_of_cull
from hub_extensions.hub_service.engine.state.errors import Refused
from hub_extensions.hub_service.engine.state.meta import MISSED_ENDS, read_missed_ends
from hub_extensions.hub_service.engine.state.state import State
from hub_extensions.hub_service.engine.state.transaction import Transactions
from hub_extensions.hub_service.engine.stops.runner import StopRunner
from hub_extensions.hub_service.engine.uses.usage import size_sentences
from hub_extensions.hub_service.engine.views import presenters
from hub_extensions.hub_service.engine.views.cull_audit import EXTENDED, KEPT, distrusted_row, kept_row

REPORTED = [each.name for each in fields(ServerReport) if each.name != "at"]  # as `messages.Report` has them
UNKNOWN = "This server is not known to run."
Postpone = Callable[[Evidence, ServerFacts, CullPolicy, datetime], ServerFacts | Reason]
PROGRESS_PAUSE = timedelta(seconds=1)
"""Shortest time between two reports of progress of one server."""


class ServerView:
    """Handles the requests of the extension in a user's server: its reports, presses of *Keep*, and the panel's state.

    Args:
        state: the state.
        transaction: writes changes.
        evidence: judges how busy a server is and when it stops.
        can_notify: returns whether a notice to a user can be sent by mail or webhook.
    """

    def __init__(
        self, state: State, transaction: Transactions, evidence: StopRunner, can_notify: Callable[[str], bool]
    ) -> None:
        self.state = state
        self.transaction = transaction
        self.evidence = evidence
        self.can_notify = can_notify
        self._progress_at: dict[tuple[str, str], float] = {}

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

    async def take_progress(self, user: str, server: str, report: messages.Progress) -> bool:
        """Record a server's report of when its computation will be done.

        If the report shows that an earlier reported end was missed, that is stored. If the server stops before its
        training is done, its user is notified once in this run of the server.

        Returns:
            Whether the report is used.

        Raises:
            Refused: 429, the last report of this server came less than a second ago. 503, the store cannot be written.
        """
        key, elapsed = (user, server), self.state.clock.elapsed()
        recent = {
            each: at for each, at in self._progress_at.items() if 0 <= elapsed - at < PROGRESS_PAUSE.total_seconds()
        }
        self._progress_at = {**recent, key: recent.get(key, elapsed)}
        if key in recent:
            self.state.count("progress", "too-often")
            raise Refused.too_often(
                "A server reports its progress once per second at most.", "too-often", PROGRESS_PAUSE
            )
        async with self.transaction() as transaction:
            facts, forecasts, now = self.state.facts.get(key), transaction.state.forecasts, self.state.clock.utc_now()
            if facts is None or facts.lease is None:
                self.state.count("progress", "no-gpu")
                return False
            outcome = forecasts.progress_outcome(key, report, facts.started, self.state.clock)
            self.state.count("progress", outcome)
            if outcome != ACCEPTED:
                return False
            # a training cut off by its server's stop does not prove its report wrong
            is_cut = (
                facts.warned is not None or self.state.is_being_stopped(user, server) or self.evidence.too_long(facts)
            )
            missed = {} if report.left_seconds == 0 and is_cut else forecasts.missed_note(key, report, now)
            if missed:
                lost = not is_trusted(read_missed_ends(missed[MISSED_ENDS])[user], now)
                rows = (distrusted_row(self.state, facts, now + DISTRUST),) if lost else ()
                await transaction.write(Changes(meta=missed, journal=rows))
            forecasts.record_progress(key, report, facts.started, self.state.clock)
            notice = self._too_long_notice(facts, now)
            if not notice.empty:
                await transaction.write(notice)
        return True

    def _too_long_notice(self, facts: ServerFacts, now: datetime) -> Changes:
        """Return the changes that notify a user whose server stops before its training is done.

        Empty if the training may be done in time, if the user was notified before in this run of the server, or if no
        channel is configured.

        Args:
            facts: what culling knows about the server.
            now: wall-clock time.
        """
        times, notices = self.evidence.too_long(facts), self.state.notices
        channels = warning_channels(notices.config, self.state.policy)
        if times is None or not channels:
            return Changes()
        about = (facts.user, facts.server, TRAINING_TOO_LONG, run_of(facts))
        notice = TrainingNotice(secrets.token_hex(8), *about, at=now, ends=times[0], stops=times[1])
        if is_repeat(notices.trainings, notice):
            return Changes()
        offer = self.state.offer(facts.offer)
        title = offer.plain_name if offer else facts.offer
        made = training_deliveries(notice, facts.offer, title, facts.started, channels, self.state.clock.now())
        return Changes(deliveries=made, meta=notices.training_note(now, self.state.facts.values(), notice))

    async def keep(self, user: str, server: str) -> None:
        """Postpone the stop of a server, because its user pressed *Keep*.

        Raises:
            Refused: 404, no such server runs. 409, *Keep* would not help, or the user has pressed it too often. 503,
                the store cannot be written.
        """

        def keep(evidence: Evidence, facts: ServerFacts, policy: CullPolicy, now: datetime) -> ServerFacts | Reason:
            return culling.keep(evidence, facts, policy, now, self.state.keeps.get(user, ()))

        await self._postpone(user, server, "keep", keep)

    async def extend(self, user: str, server: str) -> None:
        """Put off the end of a server's lifetime, because its user asked for more time.

        Raises:
            Refused: 404, no such server runs. 409, the lifetime cannot be extended now. 503, the store cannot be
                written.
        """
        await self._postpone(user, server, "extend", culling.extend)

    async def _postpone(self, user: str, server: str, field: str, postpone: Postpone) -> None:
        """Change the facts of a server so that it stops later, and write the journal's row about it.

        Args:
            user, server: name of the user and of the server.
            field: the name of the request, for a refusal.
            postpone: returns the changed facts or a reason to refuse; see `culling.extend` for its arguments.
        """
        async with self.transaction() as transaction:
            facts = self.state.facts.get((user, server))
            if facts is None:
                raise Refused(404, UNKNOWN, "server", "unknown-server")
            lease, policy = self.state.leases.get(facts.lease or ""), self.state.policy_of(user, facts.offer)
            refused = self.evidence.refuse_withdrawal(facts)
            kept = refused or postpone(self.evidence.evidence(facts), facts, policy, self.state.clock.now())
            if isinstance(kept, Reason):
                raise Refused.because(409, kept, field)
            longer = kept.extensions > facts.extensions
            until = kept.ends_at if longer else kept.kept_until
            kind = EXTENDED if longer else KEPT
            row = kept_row(self.state, kind, facts, until, self.evidence.grounds(facts, lease))
            after = self.evidence.withdrawn(kept, Withdrawal.KEEP)
            try:
                await transaction.write(replace(after, facts=(kept,), journal=(row,)))
            except StoreUnavailable as problem:
                raise Refused(503, f"Not kept: {problem.message}", field, "store-unavailable") from problem

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
        countdown = self._countdown(facts, decision) if facts and decision else None
        size = ""
        if facts and decision and countdown:
            t = catalogue_for(self.state.notices.languages.get(user, self.state.notices.usual))
            said = size_sentences(self.state, facts.lease, end_of_cull(decision.cause))
            size = " ".join(translated(each, t) for each in said)
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
            countdown=countdown,
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
            extend=self._extend_budget(facts) if facts else None,
            can_notify=self.can_notify(user),
            size=size,
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
            return self._extend_budget(facts)
        if policy.keeps_per_day == 0:
            return None
        left = culling.keeps_left(policy, self.state.clock.now(), self.state.keeps.get(facts.user, ()))
        return messages.Keep(policy.keep.total_seconds() / 60, left, policy.keeps_per_day)

    def _extend_budget(self, facts: ServerFacts) -> messages.Keep | None:
        """Return how much one request puts off the end of the lifetime, and how many are left.

        `None` if the lifetime of the server cannot be put off, or if its user has no session.

        Args:
            facts: what culling knows about the server.
        """
        policy = self.state.policy_of(facts.user, facts.offer)
        left = culling.extensions_left(facts, policy)
        if left is None or self.state.no_session_since(facts.user) is not None:
            return None
        minutes = policy.extend_lifetime.total_seconds() / 60
        return messages.Keep(minutes, left, policy.max_lifetime_extensions, of_server=True)

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
        too_long = None if facts is None else self.evidence.too_long(facts)
        if too_long is not None:
            warnings.append(explain("training-too-long", ends=too_long[0], stops=too_long[1]))
        if facts is not None:
            warnings += for_panel(self.state.notices.letters, facts)
        return tuple(warnings)
