"""Derive the offers of a cluster from the counted devices, and what each offer adds to the pod of a server."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from hub_extensions.core.cluster.model import ClusterConfig
from hub_extensions.core.cluster.pools import Pool
from hub_extensions.core.cluster.shared_gpus import kai_share
from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.gpu.mig import MigProfile
from hub_extensions.core.offers.model import (
    OWN_CARD,
    OWN_PART,
    UNKNOWN_CARD,
    VIRTUAL_CARD,
    Access,
    GpuOffer,
    Isolation,
    OfferConfig,
    OfferKind,
    Separation,
    arranged,
    cpu_offer,
    fraction_text,
    share_of,
)
from hub_extensions.core.offers.offer_id import CPU, OfferId, share_text
from hub_extensions.core.offers.pod_request import (
    GPU_RESOURCE,
    GPU_TAINT,
    KAI_FRACTION,
    KAI_MEMORY,
    KAI_QUEUE_LABEL,
    KUEUE_QUEUE_LABEL,
    AskError,
    Mechanism,
    PodAsk,
    check_ask,
)

VOID = {"CUDA_VISIBLE_DEVICES": "void", "NVIDIA_VISIBLE_DEVICES": "void"}
"""Environment of a pod without a GPU. Without it, a container whose image sets ``all`` sees every GPU of its node
(NVIDIA container toolkit)."""
GROW = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
"""Environment of a pod on a shared card. Without it, TensorFlow allocates the card's whole memory at once."""

_HARD, _SOFT, _NONE = Separation.HARDWARE, Separation.SOFT, Separation.NONE
_UNKNOWN = Separation.UNKNOWN
_ISOLATION: Mapping[Mechanism, tuple[Separation, Separation, Separation]] = {
    Mechanism.WHOLE: (_HARD, _HARD, _HARD),
    Mechanism.MIG: (_HARD, _HARD, _HARD),
    Mechanism.MIG_SINGLE: (_HARD, _HARD, _HARD),
    Mechanism.DRA: (_HARD, _HARD, _HARD),
    Mechanism.TIME_SLICING: (_NONE, _NONE, _NONE),
    Mechanism.MPS: (_SOFT, _NONE, _SOFT),
    Mechanism.HAMI: (_SOFT, _NONE, _SOFT),
    Mechanism.KAI_FRACTION: (_NONE, _NONE, _NONE),
    Mechanism.KAI_MEMORY: (_NONE, _NONE, _NONE),
}
"""Isolation of memory, faults and compute, from the documentation of each mechanism."""
_KAI_MIG = re.compile(r"mig-[0-9]+g\.[0-9]+gb")
"""MIG resources that KAI-Scheduler v0.17 knows, which excludes ``.me``, ``.gfx`` and ``-me``."""
_MIG = re.compile(r"mig-[0-9]+g\.[0-9]+gb.*")
_WHOLE = "Whole GPU"
_NEIGHBOUR = "a neighbour can slow you down or crash you."


@dataclass(frozen=True)
class ClusterOffers:
    """The offers of a cluster.

    Attributes:
        offers: the offers in the form's order.
        asks: offer -> what it adds to the pod of a server.
        notes: sentences for administrators about settings without effect.
    """

    offers: tuple[GpuOffer, ...]
    asks: Mapping[OfferId, PodAsk]
    notes: tuple[str, ...] = ()


def derive_cluster_offers(
    pools: Mapping[OfferId, Pool],
    offers: OfferConfig,
    cluster: ClusterConfig,
    *,
    sm_of_product: Callable[[str], int | None] | None = None,
) -> ClusterOffers:
    """Return the offers of these pools (all devices of one kind each) and the offer CPU only, in the form's order.

    An offer whose request a cluster would refuse is left out, with a note.

    Args:
        pools: id -> pool.
        offers: the settings of offers.
        cluster: the settings of the cluster.
        sm_of_product: returns, for the NVML name of a card that is divided by MIG, the SMs of the whole card, or None
            if they are not known. None if no such function exists.
    """
    several = {base for base, count in Counter(pool.base for pool in pools.values()).items() if count > 1}
    found: dict[OfferId, tuple[GpuOffer, PodAsk]] = {CPU: (cpu_offer(), PodAsk(Mechanism.CPU, environment=VOID))}
    notes: list[str] = []
    for pool in pools.values():
        for offer, ask in _of_pool(pool, offers, cluster, several, sm_of_product):
            try:
                check_ask(ask)
            except AskError as problem:
                notes.append(f"fractions[{pool.id!r}]: {offer.id} is not offered: {problem}.")
                continue
            found[offer.id] = (offer, ask)
        notes.extend(
            f"memory_gib: {gib} GiB of {pool.id} is not offered: {why}."
            for gib, why in _sizes_not_offered(pool, offers, cluster)
        )
    shown = {key: pair for key, pair in found.items() if not offers.hides(key)}
    asks = {key: ask for key, (_, ask) in shown.items()}
    notes.extend(_notes(found, offers, cluster))
    return ClusterOffers(arranged((offer for offer, _ in shown.values()), offers), asks, tuple(notes))


