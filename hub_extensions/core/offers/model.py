"""Offers, the lines of the spawn form: CPU only, a MIG profile, a GPU fraction, or a whole GPU.

Offers follow from the devices of a machine and the administrator's settings. They are ordered as in the form: MIG
profiles from small to large, fractions from small to large, whole GPUs, and last CPU only, which always exists.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import ClassVar, Protocol

from hub_extensions.core.gpu.devices import WHOLE, Device
from hub_extensions.core.gpu.mig import MigProfile
from hub_extensions.core.offers.offer_id import CPU, GPU, GPU_SHARED, OfferId, OfferIdError, share_text
from hub_extensions.core.offers.pod_request import GPU_RESOURCE, PARTS, is_gpu_resource
from hub_extensions.core.settings import setting

_RENAMED = re.compile(r"nvidia\.com/[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")


class OfferKind(str, Enum):
    """The kind of an offer.

    CPU: no GPU. MIG: a MIG device. FRACTION: a part of a device that several servers share. WHOLE: a whole GPU.
    """

    CPU = "cpu"
    MIG = "mig"
    FRACTION = "fraction"
    WHOLE = "whole"


class Separation(Enum):
    """The separation of an offer from other servers.

    By hardware, softly (a program can circumvent it), not at all, or in a way that is not known.
    """

    HARDWARE = "hardware"
    SOFT = "soft"
    NONE = "none"
    UNKNOWN = "unknown"


class Access(Enum):
    """Whether something prevents a process from using a device that its server did not get."""

    ENFORCED = "enforced"
    BY_AGREEMENT = "by agreement"
    """``CUDA_VISIBLE_DEVICES`` is only advice. A process could use another device, which is detected and reported."""
    NOT_APPLICABLE = "none needed"


@dataclass(frozen=True, slots=True)
class Isolation:
    """How well a server with an offer is separated from other servers.

    The values follow the table of GPU sharing mechanisms in NVIDIA's MIG user guide.

    Attributes:
        memory, fault, compute: how the offer's memory, faults and computing are separated from other servers.
        access: whether another server's processes can use the offer's device.
    """

    memory: Separation
    fault: Separation
    compute: Separation
    access: Access


@dataclass(frozen=True, slots=True)
class GpuOffer:
    """One line of the spawn form: a kind and size of GPU that a user can choose, or CPU only.

    Attributes:
        id: stable id: ``cpu``, ``gpu``, ``gpu-0.5``, ``gpu-8gib``, ``mig-1g.5gb``, ``mig-1g.10gb.me``.
        title, description: texts for users. The administrator's texts replace the default ones.
        name: plain name for users who do not know MIG, such as ``Small GPU``; "" if only the title is used.
        pool: the devices of one kind that one line of waiting users serves: ``gpu``, ``mig-<profile>``; empty for CPU
            only.
        share: thousandths of one device (1000 is a whole device); 0 for CPU only.
        memory_bytes: memory that a server gets, on the smallest device in the pool; None if it is not known.
        memory_enforced: False for a fraction, because nothing enforces its memory limit.
        sm_count: SMs (streaming multiprocessors) of the smallest device in the pool. None if it is not known, and for a
            fraction, which has no SMs of its own.
        sm_total: SMs of the whole card; None if it is not known.
        product: name of the card; "" if the devices are on different cards.
        groups: groups whose members may choose the offer; empty for everybody.
        simulated: whether the devices are simulated.
    """

    id: OfferId
    kind: OfferKind
    title: str
    description: str
    pool: str
    share: int
    isolation: Isolation
    memory_bytes: int | None = None
    memory_enforced: bool = True
    sm_count: int | None = None
    sm_total: int | None = None
    product: str = ""
    groups: tuple[str, ...] = ()
    simulated: bool = False
    name: str = ""

    @property
    def plain_name(self) -> str:
        """The name of the offer that users see first: `name` if there is one, otherwise the title."""
        return self.name or self.title


@dataclass(frozen=True)
class OfferConfig:
    """Settings of the offers, in addition to the machine's whole GPUs and MIG devices."""

    section: ClassVar[str] = "GpuOffers"

    fractions: Mapping[str, tuple[float, ...]] = setting(
        {},
        "Parts of one device that several servers share: the id of the device's offer, and the shares to offer of it, "
        'each larger than 0 and smaller than 1. {"gpu": [0.5], "mig-3g.20gb": [0.5]} offers half a GPU and half a '
        "3g.20gb. Servers on one device can slow each other down and take each other's memory.",
    )
    memory_gib: Mapping[str, tuple[int, ...]] = setting(
        {},
        "Parts of a whole GPU by memory, on a cluster where KAI shares GPUs out (c.GpuCluster.fraction_scheduler is "
        "'kai'): the id of the GPU's offer, and the sizes to offer of it. "
        '{"gpu": [8, 16]} offers 8 GiB and 16 GiB of a GPU, '
        "as gpu-8gib and gpu-16gib. A size that is not less than the card's memory is not offered. Unit: GiB.",
    )
    titles: Mapping[str, str] = setting({}, 'Your own title of an offer, by its id: {"mig-1g.5gb": "Small GPU"}.')
    descriptions: Mapping[str, str] = setting({}, "Your own sentence below an offer's title, by the offer's id.")
    groups: Mapping[str, tuple[str, ...]] = setting(
        {},
        "The groups whose members may choose an offer, by the offer's id. An offer that is not named here is for "
        'everybody: {"gpu": ["thesis"]}. On a cluster with several kinds of cards an id without @ is for each of them '
        "(gpu for gpu@tesla-t4, gpu-0.5 for gpu-0.5@tesla-t4) that is not named itself.",
    )
    hidden: tuple[str, ...] = setting(
        (),
        'Ids of offers that are not shown and cannot be chosen: ["gpu"]. CPU only cannot be hidden. On a cluster with '
        "several kinds of cards an id without @ hides each of them that groups does not name: gpu hides gpu@tesla-t4 "
        "too.",
    )
    default_offer: str = setting(
        "",
        'Id of the offer that the form preselects for whoever has not chosen before: "cpu", "mig-1g.5gb". Who may not '
        "choose it, and everybody where this is empty, has the first that starts now: the smallest GPU, and CPU only "
        "where no GPU is free.",
    )
    advise_size: bool = setting(
        True,
        "After a use of a GPU, tell its user if a smaller offer would have been enough, by the memory that was used. "
        "Nothing is said where that is not known. At most one of three uses in a row brings such a sentence.",
    )
    resources: Mapping[str, str] = setting(
        {},
        "Which offer a resource is that the cluster's device plugin gives another name, by the resource: "
        '{"nvidia.com/a100": "gpu"}. The id says what one of it is: gpu a card, gpu.shared a place on a shared card, '
        "mig-1g.5gb a MIG device; with @ and a name it becomes the id of the offer (gpu@a100). Without a word of it "
        "such a resource is not offered, and the admins' page names it. Names below nvidia.com/ only.",
    )
    simulate: str | None = setting(
        None,
        "Name of a layout (lab-a100, two-whole, mixed) or path of a YAML file whose GPUs are simulated, for trying the "
        "hub without a card. None uses the GPUs of this machine.",
    )

    def groups_of(self, offer: OfferId) -> tuple[str, ...]:
        """Return the groups that may choose an offer; empty if everybody may.

        If the settings lack an entry for the offer's own id, the entry of its kind applies (``gpu`` for
        ``gpu@tesla-t4``). A new card thus has the same restriction.
        """
        return tuple(self.groups[offer] if offer in self.groups else self.groups.get(offer.kind, ()))

    def hides(self, offer: OfferId) -> bool:
        """Return whether the settings hide an offer: by its own id, or by its kind (``gpu`` for ``gpu@tesla-t4``).

        An offer that has groups of its own is not hidden by its kind. CPU only is never hidden.
        """
        by_kind = offer.kind in self.hidden and offer not in self.groups
        return offer != CPU and (offer in self.hidden or by_kind)


