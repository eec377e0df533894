"""The verdict on the health of the service: what is wrong, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta

from hub_extensions.core.messages import Health, OfferState
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.queue.quota_holds import QuotaHold
from hub_extensions.core.text.reasons import Reason, explain

EMPTY: Mapping[OfferId, QuotaHold] = {}
GPUS_READ = timedelta(seconds=60)  # older figures of the GPUs are a finding


@dataclass(frozen=True, slots=True)
class HealthVerdict:
    """The problems of the service, for the administrators' page.

    Attributes:
        findings: what is wrong, the worst first; empty if all is well.
    """

    findings: tuple[Reason, ...]

    @property
    def well(self) -> bool:
        return not self.findings


def judge_health(
    health: Health,
    offers: Iterable[OfferState] = (),
    held_up: Iterable[OfferId] = (),
    cluster_problem: str = "",
    gpu_problems: Iterable[str] = (),
    unproved: int = 0,
    over_quota: Mapping[OfferId, QuotaHold] = EMPTY,
) -> HealthVerdict:
    """Return what is wrong with the service, the GPUs, the queue and the cluster, for administrators.

    Args:
        health: the service's own report about its state, as its health endpoint gives it.
        offers: state of all offers. An offer that is free while somebody waits for it is a finding.
        held_up: offers for which an admitted server finds no device, because something outside this hub took it.
        cluster_problem: why the cluster cannot be read; "" if it can be.
        gpu_problems: sentences about devices that could not be read when this machine's GPUs were read last.
        unproved: the number of leases that seem to have ended, but without proof that their devices are free.
        over_quota: offers whose pods the cluster refuses because a Kubernetes quota is used up -> the refusal, with
            `since` as wall-clock time.
    """
    left_out = (explain("health-gpus", why=sentence) for sentence in gpu_problems)
    held = (explain("health-unproved", leases=unproved),) if unproved else ()
    of_the_service = (*_of_the_service(health, cluster_problem), *left_out)
    return HealthVerdict((*of_the_service, *_of_the_queue(offers, held_up, over_quota), *held, *_of_the_rest(health)))


def _of_the_service(health: Health, cluster_problem: str) -> Iterator[Reason]:
    if health.store not in (None, "ok"):
        yield explain("health-store", why=health.store or "")
    elif not health.ready:
        yield explain("health-not-ready")
    if health.hub not in (None, "answers"):
        yield explain("health-hub", since=(health.hub or "").partition(" since ")[2])
    if cluster_problem:
        yield explain("health-cluster", why=cluster_problem)
    age = health.inventory_age_seconds
    if age is None:
        yield explain("health-gpus-never-read")
    elif age > GPUS_READ.total_seconds():
        yield explain("health-gpus-old", age=timedelta(seconds=round(age)))
    if health.port not in (None, "", "the service's own"):
        yield explain("health-port", why=health.port or "")


def _of_the_queue(
    offers: Iterable[OfferState], held_up: Iterable[OfferId], over_quota: Mapping[OfferId, QuotaHold]
) -> Iterator[Reason]:
    named = set(held_up)
    for offer in offers:
        if offer.id == CPU:
            continue
        if offer.id in over_quota:
            hold = over_quota[offer.id]
            yield explain("health-quota", title=offer.title, since=hold.since, why=hold.why.message)
        elif offer.id in named:
            yield explain("health-held-up", title=offer.title)
        elif offer.waiting and offer.free:
            yield explain("health-line", title=offer.title, waiting=offer.waiting)
        if offer.lost:
            yield explain("health-lost", title=offer.title, lost=offer.lost)


def _of_the_rest(health: Health) -> Iterator[Reason]:
    if health.stops_failed:
        yield explain("health-stops", stops=health.stops_failed)
    if health.policy_file_valid is False:
        yield explain("health-policy-file", why=health.policy_file or "")
    if health.prometheus_up is False:
        yield explain("health-prometheus", why=health.prometheus or "")
    for each in health.evidence:
        unmeasured = each.leases - each.measured
        if unmeasured > 0:
            yield explain("health-evidence", offer=each.offer, servers=unmeasured, why=each.text)
    if health.notices_sent is False:
        yield explain("health-notices")
