"""Conversion of values of ``core`` to messages of the HTTP API.

A message names no user except the owner of its ticket (place in line) or server.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta

from hub_extensions.adapters.store import NoticeRow
from hub_extensions.core.cluster.pools import PoolSurvey
from hub_extensions.core.culling import Action, CullDecision, CullPolicy, ServerFacts, last_warning, why_not_kept
from hub_extensions.core.gpu.devices import WHOLE, Device
from hub_extensions.core.messages import (
    Countdown,
    LeaseGrant,
    NodePart,
    Notice,
    OfferClosing,
    OfferState,
    OtherEnd,
    PoolInfo,
    TicketInfo,
    Wait,
)
from hub_extensions.core.messages import TicketStatus as TicketMessage
from hub_extensions.core.offers.model import GpuOffer
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.offers.pod_request import POD_MARK, PodAsk
from hub_extensions.core.queue.alternatives import smaller_free
from hub_extensions.core.queue.cordons import Closing
from hub_extensions.core.queue.model import Answer, Availability, Lease, Ticket, Verdict
from hub_extensions.core.queue.wait_bound import WaitForecast, unknown
from hub_extensions.core.text.reasons import Reason, explain
from hub_extensions.core.text.wording import WIDE, coarse, stepped
from hub_extensions.hub_service.engine.state.clock import RunningClock

# value of ``NVIDIA_VISIBLE_DEVICES`` with which a container runtime gives no GPU (NVIDIA container toolkit)
VOID = "void"


def wait(forecast: WaitForecast) -> Wait:
    """Convert the forecast of a wait to a message.

    The likely times are rounded to whole steps, because they are not exact to the minute. P10, the time before which
    one of ten users starts, is rounded down. P90, the time before which nine of ten start, is rounded up. If P90 is
    more than three times P10, the steps are coarse.
    """

    def seconds(value: timedelta | None) -> float | None:
        return None if value is None else value.total_seconds()

    p10, p50, p90, most = (seconds(each) for each in (forecast.p10, forecast.p50, forecast.p90, forecast.at_most))
    wide = False
    if not forecast.now and p10 is not None and p50 is not None and p90 is not None:
        wide = p90 > WIDE * p10
        low, high = (
            (coarse(p10, up=False), coarse(p90, up=True)) if wide else (stepped(p10, up=False), stepped(p90, up=True))
        )
        p90 = min(high, math.inf if most is None else most)
        p10 = min(low, p90)
        p50 = min(max(stepped(p50), p10), p90)
    return Wait(forecast.now, p10, p50, p90, most, forecast.reason, forecast.as_of, forecast.soon, forecast.note, wide)


def offer_state(stands: Availability, closing: Closing | None = None) -> OfferState:
    """Convert an offer (an option of the spawn form) with its free devices and its wait to a message.

    Args:
        stands: the offer with its free devices and its wait.
        closing: the devices of its kind that an administrator has closed to new servers. `None` if none is closed.
    """
    offer = stands.offer
    closed = None
    if closing is not None and stands.free is not None:
        # on a cluster, the total does not include what is closed; on a machine, it does
        everything = stands.free == 0 and (not stands.total or closing.count >= stands.total)
        closed = OfferClosing(closing.count, everything, closing.since, closing.why)
    shown_wait = wait(stands.wait)
    if closed is not None and closed.all:  # nobody knows when the pool is opened again
        shown_wait = wait(unknown(explain("offer-closed")))
    return OfferState(
        id=offer.id,
        kind=offer.kind.value,
        title=offer.title,
        description=offer.description,
        pool=offer.pool,
        share=offer.share / WHOLE,
        isolation={
            "memory": offer.isolation.memory.value,
            "fault": offer.isolation.fault.value,
            "compute": offer.isolation.compute.value,
            "access": offer.isolation.access.value,
        },
        memory_bytes=offer.memory_bytes,
        memory_enforced=offer.memory_enforced,
        sm_count=offer.sm_count,
        sm_total=offer.sm_total,
        product=offer.product,
        simulated=offer.simulated,
        free=stands.free,
        total=stands.total,
        held=stands.held,
        held_by_others=stands.foreign,
        lost=stands.lost,
        waiting=stands.waiting,
        wait=shown_wait,
        queue=stands.queue,
        name=offer.name,
        closed=closed,
    )


def allowed(offers: Iterable[Availability], groups: Sequence[str], admin: bool) -> tuple[Availability, ...]:
    """Return the offers (options of the spawn form) that a user may see: those for everybody or the user's groups.

    Args:
        offers: all offers.
        groups: the user's groups.
        admin: whether the user is an administrator, who may see all offers.
    """
    return tuple(a for a in offers if admin or not a.offer.groups or set(a.offer.groups) & set(groups))


def smaller_and_free(wanted: Sequence[OfferId], stands: Sequence[Availability]) -> tuple[Availability, ...]:
    """Return GPU offers (options of the spawn form) that can start now and are smaller than every wanted one.

    They are suggested to a waiting user.

    Args:
        wanted: the offers that the user waits for.
        stands: all offers that the user may see.
    """
    smaller = [{o.id for o in smaller_free(a.offer, stands)} for a in stands if a.offer.id in wanted]
    both = set.intersection(*smaller) if smaller else set()
    return tuple(a for a in stands if a.offer.id in both and a.wait.now and a.offer.id not in wanted)


def grant(
    lease: Lease | None, offer: OfferId, service_url: str, simulate: str | None, pod: PodAsk | None = None
) -> LeaseGrant:
    """Return what an admitted server gets: the environment variables, and what its pod requests.

    Args:
        lease: the server's right to a device. `None` for CPU only.
        offer: id of the granted offer.
        service_url: address of this service for the server.
        simulate: name of the layout of simulated GPUs. `None` if the GPUs are real.
        pod: what the pod requests from the cluster. `None` on one machine.
    """
    common = {"JUPYTERHUB_GPU_OFFER": offer, "JUPYTERHUB_GPU_SERVICE_URL": service_url}
    if simulate:
        common["JUPYTERHUB_GPU_SIMULATED"] = simulate
    if lease is None:
        nothing = {**common, "CUDA_VISIBLE_DEVICES": VOID, "NVIDIA_VISIBLE_DEVICES": VOID}
        return LeaseGrant("", offer, None, 0.0, nothing, pod)
    if pod is not None:  # the device plugin names the device, in the container only
        common |= {"JUPYTERHUB_GPU_LEASE": lease.id, POD_MARK: pod.mechanism.value}
        return LeaseGrant(lease.id, offer, None, lease.share / WHOLE, common, pod)
    devices = {
        "CUDA_VISIBLE_DEVICES": lease.uuid,
        "NVIDIA_VISIBLE_DEVICES": lease.uuid,
        "JUPYTERHUB_GPU_LEASE": lease.id,
    }
    return LeaseGrant(lease.id, offer, lease.uuid, lease.share / WHOLE, {**common, **devices})


def listed(ticket: Ticket, status: TicketMessage, url: str, clock: RunningClock) -> TicketInfo:
    """Convert a ticket (a place in line) for a list of tickets.

    Args:
        ticket: the place in line of a server's user.
        status: its present status. The part of its reason that is meant for the log is left out.
        url: address at which the user opens the server.
        clock: converts times of the running clock (it stands still while the hub is away) to wall-clock time.
    """
    return TicketInfo(
        ticket=ticket.id,
        user=ticket.user,
        server=ticket.server,
        state=ticket.state.value,
        offers=tuple(choice.offer for choice in ticket.wanted_offers),
        position=status.position,
        since=clock.wall(ticket.joined),
        reason=replace(status.reason, log_message=""),
        url=url,
    )


def waiting(
    ticket: Ticket, verdict: Verdict, alternatives: Sequence[Availability], simulated: bool, clock: RunningClock
) -> TicketMessage:
    """Return the status of a waiting ticket (a place in line).

    Args:
        ticket: the place in line of a server's user.
        verdict: the answer of admission: position, reason and forecast.
        alternatives: other offers that the user could have sooner.
        simulated: whether any offer that the user may see is simulated.
        clock: converts times of the running clock (it stands still while the hub is away) to wall-clock time.
    """
    return TicketMessage(
        ticket=ticket.id,
        attempt=ticket.attempt,
        user=ticket.user,
        server=ticket.server,
        answer=Answer.WAIT.value,
        offers=tuple(choice.offer for choice in ticket.wanted_offers),
        offer=verdict.offer,
        position=verdict.position,
        ahead=verdict.ahead,
        since=clock.wall(ticket.joined),
        reason=verdict.reason,
        wait=wait(verdict.forecast) if verdict.forecast else None,
        alternatives=tuple(offer_state(a) for a in alternatives),
        simulated=simulated,
    )


def admitted(
    ticket: Ticket, given: LeaseGrant, title: str, simulated: bool, clock: RunningClock, usual: float | None = None
) -> TicketMessage:
    """Return the status of an admitted ticket (a place in line), whose server may start.

    Args:
        ticket: the place in line of a server's user.
        given: what the server gets: environment variables and the pod's request.
        title: the offer's title.
        simulated: whether the granted device is simulated.
        clock: converts times of the running clock (it stands still while the hub is away) to wall-clock time.
        usual: seconds that such a start usually takes. `None` if too few starts are known.
    """
    return TicketMessage(
        ticket=ticket.id,
        attempt=ticket.attempt,
        user=ticket.user,
        server=ticket.server,
        answer=Answer.ADMIT.value,
        offers=tuple(choice.offer for choice in ticket.wanted_offers),
        offer=ticket.admitted_offer,
        position=0,
        ahead=0,
        since=clock.wall(ticket.joined),
        reason=explain("admitted", title=title, log_message=f"admitted to {ticket.admitted_offer}"),
        wait=None,
        grant=given,
        simulated=simulated,
        usual_start_seconds=usual,
    )


def over(ticket: Ticket, answer: str, reason: Reason, clock: RunningClock) -> TicketMessage:
    """Return the status of a ticket (a place in line) that waits no more.

    Args:
        ticket: the place in line of a server's user.
        answer: ``refuse`` if admission refused it, ``ended`` if it ended.
        reason: the sentence for the user.
        clock: converts times of the running clock (it stands still while the hub is away) to wall-clock time.
    """
    return TicketMessage(
        ticket=ticket.id,
        attempt=ticket.attempt,
        user=ticket.user,
        server=ticket.server,
        answer=answer,
        offers=tuple(choice.offer for choice in ticket.wanted_offers),
        offer=ticket.admitted_offer,
        position=0,
        ahead=0,
        since=clock.wall(ticket.joined),
        reason=reason,
        wait=None,
    )


def not_there(ticket: Ticket, reason: Reason, clock: RunningClock) -> TicketMessage:
    """Return the status of a waiting ticket (a place in line) whose position cannot be computed now. The position is 0.

    Args:
        ticket: the place in line of a server's user.
        reason: why the position is unknown.
        clock: converts times of the running clock (it stands still while the hub is away) to wall-clock time.
    """
    return replace(over(ticket, "wait", reason, clock), wait=wait(unknown(replace(reason, log_message=""))))


def countdown(facts: ServerFacts, decision: CullDecision, policy: CullPolicy, clock: RunningClock) -> Countdown | None:
    """Convert a culling decision to the countdown in the server's panel. `None` if no countdown is shown.

    Args:
        facts: what culling knows about the server.
        decision: the decision about it.
        policy: the server's limits.
        clock: converts times of the running clock (it stands still while the hub is away) to wall-clock time.
    """
    if decision.stops_at is None or decision.cause is None or decision.reason is None:
        return None
    return Countdown(
        clock.wall(decision.stops_at),
        decision.cause.value,
        decision.reason,
        decision.can_keep,
        decision.action is not Action.KEEP,
        clock.wall(last_warning(decision.stops_at, policy)),
        why_not_kept(facts, policy, decision),
        other_ends(decision, policy, clock),
    )


def other_ends(decision: CullDecision, policy: CullPolicy, clock: RunningClock) -> tuple[OtherEnd, ...]:
    """Return the causes for which a server is to stop later than for the earliest cause. Empty if it is not to stop.

    Args:
        decision: the culling decision about the server.
        policy: the server's limits.
        clock: converts times of the running clock (it stands still while the hub is away) to wall-clock time.
    """
    if decision.stop is None or decision.stops_at is None:
        return ()
    return tuple(
        OtherEnd(
            clock.wall(each.at),
            each.cause.value,
            each.reason,
            each.ordered_by.value,
            None if each.withdrawn_by is None else each.withdrawn_by.value,
        )
        for each in decision.stop.seen(clock.now(), policy.warn)
    )


def memory_of(lease: Lease, device: Device | None, offer: GpuOffer | None) -> int | None:
    """Return the bytes of GPU memory that a server may use. `None` if neither device nor offer has a known memory.

    Args:
        lease: the server's right to its GPU, with its share of the device.
        device: the lease's device. `None` if it is not known; the offer's memory counts then.
        offer: the lease's offer. `None` if it does not exist any more.
    """
    if device is None or device.memory_bytes is None:
        return offer.memory_bytes if offer is not None else None
    return device.memory_bytes * lease.share // WHOLE


def cluster_info(survey: PoolSurvey, offers: Iterable[GpuOffer]) -> tuple[PoolInfo, ...]:
    """Convert the pools of a cluster (the devices of one kind each) to messages for administrators.

    Args:
        survey: the pools, as the cluster was read last.
        offers: all offers, which are listed with their pools.
    """
    by_pool: dict[str, list[OfferId]] = {}
    for offer in offers:
        by_pool.setdefault(offer.pool, []).append(offer.id)
    return tuple(
        PoolInfo(
            pool=pool.id,
            mechanism=pool.mechanism.value,
            resource=pool.resource or f"claim template {pool.claim_template}",
            product=pool.product,
            total=pool.total,
            free=pool.free if survey.known and not (pool.unknown and not pool.free) else None,
            held_by_others=pool.foreign,
            offers=tuple(by_pool.get(pool.id, ())),
            nodes=tuple(NodePart(part.node, part.total, part.free, part.why, part.because) for part in pool.nodes),
        )
        for pool in sorted(survey.pools.values(), key=lambda pool: pool.id)
    )


def notices(rows: Iterable[NoticeRow]) -> tuple[Notice, ...]:
    """Convert stored notices to the messages that the user's next page shows.

    Args:
        rows: the notices, as the store has them.
    """
    return tuple(Notice(each.at, each.server, each.text, each.reasons) for each in rows)