class OfferConfigError(ValueError):
    """A wrong setting of offers.

    Attributes:
        field: the setting, such as ``fractions['gpu']``.
        text: what is wrong and what would be right.
    """

    def __init__(self, field: str, text: str) -> None:
        super().__init__(f"{field}: {text}")
        self.field = field
        self.text = text


def fraction_text(share: int) -> str:
    """Return thousandths as the beginning of a title: 500 -> ``Half``, 300 -> ``0.3``."""
    return {500: "Half", 250: "A quarter", 750: "Three quarters", 200: "A fifth"}.get(share, share_text(share))


def derive_offers(
    devices: Sequence[Device],
    config: OfferConfig,
    *,
    sm_of_product: Callable[[str], int | None] | None = None,
    access: Access = Access.BY_AGREEMENT,
) -> tuple[GpuOffer, ...]:
    """Return the offers of one machine, in the order of the spawn form.

    Args:
        devices: all devices. Devices without a compute instance are not usable and give no offer.
        sm_of_product: returns, for the NVML name of a card that is divided by MIG, the SMs of the whole card, or None
            if they are not known. None if no such function exists.
        access: how a process is restricted to its device. On one machine this is by agreement.

    Raises:
        OfferConfigError: a setting is wrong.
    """
    check_config(config)
    pools: dict[OfferId, list[Device]] = {}
    for device in devices:
        if device.usable:
            pools.setdefault(OfferId(device.pool), []).append(device)
    offers = [cpu_offer()]
    for pool, members in pools.items():
        offers.append(_of_pool(pool, members, sm_of_product or (lambda product: None), access))
        offers.extend(_fraction(pool, members, share_of(value), access) for value in config.fractions.get(pool, ()))
    return arranged((offer for offer in offers if not config.hides(offer.id)), config)