def _of_pool(
    pool: Pool,
    offers: OfferConfig,
    cluster: ClusterConfig,
    several: Iterable[str],
    sm_of_product: Callable[[str], int | None] | None,
) -> Iterable[tuple[GpuOffer, PodAsk]]:
    total = sm_of_product(pool.product.replace("-", " ", 1)) if sm_of_product and pool.product else None
    whole = pool.base == "gpu" and pool.mechanism in (Mechanism.WHOLE, Mechanism.HAMI, Mechanism.DRA)
    where = f" ({_product(pool.product)})" if pool.base in several and pool.product else ""
    offer = GpuOffer(
        id=pool.id,
        kind=_kind(pool, whole),
        title=_title(pool) + where,
        description=_description(pool),
        pool=pool.id,
        share=WHOLE,
        isolation=_isolation_of(pool),
        memory_bytes=pool.memory_bytes,
        memory_enforced=_isolation_of(pool).memory in (_HARD, _SOFT),
        sm_count=pool.sm_count,
        sm_total=total,
        product=pool.product.replace("-", " ", 1),
    )
    yield offer, _ask(pool, cluster)
    by = _sharing_mechanism(pool, cluster)
    if by is None:
        return
    for value in (*offers.fractions.get(pool.id, ()), *(offers.fractions.get("gpu", ()) if pool.id != "gpu" else ())):
        share = share_of(value)
        yield _fraction(offer, pool, share, by), _fraction_ask(pool, cluster, share, by)
    for gib in _sizes(pool, offers) if by is Mechanism.KAI_FRACTION else ():
        part = _share_of_memory(pool, gib)
        if part is not None:
            yield _memory_part(offer, pool, part, gib), _memory_ask(pool, cluster, gib)


def _sizes(pool: Pool, offers: OfferConfig) -> Iterable[int]:
    """Return the sizes in GiB of the parts by memory that the settings offer: for this pool, and for all cards."""
    own = offers.memory_gib.get(pool.id, ())
    return dict.fromkeys((*own, *offers.memory_gib.get("gpu", ())))


def _share_of_memory(pool: Pool, gib: int) -> int | None:
    """Return an amount of memory as a share of the pool's smallest card, in thousandths.

    None if the card's memory is not larger than this amount, or is not known.

    Args:
        gib: the amount of memory in GiB.
    """
    if pool.memory_bytes is None:
        return None
    share = kai_share(gib * 1024, pool.memory_bytes)
    return share if share < WHOLE else None


def _sizes_not_offered(pool: Pool, offers: OfferConfig, cluster: ClusterConfig) -> Iterable[tuple[int, str]]:
    if _sharing_mechanism(pool, cluster) is not Mechanism.KAI_FRACTION:
        return
    for gib in _sizes(pool, offers):
        if pool.memory_bytes is None:
            yield gib, "how much memory these cards have is not known (label nvidia.com/gpu.memory)"
        elif _share_of_memory(pool, gib) is None:
            yield gib, f"the card has {pool.memory_bytes / 2**30:.1f} GiB, and a part is less than all of it"


def _sharing_mechanism(pool: Pool, cluster: ClusterConfig) -> Mechanism | None:
    """Return the mechanism by which a part of a device of this pool is given; None if only whole devices are given."""
    if pool.mechanism is Mechanism.HAMI and cluster.fraction_scheduler == "hami":
        return Mechanism.HAMI
    kai = cluster.fraction_scheduler == "kai" and pool.base == "gpu" and pool.mechanism is Mechanism.WHOLE
    return Mechanism.KAI_FRACTION if kai else None


