"""An offer is one line of the spawn form: CPU only, a MIG profile, a GPU fraction, a whole GPU.

Not here: how many are free (``admission.py`` counts), and how a form shows it (``spawner/form.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from hub_extensions.core.inventory import WHOLE


class Kind(Enum):
    CPU = "cpu"
    MIG = "mig"
    FRACTION = "fraction"
    WHOLE = "whole"


class Separation(Enum):
    """How one property is separated from the neighbours': by hardware, softly (can be passed), or not at all."""

    HARDWARE = "hardware"
    SOFT = "soft"
    NONE = "none"


class Access(Enum):
    """Whether a process can reach a device that is not its own."""

    ENFORCED = "enforced"
    BY_AGREEMENT = "by agreement"
    """``CUDA_VISIBLE_DEVICES`` is advice: a process could use another device; we report it."""
    NOT_APPLICABLE = "none needed"


@dataclass(frozen=True, slots=True)
class Isolation:
    """How an offer is separated from its neighbours (the table of gpu-sharing mechanisms, NVIDIA MIG user guide)."""

    memory: Separation
    fault: Separation
    compute: Separation
    access: Access


@dataclass(frozen=True, slots=True)
class GpuOffer:
    """One line of the spawn form.

    Attributes:
        id: a stable word: ``cpu``, ``gpu``, ``gpu-0.5``, ``mig-1g.5gb``, ``mig-1g.10gb.me``.
        title, description: for users; an admin's words replace ours.
        pool: the line it waits in: ``gpu`` or ``mig-<profile>``; empty for CPU only.
        share: thousandths of one device (1000 = all of it); 0 for CPU only.
        memory_bytes, sm_count, sm_total: what it really gives, the least of its devices; None is not known.
        memory_enforced: False for a fraction: its memory is a figure to keep to, not a wall.
        groups: only these groups may choose it; empty is everybody.
        simulated: its devices do not exist.
    """

    id: str
    kind: Kind
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


@dataclass(frozen=True)
class OfferConfig:
    """What an admin declares about offers.

    Attributes:
        fractions: offer id of a device (``gpu``, ``mig-3g.20gb``) -> the shares offered of it, e.g. ``(0.5, 0.25)``.
        titles, descriptions: offer id -> the admin's words.
        groups: offer id -> the groups that may choose it.
        hidden: offer ids that are not shown and cannot be chosen.
    """

    fractions: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    titles: Mapping[str, str] = field(default_factory=dict)
    descriptions: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    hidden: tuple[str, ...] = ()


__all__ = [
    "WHOLE",
    "Access",
    "GpuOffer",
    "Isolation",
    "Kind",
    "OfferConfig",
    "Separation",
]