def arranged(offers: Iterable[GpuOffer], config: OfferConfig) -> tuple[GpuOffer, ...]:
    """Return these offers with the administrator's texts and groups, in the order of the spawn form.

    They also get their plain names, such as ``Small GPU``.
    """
    kinds = [OfferKind.MIG, OfferKind.FRACTION, OfferKind.WHOLE, OfferKind.CPU]
    with_texts = (
        replace(
            offer,
            title=config.titles.get(offer.id, offer.title),
            description=config.descriptions.get(offer.id, offer.description),
            groups=config.groups_of(offer.id),
        )
        for offer in offers
    )
    ordered = sorted(with_texts, key=lambda offer: (kinds.index(offer.kind), size_of(offer), offer.id))
    names = {offer.id: _name_by_size(offer) for offer in ordered}
    several = {name for name, count in Counter(names.values()).items() if count > 1}
    plain = {offer for offer, name in names.items() if name not in several and offer not in config.titles}
    return tuple(replace(offer, name=names[offer.id] if offer.id in plain else "") for offer in ordered)


def _name_by_size(offer: GpuOffer) -> str:
    """Return the plain name of a MIG offer by its compute slices, such as ``Small GPU``; "" for other offers."""
    if offer.kind is not OfferKind.MIG:
        return ""
    slices, _ = named_size(offer.id)
    return SIZES[min(slices, len(SIZES)) - 1]


def check_config(config: OfferConfig) -> None:
    """Check the settings of offers as far as that is possible without looking at the devices.

    Raises:
        OfferConfigError: the first wrong setting.
    """
    for pool, shares in config.fractions.items():
        where = f"fractions[{pool!r}]"
        if not read_offer_id(pool, where).is_device:
            raise OfferConfigError(where, "a fraction is of a device: use gpu or a MIG profile such as mig-3g.20gb")
        _check_shares(shares, where)
    for pool, sizes in config.memory_gib.items():
        where = f"memory_gib[{pool!r}]"
        found = read_offer_id(pool, where)
        if not found.is_device or found.base != GPU:
            raise OfferConfigError(where, "parts by memory are of whole GPUs: use gpu, or gpu@ and which one")
        _check_sizes(sizes, where)
    for name, texts in (("titles", config.titles), ("descriptions", config.descriptions)):
        for key, value in texts.items():
            read_offer_id(key, f"{name}[{key!r}]")
            if not isinstance(value, str) or not value.strip():
                raise OfferConfigError(f"{name}[{key!r}]", "a text is needed")
    for key, groups in config.groups.items():
        where = f"groups[{key!r}]"
        read_offer_id(key, where)
        if key == CPU:
            raise OfferConfigError(where, "CPU only is always offered, to everybody")
        if not _is_texts(groups):
            raise OfferConfigError(where, 'a list of group names is needed, e.g. ["course-a"]')
    if config.default_offer and config.hides(read_offer_id(config.default_offer, "default_offer")):
        raise OfferConfigError("default_offer", f"{config.default_offer} is hidden, so nobody can choose it")
    for resource, offer in config.resources.items():
        where = f"resources[{resource!r}]"
        if not _RENAMED.fullmatch(resource) or not is_gpu_resource(resource):
            raise OfferConfigError(where, "the name of a resource of NVIDIA's device plugin is needed, nvidia.com/a100")
        if resource in (GPU_RESOURCE, f"{GPU_RESOURCE}.shared") or resource in PARTS:
            raise OfferConfigError(where, "this name is known by itself")
        if not read_offer_id(offer, where).is_device:
            raise OfferConfigError(where, "a resource is a device: use gpu, gpu.shared or a MIG profile as mig-1g.5gb")
    if not _is_texts(config.hidden):
        raise OfferConfigError("hidden", 'a list of offer ids is needed, e.g. ["gpu"]')
    for key in config.hidden:
        read_offer_id(key, "hidden")
        if key == CPU:
            raise OfferConfigError("hidden", "CPU only is always offered and cannot be hidden")