def _kind(pool: Pool, whole: bool) -> OfferKind:
    if pool.virtual or pool.mechanism in (Mechanism.TIME_SLICING, Mechanism.MPS):
        return OfferKind.FRACTION
    return OfferKind.WHOLE if whole else OfferKind.MIG


def _title(pool: Pool) -> str:
    shared = pool.base.endswith(".shared")
    base = pool.base.removesuffix(".shared")
    if base == "gpu":
        return "Shared GPU" if shared else "Virtual GPU" if pool.virtual else "GPU" if pool.doubted else _WHOLE
    name = f"MIG {MigProfile.parse(base).name}"
    return f"Shared {name}" if shared else name


def _description(pool: Pool) -> str:
    of = "the card" if pool.base.startswith("gpu") else "the MIG device"
    places = f"One of {pool.replicas} places on {of}" if pool.replicas > 1 else f"A place on {of}"
    if pool.mechanism is Mechanism.TIME_SLICING:
        return f"{places}, in turns. No memory or fault isolation: keep to your part of the memory; {_NEIGHBOUR}"
    if pool.mechanism is Mechanism.MPS:
        return f"{places}, at the same time. Your memory has a limit; a neighbour's fault can end your program."
    if pool.virtual:
        return VIRTUAL_CARD
    if pool.doubted:
        return UNKNOWN_CARD
    return OWN_CARD if pool.base == "gpu" else OWN_PART


def _product(label: str) -> str:
    return label.replace("-", " ").removeprefix("NVIDIA ")


def _isolation_of(pool: Pool) -> Isolation:
    if pool.virtual and pool.mechanism is Mechanism.WHOLE:
        return Isolation(_SOFT, _NONE, _NONE, Access.ENFORCED)
    if pool.doubted and pool.mechanism is Mechanism.WHOLE:
        return Isolation(_UNKNOWN, _UNKNOWN, _UNKNOWN, Access.ENFORCED)
    return _isolation(pool.mechanism)


def _isolation(mechanism: Mechanism) -> Isolation:
    memory, fault, compute = _ISOLATION[mechanism]
    return Isolation(memory, fault, compute, Access.ENFORCED)


def _fraction(whole: GpuOffer, pool: Pool, share: int, by: Mechanism) -> GpuOffer:
    soft = by is Mechanism.HAMI
    text = (
        "Shared. A program is kept to its part of the memory, softly: it can be passed; "
        if soft
        else "Shared, no memory or fault isolation: keep to your part of the memory; "
    )
    return replace(
        whole,
        id=pool.id.part(share),
        kind=OfferKind.FRACTION,
        title=_part_title(whole, pool, f"{fraction_text(share)} of a GPU"),
        description=text + _NEIGHBOUR,
        share=share,
        isolation=_isolation(by),
        memory_bytes=None if pool.memory_bytes is None else pool.memory_bytes * share // WHOLE,
        memory_enforced=soft,
        sm_count=None,
    )


def _part_title(whole: GpuOffer, pool: Pool, part: str) -> str:
    """Return the title of an offer for a part of a card.

    The title has the name of the card only if the title of the whole card has it too.

    Args:
        whole: the offer of the whole card.
        pool: the pool of such cards.
        part: the beginning of the title, which names the part.
    """
    return part + whole.title.removeprefix(_title(pool))


def _memory_part(whole: GpuOffer, pool: Pool, share: int, gib: int) -> GpuOffer:
    part = _fraction(whole, pool, share, Mechanism.KAI_MEMORY)
    title = _part_title(whole, pool, f"{gib} GiB of a GPU")
    return replace(part, id=pool.id.part(0, gib), title=title, memory_bytes=gib * 2**30)


# ------------------------------------------------------------------ requests to a pod


def _ask(pool: Pool, cluster: ClusterConfig) -> PodAsk:
    if pool.mechanism is Mechanism.DRA:
        return replace(_common(pool, cluster, Mechanism.DRA), claim_template=pool.claim_template)
    if pool.mechanism is Mechanism.HAMI:
        return _hami(pool, cluster, 100)
    shared = pool.mechanism in (Mechanism.TIME_SLICING, Mechanism.MPS)
    return replace(
        _common(pool, cluster, pool.mechanism),
        limits={pool.resource: "1"},
        environment=GROW if shared else {},
        forbids_shm=pool.mechanism is Mechanism.MPS,
    )


