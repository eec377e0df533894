"""Layouts of simulated machines: YAML files, validated as strictly as a real card would check the partitioning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any
from uuid import UUID, uuid5

from hub_extensions.core.gpu.devices import Device, Placement
from hub_extensions.core.gpu.mig import (
    DoesNotFit,
    GpuTable,
    MigProfileError,
    Placed,
    place_in_order,
    problem,
    table_for,
)


class LayoutError(ValueError):
    """A layout that no machine could have; the message names the file, the field, and what would be right."""


@dataclass(frozen=True)
class Layout:
    """A simulated machine: its GPUs and how they are partitioned.

    Attributes:
        name: the name of the file without its suffix.
        title: name of the layout for display.
        source: where the figures come from.
        devices: the devices, in the form and order in which a real machine's devices are listed. Their UUIDs are
            derived from the name and never change.
        fractions: offer id of a device (``gpu``, ``mig-3g.20gb``) -> the shares of it that are offered.
    """

    name: str
    title: str
    devices: tuple[Device, ...]
    fractions: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    source: str = ""


PACKED = ("lab-a100", "two-whole", "mixed")  # names of the layouts in the package


def load_layout(name_or_path: str | Path) -> Layout:
    """Return the layout of that name (`PACKED`), or of a YAML file.

    Args:
        name_or_path: name of a layout of this package, or path of a YAML file.

    Raises:
        LayoutError: it is not a layout that a machine could have.
        OSError: the file cannot be read.
    """
    name = str(name_or_path)
    if name in PACKED:
        return parse_layout((files("hub_extensions") / "layouts" / f"{name}.yaml").read_text(encoding="utf-8"), name)
    path = Path(name_or_path)
    if not path.is_file():
        raise LayoutError(f"{name} is neither a layout ({', '.join(PACKED)}) nor a file.")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise LayoutError(f"{path} is not a text file in UTF-8.") from None
    return parse_layout(text, path.stem, origin=str(path))


def parse_layout(text: str, name: str, *, origin: str = "") -> Layout:
    """Parse a layout from YAML.

    Args:
        text: the YAML.
        name: name of the layout.
        origin: the file's name in errors; "" for `name` with its suffix.

    Raises:
        LayoutError: it is not a layout that a machine could have.
    """
    # imported only when needed; in a user's server PyYAML comes with jupyter_events
    yaml = import_module("yaml")
    where = _Where(origin or f"{name}.yaml")
    try:
        content: object = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise LayoutError(f"{where.file} is not YAML: {error}") from None
    entry = where.mapping(content, "title", "source", "gpus", "fractions")
    gpus = where.into("gpus").items(entry.get("gpus"))
    if not gpus:
        raise LayoutError(where.into("gpus").describe("has to list at least one GPU."))
    devices = [
        device
        for index, gpu in enumerate(gpus)
        for device in _devices(where.into(f"gpus[{index}]"), gpu, f"{name}/{index}")
    ]
    return Layout(
        name=name,
        title=where.into("title").text(entry.get("title")),
        devices=tuple(devices),
        fractions=_fractions(where.into("fractions"), entry.get("fractions", {}), {device.pool for device in devices}),
        source=where.into("source").text(entry.get("source", "")),
    )


# ---------------------------------------------------------------- from text to devices


def _devices(where: _Where, content: object, key: str) -> list[Device]:
    entry = where.mapping(content, "product", "memory_gib", "sm", "mig")
    product = where.into("product").text(entry.get("product"))
    if not product:
        raise LayoutError(where.into("product").describe("has to be the card's name, such as NVIDIA A100-PCIE-40GB."))
    memory = where.into("memory_gib").gib(entry.get("memory_gib"))
    sm = where.into("sm").count(entry["sm"]) if "sm" in entry else None
    uuid = f"GPU-{uuid5(_MADE_UP, key)}"
    if "mig" not in entry:
        return [Device(uuid, product, memory_bytes=memory, sm_count=sm, simulated=True)]
    cut = _cut(where.into("mig"), entry["mig"], product)
    return [_mig_device(part, Device(uuid, product), key) for part in sorted(cut, key=lambda part: part.gpu_instance)]


@dataclass(frozen=True)
class _Part:
    placed: Placed
    size: int
    gpu_instance: int
    memory_bytes: int | None
    sm: int | None
    compute_slices: int


def _mig_device(part: _Part, gpu: Device, key: str) -> Device:
    made_up = uuid5(_MADE_UP, f"{key}/{part.gpu_instance}/{part.placed.profile}/{part.placed.start}")
    return Device(
        f"MIG-{made_up}",
        gpu.product,
        profile=part.placed.profile,
        gpu_instance_id=part.gpu_instance,
        compute_instance_id=0,
        placement=Placement(part.placed.start, part.size),
        parent_uuid=gpu.uuid,
        memory_bytes=part.memory_bytes,
        sm_count=part.sm,
        compute_slices=part.compute_slices,
        simulated=True,
    )


def _cut(where: _Where, content: object, product: str) -> list[_Part]:
    """Return the parts into which one simulated GPU is cut, in the order in which ``nvidia-smi mig -cgi`` creates them.

    Values that the layout omits come from the package's table.

    Args:
        where: the place of the parts in the layout's file, for errors.
        content: the list of parts, as the file has it.
        product: the model of the GPU, which determines the table.
    """
    table = _table(product)
    if table is None:
        raise LayoutError(
            where.describe(f"cannot be checked: nothing is known of how a {product} is cut. Leave it out.")
        )
    places = [where.at(index) for index in range(len(where.items(content)))]
    fields = ("profile", "gpu_instance", "start", "memory_gib", "sm")
    entries = [place.mapping(item, *fields) for place, item in zip(places, where.items(content), strict=True)]
    names = [
        _profile(place.into("profile"), entry.get("profile"), table)
        for place, entry in zip(places, entries, strict=True)
    ]
    placed = _placed(where, places, entries, names, table)
    parts = []
    for order, (place, entry, spot) in enumerate(zip(places, entries, placed, strict=True)):
        row = table.row(spot.profile)
        assert row is not None, "its name came from the table"
        known = None if row.memory_gib is None else round(row.memory_gib * _GIB)
        parts.append(
            _Part(
                spot,
                row.memory_slices,
                place.into("gpu_instance").count(entry["gpu_instance"], least=0) if "gpu_instance" in entry else order,
                place.into("memory_gib").gib(entry["memory_gib"]) if "memory_gib" in entry else known,
                place.into("sm").count(entry["sm"]) if "sm" in entry else row.sm,
                row.compute_slices,
            )
        )
    numbers = [part.gpu_instance for part in parts]
    if len(set(numbers)) < len(numbers):
        raise LayoutError(where.describe("gives two parts the same gpu_instance. Number all of them, or none."))
    return parts


def _table(product: str) -> GpuTable | None:
    from hub_extensions.adapters.files.mig_tables import packed_tables

    return table_for(packed_tables(), product)


def _profile(where: _Where, value: object, table: GpuTable) -> str:
    """Return the name of a MIG profile.

    Args:
        where: the place in the file.
        value: a name, or the number that ``nvidia-smi mig -cgi`` takes.
        table: the profiles of the GPU.
    """
    try:
        row = table.row_of_id(value) if type(value) is int else table.row(where.text(value))
    except MigProfileError as error:
        raise LayoutError(where.describe(f"is wrong: {error}")) from None
    if row is None:
        names = ", ".join(row.name for row in table.rows)
        raise LayoutError(where.describe(f"is {value}, but {table.key} has {names}."))
    return row.name


def _placed(
    where: _Where,
    places: Sequence[_Where],
    entries: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    table: GpuTable,
) -> tuple[Placed, ...]:
    with_start = [place for place, entry in zip(places, entries, strict=True) if "start" in entry]
    if not with_start:
        try:
            return place_in_order(table, names)
        except DoesNotFit as error:
            raise LayoutError(where.describe(f"cannot be cut: {error}")) from None
    if len(with_start) < len(places):
        raise LayoutError(where.describe("says where some parts start. Say it for all of them, or for none."))
    starts = [place.into("start").count(entry["start"], least=0) for place, entry in zip(places, entries, strict=True)]
    placed = tuple(Placed(start, name) for start, name in zip(starts, names, strict=True))
    wrong = problem(table, placed)
    if wrong is not None:
        raise LayoutError(where.describe(f"cannot be cut: {wrong}"))
    return placed


def _fractions(where: _Where, content: object, pools: set[str]) -> dict[str, tuple[float, ...]]:
    declared = {}
    for offer, shares in where.mapping(content, *sorted(pools)).items():
        place = where.into(offer)
        declared[offer] = tuple(place.share(share) for share in place.items(shares))
    return declared


_MADE_UP = UUID("6b1f0c1e-3f0a-5c55-9a51-6a7570797465")
_GIB = 2**30


@dataclass(frozen=True)
class _Where:
    """A place in a layout's file. It reads the value there, or raises an error that describes what would be right.

    Attributes:
        field: the path of the place, for errors.
    """

    file: str
    field: str = ""

    def into(self, name: str) -> _Where:
        return _Where(self.file, f"{self.field}.{name}" if self.field else name)

    def at(self, index: int) -> _Where:
        return _Where(self.file, f"{self.field}[{index}]")

    def describe(self, text: str) -> str:
        return f"{self.file}: {self.field or 'it'} {text}"

    def mapping(self, value: object, *known: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise LayoutError(self.describe(f"has to be a mapping with {', '.join(known)}."))
        for key in value:
            if key not in known:
                raise LayoutError(self.into(str(key)).describe(f"is not known here. Known are {', '.join(known)}."))
        return value

    def items(self, value: object) -> list[object]:
        if not isinstance(value, list):
            raise LayoutError(self.describe("has to be a list."))
        return value

    def text(self, value: object) -> str:
        if not isinstance(value, str):
            raise LayoutError(self.describe("has to be a text."))
        return value

    def count(self, value: object, *, least: int = 1) -> int:
        if type(value) is not int or value < least:
            raise LayoutError(self.describe(f"has to be a whole number, {least} or more."))
        return value

    def gib(self, value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e6:
            raise LayoutError(self.describe("has to be a number of GiB above 0."))
        return round(value * _GIB)

    def share(self, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1:
            raise LayoutError(self.describe(f"has {value}: a share is a number above 0 and below 1, such as 0.5."))
        return float(value)
