"""Whether the use of an offer's GPUs can be measured, by whom, and what to do where it cannot. Pure.

Not here: what one server's use is (``core/gpu/dcgm.py``), and what follows from it (``decision.py``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from hub_extensions.core.gpu.dcgm import WHY, Measured, measures
from hub_extensions.core.offers.offer_id import OfferId

WHO: Mapping[str, str] = {
    "nvml": "NVIDIA's driver (NVML)",
    "gpm": "NVIDIA's driver (GPM counters)",
    "dcgm": "DCGM, by your Prometheus",
    "report": "the servers themselves, which their users can forge",
    "simulated": "the simulation",
    "none": "nobody",
}
"""Who measures, in words."""

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
"""What there is to say of an offer: reason -> text for an admin. For a server whose use is not known see `WHY`."""


@dataclass(frozen=True, slots=True)
class LeaseFigure:
    """One server's figure: who measured it (``none``: it is not known), how old it is, and why it is not known.

    `why`: a key of `core.gpu.dcgm.WHY` or of `TEXTS`; "" where there is nothing to say.
    """

    source: str
    age: timedelta | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is known of an offer's GPUs before a server has one: who would measure them, and why nobody would."""

    source: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class OfferSource:
    """Who measures an offer's GPUs now.

    Attributes:
        source: as in `DeviceSample`, or ``report``; ``none``: nobody. leases: servers that have one; measured: of
            them those whose use is known. age: of the oldest of their figures.
        reason: a key of `TEXTS` or `WHY`. text: what it says, and what to do.
    """

    offer: OfferId
    source: str
    leases: int
    measured: int
    age: timedelta | None
    reason: str
    text: str


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
    """What is known of a cluster's pool: `kinds` that exporters measure, on its `nodes` of `every` node.

    `by_claim`: its devices are given by claims (DRA), and a MIG piece is not there before somebody has one.
    """
    if not asked:
        return Outlook("none", "no-prometheus")
    if kinds is None:
        return Outlook("none", "not-asked-yet" if answers else "away")
    profile = pool.mig.name if pool.mig else None
    if not measures(kinds, profile, nodes, every):
        return Outlook("none", "cut-on-demand" if by_claim and profile is not None else "not-exported")
    return Outlook("dcgm")


def source_of(offer: OfferId, figures: Sequence[LeaseFigure], outlook: Outlook, *, shared: bool) -> OfferSource:
    """Who measures an offer, from the figures of its servers, or without one from the outlook."""
    known = [each for each in figures if each.source != "none"]
    sources = Counter(each.source for each in known)
    source = sources.most_common(1)[0][0] if known else "none" if figures else outlook.source
    ages = [each.age for each in known if each.age is not None]
    reason = _reason(figures, known, outlook, shared)
    return OfferSource(offer, source, len(figures), len(known), max(ages, default=None), reason, text_of(reason))


def text_of(reason: str) -> str:
    """A key of `TEXTS` or `WHY` as a sentence."""
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
