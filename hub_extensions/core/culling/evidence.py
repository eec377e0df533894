"""Facts about one running server: known now (`Evidence`), and remembered between decisions (`ServerFacts`).

An idle window is a period without a break in which the use of the server's GPU is below the limit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from hub_extensions.core.culling.policy import CullPolicy
from hub_extensions.core.gpu.samples import DeviceSample, ServerReport
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.stops import Cause, StopCause

LONG_RUN = timedelta(minutes=10)
"""Shortest work after which `CullPolicy.after_run` applies, because the user may be away and want to read results."""
PAUSE = timedelta(minutes=1)
"""Longest pause that does not end a piece of work, because a GPU is idle for a moment between two epochs."""
MISSED = 10  # one part in ten of an idle window may lack samples
NO_CONTEXT = 48 * 2**20  # bytes; a program on the GPU has a CUDA context, which takes more
EXPORTER_DELAY = timedelta(seconds=60)  # an exporter measures every 30 s, and Prometheus reads it as often
A_CONTEXT = 256 * 2**20  # bytes; a program that has opened a GPU holds more, and the driver alone less
SAME_CLOCK = timedelta(seconds=60)
"""Largest difference between two clocks whose times are compared with each other."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything on which the decision about one running server is based.

    Times are on the running clock, which stands still while hub or service is down.

    Attributes:
        offer: the offer's id (``cpu`` for a CPU-only server).
        started: when the server was ready. For an adopted server, when the service found it running, or found
            later that it uses a GPU.
        adopted: whether the service found the server already running, so that the server's past is not known. The
            server was started before this product was installed, or during an outage of the service.
        opened: when a browser first opened the server; `None` if none has, or if that is not known (`opened_known`).
        opened_known: whether the server's extension reports, so that an opening would be known.
        used: whether the device was measured as busy at some time since the start, so that somebody works with it.
        idle_since: since when the device has been below the limit; `None` if it is busy or its use is not known.
        use_known: whether the use is known now; if not, nothing is stopped as idle. If only a few samples were missed,
            `idle_since` is kept.
        missed: the part of the time since `idle_since` without samples.
        kept_until: time until which a press of *Keep* protects the server from being stopped as idle or unopened;
            `None` if nothing protects it.
        last_activity: when the hub last saw activity of the server, for servers without a GPU; `None` if not known.
        busy_kernels, busy_terminals: counts from the server's report; `None` if they are not known.
        memory_held: whether something holds memory of the device; `None` if that is not known.
        wanted: whether somebody waits for such a GPU.
        run_ended: when the last work of at least `LONG_RUN` ended; `None` without such work.
        ends_at: the latest end of the lifetime that the user was shown, or that *Keep* or an administrator has set. The
            lifetime does not end the server before this time. `None` if no end was shown or set.
        extensions: how often its user has extended the lifetime.
        orders: causes that somebody ordered, which stop the server whatever it does (`StopRecord.orders`).
        saves_for: how long before the time of an order the server begins to save.
        no_session: whether its user has no sign-on session, so that it is not known whether the account still exists.
        orphaned_at: time from which an idle server stops because of `no_session`; `None` if it does not.
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
    orders: tuple[StopCause, ...] = ()
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
    """The facts that the service remembers of one running server between decisions, and over its own restarts.

    Attributes that `Evidence` has too are described there.

    Attributes:
        started: when the server was ready, which distinguishes this run of the server from others.
        lease: id of the server's right to its device; `None` for a server without a GPU.
        keeps: when *Keep* was pressed for this run, in the last 24 hours.
        warned: since when a warning is shown for the present countdown; `None` if none is shown.
        cause: the cause of the present or the last countdown; `None` if none has been shown.
        promised: the end that the countdown shows, or showed last. The limits of culling never end the server before
            this time. `None` if no end was shown.
        busy_since: when the GPU last began to be busy; `None` if it has not been busy yet.
        unknown_since: since when measurements are missing in the present idle window; `None` if they are not missing
            now.
        missed: total length of the earlier gaps without measurements in the present idle window, without the gap that
            began at `unknown_since`.
        announced: the end of which the user is warned; `None` without a warning.
        reached: the ways by which the warning has reached the user: an open page, or names of channels (webhook,
            e-mail).
        unheard: whether the countdown has begun again, because the first warning had not reached the user.
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
    """Return whether the hub's `last_activity` can be used, because its clock is known to agree with the service's.

    Args:
        hub_clock_ahead: how far the hub's clock is ahead; `None` if that is not known.
    """
    return hub_clock_ahead is not None and abs(hub_clock_ahead) <= SAME_CLOCK


def is_forged(last_activity: datetime, now: datetime) -> bool:
    """Return whether a `last_activity` lies in the future.

    Code in a user's server can report such a time to the hub.
    """
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
    orders: tuple[StopCause, ...] = (),
    saves_for: timedelta = timedelta(0),
    no_session: bool = False,
    orphaned_at: datetime | None = None,
) -> Evidence:
    """Combine what is remembered of a server with present measurements and orders.

    Args:
        facts: what the service remembers of the server.
        use_known: whether the use of the GPU is known now.
        last_activity: when the hub last saw activity of the server; `None` if not known.
        busy_kernels, busy_terminals: counts from the server's report; `None` if they are not known.
        used: whether the device was measured as busy at some time since the start.
        memory_held: whether something holds memory of the device; `None` if that is not known.
        wanted: whether somebody waits for such a GPU.
        orders: causes of a stop that somebody ordered.
        saves_for: how long before the time of an order the server begins to save.
        no_session: whether the server's user has no sign-on session.
        orphaned_at: time from which an idle server stops because of `no_session`; `None` if it does not.
    """
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
        orders=orders,
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
    """Record one measurement of the server's device, which begins, continues or ends an idle window.

    Args:
        facts: what the service remembers of the server.
        sample_percent: GPU use; `None` or NaN if it is not known, which never counts as idle.
        policy: the limits for this server.
        now: the present time of the running clock, which stands still while hub or service is down.
    """
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
    """Record that a measurement of the GPU is missing.

    If measurements have been missing for a tenth of the idle limit, the server no longer counts as idle: its idle
    window (the time without use so far) ends.
    """
    if facts.idle_since is None:
        return _not_idle(facts)
    since = now if facts.unknown_since is None else min(facts.unknown_since, now)
    if now - since > _limit(facts, policy) / MISSED:
        return _not_idle(facts)
    return replace(facts, unknown_since=since)


def _window_goes_on(facts: ServerFacts, policy: CullPolicy, now: datetime) -> ServerFacts:
    """Continue the idle window (the time without use of the GPU) after a gap without measurements.

    If this gap is too long, or all gaps together are, a new window begins now.
    """
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
    """Return whether a program holds memory of the device; `None` if the sample has neither processes nor memory."""
    if sample.pids:
        return True
    return None if sample.memory_used_bytes is None else sample.memory_used_bytes >= A_CONTEXT


def proves_idle(sample: DeviceSample, claimed: datetime | None) -> bool:
    """Return whether an exporter's figures prove that a server's own report of work on its GPU is wrong.

    An exporter may report 0 for a busy card (NVIDIA/dcgm-exporter#662), so its figure of GPU use alone proves nothing.
    The proof needs the memory too: it has to show that no program is on the GPU. Both have to be measured well after
    the first report of work, because work that has just begun is measured by then.

    Args:
        sample: the exporter's last sample of the device.
        claimed: when a report first showed work while the exporter saw none. `None` if no report shows work, so there
            is nothing to refute.
    """
    return claimed is not None and is_empty(sample) and sample.at >= claimed + EXPORTER_DELAY


def is_empty(sample: DeviceSample) -> bool:
    """Return whether the sample's memory shows that no program is on the GPU. False if the memory is not known."""
    return sample.memory_used_bytes is not None and sample.memory_used_bytes < NO_CONTEXT


def decisive_use(
    measured: float | None, report: ServerReport | None, policy: CullPolicy, *, fresh: bool = False
) -> float | None:
    """Return the GPU use, in percent, on which a decision is based; `None` if it is not known.

    A user can forge the report of the server's extension, so no report counts while there is a `fresh` measurement.
    Otherwise a report of high use protects the server until its lifetime ends, just as a useless computation on the GPU
    would. A report of low use counts only if a measurement is missing, the administrator trusts reports, and no kernel
    or terminal is busy.

    Args:
        measured: the last measurement of GPU use in percent; `None` without a measurement.
        report: the last report of the server's extension; `None` without a report.
        fresh: whether the measurement is recent and reliable.
    """
    reported = None if report is None else report.used_percent
    if report is None or reported is None or (fresh and measured is not None and math.isfinite(measured)):
        return measured
    if reported >= policy.idle_below_percent:
        return max(reported, measured or 0.0)
    at_rest = report.busy_kernels == 0 and not report.busy_terminals  # kernels that cannot be listed may be at work
    return reported if measured is None and policy.trust_reports and at_rest else measured


def opened(facts: ServerFacts, now: datetime) -> ServerFacts:
    """Return the facts after a browser has opened the server. Only the first opening is stored."""
    return replace(facts, opened=facts.opened or now, opened_known=True)


def reported(facts: ServerFacts, report: ServerReport, now: datetime) -> ServerFacts:
    """Record a report of the server's extension. From now on it is known whether the server was opened."""
    return opened(facts, now) if report.opened else replace(facts, opened_known=True)