def config_warnings(devices: Sequence[Device], config: OfferConfig) -> tuple[str, ...]:
    """Return a warning for each setting that has no effect with these devices, because of a typo or a missing card."""
    pools = {device.pool for device in devices}
    known = {CPU} | pools
    known |= {OfferId(pool).part(share_of(value)) for pool, values in config.fractions.items() for value in values}
    found = ", ".join(sorted(pools)) or "no GPU"
    lines = [
        f"fractions[{pool!r}]: this machine has no such device (it has {found})."
        for pool in config.fractions
        if pool not in pools
    ]
    if config.memory_gib:
        lines.append("memory_gib: on one machine nobody shares a GPU out by its memory; KAI does, on a cluster.")
    named = {"titles": config.titles, "descriptions": config.descriptions, "groups": config.groups}
    for name, mapping in named.items():
        lines.extend(f"{name}[{key!r}]: there is no such offer." for key in mapping if key not in known)
    lines.extend(f"hidden: there is no offer {key}." for key in config.hidden if key not in known)
    if config.default_offer and config.default_offer not in known:
        lines.append(f"default_offer: there is no offer {config.default_offer}.")
    return tuple(lines)


def share_of(value: float) -> int:
    """Convert a share such as 0.5 to thousandths.

    Raises:
        OfferConfigError: the share is not above 0 and below 1, or finer than a thousandth. The error names the field
            ``share``.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        whole = " (1 is the whole device, which is offered anyway)" if value == 1 else ""
        raise OfferConfigError("share", f"a share is above 0 and below 1, not {value!r}{whole}")
    share = round(value * WHOLE)
    if share == 0 or abs(value * WHOLE - share) > 1e-6:
        raise OfferConfigError("share", f"a share has at most three decimals, not {value!r}")
    return share


class Sized(Protocol):
    """The values that define an offer's size; `GpuOffer` and the message `OfferState` both have them."""

    @property
    def id(self) -> OfferId: ...
    @property
    def kind(self) -> str: ...
    @property
    def memory_bytes(self) -> int | None: ...
    @property
    def sm_count(self) -> int | None: ...


def size_of(offer: Sized) -> tuple[float, int, int]:
    """Return the sort key of an offer: memory in bytes, compute slices, share.

    If the memory is not known, it is estimated from the profile's name, which is good enough for the order.
    """
    slices, figure = named_size(offer.id)
    memory = offer.memory_bytes if offer.memory_bytes is not None else figure * 2**30 * offer.id.share / WHOLE
    return memory, slices, offer.id.share


SIZES = ("Small GPU", "Medium GPU", "Large GPU", "Extra large GPU")
"""Plain names of MIG offers with one, two, three, and more compute slices. If two offers would get the same name, both
have only their titles."""

OWN_CARD = "A whole card for you alone, with all of its memory and cores."
OWN_PART = "Your own memory and cores: nobody else on the card can slow you down or crash you."
UNKNOWN_CARD = "A GPU. It is not known here whether others use the same card at the same time."
"""Default descriptions about the isolation of an offer, which the form shows in a line of its own."""
VIRTUAL_CARD = (
    "A part of a card that other machines use too, with its own memory; a neighbour can slow you down or crash you."
)


def cpu_offer() -> GpuOffer:
    nothing = Isolation(Separation.NONE, Separation.NONE, Separation.NONE, Access.NOT_APPLICABLE)
    text = "No GPU: for writing, editing and small computations. It never waits for a GPU."
    return GpuOffer(id=CPU, kind=OfferKind.CPU, title="CPU only", description=text, pool="", share=0, isolation=nothing)


def named_offer(offer: OfferId) -> GpuOffer:
    """Return an offer of which only the id is known, which is enough for a user to take a place in its line."""
    if offer == CPU:
        return cpu_offer()
    return replace(
        cpu_offer(),
        id=offer,
        kind=OfferKind.WHOLE,
        title=offer,
        description="What it gives is not known now.",
        pool=offer.pool,
        share=offer.share or WHOLE,
    )