def _fraction_ask(pool: Pool, cluster: ClusterConfig, share: int, by: Mechanism) -> PodAsk:
    if by is Mechanism.HAMI:
        return _hami(pool, cluster, share * 100 / WHOLE)
    return replace(
        _common(pool, cluster, Mechanism.KAI_FRACTION),
        annotations={KAI_FRACTION: share_text(share)},
        environment=GROW,
    )


def _memory_ask(pool: Pool, cluster: ClusterConfig, gib: int) -> PodAsk:
    common = _common(pool, cluster, Mechanism.KAI_MEMORY)
    return replace(common, annotations={KAI_MEMORY: str(gib * 1024)}, environment=GROW)


def _hami(pool: Pool, cluster: ClusterConfig, percent: float) -> PodAsk:
    limits = {GPU_RESOURCE: "1", "nvidia.com/gpumem-percentage": f"{percent:g}"}
    if percent == 100:
        limits["nvidia.com/gpucores"] = "100"
    common = _common(pool, cluster, Mechanism.HAMI)
    return replace(common, limits=limits, scheduler="hami-scheduler", environment={} if percent == 100 else GROW)


def _common(pool: Pool, cluster: ClusterConfig, mechanism: Mechanism) -> PodAsk:
    labels: dict[str, str] = {}
    scheduler = queue = ""
    if cluster.kueue_queue:
        labels[KUEUE_QUEUE_LABEL] = cluster.kueue_queue
        queue = "Kueue"
    if cluster.kai_queue:
        labels[KAI_QUEUE_LABEL] = cluster.kai_queue
        scheduler, queue = cluster.kai_scheduler, "KAI"
    return PodAsk(
        mechanism,
        node_labels=pool.node_labels,
        tolerations=(GPU_TAINT,),
        labels=labels,
        scheduler=scheduler,
        runtime_class=cluster.runtime_class,
        queue=queue,
    )


def _notes(
    found: Mapping[OfferId, tuple[GpuOffer, PodAsk]], offers: OfferConfig, cluster: ClusterConfig
) -> tuple[str, ...]:
    notes = []
    if offers.fractions and not cluster.fraction_scheduler:
        notes.append(
            "fractions: nobody shares a GPU out here. Set c.GpuCluster.fraction_scheduler to 'kai' or 'hami', or use "
            "time-slicing or MPS of NVIDIA's device plugin, which are found by themselves."
        )
    if offers.memory_gib and cluster.fraction_scheduler != "kai":
        notes.append(
            "memory_gib: only KAI shares a GPU out by its memory. Set c.GpuCluster.fraction_scheduler to 'kai'."
        )
    elif offers.memory_gib:
        cards = [each for each, (offer, _) in found.items() if offer.kind is OfferKind.WHOLE]
        here = {each.pool for each in cards} | {each.base for each in cards}
        away = [key for key in offers.memory_gib if key not in here]
        notes.extend(f"memory_gib[{key!r}]: kai shares out no such device here." for key in away)
    parted = {each.base for each, (offer, _) in found.items() if offer.share != WHOLE}
    if offers.fractions and cluster.fraction_scheduler:
        away = [key for key in offers.fractions if OfferId(key).base not in parted]
        notes.extend(
            f"fractions[{key!r}]: {cluster.fraction_scheduler} shares out no such device here." for key in away
        )
    if cluster.kai_queue:
        notes.extend(
            f"hidden: KAI does not know {key}, so a server that asks for it may never be placed. Hide it."
            for key, (_, ask) in found.items()
            if ask.mechanism is Mechanism.MIG and not _KAI_MIG.fullmatch(key.base)
        )
    kinds = {each.kind for each in found}
    named = {"titles": offers.titles, "descriptions": offers.descriptions, "groups": offers.groups}
    for name, mapping in named.items():
        away = [key for key in mapping if key not in found]
        # texts for MIG profiles that do not exist now are accepted: mig.yaml has texts for several cards
        away = [key for key in away if (key not in kinds if name == "groups" else not _MIG.fullmatch(key))]
        notes.extend(f"{name}[{key!r}]: there is no such offer." for key in away)
    notes.extend(f"hidden: there is no offer {key}." for key in offers.hidden if key not in {*found, *kinds})
    if offers.default_offer and offers.default_offer not in found:
        notes.append(f"default_offer: there is no offer {offers.default_offer} now.")
    return tuple(notes)
