"""MIG profiles, placements, legal layouts, and what still fits on a GPU.

A profile's name is parsed, never looked up in a list of known names, and never tells the memory: ``1g.18gb`` gives
16.00 GiB. Tables of values come from NVML or ``data/mig_profiles.yaml`` (``adapters/files/mig_tables``); None in them
is not known. Not here: how a GPU is cut, and how a table is read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

_ATTRIBUTE = r"[a-z]+(?:\.[a-z]+)*"
_PROFILE = re.compile(
    r"(?:(?:nvidia\.com/)?mig-)?"
    r"(?:(?P<compute>[1-9][0-9]?)c\.)?(?P<slices>[1-9][0-9]?)g\.(?P<gb>[1-9][0-9]{0,4})gb"
    rf"(?:[+.](?P<plus>{_ATTRIBUTE}))?(?:-(?P<minus>{_ATTRIBUTE}))?"
)


class MigProfileError(ValueError):
    """A text that is no MIG profile's name; the message says what one looks like."""


@dataclass(frozen=True, slots=True, order=True)
class MigProfile:
    """A MIG profile's name, taken apart.

    Attributes:
        slices: compute slices of the GPU instance (the number before ``g``).
        gb: the figure before ``gb``: part of the name, not the memory it gives.
        plus: what it has in addition, without the sign: ``me``, ``me.all``, ``gfx``; empty for none.
        minus: what it lacks: ``me``; empty for none.
        compute: compute slices of the compute instance where it does not fill the GPU instance (``1c.2g.10gb``).
    """

    slices: int
    gb: int
    plus: str = ""
    minus: str = ""
    compute: int | None = None

    @classmethod
    def parse(cls, text: str) -> MigProfile:
        """Read a name (``1g.10gb+me``) or a resource form (``mig-1g.10gb.me``, ``nvidia.com/mig-1g.10gb.me``).

        Raises:
            MigProfileError: it is neither.
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
        """As the driver says it: ``1g.10gb+me``."""
        return self._text("+")

    @property
    def resource(self) -> str:
        """The resource form, which is also the offer's id and the pool: ``mig-1g.10gb.me``."""
        return "mig-" + self._text(".")

    @property
    def kubernetes_resource(self) -> str:
        """As the device plugin advertises it under the mixed strategy: ``nvidia.com/mig-1g.10gb.me``."""
        return "nvidia.com/" + self.resource

    def _text(self, sign: str) -> str:
        compute = "" if self.compute is None else f"{self.compute}c."
        plus = sign + self.plus if self.plus else ""
        minus = "-" + self.minus if self.minus else ""
        return f"{compute}{self.slices}g.{self.gb}gb{plus}{minus}"


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """One MIG profile of one GPU. None is not known.

    Attributes:
        profile_id: what ``nvidia-smi mig -cgi`` takes; it means different profiles on different GPUs.
        compute_slices: of the GPU; memory_slices: units of its placement axis, also the size of a placement.
        memory_gib: what it really gives; sm: streaming multiprocessors.
        max_instances: how many of it one GPU can have.
        starts: legal start positions, ascending.
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
        """Its name, taken apart."""
        return MigProfile.parse(self.name)


@dataclass(frozen=True, slots=True)
class GpuTable:
    """The MIG profiles of one GPU model, and where the values come from.

    Attributes:
        products: names of the model with ``-`` for blanks, e.g. ``NVIDIA-A100-PCIE-40GB``.
        placements_basis: ``observed``, ``documented`` or ``inferred``.
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
        """The row of a profile, by its name or resource form; None: this GPU's table has no such profile."""
        wanted = MigProfile.parse(name).name
        return next((row for row in self.rows if row.name == wanted), None)

    def row_of_id(self, profile_id: int) -> ProfileRow | None:
        """The row that ``nvidia-smi mig -cgi <id>`` means on this GPU."""
        return next((row for row in self.rows if row.profile_id == profile_id), None)

    @property
    def sm_total(self) -> int | None:
        """SMs of the profile that takes the whole GPU, of which a part is told; a card has more where it is not cut."""
        return next((row.sm for row in self.rows if row.compute_slices == self.compute_slices), None)


@dataclass(frozen=True, slots=True, order=True)
class Placed:
    """A GPU instance of a profile (its name) at a start position of the memory axis."""

    start: int
    profile: str


class DoesNotFit(ValueError):
    """A layout that cannot be cut in this order; the message names the profile and what is in its way."""


def table_for(tables: Iterable[GpuTable], product: str) -> GpuTable | None:
    """The table of a GPU as NVML names it (``NVIDIA A100-PCIE-40GB``), None when the model is in none of them."""
    wanted = product.split(" MIG ")[0].strip().replace(" ", "-")
    return next((table for table in tables if wanted in table.products), None)


