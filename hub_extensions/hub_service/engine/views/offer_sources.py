"""For administrators: what measures the use of each offer's GPUs, since when, and what to do if nothing does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hub_extensions.core import messages
from hub_extensions.core.culling.sources import LeaseFigure, Outlook, outlook_of_pool, source_of
from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.offers.pod_request import ALONE, Mechanism
from hub_extensions.core.queue.model import Lease, LeaseState
from hub_extensions.hub_service.engine.state.state import State
from hub_extensions.hub_service.engine.stops.server_evidence import ServerEvidence

HELD = (LeaseState.STARTING, LeaseState.RUNNING, LeaseState.LOST)


def offer_sources(
    state: State, evidence: ServerEvidence, before: Mapping[OfferId, messages.OfferEvidence]
) -> dict[OfferId, messages.OfferEvidence]:
    """Return, for each offer with a GPU, what measures how busy its devices are (such as NVML or DCGM).

    An offer is an option of the spawn form, such as a MIG profile.

    Args:
        state: the present state.
        evidence: the measurements.
        before: the last result for each offer, with the time since which its source is the same. That time is kept
            while the source stays the same.
    """
    found: dict[OfferId, messages.OfferEvidence] = {}
    for offer in (each for each in state.offers if each.pool):
        leases = [each for each in state.leases.values() if each.offer == offer.id and each.state in HELD]
        figures = [_figure(state, evidence, lease) for lease in leases]
        pool = state.cluster.survey.pools.get(OfferId(offer.pool)) if state.cluster is not None else None
        shared = offer.share != WHOLE or (pool is not None and (pool.mechanism not in ALONE or pool.replicas > 1))
        outlook, now = _outlook(state, evidence, OfferId(offer.pool)), state.clock.utc_now()
        source = source_of(offer.id, figures, outlook, shared=shared, since=now)
        last = before.get(offer.id, source)
        is_same = (last.source, last.reason) == (source.source, source.reason)
        found[offer.id] = replace(source, since=last.since) if is_same else source
    return found


def _figure(state: State, evidence: ServerEvidence, lease: Lease) -> LeaseFigure:
    sample = evidence.sample_of(lease)
    why = evidence.dcgm.why_not(lease)
    if sample is None or sample.used_percent is None:
        use = evidence.dcgm.use(lease)
        is_shared = use is not None and use.card_percent is not None
        return LeaseFigure("none", why="shared" if is_shared else why)
    return LeaseFigure(sample.source, state.clock.utc_now() - sample.at, why if sample.source == "report" else "")


def _outlook(state: State, evidence: ServerEvidence, pool: OfferId) -> Outlook:
    """Return what would measure the use of a device of this pool (devices of one kind), if a server started now.

    Args:
        state: the present state.
        evidence: the measurements, and whether Prometheus answers.
        pool: id of the pool.
    """
    dcgm = evidence.dcgm
    if state.on_cluster:
        found = state.cluster.survey.pools if state.cluster is not None else {}
        nodes = {count.node for count in found[pool].nodes} if pool in found else set()
        every = {count.node for each in found.values() for count in each.nodes}
        asked, answers = dcgm.prometheus is not None, dcgm.away_since is None
        by_claim = pool in found and found[pool].mechanism is Mechanism.DRA
        return outlook_of_pool(pool, nodes, every, dcgm.kinds, asked=asked, answers=answers, by_claim=by_claim)
    devices = [each.device.uuid for each in state.devices.values() if each.present and each.device.pool == pool]
    samples = [sample for uuid in devices if (sample := state.samples.get(uuid)) is not None]
    measured = [sample.source for sample in samples if sample.used_percent is not None]
    if measured:
        return Outlook(measured[0])
    if not samples or any(sample.source != "none" for sample in samples):
        return Outlook("none", "not-read")
    return Outlook("none", "not-told") if dcgm.prometheus is None else Outlook("dcgm")
