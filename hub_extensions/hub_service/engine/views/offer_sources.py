"""The source that measures the use of each offer's GPUs, since when, and what to do without one; for administrators."""

from __future__ import annotations

from datetime import datetime

from hub_extensions.core import messages
from hub_extensions.core.culling.sources import LeaseFigure, OfferSource, Outlook, outlook_of_pool, source_of
from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.offers.model import GpuOffer
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.offers.pod_request import ALONE, Mechanism
from hub_extensions.core.queue.model import Lease, LeaseState
from hub_extensions.hub_service.engine.stops.server_evidence import ServerEvidence

HELD = (LeaseState.STARTING, LeaseState.RUNNING, LeaseState.LOST)


class OfferSources:
    """The sources of measurements by offer, from `ServerEvidence`."""

    def __init__(self, evidence: ServerEvidence) -> None:
        self.evidence = evidence
        self.state = evidence.state
        self.dcgm = evidence.dcgm
        self._since: dict[OfferId, tuple[tuple[str, str], datetime]] = {}

    def info(self) -> tuple[messages.OfferEvidence, ...]:
        """Return the source of each offer with a GPU."""
        found = [self._source(offer) for offer in self.state.offers if offer.pool]
        return tuple(
            messages.OfferEvidence(
                offer=each.offer,
                source=each.source,
                leases=each.leases,
                measured=each.measured,
                age_seconds=None if each.age is None else each.age.total_seconds(),
                since=self._begun(each),
                reason=each.reason,
                text=each.text,
            )
            for each in found
        )

    def _begun(self, source: OfferSource) -> datetime:
        """Return since when the source is the same, as far as this service has seen."""
        kind = (source.source, source.reason)
        known = self._since.get(source.offer)
        if known is None or known[0] != kind:
            known = self._since[source.offer] = (kind, self.state.clock.utc_now())
        return known[1]

    def _source(self, offer: GpuOffer) -> OfferSource:
        leases = [each for each in self.state.leases.values() if each.offer == offer.id and each.state in HELD]
        figures = [self._figure(lease) for lease in leases]
        pool = self.state.cluster.survey.pools.get(OfferId(offer.pool)) if self.state.cluster is not None else None
        shared = offer.share != WHOLE or (pool is not None and (pool.mechanism not in ALONE or pool.replicas > 1))
        return source_of(offer.id, figures, self._outlook(OfferId(offer.pool)), shared=shared)

    def _figure(self, lease: Lease) -> LeaseFigure:
        sample = self.evidence.sample_of(lease)
        why = self.dcgm.why_not(lease)
        if sample is None or sample.used_percent is None:
            use = self.dcgm.use(lease)
            if use is not None and use.card_percent is not None:
                return LeaseFigure("none", why="shared")
            return LeaseFigure("none", why=why)
        return LeaseFigure(
            sample.source, self.state.clock.utc_now() - sample.at, why if sample.source == "report" else ""
        )

    def _outlook(self, pool: OfferId) -> Outlook:
        if self.state.on_cluster:
            return self._of_pool(pool)
        devices = [
            each.device.uuid for each in self.state.devices.values() if each.present and each.device.pool == pool
        ]
        samples = [sample for uuid in devices if (sample := self.state.samples.get(uuid)) is not None]
        measured = [sample.source for sample in samples if sample.used_percent is not None]
        if measured:
            return Outlook(measured[0])
        if not samples or any(sample.source != "none" for sample in samples):
            return Outlook("none", "not-read")
        return Outlook("none", "not-told") if self.dcgm.prometheus is None else Outlook("dcgm")

    def _of_pool(self, pool: OfferId) -> Outlook:
        found = self.state.cluster.survey.pools if self.state.cluster is not None else {}
        nodes = {count.node for count in found[pool].nodes} if pool in found else set()
        every = {count.node for each in found.values() for count in each.nodes}
        asked, answers = self.dcgm.prometheus is not None, self.dcgm.away_since is None
        by_claim = pool in found and found[pool].mechanism is Mechanism.DRA
        kinds = self.dcgm.kinds
        return outlook_of_pool(pool, nodes, every, kinds, asked=asked, answers=answers, by_claim=by_claim)
