"""Whether the use of an offer's GPUs can be measured, by which source, and what to do if it cannot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from hub_extensions.core.gpu.dcgm import WHY, Measured, measures
from hub_extensions.core.messages import OfferEvidence
from hub_extensions.core.offers.offer_id import OfferId

WHO: Mapping[str, str] = {
    "nvml": "NVIDIA's driver (NVML)",
    "gpm": "NVIDIA's driver (GPM counters)",
    "dcgm": "DCGM, by your Prometheus",
    "report": "the servers themselves, which their users can forge",
    "simulated": "the simulation",
    "none": "nobody",
}
"""Source of a measurement -> its name for an administrator."""

TEXTS: Mapping[str, str] = {
    "measured": "Its use is known.",
    "ready": "No server has one now; its use will be known.",
    "shared": "Others may be on the same card: while that is busy it cannot be told whose work it is, and nobody there "
    "counts as idle.",
    "no-prometheus": "Set c.GpuService.prometheus_url to a Prometheus that reads dcgm-exporter (in the chart "
    "helm-values/monitoring.yaml). Until then none is stopped as idle, unless c.GpuCulling.trust_reports is True and "
    "its own server says so.",
    "not-asked-yet": "Prometheus has not been asked yet.",
    "away": "Prometheus gives no figures; health and doctor say why. Until it does none is stopped as idle, unless "
    "c.GpuCulling.trust_reports is True and its own server says so.",
    "not-exported": "Prometheus has no figures of such GPUs on the nodes that have them: let dcgm-exporter run there, "
    "collect DCGM_FI_PROF_GR_ENGINE_ACTIVE, and be read by Prometheus.",
    "cut-on-demand": "It is cut for a claim when a server wants one: whether DCGM measures it shows with the first. "
    "For claims dcgm-exporter needs KUBERNETES_ENABLE_DRA=true.",
    "not-told": "Its card tells its use to DCGM alone: set c.GpuService.prometheus_url.",
    "not-read": "It is being read.",
}
"""Code of the state of an offer's measurements -> text for an administrator. `core.gpu.dcgm.WHY` has the codes for
single servers."""


@dataclass(frozen=True, slots=True)
class LeaseFigure:
    """The source of the last measurement of one server's GPU.

    Attributes:
        source: a key of `WHO`; ``none`` without a measurement.
        age: age of the measurement; `None` without a measurement, or if its age is not known.
        why: why the GPU is not measured, a key of `core.gpu.dcgm.WHY` or of `TEXTS`; "" with a measurement. For a
            measurement by the server's own report, why nothing else measures the GPU.
    """

    source: str
    age: timedelta | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Outlook:
    """The source that would measure the GPU of a server with an offer if one started now. Used while no server has the
    offer.

    Attributes:
        source: a key of `WHO`; ``none`` if nothing would measure the GPU.
        why: why nothing would measure the GPU, a key of `TEXTS`; "" if something would.
    """

    source: str
    why: str = ""


def outlook_of_pool(
    pool: OfferId,
    nodes: Collection[str],
    every: Collection[str],
    kinds: Collection[Measured] | None,
    *,
    asked: bool,
    answers: bool,
    by_claim: bool = False,
) -> Outlook:
    """Return what would measure the GPU of a server if it got a device of a cluster's pool now.

    Args:
        pool: id of the pool (all devices of one kind).
        nodes: names of the nodes with such devices.
        every: names of all nodes of the cluster.
        kinds: the devices that exporters measure now; `None` if Prometheus has not answered yet.
        asked: whether a Prometheus is configured.
        answers: whether Prometheus answered the last query.
        by_claim: whether the devices are given by claims (DRA), so that a MIG instance does not exist before a server
            claims it.
    """
    if not asked:
        return Outlook("none", "no-prometheus")
    if kinds is None:
        return Outlook("none", "not-asked-yet" if answers else "away")
    profile = pool.mig.name if pool.mig else None
    if not measures(kinds, profile, nodes, every):
        return Outlook("none", "cut-on-demand" if by_claim and profile is not None else "not-exported")
    return Outlook("dcgm")


def source_of(
    offer: OfferId, figures: Sequence[LeaseFigure], outlook: Outlook, *, shared: bool, since: datetime
) -> OfferEvidence:
    """Return what measures an offer's GPUs, as administrators see it.

    Args:
        figures: the last measurement of each server with this offer.
        outlook: what would measure the GPU of a server with this offer if one started now. Used if no server has the
            offer, or if a GPU is not measured and `figures` do not give the reason.
        shared: whether several servers may use the same device.
        since: the time from which the result counts as valid, which is shown with it.
    """
    known = [each for each in figures if each.source != "none"]
    sources = Counter(each.source for each in known)
    source = sources.most_common(1)[0][0] if known else "none" if figures else outlook.source
    ages = [each.age for each in known if each.age is not None]
    oldest = max(ages).total_seconds() if ages else None
    reason = _reason(figures, known, outlook, shared)
    return OfferEvidence(offer, source, len(figures), len(known), oldest, since, reason, text_of(reason))


def text_of(reason: str) -> str:
    """Return the sentence for a key of `TEXTS` or `core.gpu.dcgm.WHY`."""
    return TEXTS.get(reason) or WHY[reason][:1].upper() + WHY[reason][1:] + "."


def _reason(figures: Sequence[LeaseFigure], known: Sequence[LeaseFigure], outlook: Outlook, shared: bool) -> str:
    reported = any(each.source == "report" for each in known)
    if len(known) < len(figures) or reported:
        lacking = Counter(each.why for each in figures if each.why)
        if lacking:
            return lacking.most_common(1)[0][0]
        if outlook.why:
            return outlook.why
    if not figures and outlook.why:
        return outlook.why
    if shared:
        return "shared"
    if len(known) < len(figures):
        return "not-read"
    return "measured" if figures else "ready"
