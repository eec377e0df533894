"""Reads the package's tables of MIG profiles, once. Each GPU model has a table.

The tables are for planning and tests; on a machine with a card NVML's own figures take precedence. Unknown values are
`None`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files

import yaml

from hub_extensions.core.gpu.mig import GpuTable, MigProfileError, ProfileRow, table_for

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""YAML's loader in C, if it is installed: it needs 30 ms for our table, the Python loader 130 ms, during which no
request is answered.
"""


class MigTablesError(ValueError):
    """A table that cannot be used; the message names the GPU, the profile and the field."""


@lru_cache(maxsize=1)
def packed_tables() -> tuple[GpuTable, ...]:
    """Return the package's tables of MIG profiles, read at the first call."""
    text = (files("hub_extensions") / "data" / "mig_profiles.yaml").read_text(encoding="utf-8")
    return parse_tables(text, "mig_profiles.yaml")


def sm_of_product(product: str) -> int | None:
    """Return the number of SMs that a GPU of this model (as NVML names it) provides when partitioned; `None` if not
    known.
    """
    table = table_for(packed_tables(), product)
    return None if table is None else table.sm_total


def compute_slices_of_product(product: str) -> int | None:
    """Return the number of compute slices of a GPU of this model (as NVML names it); `None` if not known."""
    table = table_for(packed_tables(), product)
    return None if table is None else table.compute_slices


def parse_tables(text: str, origin: str) -> tuple[GpuTable, ...]:
    """Parse tables of MIG profiles from YAML.

    Args:
        text: the YAML.
        origin: the name of the file in errors.

    Raises:
        MigTablesError: a field is missing or of the wrong type.
    """
    try:
        content = yaml.load(text, Loader=LOADER)
    except yaml.YAMLError as error:
        raise MigTablesError(f"{origin} is not YAML: {error}") from error
    if not isinstance(content, Mapping) or not isinstance(content.get("gpus"), list):
        raise MigTablesError(f"{origin} has no list `gpus`.")
    return tuple(_table(entry, f"{origin}: gpus[{index}]") for index, entry in enumerate(content["gpus"]))


def _table(entry: object, where: str) -> GpuTable:
    if not isinstance(entry, Mapping):
        raise MigTablesError(f"{where} is not a mapping.")
    key = _text(entry, "key", where)
    rows = entry.get("profiles")
    if not isinstance(rows, list):
        raise MigTablesError(f"{where} ({key}) has no list `profiles`.")
    return GpuTable(
        key=key,
        products=_texts(entry, "product_examples", where),
        compute_slices=_count(entry, "compute_slices_total", where),
        memory_slices=_count(entry, "memory_slices_total", where),
        rows=tuple(_row(row, f"{where} ({key}): profiles[{index}]") for index, row in enumerate(rows)),
        source_values=_text(entry, "source_values", where),
        source_placements=_text(entry, "source_placements", where),
        placements_basis=_text(entry, "placements_basis", where),
        pci_device_ids=_texts(entry, "pci_device_ids", where),
        conflicts=_texts(entry, "conflicts", where),
        notes=_texts(entry, "notes", where),
    )


def _row(entry: object, where: str) -> ProfileRow:
    if not isinstance(entry, Mapping):
        raise MigTablesError(f"{where} is not a mapping.")
    starts = entry.get("placement_starts")
    if not isinstance(starts, list) or not all(type(start) is int and start >= 0 for start in starts):
        raise MigTablesError(f"{where}: `placement_starts` is not a list of start positions.")
    memory = entry.get("memory_gib")
    if memory is not None and (isinstance(memory, bool) or not isinstance(memory, int | float) or not memory > 0):
        raise MigTablesError(f"{where}: `memory_gib` is neither a number above 0 nor null.")
    row = ProfileRow(
        name=_text(entry, "name", where),
        kind=_text(entry, "kind", where),
        compute_slices=_count(entry, "compute_slices", where),
        memory_slices=_count(entry, "memory_slices", where),
        max_instances=_count(entry, "max_instances", where),
        starts=tuple(sorted(starts)),
        profile_id=_known(entry, "profile_id", where),
        memory_gib=None if memory is None else float(memory),
        sm=_known(entry, "sm", where),
        copy_engines=_known(entry, "copy_engines", where),
        decoders=_known(entry, "decoders", where),
        encoders=_known(entry, "encoders", where),
        jpeg=_known(entry, "jpeg", where),
        ofa=_known(entry, "ofa", where),
        note=_text(entry, "note", where) if "note" in entry else "",
    )
    try:
        named = row.profile
    except MigProfileError as error:
        raise MigTablesError(f"{where}: `name`: {error}") from error
    if named.slices != row.compute_slices:
        raise MigTablesError(f"{where}: `compute_slices` is {row.compute_slices}, but the name is {row.name}.")
    return row


def _text(entry: Mapping[object, object], name: str, where: str) -> str:
    value = entry.get(name)
    if not isinstance(value, str) or not value:
        raise MigTablesError(f"{where}: `{name}` is not a text.")
    return value


def _texts(entry: Mapping[object, object], name: str, where: str) -> tuple[str, ...]:
    value = entry.get(name, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise MigTablesError(f"{where}: `{name}` is not a list of texts.")
    return tuple(value)


def _count(entry: Mapping[object, object], name: str, where: str) -> int:
    value = _known(entry, name, where)
    if not value:
        raise MigTablesError(f"{where}: `{name}` is not a number above 0.")
    return value


def _known(entry: Mapping[object, object], name: str, where: str) -> int | None:
    value = entry.get(name)
    if value is None:
        return None
    if type(value) is not int or value < 0:
        raise MigTablesError(f"{where}: `{name}` is neither a whole number nor null.")
    return value
