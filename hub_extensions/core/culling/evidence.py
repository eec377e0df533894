"""What is known of one running server: of this moment (`Evidence`), and between decisions (`ServerFacts`)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from hub_extensions.core.culling.policy import CullPolicy
from hub_extensions.core.gpu.samples import DeviceSample, ServerReport
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.stops import Cause, Order

LONG_RUN = timedelta(minutes=10)
"""Work of at least this long is a run: whoever was away wants to read its results (`CullPolicy.after_run`)."""
PAUSE = timedelta(minutes=1)
"""What pauses for no longer goes on: between two epochs a GPU is idle for a moment."""
MISSED = 10
"""One part in so many of an idle window may be without samples."""
NO_CONTEXT = 48 * 2**20  # bytes; a program on the GPU has a CUDA context, which takes more
EXPORTER_DELAY = timedelta(seconds=60)  # an exporter measures every 30 s, and Prometheus reads it as often
A_CONTEXT = 256 * 2**20
"""Bytes: a program that has opened a GPU holds more, and a driver alone less."""
SAME_CLOCK = timedelta(seconds=60)
"""Clocks that differ by more are not compared with each other."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known about one running server. Times are aware and on the service's running clock.

    Attributes:
        offer: the offer's id (``cpu`` for a CPU-only server).
        started: when the server was ready (or adopted).
        adopted: it ran before this product did: nothing counts before one full idle limit.
        opened: first opened by a browser; None: not yet. `opened_known` says whether somebody would have told us.
        used: its device was measured in use at some time since the start: somebody works on it, opened or not.
        idle_since: the device has been below the limit since; None: busy, or not known.
        use_known: False: nobody can tell the use now; then nothing is stopped as idle. `idle_since` is still there
            where only a few samples were missed; `missed`: how much of the time since then has none.
        kept_until: the last *keep* promised that it is not stopped for idleness before then, nor as unopened.
        last_activity: the hub's figure (CPU only).
        busy_kernels, busy_terminals: from the server's report; None is not known (CPU only).
        memory_held: something holds memory of the device; None is not known.
        wanted: somebody waits for such a GPU.
        run_ended: when the last work of at least `LONG_RUN` ended.
        ends_at: the end of its lifetime that its user was shown, or was given; it does not come sooner.
        extensions: how often its user has put the lifetime off.
        orders: it stops at these times whatever it does.
        saves_for: so long before such a time it begins to save.
        no_session: nobody is signed in whose server it is, and nobody knows whether the account is still there.
        orphaned_at: from then on it stops once it is idle, because of `no_session`; None: it does not for that.
    """

    offer: OfferId
    started: datetime
    adopted: bool
    opened: datetime | None
    opened_known: bool
    idle_since: datetime | None
    use_known: bool
    kept_until: datetime | None = None
    last_activity: datetime | None = None
    busy_kernels: int | None = None
    used: bool = False
    orders: tuple[Order, ...] = ()
    busy_terminals: int | None = None
    memory_held: bool | None = None
    wanted: bool = False
    run_ended: datetime | None = None
    missed: timedelta = timedelta(0)
    ends_at: datetime | None = None
    extensions: int = 0
    saves_for: timedelta = timedelta(0)
    no_session: bool = False
    orphaned_at: datetime | None = None


@dataclass(frozen=True)
class ServerFacts:
    """What the service remembers of one running server between decisions, and across its own restarts.

    Attributes:
        started: when it was ready; with user and server it names this run of the server.
        lease: None for a CPU-only server.
        keeps: when *keep* was pressed for this run of it (in the last 24 hours).
        warned: a warning was shown for the present countdown since.
        cause: what the countdown or the warning is for, or was last; `None` if there was none.
        promised: the end that the countdown shows, or showed last; nothing takes it back.
        busy_since: its GPU works, or worked last, since then. run_ended: as in `Evidence`.
        unknown_since: since then samples are missed of a window that is idle. missed: how many were before, as a time.
        ends_at, extensions: as in `Evidence`.
        orders: what an admin ordered, the hub when its user was signed out, or its user by giving the GPU back.
        announced: the end that its user is warned of; None: no warning stands.
        reached: by which ways that warning was heard; none: by nobody, as far as is known.
        unheard: its countdown has begun again, because nobody had heard of it.
    """

    user: str
    server: str
    offer: OfferId
    started: datetime
    lease: str | None = None
    adopted: bool = False
    opened: datetime | None = None
    opened_known: bool = False
    idle_since: datetime | None = None
    kept_until: datetime | None = None
    keeps: tuple[datetime, ...] = ()
    warned: datetime | None = None
    cause: Cause | None = None
    promised: datetime | None = None
    orders: tuple[Order, ...] = ()
    busy_since: datetime | None = None
    run_ended: datetime | None = None
    unknown_since: datetime | None = None
    missed: timedelta = timedelta(0)
    ends_at: datetime | None = None
    extensions: int = 0
    announced: datetime | None = None
    reached: tuple[str, ...] = ()
    unheard: bool = False


def activity_counts(hub_clock_ahead: timedelta | None) -> bool:
    """Whether the hub's `last_activity` says how long somebody was away: its clock has to be ours, and known to be."""
    return hub_clock_ahead is not None and abs(hub_clock_ahead) <= SAME_CLOCK