def _of_pool(
    pool: OfferId, devices: Sequence[Device], sm_of_product: Callable[[str], int | None], access: Access
) -> GpuOffer:
    own = Separation.HARDWARE
    sms = _least(device.sm_count for device in devices)
    if pool == GPU:
        kind, title, total = OfferKind.WHOLE, "Whole GPU", sms
        text = OWN_CARD
    else:
        kind, title = OfferKind.MIG, f"MIG {MigProfile.parse(pool).name}"
        totals = {sm_of_product(device.product) for device in devices}
        total = totals.pop() if len(totals) == 1 else None
        text = OWN_PART
    return GpuOffer(
        id=pool,
        kind=kind,
        title=title,
        description=text,
        pool=pool,
        share=WHOLE,
        isolation=Isolation(own, own, own, access),
        memory_bytes=_least(device.memory_bytes for device in devices),
        sm_count=sms,
        sm_total=total,
        product=_product(devices),
        simulated=any(device.simulated for device in devices),
    )


def _fraction(pool: OfferId, devices: Sequence[Device], share: int, access: Access) -> GpuOffer:
    memory = _least(device.memory_bytes for device in devices)
    of = "GPU" if pool == GPU else f"MIG {MigProfile.parse(pool).name}"
    return GpuOffer(
        id=pool.part(share),
        kind=OfferKind.FRACTION,
        title=f"{fraction_text(share)} of a {of}",
        description="Shared, no memory or fault isolation: keep to your part of the memory;"
        " a neighbour can slow you down or crash you.",
        pool=pool,
        share=share,
        isolation=Isolation(Separation.NONE, Separation.NONE, Separation.NONE, access),
        memory_bytes=None if memory is None else memory * share // WHOLE,
        memory_enforced=False,
        product=_product(devices),
        simulated=any(device.simulated for device in devices),
    )


def named_size(offer: OfferId) -> tuple[int, int]:
    """Return (compute slices, GB of memory) from the MIG profile's name in an id; (0, 0) without MIG.

    The numbers put offers in order whose real size is not known.
    """
    if offer.base in ("", GPU, GPU_SHARED):
        return 0, 0
    profile = MigProfile.parse(offer.base)
    return profile.slices, profile.gb


def _least(values: Iterable[int | None]) -> int | None:
    """Return the smallest value, or None if any value is not known."""
    known = list(values)
    return None if None in known else min((value for value in known if value is not None), default=None)


def _product(devices: Sequence[Device]) -> str:
    products = {device.product for device in devices}
    return products.pop() if len(products) == 1 else ""


# Ids and shares


def read_offer_id(text: object, where: str) -> OfferId:
    """Parse an offer's id in a setting.

    Args:
        text: the value in the setting.
        where: name of the setting, for the error.

    Raises:
        OfferConfigError: the value is not an offer's id.
    """
    if not isinstance(text, str):
        raise OfferConfigError(where, "an offer id is a text, e.g. mig-1g.5gb")
    try:
        return OfferId(text)
    except OfferIdError as error:
        raise OfferConfigError(where, str(error)) from error


def _is_texts(values: object) -> bool:
    if not isinstance(values, Sequence) or isinstance(values, str):
        return False
    return all(isinstance(value, str) and value for value in values)


def _check_shares(shares: object, where: str) -> None:
    if not isinstance(shares, Sequence) or isinstance(shares, str) or not shares:
        raise OfferConfigError(where, "a list of shares is needed, e.g. [0.5, 0.25]")
    seen = set()
    for value in shares:
        try:
            share = share_of(value)
        except OfferConfigError as error:
            raise OfferConfigError(where, error.text) from error
        if share in seen:
            raise OfferConfigError(where, f"two offers would have one id: the share {share_text(share)} is there twice")
        seen.add(share)


def _check_sizes(sizes: object, where: str) -> None:
    if not isinstance(sizes, Sequence) or isinstance(sizes, str) or not sizes:
        raise OfferConfigError(where, "a list of GiB is needed, e.g. [8, 16]")
    for size in sizes:
        if isinstance(size, bool) or not isinstance(size, int) or not 0 < size < 10_000:
            raise OfferConfigError(where, f"a whole number of GiB above 0 is needed, not {size!r}")
    if len(set(sizes)) < len(sizes):
        raise OfferConfigError(where, "two offers would have one id: a size is there twice")