def problem(table: GpuTable, layout: Iterable[Placed]) -> str | None:
    """Why these GPU instances cannot stand on one GPU together, in a sentence; None when they can."""
    placed = sorted(layout)
    rows = []
    for item in placed:
        row = table.row(item.profile)
        if row is None:
            return f"{table.key} has no profile {item.profile}."
        if item.start not in row.starts:
            return f"{item.profile} cannot start at {item.start}: it can at {_listed(row.starts)}."
        rows.append(row)
    return _overlap(placed, rows) or _counted(table, rows)


def legal(table: GpuTable, layout: Iterable[Placed]) -> bool:
    """Can these GPU instances stand on one GPU together?"""
    return problem(table, layout) is None


def fits(table: GpuTable, profile: str, existing: Iterable[Placed]) -> tuple[int, ...]:
    """Start positions at which one more instance of `profile` is legal beside the existing ones, ascending.

    A profile that the table does not have fits nowhere.
    """
    row = table.row(profile)
    if row is None:
        return ()
    placed = tuple(existing)
    return tuple(start for start in row.starts if legal(table, (*placed, Placed(start, row.name))))


def place_in_order(table: GpuTable, profiles: Sequence[str], existing: Iterable[Placed] = ()) -> tuple[Placed, ...]:
    """Where instances go when they are made one after the other, as by ``nvidia-smi mig -cgi 19,14,5``.

    Each one goes where it takes the fewest start positions from instances yet to come, the lowest of equals. The driver
    decides for itself; this gives the placements that the MIG user guide and the published LAB machine show.

    Returns: the new instances, in the order given.
    Raises:
        DoesNotFit: one of them has no legal start left.
    """
    standing = list(existing)
    made = []
    for name in profiles:
        starts = fits(table, name, standing)
        if not starts:
            raise DoesNotFit(_no_room(table, name, standing))
        options = [Placed(start, MigProfile.parse(name).name) for start in starts]
        best = max(options, key=lambda option: (_room_left(table, [*standing, option]), -option.start))
        standing.append(best)
        made.append(best)
    return tuple(made)


def arrange(table: GpuTable, counts: Mapping[str, int]) -> tuple[Placed, ...] | None:
    """A legal layout with these numbers of instances (``{"1g.5gb": 5, "2g.10gb": 1}``); None: there is none."""
    wanted = [(name, table.row(name)) for name, count in counts.items() for _ in range(count)]
    rows = [row for _, row in wanted if row is not None]
    if len(rows) < len(wanted):
        return None
    rows.sort(key=lambda row: (-row.memory_slices, row.name))
    return _arrange(table, rows, ())


def layouts(table: GpuTable, names: Iterable[str] | None = None, *, maximal: bool) -> Iterator[tuple[Placed, ...]]:
    """Every legal placed layout of these profiles (default: all of the table).

    With `maximal` only those where nothing of `names` fits any more; else partial ones and the empty one too.
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
        if legal(table, larger):  # what is illegal stays so whatever is added
            yield from _extend(table, candidates, index + 1, larger)


def _arrange(table: GpuTable, rows: Sequence[ProfileRow], layout: tuple[Placed, ...]) -> tuple[Placed, ...] | None:
    if not rows:
        return tuple(sorted(layout))
    for start in fits(table, rows[0].name, layout):
        found = _arrange(table, rows[1:], (*layout, Placed(start, rows[0].name)))
        if found is not None:
            return found
    return None


def _overlap(placed: Sequence[Placed], rows: Sequence[ProfileRow]) -> str | None:
    for index in range(1, len(placed)):
        before = placed[index - 1]
        if before.start + rows[index - 1].memory_slices > placed[index].start:
            return f"{before.profile} at {before.start} and {placed[index].profile} at {placed[index].start} overlap."
    return None


def _counted(table: GpuTable, rows: Sequence[ProfileRow]) -> str | None:
    slices = sum(row.compute_slices for row in rows)
    if slices > table.compute_slices:
        return f"They need {slices} compute slices, {table.key} has {table.compute_slices}."
    counts = Counter(row.name for row in rows)
    for row in rows:
        if counts[row.name] > row.max_instances:
            return f"{table.key} can have {row.max_instances} of {row.name}, not {counts[row.name]}."
    # An instance with every media engine leaves only instances without any (nvml.h on the ALL_ME profiles).
    profiles = [row.profile for row in rows]
    greedy = next((profile for profile in profiles if profile.plus == "me.all"), None)
    if greedy is not None and any(other.minus != "me" for other in profiles if other != greedy):
        return f"{greedy.name} takes every media engine: only profiles ending in -me can stand beside it."
    return None


def _room_left(table: GpuTable, layout: Sequence[Placed]) -> int:
    return sum(len(fits(table, row.name, layout)) for row in table.rows)


def _no_room(table: GpuTable, name: str, standing: Sequence[Placed]) -> str:
    if table.row(name) is None:
        return f"{table.key} has no profile {name}."
    beside = ", ".join(f"{item.profile} at {item.start}" for item in sorted(standing)) or "nothing"
    return f"{name} does not fit beside {beside}."


def _listed(starts: Sequence[int]) -> str:
    return ", ".join(str(start) for start in starts)