def is_forged(last_activity: datetime, now: datetime) -> bool:
    """Whether a `last_activity` lies ahead of now (both by clocks that agree). Any user's server can write one."""
    return last_activity > now + SAME_CLOCK


def evidence_of(
    facts: ServerFacts,
    *,
    use_known: bool,
    last_activity: datetime | None = None,
    busy_kernels: int | None = None,
    busy_terminals: int | None = None,
    used: bool = False,
    memory_held: bool | None = None,
    wanted: bool = False,
    saves_for: timedelta = timedelta(0),
    no_session: bool = False,
    orphaned_at: datetime | None = None,
) -> Evidence:
    """What is remembered of a server, with what is known of it just now (see `Evidence`)."""
    return Evidence(
        offer=facts.offer,
        started=facts.started,
        adopted=facts.adopted,
        opened=facts.opened,
        opened_known=facts.opened_known,
        idle_since=facts.idle_since,
        use_known=use_known,
        kept_until=facts.kept_until,
        last_activity=last_activity,
        busy_kernels=busy_kernels,
        used=used,
        orders=facts.orders,
        busy_terminals=busy_terminals,
        memory_held=memory_held,
        wanted=wanted,
        run_ended=facts.run_ended,
        missed=facts.missed,
        ends_at=facts.ends_at,
        extensions=facts.extensions,
        saves_for=saves_for,
        no_session=no_session,
        orphaned_at=orphaned_at,
    )


def observe(facts: ServerFacts, sample_percent: float | None, policy: CullPolicy, now: datetime) -> ServerFacts:
    """Fold one sample of the server's device into its facts. None (or no number) is not known, and never idle."""
    if sample_percent is None or not math.isfinite(sample_percent):
        return _missed(facts, policy, now)
    if sample_percent >= policy.idle_below_percent:
        paused = facts.idle_since is not None and now - facts.idle_since > PAUSE
        busy_since = now if facts.busy_since is None or paused else min(facts.busy_since, now)
        facts = _not_idle(facts)
        return facts if facts.busy_since == busy_since else replace(facts, busy_since=busy_since)
    facts = _window_goes_on(facts, policy, now)
    if facts.idle_since is not None:
        return facts if facts.idle_since <= now else replace(facts, idle_since=now)
    ran = facts.busy_since is not None and now - facts.busy_since >= LONG_RUN
    return replace(facts, idle_since=now, run_ended=now if ran else facts.run_ended)


