"""MIG profiles, placements, legal layouts, and the instances that still fit on a GPU.

A profile's name is parsed instead of looked up, so that unknown profiles work too. The name does not give the memory:
``1g.18gb`` has 16.00 GiB. Tables of real sizes come from NVML or ``data/mig_profiles.yaml``
(``adapters/files/mig_tables``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

_ATTRIBUTE = r"[a-z]+(?:\.[a-z]+)*"
_PROFILE = re.compile(
    r"(?:(?:nvidia\.com/)?mig-)?"
    r"(?:(?P<compute>[1-9][0-9]?)c\.)?(?P<slices>[1-9][0-9]?)g\.(?P<gb>[1-9][0-9]{0,4})gb"
    rf"(?:[+.](?P<plus>{_ATTRIBUTE}))?(?:-(?P<minus>{_ATTRIBUTE}))?"
)


class MigProfileError(ValueError):
    """A text that is not the name of a MIG profile. The message shows the right form."""


@dataclass(frozen=True, slots=True, order=True)
class MigProfile:
    """A parsed name of a MIG profile.

    Attributes:
        slices: compute slices of the GPU instance (the number before ``g``).
        gb: the number before ``gb``, which is part of the name and not the real memory.
        plus: additional feature without the sign: ``me``, ``me.all``, ``gfx``; empty for none.
        minus: missing feature: ``me``; empty for none.
        compute: compute slices of a compute instance that is smaller than the GPU instance (``1c.2g.10gb``); None if it
            has the same size.
    """

    slices: int
    gb: int
    plus: str = ""
    minus: str = ""
    compute: int | None = None

    @classmethod
    def parse(cls, text: str) -> MigProfile:
        """Parse a name (``1g.10gb+me``) or a resource form (``mig-1g.10gb.me``, ``nvidia.com/mig-1g.10gb.me``).

        Raises:
            MigProfileError: the text has neither form.
        """
        found = _PROFILE.fullmatch(text)
        if found is None:
            raise MigProfileError(
                f"{text[:60]!r} is no MIG profile: write for example 1g.5gb, 1g.10gb+me or mig-1g.5gb"
            )
        compute = found["compute"]
        return cls(
            slices=int(found["slices"]),
            gb=int(found["gb"]),
            plus=found["plus"] or "",
            minus=found["minus"] or "",
            compute=None if compute is None else int(compute),
        )

    @property
    def name(self) -> str:
        """The name that the driver uses for this MIG profile, such as ``1g.10gb+me``."""
        return self._text("+")

    @property
    def resource(self) -> str:
        """The form that names of Kubernetes resources use for this MIG profile, such as ``mig-1g.10gb.me``.

        It is also the id of the offer and of the pool of such devices.
        """
        return "mig-" + self._text(".")

    def _text(self, sign: str) -> str:
        compute = "" if self.compute is None else f"{self.compute}c."
        plus = sign + self.plus if self.plus else ""
        minus = "-" + self.minus if self.minus else ""
        return f"{compute}{self.slices}g.{self.gb}gb{plus}{minus}"


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """One MIG profile of a GPU model: its size, and where its GPU instances can be placed. `None` means not known.

    Attributes:
        name: the profile's name, such as ``1g.5gb``.
        kind: the name without the memory, such as ``1g+me``, which is the same on GPUs of other sizes.
        profile_id: id for ``nvidia-smi mig -cgi``, which means different profiles on different GPUs.
        compute_slices: compute slices of an instance.
        memory_slices: memory slices of an instance, which is also the size of its placement.
        memory_gib: real memory.
        sm: streaming multiprocessors.
        copy_engines, decoders, encoders, jpeg, ofa: number of these engines of an instance.
        max_instances: maximum number of instances on one GPU.
        starts: legal start positions in memory slices, ascending.
    """

    name: str
    kind: str
    compute_slices: int
    memory_slices: int
    max_instances: int
    starts: tuple[int, ...]
    profile_id: int | None = None
    memory_gib: float | None = None
    sm: int | None = None
    copy_engines: int | None = None
    decoders: int | None = None
    encoders: int | None = None
    jpeg: int | None = None
    ofa: int | None = None
    note: str = ""

    @property
    def profile(self) -> MigProfile:
        return MigProfile.parse(self.name)


@dataclass(frozen=True, slots=True)
class GpuTable:
    """The MIG profiles of a GPU model, and the sources of the values.

    Attributes:
        key: name of the model in the table's file.
        products: NVML's names of the model with ``-`` instead of spaces, such as ``NVIDIA-A100-PCIE-40GB``.
        compute_slices, memory_slices: number of slices of the whole GPU.
        rows: the profiles.
        source_values, source_placements: where the values, and where the placements, come from.
        placements_basis: how the placements are known: ``observed``, ``documented`` or ``inferred``.
    """

    key: str
    products: tuple[str, ...]
    compute_slices: int
    memory_slices: int
    rows: tuple[ProfileRow, ...]
    source_values: str = ""
    source_placements: str = ""
    placements_basis: str = ""
    pci_device_ids: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def row(self, name: str) -> ProfileRow | None:
        """Return the row of a profile by its name or resource form, or None if the table does not have it."""
        wanted = MigProfile.parse(name).name
        return next((row for row in self.rows if row.name == wanted), None)

    def row_of_id(self, profile_id: int) -> ProfileRow | None:
        """Return the profile that ``nvidia-smi mig -cgi <id>`` creates on this GPU; None for an unknown id."""
        return next((row for row in self.rows if row.profile_id == profile_id), None)

    @property
    def sm_total(self) -> int | None:
        """SMs (streaming multiprocessors) of the profile that covers the whole GPU; `None` if not known.

        The card has more SMs when it is not in MIG mode.
        """
        return next((row.sm for row in self.rows if row.compute_slices == self.compute_slices), None)


@dataclass(frozen=True, slots=True, order=True)
class Placed:
    """A GPU instance on a GPU: the name of its profile, and its start position in memory slices."""

    start: int
    profile: str


class DoesNotFit(ValueError):
    """GPU instances cannot be created in this order. The message names the profile, and the instances in its way."""


def table_for(tables: Iterable[GpuTable], product: str) -> GpuTable | None:
    """Return the table of a GPU by its NVML name (``NVIDIA A100-PCIE-40GB``), or None for an unknown model."""
    wanted = product.split(" MIG ")[0].strip().replace(" ", "-")
    return next((table for table in tables if wanted in table.products), None)


def problem(table: GpuTable, layout: Iterable[Placed]) -> str | None:
    """Return a sentence that explains why these GPU instances cannot exist on one GPU together; None if they can.

    Args:
        table: the MIG profiles of the GPU's model.
        layout: the GPU instances, each with its start position.
    """
    placed = sorted(layout)
    rows = []
    for item in placed:
        row = table.row(item.profile)
        if row is None:
            return f"{table.key} has no profile {item.profile}."
        if item.start not in row.starts:
            return f"{item.profile} cannot start at {item.start}: it can at {', '.join(map(str, row.starts))}."
        rows.append(row)
    for (before, row), after in zip(zip(placed, rows, strict=True), placed[1:], strict=False):
        if before.start + row.memory_slices > after.start:
            return f"{before.profile} at {before.start} and {after.profile} at {after.start} overlap."
    return _counted(table, rows)


def legal(table: GpuTable, layout: Iterable[Placed]) -> bool:
    """Return whether these GPU instances can exist on one GPU together.

    Args:
        table: the MIG profiles of the GPU's model.
        layout: the GPU instances, each with its start position.
    """
    return problem(table, layout) is None


def fits(table: GpuTable, profile: str, existing: Iterable[Placed]) -> tuple[int, ...]:
    """Return the start positions, ascending, at which one more instance of a profile can be created.

    Empty if it does not fit beside the existing instances, or if the table does not have the profile.

    Args:
        table: the MIG profiles of the GPU's model.
        profile: name of the profile.
        existing: the instances that are on the GPU already.
    """
    row = table.row(profile)
    if row is None:
        return ()
    placed = tuple(existing)
    return tuple(start for start in row.starts if legal(table, (*placed, Placed(start, row.name))))


def place_in_order(table: GpuTable, profiles: Sequence[str], existing: Iterable[Placed] = ()) -> tuple[Placed, ...]:
    """Predict the placements of instances that are created one after the other, as by ``nvidia-smi mig -cgi 19,14,5``.

    Each instance gets the position that leaves the most start positions for later instances, and among equal ones the
    lowest. The driver chooses the real positions; this rule gives the placements of the MIG user guide, and those of
    the LAB machine in ``tests/fakes/nvml``.

    Args:
        table: the MIG profiles of the GPU's model.
        profiles: names of the profiles in the order of creation.
        existing: instances that are there already.

    Returns:
        The new instances, in the given order.

    Raises:
        DoesNotFit: no legal start position is left for an instance.
    """
    standing = list(existing)
    made = []

    def room_left(option: Placed) -> int:
        return sum(len(fits(table, row.name, [*standing, option])) for row in table.rows)

    for name in profiles:
        starts = fits(table, name, standing)
        if not starts and table.row(name) is None:
            raise DoesNotFit(f"{table.key} has no profile {name}.")
        if not starts:
            beside = ", ".join(f"{item.profile} at {item.start}" for item in sorted(standing)) or "nothing"
            raise DoesNotFit(f"{name} does not fit beside {beside}.")
        options = [Placed(start, MigProfile.parse(name).name) for start in starts]
        best = max(options, key=lambda option: (room_left(option), -option.start))
        standing.append(best)
        made.append(best)
    return tuple(made)


def layouts(table: GpuTable, names: Iterable[str] | None = None, *, maximal: bool) -> Iterator[tuple[Placed, ...]]:
    """Yield every legal layout (set of GPU instances on one GPU) of these profiles.

    Args:
        table: the MIG profiles of the GPU's model.
        names: profiles; None for all profiles of the table.
        maximal: True yields only layouts to which no instance can be added. False yields partial and empty ones too.
    """
    chosen = [row for row in table.rows if names is None or row.name in set(names)]
    candidates = sorted(Placed(start, row.name) for row in chosen for start in row.starts)
    for layout in _extend(table, candidates, 0, ()):
        if maximal and any(legal(table, (*layout, more)) for more in candidates):
            continue
        yield layout


def _extend(
    table: GpuTable, candidates: Sequence[Placed], first: int, layout: tuple[Placed, ...]
) -> Iterator[tuple[Placed, ...]]:
    yield layout
    for index in range(first, len(candidates)):
        larger = (*layout, candidates[index])
        if legal(table, larger):  # an illegal layout stays illegal with more instances
            yield from _extend(table, candidates, index + 1, larger)


def _counted(table: GpuTable, rows: Sequence[ProfileRow]) -> str | None:
    slices = sum(row.compute_slices for row in rows)
    if slices > table.compute_slices:
        return f"They need {slices} compute slices, {table.key} has {table.compute_slices}."
    counts = Counter(row.name for row in rows)
    for row in rows:
        if counts[row.name] > row.max_instances:
            return f"{table.key} can have {row.max_instances} of {row.name}, not {counts[row.name]}."
    # an instance with all media engines can only coexist with instances without any (nvml.h on the ALL_ME profiles)
    profiles = [row.profile for row in rows]
    greedy = next((profile for profile in profiles if profile.plus == "me.all"), None)
    if greedy is not None and any(other.minus != "me" for other in profiles if other != greedy):
        return f"{greedy.name} takes every media engine: only profiles ending in -me can stand beside it."
    return None
