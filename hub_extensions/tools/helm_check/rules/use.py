"""The source of use figures for each offer that values name, or that a cluster has.

It is a finding only if culling waits for figures that nothing measures.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from hub_extensions.core.culling.sources import TEXTS, WHO
from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.offers.offer_id import CPU, GPU_SHARED, OfferId, OfferIdError
from hub_extensions.tools.helm_check.model import Finding, Release, found

_NAMING = ("GpuOffers.titles", "GpuOffers.descriptions", "GpuOffers.groups", "GpuCulling.idle_minutes_by_offer")
KINDS = ("whole GPUs", "MIG pieces")
"""Stand-ins for the offers if values name none and no cluster is read."""
CULLING = "hub.config.GpuCulling.enabled"


def check_use(release: Release) -> Iterator[Finding]:
    """Culling is on, and only the servers themselves report the use of their GPUs."""
    if release.at(CULLING) is not True or _asks_prometheus(release):
        return
    named = ", ".join(named_offers(release) or KINDS)
    text = (
        f"Nobody measures the use of {named} but the servers themselves, whose users can switch that off, and which on "
        "a piece of an A100 or A30 cannot: a server whose own extension does not say so is never idle."
    )
    fix = "Give helm-values/monitoring.yaml as well: DCGM measures it, and Prometheus has it."
    yield found(release, "unmeasured", CULLING, text, fix, severity="look at")


def who_measures(release: Release, offers: Collection[OfferId] = ()) -> Mapping[str, str]:
    """Offer -> who measures it, and what to do where nobody does. `offers`: a cluster's; none: those that are named."""
    asks = _asks_prometheus(release)
    told = {str(offer): _of(asks, shared=is_shared(offer)) for offer in offers or named_offers(release)}
    return told or {kind: _of(asks, shared=False) for kind in KINDS}


def named_offers(release: Release) -> tuple[OfferId, ...]:
    """Offers with a GPU that the values name."""
    names = {name for key in _NAMING for name in release.tree(f"hub.config.{key}")}
    names |= {
        f"{pool}-{share}"
        for pool, shares in release.tree("hub.config.GpuOffers.fractions").items()
        for share in (shares if isinstance(shares, list) else ())
    }
    known = {offer for name in map(str, names) if (offer := _id(name)) is not None}
    return tuple(sorted(known - {CPU}))


def is_shared(offer: OfferId) -> bool:
    """Several servers are on its card, or on its GPU instance, at the same time."""
    return offer.share != WHOLE or offer.base.endswith(GPU_SHARED.removeprefix("gpu"))


def _of(asks: bool, *, shared: bool) -> str:
    if not asks:
        return f"{WHO['report']}. {TEXTS['no-prometheus']}"
    return f"{WHO['dcgm']}. {TEXTS['shared']}" if shared else f"{WHO['dcgm']}, once dcgm-exporter runs on its nodes."


def _asks_prometheus(release: Release) -> bool:
    return bool(release.tree("hub.config.GpuService").get("prometheus_url"))


def _id(name: str) -> OfferId | None:
    try:
        return OfferId(name)
    except OfferIdError:
        return None  # reported by `configure`