def _not_idle(facts: ServerFacts) -> ServerFacts:
    if facts.idle_since is None and facts.unknown_since is None and not facts.missed:
        return facts
    return replace(facts, idle_since=None, unknown_since=None, missed=timedelta(0))


def _missed(facts: ServerFacts, policy: CullPolicy, now: datetime) -> ServerFacts:
    """Without a sample an idle window stays for a tenth of the limit; then it is not known what has been done in it."""
    if facts.idle_since is None:
        return _not_idle(facts)
    since = now if facts.unknown_since is None else min(facts.unknown_since, now)
    if now - since > _limit(facts, policy) / MISSED:
        return _not_idle(facts)
    return replace(facts, unknown_since=since)


def _window_goes_on(facts: ServerFacts, policy: CullPolicy, now: datetime) -> ServerFacts:
    """Idle before a gap and after it: one window, where the gap and all gaps of it are short enough."""
    if facts.idle_since is None or facts.unknown_since is None:
        return facts
    limit, gap = _limit(facts, policy), max(now - facts.unknown_since, timedelta(0))
    missed = facts.missed + gap
    if gap > limit / MISSED or missed > max(limit, now - facts.idle_since) / MISSED:
        return replace(_not_idle(facts), idle_since=now)
    return replace(facts, unknown_since=None, missed=missed)


def _limit(facts: ServerFacts, policy: CullPolicy) -> timedelta:
    return policy.idle_by_offer.get(facts.offer, policy.idle)


def holds_memory(sample: DeviceSample) -> bool | None:
    """Whether something holds memory of the device: a program on it, or more than an empty one has; None: not known."""
    if sample.pids:
        return True
    return None if sample.memory_used_bytes is None else sample.memory_used_bytes >= A_CONTEXT


def proves_idle(sample: DeviceSample, claimed: datetime | None) -> bool:
    """Whether an exporter's figures prove that a server's report of work is wrong.

    An exporter may show a use of 0 of a busy card (NVIDIA/dcgm-exporter#662), so that alone proves nothing. It does
    beside its other figure, if the memory shows that no program is on the GPU, and if both were measured well after
    the report began to say that the GPU works: work that has just begun is seen by then.

    Args:
        claimed: when a report first said that the GPU works while the exporter saw nothing; None if none does.
    """
    return claimed is not None and is_empty(sample) and sample.at >= claimed + EXPORTER_DELAY


def is_empty(sample: DeviceSample) -> bool:
    """Whether its memory shows that no program is on the GPU; False if the memory is not known."""
    return sample.memory_used_bytes is not None and sample.memory_used_bytes < NO_CONTEXT


def decisive_use(
    measured: float | None, report: ServerReport | None, policy: CullPolicy, *, fresh: bool = False
) -> float | None:
    """The use that is decided on, in percent: what was measured, beside what the server reports of itself.

    Its user can forge a report, so none counts while what was measured is `fresh`. Else a high one protects the server
    until its lifetime ends it, as a loop of multiplications on the GPU would. A low one counts where nobody measures,
    if the admin trusts it and no kernel or terminal is busy.
    """
    reported = None if report is None else report.used_percent
    if report is None or reported is None or (fresh and measured is not None and math.isfinite(measured)):
        return measured
    if reported >= policy.idle_below_percent:
        return max(reported, measured or 0.0)
    at_rest = report.busy_kernels == 0 and not report.busy_terminals  # kernels that cannot be listed may be at work
    return reported if measured is None and policy.trust_reports and at_rest else measured


def opened(facts: ServerFacts, now: datetime) -> ServerFacts:
    """A browser has opened this server. Only the first time counts."""
    return replace(facts, opened=facts.opened or now, opened_known=True)


def reported(facts: ServerFacts, report: ServerReport, now: datetime) -> ServerFacts:
    """Its own extension has spoken: from now on we would be told of an opening, and perhaps just were."""
    return opened(facts, now) if report.opened else replace(facts, opened_known=True)
